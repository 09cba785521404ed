// The client with a real server: one lock at a time, told to stop in time, nothing left behind.

import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, test } from "node:test";

import {
  Client,
  ClosedError,
  DeadlockError,
  HeldError,
  LeaseLostError,
  RefusedError,
  StaleFenceError,
  TestClock,
  UnreachableError,
  UsageError,
} from "../dist/index.js";
import { startServer } from "./server.js";

let server;
let client;

before(async () => {
  server = await startServer();
  client = new Client(server.url, { owner: "one" });
});

after(async () => {
  server.goOn();
  await client.close();
  await server.stop();
});

async function isFree(lock) {
  return (await client.api.get(lock)).holders.length === 0;
}

async function until(holds) {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 5));
}

test("a lock is held by one at a time", async () => {
  const lease = await client.lock("a").acquire();
  assert.equal(lease.state, "valid");
  assert.ok(lease.fencingToken > 0);
  assert.equal(await lease.verify(), true);
  assert.equal(await client.lock("a", { owner: "two" }).tryAcquire(), null);
  await assert.rejects(client.lock("a", { owner: "two", wait: 50 }).acquire(), (error) => {
    assert.ok(error instanceof HeldError);
    assert.deepEqual([error.holders[0].ownerId, error.outcome], ["one", "not_applied"]);
    return true;
  });
  await lease.release();
  assert.ok(await isFree("a"));
});

test("who waits is granted when it comes free", async () => {
  const lease = await client.lock("b").acquire();
  const waiting = client.lock("b", { owner: "two", wait: null }).acquire();
  await until(async () => (await client.api.get("b")).waiters_total === 1);
  await lease.release();
  const next = await waiting;
  assert.ok(next.fencingToken > lease.fencingToken);
  await next.release();
});

test("heartbeats keep a lease beyond its ttl, and without them it is lost by the clock", async () => {
  const kept = await client.lock("c/kept", { ttl: 300 }).acquire();
  const left = await client.lock("c/left", { ttl: 300, heartbeat: false }).acquire();
  const signal = left.signal;
  await new Promise((resolve) => left.onLost(resolve));
  kept.check();
  assert.equal(await kept.verify(), true);
  assert.throws(() => left.check(), (error) => error instanceof LeaseLostError && error.by === "lapse");
  assert.ok(signal.reason instanceof LeaseLostError);
  assert.equal(signal.reason.by, "jeopardy");
  await left.releaseOnce();
  await kept.release();
});

test("a body is told to stop at half of the ttl, and ends with the loss", async () => {
  const own = new Client(server.url, { owner: "three", patience: 500 });
  let stopped = 0;
  const began = performance.now();
  const running = own.lock("d", { ttl: 1200 }).run(async (lease) => {
    server.pause();
    await once(lease.signal, "abort");
    stopped = performance.now() - began;
    assert.equal(lease.state, "jeopardy");
    lease.signal.throwIfAborted();
  });
  try {
    await assert.rejects(running, (error) => error instanceof LeaseLostError && error.by === "jeopardy");
    assert.ok(stopped < 1200, `stopped after ${stopped} ms`);
  } finally {
    server.goOn();
  }
  await own.close();
  await until(() => isFree("d"));
});

test("run gives back whatever comes of the body", async () => {
  assert.equal(await client.lock("e").run((lease) => lease.name), "e");
  await assert.rejects(client.lock("e").run(() => Promise.reject(new RangeError("mine"))), RangeError);
  assert.ok(await isFree("e"));
});

test("a body that outlives its lease ends with the loss, whatever it returns", async () => {
  const clock = new TestClock();
  const own = new Client(server.url, { clock });
  const running = own.lock("e/late").run(() => {
    clock.advance(60_000);
    return "done";
  });
  await assert.rejects(running, (error) => error instanceof LeaseLostError && error.by === "lapse");
  await own.close();
});

test("dispose gives back, and throws if the lease was lost before", async () => {
  const lease = await client.lock("f").acquire();
  await lease[Symbol.asyncDispose]();
  assert.ok(await isFree("f"));
  const clock = new TestClock();
  const own = new Client(server.url, { clock });
  const lost = await own.lock("f", { ttl: "30s" }).acquire();
  clock.advance(60_000);
  assert.throws(() => lost.check(), LeaseLostError);
  await assert.rejects(lost[Symbol.asyncDispose](), LeaseLostError);
  await own[Symbol.asyncDispose]();
});

test("a wait that is given up leaves the queue, and no lock behind", async () => {
  const lease = await client.lock("g").acquire();
  const controller = new AbortController();
  const waiting = client.lock("g", { owner: "two", wait: null, signal: controller.signal }).acquire();
  const refused = assert.rejects(waiting, { name: "AbortError" });
  await until(async () => (await client.api.get("g")).waiters_total === 1);
  controller.abort();
  await refused;
  await until(async () => (await client.api.get("g")).waiters_total === 0);
  await lease.release();
  await until(() => isFree("g"));
});

test("one session keeps many locks, and they end with it", async () => {
  const session = await client.session({ ttl: "5s" });
  const shared = await session.lock("h/1", { mode: "shared" }).acquire();
  const set = await session.set(["h/2", "inode:7@0..10"]).acquire();
  assert.equal(await session.verify(), true);
  await set.release();
  assert.ok(await isFree("h/2"));
  await session.close();
  assert.throws(() => shared.check(), (error) => error instanceof LeaseLostError);
  assert.ok(await isFree("h/1"));
});

test("shared locks, permits and sets stand together as they should", async () => {
  const readers = await Promise.all(["r1", "r2"].map((owner) => client.lock("i", { mode: "shared", owner }).acquire()));
  assert.equal(await client.lock("i", { owner: "w" }).tryAcquire(), null);
  const pool = await Promise.all(["p1", "p2"].map((owner) => client.lock("pool", { permits: 2, owner }).acquire()));
  assert.equal(await client.lock("pool", { permits: 2, owner: "p3" }).tryAcquire(), null);
  const set = await client.set(["path:/srv/a/**", { lock: "j", mode: "shared" }]).acquire();
  assert.equal(await client.lock("path:/srv/a/b", { owner: "w" }).tryAcquire(), null);
  for (const lease of [...readers, ...pool, set]) await lease.release();
  assert.ok(await isFree("j"));
});

test("a deadlock is refused with its cycle", async () => {
  const one = await client.lock("k/1", { owner: "o1" }).acquire();
  const two = await client.lock("k/2", { owner: "o2" }).acquire();
  const waiting = client.lock("k/2", { owner: "o1", wait: "10s" }).acquire();
  await until(async () => (await client.api.get("k/2")).waiters_total === 1);
  await assert.rejects(client.lock("k/1", { owner: "o2", wait: "10s" }).acquire(), (error) => {
    return error instanceof DeadlockError && error.cycle.length === 2;
  });
  await two.release();
  await (await waiting).release();
  await one.release();
});

test("retries are bounded", async () => {
  const lease = await client.lock("l").acquire();
  const retried = client.lock("l", { owner: "two" }).acquireWithRetry({ attempts: 3, pause: 5, pauseMax: 10 });
  await assert.rejects(retried, HeldError);
  await lease.release();
});

test("a release says what happened, releaseOnce forgives", async () => {
  const lease = await client.lock("m").acquire();
  await client.api.breakLock("m", { reason: "a test" });
  await assert.rejects(lease.release(), (error) => error instanceof LeaseLostError && error.by === "server");
  await lease.releaseOnce();
  const other = await client.lock("m").acquire();
  await other.releaseOnce();
  await other.releaseOnce();
  assert.equal(other.error()?.by, "released");
});

test("leaders follow each other, and observers see them", async () => {
  const first = await client.election("cron", { owner: "n1" }).campaign("10.0.0.1:9");
  const second = client.election("cron", { owner: "n2" }).campaign("10.0.0.2:9");
  await until(async () => (await client.api.get("cron")).waiters_total === 1);
  const values = [];
  for await (const leader of client.election("cron").observe()) {
    if (leader === null) continue;
    values.push(leader.value);
    if (values.length === 2) break;
    await first.resign();
  }
  assert.deepEqual(values, ["10.0.0.1:9", "10.0.0.2:9"]);
  await (await second).resign();
});

test("fences turn stale tokens away", async () => {
  const fence = client.fence("disk");
  assert.equal(await fence.highWater(), null);
  assert.equal(await fence.accept(5), 5);
  await assert.rejects(fence.accept(4), (error) => error instanceof StaleFenceError && error.highWater === 5);
});

test("a watch tells what happens, and goes on where another one ended", async () => {
  const watch = await client.watch("w/");
  await (await client.lock("w/1").acquire()).release();
  const granted = await watch.next();
  assert.deepEqual([granted.type, granted.lock], ["granted", "w/1"]);
  watch.close();
  await assert.rejects(async () => {
    for (;;) await watch.next();
  }, ClosedError);
  const resumed = await client.watch("w/", { after: granted.cursor });
  assert.deepEqual([(await resumed.next()).type], ["ended"]);
  resumed.close();
});

test("low-level calls answer as the interface does", async () => {
  const granted = await client.api.acquire("n", { owner_id: "tool", ttl_ms: 30_000 });
  const held = { owner_id: "tool", lease_id: granted.lease_id, fencing_token: granted.fencing_token };
  assert.equal((await client.api.check("n", { fencing_token: granted.fencing_token })).valid, true);
  assert.equal((await client.api.release("n", held)).replayed, false);
  assert.equal((await client.api.release("n", held)).replayed, true);
  assert.equal((await client.api.history({ lock: "n" })).lock, "n");
  assert.equal((await client.api.token(granted.fencing_token)).fencing_token, granted.fencing_token);
  const rest = [client.api.overview(), client.api.tree({ prefix: "" }), client.api.limits(), client.api.cluster(), client.api.ready()];
  for (const said of await Promise.all(rest)) assert.ok(Object.keys(said).length > 0);
  const refused = client.api.release("n", { ...held, owner_id: "another" });
  await assert.rejects(refused, (error) => error instanceof RefusedError && error.code === "not_holder");
});

test("all is given back on close, and a closed client says so", async () => {
  const own = new Client(server.url);
  await own.lock("o/1").acquire();
  await own.session();
  await own.close();
  assert.ok(await isFree("o/1"));
  await assert.rejects(own.lock("o/1").acquire(), ClosedError);
});

test("unreachable is not refused, and wrong settings are neither", async () => {
  const own = new Client("http://127.0.0.1:1", { patience: 100 });
  await assert.rejects(own.lock("a").acquire(), (error) => {
    return error instanceof UnreachableError && error.outcome === "not_applied" && error.code === undefined;
  });
  await assert.rejects(own.connect(), UnreachableError);
  await own.close();
  assert.throws(() => new Client("ftp://nowhere"), UsageError);
  assert.throws(() => new Client(server.url, { token: "with space" }), UsageError);
  assert.throws(() => new Client(server.url, { heartbeat: "ttl/2" }), UsageError);
  assert.throws(() => client.lock("a", { mode: "shared", permits: 2 }), UsageError);
});
