/** Starts the keeper, waits until it has the lock, and leaves it behind. */

import { spawn } from "node:child_process";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { fail, input, mask, newChannel, output, save, warn } from "./runner.js";

function settings() {
  const { GITHUB_REPOSITORY, GITHUB_RUN_ID, GITHUB_RUN_ATTEMPT, GITHUB_JOB } = process.env;
  const run = [GITHUB_REPOSITORY, GITHUB_RUN_ID, GITHUB_RUN_ATTEMPT, GITHUB_JOB].filter(Boolean).join("/");
  const permits = input("permits");
  if (permits !== "" && !/^[1-9][0-9]*$/.test(permits)) throw new Error(`permits: ${permits} is not a whole number`);
  const mode = input("mode") || "exclusive";
  if (mode !== "exclusive" && mode !== "shared") throw new Error(`mode: ${mode} is neither exclusive nor shared`);
  const locks = input("lock").split("\n").map((lock) => lock.trim()).filter((lock) => lock !== "");
  if (locks.length === 0) throw new Error("lock: the name of a lock is missing");
  if (input("addr") === "") throw new Error("addr: the address of a server is missing");
  const isFast = (input("fail-fast") || "true") === "true";
  if (isFast && process.platform === "win32") warn("fail-fast does nothing on Windows: a lost lock fails the job at its end");
  return {
    addr: input("addr"),
    token: input("token"),
    namespace: input("namespace"),
    claims: locks.map((lock) => ({ lock, mode, ...(permits === "" ? {} : { permits: Number(permits) }) })),
    wait: input("wait") || "30m",
    ttl: input("ttl") || "60s",
    owner: input("owner") || run || "github-actions",
    channel: newChannel(),
    // The runner: the steps of the job are its children, and this process is one too.
    stops: isFast && process.platform !== "win32" ? process.ppid : null,
  };
}

/** What the keeper says first: `{ granted }` or `{ failed }`. */
function heard(keeper) {
  return new Promise((resolve) => {
    keeper.once("message", resolve);
    keeper.once("exit", (code, signal) => resolve({ failed: `the keeper ended with ${code ?? signal}` }));
    keeper.once("error", (error) => resolve({ failed: String(error) }));
  });
}

async function main() {
  const wanted = settings();
  mask(wanted.token);
  const { INPUT_TOKEN: _, ...environment } = process.env;
  const script = join(dirname(fileURLToPath(import.meta.url)), "keeper.js");
  // A session of its own: it stays when this step ends. When this process ends before, the channel between them breaks.
  const keeper = spawn(process.execPath, [script], {
    detached: true,
    env: environment,
    stdio: ["ignore", "ignore", "ignore", "ipc"],
  });
  const answer = heard(keeper);
  keeper.send(wanted);
  console.log(`waiting for ${wanted.claims.map(({ lock }) => lock).join(", ")} as ${wanted.owner}, for ${wanted.wait} at most`);
  const { granted, failed } = await answer;
  if (granted === undefined) return fail(failed);
  save("channel", wanted.channel);
  output("fencing-token", granted.fencingToken);
  output("waited-ms", granted.waitedMs);
  console.log(`acquired, fencing token ${granted.fencingToken}, after ${granted.waitedMs} ms`);
  keeper.send("keep");
  await new Promise((resolve) => keeper.once("message", resolve));
  keeper.disconnect();
  keeper.unref();
}

try {
  await main();
} catch (error) {
  fail(error instanceof Error ? error.message : error);
}
