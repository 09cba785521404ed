/**
 * The inputs and outputs of the machine, and what it keeps.
 *
 * Moments and lengths are whole microseconds: a number holds them exactly for 285 years.
 */

export const MILLISECOND = 1000;
export const SECOND = 1_000_000;

/** The part of a refusal that the machine looks at. */
export interface Refused {
  readonly code: string;
  outcome: "not_applied" | "applied" | "unknown";
  readonly reason?: string | undefined;
  readonly recommendedRetryMs: number | undefined;
  readonly ticket: string | undefined;
  readonly leader: string | undefined;
}

/** Names one lease, session or acquire, or one request that was sent. It is never given to another. */
export interface Key {
  readonly place: number;
  readonly generation: number;
}

export function byPlace(one: Key, other: Key): number {
  return one.place - other.place || one.generation - other.generation;
}

/** The state of a lease as its holder may see it. */
export enum State {
  Valid = 0,
  /** No renewal was confirmed for half of the ttl: stop now, no other owner can have it yet. */
  Jeopardy = 1,
  /** Over. Somebody else may hold the lock. */
  Lost = 2,
}

/**
 * A lease as far as the client knows it.
 *
 * The server counts the ttl from when it handled the request, which was after the request was sent. Counted from before
 * the sending, the lease ends here earlier than there, however long the answer took.
 */
export class Standing {
  constructor(
    readonly since: number,
    readonly ttl: number,
  ) {}

  /** The lease was said to stand for another `left` of its `ttl`, in answer to a request sent at `sent`. */
  static counted(sent: number, ttl: number, left: number): Standing {
    return new Standing(sent - Math.max(0, ttl - left), ttl);
  }

  get jeopardyAt(): number {
    return this.since + Math.floor(this.ttl / 2);
  }

  get lapsesAt(): number {
    return this.since + this.ttl;
  }

  heartbeatAt(part: number): number {
    return this.since + Math.floor(this.ttl / part);
  }

  state(now: number): State {
    if (now >= this.lapsesAt) return State.Lost;
    return now >= this.jeopardyAt ? State.Jeopardy : State.Valid;
  }
}

/** The patience of a client. */
export interface Settings {
  /** For so long a request is tried before its caller is told that no server could be reached; a wait is no part of it. */
  readonly patience: number;
  /** An answer may take so long, beyond the wait, before the request is sent again. */
  readonly answerTimeout: number;
  readonly connectTimeout: number;
  /** The pause between two tries: doubled each time, and jittered. */
  readonly backoffFirst: number;
  readonly backoffMax: number;
  /** A heartbeat goes out after this part of the ttl: 3, or 6 to survive longer outages. */
  readonly heartbeatPart: 3 | 6;
}

export const SETTINGS: Settings = {
  patience: 10 * SECOND,
  answerTimeout: 5 * SECOND,
  connectTimeout: 2 * SECOND,
  backoffFirst: 20 * MILLISECOND,
  backoffMax: 500 * MILLISECOND,
  heartbeatPart: 3,
};

/** Lengths that differ by chance, or for tests by nothing (`full`) or as much as they can (`least`). */
export class Jitter {
  readonly #part: () => number;

  constructor(kind: "random" | "full" | "least" = "random", chance: () => number = Math.random) {
    this.#part = kind === "random" ? () => Math.floor(chance() * 1024) : () => (kind === "full" ? 1024 : 0);
  }

  /** Between four fifths of the length and all of it: never later than asked. */
  shortened(length: number): number {
    return length - Math.floor((Math.floor(length / 5) * (1024 - this.#part())) / 1024);
  }

  /** Between half of the length and all of it. */
  spread(length: number): number {
    const half = Math.floor(length / 2);
    return half + Math.floor((half * this.#part()) / 1024);
  }
}

/** Grows from `first` by doubling, up to `most`. */
export function doubled(first: number, tries: number, most: number): number {
  return Math.min(first * 2 ** Math.min(tries, 16), most);
}

/**
 * What is asked for, as far as time is concerned.
 *
 * A lease of its own (a session is one that nothing stands under yet), or with `session` a grant under that session:
 * renewed with it, lost with it. A `wait` of `null` is for ever, zero is not at all.
 */
export interface Ask {
  readonly ttl: number;
  readonly wait: number | null;
  readonly isKept: boolean;
  readonly session?: Key | undefined;
}

/** `acquire` goes always under the same request id for one key. */
export type Request =
  | { readonly kind: "acquire"; readonly wait: number | null; readonly ticket?: string | undefined }
  | { readonly kind: "renew" }
  | { readonly kind: "release" };

/** The reason that no answer came: the request never left, or it may have been carried out. */
export type Failure = "unsent" | "unknown";

export type Answer =
  | { readonly kind: "granted"; readonly ttl: number; readonly left: number }
  | { readonly kind: "renewed"; readonly ttl: number; readonly left: number }
  | { readonly kind: "released" }
  | { readonly kind: "refusal"; readonly problem: Refused };

/** What is told about a lease that goes on. After `gave_up`, what an acquire may have got is being given back. */
export type News = "granted" | "renewed" | "jeopardy" | "gave_up";

/** The ttl is over, the server said so, or the session it stood under was closed. */
export type Loss = "lapse" | "server" | "session";

/** The end of a lease; an acquire that was abandoned and has left nothing behind is `forgotten`. */
export interface Ended {
  readonly kind:
    | "refused"
    | "unreachable"
    | "lost"
    | "released"
    | "not_released"
    | "release_unanswered"
    | "forgotten";
  readonly loss?: Loss;
  readonly problem?: Refused;
}

export const FORGOTTEN: Ended = { kind: "forgotten" };

export function lost(loss: Loss, problem?: Refused): Ended {
  return problem === undefined ? { kind: "lost", loss } : { kind: "lost", loss, problem };
}

export type Action<D> =
  /** Make a connection to this server, say `up` or `down`, and let the one before go. */
  | { readonly kind: "connect"; readonly link: number; readonly address: string }
  /** Send this on the connection; `answer` or `failed` must follow, unless the connection breaks. */
  | { readonly kind: "send"; readonly call: Key; readonly key: Key; readonly request: Request }
  /** The answer is of no interest any more. One must follow all the same. */
  | { readonly kind: "cancel"; readonly call: Key; readonly key: Key }
  /** Something changed for the one who asked. */
  | { readonly kind: "tell"; readonly key: Key; readonly news: News; readonly standing?: Standing | undefined }
  /** It is over, and the machine has forgotten the key. */
  | { readonly kind: "end"; readonly key: Key; readonly data: D; readonly how: Ended };

// What the machine keeps.

export interface Acquiring {
  readonly kind: "acquiring";
  /** The moment when the caller is told that no answer came. */
  giveUp: number | null;
  waitUntil: number | null;
  ticket: string | undefined;
  /** Something was sent of which nobody knows what came. */
  isInDoubt: boolean;
  tries: number;
  /** The moment to send again: after a failure, or because the answer is overdue. */
  next: number | null;
  last: Refused | undefined;
}

/** The next heartbeat (`null`: none is wanted), and the ones that were sent since the last that was confirmed. */
export interface Beat {
  at: number | null;
  tries: number;
  firstSent: number | null;
}

export interface Held {
  readonly kind: "held";
  readonly standing: Standing;
  /** The moment when the request was sent that the standing is the answer to. */
  readonly sent: number;
  beat: Beat;
}

/** Granted, but so long ago that it must be confirmed before anybody relies on it. */
export interface Confirming {
  readonly kind: "confirming";
  readonly acquiring: Acquiring;
  readonly held: Held;
}

export interface Releasing {
  readonly kind: "releasing";
  /** After that the lease is over anyway. */
  until: number;
  /** Nobody asked for it: it cleans up. */
  readonly isQuiet: boolean;
  isInDoubt: boolean;
  tries: number;
  next: number | null;
}

/** Nobody wants it any more; what it may have got must not stay behind. */
export interface Abandoned {
  readonly kind: "abandoned";
  readonly until: number;
  tries: number;
  next: number | null;
}

export type Phase =
  | Acquiring
  | Confirming
  | Held
  /** Nothing is renewed any more. */
  | { readonly kind: "jeopardy"; readonly standing: Standing }
  /** Held under a session. */
  | { readonly kind: "joined" }
  | Releasing
  | Abandoned;

export interface Entry<D> {
  readonly data: D;
  readonly ask: Ask;
  phase: Phase;
  isKept: boolean;
  /** The moment when it is next looked at. */
  timer: number | null;
  /** The request that was sent last, if its answer is still to come. */
  call: Key | undefined;
  /** It has something to send and waits for a connection. */
  isInLine: boolean;
  members: Set<Key>;
  /** The reason that the last renewal was not let in. If nothing better comes, that is how the lease was lost. */
  denied: Refused | undefined;
}

/** A request on its way. */
export interface Call {
  readonly key: Key;
  readonly sent: number;
  readonly link: number;
}

export function noBeat(): Beat {
  return { at: null, tries: 0, firstSent: null };
}

export function isUnwanted(beat: Beat): boolean {
  return beat.at === null && beat.tries === 0 && beat.firstSent === null;
}

/** The moment when something must be done about it, whatever else happens. */
export function dueAt(entry: Entry<unknown>): number | null {
  const phase = entry.phase;
  // What waits for a connection is sent when there is one, not at a time.
  const toSend = (at: number | null): number | null => (entry.isInLine ? null : at);
  switch (phase.kind) {
    case "held":
      return earliest(phase.standing.jeopardyAt, toSend(phase.beat.at));
    case "acquiring":
      return earliest(phase.giveUp, toSend(phase.next));
    case "confirming":
      return earliest(phase.acquiring.next, toSend(phase.held.beat.at));
    case "jeopardy":
      return phase.standing.lapsesAt;
    case "joined":
      return null;
    default:
      return earliest(phase.until, toSend(phase.next));
  }
}

/** The lease as it stands, while it is held. */
export function standingOf(entry: Entry<unknown> | undefined): Standing | undefined {
  const phase = entry?.phase;
  return phase?.kind === "held" || phase?.kind === "jeopardy" ? phase.standing : undefined;
}

export function earliest(one: number | null, other: number | null): number | null {
  if (one === null) return other;
  return other === null ? one : Math.min(one, other);
}
