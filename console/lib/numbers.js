// The numbers that the frame shows, and that pages may use.

import { signal } from './dom.js';

/** @typedef {import('../types.js').Overview} Overview */

export const numbers = signal(/** @type {Overview | null} */ (null));
