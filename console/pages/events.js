// What happens, as it happens.

import { get, Problem } from '../lib/api.js';
import { h, render } from '../lib/dom.js';
import { onEvents, onResync } from '../lib/live.js';
import { adjust, route } from '../lib/route.js';
import { count, empty, ending, lockLink, moment, problemNote, say, token } from '../ui/bits.js';
import * as clock from '../lib/clock.js';

/** @typedef {import('../types.js').LockEvent} LockEvent */

const KEPT = 2000;
const SHOWN = 400;
const BACKLOG = 200;

/** @type {Record<string, string>} */
const WORDS = {
  granted: 'granted',
  ended: 'ended',
  queued: 'waits',
  left: 'left the queue',
  deadlock: 'deadlock',
  session_opened: 'session opened',
  session_ended: 'session ended',
  ttl_changed: 'ttl changed',
  fence_accepted: 'fence accepted',
  fence_deleted: 'fence deleted',
  epoch_began: 'epoch began',
  grace_ended: 'grace ended',
};

/** @param {Element} place */
export function events(place) {
  /** The newest last. @type {{ event: LockEvent, number: number }[]} */
  let log = [];
  let numbered = 0;
  let missed = 0;
  let isPaused = false;
  /** @type {LockEvent[]} */
  let held = [];
  /** @type {Problem | null} */
  let problem = null;

  const draw = () => render(place, view());
  /** @param {LockEvent[]} more */
  const add = (more) => {
    log.push(...more.map((event) => ({ event, number: numbered++ })));
    if (log.length > KEPT) log = log.slice(-KEPT);
  };

  const loadBacklog = async () => {
    try {
      const [{ revision }, past] = await Promise.all([get('/v1/locks', { page_size: 1 }), get('/v1/history', { page_size: 1 })]);
      const after = Math.max(past.events_after, revision - BACKLOG);
      const found = (await get('/v1/events', { after, page_size: 1000 })).events;
      const known = new Set(log.map(({ event }) => JSON.stringify(event)));
      const older = found.filter((/** @type {LockEvent} */ event) => !known.has(JSON.stringify(event)));
      const newer = log.map(({ event }) => event);
      log = [];
      add([...older, ...newer]);
      problem = null;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      problem = error;
    }
    draw();
  };

  const view = () => {
    const { q = '', type = '' } = route.get().params;
    const text = q.toLowerCase();
    const matches = (/** @type {LockEvent} */ event) => (!type || event.type === type) && (!text || JSON.stringify(event).toLowerCase().includes(text));
    const found = log.filter(({ event }) => matches(event)).reverse();
    return [
      h(
        'header',
        { class: 'page-head' },
        h('div', null, h('h1', null, 'Events'), h('p', null, isPaused ? `Paused; ${count(held.length)} have come since` : `${count(found.length)} of the last ${count(log.length)}`)),
        h(
          'div',
          { class: 'controls' },
          h('label', { class: 'search' }, h('span', { class: 'hidden' }, 'Filter'), h('input', { type: 'search', 'data-search': true, placeholder: 'lock, owner, token, reason…', value: q, onInput: (/** @type {any} */ event) => adjust({ q: event.target.value }), spellcheck: 'false' }), h('kbd', null, '/')),
          h('select', { 'aria-label': 'Kind', value: type, onChange: (/** @type {any} */ event) => adjust({ type: event.target.value }) }, h('option', { value: '' }, 'all kinds'), Object.entries(WORDS).map(([value, word]) => h('option', { value, key: value }, word))),
          h('button', { type: 'button', onClick: pause, 'aria-pressed': String(isPaused) }, isPaused ? 'Go on' : 'Pause'),
          h('button', { type: 'button', onClick: () => save(found.map(({ event }) => event)) }, 'Export'),
        ),
      ),
      problemNote(problem),
      missed > 0 ? h('div', { class: 'note' }, `${count(missed)} events came faster than they could be shown.`) : null,
      h('div', { class: 'card flush' }, found.length > 0 ? h('ol', { class: 'log' }, found.slice(0, SHOWN).map(({ event, number }) => line(event, number))) : empty(log.length > 0 ? 'Nothing matches.' : 'Nothing has happened yet.')),
    ];
  };

  const pause = () => {
    isPaused = !isPaused;
    if (!isPaused) {
      add(held);
      held = [];
    }
    draw();
  };
  const key = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === 'p' && !(/** @type {Element} */ (event.target).matches('input, select'))) pause();
  };
  addEventListener('keydown', key);
  const closing = [
    onEvents((more, dropped) => {
      missed += dropped;
      if (isPaused) held = [...held, ...more].slice(-KEPT);
      else add(more);
      draw();
    }),
    onResync(loadBacklog),
  ];
  draw();
  loadBacklog();
  return {
    update: draw,
    close() {
      closing.forEach((close) => close());
      removeEventListener('keydown', key);
    },
  };
}

/** @param {LockEvent} event @param {number} number */
function line(event, number) {
  return h(
    'li',
    { key: number, class: `event event-${event.type}`, tabindex: '0', 'data-row': true },
    h('time', { class: 'num muted', datetime: event.at, title: `${event.at}, revision ${event.revision}` }, moment(event.at)),
    h('span', { class: `badge kind-${event.type}` }, WORDS[event.type] ?? event.type),
    h('span', { class: 'event-words' }, words(event)),
  );
}

/** @param {LockEvent} event @returns {import('../lib/dom.js').Child} */
function words(event) {
  const owner = h('b', null, event.owner_id ?? '');
  switch (event.type) {
    case 'granted':
      return [lockLink(event.lock ?? ''), ' to ', owner, ' ', token(event.fencing_token), h('span', { class: 'muted' }, ` ${event.mode}, for ${clock.brief(event.ttl_ms ?? 0)}`)];
    case 'ended':
      return [lockLink(event.lock ?? ''), ' of ', owner, ' ', token(event.fencing_token), ' ', ending(event.reason ?? ''), h('span', { class: 'muted' }, ` after ${clock.length(event.held_ms ?? 0)}`), event.note ? `: ${event.note}` : ''];
    case 'queued':
    case 'left':
      return [owner, event.type === 'queued' ? ' for ' : ' of ', (event.locks ?? []).map((lock) => [lockLink(lock), ' '])];
    case 'deadlock':
      return [owner, ' was refused: ', (event.cycle ?? []).map((step) => [h('b', null, step.waiter), ' → ', h('code', null, step.lock), ' → ']), h('b', null, event.cycle?.[0]?.waiter ?? '')];
    case 'session_opened':
      return [`#${event.session} by `, owner, h('span', { class: 'muted' }, ` over ${event.adapter}`)];
    case 'session_ended':
      return [`#${event.session} of `, owner, ' ', ending(event.reason ?? '')];
    case 'ttl_changed':
      return [owner, ` to ${clock.brief(event.ttl_ms ?? 0)}`];
    case 'fence_accepted':
      return [h('code', null, event.register ?? ''), ' ', token(event.fencing_token)];
    case 'fence_deleted':
      return [h('code', null, event.register ?? ''), event.note ? `: ${event.note}` : ''];
    case 'epoch_began':
      return `epoch ${event.epoch}`;
    default:
      return '';
  }
}

/** As one JSON object a line, the oldest first. @param {LockEvent[]} found the newest first */
function save(found) {
  const text = [...found].reverse().map((event) => JSON.stringify(event)).join('\n');
  const url = URL.createObjectURL(new Blob([`${text}\n`], { type: 'application/x-ndjson' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = `leasehold-events-${new Date().toISOString().replaceAll(':', '-')}.jsonl`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
  say(`${count(found.length)} events saved.`);
}
