// Time as the server counts it. What it tells is how long something lasts from now; that is added to a clock which never
// jumps. While the server is out of sight the clock stands still: to go on counting would be a guess.

/** How often what counts is shown anew. */
const SLICE_MS = 250;

/** @type {number | null} */
let stopped = null;

export function now() {
  return stopped ?? performance.now();
}

/** @param {boolean} isStopped */
export function stop(isStopped) {
  if (isStopped) stopped ??= performance.now();
  else stopped = null;
  tick();
}

/** How far the server's wall clock is ahead of ours, for times that people read. */
let ahead = 0;

/** @param {string | null} date the Date header of an answer */
export function heard(date) {
  const told = date ? Date.parse(date) : NaN;
  if (!Number.isNaN(told) && Math.abs(told - Date.now()) > 2000) ahead = told - Date.now();
}

/** The wall clock of the server. */
export function wall() {
  return Date.now() + ahead;
}

// Elements say with data attributes what they count; nothing else about them changes.
//   data-until   counts down to a moment        data-since   counts up from one
//   data-bar     with data-ttl: a bar that drains

export function tick() {
  const at = now();
  for (const element of document.querySelectorAll('[data-until],[data-since],[data-bar]')) show(element, at);
}

/** @param {Element} element @param {number} [at] */
export function show(element, at = now()) {
  const { until, since, bar, ttl, full } = /** @type {HTMLElement} */ (element).dataset;
  if (until !== undefined) setText(element, left(Number(until) - at));
  if (since !== undefined) setText(element, length(at - Number(since)));
  if (bar !== undefined && ttl !== undefined) {
    const part = Math.max(0, Math.min(1, (Number(bar) - at) / Number(ttl)));
    element.setAttribute('data-level', part > 0.5 ? 'high' : part > 0.2 ? 'middle' : 'low');
    if (full !== undefined) element.setAttribute('width', String(Math.round(part * Number(full))));
    else /** @type {HTMLElement} */ (element).style.setProperty('transform', `scaleX(${part.toFixed(4)})`);
  }
}

/** @param {Element} element @param {string} text */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** What is left of something. @param {number} ms */
export function left(ms) {
  return ms <= 0 ? 'due' : length(ms);
}

/** A duration, as short as it can be read. @param {number} ms */
export function length(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} m ${String(Math.floor(seconds % 60)).padStart(2, '0')} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, '0')} m`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A length that does not change, without what is nought. @param {number} ms */
export function brief(ms) {
  return ms < 1000 ? `${Math.round(ms)} ms` : length(ms).replace('.0 s', ' s').replace(/ 0?0 [smh]$/, '');
}

setInterval(tick, SLICE_MS);
