// Draws the wait-for graph. Boxes are locks, pills are owners; a solid arrow holds, a dashed one waits.

import * as clock from '../lib/clock.js';
import { h } from '../lib/dom.js';

/**
 * @typedef {import('../types.js').Graph} Graph
 * @typedef {import('../types.js').GraphNode} GraphNode
 * @typedef {import('../types.js').GraphEdge} GraphEdge
 * @typedef {import('../types.js').Place} Place
 * @typedef {import('../types.js').Deadlock} Deadlock
 * @typedef {{ from: string, to: string, kind: 'holds' | 'waits' | 'overlaps' | 'refused', words?: import('../lib/dom.js').Child, since?: number, isBad?: boolean, isFaint?: boolean }} Arrow
 */

const PAD = 12;

/**
 * @param {{ nodes: GraphNode[], arrows: Arrow[], at: number, bad: Set<string>, victims: Set<string>, selected: string, faint?: Set<string>, select: (id: string) => void }} what
 */
export function drawing({ nodes, arrows, at, bad, victims, selected, faint = new Set(), select }) {
  const places = new Map(nodes.map((node) => [node.id, node.place]));
  const parts = partsOf(nodes, arrows);
  const beside = (/** @type {string} */ id) => nodes.filter((node) => parts.get(node.id) === parts.get(id));
  // Good arrows first: the bad ones are drawn over them.
  const ordered = [...arrows].sort((one, other) => Number(one.isBad ?? false) - Number(other.isBad ?? false));
  return [
    h('defs', null, ['holds', 'waits', 'overlaps', 'bad'].map(head)),
    h('g', { class: 'edges' }, ordered.map((arrow) => line(arrow, places, beside(arrow.from)))),
    // Words over all lines, or one would strike out another's.
    h('g', { class: 'words' }, ordered.map((arrow) => wordsOf(arrow, places, beside(arrow.from), at))),
    h('g', { class: 'nodes' }, nodes.map((node) => shape(node, at, { isBad: bad.has(node.id), isVictim: victims.has(node.id), isSelected: node.id === selected, isFaint: faint.has(node.id), select }))),
  ];
}

/** Which nodes hang together. @param {GraphNode[]} nodes @param {Arrow[]} arrows */
function partsOf(nodes, arrows) {
  /** @type {Map<string, string>} */
  const above = new Map(nodes.map((node) => [node.id, node.id]));
  const top = (/** @type {string} */ id) => {
    let at = id;
    for (let next = above.get(at); next !== undefined && next !== at; next = above.get(at)) at = next;
    return at;
  };
  for (const { from, to } of arrows) if (above.has(from) && above.has(to)) above.set(top(from), top(to));
  return new Map(nodes.map((node) => [node.id, top(node.id)]));
}

/** @param {string} kind */
function head(kind) {
  const box = { viewBox: '0 0 10 10', refX: '9', refY: '5', markerWidth: '7', markerHeight: '7', orient: 'auto-start-reverse' };
  return h('marker', { id: `head-${kind}`, class: `head head-${kind}`, ...box }, h('path', { d: 'M0 0L10 5L0 10z' }));
}

/** @param {Arrow} arrow */
function kindOf(arrow) {
  return `edge edge-${arrow.kind}${arrow.isBad ? ' bad' : ''}${arrow.isFaint ? ' faint' : ''}`;
}

/** @param {Arrow} arrow */
function nameOf(arrow) {
  return `${arrow.kind} ${arrow.from} ${arrow.to}`;
}

/** @param {Arrow} arrow @param {Map<string, Place>} places @param {GraphNode[]} nodes */
function line(arrow, places, nodes) {
  const [from, to] = [places.get(arrow.from), places.get(arrow.to)];
  if (!from || !to) return null;
  const marker = arrow.isBad || arrow.kind === 'refused' ? 'bad' : arrow.kind;
  return h('g', { class: kindOf(arrow), key: nameOf(arrow), 'data-edge': nameOf(arrow) }, h('path', { d: way(from, to, nodes).d, 'marker-end': `url(#head-${marker})` }));
}

/** @param {Arrow} arrow @param {Map<string, Place>} places @param {GraphNode[]} nodes @param {number} at */
function wordsOf(arrow, places, nodes, at) {
  const [from, to] = [places.get(arrow.from), places.get(arrow.to)];
  if (!from || !to || !arrow.words) return null;
  const { x, y, anchor } = way(from, to, nodes);
  const since = arrow.since === undefined ? null : h('tspan', { 'data-since': String(Math.round(at - arrow.since)), ref: clock.show });
  const ago = arrow.kind === 'refused' && since ? ' ago' : null;
  return h('g', { class: kindOf(arrow), key: nameOf(arrow) }, h('text', { x: x.toFixed(1), y: y.toFixed(1), 'text-anchor': anchor }, arrow.words, since, ago));
}

/** The way of an arrow, and where its words go. @param {Place} from @param {Place} to @param {GraphNode[]} nodes */
function way(from, to, nodes) {
  const isForward = to.x >= from.x + from.width - 4;
  if (isForward) {
    const [x1, y1] = [from.x + from.width, from.y + from.height / 2];
    const [x2, y2] = [to.x - 1, to.y + to.height / 2];
    const bend = Math.max(36, (x2 - x1) / 2);
    const d = `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
    // Where it begins there is room: where several end there is none.
    return { d, x: x1 + 9, y: y1 - 6, anchor: 'start' };
  }
  // Back: over all of its own part that stands between, in a wide arc.
  const left = Math.min(from.x, to.x);
  const right = Math.max(from.x + from.width, to.x + to.width);
  const between = nodes.map((node) => node.place).filter((place) => place.x < right && place.x + place.width > left);
  const top = Math.min(from.y, to.y, ...between.map((place) => place.y)) - 24;
  const [x1, y1] = [from.x + from.width / 2, from.y];
  const [x2, y2] = [to.x + to.width * 0.72, to.y - 1];
  const round = 14;
  const side = Math.sign(x2 - x1) || 1;
  const d = `M${x1} ${y1}V${top + round}Q${x1} ${top} ${x1 + side * round} ${top}H${x2 - side * round}Q${x2} ${top} ${x2} ${top + round}V${y2}`;
  return { d, x: (x1 + x2) / 2, y: top - 7, anchor: 'middle' };
}

/**
 * @param {GraphNode} node @param {number} at
 * @param {{ isBad: boolean, isVictim: boolean, isSelected: boolean, isFaint: boolean, select: (id: string) => void }} how
 */
function shape(node, at, { isBad, isVictim, isSelected, isFaint, select }) {
  const { x, y, width, height } = node.place;
  const marks = `${isBad ? ' bad' : ''}${isSelected ? ' selected' : ''}${isFaint ? ' faint' : ''}`;
  const press = (/** @type {KeyboardEvent} */ event) => {
    if (event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    select(node.id);
  };
  const said = node.type === 'lock' ? `lock ${node.name}` : node.type === 'more' ? `${node.name} waiters` : `owner ${node.name}`;
  const props = {
    class: `node node-${node.type}${marks}`,
    key: node.id,
    transform: `translate(${x} ${y})`,
    tabindex: '0',
    role: 'button',
    'aria-label': isVictim ? `${said}, refused` : said,
    'data-node': node.id,
    onClick: () => select(node.id),
    onKeydown: press,
  };
  if (node.type === 'lock') return h('g', props, h('title', null, node.name), box(node, at, width, height));
  return h(
    'g',
    props,
    h('title', null, node.name),
    h('rect', { class: 'pill', width: String(width), height: String(height), rx: String(height / 2) }),
    h('text', { class: 'pill-name', x: String(width / 2), y: String(height / 2 + 4.5), 'text-anchor': 'middle' }, fitted(node.name, width - 24, 7.1)),
    isVictim ? h('text', { class: 'victim', x: String(width / 2), y: String(height + 16), 'text-anchor': 'middle' }, 'VICTIM') : null,
  );
}

/** @param {GraphNode} node @param {number} at @param {number} width @param {number} height */
function box(node, at, width, height) {
  const { lock } = node;
  const full = width - 2 * PAD;
  const parts = [
    h('rect', { class: 'box', width: String(width), height: String(height), rx: '9' }),
    h('text', { class: 'box-name', x: String(PAD), y: '23' }, fitted(node.name, full, 7.5)),
  ];
  if (!lock) return [...parts, h('text', { class: 'box-fact', x: String(PAD), y: '43' }, 'overlaps what is held')];
  const until = String(Math.round(at + lock.expires_in_ms));
  const holders = lock.holders > 1 ? ` · ${lock.holders} holders` : '';
  const left = lock.ttl_ms > 0 ? h('text', { class: 'box-fact', x: String(width - PAD), y: '42', 'text-anchor': 'end' }, h('tspan', { 'data-until': until, ref: clock.show }), h('tspan', null, ' left')) : null;
  return [
    ...parts,
    h('text', { class: 'box-fact', x: String(PAD), y: '42' }, lock.fencing_token > 0 ? `#${lock.fencing_token}${holders}` : holders),
    left,
    lock.ttl_ms > 0 ? h('rect', { class: 'track', x: String(PAD), y: '49', width: String(full), height: '5', rx: '2.5' }) : null,
    lock.ttl_ms > 0 ? h('rect', { class: 'drain', x: String(PAD), y: '49', height: '5', rx: '2.5', 'data-bar': until, 'data-ttl': String(lock.ttl_ms), 'data-full': String(full), ref: clock.show }) : null,
  ];
}

/** As much of a name as fits; its end tells more than its middle. @param {string} name @param {number} width @param {number} each */
function fitted(name, width, each) {
  const max = Math.floor(width / each);
  if (name.length <= max) return name;
  const end = Math.floor((max - 1) / 2);
  return `${name.slice(0, max - 1 - end)}…${name.slice(name.length - end)}`;
}

/**
 * A deadlock as a picture of its own: its members in a ring.
 * @param {Deadlock} one
 * @returns {{ nodes: GraphNode[], arrows: Arrow[], size: { width: number, height: number } }}
 */
export function ring(one) {
  const steps = one.cycle;
  const names = steps.flatMap((step) => [
    { id: `owner:${step.waiter}`, type: /** @type {const} */ ('owner'), name: step.waiter, token: /** @type {number | null} */ (null) },
    { id: `lock:${step.lock}`, type: /** @type {const} */ ('lock'), name: step.lock, token: step.fencing_token },
  ]);
  const total = names.length;
  const [rx, ry] = [Math.max(280, total * 62), Math.max(130, total * 34)];
  const [width, height] = [2 * rx + 300, 2 * ry + 150];
  const nodes = names.map((node, at) => {
    const [w, tall] = node.type === 'lock' ? [Math.min(270, Math.max(150, node.name.length * 7.6 + 28)), 56] : [Math.min(230, Math.max(96, node.name.length * 7.4 + 32)), 34];
    const angle = (at / total) * 2 * Math.PI - Math.PI;
    const place = { x: Math.round(width / 2 + rx * Math.cos(angle) - w / 2), y: Math.round(height / 2 + ry * Math.sin(angle) - tall / 2), width: w, height: tall };
    const lock = node.type === 'lock' ? { state: /** @type {const} */ ('held'), fencing_token: node.token ?? 0, ttl_ms: 0, expires_in_ms: 0, holders: 1 } : undefined;
    return { id: node.id, type: node.type, name: node.name, lock, place };
  });
  /** @type {Arrow[]} */
  const arrows = steps.flatMap((step) => [
    { from: `owner:${step.waiter}`, to: `lock:${step.lock}`, kind: step.waiter === one.victim ? /** @type {const} */ ('refused') : /** @type {const} */ ('waits'), words: step.waiter === one.victim ? 'asked, was refused' : 'waited', isBad: true },
    { from: `lock:${step.lock}`, to: `owner:${step.blocker}`, kind: /** @type {const} */ ('holds'), words: 'held by', isBad: true },
  ]);
  return { nodes, arrows, size: { width, height } };
}

/** Straight arrows between the sides that face each other: what a ring wants. @param {Arrow[]} arrows @param {GraphNode[]} nodes @param {Set<string>} faint */
export function ringEdges(arrows, nodes, faint) {
  const places = new Map(nodes.map((node) => [node.id, node.place]));
  return arrows.map((arrow) => {
    const from = places.get(arrow.from);
    const to = places.get(arrow.to);
    if (!from || !to) return null;
    const key = `${arrow.kind} ${arrow.from} ${arrow.to}`;
    const [a, b] = [border(from, to), border(to, from)];
    const isFaint = faint.has(key) ? ' faint' : '';
    return h(
      'g',
      { class: `edge edge-${arrow.kind} bad${isFaint}`, key, 'data-edge': key },
      h('path', { d: `M${a.x} ${a.y}L${b.x} ${b.y}`, 'marker-end': 'url(#head-bad)' }),
      h('text', { x: ((a.x + b.x) / 2).toFixed(1), y: ((a.y + b.y) / 2 - 8).toFixed(1), 'text-anchor': 'middle' }, arrow.words),
    );
  });
}

/** Where the line between the centres of two boxes leaves the first. @param {Place} from @param {Place} to */
function border(from, to) {
  const [cx, cy] = [from.x + from.width / 2, from.y + from.height / 2];
  const [dx, dy] = [to.x + to.width / 2 - cx, to.y + to.height / 2 - cy];
  const scale = Math.min((from.width / 2 + 5) / Math.max(1e-6, Math.abs(dx)), (from.height / 2 + 5) / Math.max(1e-6, Math.abs(dy)));
  return { x: Math.round(cx + dx * scale), y: Math.round(cy + dy * scale) };
}
