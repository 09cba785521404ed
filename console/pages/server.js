// The server itself, and what it speaks.

import { get } from '../lib/api.js';
import * as clock from '../lib/clock.js';
import { h, render } from '../lib/dom.js';
import { loader } from '../lib/page.js';
import { route, to } from '../lib/route.js';
import { card, count, countdown, problemNote } from '../ui/bits.js';
import { apiPage } from '../ui/apipage.js';

/**
 * @typedef {{ strict: boolean, ends_in_ms: number, expected: number }} Grace
 * @typedef {{ group: number, role: string, leader: { name: string, address: string } | null, epoch: number, revision: number, locks_held: number }} Group
 * @typedef {{ at: number, name: string, address: string, role: string, epoch: number, revision: number, store: string, grace: Grace | null, locks_held: number, sessions: number, waiters: number, last_fencing_token: number, groups: Group[] }} Cluster
 * @typedef {{ cluster: Cluster | null, version: Record<string, any> | null, limits: Record<string, number> | null, health: { checks: { name: string, ok: boolean, detail: string }[] } | null, description: Record<string, any> | null, problem: import('../lib/api.js').Problem | null }} State
 */

/** @param {Element} place */
export function server(place) {
  /** @type {State} */
  const state = { cluster: null, version: null, limits: null, health: null, description: null, problem: null };
  const draw = () => render(place, view(state));
  const loading = loader({
    load: async () => {
      // What cannot change while the server runs is asked for once.
      const [cluster, health, version, limits, description] = await Promise.all([
        get('/v1/cluster'),
        get('/healthz').catch(() => null),
        state.version ?? get('/v1/version'),
        state.limits ?? get('/v1/limits'),
        state.description ?? get('/openapi.json'),
      ]);
      Object.assign(state, { cluster, health, version, limits, description, problem: null });
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

/** @param {State} state */
function view(state) {
  const tab = route.get().params.tab ?? 'state';
  const link = (/** @type {string} */ name, /** @type {string} */ title) => h('a', { href: to('server', { tab: name === 'state' ? undefined : name }), 'aria-current': tab === name ? 'true' : undefined }, title);
  return [
    h(
      'header',
      { class: 'page-head' },
      h('div', null, h('h1', null, 'Server'), h('p', null, state.cluster ? `${state.cluster.name} at ${state.cluster.address}` : 'Loading…')),
      h('nav', { class: 'tabs', 'aria-label': 'Parts of this page' }, link('state', 'State'), link('limits', 'Limits'), link('api', 'API')),
    ),
    problemNote(state.problem),
    tab === 'api' ? apiPage(state.description) : tab === 'limits' ? limitsOf(state.limits) : stateOf(state),
  ];
}

/** @param {State} state */
function stateOf({ cluster, version, health }) {
  if (!cluster) return null;
  const fact = (/** @type {string} */ name, /** @type {import('../lib/dom.js').Child} */ value) => h('div', { class: 'tile', key: name }, h('span', { class: 'tile-name' }, name), h('span', { class: 'tile-value small-value' }, value));
  return [
    grace(cluster),
    h(
      'div',
      { class: 'tiles' },
      fact('Role', cluster.role),
      fact('Epoch', count(cluster.epoch)),
      fact('Store', cluster.store),
      fact('Revision', count(cluster.revision)),
      fact('Last token', `#${cluster.last_fencing_token}`),
      fact('Version', version?.version ?? ''),
    ),
    h(
      'div',
      { class: 'columns' },
      card('Health', health ? h('ul', { class: 'lines' }, health.checks.map((check) => h('li', { key: check.name }, h('span', { class: `badge ${check.ok ? 'good' : 'bad'}` }, check.ok ? 'ok' : 'failing'), h('b', null, ` ${check.name}`), h('span', { class: 'muted' }, ` ${check.detail}`)))) : h('p', { class: 'note note-bad' }, 'The server reports a failure.')),
      card('Leaders', h('table', { class: 'plain' }, h('thead', null, h('tr', null, ['group', 'leader', 'epoch', 'locks'].map((title) => h('th', { scope: 'col' }, title)))), h('tbody', null, cluster.groups.map((group) => h('tr', { key: group.group }, h('td', { class: 'num' }, String(group.group)), h('td', { class: 'cut' }, group.leader ? [h('b', null, group.leader.name), h('span', { class: 'muted' }, ` ${group.leader.address}`)] : h('span', { class: 'muted' }, 'none')), h('td', { class: 'num' }, String(group.epoch)), h('td', { class: 'num' }, count(group.locks_held))))))),
    ),
    h('p', { class: 'muted' }, 'Elsewhere: ', h('a', { href: '/metrics' }, '/metrics'), ', ', h('a', { href: '/readyz?verbose' }, '/readyz?verbose'), ', ', h('a', { href: '/openapi.json' }, '/openapi.json'), ', ', h('a', { href: '/v1/graph?format=dot' }, '/v1/graph?format=dot'), '.'),
  ];
}

/** @param {Cluster} cluster */
function grace({ grace: on, at }) {
  if (!on) return null;
  const rule = on.strict ? 'No new grants until it ends.' : 'Only conflicting requests are refused until it ends.';
  return h('div', { class: 'note' }, h('strong', null, 'Recovery grace, '), countdown(at, on.ends_in_ms), ` left. ${count(on.expected)} ${on.expected === 1 ? 'lease' : 'leases'} from before the restart not yet renewed. ${rule}`);
}

/** @param {Record<string, number> | null} limits */
function limitsOf(limits) {
  if (!limits) return null;
  const rows = Object.entries(limits).filter(([name]) => name !== 'at');
  const shown = (/** @type {string} */ name, /** @type {number} */ value) => (name.endsWith('_ms') ? clock.brief(value) : count(value));
  return card('Limits in force', h('table', { class: 'plain' }, h('tbody', null, rows.map(([name, value]) => h('tr', { key: name }, h('td', null, h('code', null, name.replace(/_ms$/, ''))), h('td', { class: 'right num' }, shown(name, value)))))), h('p', { class: 'muted' }, 'They come from the configuration, and change with a restart.'));
}
