/** Stops what runs below a process: first SIGTERM, then SIGKILL. */

import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);
const LOOK_MS = 50;
/** The end of what has been killed is awaited for so long. */
const KILL_MS = 2000;

/** The processes that run, each with its parent. */
async function processes() {
  const { stdout } = await run("ps", ["-A", "-o", "pid=,ppid=,stat="]);
  const lines = stdout.split("\n").map((line) => line.trim().split(/\s+/));
  // A zombie has ended already.
  const running = lines.filter(([pid, , state]) => Number(pid) !== process.pid && state && !state.startsWith("Z"));
  return new Map(running.map(([pid, parent]) => [Number(pid), Number(parent)]));
}

/** Of `known`, and of all below them, those that run. */
function family(known, parents) {
  const found = new Set([...known].filter((pid) => parents.has(pid)));
  for (let size = -1; size !== found.size; ) {
    size = found.size;
    for (const [pid, parent] of parents) if (found.has(parent)) found.add(pid);
  }
  return found;
}

function signal(pids, name) {
  for (const pid of pids) {
    try {
      process.kill(pid, name);
    } catch {
      // It has ended meanwhile.
    }
  }
}

/**
 * Stops what `root` runs at this moment, and all that comes of it. What `root` starts later is left alone: those are the
 * steps at the end of a job. Returns how many there were.
 */
export async function stopChildren(root, graceMs) {
  const parents = await processes();
  const children = [...parents].filter(([, parent]) => parent === root).map(([pid]) => pid);
  let left = family(children, parents);
  const first = left.size;
  signal(left, "SIGTERM");
  const end = Date.now() + graceMs;
  const known = new Set(left);
  while (left.size > 0 && Date.now() < end + KILL_MS) {
    if (Date.now() >= end) signal(left, "SIGKILL");
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    left = family(known, await processes());
    for (const pid of left) known.add(pid);
  }
  return first;
}
