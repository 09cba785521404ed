/** The server's codes, as far as the SDK decides by them. Held to `sdk/vectors/codes.jsonl`. */

/** The same request may well succeed a little later. */
export const RETRYABLE: ReadonlySet<string> = new Set([
  "lock_held",
  "reclaim_window",
  "request_timeout",
  "too_many_waiters",
  "session_limit",
  "quota_exceeded",
  "rate_limited",
  "grace_period",
  "store_unavailable",
  "not_leader",
  "draining",
  "overloaded",
  "audit_unavailable",
  "interrupted",
]);

const DECIDED: ReadonlySet<string> = new Set([
  "lock_held",
  "reclaim_window",
  "too_many_waiters",
  "session_limit",
  "quota_exceeded",
]);

/** There is nothing left to release. */
export const LEASE_IS_OVER: ReadonlySet<string> = new Set(["not_holder", "lease_lost", "session_not_found"]);

/** Somebody else is in the way. */
export const HELD: ReadonlySet<string> = new Set(["lock_held", "reclaim_window"]);

/** The server does not let the caller in, who may have a better token soon: a lease stands all the same. */
export const DENIED: ReadonlySet<string> = new Set(["unauthenticated", "permission_denied"]);

/** True if the refusal leaves open what was asked: it may be decided a little later, or elsewhere. */
export function saysNothingOfTheLock(code: string): boolean {
  return code === "internal" || (RETRYABLE.has(code) && !DECIDED.has(code));
}

/** The same for what is held already: a server that has too much to do has not ended the lease. */
export function saysNothingOfTheLease(code: string): boolean {
  return saysNothingOfTheLock(code) || code === "quota_exceeded";
}
