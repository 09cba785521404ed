/**
 * The errors of this package, and if anything came of what was asked.
 *
 * *Refused* is an answer, *unreachable* is the lack of one; no class is both. Every error has `outcome`.
 */

import { HELD } from "./codes.js";

/** What became of the request. */
export type Outcome = "not_applied" | "applied" | "unknown";

/** The way a lease ended. `jeopardy`: it must be taken for over, though no other owner can have it yet. */
export type LostBy = "lapse" | "jeopardy" | "server" | "session" | "released";

/** An owner who holds what was asked for, or a part of it. */
export interface Holder {
  readonly lock: string;
  readonly ownerId: string;
  readonly mode: string;
  readonly fencingToken: number;
  readonly expiresInMs: number;
  readonly state: string;
  readonly metadata: Readonly<Record<string, unknown>>;
}

/** One step of a cycle: `waiter` waits for `lock` because of `blocker`. */
export interface WaitEdge {
  readonly waiter: string;
  readonly lock: string;
  readonly blocker: string;
}

type Fields = Readonly<Record<string, unknown>>;

/** A refusal as the server said it (`application/problem+json`); `fields` has all of it. */
export class Problem {
  leader: string | undefined;

  constructor(
    readonly code: string,
    readonly detail: string,
    public outcome: Outcome,
    readonly status = 0,
    readonly requestId = "",
    readonly fields: Fields = {},
  ) {
    this.leader = text(fields.leader);
  }

  get recommendedRetryMs(): number | undefined {
    return integer(this.fields.recommended_retry_ms);
  }

  get ticket(): string | undefined {
    return text(this.fields.ticket);
  }

  get reason(): string | undefined {
    return text(this.fields.reason);
  }
}

function integer(value: unknown): number | undefined {
  return Number.isInteger(value) ? (value as number) : undefined;
}

function text(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

function list(value: unknown): Fields[] {
  return Array.isArray(value) ? value.filter(isObject) : [];
}

export function isObject(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isOutcome(value: unknown): value is Outcome {
  return value === "not_applied" || value === "applied" || value === "unknown";
}

/** Reads JSON; `undefined` if it is none. */
export function parseJson(body: string): unknown {
  try {
    return JSON.parse(body);
  } catch {
    return undefined;
  }
}

/** The problem in an answer; `undefined` if nobody who answers so is a Leasehold server. */
export function readProblem(status: number, body: string): Problem | undefined {
  const said = parseJson(body);
  if (isObject(said) && typeof said.code === "string" && isOutcome(said.outcome)) {
    return new Problem(said.code, text(said.detail) ?? "", said.outcome, status, text(said.request_id) ?? "", said);
  }
  // A proxy before the server that lets nobody in need not speak as the server does.
  const denied = status === 401 ? "unauthenticated" : status === 403 ? "permission_denied" : undefined;
  return denied === undefined ? undefined : new Problem(denied, `the answer is ${status}`, "not_applied", status);
}

/** The base of all errors of this package. */
export class LeaseholdError extends Error {
  override name = "LeaseholdError";
  /** What became of the request. */
  readonly outcome: Outcome;
  /** All that the server said, if it did. */
  readonly problem: Problem | undefined;

  constructor(message: string, outcome: Outcome = "not_applied", problem?: Problem) {
    super(message);
    this.outcome = outcome;
    this.problem = problem;
  }

  /** The server's code, if it gave one: programs decide by it. */
  get code(): string | undefined {
    return this.problem?.code;
  }

  /** Why a lease or a token is no good any more, if the server said it: `expired`, `released`, `superseded`, … */
  get reason(): string | undefined {
    return this.problem?.reason;
  }
}

/** The server said no; `code` says why. */
export class RefusedError extends LeaseholdError {
  override name = "RefusedError";
  declare readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.detail === "" ? problem.code : `${problem.code}: ${problem.detail}`, problem.outcome, problem);
  }

  override get code(): string {
    return this.problem.code;
  }

  get detail(): string {
    return this.problem.detail;
  }

  /** The pause in milliseconds after which the server thinks that a retry makes sense. */
  get retryAfter(): number | undefined {
    return this.problem.recommendedRetryMs;
  }
}

/** Somebody else has it, and the wait is over. */
export class HeldError extends RefusedError {
  override name = "HeldError";

  /** Those in the way; the first few if they are many. */
  get holders(): Holder[] {
    return list(this.problem.fields.holders).map((one) => ({
      lock: text(one.lock) ?? "",
      ownerId: text(one.owner_id) ?? "",
      mode: text(one.mode) ?? "exclusive",
      fencingToken: integer(one.fencing_token) ?? 0,
      expiresInMs: integer(one.expires_in_ms) ?? 0,
      state: text(one.state) ?? "held",
      metadata: isObject(one.metadata) ? one.metadata : {},
    }));
  }

  get waiters(): number {
    return integer(this.problem.fields.waiters) ?? 0;
  }

  get ticket(): string | undefined {
    return this.problem.ticket;
  }
}

/** Waiting would have closed a cycle. */
export class DeadlockError extends RefusedError {
  override name = "DeadlockError";

  /** The owners that wait for each other, all the way round. */
  get cycle(): WaitEdge[] {
    return list(this.problem.fields.cycle).map((one) => ({
      waiter: text(one.waiter) ?? "",
      lock: text(one.lock) ?? "",
      blocker: text(one.blocker) ?? "",
    }));
  }
}

/** The register, or `Fence`, has seen a higher fencing token. */
export class StaleFenceError extends RefusedError {
  override name = "StaleFenceError";

  get highWater(): number {
    return integer(this.problem.fields.high_water) ?? 0;
  }
}

const LOST_SAYS: Readonly<Record<LostBy, string>> = {
  lapse: "it was not renewed in time",
  jeopardy: "no renewal was confirmed in time, so the work must stop",
  session: "its session was closed",
  released: "it was given back",
  server: "the server says so",
};

/** The lease is over, or must be taken for over. `by` says how. */
export class LeaseLostError extends LeaseholdError {
  override name = "LeaseLostError";
  readonly by: LostBy;

  constructor(by: LostBy, problem?: Problem) {
    const said = problem === undefined ? LOST_SAYS[by] : `the server says ${problem.code}: ${problem.detail}`;
    super(`the lease is over: ${said}`, "not_applied", problem);
    this.by = by;
  }

  override get code(): string {
    return this.problem?.code ?? "lease_lost";
  }
}

/** No server answered; `outcome` says if the request may have been carried out all the same. */
export class UnreachableError extends LeaseholdError {
  override name = "UnreachableError";

  constructor(detail: string, outcome: Outcome = "not_applied") {
    super(`no server could be reached: ${detail}`, outcome);
  }
}

/** The client, or the watch, was closed. */
export class ClosedError extends LeaseholdError {
  override name = "ClosedError";

  constructor(said = "the client is closed") {
    super(said);
  }
}

/** An address, a duration, a token or a certificate that cannot be used. */
export class UsageError extends LeaseholdError {
  override name = "UsageError";
}

/** The error for a problem. */
export function refusal(problem: Problem): RefusedError {
  if (HELD.has(problem.code)) return new HeldError(problem);
  if (problem.code === "deadlock") return new DeadlockError(problem);
  if (problem.code === "stale_fence") return new StaleFenceError(problem);
  return new RefusedError(problem);
}

export function unreadable(status: number): UnreachableError {
  return new UnreachableError(`something that is no Leasehold server answered with ${status}`, "unknown");
}
