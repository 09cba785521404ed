/** Locks with a lease for Node programs: kept alive in the background, and told to stop before another can have them. */

export { Api } from "./api.js";
export {
  Client,
  type ClientOptions,
  Election,
  type ElectionOptions,
  type Leader,
  Leadership,
  Register,
  type SessionOptions,
} from "./client.js";
export { type Clock, SystemClock, TestClock } from "./clock.js";
export type { Duration } from "./duration.js";
export {
  ClosedError,
  DeadlockError,
  HeldError,
  type Holder,
  LeaseLostError,
  LeaseholdError,
  type LostBy,
  type Outcome,
  Problem,
  RefusedError,
  StaleFenceError,
  UnreachableError,
  UsageError,
  type WaitEdge,
} from "./errors.js";
export { Fence } from "./fence.js";
export {
  Lease,
  type LeaseState,
  Lock,
  type LockName,
  type LockOptions,
  type Retry,
  Session,
  type SetOptions,
} from "./lease.js";
export { byteRange, subtree } from "./names.js";
export type { Claim, Json } from "./payload.js";
export { VERSION } from "./version.js";
export { type Event, Watch } from "./watch.js";
