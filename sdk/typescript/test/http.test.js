// The connections of a client, without a server of ours behind them.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";

import { NoAnswer, Pool } from "../dist/http.js";

async function listening(handler) {
  const server = createServer(handler);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { server, url: `http://127.0.0.1:${server.address().port}` };
}

test("requests that take over a connection from others know that it stands", async () => {
  let isDeaf = false;
  const { server, url } = await listening((request, response) => {
    request.resume();
    if (isDeaf) request.socket.destroy();
    else setTimeout(() => response.end("{}"), 5);
  });
  const pool = new Pool(url, { token: undefined, ca: undefined });
  let connected = 0;
  const beat = () => pool.send({ method: "GET", path: "/", isBeat: true, onConnected: () => (connected += 1) });
  // More than there are connections for heartbeats: the rest waits in line for one.
  const first = Array.from({ length: 30 }, beat);
  await Promise.all(first.map((sent) => sent.answer));
  assert.equal(connected, 30);
  // What was sent and not answered may have been carried out, on every one of them.
  isDeaf = true;
  const lost = await Promise.allSettled(Array.from({ length: 8 }, beat).map((sent) => sent.answer));
  for (const { reason } of lost) assert.ok(reason instanceof NoAnswer && reason.failure === "unknown", String(reason));
  pool.close();
  server.close();
});
