/**
 * The side that is protected: turning stale writers away.
 *
 * A lock alone cannot stop a writer that was paused, lost its lease meanwhile, and goes on where it was. The thing that is
 * written to can: it remembers the highest fencing token it has seen and refuses any lower one.
 */

import { Problem, StaleFenceError } from "./errors.js";

/** The highest fencing token seen so far, in this process. */
export class Fence {
  #highWater: number;

  constructor(highWater = 0) {
    this.#highWater = highWater;
  }

  get highWater(): number {
    return this.#highWater;
  }

  /** Throws `StaleFenceError` if a higher token was seen. To be asked in the same step as the write. */
  accept(token: number): void {
    const seen = this.#highWater;
    if (token < seen) {
      const detail = `fencing token ${token} is stale: ${seen} was seen`;
      throw new StaleFenceError(new Problem("stale_fence", detail, "not_applied", 0, "", { high_water: seen }));
    }
    this.#highWater = token;
  }
}
