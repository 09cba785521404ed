/** The requests of the HTTP interface, one method for each. */

import { UsageError, isObject, parseJson, readProblem, refusal, unreadable } from "./errors.js";
import type { Answered } from "./http.js";
import type { Keeper } from "./keeper.js";
import { pathPart } from "./names.js";
import { type Json, isSuccess } from "./payload.js";

type Query = Readonly<Record<string, string | number | boolean | undefined>>;

/** The body that was asked for; throws the error that a refusal is. */
export function readBody(answered: Answered): Json {
  if (!isSuccess(answered)) {
    const problem = readProblem(answered.status, answered.body);
    throw problem === undefined ? unreadable(answered.status) : refusal(problem);
  }
  const said = answered.body === "" ? {} : parseJson(answered.body);
  if (said === undefined) throw unreadable(answered.status);
  return isObject(said) ? { ...said } : { answer: said };
}

/**
 * The requests of the HTTP interface one by one, with nothing kept alive: for tools.
 *
 * What they take and give is what the interface has, see `/openapi.json` of a server. A request is repeated only if it
 * certainly was not carried out, or only reads; for the client's patience at most. Programs use `client.lock`.
 */
export class Api {
  readonly #keeper: Keeper;
  readonly #query: string;

  /** @internal */
  constructor(keeper: Keeper, query: string) {
    this.#keeper = keeper;
    this.#query = query;
  }

  /** Takes one lock. The grant is not kept alive. */
  acquire(lock: string, body: Json): Promise<Json> {
    return this.#ofLock(lock, "acquire", body);
  }

  /** Moves the deadline of a grant: `owner_id`, `lease_id`, `fencing_token`, `ttl_ms`. */
  renew(lock: string, body: Json): Promise<Json> {
    return this.#ofLock(lock, "renew", body);
  }

  /** Gives a grant back: `owner_id`, `lease_id`, `fencing_token`. */
  release(lock: string, body: Json): Promise<Json> {
    return this.#ofLock(lock, "release", body);
  }

  /** Says if a lock could be had now, and who is in the way if not: `owner_id`, `mode`, `permits`. */
  test(lock: string, body: Json): Promise<Json> {
    return this.#ofLock(lock, "test", body);
  }

  /** Says if a fencing token is a current holder's: `fencing_token`, `lease_id`. */
  check(lock: string, body: Json): Promise<Json> {
    return this.#ofLock(lock, "check", body);
  }

  /** Gives back bytes of a file, whatever grants they came from: `owner_id`, `session_id`. */
  unlock(lock: string, body: Json): Promise<Json> {
    return this.#ofLock(lock, "unlock", body);
  }

  /** Ends what is held, for operators: `reason`, `fencing_token`. */
  breakLock(lock: string, body: Json): Promise<Json> {
    return this.#ofLock(lock, "break", body);
  }

  /** One lock: its state, its holders, who waits. */
  get(lock: string): Promise<Json> {
    return this.raw("GET", `/v1/locks/${pathPart(lock)}${this.#query}`);
  }

  /** A page of the locks that are held: `prefix`, `state`, `owner_id`, `session_id`, `page_size`, `page_token`. */
  list(query: Query = {}): Promise<Json> {
    return this.raw("GET", this.#with("/v1/locks", query));
  }

  /** Takes several locks (`locks`), all or nothing, under one lease; the rest as `acquire`. */
  acquireSet(body: Json): Promise<Json> {
    return this.raw("POST", `/v1/sets/acquire${this.#query}`, body);
  }

  /** Opens a session: `owner_id`, `ttl_ms`, `adapter`, `on_disconnect`, `request_id`, `metadata`. */
  openSession(body: Json): Promise<Json> {
    return this.raw("POST", `/v1/sessions${this.#query}`, body);
  }

  /** Renews a session, or the lease of a set: `ttl_ms`. */
  keepAlive(sessionId: string, body: Json = {}): Promise<Json> {
    return this.raw("POST", `/v1/sessions/${pathPart(sessionId)}/keepalive${this.#query}`, body);
  }

  /** Ends a session, or the lease of a set. */
  closeSession(sessionId: string): Promise<Json> {
    return this.raw("DELETE", `/v1/sessions/${pathPart(sessionId)}${this.#query}`);
  }

  /** Ends a session by its number, as lists tell it: `reason`. */
  breakSession(number: number, body: Json): Promise<Json> {
    return this.raw("POST", `/v1/sessions/${number}/break${this.#query}`, body);
  }

  getSession(sessionId: string): Promise<Json> {
    return this.raw("GET", `/v1/sessions/${pathPart(sessionId)}${this.#query}`);
  }

  /** A page of the sessions that are open: `page_size`, `page_token`. */
  listSessions(query: Query = {}): Promise<Json> {
    return this.raw("GET", this.#with("/v1/sessions", query));
  }

  /** Shows a token to a register; a stale one is refused with `StaleFenceError`. */
  acceptFence(name: string, fencingToken: number): Promise<Json> {
    return this.raw("POST", `/v1/fences/${pathPart(name)}/accept${this.#query}`, { fencing_token: fencingToken });
  }

  /** The highest token that a register has seen. */
  getFence(name: string): Promise<Json> {
    return this.raw("GET", `/v1/fences/${pathPart(name)}${this.#query}`);
  }

  /** A page of the fence registers, by name: `page_size`, `page_token`. */
  listFences(query: Query = {}): Promise<Json> {
    return this.raw("GET", this.#with("/v1/fences", query));
  }

  /** Removes a fence register, for operators: `reason`. What it has seen is forgotten. */
  deleteFence(name: string, body: Json): Promise<Json> {
    return this.raw("DELETE", `/v1/fences/${pathPart(name)}${this.#query}`, body);
  }

  /** Drops every lock and every waiter of a file that is gone. */
  removeInode(inode: number | bigint): Promise<Json> {
    return this.raw("DELETE", `/v1/inodes/${inode}${this.#query}`);
  }

  /** The events since `after`; waits up to `wait_ms` if there is nothing yet: `prefix`. */
  events(query: Query = {}): Promise<Json> {
    return this.raw("GET", this.#with("/v1/events", query));
  }

  /** The owners that wait, and for whom. */
  graph(): Promise<Json> {
    return this.raw("GET", `/v1/graph${this.#query}`);
  }

  /** Past holders with their tokens and ends, as far as the server remembers: `lock`. */
  history(query: Query = {}): Promise<Json> {
    return this.raw("GET", this.#with("/v1/history", query));
  }

  /** The grant that carries a fencing token, held or ended, as far as the server remembers. */
  token(fencingToken: number): Promise<Json> {
    return this.raw("GET", `/v1/tokens/${fencingToken}${this.#query}`);
  }

  /** Numbers, the longest waits, the leases that end next. */
  overview(): Promise<Json> {
    return this.raw("GET", `/v1/overview${this.#query}`);
  }

  /** The locks that are held as a tree: what follows after a `prefix`, up to the next slash. */
  tree(query: Query = {}): Promise<Json> {
    return this.raw("GET", this.#with("/v1/tree", query));
  }

  /** The limits of the server. */
  limits(): Promise<Json> {
    return this.raw("GET", "/v1/limits");
  }

  /** The server that answers, and who leads which group of namespaces. */
  cluster(): Promise<Json> {
    return this.raw("GET", "/v1/cluster");
  }

  /** The version of the server, and which interfaces it speaks. */
  version(): Promise<Json> {
    return this.raw("GET", "/v1/version");
  }

  /** Says if requests for locks are served, and how each part is. */
  ready(): Promise<Json> {
    return this.raw("GET", "/readyz?verbose=1");
  }

  /** Any request of the HTTP interface: a path with its query. */
  async raw(method: string, path: string, body?: Json): Promise<Json> {
    return readBody(await this.#keeper.ask(method, path, body === undefined ? undefined : JSON.stringify(body)));
  }

  #ofLock(lock: string, verb: string, body: Json): Promise<Json> {
    if (lock === "") return Promise.reject(new UsageError("a lock has a name"));
    return this.raw("POST", `/v1/locks/${pathPart(lock)}/${verb}${this.#query}`, body);
  }

  #with(path: string, query: Query): string {
    const given = Object.entries(query)
      .filter(([, value]) => value !== undefined)
      .map(([name, value]) => `&${name}=${encodeURIComponent(String(value))}`);
    return `${path}${this.#query}${given.join("")}`;
  }
}
