/** Holds the lock while the job runs. Started by main.js, which leaves; ended by post.js, over a socket. */

import { createServer } from "node:net";
import { Client, HeldError } from "leasehold";
import { stopChildren } from "./processes.js";

/** A job that ran longer lost its runner: the longest that a hosted one has is six hours, one's own has five days. */
const LIFE_MAX_MS = 5 * 24 * 3600 * 1000;
const GRACE_MS = 5000;

const settings = await new Promise((resolve) => process.once("message", resolve));
const client = new Client(settings.addr, {
  owner: settings.owner,
  ttl: settings.ttl,
  ...(settings.token === "" ? {} : { token: settings.token }),
  ...(settings.namespace === "" ? {} : { namespace: settings.namespace }),
});

// Until the step has heard of the grant its end is ours: whoever cancels it wants no lock.
const left = new AbortController();
process.once("disconnect", () => left.abort());

async function acquire() {
  const metadata = runOf(process.env);
  const options = { wait: settings.wait, signal: left.signal, metadata };
  const [first, ...others] = settings.claims;
  const { lock, mode, permits } = first;
  const kind = permits === undefined ? { mode } : { permits };
  const request = others.length === 0 ? client.lock(lock, { ...options, ...kind }) : client.set(settings.claims, options);
  return request.acquire();
}

/** What others see beside the owner. */
function runOf({ GITHUB_SERVER_URL, GITHUB_REPOSITORY, GITHUB_RUN_ID }) {
  if (!GITHUB_SERVER_URL || !GITHUB_REPOSITORY || !GITHUB_RUN_ID) return {};
  return { run: `${GITHUB_SERVER_URL}/${GITHUB_REPOSITORY}/actions/runs/${GITHUB_RUN_ID}` };
}

/** As it is told to people. */
function said(error) {
  if (!(error instanceof HeldError)) return error instanceof Error ? error.message : String(error);
  const holders = error.holders.map((holder) => holder.ownerId).join(", ");
  return `could not be acquired: held by ${holders}`;
}

function send(message) {
  return new Promise((resolve) => (process.connected ? process.send(message, resolve) : resolve()));
}

/** Gives the lock back, or lets go what is left of the request, and ends. */
async function leave() {
  await client.close().catch(() => {});
  process.exit(0);
}

let lease;
try {
  lease = await acquire();
} catch (error) {
  await send({ failed: said(error) });
  await leave();
}
// The step may be cancelled between the grant and its being heard of.
const isKept = new Promise((resolve) => {
  process.once("message", () => {
    process.removeAllListeners("disconnect");
    resolve(true);
  });
  left.signal.addEventListener("abort", () => resolve(false));
  if (left.signal.aborted) resolve(false);
});

let lost = "";
lease.onJeopardy(async () => {
  if (settings.stops === null) return;
  lost = "the lease could not be renewed in time, so the running step was stopped";
  const grace = Math.min(GRACE_MS, Math.max(0, lease.timeLeft / 2));
  await stopChildren(settings.stops, grace);
});
lease.onLost(() => {
  lost ||= `the lock was lost while the job ran: ${lease.error()?.message ?? "the lease is over"}`;
});

const server = createServer((connection) => {
  connection.on("error", () => {});
  connection.once("data", async () => {
    if (lost === "") {
      await lease.release().catch((error) => {
        lost = said(error);
      });
    }
    connection.end(`${JSON.stringify({ lost })}\n`, () => leave());
  });
});
server.on("error", async (error) => {
  await send({ failed: said(error) });
  await leave();
});
server.listen(settings.channel, async () => {
  await send({ granted: { fencingToken: lease.fencingToken, waitedMs: lease.waited } });
  if (!(await isKept)) await leave();
  await send("kept");
  setTimeout(leave, LIFE_MAX_MS).unref();
});
