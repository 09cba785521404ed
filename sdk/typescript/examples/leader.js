// One leader of many, and those who follow: `node examples/leader.js 10.0.0.7:9000` in several terminals.

import { setTimeout as sleep } from "node:timers/promises";

import { Client, LeaseLostError } from "leasehold";

const address = process.argv[2] ?? "10.0.0.7:9000";
const client = Client.fromEnv();
const election = client.election("scheduler", { ttl: "10s" });

async function follow() {
  for await (const leader of election.observe()) console.log("leads:", leader?.value ?? "nobody");
}

const following = follow().catch((error) => console.log(`no longer following: ${error.message}`));
for (let term = 0; term < 2; term += 1) {
  const leadership = await election.campaign(address);
  console.log(`elected with token ${leadership.fencingToken}`);
  try {
    await sleep(200, undefined, { signal: leadership.signal });
    await leadership.resign();
  } catch (error) {
    if (!leadership.signal.aborted && !(error instanceof LeaseLostError)) throw error;
    console.log(`deposed: ${leadership.error()?.message}`);
  }
}
await client.close();
await following;
