// The connections of a client, without a server of ours behind them.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";

import { Access } from "../dist/access.js";
import { NoAnswer, Pool } from "../dist/http.js";
import { Client, UsageError } from "../dist/index.js";

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
  const pool = new Pool(url, new Access([url]));
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

test("a server of another interface is refused", async (t) => {
  const { server, url } = await listening((request, response) => {
    request.resume();
    if (request.url === "/v1/version") response.end(JSON.stringify({ api: ["v7", "v8"] }));
    else response.writeHead(404).end(JSON.stringify({ code: "not_found", outcome: "not_applied" }));
  });
  t.after(() => (server.close(), server.closeAllConnections()));
  const client = new Client(url);
  t.after(() => client.close());
  for (;;) {
    const error = await client.lock("a").acquire().catch((refused) => refused);
    if (error instanceof UsageError) {
      assert.match(error.message, /v7, v8/);
      return;
    }
  }
});
