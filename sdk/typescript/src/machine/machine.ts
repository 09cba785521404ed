/**
 * The client's side of the promise, without a clock, a network or a timer.
 *
 * ```text
 * asked: acquire, release, abandon --+                +--> connect to this server
 * heard: answer, failure, up, down --+--> Machine ----+--> send this request, cancel that one
 * the time --------------------------+  (one client)  +--> tell: granted, renewed, jeopardy, lost, released
 *                                                     +--> wake me then
 * ```
 *
 * A port of the machine of the Rust SDK, and held to it by the vectors in `sdk/vectors/machine`. Every input takes the time
 * first and works off what has become due before it looks at the input itself, so a process that slept through its lease
 * learns that before anything else.
 *
 * - A lease counts from the moment before the request was sent that got or renewed it, see `Standing`.
 * - A heartbeat goes out after a third of the ttl at the latest. What fails by transport is sent again until half of the ttl
 *   is over, and so is what the server does not let in; what it refuses otherwise ends the lease at once.
 * - Half of the ttl after the last confirmed request was sent the work must stop (jeopardy), and does not start again. When
 *   the ttl is over the lease is lost.
 * - A grant that comes so late that a heartbeat is due is confirmed by one before anybody is told.
 * - An acquire is sent again, under the same request id, after a broken connection and when a server cannot decide just
 *   now; a release is too, as long as the lease could still stand.
 * - An acquire that nobody wants any more leaves nothing behind: it is cancelled, and what it may have got is released.
 * - With several servers, the next one is tried when one cannot be reached, answers nobody or does not lead.
 */

import { DENIED, LEASE_IS_OVER, saysNothingOfTheLease, saysNothingOfTheLock } from "../codes.js";
import { Servers, Slab, Timers } from "./collections.js";
import {
  type Abandoned,
  type Acquiring,
  type Action,
  type Answer,
  type Ask,
  type Beat,
  type Call,
  type Confirming,
  type Ended,
  type Entry,
  FORGOTTEN,
  type Failure,
  type Held,
  Jitter,
  type Key,
  MILLISECOND,
  type News,
  type Refused,
  type Releasing,
  type Request,
  SETTINGS,
  type Settings,
  Standing,
  State,
  byPlace,
  doubled,
  dueAt,
  earliest,
  isUnwanted,
  lost,
  noBeat,
  standingOf,
} from "./types.js";

/** A heartbeat that is not answered is sent again after this part of the ttl: three fit between a third and a half. */
const RESEND_PART = 18;
const RESEND_MIN = 5 * MILLISECOND;
/** A connection over which nothing came for this part of the ttl, though a heartbeat is out, is given up. */
const STALL_PART = 9;
const LINK_TRIES_MAX = 1 << 20;

/** One client. `data` is whatever the one who drives it wants to keep with each lease. */
export class Machine<D> {
  readonly #settings: Settings;
  readonly #servers: Servers;
  readonly #jitter: Jitter;
  readonly #entries = new Slab<Entry<D>>();
  readonly #calls = new Slab<Call>();
  readonly #timers = new Timers();
  #line: Key[] = [];
  #actions: Action<D>[] = [];
  #actionsDone = 0;
  #links = 0;
  #link: number | null = null;
  #isUp = false;
  #heard = 0;
  #linkUntil: number | null;
  #linkTries = 0;

  constructor(now: number, servers: readonly string[], settings: Settings = SETTINGS, jitter: Jitter = new Jitter()) {
    this.#settings = settings;
    this.#servers = new Servers(servers);
    this.#jitter = jitter;
    this.#linkUntil = now;
    this.#reconnectIfDue(now);
  }

  // What the driver sees.

  /** The next thing to do; `undefined` when all is done for now. */
  nextAction(): Action<D> | undefined {
    const action = this.#actions[this.#actionsDone];
    if (action !== undefined) {
      this.#actionsDone += 1;
    } else if (this.#actionsDone > 0) {
      this.#actions = [];
      this.#actionsDone = 0;
    }
    return action;
  }

  /** The moment when `wake` must be called at the latest. */
  nextWake(): number | null {
    for (let first = this.#timers.first; first !== undefined; first = this.#timers.first) {
      if (this.#entries.get(first.key)?.timer === first.at) break;
      this.#timers.pop();
    }
    return earliest(this.#timers.first?.at ?? null, this.#linkUntil);
  }

  /** It is that late. */
  wake(now: number): void {
    this.#workOff(now);
  }

  data(key: Key): D | undefined {
    return this.#entries.get(key)?.data;
  }

  /** The lease that the key's grant stands under, while it is held. */
  standing(key: Key): Standing | undefined {
    const entry = this.#entries.get(key);
    if (entry?.phase.kind === "joined" && entry.ask.session !== undefined) {
      return standingOf(this.#entries.get(entry.ask.session));
    }
    return standingOf(entry);
  }

  allKeys(): Key[] {
    return this.#entries.items().map(([key]) => key);
  }

  get size(): number {
    return this.#entries.size;
  }

  /** The server that is in use or about to be. */
  get server(): string {
    return this.#servers.current;
  }

  // What is asked.

  /** Asks for a lease, a session, or a grant under one. */
  acquire(now: number, data: D, ask: Ask): Key {
    this.#workOff(now);
    const waitUntil = ask.wait === null ? null : now + ask.wait;
    const acquiring: Acquiring = {
      kind: "acquiring",
      giveUp: waitUntil === null ? null : waitUntil + this.#settings.patience,
      waitUntil,
      ticket: undefined,
      isInDoubt: false,
      tries: 0,
      next: null,
      last: undefined,
    };
    const key = this.#entries.insert({
      data,
      ask,
      phase: acquiring,
      isKept: ask.isKept,
      timer: null,
      call: undefined,
      isInLine: false,
      members: new Set(),
      denied: undefined,
    });
    if (ask.session !== undefined) {
      const session = this.#entries.get(ask.session);
      if (session === undefined) {
        this.#end(key, lost("session"));
        return key;
      }
      session.members.add(key);
    }
    this.#sendAcquire(now, key);
    this.#rearm(key);
    return key;
  }

  /** Gives it back; with a session, everything under it. False if there is nothing to give back any more. */
  release(now: number, key: Key): boolean {
    this.#workOff(now);
    if (!this.#isHeld(this.#entries.get(key))) return false;
    this.#startRelease(now, key, false);
    this.#rearm(key);
    return true;
  }

  /** Nobody wants the answer to an acquire any more, or the grant that it got. */
  abandon(now: number, key: Key): void {
    this.#workOff(now);
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    const phase = entry.phase;
    if (phase.kind === "acquiring") {
      if (entry.call !== undefined || phase.isInDoubt) this.#cleanUp(now, key);
      else this.#end(key, FORGOTTEN);
    } else if (phase.kind === "confirming" || this.#isHeld(entry)) {
      this.#startRelease(now, key, true);
    }
    this.#rearm(key);
  }

  /** Renews now, whenever the next heartbeat is due. False if there is nothing to renew. */
  renew(now: number, key: Key): boolean {
    this.#workOff(now);
    const entry = this.#entries.get(key);
    if (entry?.phase.kind !== "held") return false;
    const wasUnwanted = isUnwanted(entry.phase.beat);
    this.#sendBeat(now, key);
    const phase = entry.phase;
    if (wasUnwanted) phase.beat = noBeat();
    this.#rearm(key);
    return true;
  }

  /** Keeps a lease alive from here on that was asked for without. */
  startHeartbeat(now: number, key: Key): void {
    this.#workOff(now);
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    if (entry.ask.session === undefined) entry.isKept = true;
    if (entry.phase.kind === "held" && isUnwanted(entry.phase.beat)) {
      entry.phase.beat = this.#nextBeat(entry.phase.standing);
      this.#rearm(key);
    }
  }

  // What is heard.

  /** An answer came. */
  answer(now: number, call: Key, answer: Answer): void {
    this.#workOff(now);
    const sent = this.#calls.remove(call);
    if (sent === undefined) return;
    this.#heardFrom(now, sent.link);
    const entry = this.#entries.get(sent.key);
    if (entry === undefined) return;
    const isLatest = entry.call === call;
    if (isLatest) entry.call = undefined;
    switch (answer.kind) {
      case "granted":
        this.#granted(now, sent, answer.ttl, answer.left);
        break;
      case "renewed":
        this.#renewed(now, sent, answer.ttl, answer.left);
        break;
      case "refusal":
        this.#refused(now, sent, isLatest, answer.problem);
        break;
      case "released":
        this.#released(sent.key);
    }
    this.#rearm(sent.key);
  }

  /** No answer came, though the connection may go on. */
  failed(now: number, call: Key, failure: Failure): void {
    this.#workOff(now);
    const sent = this.#calls.remove(call);
    if (sent === undefined) return;
    this.#tryAnother(now, sent.link);
    this.#callFailed(now, call, sent, failure);
  }

  /** The server said, unasked, that a lease or a grant is over. */
  lost(now: number, key: Key, problem: Refused): void {
    this.#workOff(now);
    if (this.#isHeld(this.#entries.get(key))) this.#end(key, lost("server", problem));
  }

  /** The connection stands; requests can be sent over it. */
  up(now: number, link: number): void {
    this.#workOff(now);
    if (this.#link !== link || this.#isUp) return;
    this.#isUp = true;
    this.#heard = now;
    this.#linkUntil = null;
    this.#sendWhatIsInLine(now);
  }

  /** The connection broke, or could not be made. */
  down(now: number, link: number): void {
    this.#workOff(now);
    if (this.#link !== link) return;
    this.#servers.rotate();
    this.#dropLink(now);
  }

  /** Something that was asked beside the machine failed: another server may do better, if there is one. */
  suspect(now: number): void {
    this.#workOff(now);
    if (this.#isUp && this.#link !== null) this.#tryAnother(now, this.#link);
  }

  /** The same, unless something is held: then its heartbeats decide. */
  suspectIfIdle(now: number): void {
    if (!this.#isAnythingHeld()) this.suspect(now);
  }

  // Time.

  /** Does what is due, the oldest first. */
  #workOff(now: number): void {
    for (let first = this.#timers.first; first !== undefined && first.at <= now; first = this.#timers.first) {
      const { at, key } = first;
      this.#timers.pop();
      const entry = this.#entries.get(key);
      if (entry === undefined || entry.timer !== at) continue;
      entry.timer = null;
      const due = dueAt(entry);
      // It may have been set for something that has happened meanwhile.
      if (due !== null && due <= now) this.#due(now, key, entry);
      this.#rearm(key);
    }
    this.#reconnectIfDue(now);
  }

  #due(now: number, key: Key, entry: Entry<D>): void {
    const phase = entry.phase;
    switch (phase.kind) {
      case "acquiring":
        this.#acquiringDue(now, key, phase);
        break;
      case "confirming":
        if (phase.acquiring.next !== null && phase.acquiring.next <= now) this.#askAnew(now, key, phase);
        else this.#sendBeat(now, key);
        break;
      case "held":
        this.#heldDue(now, key, phase);
        break;
      case "jeopardy":
        this.#lapse(key);
        break;
      case "releasing":
        this.#releasingDue(now, key, entry, phase);
        break;
      case "abandoned":
        this.#forgetCall(now, key);
        if (phase.until <= now) this.#end(key, FORGOTTEN);
        else this.#sendToFindOut(now, key);
    }
  }

  /**
   * Sees to it that there is a timer when the entry is next due, or earlier: most leases are given back before any of their
   * timers fires, and looking once too often costs less than setting each anew.
   */
  #rearm(key: Key): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    const due = dueAt(entry);
    if (due === null || (entry.timer !== null && entry.timer <= due)) return;
    entry.timer = due;
    this.#timers.push(due, key);
  }

  // Sending.

  /** Sends, or stands in line for a connection; true if it was sent. */
  #send(now: number, key: Key, request: Request): boolean {
    const entry = this.#entries.get(key);
    if (entry === undefined) return false;
    if (!this.#isUp || this.#link === null) {
      if (!entry.isInLine) {
        entry.isInLine = true;
        this.#line.push(key);
      }
      return false;
    }
    const call = this.#calls.insert({ key, sent: now, link: this.#link });
    entry.call = call;
    this.#actions.push({ kind: "send", call, key, request });
    return true;
  }

  #tell(key: Key, news: News, standing?: Standing): void {
    this.#actions.push({ kind: "tell", key, news, standing });
  }

  /** Forgets the entry, and ends what stands under it. */
  #end(key: Key, how: Ended): void {
    const entry = this.#entries.remove(key);
    if (entry === undefined) return;
    if (entry.ask.session !== undefined) this.#entries.get(entry.ask.session)?.members.delete(key);
    for (const member of [...entry.members].sort(byPlace)) {
      this.#end(member, how.kind === "lost" ? how : lost("session"));
    }
    this.#actions.push({ kind: "end", key, data: entry.data, how });
  }

  #callFailed(now: number, call: Key, sent: Call, failure: Failure): void {
    const entry = this.#entries.get(sent.key);
    if (entry === undefined) return;
    const phase = entry.phase;
    if (phase.kind === "acquiring" && failure === "unknown") phase.isInDoubt = true;
    // Another one was sent since: that one counts.
    if (entry.call !== call) return;
    entry.call = undefined;
    switch (phase.kind) {
      case "acquiring":
        this.#tryAcquireLater(now, phase, 0);
        break;
      case "confirming":
      case "held":
        this.#beatFailed(now, phase, undefined);
        break;
      case "releasing":
        this.#releaseFailed(now, phase, failure);
        break;
      case "abandoned":
        this.#abandonedFailed(now, phase);
    }
    this.#rearm(sent.key);
  }

  /** A refusal of a request that was sent again since says nothing, except that a lease is over. */
  #refused(now: number, sent: Call, isLatest: boolean, problem: Refused): void {
    if (problem.code === "not_leader") this.#follow(now, sent.link, problem.leader);
    const entry = this.#entries.get(sent.key);
    if (entry === undefined) return;
    const { phase } = entry;
    switch (phase.kind) {
      case "confirming":
        if (saysNothingOfTheLease(problem.code)) this.#beatFailed(now, phase, hintOf(problem));
        else this.#askAnew(now, sent.key, phase);
        break;
      case "held":
      case "jeopardy":
        if (DENIED.has(problem.code)) entry.denied = problem;
        else if (!saysNothingOfTheLease(problem.code)) {
          this.#end(sent.key, lost("server", problem));
          break;
        }
        if (phase.kind === "held") this.#beatFailed(now, phase, hintOf(problem));
        break;
      case "acquiring":
        if (isLatest) this.#acquireRefused(now, sent.key, phase, problem);
        break;
      case "releasing":
        if (isLatest) this.#releaseRefused(now, sent.key, phase, problem);
        break;
      case "abandoned":
        if (!isLatest) break;
        if (saysNothingOfTheLock(problem.code)) this.#abandonedFailed(now, phase);
        else this.#end(sent.key, FORGOTTEN);
    }
  }

  // Acquiring.

  #sendAcquire(now: number, key: Key): void {
    const entry = this.#entries.get(key);
    if (entry?.phase.kind !== "acquiring") return;
    const acquiring = entry.phase;
    let wait: number | null;
    if (entry.ask.wait === 0) wait = 0;
    else wait = acquiring.waitUntil === null ? null : Math.max(0, acquiring.waitUntil - now);
    acquiring.next = wait === null ? null : now + wait + this.#settings.answerTimeout;
    this.#send(now, key, { kind: "acquire", wait, ticket: acquiring.ticket });
  }

  #acquiringDue(now: number, key: Key, acquiring: Acquiring): void {
    if (acquiring.giveUp !== null && acquiring.giveUp <= now) {
      this.#giveUp(now, key, acquiring);
    } else if (acquiring.next !== null && acquiring.next <= now) {
      this.#forgetCall(now, key);
      this.#sendAcquire(now, key);
    }
  }

  /**
   * The answer is overdue. The request goes out again; should the old answer come, nobody waits for it. Returns true if
   * there was one to come.
   */
  #forgetCall(now: number, key: Key): boolean {
    const entry = this.#entries.get(key);
    const call = entry?.call;
    if (entry === undefined || call === undefined) return false;
    entry.call = undefined;
    if (entry.phase.kind === "acquiring") entry.phase.isInDoubt = true;
    this.#actions.push({ kind: "cancel", call, key });
    this.#overdue(now, call);
    return true;
  }

  #giveUp(now: number, key: Key, acquiring: Acquiring): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    if (entry.call !== undefined || acquiring.isInDoubt) {
      this.#tell(key, "gave_up");
      this.#cleanUp(now, key);
    } else if (acquiring.last !== undefined) {
      this.#end(key, { kind: "refused", problem: acquiring.last });
    } else {
      this.#end(key, { kind: "unreachable" });
    }
  }

  /** Leaves the queue, and finds out if there is something to give back. */
  #cleanUp(now: number, key: Key): void {
    const entry = this.#entries.get(key);
    if (entry?.phase.kind !== "acquiring") return;
    const session = entry.ask.session;
    // Whatever it got lapses by then.
    const longest = session === undefined ? entry.ask.ttl : (standingOf(this.#entries.get(session))?.ttl ?? 0);
    entry.phase = { kind: "abandoned", until: now + longest, tries: 0, next: null };
    if (entry.call !== undefined) this.#actions.push({ kind: "cancel", call: entry.call, key });
    else this.#sendToFindOut(now, key);
  }

  /** The same request again, without a wait: if it was granted before, this is that grant, and it can be released. */
  #sendToFindOut(now: number, key: Key): void {
    const entry = this.#entries.get(key);
    if (entry?.phase.kind !== "abandoned") return;
    entry.phase.next = now + this.#settings.answerTimeout;
    this.#send(now, key, { kind: "acquire", wait: 0 });
  }

  #abandonedFailed(now: number, abandoned: Abandoned): void {
    abandoned.next = now + this.#backoff(abandoned.tries);
    abandoned.tries += 1;
  }

  #backoff(tries: number): number {
    return this.#jitter.spread(doubled(this.#settings.backoffFirst, tries, this.#settings.backoffMax));
  }

  #granted(now: number, sent: Call, ttl: number, left: number): void {
    const entry = this.#entries.get(sent.key);
    const phase = entry?.phase;
    if (entry === undefined || phase === undefined) return;
    if (phase.kind === "acquiring") {
      if (entry.ask.session !== undefined) this.#joined(now, sent.key, entry, entry.ask.session);
      else this.#leased(now, sent, entry, phase, Standing.counted(sent.sent, ttl, left));
    } else if (phase.kind === "abandoned") {
      const until = Math.max(phase.until, Standing.counted(now, ttl, left).lapsesAt);
      entry.phase = { kind: "releasing", until, isQuiet: true, isInDoubt: false, tries: 0, next: null };
      this.#sendRelease(now, sent.key);
    }
    // Otherwise it answers a request that was sent twice: it is the same grant.
  }

  #joined(now: number, key: Key, entry: Entry<D>, session: Key): void {
    const standing = standingOf(this.#entries.get(session));
    if (standing === undefined) {
      // The session is on its way out, and this grant with it.
      this.#end(key, lost("session"));
      return;
    }
    entry.phase = { kind: "joined" };
    this.#tell(key, "granted", standing);
    if (standing.state(now) !== State.Valid) this.#tell(key, "jeopardy");
  }

  #leased(now: number, sent: Call, entry: Entry<D>, acquiring: Acquiring, standing: Standing): void {
    const beat = entry.isKept ? this.#nextBeat(standing) : noBeat();
    const held: Held = { kind: "held", standing, sent: sent.sent, beat };
    if (now < standing.heartbeatAt(this.#settings.heartbeatPart)) {
      entry.phase = held;
      this.#tell(sent.key, "granted", standing);
      return;
    }
    // It came late, after a wait in line: nobody knows how much of the lease is left.
    acquiring.next = now + standing.ttl;
    entry.phase = { kind: "confirming", acquiring, held };
    this.#sendBeat(now, sent.key);
  }

  /** The next heartbeat of a lease: early rather than late. */
  #nextBeat(standing: Standing): Beat {
    const length = Math.floor(standing.ttl / this.#settings.heartbeatPart);
    return { at: standing.since + this.#jitter.shortened(length), tries: 0, firstSent: null };
  }

  #tryAcquireLater(now: number, acquiring: Acquiring, atLeast: number): void {
    acquiring.next = now + Math.max(this.#backoff(acquiring.tries), atLeast);
    acquiring.tries += 1;
  }

  #acquireRefused(now: number, key: Key, acquiring: Acquiring, problem: Refused): void {
    if (saysNothingOfTheLock(problem.code)) {
      this.#undecided(now, key, acquiring, problem);
      return;
    }
    const hasTime = acquiring.waitUntil === null || acquiring.waitUntil > now;
    const isInTheWay = problem.code === "lock_held" || problem.code === "reclaim_window";
    if (isInTheWay && hasTime && problem.ticket !== undefined) {
      acquiring.ticket = problem.ticket;
      this.#sendAcquire(now, key);
    } else if (problem.code === "ticket_not_found" && acquiring.ticket !== undefined) {
      acquiring.ticket = undefined;
      this.#sendAcquire(now, key);
    } else {
      // This try came to nothing. What came of one that was never answered, nobody knows: it may have been granted, and its
      // lease be over by now.
      if (acquiring.isInDoubt) problem.outcome = "unknown";
      this.#end(key, { kind: "refused", problem });
    }
  }

  /** The server cannot decide just now: it is asked again, unless that would be too late for the caller. */
  #undecided(now: number, key: Key, acquiring: Acquiring, problem: Refused): void {
    if (problem.outcome === "unknown") acquiring.isInDoubt = true;
    // Another server may know more, so its hint does not bind when there is a choice.
    const pause = problem.code === "not_leader" ? 0 : (hintOf(problem) ?? 0);
    acquiring.last = problem;
    if (acquiring.giveUp !== null && now + pause >= acquiring.giveUp) this.#giveUp(now, key, acquiring);
    else this.#tryAcquireLater(now, acquiring, pause);
  }

  // Holding.

  #isHeld(entry: Entry<D> | undefined): boolean {
    const kind = entry?.phase.kind;
    return kind === "held" || kind === "jeopardy" || kind === "joined";
  }

  #heldDue(now: number, key: Key, held: Held): void {
    const state = held.standing.state(now);
    if (state === State.Lost) this.#lapse(key);
    else if (state === State.Jeopardy) this.#inJeopardy(key, held.standing);
    else if (held.beat.at !== null && held.beat.at <= now) this.#sendBeat(now, key);
  }

  /** The ttl is over. If the last renewal was not let in, that is why. */
  #lapse(key: Key): void {
    const denied = this.#entries.get(key)?.denied;
    this.#end(key, denied === undefined ? lost("lapse") : lost("server", denied));
  }

  #inJeopardy(key: Key, standing: Standing): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    entry.phase = { kind: "jeopardy", standing };
    this.#tell(key, "jeopardy");
    for (const member of [...entry.members].sort(byPlace)) {
      if (this.#entries.get(member)?.phase.kind === "joined") this.#tell(member, "jeopardy");
    }
  }

  #heldOf(key: Key): Held | undefined {
    const phase = this.#entries.get(key)?.phase;
    if (phase?.kind === "held") return phase;
    return phase?.kind === "confirming" ? phase.held : undefined;
  }

  #sendBeat(now: number, key: Key): void {
    this.#giveUpStalledLink(now, key);
    const held = this.#heldOf(key);
    if (held === undefined) return;
    const resend = this.#jitter.spread(Math.max(Math.floor(held.standing.ttl / RESEND_PART), RESEND_MIN));
    if (this.#send(now, key, { kind: "renew" })) {
      held.beat.tries += 1;
      held.beat.firstSent ??= now;
      held.beat.at = now + resend;
    }
  }

  /** A server that answers others is slow. One that answers nobody is gone, and another may be there. */
  #giveUpStalledLink(now: number, key: Key): void {
    const held = this.#heldOf(key);
    if (!this.#isUp || held === undefined || held.beat.firstSent === null) return;
    const silence = now - Math.max(held.beat.firstSent, this.#heard);
    if (silence < Math.floor(held.standing.ttl / STALL_PART)) return;
    held.beat.firstSent = null;
    this.#servers.rotate();
    this.#dropLink(now);
  }

  #renewed(now: number, sent: Call, ttl: number, left: number): void {
    const entry = this.#entries.get(sent.key);
    if (entry === undefined) return;
    const standing = Standing.counted(sent.sent, ttl, left);
    const phase = entry.phase;
    let news: News;
    // An answer may come after a younger one. A server that counts in milliseconds may say of the younger that it ends a
    // little earlier, so they are told apart by when they were asked for.
    if (phase.kind === "held" && phase.sent <= sent.sent) news = "renewed";
    else if (phase.kind === "confirming" && standing.state(now) === State.Valid) news = "granted";
    // In jeopardy the work has been told to stop: it is too late to go on.
    else return;
    const beat = entry.isKept ? this.#nextBeat(standing) : noBeat();
    entry.phase = { kind: "held", standing, sent: sent.sent, beat };
    entry.denied = undefined;
    this.#tell(sent.key, news, standing);
  }

  #beatFailed(now: number, phase: Held | Confirming, atLeast: number | undefined): void {
    const held = phase.kind === "confirming" ? phase.held : phase;
    const first = this.#settings.backoffFirst;
    const most = Math.floor(held.standing.ttl / RESEND_PART);
    let pause = this.#jitter.spread(doubled(first, held.beat.tries, Math.min(Math.max(most, first), first * 25)));
    if (atLeast !== undefined) pause = Math.min(Math.max(pause, atLeast), most);
    held.beat.at = now + pause;
  }

  /** The grant was over before anybody could be told of it. */
  #askAnew(now: number, key: Key, confirming: Confirming): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    const acquiring = confirming.acquiring;
    acquiring.ticket = undefined;
    acquiring.isInDoubt = true;
    entry.phase = acquiring;
    entry.call = undefined;
    this.#sendAcquire(now, key);
  }

  // Releasing.

  #startRelease(now: number, key: Key, isQuiet: boolean): void {
    const entry = this.#entries.get(key);
    if (entry === undefined) return;
    let until: number | undefined;
    if (entry.phase.kind === "joined" && entry.ask.session !== undefined) until = this.#lapseOf(entry.ask.session);
    else if (entry.phase.kind === "confirming") until = entry.phase.held.standing.lapsesAt;
    else until = this.#lapseOf(key);
    entry.phase = { kind: "releasing", until: until ?? now, isQuiet, isInDoubt: false, tries: 0, next: null };
    entry.call = undefined;
    // Whoever stands under it must not believe in it from here on.
    const members = [...entry.members].sort(byPlace);
    entry.members = new Set();
    for (const member of members) this.#end(member, lost("session"));
    this.#sendRelease(now, key);
  }

  #lapseOf(key: Key): number | undefined {
    return standingOf(this.#entries.get(key))?.lapsesAt;
  }

  #sendRelease(now: number, key: Key): void {
    const entry = this.#entries.get(key);
    if (entry?.phase.kind !== "releasing") return;
    entry.phase.next = now + this.#settings.answerTimeout;
    this.#send(now, key, { kind: "release" });
  }

  #releasingDue(now: number, key: Key, entry: Entry<D>, releasing: Releasing): void {
    const longer = entry.ask.session === undefined ? undefined : this.#lapseOf(entry.ask.session);
    if (this.#forgetCall(now, key)) releasing.isInDoubt = true;
    if (longer !== undefined) releasing.until = Math.max(releasing.until, longer);
    if (releasing.until > now) this.#sendRelease(now, key);
    else this.#end(key, releasing.isQuiet ? FORGOTTEN : { kind: "release_unanswered" });
  }

  #releaseFailed(now: number, releasing: Releasing, failure: Failure): void {
    if (failure === "unknown") releasing.isInDoubt = true;
    releasing.next = now + this.#backoff(releasing.tries);
    releasing.tries += 1;
  }

  #released(key: Key): void {
    const phase = this.#entries.get(key)?.phase;
    if (phase?.kind === "releasing") this.#end(key, phase.isQuiet ? FORGOTTEN : { kind: "released" });
  }

  #releaseRefused(now: number, key: Key, releasing: Releasing, problem: Refused): void {
    if (saysNothingOfTheLease(problem.code)) {
      this.#releaseFailed(now, releasing, problem.outcome === "unknown" ? "unknown" : "unsent");
    } else if (releasing.isQuiet) {
      this.#end(key, FORGOTTEN);
    } else if (LEASE_IS_OVER.has(problem.code) && problem.reason !== "expired" && releasing.isInDoubt) {
      // Nothing is left to release because an earlier try did it, whose answer was lost. A server that remembers it says
      // so; one that has started since does not know.
      this.#end(key, { kind: "released" });
    } else {
      this.#end(key, { kind: "not_released", problem });
    }
  }

  // The connection.

  /** What keeps leases goes first: a crowd of waiters must not cost a holder its lease. */
  #sendWhatIsInLine(now: number): void {
    const keeping: Key[] = [];
    const others: Key[] = [];
    for (const key of this.#line) {
      const kind = this.#entries.get(key)?.phase.kind;
      const isKeeping = kind === "held" || kind === "confirming" || kind === "releasing";
      (isKeeping ? keeping : others).push(key);
    }
    this.#line = [];
    for (const key of [...keeping, ...others]) {
      const entry = this.#entries.get(key);
      if (entry?.isInLine !== true) continue;
      entry.isInLine = false;
      this.#sendAgain(now, key, entry);
      this.#rearm(key);
    }
  }

  /** Sends what the entry has to send now. */
  #sendAgain(now: number, key: Key, entry: Entry<D>): void {
    switch (entry.phase.kind) {
      case "acquiring":
        this.#sendAcquire(now, key);
        break;
      case "confirming":
      case "held":
        this.#sendBeat(now, key);
        break;
      case "releasing":
        this.#sendRelease(now, key);
        break;
      case "abandoned":
        this.#sendToFindOut(now, key);
    }
  }

  /** Gives the connection up and makes the next one, to the server that is then the current one. */
  #dropLink(now: number): void {
    const wasUp = this.#isUp;
    const link = this.#link;
    const tries = this.#linkTries;
    this.#linkTries = Math.min(tries + 1, LINK_TRIES_MAX);
    // Each server gets one try at once; then it is their turn to come back.
    const rounds = Math.floor((tries + 1) / this.#servers.size);
    const isAtOnce = (wasUp && tries === 0) || rounds === 0;
    this.#linkUntil = isAtOnce ? now : now + this.#backoff(rounds - 1);
    this.#link = null;
    this.#isUp = false;
    if (link !== null) {
      for (const [call, sent] of this.#calls.items()) {
        if (sent.link === link && this.#calls.remove(call) !== undefined) this.#callFailed(now, call, sent, "unknown");
      }
    }
    this.#reconnectIfDue(now);
  }

  #reconnectIfDue(now: number): void {
    if (this.#isUp || this.#linkUntil === null || this.#linkUntil > now) return;
    if (this.#link !== null) {
      // It took too long.
      this.#servers.rotate();
      this.#dropLink(now);
      return;
    }
    this.#links += 1;
    this.#link = this.#links;
    this.#linkUntil = now + this.#settings.connectTimeout;
    this.#actions.push({ kind: "connect", link: this.#links, address: this.#servers.current });
  }

  #isAnythingHeld(): boolean {
    return this.#entries.items().some(([, entry]) => entry.phase.kind === "held");
  }

  /**
   * The answer to a request is overdue. A server that answers others is slow. One that answers nobody is gone, and another
   * may be there. If something is held, its heartbeats decide that.
   */
  #overdue(now: number, call: Key): void {
    const sent = this.#calls.get(call);
    if (sent === undefined) return;
    const isSilent = this.#isUp && this.#heard <= sent.sent;
    if (isSilent && !this.#isAnythingHeld()) this.#tryAnother(now, sent.link);
  }

  /** Another server may do better. */
  #tryAnother(now: number, link: number): void {
    if (this.#servers.size > 1 && this.#link === link) {
      this.#servers.rotate();
      this.#dropLink(now);
    }
  }

  #follow(now: number, link: number, hint: string | undefined): void {
    if (hint === undefined) this.#tryAnother(now, link);
    else if (this.#link === link && this.#servers.follow(hint)) this.#dropLink(now);
  }

  #heardFrom(now: number, link: number): void {
    if (!this.#isUp || this.#link !== link) return;
    this.#heard = now;
    // Only what answers is a server: one that accepts and closes is tried as rarely as one that is not there.
    this.#linkTries = 0;
  }
}

/** The pause that the server recommends before it is asked again. */
function hintOf(problem: Refused): number | undefined {
  const hint = problem.recommendedRetryMs;
  return hint === undefined ? undefined : hint * MILLISECOND;
}
