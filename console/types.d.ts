// The shapes of the answers that the console reads. The whole interface is described at /openapi.json.

export type Mode = 'exclusive' | 'shared' | 'permits';
export type State = 'free' | 'held' | 'recovering' | 'reclaim_window';

export interface Holder {
  lock: string;
  owner_id: string;
  mode: Mode;
  permits?: number;
  state: State;
  fencing_token: number;
  acquired_at: string;
  ttl_ms: number;
  expires_at: string;
  expires_in_ms: number;
  session?: number;
  metadata: Record<string, unknown>;
}

export interface Waiter {
  owner_id: string;
  lock: string;
  mode: Mode;
  permits?: number;
  position: number;
  waiting_ms: number;
  gives_up_in_ms?: number;
}

export interface Lock {
  lock: string;
  namespace: string;
  state: State;
  holders: Holder[];
  holders_total: number;
  waiters: Waiter[];
  waiters_total: number;
  last_fencing_token: number | null;
  revision: number;
}

export interface LockSummary {
  lock: string;
  state: State;
  holders: Holder[];
  holders_total: number;
  waiters_total: number;
}

export interface LockPage {
  locks: LockSummary[];
  next_page_token: string | null;
  revision: number;
}

export interface Branch {
  name: string;
  is_lock: boolean;
  locks: number;
  is_partial: boolean;
}

export interface Session {
  session: number;
  owner_id: string;
  adapter: string;
  on_disconnect: 'release' | 'keep';
  disconnect_ttl_ms?: number;
  attached: boolean;
  recovering: boolean;
  opened_at: string;
  ttl_ms: number;
  expires_in_ms: number;
  locks: number;
  waiters: number;
  metadata: Record<string, unknown>;
}

export interface Overview {
  locks_held: number;
  waiters: number;
  sessions: number;
  longest_waits: Waiter[];
  about_to_expire: Holder[];
  is_partial: boolean;
  totals: {
    locks_held: number;
    waiters: number;
    sessions: number;
    grants: number;
    expired: number;
    deadlocks: number;
    wait_p50_ms: number | null;
    wait_p99_ms: number | null;
  };
  series: {
    every_ms: number;
    locks_held: number[];
    waiters: number[];
    grants: number[];
    expired: number[];
    deadlocks: number[];
  };
  namespaces: { namespace: string; locks_held: number }[];
}

export interface Place { x: number; y: number; width: number; height: number }

export interface GraphNode {
  id: string;
  type: 'owner' | 'lock' | 'more';
  name: string;
  lock?: { state: State; fencing_token: number; ttl_ms: number; expires_in_ms: number; holders: number };
  count?: number;
  place: Place;
}

export interface GraphEdge {
  type: 'holds' | 'waits' | 'overlaps' | 'refused';
  from: string;
  to: string;
  mode: Mode;
  since_ms: number;
  blockers?: string[];
}

export interface Graph {
  nodes: GraphNode[];
  edges: GraphEdge[];
  cycles: { waiter: string; lock: string; blocker: string }[][];
  truncated: boolean;
  size: { width: number; height: number };
}

export interface PastHolder {
  lock: string;
  owner_id: string;
  mode: Mode;
  fencing_token: number;
  acquired_at: string;
  ended_at: string;
  held_ms: number;
  ended_ms_ago: number;
  reason: string;
  note?: string;
}

export interface CycleStep { waiter: string; lock: string; blocker: string; fencing_token: number | null }

export interface Deadlock {
  revision: number;
  at: string;
  ms_ago: number;
  victim: string;
  cycle: CycleStep[];
}

export interface History {
  holders: PastHolder[];
  deadlocks: Deadlock[];
  complete_after: string | null;
  events_after: number;
}

export interface LockEvent {
  revision: number;
  /** The point to watch after; the last event of a revision has one. */
  cursor?: string;
  at: string;
  namespace: string;
  type: string;
  lock?: string;
  locks?: string[];
  owner_id?: string;
  fencing_token?: number;
  mode?: Mode;
  reason?: string;
  note?: string;
  held_ms?: number;
  ttl_ms?: number;
  session?: number;
  adapter?: string;
  register?: string;
  epoch?: number;
  cycle?: { waiter: string; lock: string; blocker: string }[];
}

/** An answer, and when it came. */
export type Stamped<T> = T & { at: number };
