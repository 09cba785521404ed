// Names, durations, codes and errors are those of the server.

import assert from "node:assert/strict";
import test from "node:test";

import { readBody } from "../dist/api.js";
import { DENIED, RETRYABLE, saysNothingOfTheLease, saysNothingOfTheLock } from "../dist/codes.js";
import { micros, parse } from "../dist/duration.js";
import {
  DeadlockError,
  Fence,
  HeldError,
  RefusedError,
  StaleFenceError,
  UnreachableError,
  UsageError,
  byteRange,
  subtree,
} from "../dist/index.js";
import { parseServers, pathPart } from "../dist/names.js";
import { table } from "./vectors.js";

const KINDS = {
  held: HeldError,
  deadlock: DeadlockError,
  stale_fence: StaleFenceError,
  refused: RefusedError,
  unreachable: UnreachableError,
};

test("names stand in a path as the server reads them", () => {
  for (const { name, path } of table("names")) assert.equal(pathPart(name), path, name);
});

test("helpers write canonical texts", () => {
  const canonical = new Set(table("names").map((row) => row.canonical));
  for (const name of [subtree("/srv/a"), byteRange(42, 100, 200), byteRange(42, 100), byteRange(42)]) {
    assert.ok(canonical.has(name), name);
  }
});

test("durations are read as the server reads them", () => {
  for (const { text, nanos } of table("durations")) {
    assert.equal(parse(text), nanos === null ? undefined : BigInt(nanos), text);
  }
});

test("a duration is milliseconds or text", () => {
  assert.deepEqual([micros(1500), micros("1500ms"), micros("1.5s")], [1_500_000, 1_500_000, 1_500_000]);
  for (const wrong of [-1, Number.NaN, Number.POSITIVE_INFINITY, "soon", true, "9000000h"]) {
    assert.throws(() => micros(wrong), UsageError, String(wrong));
  }
});

test("codes mean what the server means by them", () => {
  for (const row of table("codes")) {
    assert.equal(RETRYABLE.has(row.code), row.retryable, row.code);
    assert.equal(saysNothingOfTheLock(row.code), row.says_nothing_of_the_lock, row.code);
    assert.equal(saysNothingOfTheLease(row.code), row.says_nothing_of_the_lease, row.code);
    assert.equal(DENIED.has(row.code), row.is_denied, row.code);
  }
});

test("bodies are the errors that they should be", () => {
  for (const { status, body, error: wanted } of table("problems")) {
    assert.throws(
      () => readBody({ status, body }),
      (error) => {
        assert.equal(error.constructor, KINDS[wanted.kind], body);
        const said = [error.code ?? null, error.outcome, error.reason ?? null];
        assert.deepEqual(said, [wanted.code, wanted.outcome, wanted.reason], body);
        if (error instanceof RefusedError) assert.equal(error.retryAfter ?? null, wanted.retry_after_ms, body);
        if (error instanceof HeldError) {
          assert.equal(error.holders[0].ownerId, "worker-1");
          assert.deepEqual(error.holders[0].metadata, { value: "10.0.0.7:9000" });
          assert.deepEqual([error.waiters, error.ticket], [2, "t-1"]);
        }
        if (error instanceof DeadlockError) {
          const cycle = error.cycle.map((one) => [one.waiter, one.lock, one.blocker]);
          assert.deepEqual(cycle, [["a", "x", "b"], ["b", "y", "a"]]);
        }
        if (error instanceof StaleFenceError) assert.equal(error.highWater, 41);
        return true;
      },
    );
  }
});

test("servers are read, one or several", () => {
  assert.deepEqual(parseServers("http://127.0.0.1:8080"), ["http://127.0.0.1:8080"]);
  assert.deepEqual(parseServers("a:1, http://b:2/,[::1]:3"), ["http://a:1", "http://b:2", "http://[::1]:3"]);
  assert.deepEqual(parseServers("https://a, https://b:2"), ["https://a:443", "https://b:2"]);
  for (const wrong of ["", " , ", "ftp://a:1", "http://a:1/x", "http://", "http://a b:1", "http://u@a:1", "http://a:x"]) {
    assert.throws(() => parseServers(wrong), UsageError, wrong);
  }
});

test("a fence in the process turns stale tokens away", () => {
  const fence = new Fence();
  fence.accept(33);
  fence.accept(34);
  assert.throws(() => fence.accept(33), StaleFenceError);
  assert.equal(fence.highWater, 34);
});
