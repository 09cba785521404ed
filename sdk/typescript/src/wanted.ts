/** Hearing that somebody waits for what is held: the queue is watched, and whatever happens in it is a reason to ask. */

import type { Api } from "./api.js";
import { LeaseholdError, isObject } from "./errors.js";
import type { Keeper } from "./keeper.js";
import type { Json } from "./payload.js";
import { Watch } from "./watch.js";

/** Between two looks at a queue that cannot be watched, in milliseconds. */
const PAUSE_MS = 1000;

export interface Held {
  readonly keeper: Keeper;
  readonly api: Api;
  readonly namespace: string;
  /** Without any it is a session, of which all that is under it counts. */
  readonly locks: readonly string[];
  readonly leaseId: string;
}

/** Ends when somebody waits, or the signal aborts. */
export async function untilWanted(held: Held, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      // Watched before it is looked at, so that nobody comes in between.
      const watch = await new Watch(held.keeper, held.namespace, prefixOfAll(held.locks), undefined).begin();
      const close = (): void => watch.close();
      signal.addEventListener("abort", close);
      try {
        if (await isWantedAt(held, watch)) return;
      } finally {
        signal.removeEventListener("abort", close);
        watch.close();
      }
    } catch (error) {
      if (!(error instanceof LeaseholdError)) throw error;
    }
    if (!signal.aborted) await held.keeper.pause(PAUSE_MS);
  }
}

async function isWantedAt(held: Held, watch: Watch): Promise<boolean> {
  for (;;) {
    if (await isWaitedFor(held)) return true;
    let type: string;
    do type = (await watch.next()).type;
    while (type !== "queued" && type !== "resync");
  }
}

async function isWaitedFor(held: Held): Promise<boolean> {
  if (held.locks.length === 0) {
    const { locks } = await held.api.list({ session_id: held.leaseId });
    return Array.isArray(locks) && locks.some((lock) => isObject(lock) && hasWaiters(lock));
  }
  for (const lock of held.locks) if (hasWaiters(await held.api.get(lock))) return true;
  return false;
}

function hasWaiters(lock: Json): boolean {
  return Number(lock.waiters_total) > 0;
}

/** The beginning of all names that could be in conflict with these locks. */
export function prefixOfAll(locks: readonly string[]): string {
  const [first, ...rest] = locks.map(prefixOf);
  let prefix = [...(first ?? "")];
  for (const lock of rest) while (!lock.startsWith(prefix.join(""))) prefix = prefix.slice(0, -1);
  return prefix.join("");
}

function prefixOf(lock: string): string {
  if (lock.startsWith("path:")) return "path:/";
  return lock.startsWith("inode:") ? (lock.split("@")[0] as string) : lock;
}
