/** The client: locks, sets, sessions, elections, fences and watches of one or more servers. */

import "./dispose.js";

import { randomBytes } from "node:crypto";
import type { SecureContextOptions } from "node:tls";

import { Access } from "./access.js";
import { Api } from "./api.js";
import { type Clock, SystemClock } from "./clock.js";
import { type Duration, micros } from "./duration.js";
import { LeaseholdError, RefusedError, UnreachableError, UsageError, isObject } from "./errors.js";
import { Keeper } from "./keeper.js";
import { Lease, Lock, type LockName, type LockOptions, Session, type SetOptions, type Setup, acquire, lockOf, setOf } from "./lease.js";
import { SETTINGS } from "./machine/types.js";
import { parseServers } from "./names.js";
import type { Json } from "./payload.js";
import { Watch } from "./watch.js";

const SERVER = "http://127.0.0.1:8080";
/** The key of a leader's value in the metadata of its lock. */
const VALUE = "value";
const LOOK_AGAIN_MS = 100;

/** The settings of a client. Durations are milliseconds, or text such as `30s`. */
export interface ClientOptions {
  /** The owner of all that asks for none of its own. Without it each acquire has a new one. */
  readonly owner?: string;
  readonly namespace?: string;
  /** A lease that nobody set the length of. */
  readonly ttl?: Duration;
  /** A secret by which the client is known. */
  readonly token?: string;
  /** A file with that secret. It is read again when it has changed, and when the server does not know the token. */
  readonly tokenFile?: string;
  /** Sends the token to http servers on other machines too, where all on the way can read it. */
  readonly allowCleartextToken?: boolean;
  /** A file with the certificates of authorities to trust, in place of those of the system. */
  readonly cacert?: string;
  /** How https servers are spoken to otherwise: `cert` and `key` of a client, for instance. */
  readonly tls?: SecureContextOptions;
  /** A request is tried for so long before it is `UnreachableError`; a wait is no part of it. */
  readonly patience?: Duration;
  /** Heartbeats go out every third of the ttl, or every sixth to survive longer outages. */
  readonly heartbeat?: "ttl/3" | "ttl/6";
  readonly clock?: Clock;
}

/** The leader of an election. */
export interface Leader {
  readonly owner: string;
  readonly value: string;
  readonly fencingToken: number;
}

/** How a session is asked for. */
export interface SessionOptions {
  readonly ttl?: Duration;
  readonly owner?: string;
  readonly metadata?: Json;
  readonly signal?: AbortSignal;
}

/** A client of one or more servers (with commas between them). Close it at the end: it gives everything back. */
export class Client {
  readonly namespace: string;
  /** The requests of the HTTP interface one by one, with nothing kept alive: for tools. */
  readonly api: Api;
  readonly #setup: Setup;

  constructor(servers: string = SERVER, options: ClientOptions = {}) {
    const part = { "ttl/3": 3, "ttl/6": 6 }[options.heartbeat ?? "ttl/3"] as 3 | 6 | undefined;
    if (part === undefined) throw new UsageError(`heartbeat: ${String(options.heartbeat)} is neither ttl/3 nor ttl/6`);
    const settings = { ...SETTINGS, heartbeatPart: part, patience: micros(options.patience ?? "10s", "patience") };
    const ttl = options.ttl ?? "30s";
    micros(ttl, "ttl");
    const parsed = parseServers(servers);
    const keeper = new Keeper(parsed, settings, new Access(parsed, options), options.clock ?? new SystemClock());
    this.namespace = options.namespace ?? "default";
    const query = `?namespace=${encodeURIComponent(this.namespace)}`;
    this.api = new Api(keeper, query);
    this.#setup = {
      keeper,
      api: this.api,
      namespace: this.namespace,
      owner: options.owner,
      ttl,
      nonce: randomBytes(4).toString("hex"),
      query,
    };
  }

  /**
   * A client as the environment says: `LEASEHOLD_ADDR`, `LEASEHOLD_NAMESPACE`, `LEASEHOLD_TOKEN` or `LEASEHOLD_TOKEN_FILE`,
   * `LEASEHOLD_ALLOW_CLEARTEXT_TOKEN=1`, `LEASEHOLD_CACERT`. What is given here goes first.
   */
  static fromEnv(options: ClientOptions = {}): Client {
    const environment = process.env;
    const namespace = environment.LEASEHOLD_NAMESPACE;
    const cacert = environment.LEASEHOLD_CACERT;
    const hasToken = options.token !== undefined || options.tokenFile !== undefined;
    return new Client(environment.LEASEHOLD_ADDR || SERVER, {
      ...(namespace ? { namespace } : {}),
      ...(cacert ? { cacert } : {}),
      ...(hasToken ? {} : tokenOf(environment)),
      allowCleartextToken: environment.LEASEHOLD_ALLOW_CLEARTEXT_TOKEN === "1",
      ...options,
    });
  }

  /** Waits until a connection stands; `UnreachableError` if none does in time. Nothing needs it: requests wait too. */
  async connect(): Promise<this> {
    await this.#setup.keeper.connected();
    return this;
  }

  /** A lock to ask for. */
  lock(name: string, options: LockOptions = {}): Lock {
    return new Lock({ setup: this.#setup, what: lockOf(name, options), options });
  }

  /** Several locks to ask for, all or nothing, under one lease and one token. */
  set(locks: readonly LockName[], options: SetOptions = {}): Lock {
    return new Lock({ setup: this.#setup, what: setOf(locks), options });
  }

  /** Opens a session: one heartbeat for any number of locks, which end with it. */
  async session(options: SessionOptions = {}): Promise<Session> {
    const { item, grant } = await acquire({ setup: this.#setup, what: { kind: "session" }, options }, 0);
    return new Session(this.#setup, item, grant);
  }

  /** An election: whoever holds the lock of that name leads. */
  election(name: string, options: ElectionOptions = {}): Election {
    return new Election(this, this.#setup, name, options);
  }

  /** A register on the server that remembers the highest fencing token it has seen. */
  fence(name: string): Register {
    return new Register(this.api, name);
  }

  /**
   * The events of locks whose canonical name starts with `prefix`. It goes on after the last one when the connection breaks,
   * the server restarts or another one leads.
   */
  watch(prefix = "", options: { readonly after?: string } = {}): Promise<Watch> {
    return new Watch(this.#setup.keeper, this.namespace, prefix, options.after).begin();
  }

  /** Gives everything back and waits until the server has heard it; no longer than the client's patience. */
  close(): Promise<void> {
    return this.#setup.keeper.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

function tokenOf(environment: NodeJS.ProcessEnv): { readonly token?: string; readonly tokenFile?: string } {
  const { LEASEHOLD_TOKEN: token, LEASEHOLD_TOKEN_FILE: tokenFile } = environment;
  if (token && tokenFile) throw new UsageError("set LEASEHOLD_TOKEN or LEASEHOLD_TOKEN_FILE, not both");
  return token ? { token } : tokenFile ? { tokenFile } : {};
}

/** A fence register on the server: see `Client.fence`. */
export class Register {
  readonly #api: Api;
  readonly #name: string;

  /** @internal */
  constructor(api: Api, name: string) {
    this.#api = api;
    this.#name = name;
  }

  /** Shows a token, and says which is the highest now. `StaleFenceError` if a higher one was seen. */
  async accept(token: number): Promise<number> {
    return Number((await this.#api.acceptFence(this.#name, token)).high_water);
  }

  /** The highest token seen; `null` if it has seen none. */
  async highWater(): Promise<number | null> {
    try {
      return Number((await this.#api.getFence(this.#name)).high_water);
    } catch (error) {
      if (error instanceof RefusedError && error.code === "not_found") return null;
      throw error;
    }
  }
}

/** How an election is taken part in. */
export interface ElectionOptions {
  readonly owner?: string;
  readonly ttl?: Duration;
}

/** An election under a name. It is a lock: see `Client.election`. */
export class Election {
  readonly #client: Client;
  readonly #setup: Setup;
  readonly #name: string;
  readonly #options: ElectionOptions;

  /** @internal */
  constructor(client: Client, setup: Setup, name: string, options: ElectionOptions) {
    this.#client = client;
    this.#setup = setup;
    this.#name = name;
    this.#options = options;
  }

  /** Waits in line until elected. `value` is what the others see, an address for instance. */
  async campaign(
    value = "",
    how: { readonly wait?: Duration | null; readonly signal?: AbortSignal } = {},
  ): Promise<Leadership> {
    const signal = how.signal === undefined ? {} : { signal: how.signal };
    const options = { ...this.#options, ...signal, metadata: { [VALUE]: value } };
    const spec = { setup: this.#setup, what: lockOf(this.#name, {}), options };
    const { item, grant } = await acquire(spec, how.wait === undefined ? null : how.wait);
    return new Leadership(this.#setup, item, grant);
  }

  /** The leader at this moment. */
  async leader(): Promise<Leader | null> {
    return leaderOf(await this.#client.api.get(this.#name));
  }

  /** The leader: at once for the first time, then whenever that has changed. `null` is nobody. */
  async *observe(): AsyncGenerator<Leader | null, void, undefined> {
    // Watched before it is looked at, so that no change falls between the two.
    const watch = await this.#client.watch(this.#name);
    try {
      let last: string | undefined;
      for (;;) {
        let now: Leader | null;
        try {
          now = await this.leader();
        } catch (error) {
          if (!isPassing(error)) throw error;
          await this.#setup.keeper.pause(LOOK_AGAIN_MS);
          continue;
        }
        const said = JSON.stringify(now);
        if (said !== last) {
          last = said;
          yield now;
        }
        await watch.next();
      }
    } finally {
      watch.close();
    }
  }
}

/** Being elected, for as long as the lease stands. */
export class Leadership extends Lease {
  /** Steps down, and says when the next one can lead. */
  async resign(): Promise<void> {
    await this.release();
  }
}

/** True if the server is away, and may be back soon. */
function isPassing(error: unknown): boolean {
  return error instanceof UnreachableError || (error instanceof LeaseholdError && error.problem?.status === 503);
}

function leaderOf(lock: Json): Leader | null {
  const holders = Array.isArray(lock.holders) ? lock.holders.filter(isObject) : [];
  const holder = holders.find((one) => one.state === "held" || one.state === "recovering");
  if (holder === undefined) return null;
  const value = isObject(holder.metadata) ? holder.metadata[VALUE] : "";
  return {
    owner: String(holder.owner_id),
    value: typeof value === "string" ? value : "",
    fencingToken: Number(holder.fencing_token),
  };
}
