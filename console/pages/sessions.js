// Sessions: who keeps many locks alive with one heartbeat, and whether it still beats.

import { get, post } from '../lib/api.js';
import * as clock from '../lib/clock.js';
import { h, render } from '../lib/dom.js';
import { loader } from '../lib/page.js';
import { adjust, route, to } from '../lib/route.js';
import { can } from '../lib/session.js';
import { count, countdown, empty, leaseBar, momentOf, problemNote } from '../ui/bits.js';
import { confirmWithReason } from '../ui/dialog.js';

/**
 * @typedef {import('../types.js').Session} Session
 * @typedef {{ rows: Session[], at: number, next: string | null, problem: import('../lib/api.js').Problem | null }} State
 */

const PAGE = 200;
/** The strip shows so much. */
const STRIP_MS = 60_000;

/** @param {Element} place */
export function sessions(place) {
  /** @type {State} */
  const state = { rows: [], at: 0, next: null, problem: null };
  /** When each session was heard of, as far as this page has seen it. @type {Map<number, number[]>} */
  const beats = new Map();
  let pages = 1;
  let isLoaded = false;
  const draw = () => render(place, view());
  const loading = loader({
    load: async () => {
      const rows = [];
      let next = null;
      let at = 0;
      for (let page = 0; page < pages && (page === 0 || next); page++) {
        const found = await get('/v1/sessions', { page_size: PAGE, page_token: next ?? undefined });
        rows.push(...found.sessions);
        next = found.next_page_token;
        at = found.at;
      }
      for (const one of rows) note(beats, one, at);
      for (const number of beats.keys()) if (!rows.some((one) => one.session === number)) beats.delete(number);
      Object.assign(state, { rows, at, next, problem: null });
      isLoaded = true;
      draw();
    },
    failed: (problem) => {
      state.problem = problem;
      draw();
    },
  });
  const view = () => {
    const text = (route.get().params.q ?? '').toLowerCase();
    const matches = (/** @type {Session} */ one) => !text || one.owner_id.toLowerCase().includes(text) || one.adapter.includes(text) || `#${one.session}` === text;
    const rows = state.rows.filter(matches);
    return [
      h(
        'header',
        { class: 'page-head' },
        h('div', null, h('h1', null, 'Sessions'), h('p', null, `${count(state.rows.length)}${state.next ? '+' : ''} open`)),
        h('label', { class: 'search' }, h('span', { class: 'hidden' }, 'Filter'), h('input', { type: 'search', 'data-search': true, placeholder: 'owner, adapter or #number', value: route.get().params.q ?? '', onInput: (/** @type {any} */ event) => adjust({ q: event.target.value }), spellcheck: 'false' }), h('kbd', null, '/')),
      ),
      problemNote(state.problem),
      h('div', { class: 'card flush' }, rows.length > 0 ? table(rows, state.at, beats) : isLoaded ? none(text) : empty('Loading…')),
      state.next ? h('button', { type: 'button', onClick: () => ((pages += 1), loading.again()) }, 'Load more') : null,
    ];
  };
  draw();
  return { update: draw, close: loading.close };
}

/** A heartbeat sets the deadline to its full length: so the deadline tells when the last one was. */
/** @param {Map<number, number[]>} beats @param {Session} one @param {number} at */
function note(beats, one, at) {
  const last = at - Math.max(0, one.ttl_ms - one.expires_in_ms);
  const known = beats.get(one.session) ?? [];
  const isNew = known.length === 0 || last - known[known.length - 1] > 150;
  if (isNew) known.push(last);
  beats.set(one.session, known.filter((moment) => at - moment < STRIP_MS * 1.1));
}

/** The title of each column, and whether it is left out on a narrow screen. */
const COLUMNS = [['session'], ['owner'], ['adapter', 'wide-only'], ['held'], ['waiting'], ['heartbeats, last minute', 'wide-only'], ['lease'], ['when cut off', 'wide-only'], ['']];

/** @param {Session[]} rows @param {number} at @param {Map<number, number[]>} beats */
function table(rows, at, beats) {
  return h(
    'div',
    { class: 'scroll' },
    h('table', { class: 'plain rows' }, h('thead', null, h('tr', null, COLUMNS.map(([title, width]) => h('th', { scope: 'col', class: width }, title)))), h('tbody', null, rows.map((one) => row(one, at, beats.get(one.session) ?? [])))),
  );
}

/** @param {Session} one @param {number} at @param {number[]} beats */
function row(one, at, beats) {
  // Over plain HTTP there is no connection that could break.
  const isUnbound = one.adapter === 'http' && !one.attached;
  const policy = isUnbound ? 'ends with its ttl' : one.on_disconnect === 'keep' ? `keeps for ${clock.brief(one.disconnect_ttl_ms ?? 0)}` : 'releases all';
  return h(
    'tr',
    { key: one.session, tabindex: '0', 'data-row': true },
    h('td', { class: 'num session-number', title: `#${one.session}` }, `#${one.session}`),
    h('td', { class: 'cut' }, h('a', { class: 'owner', href: to('locks', { q: `session:${one.session}` }), title: 'what it holds' }, one.owner_id), one.recovering ? h('span', { class: 'badge state-recovering' }, 'recovering') : null),
    h('td', { class: 'wide-only' }, h('span', { class: 'badge' }, one.adapter), one.attached ? h('span', { class: 'muted' }, ' attached') : null),
    h('td', { class: 'num' }, count(one.locks)),
    h('td', { class: 'num' }, count(one.waiters)),
    h('td', { class: 'wide-only' }, strip(beats, at)),
    h('td', { class: 'lease-cell' }, h('span', { class: 'lease' }, leaseBar(at, one.expires_in_ms, one.ttl_ms), h('span', { class: 'lease-left' }, countdown(at, one.expires_in_ms)))),
    h('td', { class: 'muted wide-only' }, policy, h('div', { class: 'tiny' }, 'opened ', momentOf(one.opened_at))),
    h('td', { class: 'right' }, can('break') && h('button', { class: 'small danger', type: 'button', onClick: () => close(one) }, 'Close…')),
  );
}

/** A mark for every heartbeat that was seen. @param {number[]} beats @param {number} at */
function strip(beats, at) {
  const x = (/** @type {number} */ moment) => 120 - ((at - moment) / STRIP_MS) * 120;
  const shown = beats.map(x).filter((place) => place >= 0);
  const last = beats[beats.length - 1];
  return h(
    'span',
    { class: 'beats' },
    h('svg', { class: 'strip', viewBox: '0 0 120 18', width: '120', height: '18', role: 'img', 'aria-label': `${shown.length} heartbeats seen` }, h('line', { class: 'rule', x1: '0', x2: '120', y1: '9', y2: '9' }), shown.map((place) => h('line', { class: 'beat', x1: place.toFixed(1), x2: place.toFixed(1), y1: '3', y2: '15' }))),
    h('span', { class: 'muted tiny' }, last === undefined ? '' : [h('span', { class: 'num', 'data-since': String(Math.round(last)), ref: clock.show }), ' ago']),
  );
}

/** @param {string} text */
function none(text) {
  return text ? empty('No session matches.') : empty('No sessions.', h('p', null, 'A lock that is acquired by itself has a lease of its own. Sessions are for programs that hold many.'));
}

/** @param {Session} one */
function close(one) {
  confirmWithReason({
    title: `Close session #${one.session}?`,
    warning: `${one.owner_id} loses ${one.locks === 1 ? 'the lock' : `all ${count(one.locks)} locks`} it holds under it at once and may still be working.`,
    word: one.owner_id,
    verb: 'Close it',
    act: async (reason) => {
      const { released } = await post(`/v1/sessions/${one.session}/break`, { reason });
      return `The session is closed; ${count(released)} ${released === 1 ? 'grant' : 'grants'} ended.`;
    },
  });
}
