// Lines that show how a number went over the last ten minutes.

import { h } from '../lib/dom.js';

const WIDTH = 160;
const HEIGHT = 36;

/**
 * @param {number[]} values the oldest first
 * @param {string} kind how it is coloured
 * @param {string} label what a reader who does not see it is told
 */
export function sparkline(values, kind, label) {
  const max = Math.max(1, ...values);
  const step = WIDTH / Math.max(1, values.length - 1);
  const y = (/** @type {number} */ value) => HEIGHT - 2 - (value / max) * (HEIGHT - 6);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${y(value).toFixed(1)}`);
  const line = points.length > 1 ? `M${points.join('L')}` : `M0,${y(values[0] ?? 0)}H${WIDTH}`;
  const box = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label };
  return h(
    'svg',
    { class: `spark spark-${kind}`, ...box },
    h('path', { class: 'spark-area', d: `${line}V${HEIGHT}H0Z` }),
    h('path', { class: 'spark-line', d: line }),
  );
}
