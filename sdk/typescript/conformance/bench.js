// Pairs of acquire and release, one after the other in each of some loops, for `cargo xtask bench sdks`.
//
// `bench.js leasehold URL SECONDS WORKERS` measures this SDK; `redis` in its place redlock over ioredis, whose folder
// LEASEHOLD_BENCH_MODULES names. It prints pairs, seconds, and the processor seconds of this process.

import { createRequire } from "node:module";

import { Client } from "../dist/index.js";

function ofLeasehold(url) {
  const client = new Client(url);
  return async (worker) => {
    const lease = await client.lock(`bench/${worker}`, { ttl: "30s" }).acquire();
    await lease.release();
  };
}

function ofRedis(url) {
  const modules = createRequire(`${process.env.LEASEHOLD_BENCH_MODULES}/`);
  const { Redis } = modules("ioredis");
  const Redlock = modules("redlock").default;
  const redlock = new Redlock([new Redis(url)]);
  return async (worker) => {
    const lock = await redlock.acquire([`bench/${worker}`], 30_000);
    await lock.release();
  };
}

const [contender, url, seconds, workers] = process.argv.slice(2);
const pair = { leasehold: ofLeasehold, redis: ofRedis }[contender](url);
const all = Array.from({ length: Number(workers) }, (_, worker) => worker);
await Promise.all(all.map(pair));
const began = performance.now();
const cpu = process.cpuUsage();
let pairs = 0;
async function work(worker) {
  while (performance.now() - began < Number(seconds) * 1000) {
    await pair(worker);
    pairs += 1;
  }
}
await Promise.all(all.map(work));
const { user, system } = process.cpuUsage(cpu);
console.log(pairs, (performance.now() - began) / 1000, (user + system) / 1e6);
process.exit();
