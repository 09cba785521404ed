// What one looks at first.

import { get } from '../lib/api.js';
import * as clock from '../lib/clock.js';
import { h, render } from '../lib/dom.js';
import { loader } from '../lib/page.js';
import { namespace, to } from '../lib/route.js';
import { card, copyable, count, countup, empty, lease, lockLink, modeText, ownerLink, problemNote, token } from '../ui/bits.js';
import { sparkline } from '../ui/chart.js';
import { deadlockLine } from '../ui/deadlock.js';

/**
 * @typedef {import('../types.js').Overview} Overview
 * @typedef {import('../types.js').Deadlock} Deadlock
 * @typedef {import('../types.js').Stamped<Overview>} Found
 */

/** @param {Element} place */
export function overview(place) {
  /** @type {{ found: Found | null, deadlocks: Deadlock[], problem: import('../lib/api.js').Problem | null }} */
  const state = { found: null, deadlocks: [], problem: null };
  const draw = () => render(place, view(state));
  const loading = loader({
    load: async () => {
      const [found, past] = await Promise.all([get('/v1/overview'), get('/v1/history', { page_size: 5 })]);
      Object.assign(state, { found, deadlocks: past.deadlocks, problem: null });
      draw();
    },
    failed: (problem) => {
      state.problem = problem;
      draw();
    },
  });
  draw();
  return { update: draw, close: loading.close };
}

/** @param {{ found: Found | null, deadlocks: Deadlock[], problem: import('../lib/api.js').Problem | null }} state */
function view({ found, deadlocks, problem }) {
  if (!found) return [heading(null), problemNote(problem)];
  const isNew = found.locks_held === 0 && found.totals.grants === 0 && found.waiters === 0;
  return [
    heading(found),
    problemNote(problem),
    isNew ? quickStart() : null,
    tiles(found),
    deadlocks.length > 0
      ? card('Recent deadlocks', h('ul', { class: 'lines' }, deadlocks.map((one) => h('li', { key: one.at + one.victim }, deadlockLine(one)))))
      : null,
    h('div', { class: 'columns' }, longest(found), soonest(found)),
  ];
}

/** @param {Found | null} found */
function heading(found) {
  const where = namespace() === 'default' ? '' : ` in ${namespace()}`;
  const said = found ? `${count(found.locks_held)} held, ${count(found.waiters)} waiting, ${count(found.sessions)} sessions${where}` : 'Loading…';
  return h('header', { class: 'page-head' }, h('div', null, h('h1', null, 'Overview'), h('p', null, said)));
}

/** @param {Found} found */
function tiles(found) {
  const { series, totals } = found;
  const seconds = series.every_ms / 1000;
  const sum = (/** @type {number[]} */ values) => values.reduce((all, value) => all + value, 0);
  // The last few intervals: one alone jumps about.
  const recent = series.grants.slice(-3);
  const rate = recent.length > 0 ? sum(recent) / (recent.length * seconds) : 0;
  const rates = series.grants.map((grants) => grants / seconds);
  const wait = totals.wait_p99_ms;
  return h(
    'div',
    { class: 'tiles' },
    tile('Held', count(found.locks_held), 'locks now', sparkline(series.locks_held, 'held', 'locks held, last ten minutes'), to('locks')),
    tile('Waiting', count(found.waiters), 'requests in queues', sparkline(series.waiters, 'wait', 'requests waiting, last ten minutes'), to('graph')),
    tile('Grants', rate >= 100 ? count(Math.round(rate)) : rate.toFixed(1), 'a second', sparkline(rates, 'plain', 'grants a second, last ten minutes')),
    tile('p99 wait', wait === null ? '—' : clock.length(wait), 'of those that waited', null),
    tile('Expired', count(sum(series.expired)), `in 10 min, ${count(totals.expired)} in all`, sparkline(series.expired, 'warn', 'leases that expired, last ten minutes')),
    tile('Deadlocks', count(sum(series.deadlocks)), `in 10 min, ${count(totals.deadlocks)} in all`, sparkline(series.deadlocks, 'bad', 'deadlocks refused, last ten minutes'), to('graph')),
    tile('Sessions', count(found.sessions), 'open', null, to('sessions')),
  );
}

/** @param {string} name @param {string} value @param {string} unit @param {import('../lib/dom.js').Child} chart @param {string} [href] */
function tile(name, value, unit, chart, href) {
  const inside = [h('span', { class: 'tile-name' }, name), h('span', { class: 'tile-value' }, value), h('span', { class: 'tile-unit' }, unit), chart];
  return href ? h('a', { class: 'tile', href, key: name }, inside) : h('div', { class: 'tile', key: name }, inside);
}

/** @param {Found} found */
function longest(found) {
  const rows = found.longest_waits.map((waiter) =>
    h(
      'tr',
      { key: `${waiter.owner_id} ${waiter.lock}` },
      h('td', { class: 'cut' }, ownerLink(waiter.owner_id)),
      h('td', { class: 'cut' }, lockLink(waiter.lock)),
      h('td', { class: 'muted wide-only' }, modeText(waiter.mode, waiter.permits)),
      h('td', { class: 'right strong' }, countup(found.at, waiter.waiting_ms)),
    ),
  );
  return card('Longest waits', rows.length > 0 ? h('table', { class: 'plain' }, h('tbody', null, rows)) : empty('No waiters.'));
}

/** @param {Found} found */
function soonest(found) {
  const rows = found.about_to_expire.map((holder) =>
    h(
      'tr',
      { key: `${holder.fencing_token} ${holder.lock}` },
      h('td', { class: 'cut' }, lockLink(holder.lock)),
      h('td', { class: 'cut wide-only' }, ownerLink(holder.owner_id)),
      h('td', { class: 'wide-only' }, token(holder.fencing_token)),
      h('td', { class: 'right lease-cell' }, lease(found.at, holder)),
    ),
  );
  const note = found.is_partial ? h('p', { class: 'muted' }, 'There are too many leases to look at all of them; these are the soonest of those looked at.') : null;
  return card('About to expire', rows.length > 0 ? h('table', { class: 'plain' }, h('tbody', null, rows)) : empty('Nothing is held.'), note);
}

function quickStart() {
  const { origin } = location;
  const ask = `curl -X POST ${origin}/v1/locks/job/nightly/acquire -H 'content-type: application/json' \\\n     -d '{"owner_id":"worker-a","ttl_ms":30000}'`;
  return h(
    'section',
    { class: 'card quick' },
    h('h2', null, 'Nothing has been locked yet'),
    h('p', null, 'Acquire a lock; it appears here at once, and goes when its 30 seconds have passed or you release it:'),
    copyable(ask),
    h('p', null, 'Or hold one for as long as a command runs:'),
    copyable('leasehold run job/nightly -- ./nightly.sh'),
    h('p', { class: 'muted' }, 'Everything the server can do is on the ', h('a', { href: to('server', { tab: 'api' }) }, 'API page'), '.'),
  );
}
