// Small things that every page shows the same way.

import * as clock from '../lib/clock.js';
import { h } from '../lib/dom.js';
import { to, toLock } from '../lib/route.js';

/**
 * @typedef {import('../types.js').Holder} Holder
 * @typedef {import('../types.js').Mode} Mode
 * @typedef {import('../types.js').State} State
 */

/** Counts down to a moment. @param {number} at when the answer came @param {number} ms what was left then */
export function countdown(at, ms) {
  return h('span', { class: 'num', 'data-until': String(Math.round(at + ms)), ref: clock.show });
}

/** Counts up. @param {number} at @param {number} ms how long it had lasted then */
export function countup(at, ms) {
  return h('span', { class: 'num', 'data-since': String(Math.round(at - ms)), ref: clock.show });
}

/** A bar that drains as the lease does; the words beside it say the same. @param {number} at @param {number} ms @param {number} ttl */
export function leaseBar(at, ms, ttl) {
  const fill = { class: 'bar-fill', 'data-bar': String(Math.round(at + ms)), 'data-ttl': String(ttl), ref: clock.show };
  return h('span', { class: 'bar', 'aria-hidden': 'true' }, h('span', fill));
}

/** @param {number} at @param {Holder} holder */
export function lease(at, holder) {
  const words = h('span', { class: 'lease-left' }, countdown(at, holder.expires_in_ms));
  return h('span', { class: 'lease' }, leaseBar(at, holder.expires_in_ms, holder.ttl_ms), words);
}

/** @param {number | null | undefined} number */
export function token(number) {
  if (number === null || number === undefined) return h('span', { class: 'muted' }, '—');
  return h('span', { class: 'token', title: 'fencing token' }, `#${number}`);
}

const STATES = { free: 'free', held: 'held', recovering: 'recovering', reclaim_window: 'reclaim window' };

/** @param {State} state */
export function stateBadge(state) {
  return h('span', { class: `badge state-${state}` }, STATES[state] ?? state);
}

/** @param {Mode} mode @param {number} [permits] */
export function modeText(mode, permits) {
  return mode === 'permits' ? `permits ≤ ${permits ?? '?'}` : mode;
}

/** The word for how something ended. @param {string} reason */
export function ending(reason) {
  return h('span', { class: `badge end-${reason}` }, reason.replaceAll('_', ' '));
}

/** @param {string} lock @param {string} [shown] */
export function lockLink(lock, shown) {
  return h('a', { class: 'lock-name', href: toLock(lock), title: lock }, shown ?? lock);
}

/** @param {string} owner */
export function ownerLink(owner) {
  return h('a', { class: 'owner', href: to('locks', { q: `owner:${owner}` }), title: `what ${owner} holds` }, owner);
}

/** @param {number} number */
export function count(number) {
  return number.toLocaleString('en-US');
}

/** A moment of the server, in the reader's own time zone. @param {string} text */
export function moment(text) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return text;
  const time = at.toLocaleTimeString([], { hour12: false });
  const isToday = at.toDateString() === new Date(clock.wall()).toDateString();
  return isToday ? time : `${at.toLocaleDateString()} ${time}`;
}

/** @param {string} text */
export function momentOf(text) {
  return h('time', { datetime: text, title: text, class: 'num' }, moment(text));
}

/** @param {string} title @param {...import('../lib/dom.js').Child} children */
export function card(title, ...children) {
  return h('section', { class: 'card' }, h('h2', null, title), children);
}

/** @param {string} title @param {...import('../lib/dom.js').Child} children */
export function empty(title, ...children) {
  return h('div', { class: 'empty' }, h('strong', null, title), children);
}

/** @param {import('../lib/api.js').Problem | null} problem */
export function problemNote(problem) {
  if (!problem) return null;
  const code = problem.code.replaceAll('_', ' ');
  return h('div', { class: 'note note-bad', role: 'alert' }, h('strong', null, code), ' ', problem.message);
}

/** Text to take along. @param {string} text */
export function copyable(text) {
  const onClick = (/** @type {Event} */ event) => copy(text, event);
  const button = h('button', { class: 'small', type: 'button', onClick }, 'Copy');
  return h('div', { class: 'code' }, h('pre', null, h('code', null, text)), button);
}

/** @param {string} text @param {Event} event */
async function copy(text, event) {
  const button = /** @type {HTMLElement} */ (event.currentTarget);
  try {
    await navigator.clipboard.writeText(text);
    say('Copied.');
  } catch {
    // Not allowed here: then at least it is selected.
    const code = button.parentElement?.querySelector('code');
    if (code) getSelection()?.selectAllChildren(code);
    say('Selected: copy it with the keyboard.');
  }
}

/** One line for people who see the page and those who hear it. @param {string} text */
export function say(text) {
  const line = document.getElementById('said');
  if (!line) return;
  line.textContent = text;
  line.classList.add('shown');
  setTimeout(() => line.classList.remove('shown'), 2500);
}

/** @param {Record<string, unknown>} metadata */
export function metadataList(metadata) {
  const entries = Object.entries(metadata);
  if (entries.length === 0) return null;
  const text = (/** @type {unknown} */ value) => (typeof value === 'string' ? value : JSON.stringify(value));
  const fact = (/** @type {[string, unknown]} */ [name, value]) => [h('dt', null, name), h('dd', null, text(value))];
  return h('dl', { class: 'facts metadata' }, entries.map(fact));
}
