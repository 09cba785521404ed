/** The events of a server, over broken connections, restarts and changes of the leader. */

import "./dispose.js";

import type { IncomingMessage } from "node:http";

import {
  ClosedError,
  LeaseholdError,
  UnreachableError,
  isObject,
  parseJson,
  readProblem,
  refusal,
  unreadable,
} from "./errors.js";
import { NoAnswer, type Sent } from "./http.js";
import type { Keeper } from "./keeper.js";
import { Deferred } from "./keeper.js";
import { MILLISECOND } from "./machine/types.js";

const EVENT_STREAM = "text/event-stream";
const EVENTS_AHEAD = 1024;
const PAUSE_MS = 200;
/** Three heartbeats of a server that has nothing to say. */
const SILENCE_MAX_MS = 45_000;
const LINE_MAX = 1 << 20;

/**
 * An event: `type` is `granted`, `ended`, `queued`, `left`, `deadlock`, `fence_accepted`, … or `resync`, where events were
 * missed on the way: look at the locks again. `fields` has all of it.
 */
export interface Event {
  readonly type: string;
  readonly revision: number;
  readonly cursor: string | undefined;
  readonly lock: string | undefined;
  readonly fields: Readonly<Record<string, unknown>>;
}

/** The watch is over for this reason. */
class Final {
  constructor(readonly error: LeaseholdError) {}
}

/** Events as they happen: `for await (const event of watch)`. An error is final. */
export class Watch {
  readonly #keeper: Keeper;
  readonly #namespace: string;
  readonly #prefix: string;
  readonly #ready: Event[] = [];
  readonly #began = new Deferred<void>();
  #after: string | undefined;
  #hasGap = false;
  #error: LeaseholdError | undefined;
  #waiters: (() => void)[] = [];
  #sent: Sent<IncomingMessage> | undefined;
  #message: IncomingMessage | undefined;

  /** @internal */
  constructor(keeper: Keeper, namespace: string, prefix: string, after: string | undefined) {
    this.#keeper = keeper;
    this.#namespace = namespace;
    this.#prefix = prefix;
    this.#after = after;
  }

  /** @internal Done when the server has begun to tell. */
  async begin(): Promise<this> {
    this.#follow().then(
      () => this.#finish(new ClosedError("the watch is closed")),
      (error: unknown) => this.#finish(error instanceof LeaseholdError ? error : new UnreachableError(String(error))),
    );
    await this.#began.promise;
    return this;
  }

  /** The next event. Throws what has ended the watch; `ClosedError` if it was closed. */
  async next(): Promise<Event> {
    for (;;) {
      const event = this.#ready.shift();
      if (event !== undefined) {
        if (this.#ready.length < EVENTS_AHEAD / 2) this.#message?.resume();
        return event;
      }
      if (this.#error !== undefined) throw this.#error;
      await new Promise<void>((resolve) => this.#waiters.push(resolve));
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Event, void, undefined> {
    try {
      for (;;) yield await this.next();
    } catch (error) {
      if (!(error instanceof ClosedError)) throw error;
    } finally {
      this.close();
    }
  }

  /** Ends it; who waits for an event is told so. */
  close(): void {
    this.#finish(new ClosedError("the watch is closed"));
    this.#sent?.cancel();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  #finish(error: LeaseholdError): void {
    this.#error ??= error;
    this.#began.reject(this.#error);
    this.#wake();
  }

  #wake(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const wake of waiters) wake();
  }

  async #follow(): Promise<void> {
    const patience = this.#keeper.settings.patience / MILLISECOND;
    const since = performance.now();
    while (this.#error === undefined && !this.#keeper.isClosed) {
      const server = this.#keeper.pool.server;
      try {
        await this.#stream(patience);
      } catch (failure) {
        if (failure instanceof Final) throw failure.error;
        const isUnsent = failure instanceof NoAnswer && failure.failure === "unsent";
        if (isUnsent) this.#keeper.unreachable(server);
        const isLate = !this.#began.isDone && performance.now() - since >= patience;
        if (isLate) throw failure instanceof LeaseholdError ? failure : unreachable(failure, isUnsent);
      }
      if (this.#error === undefined) await this.#keeper.pause(PAUSE_MS);
    }
  }

  /** The events of one connection. */
  async #stream(patience: number): Promise<void> {
    let path = `/v1/watch?namespace=${encodeURIComponent(this.#namespace)}&prefix=${encodeURIComponent(this.#prefix)}`;
    if (this.#after !== undefined) path += `&after=${encodeURIComponent(this.#after)}`;
    const pool = this.#keeper.pool;
    const sent = pool.open({ method: "GET", path, accept: EVENT_STREAM, isAlone: true });
    this.#sent = sent;
    const late = setTimeout(sent.cancel, patience);
    try {
      const message = await sent.answer;
      const status = message.statusCode ?? 0;
      if (status !== 200) {
        const answered = await pool.whole(message);
        clearTimeout(late);
        this.#refused(status, answered.body);
        return;
      }
      clearTimeout(late);
      if (!(message.headers["content-type"] ?? "").startsWith(EVENT_STREAM)) this.#notOurs(status);
      this.#message = message;
      await this.#read(message);
    } finally {
      clearTimeout(late);
      this.#message = undefined;
      sent.cancel();
    }
  }

  #read(message: IncomingMessage): Promise<void> {
    return new Promise((resolve) => {
      let rest = "";
      const over = (): void => {
        clearTimeout(silent);
        resolve();
        message.destroy();
      };
      const silent = setTimeout(over, SILENCE_MAX_MS);
      message.setEncoding("utf8");
      message.on("data", (text: string) => {
        silent.refresh();
        const lines = (rest + text).split("\n");
        rest = lines.pop() ?? "";
        if (rest.length > LINE_MAX) over();
        for (const line of lines) {
          if (!this.#takeIn(line)) {
            over();
            return;
          }
        }
        if (this.#ready.length >= EVENTS_AHEAD) message.pause();
      });
      message.once("end", over);
      message.once("error", over);
      message.once("close", over);
    });
  }

  #refused(status: number, body: string): void {
    const problem = readProblem(status, body);
    if (problem === undefined) this.#notOurs(status);
    else if (problem.code === "revision_compacted") this.#loseTrack();
    else if (status >= 500 || status === 429) throw refusal(problem);
    else throw new Final(refusal(problem));
  }

  /** In place of a server that was there before, something else may stand in for a while. */
  #notOurs(status: number): never {
    const error = unreadable(status);
    if (this.#began.isDone) throw error;
    throw new Final(error);
  }

  /** From now on, whatever was before. */
  #loseTrack(): void {
    this.#after = undefined;
    this.#hasGap = true;
  }

  /** Takes one line of the stream; false when it is to be begun anew. */
  #takeIn(line: string): boolean {
    if (!line.startsWith("data:")) return true;
    const said = parseJson(line.slice("data:".length));
    if (!isObject(said) || typeof said.type !== "string" || typeof said.revision !== "number") return true;
    this.#began.resolve();
    const cursor = typeof said.cursor === "string" ? said.cursor : undefined;
    if (said.type === "resync") {
      this.#loseTrack();
      return false;
    }
    this.#after = cursor ?? this.#after;
    let fields = said;
    if (said.type === "bookmark") {
      if (!this.#hasGap) return true;
      // From here on nothing is missed: who looks at the locks now knows everything.
      this.#hasGap = false;
      fields = { ...said, type: "resync" };
    }
    const lock = typeof said.lock === "string" ? said.lock : undefined;
    this.#ready.push({ type: String(fields.type), revision: said.revision, cursor, lock, fields });
    this.#wake();
    return true;
  }
}

function unreachable(failure: unknown, isUnsent: boolean): UnreachableError {
  const said = failure instanceof NoAnswer ? failure.said : String(failure);
  return new UnreachableError(said, isUnsent ? "not_applied" : "unknown");
}
