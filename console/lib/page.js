// What the pages have in common: they load, they show, and they load again when something happens or time passes.

import { Problem } from './api.js';
import { onEvents, onResync, state } from './live.js';

/**
 * @typedef {import('../types.js').LockEvent} LockEvent
 * @typedef {{ close: () => void }} Loader
 */

const EVERY_MS = 2000;
const AFTER_EVENT_MS = 250;

/**
 * Calls `load` now, after events that matter, and from time to time: a renewal is no event.
 * Never twice at once, never while nobody looks, never while the server is away.
 * @param {{ load: () => Promise<void>, failed: (problem: Problem) => void, matters?: (event: LockEvent) => boolean, every?: number }} what
 * @returns {Loader & { again: () => void }}
 */
export function loader({ load, failed, matters = () => true, every = EVERY_MS }) {
  let isClosed = false;
  let isLoading = false;
  let isWanted = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  const plan = (/** @type {number} */ ms) => {
    clearTimeout(timer);
    if (!isClosed) timer = setTimeout(again, ms);
  };
  const again = async () => {
    if (isClosed) return;
    if (document.hidden || (!state.get().live && state.get().begun)) return plan(every);
    if (isLoading) {
      isWanted = true;
      return;
    }
    isLoading = true;
    try {
      await load();
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (!isClosed && error.status !== 0) failed(error);
    } finally {
      isLoading = false;
      plan(isWanted ? AFTER_EVENT_MS : every);
      isWanted = false;
    }
  };
  let isPlanned = false;
  const soon = () => {
    if (isPlanned) return;
    isPlanned = true;
    setTimeout(() => {
      isPlanned = false;
      again();
    }, AFTER_EVENT_MS);
  };
  const closing = [
    onEvents((events) => events.some(matters) && soon()),
    onResync(again),
    state.follow(({ live }) => live && again()),
  ];
  const seen = () => !document.hidden && again();
  document.addEventListener('visibilitychange', seen);
  again();
  return {
    again,
    close() {
      isClosed = true;
      clearTimeout(timer);
      closing.forEach((close) => close());
      document.removeEventListener('visibilitychange', seen);
    },
  };
}
