// A real server of its own for each file of tests, in memory, on a free port of 127.0.0.1.

import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const BUILT = fileURLToPath(new URL("../../../target/debug/leasehold", import.meta.url));

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

async function isReady(url) {
  try {
    return (await fetch(`${url}/readyz`)).ok;
  } catch {
    return false;
  }
}

/** Starts a server; `LEASEHOLD_BIN` names the binary, or the one of the workspace is taken. */
export async function startServer({ isKept = false } = {}) {
  const binary = process.env.LEASEHOLD_BIN ?? BUILT;
  if (!existsSync(binary)) throw new Error(`there is no server at ${binary}: cargo build, or set LEASEHOLD_BIN`);
  const folder = mkdtempSync(join(tmpdir(), "leasehold-"));
  const address = `127.0.0.1:${await freePort()}`;
  const url = `http://${address}`;
  const flags = ["serve", "--listen", address, "--data", join(folder, "data"), ...(isKept ? [] : ["--store", "memory"])];
  let child;
  const start = async () => {
    child = spawn(binary, flags, { stdio: "ignore" });
    for (let tries = 0; !(await isReady(url)); tries += 1) {
      if (tries > 500) throw new Error("the server did not start");
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  const kill = async () => {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await ended;
  };
  const stop = async () => {
    await kill();
    rmSync(folder, { recursive: true, force: true });
  };
  await start();
  return { url, address, start, kill, stop, pause: () => child.kill("SIGSTOP"), goOn: () => child.kill("SIGCONT") };
}
