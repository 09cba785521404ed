// Who held a lock when, each with the token it was given: the picture behind the word "fencing".

import * as clock from '../lib/clock.js';
import { h } from '../lib/dom.js';
import { ending, momentOf, token } from './bits.js';

/**
 * @typedef {import('../types.js').Holder} Holder
 * @typedef {import('../types.js').PastHolder} PastHolder
 * @typedef {{ owner: string, token: number, from: number, to: number, reason: string, note?: string, mode: string }} Bar
 *   `from` and `to` are how long ago, in milliseconds
 */

const ROWS_MAX = 12;
const ROW = 26;
const BAR = 20;
const MINUTE = 60_000;
const MINUTES = [0.5, 1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 180, 240, 360, 720, 1440, 2880, 10_080];
const SPANS = MINUTES.map((minutes) => minutes * MINUTE);
/** Those who did not let go themselves. */
const LOST = new Set(['expired', 'grace_expired', 'disconnected']);

/**
 * @param {Holder[]} holders
 * @param {PastHolder[]} past the newest first
 * @param {number} width
 */
export function timeline(holders, past, width) {
  const bars = [...holders.map(current), ...past.map(ended)].slice(0, ROWS_MAX).reverse();
  if (bars.length === 0) return h('p', { class: 'muted' }, 'Not held since the server started.');
  const oldest = Math.max(...bars.map((bar) => bar.from));
  const span = SPANS.find((length) => length >= oldest * 1.02) ?? oldest * 1.02;
  const x = (/** @type {number} */ ago) => Math.max(0, width - (Math.min(ago, span) / span) * width);
  const height = bars.length * ROW + 22;
  const label = `Holders of the last ${clock.length(span)}; the list says the same`;
  const hatch = { id: 'hatch', width: '6', height: '6', patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' };
  const rule = (/** @type {number} */ part) =>
    h('line', { class: 'rule', x1: String(width * part), x2: String(width * part), y1: '0', y2: String(height - 18) });
  return h(
    'svg',
    { class: 'timeline', width: String(width), height: String(height), viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': label },
    h('defs', null, h('pattern', hatch, h('line', { class: 'hatch', x1: '0', y1: '0', x2: '0', y2: '6' }))),
    [0.25, 0.5, 0.75].map(rule),
    bars.map((bar, row) => one(bar, row, x, width)),
    h('text', { class: 'axis', x: '0', y: String(height - 4) }, `${clock.brief(span)} ago`),
    h('text', { class: 'axis', x: String(width), y: String(height - 4), 'text-anchor': 'end' }, 'now'),
  );
}

/** @param {Bar} bar @param {number} row @param {(ago: number) => number} x @param {number} width */
function one(bar, row, x, width) {
  const left = x(bar.from);
  const right = Math.max(x(bar.to), left + 3);
  const y = row * ROW + 2;
  const label = `#${bar.token} ${bar.owner}`;
  const needed = label.length * 7 + 16;
  const isInside = right - left > needed;
  const isLeft = !isInside && right + needed > width;
  const size = { x: left.toFixed(1), y: String(y), width: (right - left).toFixed(1), height: String(BAR), rx: '5' };
  const beside = isLeft ? { x: String(left - 6), 'text-anchor': 'end' } : { x: String(right + 6) };
  const place = isInside ? { x: String(left + 8) } : beside;
  const how = bar.reason === 'now' ? 'holds it now' : `held ${clock.length(bar.from - bar.to)}, ${bar.reason}`;
  return h(
    'g',
    { key: `${bar.token} ${bar.owner} ${bar.reason}` },
    h('title', null, `${label}, ${bar.mode}, ${how}${bar.note ? `: ${bar.note}` : ''}`),
    h('rect', { class: `held held-${bar.reason}`, ...size }),
    LOST.has(bar.reason) && h('rect', { class: 'lost', fill: 'url(#hatch)', ...size }),
    h('text', { class: isInside ? 'inside' : 'outside', y: String(y + 14), ...place }, label),
  );
}

/** @param {Holder} holder @returns {Bar} */
function current(holder) {
  const from = Math.max(0, clock.wall() - Date.parse(holder.acquired_at));
  return { owner: holder.owner_id, token: holder.fencing_token, from, to: 0, reason: 'now', mode: holder.mode };
}

/** @param {PastHolder} past @returns {Bar} */
function ended(past) {
  const { owner_id: owner, fencing_token, ended_ms_ago: to, reason, note, mode } = past;
  return { owner, token: fencing_token, from: to + past.held_ms, to, reason, note, mode };
}

/** The same in words. @param {PastHolder[]} past */
export function pastList(past) {
  const names = ['token', 'owner', 'held', 'ended', 'how'];
  const row = (/** @type {PastHolder} */ one) =>
    h(
      'tr',
      { key: `${one.fencing_token} ${one.lock} ${one.ended_at}` },
      h('td', null, token(one.fencing_token)),
      h('td', { class: 'cut' }, one.owner_id),
      h('td', { class: 'num' }, clock.length(one.held_ms)),
      h('td', null, momentOf(one.ended_at)),
      h('td', null, ending(one.reason), one.note ? h('span', { class: 'muted' }, ` ${one.note}`) : null),
    );
  return h(
    'table',
    { class: 'plain' },
    h('thead', null, h('tr', null, names.map((name) => h('th', { scope: 'col' }, name)))),
    h('tbody', null, past.map(row)),
  );
}
