/**
 * The belief of a holder: the moments that were confirmed, compared with the clock.
 *
 * Reading it needs no timer: a process that was stopped for a while gets the truth from its first question on.
 */

import type { Clock } from "./clock.js";
import { LeaseLostError, type LostBy, type Problem } from "./errors.js";
import { type Key, type Standing, State } from "./machine/types.js";

interface Callback {
  readonly least: State;
  readonly call: () => void;
}

/** The belief in one lease, session, or grant under a session. */
export class Belief {
  readonly #clock: Clock;
  readonly #session: Belief | undefined;
  #standing: Standing | undefined;
  #told = State.Valid;
  #by: LostBy | undefined;
  #problem: Problem | undefined;
  #callbacks: Callback[] = [];
  key: Key | undefined;

  constructor(clock: Clock, session: Belief | undefined) {
    this.#clock = clock;
    this.#session = session;
  }

  // What the keeper tells.

  stands(standing: Standing): void {
    this.#standing = standing;
  }

  inJeopardy(): void {
    this.#tell(Math.max(this.#told, State.Jeopardy));
  }

  isLost(by: LostBy, problem?: Problem): void {
    if (this.#by === undefined) {
      this.#by = by;
      this.#problem = problem;
    }
    this.#tell(State.Lost);
  }

  #tell(state: State): void {
    this.#told = state;
    const due = this.#callbacks.filter((one) => state >= one.least);
    this.#callbacks = this.#callbacks.filter((one) => state < one.least);
    for (const { call } of due) call();
  }

  // What holders ask.

  get standing(): Standing | undefined {
    return this.#session === undefined ? this.#standing : this.#session.standing;
  }

  get isReleased(): boolean {
    return this.#by === "released";
  }

  state(): State {
    if (this.#session !== undefined) return Math.max(this.#told, this.#session.state());
    const standing = this.#standing;
    return standing === undefined ? this.#told : Math.max(this.#told, standing.state(this.#now()));
  }

  /** The reason that the lease is not valid. */
  error(): LeaseLostError | undefined {
    const state = this.state();
    if (state === State.Valid) return undefined;
    if (state === State.Jeopardy) return new LeaseLostError("jeopardy");
    if (this.#by !== undefined) return new LeaseLostError(this.#by, this.#problem);
    return this.#session?.error() ?? new LeaseLostError("lapse");
  }

  /** The time that the work may go on without another renewal, in microseconds. */
  timeToWork(): number {
    const standing = this.standing;
    if (standing === undefined || this.state() !== State.Valid) return 0;
    return Math.max(0, standing.jeopardyAt - this.#now());
  }

  /** The time until another owner may hold the lock, in microseconds. */
  timeLeft(): number {
    const standing = this.standing;
    if (standing === undefined || this.state() === State.Lost) return 0;
    return Math.max(0, standing.lapsesAt - this.#now());
  }

  /** Calls back when the belief is that bad; at once if it is already. */
  when(least: State, call: () => void): void {
    if (this.#told >= least) call();
    else this.#callbacks.push({ least, call });
  }

  forgetCallbacks(): void {
    this.#callbacks = [];
  }

  #now(): number {
    return this.#clock.now() + this.#clock.coarseness;
  }
}
