// What the driver does for each request.

import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import {
  Client,
  DeadlockError,
  HeldError,
  LeaseLostError,
  LeaseholdError,
  RefusedError,
  StaleFenceError,
  TestClock,
  UnreachableError,
  UsageError,
} from "../dist/index.js";

const FEATURES = ["advance_clock", "cancel", "cancels_work", "token_file"];

const KINDS = [
  [HeldError, "held"],
  [DeadlockError, "deadlock"],
  [StaleFenceError, "stale_fence"],
  [RefusedError, "refused"],
  [LeaseLostError, "lease_lost"],
  [UnreachableError, "unreachable"],
  [UsageError, "usage"],
  [LeaseholdError, "closed"],
];

/** An error as the harness reads it. */
function said(error) {
  const known = KINDS.find(([of]) => error instanceof of);
  const kind = known?.[1] ?? (error?.name === "AbortError" ? "cancelled" : "bug");
  const line = { kind, detail: kind === "bug" ? String(error?.stack ?? error) : String(error) };
  if (error instanceof LeaseholdError) Object.assign(line, { code: error.code ?? null, outcome: error.outcome });
  if (error instanceof LeaseLostError) line.by = error.by;
  if (error instanceof HeldError) {
    line.holders = error.holders.map((one) => one.ownerId);
    line.retry_after_ms = error.retryAfter ?? null;
  }
  if (error instanceof DeadlockError) line.cycle = error.cycle.map((one) => [one.waiter, one.lock, one.blocker]);
  return line;
}

const clock = new TestClock();
const things = new Map();
const underWay = new Map();
let client;
let number = 0;

function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function keep(letter, thing) {
  number += 1;
  const name = `${letter}${number}`;
  things.set(name, thing);
  return name;
}

function given(line, names) {
  return Object.fromEntries(names.filter((name) => name in line).map((name) => [name, line[name]]));
}

function lockFor(line, signal) {
  const options = { signal, ...given(line, ["owner", "permits", "metadata", "heartbeat"]) };
  if (line.shared && !line.locks) options.mode = "shared";
  if ("wait_ms" in line) options.wait = line.wait_ms;
  if ("ttl_ms" in line && !("session" in line)) options.ttl = line.ttl_ms;
  const under = "session" in line ? things.get(line.session) : client;
  return line.locks ? under.set(line.locks, options) : under.lock(line.lock, options);
}

function held(lease) {
  const name = keep("h", lease);
  lease.onJeopardy(() => say({ event: "jeopardy", lease: name }));
  lease.onLost(() => say({ event: "lost", lease: name, by: lease.error()?.by ?? null }));
  return {
    lease: name,
    token: lease.fencingToken,
    name: lease.name,
    waited_ms: lease.waited,
    replayed: lease.isReplayed,
  };
}

async function follow(source, told) {
  try {
    for await (const one of source) told(one);
  } catch (error) {
    if (!(error instanceof LeaseholdError)) throw error;
  }
}

const lease = (line) => things.get(line.lease);

const OPS = {
  features: () => ({ sdk: "typescript", features: FEATURES }),
  connect(line) {
    const options = { clock, ...given(line, ["owner", "namespace", "token", "cacert", "heartbeat"]) };
    if ("token_file" in line) options.tokenFile = line.token_file;
    if ("patience_ms" in line) options.patience = line.patience_ms;
    client = line.from_env ? Client.fromEnv(options) : new Client(line.servers, options);
  },
  async acquire(line, signal) {
    const lock = lockFor(line, signal);
    if (!("attempts" in line)) return held(await lock.acquire());
    return held(await lock.acquireWithRetry({ attempts: line.attempts, pause: 20, pauseMax: 100 }));
  },
  async try(line, signal) {
    const got = await lockFor(line, signal).tryAcquire();
    return got === null ? { lease: null } : held(got);
  },
  async session(line) {
    const session = await client.session({ ttl: line.ttl_ms, ...given(line, ["owner"]) });
    return { ...held(session), number: session.number };
  },
  release: (line) => lease(line).release(),
  release_once: (line) => lease(line).releaseOnce(),
  /** Nobody holds the guard any more. */
  async drop(line) {
    const { belief } = lease(line);
    belief.forgetCallbacks();
    things.delete(line.lease);
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc");
    while (!belief.isReleased) {
      await sleep(5);
      collect();
    }
  },
  check: (line) => lease(line).check(),
  state(line) {
    const { state, timeLeft, timeToWork } = lease(line);
    return { state, time_left_ms: timeLeft, time_to_work_ms: timeToWork };
  },
  verify: async (line) => ({ valid: await lease(line).verify() }),
  renew: (line) => lease(line).renew(),
  wanted: (line) => lease(line).wanted(),
  start_heartbeat: (line) => lease(line).startHeartbeat(),
  /** Work under a lock: it sleeps for so long, in a body. */
  async run(line, signal) {
    const began = performance.now();
    await lockFor(line, signal).run(async (under) => {
      say({ event: "running", id: line.id, token: under.fencingToken });
      try {
        await sleep(line.sleep_ms, undefined, { signal: under.signal });
      } finally {
        say({ event: "stopped", id: line.id });
      }
    });
    return { took_ms: performance.now() - began };
  },
  async campaign(line, signal) {
    const options = given(line, ["owner"]);
    if ("ttl_ms" in line) options.ttl = line.ttl_ms;
    return held(await client.election(line.lock, options).campaign(line.value, { signal }));
  },
  observe(line) {
    const name = keep("o", null);
    void follow(client.election(line.lock).observe(), (leader) => {
      const who = leader === null ? { owner: null } : { owner: leader.owner, value: leader.value, token: leader.fencingToken };
      say({ event: "leader", observer: name, ...who });
    });
    return { observer: name };
  },
  fence: async (line) => ({ high_water: await client.fence(line.fence).accept(line.token) }),
  async watch(line) {
    const watch = await client.watch(line.prefix, given(line, ["after"]));
    const name = keep("w", watch);
    void follow(watch, ({ type, lock, cursor }) => say({ event: "news", watch: name, type, lock: lock ?? null, cursor }));
    return { watch: name };
  },
  api: async (line) => ({ body: await client.api.raw(line.method, line.path, line.body ?? undefined) }),
  advance_clock: (line) => clock.advance(line.ms),
  /** The loop of the program does something else for a while. */
  block: (line) => void Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, line.ms),
  close: () => client.close(),
};

async function answer(line) {
  const controller = new AbortController();
  underWay.set(line.id, controller);
  try {
    const ok = await OPS[line.op](line, controller.signal);
    say({ id: line.id, ok: ok ?? {} });
  } catch (error) {
    say({ id: line.id, err: said(error) });
  } finally {
    underWay.delete(line.id);
  }
}

createInterface({ input: process.stdin }).on("line", (text) => {
  const line = JSON.parse(text);
  if (line.op === "cancel") {
    underWay.get(line.of)?.abort();
    say({ id: line.id, ok: {} });
  } else {
    void answer(line);
  }
});
process.stdin.on("end", () => process.exit());
