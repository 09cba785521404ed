/** Requests over HTTP/1.1 by `node:http` and `node:https`: kept-alive connections, some of them for what keeps leases. */

import * as http from "node:http";
import * as https from "node:https";
import type { Socket } from "node:net";

import { type Access, isProtected } from "./access.js";
import type { Failure } from "./machine/types.js";
import { VERSION } from "./version.js";

const CONNECT_TIMEOUT_MS = 2000;
/** Shorter than the server's: a connection that is about to be closed is not used. */
const IDLE_TIMEOUT_MS = 60_000;
const IDLE_MAX = 32;
/** Heartbeats and releases that are under way at once, on connections of their own. */
const BEATS_MAX = 8;
const ANSWER_BYTES_MAX = 64 << 20;

export interface Answered {
  readonly status: number;
  readonly body: string;
}

/** The reason that no answer came, and if the request may have been carried out. */
export class NoAnswer extends Error {
  constructor(
    readonly failure: Failure,
    readonly said: string,
    /** It will not get better by trying again. */
    readonly isLasting = false,
  ) {
    super(said);
  }
}

export interface SendOptions {
  readonly method: string;
  readonly path: string;
  readonly body?: string | undefined;
  readonly accept?: string;
  /** Uses the connections that waits and other requests never take. */
  readonly isBeat?: boolean;
  /** A connection that is closed when the answer ends. */
  readonly isAlone?: boolean;
  /** Called when the request is on a connection that stands. */
  readonly onConnected?: () => void;
}

/** A request on its way. */
export interface Sent<T> {
  readonly answer: Promise<T>;
  /** Closes the connection: the server takes the request out of the queue. */
  cancel(): void;
}

/** Connections to one server. */
export class Pool {
  readonly server: string;
  readonly #url: URL;
  readonly #headers: http.OutgoingHttpHeaders;
  readonly #isTls: boolean;
  readonly #access: Access;
  readonly #beats: http.Agent;
  readonly #others: http.Agent;
  readonly #alone = new Set<http.ClientRequest>();
  /** Connections that have come about. */
  readonly #standing = new WeakSet<Socket>();

  constructor(server: string, access: Access) {
    this.server = server;
    this.#url = new URL(server);
    this.#isTls = isProtected(server);
    this.#access = access;
    this.#headers = { "User-Agent": `leasehold-typescript/${VERSION}` };
    const how = { keepAlive: true, scheduling: "lifo", timeout: IDLE_TIMEOUT_MS } as const;
    const Agent = this.#isTls ? https.Agent : http.Agent;
    this.#beats = new Agent({ ...how, maxSockets: BEATS_MAX, maxFreeSockets: BEATS_MAX });
    this.#others = new Agent({ ...how, maxFreeSockets: IDLE_MAX });
  }

  /** Sends, and reads the whole answer. */
  send(options: SendOptions): Sent<Answered> {
    const opened = this.open(options);
    return { answer: opened.answer.then((message) => this.#whole(message)), cancel: opened.cancel };
  }

  /**
   * Sends, and tells the beginning of the answer. If the server does not know the token, and there is another one by now, it is
   * sent once more.
   */
  open(options: SendOptions): Sent<http.IncomingMessage> {
    const { token } = this.#access;
    const first = this.#open(options, token);
    if (token === undefined) return first;
    let current = first;
    let isCancelled = false;
    const answer = first.answer.then((message) => {
      if (message.statusCode !== 401 || isCancelled || !this.#access.hasNewer(token)) return message;
      message.resume();
      current = this.#open(options, this.#access.token);
      return current.answer;
    });
    answer.catch(() => {});
    const cancel = (): void => {
      isCancelled = true;
      current.cancel();
    };
    return { answer, cancel };
  }

  #open(options: SendOptions, token: string | undefined): Sent<http.IncomingMessage> {
    const request = this.#request(options, token);
    const answer = new Promise<http.IncomingMessage>((resolve, reject) => {
      let isConnected = false;
      let isAnswered = false;
      const connected = (): void => {
        isConnected = true;
        options.onConnected?.();
      };
      request.once("socket", (socket) => this.#watch(socket, request, connected));
      request.once("response", (message) => {
        isAnswered = true;
        resolve(message);
      });
      // An error that nobody looks at costs more than the rest of the request.
      const failed = (error?: Error): void => {
        if (!isAnswered) reject(this.#noAnswer(error, isConnected));
      };
      request.on("error", failed);
      request.once("close", () => failed());
    });
    // Whoever cancels does not look at the answer.
    answer.catch(() => {});
    if (options.isAlone === true) {
      this.#alone.add(request);
      request.once("close", () => this.#alone.delete(request));
    }
    request.end(options.body);
    return { answer, cancel: () => void request.destroy() };
  }

  /** Reads an answer that was opened. */
  whole(message: http.IncomingMessage): Promise<Answered> {
    return this.#whole(message);
  }

  /** Closes all connections, and with them what is under way. */
  close(): void {
    this.#beats.destroy();
    this.#others.destroy();
    for (const request of this.#alone) request.destroy();
  }

  #request(options: SendOptions, token: string | undefined): http.ClientRequest {
    const { method, path, body } = options;
    const headers = { ...this.#headers };
    if (token !== undefined) headers.Authorization = `Bearer ${token}`;
    if (options.accept !== undefined) headers.Accept = options.accept;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (body !== undefined || method !== "GET") headers["Content-Length"] = Buffer.byteLength(body ?? "");
    let agent: http.Agent | false = options.isBeat === true ? this.#beats : this.#others;
    if (options.isAlone === true) agent = false;
    const host = this.#url.hostname.replace(/^\[|\]$/g, "");
    const port = this.#url.port === "" ? (this.#isTls ? 443 : 80) : Number(this.#url.port);
    const how = { method, path, headers, agent, host, port };
    if (!this.#isTls) return http.request(how);
    return https.request({ ...how, ...this.#access.tls });
  }

  /** Notes when the connection stands, and gives it up if it takes too long. */
  #watch(socket: Socket, request: http.ClientRequest, connected: () => void): void {
    // One that comes straight from another request is not marked as used before.
    if (request.reusedSocket || this.#standing.has(socket)) {
      connected();
      return;
    }
    socket.setNoDelay(true);
    const event = this.#isTls ? "secureConnect" : "connect";
    const late = setTimeout(() => {
      request.destroy(new Error(`no connection in ${CONNECT_TIMEOUT_MS / 1000} s`));
    }, CONNECT_TIMEOUT_MS);
    late.unref();
    request.once("close", () => clearTimeout(late));
    socket.once(event, () => {
      clearTimeout(late);
      this.#standing.add(socket);
      connected();
    });
  }

  #whole(message: http.IncomingMessage): Promise<Answered> {
    return new Promise((resolve, reject) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      let isWhole = false;
      message.on("data", (chunk: Buffer) => {
        bytes += chunk.length;
        chunks.push(chunk);
        if (bytes > ANSWER_BYTES_MAX) message.destroy(new Error("the answer is too long"));
      });
      message.once("end", () => {
        isWhole = true;
        const body = chunks.length === 1 ? (chunks[0] as Buffer) : Buffer.concat(chunks);
        resolve({ status: message.statusCode ?? 0, body: body.toString("utf8") });
      });
      message.once("error", (error) => reject(this.#noAnswer(error, true)));
      message.once("close", () => {
        if (!isWhole) reject(this.#noAnswer(undefined, true));
      });
    });
  }

  #noAnswer(error: Error | undefined, isConnected: boolean): NoAnswer {
    const said = error?.message ?? "the connection was closed";
    if (isConnected) return new NoAnswer("unknown", `${this.server}: ${said}`);
    const code = (error as NodeJS.ErrnoException | undefined)?.code ?? "";
    if (this.#isTls && /CERT|SELF_SIGNED|UNABLE_TO_|ERR_TLS/.test(code)) {
      return new NoAnswer("unsent", `${this.server}: its certificate cannot be trusted: ${said}`, true);
    }
    return new NoAnswer("unsent", `${this.server}: ${said === "" ? code : said}`);
  }
}
