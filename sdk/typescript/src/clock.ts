/**
 * The clock that leases are counted on.
 *
 * It must go on while the machine sleeps: a laptop that wakes up has to know at once that its lease is over. On Linux
 * `process.hrtime` stands still in sleep, so the uptime of the machine is read beside it, which has steps of 10 ms.
 */

import { uptime } from "node:os";

import { MILLISECOND, SECOND } from "./machine/types.js";

/** Microseconds from some moment on, never backwards. */
export interface Clock {
  now(): number;
  /** The time that may have passed unseen. Whoever asks for a belief is answered as if it had. */
  readonly coarseness: number;
}

const STEP = 10 * MILLISECOND;
const SAMPLES = 3;
/** To stop and thaw its processes takes a machine that sleeps longer than this, on the fine clock too. In microseconds. */
const LOOK_EVERY = 100;

function fine(): number {
  const [seconds, nanos] = process.hrtime();
  return seconds * SECOND + Math.floor(nanos / 1000);
}

/** The uptime less the fine clock. A process that is interrupted between the two reads too little, never too much. */
function ahead(): number {
  return Math.round(uptime() * SECOND) - fine();
}

/** The clock of the system. */
export class SystemClock implements Clock {
  readonly coarseness: number = process.platform === "linux" ? 2 * STEP : 0;
  readonly #start = process.platform === "linux" ? Math.max(...Array.from({ length: SAMPLES }, ahead)) : 0;
  #slept = 0;
  #lookedAt = Number.NEGATIVE_INFINITY;

  now(): number {
    const now = fine();
    if (process.platform === "linux" && now - this.#lookedAt >= LOOK_EVERY) {
      this.#lookedAt = now;
      const slept = ahead() - this.#start;
      // Less than a step is how the coarse clock is read; what is more was sleep, and is rounded up.
      if (slept > STEP) this.#slept = Math.max(this.#slept, slept + STEP);
    }
    return fine() + this.#slept;
  }
}

/** The clock of the system, which a test can set forward: as if the machine had slept. */
export class TestClock implements Clock {
  readonly #system = new SystemClock();
  #ahead = 0;

  get coarseness(): number {
    return this.#system.coarseness;
  }

  now(): number {
    return this.#system.now() + this.#ahead;
  }

  /** Sets the clock forward, by milliseconds. */
  advance(ms: number): void {
    this.#ahead += Math.round(ms * MILLISECOND);
  }
}
