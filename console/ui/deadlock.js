// A deadlock in one line: who waited for what that was held by whom, round to where it began.

import * as clock from '../lib/clock.js';
import { h } from '../lib/dom.js';
import { to } from '../lib/route.js';
import { moment } from './bits.js';

/** @typedef {import('../types.js').Deadlock} Deadlock */

/** What names a deadlock in an address. @param {Deadlock} one */
export function keyOf(one) {
  return `${one.at} ${one.victim}`;
}

/** @param {Deadlock} one @param {{ withLink?: boolean }} [options] */
export function deadlockLine(one, { withLink = true } = {}) {
  const arrow = () => h('span', { class: 'arrow', 'aria-label': 'waits for' }, ' → ');
  const steps = one.cycle.flatMap((step) => [h('b', null, step.waiter), arrow(), h('code', null, step.lock), arrow()]);
  return h(
    'div',
    { class: 'deadlock-line' },
    h('span', { class: 'badge bad' }, 'Deadlock'),
    h('span', { class: 'deadlock-words' }, steps, h('b', null, one.cycle[0]?.waiter ?? ''), '. ', h('b', null, one.victim), ` was refused at ${moment(one.at)}, ${clock.length(one.ms_ago)} ago.`),
    withLink ? h('a', { class: 'button small', href: to('graph', { deadlock: keyOf(one) }) }, 'Replay') : null,
  );
}
