// Every shape of the package once: `node examples/tour.js`, with the server that LEASEHOLD_ADDR names. For `await using` it
// needs Node 24.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";

import {
  Client,
  DeadlockError,
  Fence,
  HeldError,
  LeaseLostError,
  StaleFenceError,
  TestClock,
  UnreachableError,
} from "leasehold";

const store = new Fence(); // in the place of a database that compares fencing tokens
const client = Client.fromEnv({ owner: "worker-1" });

async function locks() {
  {
    const signal = AbortSignal.timeout(20_000);
    await using lease = await client.lock("db/migrate", { ttl: "30s", wait: "10s", signal }).acquire();
    lease.check();
    store.accept(lease.fencingToken);
    assert.equal(lease.signal.aborted, false);
    assert.equal(await client.lock("db/migrate").tryAcquire(), null);
    try {
      await client.lock("db/migrate", { owner: "worker-2" }).acquireWithRetry({ attempts: 2, pauseMax: 50 });
    } catch (error) {
      if (!(error instanceof HeldError)) throw error;
      console.log(error.holders[0].ownerId, "has it; try again in", error.retryAfter, "ms");
    }
    assert.equal(await lease.verify(), true);
  }
  const report = await client.lock("report").run(async (lease) => `report ${lease.fencingToken}`);
  console.log(report);
  const lease = await client.lock("x", { heartbeat: false }).tryAcquire();
  lease.onJeopardy(() => console.log("stop"));
  lease.startHeartbeat();
  await lease.release();
  await lease.releaseOnce();
  const pool = client.lock("pool", { permits: 5, wait: null });
  await pool.run(() => pool.run(() => {}));
}

async function sessionsAndSets() {
  const s = await client.session({ ttl: "30s" });
  {
    await using a = await s.lock("a", { mode: "shared" }).acquire();
    assert.ok(a.isValid);
  }
  await s.close();
  await using set = await client.set(["path:/srv/a/**", { lock: "b", mode: "shared" }]).acquire();
  console.log("both, under one token:", set.fencingToken, set.locks);
}

async function electionsAndFences() {
  const lead = await client.election("cron").campaign("10.0.0.7:9000");
  for await (const leader of client.election("cron").observe()) {
    console.log("leads:", leader?.value);
    break;
  }
  const register = client.fence("disk");
  await register.accept(lead.fencingToken);
  await assert.rejects(register.accept(lead.fencingToken - 1), StaleFenceError);
  await lead.resign();
}

async function errors() {
  const x = await client.lock("x", { owner: "a" }).acquire();
  const y = await client.lock("y", { owner: "b" }).acquire();
  const waiting = client.lock("y", { owner: "a", wait: "10s" }).run(() => {});
  await y.wanted();
  try {
    await client.lock("x", { owner: "b", wait: "10s" }).acquire();
  } catch (error) {
    if (!(error instanceof DeadlockError)) throw error;
    console.log("in a circle:", error.cycle);
  }
  await y.release();
  await waiting;
  await x.release();
  await using nobody = new Client("http://127.0.0.1:1", { patience: 100 });
  try {
    await nobody.lock("x").acquire();
  } catch (error) {
    if (!(error instanceof UnreachableError)) throw error;
    console.log("nobody answered, and it was", error.outcome);
  }
}

async function asleep() {
  const clock = new TestClock();
  await using slow = Client.fromEnv({ clock });
  const work = slow.lock("report", { ttl: "30s" }).run(async (lease) => {
    clock.advance(16_000); // as if the machine had slept for so long
    await sleep(60_000, undefined, { signal: lease.signal });
  });
  await assert.rejects(work, (error) => error instanceof LeaseLostError && error.by === "jeopardy");
}

for (const shape of [locks, sessionsAndSets, electionsAndFences, errors, asleep]) await shape();
await client.close();
console.log("the tour is over");
