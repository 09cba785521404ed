// What a tab hears of the server: from the worker that all tabs share, or by itself where there are no such workers.

import * as clock from './clock.js';
import { signal } from './dom.js';
import { namespace, route } from './route.js';
import { Stream } from './stream.js';

/**
 * @typedef {import('./stream.js').Message} Message
 * @typedef {import('../types.js').LockEvent} LockEvent
 */

/** Whether what is shown is what is. `since` is when it last was. */
export const state = signal({ live: false, begun: false, since: 0 });

/** @type {Set<(events: LockEvent[], dropped: number) => void>} */
const listeners = new Set();
/** @type {Set<() => void>} */
const resyncs = new Set();

/** @param {(events: LockEvent[], dropped: number) => void} listener @returns {() => void} */
export function onEvents(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Called when everything has to be looked at again. @param {() => void} listener @returns {() => void} */
export function onResync(listener) {
  resyncs.add(listener);
  return () => resyncs.delete(listener);
}

/** @param {Message} message */
function take(message) {
  if (message.kind === 'events') for (const listener of listeners) listener(message.events, message.dropped);
  if (message.kind === 'resync') resyncs.forEach((resync) => resync());
  if (message.kind !== 'state') return;
  const before = state.get();
  clock.stop(!message.live);
  if (message.live) state.set({ live: true, begun: true, since: Date.now() });
  else if (before.live) state.set({ live: false, begun: true, since: Date.now() });
  if (message.live && before.begun && !before.live) resyncs.forEach((resync) => resync());
}

/** A script of ours by its address: the page's rules let a worker begin in no other way. @param {string} url @returns {string} */
function scriptUrl(url) {
  const types = /** @type {any} */ (window).trustedTypes;
  if (!types) return url;
  return types.createPolicy('leasehold-worker', { createScriptURL: () => '/console/lib/stream-worker.js' }).createScriptURL(url);
}

/** @type {MessagePort | undefined} */
let port;
/** @type {Stream | undefined} */
let own;

export function start() {
  if ('SharedWorker' in window) {
    port = new SharedWorker(scriptUrl('/console/lib/stream-worker.js'), { type: 'module', name: 'leasehold' }).port;
    port.onmessage = ({ data }) => take(data);
    addEventListener('pagehide', () => port?.postMessage({}));
    addEventListener('pageshow', (event) => event.persisted && port?.postMessage({ namespace: namespace() }));
  }
  let followed = '';
  const follow = () => {
    if (namespace() === followed) return;
    followed = namespace();
    if (port) return port.postMessage({ namespace: followed });
    own?.close();
    own = new Stream(followed, take);
  };
  follow();
  route.follow(follow);
}
