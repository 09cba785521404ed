// Where a token goes, how it is renewed, and which leaders are followed.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request as forward } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { inspect } from "node:util";

import { Access, TOKEN_AGE_MAX_MS, isLoopback } from "../dist/access.js";
import { Client, RefusedError, TestClock, UnreachableError, UsageError } from "../dist/index.js";
import { startServer } from "./server.js";

const SECRET = "lk_1_geheim";
const folder = mkdtempSync(join(tmpdir(), "leasehold-access-"));
let server;

before(async () => {
  server = await startServer();
});

after(async () => {
  await server.stop();
  rmSync(folder, { recursive: true, force: true });
});

function write(name, text) {
  const file = join(folder, name);
  writeFileSync(file, text);
  return file;
}

function usage(says) {
  return (error) => error instanceof UsageError && error.message.includes(says) && !error.message.includes("geheim");
}

/** A door before the server, which lets in who shows the right token. */
async function door(good, options) {
  const state = { good };
  const answer = (asked, response) => {
    if (asked.headers.authorization !== `Bearer ${state.good}`) {
      asked.resume();
      response.writeHead(401).end();
      return;
    }
    const { method, url: path, headers } = asked;
    const passed = forward(`${server.url}${path}`, { method, headers }, (told) => {
      response.writeHead(told.statusCode, told.headers);
      told.pipe(response);
    });
    passed.on("error", () => response.destroy());
    response.on("close", () => passed.destroy());
    asked.pipe(passed);
  };
  const listening = options === undefined ? createServer(answer) : createTlsServer(options, answer);
  await new Promise((resolve) => listening.listen(0, "127.0.0.1", resolve));
  state.url = `${options === undefined ? "http" : "https"}://localhost:${listening.address().port}`;
  state.close = () => {
    listening.close();
    listening.closeAllConnections();
  };
  return state;
}

test("a token goes unencrypted to this machine alone", () => {
  const file = write("token", `${SECRET}\n`);
  for (const options of [{ token: SECRET }, { tokenFile: file }]) {
    assert.throws(() => new Client("http://127.0.0.1:1,http://10.0.0.2:1", options), usage("http://10.0.0.2:1"));
    const servers = ["http://localhost:1", "https://10.0.0.2:1"];
    assert.equal(new Access(servers, options).token, SECRET);
    assert.equal(new Access(["http://10.0.0.2:1"], { ...options, allowCleartextToken: true }).token, SECRET);
  }
  assert.equal(new Access(["http://10.0.0.2:1"]).token, undefined);
  for (const token of ["", "ge heim", "ge\nheim", "geheim\x7f", "gehéim"]) {
    assert.throws(() => new Client(server.url, { token }), usage("the token cannot be used"));
  }
  assert.throws(() => new Client(server.url, { token: SECRET, tokenFile: file }), usage("not both"));
});

test("this machine is told from what only looks like it", () => {
  for (const here of ["127.0.0.1", "127.9.9.9", "[::1]", "LocalHost", "[::ffff:127.0.0.1]"]) {
    assert.ok(isLoopback(`http://${here}:1`), here);
  }
  for (const elsewhere of ["10.0.0.1", "localhost.example", "127.0.0.1.example", "[::2]", "[::ffff:10.0.0.1]"]) {
    assert.ok(!isLoopback(`http://${elsewhere}:1`), elsewhere);
  }
});

test("the environment names a token or its file", (t) => {
  const given = { ...process.env };
  t.after(() => {
    process.env = given;
  });
  const file = join(folder, "of-the-environment");
  process.env = { ...given, LEASEHOLD_ADDR: "https://10.0.0.2:1", LEASEHOLD_TOKEN_FILE: file };
  assert.throws(() => Client.fromEnv(), usage("cannot be read"));
  writeFileSync(file, "");
  assert.throws(() => Client.fromEnv(), usage("cannot be used"));
  writeFileSync(file, SECRET);
  process.env.LEASEHOLD_TOKEN = "other";
  assert.throws(() => Client.fromEnv(), usage("not both"));
  delete process.env.LEASEHOLD_TOKEN;
  process.env.LEASEHOLD_ADDR = "http://10.0.0.2:1";
  assert.throws(() => Client.fromEnv(), usage("unencrypted"));
});

test("the file is read again when the token is not known any more", async (t) => {
  const file = write("rotated", "first\n");
  const at = await door("first");
  t.after(at.close);
  const clock = new TestClock();
  const client = new Client(at.url, { tokenFile: file, patience: 2000, clock });
  t.after(() => client.close());
  const lease = await client.lock("rotated", { ttl: "30s" }).acquire();
  const watch = await client.watch("rotated");
  // Beside the old one, as whoever replaces a file safely does.
  at.good = "second";
  renameSync(write("next", "second\n"), file);
  clock.advance(11_000);
  while (lease.timeLeft < 25_000) await new Promise((resolve) => setTimeout(resolve, 5));
  lease.check();
  await lease.release();
  await (await client.watch("rotated")).close();
  watch.close();
  // Nobody has a better one: the answer is the server's.
  at.good = "third";
  await assert.rejects(client.lock("rotated").acquire(), (error) => {
    return error instanceof RefusedError && error.code === "unauthenticated" && error.outcome === "not_applied";
  });
  // A file that is gone for a moment is no reason to forget the token.
  rmSync(file);
  at.good = "second";
  await (await client.lock("rotated").acquire()).release();
});

test("the file is read again now and then", (t) => {
  const file = write("aged", "first");
  const access = new Access(["http://127.0.0.1:1"], { tokenFile: file });
  writeFileSync(file, "second");
  assert.equal(access.token, "first");
  const { now } = performance;
  t.mock.method(performance, "now", () => now.call(performance) + TOKEN_AGE_MAX_MS);
  assert.equal(access.token, "second");
  writeFileSync(file, "no header\ncan carry it");
  assert.equal(access.hasNewer("second"), false);
});

test("a leader is followed to a server that was named, or that a named authority has signed", () => {
  const plain = new Access(["http://a:1", "http://b:1"]);
  assert.equal(plain.leader("http://a:1", "http://b:1/"), "http://b:1");
  assert.equal(plain.leader("http://a:1", "b:1"), "http://b:1");
  for (const elsewhere of ["http://c:1", "c:1", "https://b:1", "", "http://b:1@c:1", "b:1/x"]) {
    assert.equal(plain.leader("http://a:1", elsewhere), undefined, elsewhere);
  }
  const pinned = new Access(["https://a:1", "http://b:1"], { tls: { ca: "an authority" } });
  assert.equal(pinned.leader("https://a:1", "c:1"), "https://c:1");
  assert.equal(pinned.leader("https://a:1", "http://b:1"), undefined);
  assert.equal(pinned.leader("http://b:1", "https://c:1"), undefined);
  assert.equal(pinned.leader("http://b:1", "https://a:1"), "https://a:1");
  assert.equal(new Access(["https://a:1"]).leader("https://a:1", "https://c:1"), undefined);
});

test("a leader that was not named is asked for nothing", async (t) => {
  let asked = 0;
  const evil = createServer((_, response) => {
    asked += 1;
    response.end("{}");
  });
  await new Promise((resolve) => evil.listen(0, "127.0.0.1", resolve));
  const leader = `http://127.0.0.1:${evil.address().port}`;
  const deposed = createServer((request, response) => {
    request.resume();
    response.writeHead(503).end(JSON.stringify({ code: "not_leader", outcome: "not_applied", leader }));
  });
  await new Promise((resolve) => deposed.listen(0, "127.0.0.1", resolve));
  t.after(() => [evil, deposed].forEach((one) => (one.close(), one.closeAllConnections())));
  const client = new Client(`http://127.0.0.1:${deposed.address().port}`, { patience: 300, token: SECRET });
  await assert.rejects(client.lock("a").acquire(), { code: "not_leader" });
  await client.close();
  assert.equal(asked, 0);
});

test("TLS is spoken with named authorities", async (t) => {
  const cert = join(folder, "cert.pem");
  const key = join(folder, "key.pem");
  const ask = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=localhost";
  const names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert];
  execFileSync("openssl", [...ask.split(" "), ...names], { stdio: "ignore" });
  const at = await door(SECRET, { cert: readFileSync(cert), key: readFileSync(key) });
  t.after(at.close);
  for (const options of [{ cacert: cert }, { tls: { ca: readFileSync(cert) } }]) {
    const client = new Client(at.url, { token: SECRET, ...options });
    await (await client.lock("tls").acquire()).release();
    await client.close();
  }
  const stranger = new Client(at.url, { token: SECRET, patience: 300 });
  await assert.rejects(stranger.lock("tls").acquire(), (error) => {
    return error instanceof UnreachableError && error.outcome === "not_applied" && /certificate/.test(error.message);
  });
  await stranger.close();
  assert.throws(() => new Client(at.url, { cacert: write("empty.pem", "nothing") }), usage("no certificate"));
  assert.throws(() => new Client(at.url, { cacert: join(folder, "nowhere") }), usage("cannot be read"));
});

test("a token is shown to servers alone", async () => {
  const client = new Client(server.url, { token: SECRET });
  const lock = client.lock("shown");
  const lease = await lock.acquire();
  for (const one of [client, lock, lease, client.api]) {
    assert.ok(!inspect(one, { depth: 20, showHidden: true }).includes("geheim"));
  }
  await client.close();
});
