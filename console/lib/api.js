// Asks the server. Whatever comes back is stamped with the moment it came, because all its times count from there.

import { heard } from './clock.js';
import { namespace } from './route.js';

/** An answer that says no, or no answer at all (`status` 0). */
export class Problem extends Error {
  /** @param {number} status @param {Record<string, any>} body */
  constructor(status, body) {
    super(body.detail ?? body.title ?? 'the server does not answer');
    this.status = status;
    this.code = /** @type {string} */ (body.code ?? 'unreachable');
    this.body = body;
  }
}

const PATIENCE_MS = 10_000;

/** Shows the server that this page could read who it is; other pages cannot. @type {string | undefined} */
let csrf;

/** @param {string | undefined} given */
export function protect(given) {
  csrf = given;
}

/**
 * @param {string} path
 * @param {Record<string, string | number | undefined>} [params]
 * @returns {Promise<any>} the answer, and in `at` when it came
 */
export function get(path, params = {}) {
  return ask(path, params, {});
}

/**
 * Changes something: a request of this very page, in JSON, as the server wants it.
 * @param {string} path
 * @param {unknown} body
 * @returns {Promise<any>}
 */
export function post(path, body) {
  /** @type {Record<string, string>} */
  const headers = { 'content-type': 'application/json' };
  if (csrf) headers['x-leasehold-csrf'] = csrf;
  return ask(path, {}, { method: 'POST', headers, body: JSON.stringify(body) });
}

/**
 * @param {string} path
 * @param {Record<string, string | number | undefined>} params
 * @param {RequestInit} options
 */
async function ask(path, params, options) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(params)) {
    if (value !== undefined && value !== '') url.searchParams.set(name, String(value));
  }
  if (path.startsWith('/v1/') && !path.startsWith('/v1/auth/') && !NOT_BY_NAMESPACE.has(path)) url.searchParams.set('namespace', namespace());
  /** @type {Response} */
  let response;
  let text = '';
  try {
    response = await fetch(url, { ...options, cache: 'no-store', signal: AbortSignal.timeout(PATIENCE_MS) });
    text = await response.text();
  } catch {
    throw new Problem(0, {});
  }
  heard(response.headers.get('date'));
  const body = parse(text);
  if (!response.ok) throw new Problem(response.status, body);
  return { ...body, at: performance.now() };
}

const NOT_BY_NAMESPACE = new Set(['/v1/version', '/v1/cluster', '/v1/limits']);

/** @param {string} text @returns {Record<string, any>} */
function parse(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}

const VERBS = ['acquire', 'renew', 'release', 'test', 'check', 'break', 'unlock'];

/**
 * A lock in the path of a request. Slashes may stay, except before a last part that could be taken for a verb;
 * everything else is encoded.
 * @param {string} lock
 */
export function pathOf(lock) {
  const parts = lock.split('/').map(encodeURIComponent);
  const last = parts.length > 1 && VERBS.includes(parts[parts.length - 1]) ? `%2F${parts.pop()}` : '';
  return `/v1/locks/${parts.join('/')}${last}`;
}
