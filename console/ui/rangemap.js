// The bytes of a file, and who holds or wants which of them.

import { h } from '../lib/dom.js';
import { modeText } from './bits.js';

/**
 * @typedef {import('../types.js').Holder} Holder
 * @typedef {import('../types.js').Waiter} Waiter
 * @typedef {{ start: bigint, end: bigint | null }} Range
 */

const ROW = 28;
const BAR = 20;
const LABELS = 132;

/** The range in the text of a lock; bytes go beyond what a number can tell exactly. @param {string} lock @returns {Range | null} */
export function rangeOf(lock) {
  const found = /^inode:\d+(?:@(\d+)\.\.(\d*))?$/.exec(lock);
  if (!found) return null;
  return { start: BigInt(found[1] ?? '0'), end: found[2] ? BigInt(found[2]) : null };
}

/** @param {Holder[]} holders @param {Waiter[]} waiters @param {number} width */
export function rangeMap(holders, waiters, width) {
  const pieces = [...holders.map((holder) => piece(holder, false)), ...waiters.map((waiter) => piece(waiter, true))];
  const shown = pieces.filter((one) => one !== null);
  if (shown.length === 0) return null;
  const ends = shown.flatMap(({ range }) => [range.start, range.end ?? 0n]);
  const last = ends.reduce((max, end) => (end > max ? end : max), 1n);
  const first = shown.reduce((min, { range }) => (range.start < min ? range.start : min), shown[0].range.start);
  // A range without an end goes on past the last one that has one.
  const span = Number(last - first) * 1.12 || 1;
  const x = (/** @type {bigint} */ byte) => LABELS + (Number(byte - first) / span) * (width - LABELS);
  const height = shown.length * ROW + 22;
  return h(
    'svg',
    { class: 'rangemap', width: String(width), height: String(height), viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'Byte ranges of this file; the tables have the same data' },
    shown.map((one, row) => line(one, row, x, width)),
    h('text', { class: 'axis', x: String(LABELS), y: String(height - 4) }, `byte ${first}`),
    h('text', { class: 'axis', x: String(width), y: String(height - 4), 'text-anchor': 'end' }, 'end of file, and beyond'),
  );
}

/** @param {Holder | Waiter} one @param {boolean} isWaiting */
function piece(one, isWaiting) {
  const range = rangeOf(one.lock);
  return range && { range, owner: one.owner_id, mode: one.mode, permits: one.permits, isWaiting };
}

/** @param {NonNullable<ReturnType<typeof piece>>} one @param {number} row @param {(byte: bigint) => number} x @param {number} width */
function line(one, row, x, width) {
  const y = row * ROW + 4;
  const left = x(one.range.start);
  const right = one.range.end === null ? width : x(one.range.end);
  const text = `${one.range.start}..${one.range.end ?? ''} ${one.isWaiting ? 'waits, ' : ''}${modeText(one.mode, one.permits)}`;
  const kind = one.isWaiting ? 'wanted' : one.mode;
  const isInside = right - left > text.length * 6.6 + 12;
  return h(
    'g',
    { key: `${one.owner} ${text}` },
    h('title', null, `${one.owner}: ${text}`),
    h('text', { class: 'row-label', x: '0', y: String(y + 14) }, one.owner.length > 18 ? `${one.owner.slice(0, 17)}…` : one.owner),
    h('line', { class: 'rule', x1: String(LABELS), x2: String(width), y1: String(y + BAR / 2), y2: String(y + BAR / 2) }),
    h('rect', { class: `piece piece-${kind}`, x: left.toFixed(1), y: String(y), width: Math.max(3, right - left).toFixed(1), height: String(BAR), rx: '4' }),
    h('text', { class: isInside ? 'inside' : 'outside', x: String(isInside ? left + 7 : right + 6), y: String(y + 14) }, text),
  );
}
