/** The requests for one lease, in JSON over HTTP, and how their answers are read. */

import { millis } from "./duration.js";
import { Problem, isObject, parseJson, readProblem } from "./errors.js";
import type { Answered } from "./http.js";
import { type Answer, MILLISECOND, type Request } from "./machine/types.js";
import { pathPart } from "./names.js";

/** Over HTTP the server waits no longer in one request; a ticket keeps the place for the next. In milliseconds. */
const HTTP_WAIT_MAX = 50_000;

/** What the interface takes and gives, as it stands in JSON. */
export type Json = Record<string, unknown>;

export interface HttpAsk {
  readonly method: string;
  readonly path: string;
  readonly body?: string;
}

/** One lock of a set; without a mode or permits it is exclusive. */
export interface Claim {
  readonly lock: string;
  readonly mode?: "exclusive" | "shared";
  readonly permits?: number;
}

export type What =
  | { readonly kind: "lock"; readonly claim: Claim }
  | { readonly kind: "set"; readonly claims: readonly Claim[] }
  | { readonly kind: "session" };

/** The answer to an acquire, beside how long the grant stands. */
export interface Grant {
  readonly leaseId: string;
  readonly token: number;
  /** The canonical spelling. */
  readonly lock: string | undefined;
  readonly waitedMs: number;
  readonly replayed: boolean;
  readonly epoch: number;
  readonly sessionNumber: number;
}

export const NO_GRANT: Grant = {
  leaseId: "",
  token: 0,
  lock: undefined,
  waitedMs: 0,
  replayed: false,
  epoch: 0,
  sessionNumber: 0,
};

interface PayloadFields {
  readonly what: What;
  readonly owner: string;
  readonly requestId: string;
  /** In microseconds, for a lease of its own; without it the grant stands under `session`. */
  readonly ttl: number | undefined;
  readonly session: string | undefined;
  readonly reclaimWindow: number;
  readonly metadata: Json | undefined;
  readonly query: string;
}

/** All that does not change between two tries. */
export class Payload {
  constructor(readonly fields: PayloadFields) {}

  get claims(): readonly Claim[] {
    const what = this.fields.what;
    if (what.kind === "lock") return [what.claim];
    return what.kind === "set" ? what.claims : [];
  }

  /** The request, or several that do it together. */
  asks(request: Request, grant: Grant): HttpAsk[] {
    const { what, session } = this.fields;
    if (request.kind === "release" && what.kind === "set" && session !== undefined) {
      return partsToRelease(what.claims).map((claim) => this.#release(claim.lock, grant));
    }
    return [this.#one(request, grant)];
  }

  #one(request: Request, grant: Grant): HttpAsk {
    const { what, query } = this.fields;
    if (request.kind === "acquire") {
      if (what.kind === "session") return post(`/v1/sessions${query}`, this.#open());
      if (what.kind === "set") return post(`/v1/sets/acquire${query}`, this.#acquire(request, { locks: what.claims }));
      const { lock, ...how } = what.claim;
      return post(`/v1/locks/${pathPart(lock)}/acquire${query}`, this.#acquire(request, how));
    }
    if (what.kind === "lock") {
      if (request.kind === "release") return this.#release(what.claim.lock, grant);
      return post(`/v1/locks/${pathPart(what.claim.lock)}/renew${query}`, this.#held(grant));
    }
    if (request.kind === "renew") return post(`/v1/sessions/${grant.leaseId}/keepalive${query}`, {});
    return { method: "DELETE", path: `/v1/sessions/${grant.leaseId}${query}` };
  }

  #release(lock: string, grant: Grant): HttpAsk {
    return post(`/v1/locks/${pathPart(lock)}/release${this.fields.query}`, this.#held(grant));
  }

  #held(grant: Grant): Json {
    return { owner_id: this.fields.owner, lease_id: grant.leaseId, fencing_token: grant.token };
  }

  #acquire(request: Request & { kind: "acquire" }, how: Json): Json {
    const { owner, requestId, ttl, session, reclaimWindow, metadata } = this.fields;
    return {
      ...how,
      owner_id: owner,
      request_id: requestId,
      wait_ms: request.wait === null ? HTTP_WAIT_MAX : Math.min(millis(request.wait), HTTP_WAIT_MAX),
      ttl_ms: ttl === undefined ? undefined : millis(ttl),
      session_id: session,
      reclaim_ms: reclaimWindow === 0 ? undefined : millis(reclaimWindow),
      ticket: request.ticket,
      metadata,
    };
  }

  #open(): Json {
    const { owner, requestId, ttl, metadata } = this.fields;
    return { owner_id: owner, ttl_ms: millis(ttl ?? 0), request_id: requestId, on_disconnect: "release", metadata };
  }

  /** The meaning of an answer; `undefined` if it cannot be read. */
  read(request: Request, answered: Answered): { answer: Answer; grant?: Grant } | undefined {
    if (!isSuccess(answered)) {
      const problem = readProblem(answered.status, answered.body);
      return problem instanceof Problem ? { answer: { kind: "refusal", problem } } : undefined;
    }
    if (request.kind === "release") return { answer: { kind: "released" } };
    const body = parseJson(answered.body);
    if (!isObject(body) || !isCount(body.ttl_ms) || !isCount(body.expires_in_ms)) return undefined;
    const ttl = body.ttl_ms * MILLISECOND;
    const left = body.expires_in_ms * MILLISECOND;
    if (request.kind === "renew") return { answer: { kind: "renewed", ttl, left } };
    const leaseId = this.fields.what.kind === "session" ? body.session_id : body.lease_id;
    if (typeof leaseId !== "string") return undefined;
    const grant: Grant = {
      leaseId,
      token: count(body.fencing_token),
      lock: typeof body.lock === "string" ? body.lock : undefined,
      waitedMs: count(body.waited_ms),
      replayed: body.replayed === true,
      epoch: count(body.epoch),
      sessionNumber: count(body.session),
    };
    return { answer: { kind: "granted", ttl, left }, grant };
  }
}

export function isSuccess(answered: Answered): boolean {
  return answered.status >= 200 && answered.status < 300;
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

function count(value: unknown): number {
  return isCount(value) ? value : 0;
}

/**
 * The locks of a set that must be named to give back all of it while its session goes on: with a name or a path all that
 * is under the same token ends, bytes of files are given back one by one.
 */
function partsToRelease(claims: readonly Claim[]): readonly Claim[] {
  const named = claims.find((claim) => !claim.lock.startsWith("inode:"));
  return named === undefined ? claims : [named];
}

function post(path: string, body: Json): HttpAsk {
  return { method: "POST", path, body: JSON.stringify(body) };
}
