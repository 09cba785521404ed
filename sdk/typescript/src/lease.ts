/** A lease as its holder sees it, and how one is asked for. */

import "./dispose.js";

import { randomBytes } from "node:crypto";

import type { Api } from "./api.js";
import type { Belief } from "./belief.js";
import { RETRYABLE } from "./codes.js";
import { type Duration, micros } from "./duration.js";
import { ClosedError, HeldError, LeaseLostError, RefusedError, UnreachableError, UsageError } from "./errors.js";
import type { Item, Keeper } from "./keeper.js";
import { MILLISECOND, State } from "./machine/types.js";
import { type Claim, type Grant, type Json, Payload, type What } from "./payload.js";
import { untilWanted } from "./wanted.js";

/** `jeopardy` from half of the ttl on without a renewal: the work must stop, no other owner can have it yet. */
export type LeaseState = "valid" | "jeopardy" | "lost";

const STATES: readonly LeaseState[] = ["valid", "jeopardy", "lost"];

/** The parts of a client that its locks share. */
export interface Setup {
  readonly keeper: Keeper;
  readonly api: Api;
  readonly namespace: string;
  readonly owner: string | undefined;
  readonly ttl: Duration;
  readonly nonce: string;
  readonly query: string;
}

/** The way a lock is asked for, under a session or on its own. */
export interface LockOptions {
  /** `shared` stands beside other shared holders. */
  readonly mode?: "exclusive" | "shared";
  /** One of so many holders at once. */
  readonly permits?: number;
  /** The time in line; 0 (the default) is not at all, `null` for ever. Milliseconds, or text such as `10s`. */
  readonly wait?: Duration | null;
  readonly owner?: string;
  /** Shown to others with the lock. */
  readonly metadata?: Json;
  /** Gives up the wait; nothing is left behind. */
  readonly signal?: AbortSignal;
  /** A lease of its own stands so long without a renewal. Not under a session. */
  readonly ttl?: Duration;
  /** After the lease has ended, the lock stays reserved for its owner for so long. */
  readonly reclaimWindow?: Duration;
  /** `false`: nothing is renewed until `startHeartbeat`. */
  readonly heartbeat?: boolean;
}

/** The options of a set: modes and permits are said for each lock. */
export type SetOptions = Omit<LockOptions, "mode" | "permits">;

/** A lock of a set: its name, or with a mode or permits. */
export type LockName = string | Claim;

/** The number of tries of `acquireWithRetry`, and the pauses between them where the server recommends none. */
export interface Retry {
  readonly attempts?: number;
  /** After the first refusal. It doubles, and is jittered. */
  readonly pause?: Duration;
  readonly pauseMax?: Duration;
}

export interface Under {
  readonly item: Item;
  readonly id: string;
}

export interface Spec {
  readonly setup: Setup;
  readonly what: What;
  readonly options: LockOptions;
  readonly under?: Under;
}

export function claimOf(lock: LockName): Claim {
  const claim = typeof lock === "string" ? { lock } : lock;
  if (typeof claim.lock !== "string" || claim.lock === "") throw new UsageError("a lock has a name");
  if (claim.mode !== undefined && claim.mode !== "shared" && claim.mode !== "exclusive") {
    throw new UsageError(`${String(claim.mode)} is no mode: write shared or exclusive`);
  }
  if (claim.mode === "shared" && claim.permits !== undefined) {
    throw new UsageError("a lock is shared or has permits, not both");
  }
  const how = claim.permits === undefined ? {} : { permits: claim.permits };
  return claim.mode === "shared" ? { lock: claim.lock, mode: "shared" } : { lock: claim.lock, ...how };
}

export function lockOf(name: string, options: LockOptions): What {
  const mode = options.mode === undefined ? {} : { mode: options.mode };
  const permits = options.permits === undefined ? {} : { permits: options.permits };
  return { kind: "lock", claim: claimOf({ lock: name, ...mode, ...permits }) };
}

export function setOf(locks: readonly LockName[]): What {
  if (!Array.isArray(locks)) throw new UsageError("a set is a list of locks");
  return { kind: "set", claims: locks.map(claimOf) };
}

function order(spec: Spec, wait: Duration | null): Item {
  const { setup, options, under } = spec;
  if (under !== undefined && under.item.belief.key === undefined) throw new LeaseLostError("session");
  const ttl = under === undefined ? micros(options.ttl ?? setup.ttl, "ttl") : undefined;
  const owner =
    options.owner ??
    under?.item.payload.fields.owner ??
    setup.owner ??
    `${process.pid}-${setup.nonce}-${randomBytes(4).toString("hex")}`;
  const payload = new Payload({
    what: spec.what,
    owner,
    requestId: randomBytes(16).toString("hex"),
    ttl,
    session: under?.id,
    reclaimWindow: micros(options.reclaimWindow ?? 0, "reclaimWindow"),
    metadata: options.metadata,
    query: setup.query,
  });
  const ask = {
    ttl: ttl ?? 0,
    wait: wait === null ? null : micros(wait, "wait"),
    isKept: options.heartbeat ?? true,
    session: under?.item.belief.key,
  };
  return setup.keeper.acquire(payload, ask, under?.item.belief);
}

/** Asks, and waits. A caller whose signal aborts leaves the queue, and leaves no lock behind. */
export async function acquire(spec: Spec, wait: Duration | null): Promise<{ item: Item; grant: Grant }> {
  const signal = spec.options.signal;
  signal?.throwIfAborted();
  const item = order(spec, wait);
  const aborted = (): void => {
    item.acquired.reject(signal?.reason);
    spec.setup.keeper.abandon(item);
  };
  signal?.addEventListener("abort", aborted, { once: true });
  try {
    return { item, grant: await item.acquired.promise };
  } finally {
    signal?.removeEventListener("abort", aborted);
  }
}

/** A lock, or a set of them, that can be asked for. */
export class Lock {
  readonly #spec: Spec;

  /** @internal */
  constructor(spec: Spec) {
    this.#spec = spec;
  }

  /** Asks, and waits as long as was said. `HeldError` if another owner has it then. */
  async acquire(): Promise<Lease> {
    const { item, grant } = await acquire(this.#spec, this.#wait);
    return new Lease(this.#spec.setup, item, grant);
  }

  /** Asks once, without waiting. `null` if another owner has it. */
  async tryAcquire(): Promise<Lease | null> {
    try {
      const { item, grant } = await acquire(this.#spec, 0);
      return new Lease(this.#spec.setup, item, grant);
    } catch (error) {
      if (error instanceof HeldError) return null;
      throw error;
    }
  }

  /**
   * `acquire` with bounded, jittered retries, as the server recommends. For FIFO order, say
   * `wait` instead.
   */
  async acquireWithRetry(retry: Retry = {}): Promise<Lease> {
    const attempts = retry.attempts ?? 5;
    const first = micros(retry.pause ?? 100, "pause") / MILLISECOND;
    const most = micros(retry.pauseMax ?? 5000, "pauseMax") / MILLISECOND;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.acquire();
      } catch (error) {
        if (attempt >= attempts || !(error instanceof RefusedError) || !RETRYABLE.has(error.code)) throw error;
        const own = Math.min(first * 2 ** (attempt - 1), most) * (0.5 + Math.random());
        await pause(Math.min(error.retryAfter ?? own, most), this.#spec.options.signal);
      }
    }
  }

  /**
   * Acquires, runs the body with the lease, and gives it back. `lease.signal` aborts in jeopardy; a body that was told to
   * stop, or ended after its lease was lost, comes out as `LeaseLostError`.
   */
  async run<T>(body: (lease: Lease) => Promise<T> | T): Promise<T> {
    const lease = await this.acquire();
    const signal = lease.signal;
    let result: T;
    try {
      result = await body(lease);
    } catch (error) {
      const lost = whyItStopped(lease, signal);
      await lease.giveBack();
      if (lost !== undefined && isAbort(error, signal)) throw lost;
      throw error;
    }
    const lost = whyItStopped(lease, signal);
    await lease.giveBack();
    if (lost !== undefined) throw lost;
    return result;
  }

  get #wait(): Duration | null {
    const wait = this.#spec.options.wait;
    return wait === undefined ? 0 : wait;
  }
}

/** The reason that a body was told to stop, or that it ended after another may have begun. */
function whyItStopped(lease: Lease, signal: AbortSignal): LeaseLostError | undefined {
  const error = lease.error();
  if (error === undefined || error.by === "released") return undefined;
  return signal.aborted || lease.state === "lost" ? error : undefined;
}

function isAbort(error: unknown, signal: AbortSignal): boolean {
  return error === signal.reason || (error instanceof Error && error.name === "AbortError");
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const aborted = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, ms);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

/** Guards that were collected without a release: they are given back, and the program is told. */
const dropped = new FinalizationRegistry<{ keeper: Keeper; item: Item; name: string }>(({ keeper, item, name }) => {
  if (item.belief.state() === State.Lost) return;
  process.emitWarning(`the lease of ${name} was dropped without a release`, "LeaseholdWarning");
  keeper.abandon(item);
});

/**
 * A lock, or a set of them, that is held, and kept alive until it is given back. Use it with `await using`, or call
 * `release`.
 */
export class Lease {
  protected readonly setup: Setup;
  readonly #item: Item;
  readonly #grant: Grant;
  #controller: AbortController | undefined;
  #isGivenBack = false;

  /** @internal */
  constructor(setup: Setup, item: Item, grant: Grant) {
    this.setup = setup;
    this.#item = item;
    this.#grant = grant;
    dropped.register(this, { keeper: setup.keeper, item, name: this.name || "a session" }, this);
  }

  /** To be shown with every write to what the lock guards. */
  get fencingToken(): number {
    return this.#grant.token;
  }

  /** A secret: whoever knows it can renew and release. */
  get leaseId(): string {
    return this.#grant.leaseId;
  }

  get owner(): string {
    return this.#item.payload.fields.owner;
  }

  /** The lock in its canonical spelling; of a set the first one as it was asked for. */
  get name(): string {
    return this.#grant.lock ?? this.locks[0] ?? "";
  }

  /** The locks that were asked for. */
  get locks(): string[] {
    return this.#item.payload.claims.map((claim) => claim.lock);
  }

  /** The time it stood in line, in milliseconds. */
  get waited(): number {
    return this.#grant.waitedMs;
  }

  /** True if it was granted to an earlier try of the same request. */
  get isReplayed(): boolean {
    return this.#grant.replayed;
  }

  /** The epoch of the server that granted it. */
  get epoch(): number {
    return this.#grant.epoch;
  }

  get state(): LeaseState {
    return STATES[this.belief.state()] as LeaseState;
  }

  get isValid(): boolean {
    return this.belief.state() === State.Valid;
  }

  /** The time that the work may go on without another renewal, in milliseconds. */
  get timeToWork(): number {
    return this.belief.timeToWork() / MILLISECOND;
  }

  /** The time until another owner may hold the lock, in milliseconds. */
  get timeLeft(): number {
    return this.belief.timeLeft() / MILLISECOND;
  }

  /** Aborts with a `LeaseLostError` when the work must stop: at half of the ttl without a renewal, or when it is over. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      const controller = new AbortController();
      const belief = this.belief;
      this.#controller = controller;
      belief.when(State.Jeopardy, () => controller.abort(belief.error() ?? new LeaseLostError("jeopardy")));
    }
    return this.#controller.signal;
  }

  /** Throws `LeaseLostError` unless the lease is valid now, by the clock: to be asked right before each write. */
  check(): void {
    const error = this.belief.error();
    if (error !== undefined) throw error;
  }

  /** The error that `check` would throw. */
  error(): LeaseLostError | undefined {
    return this.belief.error();
  }

  /** Asks the server if the lease still stands. */
  async verify(): Promise<boolean> {
    const said = await this.setup.api.check(this.name, { fencing_token: this.fencingToken, lease_id: this.leaseId });
    return said.valid === true;
  }

  /**
   * Done when somebody else waits in line for what this lease holds, or for a part of it: a good moment to give it back
   * early. Of a session: for anything under it. Throws `LeaseLostError` if the lease ended meanwhile.
   */
  async wanted(): Promise<void> {
    const { keeper, api, namespace } = this.setup;
    const signal = this.signal;
    await untilWanted({ keeper, api, namespace, locks: this.locks, leaseId: this.leaseId }, signal);
    if (signal.aborted) throw signal.reason;
  }

  /** Sends a heartbeat now. */
  renew(): void {
    this.setup.keeper.renew(this.#item);
  }

  /** Keeps the lease alive from here on, if it was asked for with `heartbeat: false`. */
  startHeartbeat(): void {
    this.setup.keeper.startHeartbeat(this.#item);
  }

  /** Calls back when the work must stop; not when the lease is given back. */
  onJeopardy(callback: () => void): void {
    this.#when(State.Jeopardy, callback);
  }

  /** Calls back when the lease is over; not when it is given back. */
  onLost(callback: () => void): void {
    this.#when(State.Lost, callback);
  }

  /**
   * Gives it back, and says what happened: `LeaseLostError` if it was over before, `UnreachableError` if nobody answered
   * until it was over.
   */
  async release(): Promise<void> {
    this.#isGivenBack = true;
    dropped.unregister(this);
    await this.setup.keeper.release(this.#item);
  }

  /** As `release`, for a lease that was given back or lost already: then it does nothing. */
  async releaseOnce(): Promise<void> {
    if (this.#isGivenBack) return;
    try {
      await this.release();
    } catch (error) {
      if (!(error instanceof LeaseLostError)) throw error;
    }
  }

  /**
   * Gives it back at the end of `await using`. Throws `LeaseLostError` if the lease was lost before: the work may have met
   * with that of the next holder.
   */
  async [Symbol.asyncDispose](): Promise<void> {
    const isLost = !this.#isGivenBack && this.state === "lost";
    const error = isLost ? this.error() : undefined;
    await this.giveBack();
    if (error !== undefined && error.by !== "released") throw error;
  }

  /** @internal Gives it back after the work: a lock that cannot be given back now lapses by itself. */
  async giveBack(): Promise<void> {
    if (this.#isGivenBack) return;
    if (!this.isValid) {
      // Nobody waits for what may take until the end of the lease.
      this.#isGivenBack = true;
      dropped.unregister(this);
      this.setup.keeper.abandon(this.#item);
      return;
    }
    try {
      await this.release();
    } catch (error) {
      const isPassing = error instanceof LeaseLostError || error instanceof UnreachableError || error instanceof ClosedError;
      if (!isPassing) throw error;
    }
  }

  /** @internal */
  get belief(): Belief {
    return this.#item.belief;
  }

  /** @internal */
  get under(): Under {
    return { item: this.#item, id: this.leaseId };
  }

  protected get sessionNumber(): number {
    return this.#grant.sessionNumber;
  }

  #when(least: State, callback: () => void): void {
    const belief = this.belief;
    belief.when(least, () => {
      if (!belief.isReleased) queueMicrotask(callback);
    });
  }
}

/** A lease under which any number of locks are taken: renewed together, lost together, given back together. */
export class Session extends Lease {
  /** A secret: whoever knows it can use and end the session. */
  get id(): string {
    return this.leaseId;
  }

  /** Its number in lists. */
  get number(): number {
    return this.sessionNumber;
  }

  /** A lock under this session. */
  lock(name: string, options: LockOptions = {}): Lock {
    return new Lock({ setup: this.setup, what: lockOf(name, options), options, under: this.under });
  }

  /** Several locks under this session, all or nothing. */
  set(locks: readonly LockName[], options: SetOptions = {}): Lock {
    return new Lock({ setup: this.setup, what: setOf(locks), options, under: this.under });
  }

  /** Asks the server if the session still stands. */
  override async verify(): Promise<boolean> {
    try {
      await this.setup.api.getSession(this.id);
      return true;
    } catch (error) {
      if (error instanceof RefusedError && error.code === "session_not_found") return false;
      throw error;
    }
  }

  /** Ends it, and all that is under it. */
  async close(): Promise<void> {
    await this.release();
  }
}
