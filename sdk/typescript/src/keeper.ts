/**
 * Drives the machine: one set of timers and connections for all leases of a client.
 *
 * ```text
 * callers --orders--> keeper --requests--> connections --> server
 *    ^                 |  ^                    |
 *    +-- promises, ----+  +----- answers ------+        clock: one alarm for all leases
 *        beliefs
 * ```
 *
 * It lives on the loop of the program. While that is blocked no heartbeat goes out; on its next turn the machine works off the
 * clock first, and whoever asks a belief is answered by the clock in any case.
 */

import type { Access } from "./access.js";
import { Belief } from "./belief.js";
import type { Clock } from "./clock.js";
import {
  ClosedError,
  LeaseLostError,
  type LeaseholdError,
  Problem,
  UnreachableError,
  UsageError,
  isObject,
  parseJson,
  readProblem,
  refusal,
} from "./errors.js";
import { type Answered, NoAnswer, Pool, type Sent } from "./http.js";
import { Machine } from "./machine/machine.js";
import { type Action, type Ask, type Ended, type Key, MILLISECOND, type Refused, type Request, type Settings } from "./machine/types.js";
import { type Grant, NO_GRANT, type Payload, isSuccess } from "./payload.js";

/** A timer is trusted for no longer, in milliseconds: they stand still while the machine sleeps. */
const LOOK_AGAIN_MS = 100;
/** Between two tries of a request that was not carried out, in milliseconds. */
const ASK_AGAIN_MS = 50;
/** A request that waits on the server may take so much longer than others, in milliseconds. */
const LONG_POLL_MS = 60_000;

export class Deferred<T> {
  readonly promise: Promise<T>;
  isDone = false;
  #resolve!: (value: T) => void;
  #reject!: (error: unknown) => void;

  constructor() {
    this.promise = new Promise<T>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // One that nobody waits for any more is no fault of the program.
    this.promise.catch(() => {});
  }

  /** False if it was done before. */
  resolve(value: T): boolean {
    if (this.isDone) return false;
    this.isDone = true;
    this.#resolve(value);
    return true;
  }

  reject(error: unknown): void {
    if (this.isDone) return;
    this.isDone = true;
    this.#reject(error);
  }
}

/** The things that are kept with each lease. */
export class Item {
  readonly acquired = new Deferred<Grant>();
  grant = NO_GRANT;
  released: Deferred<void> | undefined;

  constructor(
    readonly payload: Payload,
    readonly belief: Belief,
  ) {}
}

/** The part of a client that keeps its leases. */
export class Keeper {
  readonly #machine: Machine<Item>;
  readonly #running = new Map<Key, Sent<Answered>>();
  readonly #asking = new Set<(error: LeaseholdError) => void>();
  readonly #waitingForUp = new Set<Deferred<void>>();
  #pool: Pool;
  #link = 0;
  #isUp = false;
  #isClosed = false;
  #closing: Promise<void> | undefined;
  #flushed: Deferred<void> | undefined;
  #complaint = "no server answered";
  #unusable: UsageError | undefined;
  #alarm: NodeJS.Timeout | undefined;
  #alarmAt = 0;
  /** Acquires and releases that a caller waits for: the process must not end meanwhile. */
  #awaited = 0;

  constructor(
    readonly servers: readonly string[],
    readonly settings: Settings,
    readonly access: Access,
    readonly clock: Clock,
  ) {
    this.#pool = new Pool(servers[0] as string, access);
    this.#machine = new Machine(clock.now(), servers, settings);
    this.#act();
  }

  get pool(): Pool {
    return this.#pool;
  }

  get isClosed(): boolean {
    return this.#closing !== undefined;
  }

  // Orders.

  acquire(payload: Payload, ask: Ask, session: Belief | undefined): Item {
    this.#mustBeOpen();
    const item = new Item(payload, new Belief(this.clock, session));
    this.#isAwaited(item.acquired);
    if (this.#unusable !== undefined) {
      item.acquired.reject(this.#unusable);
      return item;
    }
    item.belief.key = this.#machine.acquire(this.clock.now(), item, ask);
    this.#act();
    return item;
  }

  release(item: Item): Promise<void> {
    const key = this.#keyOf(item);
    if (key === undefined) {
      return Promise.reject(item.belief.error() ?? new LeaseLostError("released"));
    }
    const done = new Deferred<void>();
    this.#isAwaited(done);
    item.released = done;
    const isReleasing = this.#machine.release(this.clock.now(), key);
    if (isReleasing) item.belief.isLost("released");
    this.#act();
    if (!isReleasing) done.reject(item.belief.error() ?? new LeaseLostError("lapse"));
    return done.promise;
  }

  /** Nobody waits for it, or holds the guard, any more. */
  abandon(item: Item): void {
    const key = this.#keyOf(item);
    item.belief.isLost("released");
    if (key === undefined || this.#isClosed) return;
    this.#machine.abandon(this.clock.now(), key);
    this.#act();
  }

  renew(item: Item): void {
    const key = this.#keyOf(item);
    if (key === undefined) return;
    this.#machine.renew(this.clock.now(), key);
    this.#act();
  }

  startHeartbeat(item: Item): void {
    const key = this.#keyOf(item);
    if (key === undefined) return;
    this.#machine.startHeartbeat(this.clock.now(), key);
    this.#act();
  }

  /** Done when a connection stands; fails when none could be made while the patience of the client lasted. */
  async connected(): Promise<void> {
    this.#mustBeOpen();
    if (this.#isUp) return;
    const done = new Deferred<void>();
    this.#waitingForUp.add(done);
    const late = setTimeout(() => done.reject(new UnreachableError(this.#complaint)), this.settings.patience / MILLISECOND);
    try {
      await done.promise;
    } finally {
      clearTimeout(late);
      this.#waitingForUp.delete(done);
    }
  }

  /** Asks the server in use. What was not carried out, or only reads, is asked again while patience lasts. */
  async ask(method: string, path: string, body: string | undefined, signal?: AbortSignal): Promise<Answered> {
    const until = this.clock.now() + this.settings.patience;
    for (;;) {
      this.#mustBeOpen();
      signal?.throwIfAborted();
      if (this.#unusable !== undefined) throw this.#unusable;
      let error: LeaseholdError;
      try {
        const answered = await this.#askOnce(method, path, body, signal);
        const isElsewhere = !isSuccess(answered) && readProblem(answered.status, answered.body)?.code === "not_leader";
        if (!isElsewhere || this.clock.now() >= until) return answered;
      } catch (failure) {
        signal?.throwIfAborted();
        if (!(failure instanceof NoAnswer)) throw failure;
        const isUnsent = failure.failure === "unsent";
        error = new UnreachableError(failure.said, isUnsent ? "not_applied" : "unknown");
        if (!(isUnsent || method === "GET") || this.clock.now() >= until) throw error;
      }
      await this.pause(ASK_AGAIN_MS);
      this.#mustBeOpen();
      this.#machine.suspect(this.clock.now());
      this.#act();
    }
  }

  /** A watch could not connect to this server. */
  unreachable(server: string): void {
    if (this.#isClosed || this.#machine.server !== server) return;
    this.#machine.suspectIfIdle(this.clock.now());
    this.#act();
  }

  /** Waits for so long, in milliseconds. */
  pause(ms: number): Promise<void> {
    return new Promise((resolve) => setTimeout(resolve, ms));
  }

  /** Gives everything back and waits until the server has heard it; no longer than the client's patience. */
  close(): Promise<void> {
    this.#closing ??= this.#flush();
    return this.#closing;
  }

  async #flush(): Promise<void> {
    const now = this.clock.now();
    for (const key of this.#machine.allKeys()) {
      const item = this.#machine.data(key);
      item?.belief.isLost("released");
      item?.acquired.reject(new ClosedError());
      this.#machine.abandon(now, key);
    }
    const flushed = new Deferred<void>();
    this.#flushed = flushed;
    this.#act();
    const late = setTimeout(() => flushed.resolve(), this.settings.patience / MILLISECOND);
    await flushed.promise;
    clearTimeout(late);
    // What could not be given back by then lapses by itself.
    this.#isClosed = true;
    if (this.#alarm !== undefined) clearTimeout(this.#alarm);
    for (const key of this.#machine.allKeys()) {
      const item = this.#machine.data(key);
      item?.released?.reject(new UnreachableError(`no answer came to the release; ${this.#complaint}`, "unknown"));
    }
    for (const fail of this.#asking) fail(new ClosedError());
    for (const done of this.#waitingForUp) done.reject(new ClosedError());
    this.#pool.close();
  }

  #mustBeOpen(): void {
    if (this.isClosed) throw new ClosedError();
  }

  #keyOf(item: Item): Key | undefined {
    const key = item.belief.key;
    return key !== undefined && this.#machine.data(key) === item ? key : undefined;
  }

  #isAwaited(done: { readonly promise: Promise<unknown> }): void {
    this.#awaited += 1;
    this.#alarm?.ref();
    const isOver = (): void => {
      this.#awaited -= 1;
      if (this.#awaited === 0) this.#alarm?.unref();
    };
    done.promise.then(isOver, isOver);
  }

  // The machine's wishes.

  /** Does what the machine says, until it has nothing more to say. */
  #act(): void {
    if (this.#isClosed) return;
    for (let action = this.#machine.nextAction(); action !== undefined; action = this.#machine.nextAction()) {
      this.#perform(action);
    }
    if (this.#machine.size === 0) this.#flushed?.resolve();
    this.#setAlarm();
  }

  #perform(action: Action<Item>): void {
    switch (action.kind) {
      case "connect":
        this.#connect(action.link, action.address);
        break;
      case "send":
        this.#send(action.call, action.key, action.request);
        break;
      case "cancel":
        this.#cancel(action.call);
        break;
      case "tell":
        this.#tell(action);
        break;
      case "end":
        this.#end(action.data, action.how);
    }
  }

  /** An alarm that rings too early costs less than one that is set anew for each request. */
  #setAlarm(): void {
    const at = this.#machine.nextWake();
    if (at === null) return;
    const now = this.clock.now();
    const due = Math.min(at, now + LOOK_AGAIN_MS * MILLISECOND);
    if (this.#alarm !== undefined && this.#alarmAt <= due) return;
    if (this.#alarm !== undefined) clearTimeout(this.#alarm);
    this.#alarmAt = due;
    this.#alarm = setTimeout(() => this.#ring(), Math.max(0, Math.ceil((due - now) / MILLISECOND)));
    if (this.#awaited === 0) this.#alarm.unref();
  }

  #ring(): void {
    this.#alarm = undefined;
    this.#machine.wake(this.clock.now());
    this.#act();
  }

  // Connections and requests.

  #connect(link: number, address: string): void {
    this.#link = link;
    this.#isUp = false;
    const running = [...this.#running.values()];
    this.#running.clear();
    for (const sent of running) sent.cancel();
    this.#pool.close();
    const pool = new Pool(address, this.access);
    this.#pool = pool;
    // A server that accepts a connection is there. The one that is made here is kept for heartbeats.
    const onConnected = (): void => this.#connected(link);
    const probe = pool.send({ method: "GET", path: "/v1/version", isBeat: true, onConnected });
    probe.answer.then(
      (answered) => this.#lookAtVersion(pool, answered),
      (failure: unknown) => this.#notConnected(link, failure),
    );
  }

  #connected(link: number): void {
    if (link !== this.#link || this.#isUp || this.#isClosed) return;
    this.#isUp = true;
    this.#machine.up(this.clock.now(), link);
    for (const done of this.#waitingForUp) done.resolve();
    this.#act();
  }

  #notConnected(link: number, failure: unknown): void {
    if (link !== this.#link || this.#isUp || this.#isClosed) return;
    this.#note(failure);
    if (failure instanceof NoAnswer && failure.isLasting && this.servers.length === 1) {
      for (const done of this.#waitingForUp) done.reject(new UnreachableError(this.#complaint));
    }
    this.#machine.down(this.clock.now(), link);
    this.#act();
  }

  #lookAtVersion(pool: Pool, answered: Answered): void {
    const said = isSuccess(answered) ? parseJson(answered.body) : undefined;
    if (!isObject(said) || !Array.isArray(said.api) || said.api.includes("v1")) return;
    const named = said.api.join(", ");
    this.#unusable = new UsageError(`${pool.server} does not speak v1 of the interface, only ${named}`);
  }

  #send(call: Key, key: Key, request: Request): void {
    const item = this.#machine.data(key);
    if (item === undefined) return;
    const pool = this.#pool;
    const sent = this.#sendEach(request, item, pool);
    this.#running.set(call, sent);
    sent.answer.then(
      (answered) => this.#heard(call, request, item, pool, answered),
      (failure: unknown) => {
        if (!this.#running.delete(call) || this.#isClosed) return;
        this.#note(failure);
        const isUnsent = failure instanceof NoAnswer && failure.failure === "unsent";
        this.#machine.failed(this.clock.now(), call, isUnsent ? "unsent" : "unknown");
        this.#act();
      },
    );
  }

  #heard(call: Key, request: Request, item: Item, pool: Pool, answered: Answered): void {
    if (!this.#running.delete(call) || this.#isClosed) return;
    const now = this.clock.now();
    const read = item.payload.read(request, answered);
    if (read === undefined) {
      this.#complaint = `${pool.server}: something that is no Leasehold server answered with ${answered.status}`;
      this.#machine.failed(now, call, "unknown");
    } else {
      if (read.grant !== undefined) item.grant = read.grant;
      if (read.answer.kind === "refusal") this.#boundLeader(read.answer.problem);
      this.#machine.answer(now, call, read.answer);
    }
    this.#act();
  }

  /** The machine follows whatever leader it is told of, so it is not told of one that must not be followed. */
  #boundLeader(problem: Refused): void {
    if (!(problem instanceof Problem) || problem.leader === undefined) return;
    problem.leader = this.access.leader(this.#machine.server, problem.leader);
  }

  /** Sends one after the other, and says what came of the first that was refused, or else of the last. */
  #sendEach(request: Request, item: Item, pool: Pool): Sent<Answered> {
    const asks = item.payload.asks(request, item.grant);
    const isBeat = request.kind !== "acquire";
    let current = pool.send({ ...(asks[0] as (typeof asks)[number]), isBeat });
    if (asks.length === 1) return current;
    let isCancelled = false;
    const each = async (): Promise<Answered> => {
      let answered = await current.answer;
      let refused = isSuccess(answered) ? undefined : answered;
      for (const ask of asks.slice(1)) {
        if (isCancelled) break;
        current = pool.send({ ...ask, isBeat });
        answered = await current.answer;
        if (!isSuccess(answered)) refused ??= answered;
      }
      return refused ?? answered;
    };
    const cancel = (): void => {
      isCancelled = true;
      current.cancel();
    };
    return { answer: each(), cancel };
  }

  #cancel(call: Key): void {
    const sent = this.#running.get(call);
    if (sent === undefined) return;
    // A request that is cancelled closes its connection, and the server takes it out of the queue.
    this.#running.delete(call);
    sent.cancel();
    this.#machine.failed(this.clock.now(), call, "unknown");
  }

  /** Asks once. A request that nobody answers is given up when the patience is over. */
  #askOnce(method: string, path: string, body: string | undefined, signal: AbortSignal | undefined): Promise<Answered> {
    const pool = this.#pool;
    const sent = pool.send({ method, path, body });
    const isLong = path.includes("wait_ms=") || (path.split("?")[0] as string).endsWith("/acquire");
    const length = this.settings.patience / MILLISECOND + (isLong ? LONG_POLL_MS : 0);
    return new Promise<Answered>((resolve, reject) => {
      const over = (error: unknown): void => {
        reject(error);
        sent.cancel();
      };
      const aborted = (): void => over(signal?.reason);
      const late = setTimeout(() => over(new NoAnswer("unknown", `${pool.server}: no answer in ${length} ms`)), length);
      signal?.addEventListener("abort", aborted, { once: true });
      this.#asking.add(over);
      const tidy = (): void => {
        clearTimeout(late);
        signal?.removeEventListener("abort", aborted);
        this.#asking.delete(over);
      };
      sent.answer.then(resolve, reject).then(tidy);
    });
  }

  #note(failure: unknown): void {
    this.#complaint = failure instanceof NoAnswer ? failure.said : String(failure);
  }

  // Telling.

  #tell(action: Action<Item> & { kind: "tell" }): void {
    const item = this.#machine.data(action.key);
    if (item === undefined) return;
    if (action.standing !== undefined) item.belief.stands(action.standing);
    if (action.news === "granted" && !item.acquired.resolve(item.grant)) {
      this.#machine.abandon(this.clock.now(), action.key);
    } else if (action.news === "jeopardy") {
      item.belief.inJeopardy();
    } else if (action.news === "gave_up") {
      item.acquired.reject(new UnreachableError(`no answer came in time; ${this.#complaint}`, "unknown"));
    }
  }

  #end(item: Item, how: Ended): void {
    const problem = how.problem instanceof Problem ? how.problem : undefined;
    const unanswered = (): UnreachableError =>
      new UnreachableError(`no answer came to the release; ${this.#complaint}`, "unknown");
    switch (how.kind) {
      case "lost":
        this.#isOver(item, new LeaseLostError(how.loss ?? "lapse", problem), true);
        break;
      case "not_released":
        this.#isOver(item, new LeaseLostError("server", problem), true);
        break;
      case "release_unanswered":
        this.#isOver(item, unanswered(), true);
        break;
      case "refused":
        this.#isOver(item, problem === undefined ? unanswered() : refusal(problem), false);
        break;
      case "unreachable":
        this.#isOver(item, new UnreachableError(this.#complaint), false);
        break;
      default:
        item.belief.isLost("released");
        if (!item.acquired.isDone) item.acquired.reject(new ClosedError());
        item.released?.resolve();
    }
  }

  #isOver(item: Item, error: LeaseholdError, wasHeld: boolean): void {
    if (error instanceof LeaseLostError) item.belief.isLost(error.by, error.problem);
    else item.belief.isLost("lapse");
    item.acquired.reject(error);
    if (wasHeld) item.released?.reject(error);
  }
}
