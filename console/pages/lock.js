// One lock: who has it, who waits for it, who had it before.

import { get, pathOf, post } from '../lib/api.js';
import * as clock from '../lib/clock.js';
import { h, render } from '../lib/dom.js';
import { loader } from '../lib/page.js';
import { adjust, namespace, route, to } from '../lib/route.js';
import { can } from '../lib/session.js';
import { card, copyable, count, countdown, countup, empty, leaseBar, lockLink, metadataList, modeText, momentOf, ownerLink, problemNote, stateBadge, token } from '../ui/bits.js';
import { deadlockLine } from '../ui/deadlock.js';
import { confirmWithReason } from '../ui/dialog.js';
import { rangeMap } from '../ui/rangemap.js';
import { pastList, timeline } from '../ui/timeline.js';

/**
 * @typedef {import('../types.js').Lock} Lock
 * @typedef {import('../types.js').Holder} Holder
 * @typedef {import('../types.js').History} History
 * @typedef {import('../types.js').LockSummary} LockSummary
 * @typedef {import('../types.js').Stamped<Lock>} Found
 * @typedef {{ found: Found | null, past: History | null, below: LockSummary[], problem: import('../lib/api.js').Problem | null }} State
 */

/** @param {Element} place */
export function lock(place) {
  const name = route.get().params.name ?? '';
  /** @type {State} */
  const state = { found: null, past: null, below: [], problem: null };
  const draw = () => render(place, view(name, state, place.clientWidth));
  const loading = loader({
    load: async () => {
      const below = belowOf(name);
      const [found, past, list] = await Promise.all([
        get(pathOf(name)),
        get('/v1/history', { lock: name, page_size: 50 }),
        below ? get('/v1/locks', { prefix: below, page_size: 200 }) : { locks: [] },
      ]);
      Object.assign(state, { found, past, below: list.locks, problem: null });
      draw();
    },
    failed: (problem) => {
      state.problem = problem;
      draw();
    },
  });
  draw();
  addEventListener('resize', draw);
  return {
    update: draw,
    close() {
      loading.close();
      removeEventListener('resize', draw);
    },
  };
}

/** What lies below a path. @param {string} name */
function belowOf(name) {
  if (!name.startsWith('path:/')) return null;
  const path = name.replace(/\/\*\*$/, '');
  return path.endsWith('/') ? path : `${path}/`;
}

/** @param {string} name @param {State} state @param {number} width */
function view(name, { found, past, below, problem }, width) {
  const inner = Math.max(260, Math.min(width, 1180) - 42);
  return [
    h(
      'header',
      { class: 'page-head' },
      h(
        'div',
        null,
        h('p', { class: 'crumbs' }, h('a', { href: to('locks') }, 'Locks'), ' ›'),
        h('h1', { class: 'mono' }, name),
        h('p', null, found ? [stateBadge(found.state), ` ${count(found.waiters_total)} waiting`, namespace() === 'default' ? '' : ` · namespace ${namespace()}`] : 'Loading…'),
      ),
      found && found.holders_total > 0 && can('break') ? h('button', { class: 'danger', type: 'button', onClick: () => breakLock(name, found) }, 'Break…') : null,
    ),
    problemNote(problem),
    found ? h('div', { class: 'columns' }, holders(found), queue(found)) : null,
    found && past
      ? card('Holders and their tokens', timeline(found.holders, past.holders, inner), past.holders.length > 0 ? h('details', null, h('summary', null, `The last ${past.holders.length} in words`), pastList(past.holders)) : null, past.complete_after ? h('p', { class: 'muted' }, 'Older ones are forgotten: the server remembers a bounded number of them.') : null)
      : null,
    found && name.startsWith('inode:') ? card('Byte ranges', rangeMap(found.holders, found.waiters, inner) ?? empty('No byte of this file is held.')) : null,
    found && name.startsWith('path:') ? card('Below this path', subtree(name, below)) : null,
    past && past.deadlocks.length > 0 ? card('Deadlocks it was part of', h('ul', { class: 'lines' }, past.deadlocks.map((one) => h('li', { key: one.at + one.victim }, deadlockLine(one))))) : null,
    snippets(name),
  ];
}

/** @param {Found} found */
function holders(found) {
  if (found.holders.length === 0) return card('Holder', empty('Free.', h('p', null, 'The next request is granted.')));
  const title = found.holders_total === 1 ? 'Holder' : `Holders (${count(found.holders_total)})`;
  const shown = found.holders.map((holder) => one(found, holder));
  return card(title, h('div', { class: 'holders' }, shown));
}

/** @param {Found} found @param {Holder} holder */
function one(found, holder) {
  return h(
    'div',
    { class: 'holder', key: `${holder.fencing_token} ${holder.lock}` },
    h('div', { class: 'holder-top' }, h('span', { class: 'holder-name' }, ownerLink(holder.owner_id)), token(holder.fencing_token)),
    h('div', { class: 'holder-lease' }, leaseBar(found.at, holder.expires_in_ms, holder.ttl_ms), h('span', null, countdown(found.at, holder.expires_in_ms), ` of ${clock.brief(holder.ttl_ms)}`)),
    h(
      'dl',
      { class: 'facts' },
      holder.lock === found.lock ? null : [h('dt', null, 'holds'), h('dd', null, lockLink(holder.lock))],
      h('dt', null, 'mode'),
      h('dd', null, modeText(holder.mode, holder.permits)),
      h('dt', null, 'since'),
      h('dd', null, momentOf(holder.acquired_at)),
      holder.state === 'held' ? null : [h('dt', null, 'state'), h('dd', null, stateBadge(holder.state))],
      holder.session === undefined ? null : [h('dt', null, 'session'), h('dd', null, h('a', { href: to('sessions', { q: `#${holder.session}` }) }, `#${holder.session}`))],
    ),
    metadataList(holder.metadata),
  );
}

/** @param {Found} found */
function queue(found) {
  if (found.waiters.length === 0) return card('Queue', empty('No waiters.'));
  const rows = found.waiters.map((waiter) =>
    h(
      'tr',
      { key: `${waiter.owner_id} ${waiter.lock} ${waiter.mode}` },
      h('td', { class: 'num muted' }, String(waiter.position)),
      h('td', { class: 'cut' }, ownerLink(waiter.owner_id), waiter.lock === found.lock ? null : h('span', { class: 'muted' }, ` for ${waiter.lock}`)),
      h('td', { class: 'muted' }, modeText(waiter.mode, waiter.permits)),
      h('td', { class: 'right strong' }, countup(found.at, waiter.waiting_ms)),
      h('td', { class: 'right muted wide-only' }, waiter.gives_up_in_ms === undefined ? '' : ['gives up in ', countdown(found.at, waiter.gives_up_in_ms)]),
    ),
  );
  const more = found.waiters_total - found.waiters.length;
  return card(`Queue (${count(found.waiters_total)})`, h('table', { class: 'plain queue' }, h('tbody', null, rows)), more > 0 ? h('p', { class: 'muted' }, `and ${count(more)} more`) : null);
}

/** @param {string} name @param {LockSummary[]} below */
function subtree(name, below) {
  const base = belowOf(name) ?? '';
  if (below.length === 0) return empty('Nothing below it is held.');
  return h(
    'ul',
    { class: 'subtree' },
    below.map((one) => {
      const rest = one.lock.slice(base.length);
      const depth = rest.split('/').length - 1;
      return h('li', { key: one.lock, style: { 'padding-left': `${depth * 18}px` } }, lockLink(one.lock, rest), h('span', { class: 'muted' }, ` ${one.holders[0]?.owner_id ?? ''}`), ' ', token(one.holders[0]?.fencing_token));
    }),
  );
}

/** @param {string} name @param {Found} found */
function breakLock(name, found) {
  const who = found.holders.map((holder) => holder.owner_id).slice(0, 3).join(', ');
  confirmWithReason({
    title: 'Break this lock?',
    warning: `${who} ${found.holders_total === 1 ? 'loses' : 'lose'} it at once and may still be working. Only the fencing token keeps a late write out.`,
    word: name,
    verb: 'Break it',
    act: async (reason) => {
      const { broken } = await post(`${pathOf(name)}/break`, { reason });
      return `${broken} ${broken === 1 ? 'grant' : 'grants'} ended.`;
    },
  });
}

/* The same from elsewhere. */

/** @param {string} name */
function snippets(name) {
  const how = route.get().params.how ?? 'curl';
  const ns = namespace();
  const query = ns === 'default' ? '' : `?namespace=${encodeURIComponent(ns)}`;
  const quoted = `'${name.replaceAll("'", "'\\''")}'`;
  const path = `${location.origin}${pathOf(name)}`;
  const server = JSON.stringify(location.origin);
  const text = JSON.stringify(name);
  const connect = ns === 'default' ? `Client::connect(${server})` : `Client::builder(${server}).namespace(${JSON.stringify(ns)}).connect()`;
  /** @type {Record<string, string>} */
  const texts = {
    curl: `# look\ncurl '${path}${query}'\n\n# take it for 30 s, waiting up to 10 s\ncurl -X POST '${path}/acquire${query}' -H 'content-type: application/json' \\\n     -d '{"owner_id":"worker-a","ttl_ms":30000,"wait_ms":10000}'`,
    CLI: `export LEASEHOLD_ADDR=${location.origin}${ns === 'default' ? '' : ` LEASEHOLD_NAMESPACE='${ns}'`}\nleasehold get ${quoted}\nleasehold run ${quoted} --wait 10s --ttl 30s -- ./work.sh`,
    Rust: `let client = ${connect}.await?;\nlet lease = client\n    .lock(${text})\n    .owner("worker-a")\n    .ttl(Duration::from_secs(30))\n    .wait(Duration::from_secs(10))\n    .acquire()\n    .await?;\nwrite(lease.fencing_token(), rows).await?;\nlease.release().await?;`,
    Python: `client = Client(${server}, owner="worker-a"${ns === 'default' ? '' : `, namespace=${JSON.stringify(ns)}`})\nwith client.lock(${text}, ttl=30, wait=10) as lease:\n    write(rows, token=lease.fencing_token)`,
    Go: `c, err := leasehold.New(${server}, leasehold.Owner("worker-a")${ns === 'default' ? '' : `, leasehold.Namespace(${JSON.stringify(ns)})`})\nlock := c.Lock(${text}, leasehold.TTL(30*time.Second), leasehold.Wait(10*time.Second))\nerr = lock.Do(ctx, func(ctx context.Context, lease *leasehold.Lease) error {\n\treturn write(ctx, lease.FencingToken(), rows)\n})`,
    TypeScript: `const client = new Client(${server}, { owner: "worker-a"${ns === 'default' ? '' : `, namespace: ${JSON.stringify(ns)}`} });\nawait client.lock(${text}, { ttl: "30s", wait: "10s" }).run(async (lease) => {\n  await write(rows, { token: lease.fencingToken, signal: lease.signal });\n});`,
  };
  const tab = (/** @type {string} */ one) => h('button', { type: 'button', role: 'tab', 'aria-selected': String(one === how), onClick: () => adjust({ how: one === 'curl' ? undefined : one }), key: one }, one);
  return card('Copy as', h('div', { class: 'tabs', role: 'tablist' }, Object.keys(texts).map(tab)), copyable(texts[how] ?? texts.curl));
}
