// Where we are is in the address, all of it: it can be kept, sent to somebody, and gone back to.

import { signal } from './dom.js';

/** @typedef {{ page: string, params: Record<string, string> }} Route */

export const route = signal(parse());

addEventListener('hashchange', () => route.set(parse()));

/** @returns {Route} */
function parse() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  return { page: path || 'overview', params: Object.fromEntries(new URLSearchParams(query ?? '')) };
}

/** The namespace that is looked at. */
export function namespace() {
  return route.get().params.ns ?? 'default';
}

/**
 * The address of a page; the namespace goes along.
 * @param {string} page
 * @param {Record<string, string | undefined>} [params]
 */
export function to(page, params = {}) {
  const ns = route.get().params.ns;
  return address(page, ns && !('ns' in params) ? { ns, ...params } : params);
}

/** @param {string} page @param {Record<string, string | undefined>} params */
function address(page, params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value) query.set(name, value);
  const text = query.toString();
  return `#/${page}${text ? `?${text}` : ''}`;
}

/** @param {string} page @param {Record<string, string | undefined>} [params] */
export function go(page, params = {}) {
  location.hash = to(page, params);
}

/**
 * Changes parameters of the page we are on, without a step to go back to.
 * @param {Record<string, string | undefined>} changes
 */
export function adjust(changes) {
  const { page, params } = route.get();
  history.replaceState(null, '', address(page, { ...params, ...changes }));
  route.set(parse());
}

/** The address of a lock's page. @param {string} lock */
export function toLock(lock) {
  return to('lock', { name: lock });
}
