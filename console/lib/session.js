// Who looks at this page, if the server wants to know, and what they may do.

import { Problem, get, post, protect } from './api.js';
import { signal } from './dom.js';

/** @typedef {{ principal: string, credential: string, verbs: string[], csrf?: string }} Self */

/** `undefined` before the server was asked, `null` when it wants to know who one is. */
export const self = signal(/** @type {Self | null | undefined} */ (undefined));

/** Whether the server lets us do this somewhere. What it refuses for one lock it says itself. @param {string} verb */
export function can(verb) {
  return self.get()?.verbs.includes(verb) ?? false;
}

/** Asks who one is. */
export async function look() {
  try {
    begin(await get('/v1/auth/self'));
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (error.status === 401) self.set(null);
    else throw error;
  }
}

/** @param {Self} found */
function begin(found) {
  protect(found.csrf);
  self.set(found);
}

/** @param {string} token */
export async function logIn(token) {
  begin(await post('/v1/auth/login', { token }));
}

/** With the code of a link: good once, and for a minute. @param {string} code */
export async function exchange(code) {
  begin(await post('/v1/auth/exchange', { code }));
}

export async function logOut() {
  await post('/v1/auth/logout', {});
  location.reload();
}
