// The machine does what that of the Rust SDK does, step by step.

import assert from "node:assert/strict";
import test from "node:test";

import { Machine } from "../dist/machine/machine.js";
import { Jitter } from "../dist/machine/types.js";
import { machine as readVectors } from "./vectors.js";

const MS = 1000;
const VECTORS = readVectors();

function ms(moment) {
  if (moment === null) return null;
  assert.equal(moment % MS, 0, `${moment} µs are no whole milliseconds`);
  return moment / MS;
}

function problem(said) {
  return { ...said, recommendedRetryMs: said.recommended_retry_ms };
}

/** Plays a vector to the machine, and says what came of each step. */
class Player {
  keys = new Map();
  names = new Map();
  calls = [];
  standing = {};

  constructor(header) {
    const { heartbeat, ...lengths } = header.settings;
    this.header = header;
    this.settings = {
      patience: lengths.patience_ms * MS,
      answerTimeout: lengths.answer_timeout_ms * MS,
      connectTimeout: lengths.connect_timeout_ms * MS,
      backoffFirst: lengths.backoff_first_ms * MS,
      backoffMax: lengths.backoff_max_ms * MS,
      heartbeatPart: { "ttl/3": 3, "ttl/6": 6 }[heartbeat],
    };
  }

  play(step) {
    const returns = this.putIn(step.at * MS, step);
    const came = { out: [] };
    for (let action = this.machine.nextAction(); action; action = this.machine.nextAction()) {
      came.out.push(this.said(action));
    }
    if (returns !== undefined) came.returns = returns;
    const standing = this.allStanding();
    if (JSON.stringify(standing) !== JSON.stringify(this.standing)) came.standing = this.standing = standing;
    return came;
  }

  putIn(now, step) {
    if (step.do) {
      const [[deed, how]] = Object.entries(step.do);
      return this.perform(now, deed, how);
    }
    if (step.hear) this.hear(now, step.hear);
    else if (step.fail) this.machine.failed(now, this.calls[step.fail.call - 1], step.fail.how);
    else if (step.up) this.machine.up(now, step.up.link);
    else if (step.down) this.machine.down(now, step.down.link);
    else {
      assert.equal(step.wake, true);
      this.machine.wake(now);
    }
    return undefined;
  }

  perform(now, deed, how) {
    switch (deed) {
      case "start":
        this.machine = new Machine(now, this.header.servers, this.settings, new Jitter(this.header.jitter));
        return undefined;
      case "acquire": {
        const wait = how.wait_ms === null ? null : how.wait_ms * MS;
        const session = "session" in how ? this.keys.get(how.session) : undefined;
        const key = this.machine.acquire(now, how.key, { ttl: how.ttl_ms * MS, wait, isKept: how.kept, session });
        this.keys.set(how.key, key);
        this.names.set(key, how.key);
        return undefined;
      }
      case "release":
        return this.machine.release(now, this.keys.get(how.key));
      case "renew":
        return this.machine.renew(now, this.keys.get(how.key));
      case "abandon":
        return this.machine.abandon(now, this.keys.get(how.key));
      case "start_heartbeat":
        return this.machine.startHeartbeat(now, this.keys.get(how.key));
      case "suspect":
        return this.machine.suspect(now);
      default:
        assert.equal(deed, "suspect_if_idle");
        return this.machine.suspectIfIdle(now);
    }
  }

  hear(now, heard) {
    if (heard.lost) {
      this.machine.lost(now, this.keys.get(heard.key), problem(heard.lost));
      return;
    }
    let answer;
    if (heard.refused) answer = { kind: "refusal", problem: problem(heard.refused) };
    else if (heard.released) answer = { kind: "released" };
    else {
      const kind = heard.granted ? "granted" : "renewed";
      const { ttl_ms, left_ms } = heard[kind];
      answer = { kind, ttl: ttl_ms * MS, left: left_ms * MS };
    }
    this.machine.answer(now, this.calls[heard.call - 1], answer);
  }

  name(key) {
    // What has ended in the same step is still spoken of.
    if (!this.names.has(key)) this.names.set(key, this.machine.data(key));
    return this.names.get(key);
  }

  said(action) {
    switch (action.kind) {
      case "connect":
        return { connect: { link: action.link, address: action.address } };
      case "send": {
        const { request } = action;
        this.calls.push(action.call);
        const send = { call: this.calls.length, key: this.name(action.key), request: request.kind };
        if (request.kind === "acquire") send.wait_ms = ms(request.wait);
        if (request.ticket !== undefined) send.ticket = request.ticket;
        return { send };
      }
      case "cancel":
        return { cancel: { call: this.calls.indexOf(action.call) + 1, key: this.name(action.key) } };
      case "tell":
        return { tell: { key: this.name(action.key), news: action.news } };
      default: {
        const { kind, loss, problem: why } = action.how;
        const end = { key: action.data, how: kind };
        if (loss !== undefined) end.by = loss;
        if (why !== undefined) Object.assign(end, { code: why.code, outcome: why.outcome });
        return { end };
      }
    }
  }

  allStanding() {
    const found = {};
    for (const name of [...this.keys.keys()].sort()) {
      const standing = this.machine.standing(this.keys.get(name));
      if (standing === undefined) continue;
      const { since, jeopardyAt, lapsesAt } = standing;
      found[name] = { since: ms(since), jeopardy_at: ms(jeopardyAt), lapses_at: ms(lapsesAt) };
    }
    return found;
  }
}

for (const [name, [header, ...steps]] of VECTORS) {
  test(`machine does what the vector says: ${name}`, () => {
    const player = new Player(header);
    for (const [index, step] of steps.entries()) {
      const where = `line ${index + 2}: ${JSON.stringify(step)}`;
      const came = player.play(step);
      const wanted = {};
      for (const what of ["out", "returns", "standing"]) if (what in step) wanted[what] = step[what];
      assert.deepEqual(came, wanted, where);
      const wake = player.machine.nextWake();
      // It may ask to be woken earlier, never later.
      if (step.next !== null) assert.ok(wake !== null && wake <= step.next * MS, where);
    }
  });
}

test("there are vectors", () => {
  assert.ok(VECTORS.size > 250);
});
