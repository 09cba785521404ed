// What the client does when the network or the server fails it.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import { Client, LeaseLostError, UnreachableError } from "../dist/index.js";
import { proxyBefore } from "./proxy.js";
import { startServer } from "./server.js";

let server;
let proxy;
let client;
/** Another client, which no fault reaches. */
let other;

before(async () => {
  server = await startServer({ isKept: true });
  proxy = await proxyBefore(server.address);
  client = new Client(proxy.url, { owner: "one", patience: "5s" });
  other = new Client(server.url, { owner: "other" });
});

after(async () => {
  proxy.set("works");
  await client.close();
  await other.close();
  proxy.close();
  await server.stop();
});

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function isFree(lock) {
  return (await other.api.get(lock)).holders.length === 0;
}

async function until(holds) {
  while (!(await holds())) await sleep(5);
}

test("a lease counts from before it was asked for", async () => {
  await client.connect();
  proxy.set("stalls");
  const waiting = client.lock("a", { ttl: "10s", heartbeat: false }).acquire();
  await sleep(800);
  proxy.set("works");
  const lease = await waiting;
  assert.ok(lease.timeLeft <= 9300, `${lease.timeLeft} ms are believed to be left`);
  await lease.release();
});

for (const network of ["stalls", "resets", "deafens"]) {
  test(`work is told to stop at half of the ttl when the network ${network}`, async () => {
    const lease = await client.lock(`b/${network}`, { ttl: 2400 }).acquire();
    const signal = lease.signal;
    await sleep(200);
    const cut = performance.now();
    proxy.set(network);
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    const took = performance.now() - cut;
    assert.equal(signal.reason.by, "jeopardy");
    assert.throws(() => lease.check(), LeaseLostError);
    await new Promise((resolve) => lease.onLost(resolve));
    assert.equal(lease.error().by, "lapse");
    proxy.set("resets");
    proxy.set("works");
    // Well before anybody else can have it, also on a machine that is busy.
    assert.ok(took <= 1200 + 300 && took >= 300, `told ${took} ms after the cut`);
    await until(() => isFree(`b/${network}`));
  });
}

test("a broken lock is lost with the next heartbeat", async () => {
  const lease = await client.lock("c", { ttl: 1500 }).acquire();
  await other.api.breakLock("c", { reason: "a test" });
  await new Promise((resolve) => lease.onLost(resolve));
  assert.equal(lease.error().by, "server");
});

test("a grant whose answer was lost is got again", async () => {
  proxy.set("deafens");
  const waiting = client.lock("d", { ttl: "60s", wait: "60s" }).acquire();
  await until(async () => !(await isFree("d")));
  proxy.set("resets");
  await sleep(50);
  proxy.set("works");
  const lease = await waiting;
  assert.equal(lease.isReplayed, true);
  const lock = await other.api.get("d");
  assert.deepEqual([lock.holders.length, lock.waiters_total], [1, 0]);
  assert.equal(lock.holders[0].fencing_token, lease.fencingToken);
  await lease.release();
});

test("what may have been granted is given back", async () => {
  const own = new Client(proxy.url, { patience: 800 });
  await own.connect();
  proxy.set("deafens");
  await assert.rejects(own.lock("e", { ttl: "600s" }).acquire(), (error) => {
    return error instanceof UnreachableError && error.outcome === "unknown";
  });
  assert.equal(await isFree("e"), false);
  proxy.set("resets");
  await sleep(50);
  proxy.set("works");
  await until(() => isFree("e"));
  await own.close();
});

test("leases, waits and watches survive a restart of the server", async () => {
  const watch = await client.watch("f/");
  const lease = await client.lock("f/held", { ttl: "20s" }).acquire();
  const waiting = client.lock("f/held", { owner: "two", wait: null }).acquire();
  await until(async () => (await other.api.get("f/held")).waiters_total === 1);
  await server.kill();
  await server.start();
  await until(async () => (await other.api.get("f/held")).waiters_total === 1);
  lease.check();
  assert.equal(await lease.verify(), true);
  await lease.release();
  const next = await waiting;
  await next.release();
  const tokens = [];
  while (!tokens.includes(next.fencingToken)) {
    const event = await watch.next();
    if (event.type === "granted") tokens.push(event.fields.fencing_token);
  }
  assert.equal(tokens[0], lease.fencingToken);
  watch.close();
});

test("the next server is tried when one cannot be reached", async () => {
  const own = new Client(`http://127.0.0.1:1,${server.url}`);
  await (await own.lock("g").acquire()).release();
  await own.close();
});

test("a guard that is dropped is given back", async () => {
  await (async () => void (await client.lock("h", { ttl: "60s" }).acquire()))();
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  const warned = new Promise((resolve) => {
    process.on("warning", ({ name }) => name === "LeaseholdWarning" && resolve());
  });
  // It must not keep the process when the test fails.
  const again = setInterval(collect, 20).unref();
  await Promise.all([warned, until(() => isFree("h"))]);
  clearInterval(again);
});
