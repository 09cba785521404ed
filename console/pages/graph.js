// Who waits for whom: the picture of it, live, and the deadlocks that were refused, to look at again.

import { get, pathOf } from '../lib/api.js';
import * as clock from '../lib/clock.js';
import { h, render } from '../lib/dom.js';
import { loader } from '../lib/page.js';
import { adjust, route, to } from '../lib/route.js';
import { count, countdown, countup, empty, leaseBar, lockLink, modeText, moment, ownerLink, problemNote, stateBadge, token } from '../ui/bits.js';
import { deadlockLine, keyOf } from '../ui/deadlock.js';
import { drawing, ring, ringEdges } from '../ui/graphview.js';
import { timeline } from '../ui/timeline.js';

/**
 * @typedef {import('../types.js').Graph} Graph
 * @typedef {import('../types.js').GraphNode} GraphNode
 * @typedef {import('../types.js').Deadlock} Deadlock
 * @typedef {import('../types.js').Lock} Lock
 * @typedef {import('../types.js').History} History
 * @typedef {{ graph: import('../types.js').Stamped<Graph> | null, deadlocks: Deadlock[], lock: import('../types.js').Stamped<Lock> | null, past: History | null, problem: import('../lib/api.js').Problem | null }} State
 */

/** A deadlock is drawn into the live graph for so long, if those it is about are still there. */
const FRESH_MS = 10 * 60_000;
const STEP_MS = 1400;
/** A name can be read down to this zoom. */
const READABLE = 0.58;
/** On a phone a whole small graph says more than a legible corner of it; two taps on + make it legible. */
const READABLE_NARROW = 0.3;
const NARROW_PX = 500;

/** @param {Element} place */
export function graph(place) {
  /** @type {State} */
  const state = { graph: null, deadlocks: [], lock: null, past: null, problem: null };
  /** @type {SVGSVGElement | null} */
  let canvas = null;
  /** @type {ReturnType<typeof setInterval> | undefined} */
  let playing;

  const params = () => route.get().params;
  const draw = () => {
    render(place, view());
    fit();
  };

  const loading = loader({
    load: async () => {
      const { filter, select = '' } = params();
      const lock = select.startsWith('lock:') ? select.slice('lock:'.length) : '';
      const [found, past, one, before] = await Promise.all([
        get('/v1/graph', { layout: 'true', filter }),
        get('/v1/history', { page_size: 20 }),
        lock ? get(pathOf(lock)) : null,
        lock ? get('/v1/history', { lock, page_size: 12 }) : null,
      ]);
      Object.assign(state, { graph: found, deadlocks: past.deadlocks, lock: one, past: before, problem: null });
      draw();
    },
    failed: (problem) => {
      state.problem = problem;
      draw();
    },
  });

  const replayed = () => state.deadlocks.find((one) => keyOf(one) === params().deadlock);

  /* Looking around: the part of the drawing that is shown is in the address. */

  const size = () => (replayed() ? ring(/** @type {Deadlock} */ (replayed())).size : (state.graph?.size ?? { width: 0, height: 0 }));
  const sight = () => {
    const { z, x, y } = params();
    const whole = size();
    const width = canvas?.clientWidth || 900;
    const height = canvas?.clientHeight || 460;
    const fitting = Math.min(width / Math.max(1, whole.width), height / Math.max(1, whole.height), 1.25);
    // A small graph is not blown up, and a large one is not shrunk until nobody can read it: it begins at its upper left.
    const zoom = z ? Number(z) : Math.max(fitting, width < NARROW_PX ? READABLE_NARROW : READABLE);
    const [w, tall] = [width / zoom, height / zoom];
    const centred = (/** @type {number} */ all, /** @type {number} */ seen) => (all < seen ? (all - seen) / 2 : 0);
    return { fitting, zoom, x: x ? Number(x) : centred(whole.width, w), y: y ? Number(y) : centred(whole.height, tall), w, h: tall };
  };
  const fit = () => {
    if (!canvas) return;
    const { x, y, w, h: tall } = sight();
    canvas.setAttribute('viewBox', `${x.toFixed(1)} ${y.toFixed(1)} ${w.toFixed(1)} ${tall.toFixed(1)}`);
  };
  /** @param {number} by @param {{ x: number, y: number }} [at] the point that stays where it is */
  const zoomBy = (by, at) => {
    const now = sight();
    const zoom = Math.max(0.1, Math.min(4, now.zoom * by));
    const point = at ?? { x: now.x + now.w / 2, y: now.y + now.h / 2 };
    const part = now.zoom / zoom;
    look(zoom, point.x - (point.x - now.x) * part, point.y - (point.y - now.y) * part);
  };
  /** @param {number} zoom @param {number} x @param {number} y */
  const look = (zoom, x, y) => {
    adjust({ z: zoom.toFixed(3), x: x.toFixed(0), y: y.toFixed(0) });
    fit();
  };
  const whole = () => {
    const { fitting } = sight();
    const all = size();
    const [w, tall] = [(canvas?.clientWidth || 900) / fitting, (canvas?.clientHeight || 460) / fitting];
    look(fitting, (all.width - w) / 2, (all.height - tall) / 2);
  };

  const wheel = (/** @type {WheelEvent} */ event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = /** @type {Element} */ (canvas).getBoundingClientRect();
    const now = sight();
    const at = { x: now.x + ((event.clientX - box.left) / box.width) * now.w, y: now.y + ((event.clientY - box.top) / box.height) * now.h };
    zoomBy(event.deltaY < 0 ? 1.15 : 1 / 1.15, at);
  };
  const drag = (/** @type {PointerEvent} */ event) => {
    if (event.button !== 0 || /** @type {Element} */ (event.target).closest('[data-node]')) return;
    const start = sight();
    const move = (/** @type {PointerEvent} */ moved) => look(start.zoom, start.x - (moved.clientX - event.clientX) / start.zoom, start.y - (moved.clientY - event.clientY) / start.zoom);
    const end = () => {
      removeEventListener('pointermove', move);
      removeEventListener('pointerup', end);
    };
    addEventListener('pointermove', move);
    addEventListener('pointerup', end);
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    if (/** @type {Element} */ (event.target).matches('input, select') || event.ctrlKey || event.metaKey) return;
    if (event.key === '+' || event.key === '=') zoomBy(1.25);
    else if (event.key === '-') zoomBy(0.8);
    else if (event.key === '0') whole();
  };
  addEventListener('keydown', key);
  addEventListener('resize', fit);

  /** @param {string} id */
  const select = (id) => {
    adjust({ select: params().select === id ? undefined : id });
    loading.again();
  };

  /* A deadlock, step by step. */

  const step = () => Number(params().step ?? 'NaN');
  const play = () => {
    const last = storyOf(/** @type {Deadlock} */ (replayed())).length - 1;
    clearInterval(playing);
    let at = 0;
    adjust({ step: '0' });
    playing = setInterval(() => {
      at += 1;
      adjust({ step: String(at) });
      if (at >= last) clearInterval(playing);
    }, STEP_MS);
  };

  const view = () => {
    const one = replayed();
    return one ? [replayHead(one), replay(one)] : live();
  };

  const live = () => {
    const { graph: found, deadlocks, problem } = state;
    const waits = found?.edges.filter((edge) => edge.type === 'waits') ?? [];
    const waiters = waits.reduce((all, edge) => all + (found?.nodes.find((node) => node.id === edge.from)?.count ?? 1), 0);
    const wanted = new Set(waits.map((edge) => edge.to));
    const latest = deadlocks.find((one) => one.ms_ago < FRESH_MS);
    const selected = found?.nodes.find((node) => node.id === params().select);
    return [
      h(
        'header',
        { class: 'page-head' },
        h('div', null, h('h1', null, 'Wait-for graph'), h('p', null, found ? (waiters === 0 ? 'No waiters' : `${count(waiters)} waiting for ${count(wanted.size)} ${wanted.size === 1 ? 'lock' : 'locks'}`) : 'Loading…')),
        filterField(),
      ),
      problemNote(problem),
      latest ? h('div', { class: 'note note-bad deadlock-note' }, deadlockLine(latest)) : null,
      found?.truncated ? h('div', { class: 'note' }, 'Too many waits to draw. The longest are shown; a filter shows others.') : null,
      h(
        'div',
        { class: selected ? 'graph with-inspector' : 'graph' },
        h('div', { class: 'canvas-card card' }, waits.length > 0 && found ? [liveCanvas(found), tools(), legend()] : quiet(found)),
        selected && found ? inspector(selected, found) : null,
      ),
      found && waits.length > 0 ? asTable(found) : null,
      recent(deadlocks),
    ];
  };

  /** @param {import('../types.js').Stamped<Graph>} found */
  const liveCanvas = (found) => {
    const { bad, victims } = badParts(found, state.deadlocks);
    const arrows = found.edges.map((edge) => {
      const words = { waits: 'waits ', refused: 'refused ', overlaps: 'overlaps', holds: undefined }[edge.type];
      const since = edge.type === 'waits' || edge.type === 'refused' ? edge.since_ms : undefined;
      return { from: edge.from, to: edge.to, kind: edge.type, words, since, isBad: bad.has(edge.from) && bad.has(edge.to) && edge.type !== 'overlaps' };
    });
    return canvasOf(drawing({ nodes: found.nodes, arrows, at: found.at, bad, victims, selected: params().select ?? '', select }), 'Wait-for graph; the table below has the same data');
  };

  /** @param {import('../lib/dom.js').Child} inside @param {string} label */
  const canvasOf = (inside, label) =>
    h('svg', { class: 'canvas', role: 'group', 'aria-label': label, onWheel: wheel, onPointerdown: drag, ref: (/** @type {SVGSVGElement} */ element) => (canvas = element), key: 'canvas' }, inside);

  const tools = () =>
    h('div', { class: 'tools' }, h('button', { type: 'button', class: 'small', onClick: () => zoomBy(1.25), 'aria-label': 'Zoom in' }, '+'), h('button', { type: 'button', class: 'small', onClick: () => zoomBy(0.8), 'aria-label': 'Zoom out' }, '−'), h('button', { type: 'button', class: 'small', onClick: whole }, 'Fit'));

  const filterField = () =>
    h('label', { class: 'search' }, h('span', { class: 'hidden' }, 'Filter'), h('input', { type: 'search', 'data-search': true, placeholder: 'lock or owner', value: params().filter ?? '', onInput: (/** @type {any} */ event) => (adjust({ filter: event.target.value, z: undefined, x: undefined, y: undefined }), loading.again()), spellcheck: 'false' }), h('kbd', null, '/'));

  /** @param {Graph | null} found */
  const quiet = (found) => {
    if (!found) return null;
    return params().filter
      ? empty('Nothing that waits matches the filter.')
      : empty('No waiters.', h('p', null, 'Waiting owners, what they wait for, and its holders are drawn here.'));
  };

  /** @param {GraphNode} node @param {import('../types.js').Stamped<Graph>} found */
  const inspector = (node, found) => {
    const close = h('button', { type: 'button', class: 'quiet', onClick: () => select(node.id), 'aria-label': 'Close' }, '✕');
    if (node.type === 'lock') return h('aside', { class: 'inspector card', 'aria-label': node.name }, h('div', { class: 'inspector-head' }, lockLink(node.name), close), lockFacts(state));
    const edges = found.edges.filter((edge) => edge.from === node.id || edge.to === node.id);
    const nameOf = (/** @type {string} */ id) => found.nodes.find((one) => one.id === id)?.name ?? id;
    return h(
      'aside',
      { class: 'inspector card', 'aria-label': node.name },
      h('div', { class: 'inspector-head' }, node.type === 'owner' ? ownerLink(node.name) : h('b', null, `${node.name} waiters`), close),
      h('h3', null, 'Waits for'),
      h('ul', { class: 'lines' }, edges.filter((edge) => edge.type === 'waits').map((edge) => h('li', { key: edge.to }, lockLink(nameOf(edge.to)), h('span', { class: 'right strong' }, countup(found.at, edge.since_ms))))),
      h('h3', null, 'Holds, of what is waited for'),
      h('ul', { class: 'lines' }, edges.filter((edge) => edge.type === 'holds').map((edge) => h('li', { key: edge.from }, lockLink(nameOf(edge.from)), h('span', { class: 'right' }, modeText(edge.mode))))),
    );
  };

  /** @param {Deadlock} one */
  const replayHead = (one) =>
    h('header', { class: 'page-head' }, h('div', null, h('p', { class: 'crumbs' }, h('a', { href: to('graph') }, 'Wait-for graph'), ' ›'), h('h1', null, `Deadlock of ${moment(one.at)}`), h('p', null, `${one.victim} was refused, ${clock.length(one.ms_ago)} ago`)));

  /** @param {Deadlock} one */
  const replay = (one) => {
    const story = storyOf(one);
    const at = Number.isNaN(step()) ? story.length - 1 : Math.min(step(), story.length - 1);
    const { nodes, arrows } = ring(one);
    const told = new Set(story.slice(0, at + 1).flatMap((part) => part.edges));
    const faint = new Set(arrows.map((arrow) => `${arrow.kind} ${arrow.from} ${arrow.to}`).filter((name) => !told.has(name)));
    const isOver = at === story.length - 1;
    const bad = new Set(isOver ? nodes.map((node) => node.id) : []);
    const victims = new Set(isOver ? [`owner:${one.victim}`] : []);
    const shapes = drawing({ nodes, arrows: [], at: 0, bad, victims, selected: '', select: () => {} });
    const go = (/** @type {number} */ next) => {
      clearInterval(playing);
      adjust({ step: String(Math.max(0, Math.min(story.length - 1, next))) });
    };
    return [
      h('div', { class: 'note note-bad deadlock-note' }, deadlockLine(one, { withLink: false })),
      h('div', { class: 'graph' }, h('div', { class: 'canvas-card card' }, canvasOf([shapes[0], h('g', { class: 'edges', key: 'ring' }, ringEdges(arrows, nodes, faint)), shapes[3]], 'The cycle of this deadlock'), tools())),
      h(
        'section',
        { class: 'card story' },
        h('div', { class: 'buttons' }, h('button', { type: 'button', onClick: play }, 'Play'), h('button', { type: 'button', onClick: () => go(at - 1), disabled: at === 0 }, 'Back'), h('button', { type: 'button', onClick: () => go(at + 1), disabled: isOver }, 'Next')),
        h('ol', null, story.map((part, number) => h('li', { key: String(number), class: number > at ? 'faint' : '', 'aria-current': number === at ? 'step' : undefined }, part.words))),
      ),
      recent(state.deadlocks),
    ];
  };

  draw();
  return {
    update: draw,
    close() {
      loading.close();
      clearInterval(playing);
      removeEventListener('keydown', key);
      removeEventListener('resize', fit);
    },
  };
}

/**
 * What of the live graph belongs to a deadlock: the server says which refused waits it shows, and its memory of deadlocks
 * says what else was in the cycle.
 * @param {Graph} found @param {Deadlock[]} deadlocks
 */
function badParts(found, deadlocks) {
  const bad = new Set(found.cycles.flat().flatMap((edge) => [`owner:${edge.waiter}`, `lock:${edge.lock}`, `owner:${edge.blocker}`]));
  /** @type {Set<string>} */
  const victims = new Set();
  for (const edge of found.edges.filter((other) => other.type === 'refused')) {
    const one = deadlocks.find((other) => edge.from === `owner:${other.victim}` && other.cycle.some((step) => edge.to === `lock:${step.lock}`));
    victims.add(edge.from);
    for (const step of one?.cycle ?? []) bad.add(`owner:${step.waiter}`).add(`lock:${step.lock}`);
  }
  return { bad, victims };
}

/** @param {Deadlock} one @returns {{ words: string, edges: string[] }[]} */
function storyOf(one) {
  const held = one.cycle.map((step) => ({
    words: `${step.blocker} held ${step.lock}${step.fencing_token ? `, with token #${step.fencing_token}` : ''}.`,
    edges: [`holds lock:${step.lock} owner:${step.blocker}`],
  }));
  const waits = one.cycle.filter((step) => step.waiter !== one.victim).map((step) => ({ words: `${step.waiter} waited for ${step.lock}.`, edges: [`waits owner:${step.waiter} lock:${step.lock}`] }));
  const last = one.cycle.find((step) => step.waiter === one.victim);
  const end = { words: `${one.victim} asked for ${last?.lock ?? ''}. That would have closed the cycle, and no owner in it could ever have gone on: ${one.victim} was refused, the others were not touched.`, edges: [`refused owner:${one.victim} lock:${last?.lock ?? ''}`] };
  return [...held, ...waits, end];
}

/** @param {State} state */
function lockFacts({ lock: found, past }) {
  if (!found || !past) return h('p', { class: 'muted' }, 'Loading…');
  const [holder] = found.holders;
  return [
    h('p', { class: 'muted' }, stateBadge(found.state), ` ${holder ? modeText(holder.mode, holder.permits) : ''} · ${count(found.waiters_total)} waiting`),
    holder
      ? [
          h('dl', { class: 'facts' }, h('dt', null, 'holder'), h('dd', null, ownerLink(holder.owner_id)), h('dt', null, 'token'), h('dd', null, token(holder.fencing_token)), h('dt', null, 'lease'), h('dd', { class: 'strong' }, countdown(found.at, holder.expires_in_ms), ` of ${clock.brief(holder.ttl_ms)}`)),
          leaseBar(found.at, holder.expires_in_ms, holder.ttl_ms),
        ]
      : null,
    h('h3', null, 'Holders and tokens'),
    timeline(found.holders, past.holders.slice(0, 7), 300),
    found.waiters.length > 0 ? h('h3', null, 'Queue') : null,
    h('ol', { class: 'lines queue-lines' }, found.waiters.slice(0, 12).map((waiter) => h('li', { key: `${waiter.owner_id} ${waiter.lock}` }, h('span', { class: 'cut' }, waiter.owner_id), h('span', { class: 'right strong' }, countup(found.at, waiter.waiting_ms))))),
    found.waiters_total > 12 ? h('p', { class: 'muted' }, `and ${count(found.waiters_total - 12)} more`) : null,
  ];
}

/** @param {import('../types.js').Stamped<Graph>} found */
function asTable(found) {
  const name = (/** @type {string} */ id) => found.nodes.find((node) => node.id === id)?.name ?? id;
  const waits = found.edges.filter((edge) => edge.type === 'waits');
  return h(
    'details',
    { class: 'card' },
    h('summary', null, 'The same as a table'),
    h(
      'table',
      { class: 'plain' },
      h('thead', null, h('tr', null, ['who waits', 'for', 'held by', 'for so long'].map((title) => h('th', { scope: 'col' }, title)))),
      h('tbody', null, waits.map((edge) => h('tr', { key: `${edge.from} ${edge.to}` }, h('td', { class: 'cut' }, name(edge.from)), h('td', { class: 'cut' }, lockLink(name(edge.to))), h('td', { class: 'cut' }, (edge.blockers ?? []).slice(0, 3).join(', ')), h('td', null, countup(found.at, edge.since_ms))))),
    ),
  );
}

/** @param {Deadlock[]} deadlocks */
function recent(deadlocks) {
  const rows = deadlocks.map((one) => h('li', { key: keyOf(one) }, deadlockLine(one)));
  return h('section', { class: 'card recent' }, h('h2', null, 'Recent deadlocks'), rows.length > 0 ? h('ul', { class: 'lines' }, rows) : h('p', { class: 'muted' }, 'None that the server remembers.'));
}

function legend() {
  const item = (/** @type {string} */ kind, /** @type {string} */ words) => h('span', { class: 'legend-item' }, h('svg', { viewBox: '0 0 34 10', class: `edge edge-${kind}${kind === 'refused' ? ' bad' : ''}`, 'aria-hidden': 'true' }, h('path', { d: 'M1 5H33' })), words);
  return h('div', { class: 'legend' }, h('span', { class: 'legend-item' }, h('span', { class: 'legend-box' }), 'lock'), h('span', { class: 'legend-item' }, h('span', { class: 'legend-pill' }), 'owner'), item('holds', 'holds'), item('waits', 'waits'), item('refused', 'refused: deadlock'));
}
