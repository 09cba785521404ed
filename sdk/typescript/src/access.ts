/** Whom a client trusts, and as whom it comes. */

import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { BlockList, isIP } from "node:net";
import type { SecureContextOptions } from "node:tls";

import { UsageError } from "./errors.js";
import { parseServers } from "./names.js";

/** A token is shown for so long before its file is read again, in milliseconds. */
export const TOKEN_AGE_MAX_MS = 1000;
const TOKEN_BYTES_MAX = 64 << 10;

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

export interface AccessOptions {
  readonly token?: string;
  readonly tokenFile?: string;
  readonly allowCleartextToken?: boolean;
  readonly cacert?: string;
  readonly tls?: SecureContextOptions;
}

/** The settings that all connections of a client share. */
export class Access {
  /** How https servers are spoken to. */
  readonly tls: SecureContextOptions;
  readonly #servers: ReadonlySet<string>;
  readonly #token: Token;
  /** The authorities were named, and are not those of the system. */
  readonly #isPinned: boolean;

  constructor(servers: readonly string[], options: AccessOptions = {}) {
    this.#servers = new Set(servers);
    this.#token = new Token(options.token, options.tokenFile);
    if (this.#token.shown !== undefined && options.allowCleartextToken !== true) {
      for (const server of servers) {
        if (isProtected(server) || isLoopback(server)) continue;
        throw new UsageError(`${server}: the token would be sent unencrypted; use https://`);
      }
    }
    this.tls = { ...options.tls, ...(options.cacert === undefined ? {} : { ca: readAuthorities(options.cacert) }) };
    this.#isPinned = this.tls.ca !== undefined;
  }

  /** The token to show now. */
  get token(): string | undefined {
    return this.#token.current();
  }

  /** After a 401: there is another token by now than the one that was shown. */
  hasNewer(shown: string | undefined): boolean {
    return this.#token.readAgain() !== shown;
  }

  /**
   * The leader that the server in use names, if it may be followed there: to a server that was named, or over TLS to one that
   * a named authority has signed. Nothing leads from https to http.
   */
  leader(current: string, hint: string): string | undefined {
    let server: string | undefined;
    try {
      [server] = parseServers(hint.includes("://") ? hint : `${current.split("://")[0]}://${hint}`);
    } catch {
      return undefined;
    }
    if (server === undefined || (isProtected(current) && !isProtected(server))) return undefined;
    const isVouchedFor = this.#isPinned && isProtected(current);
    return isVouchedFor || this.#servers.has(server) ? server : undefined;
  }
}

/** A secret, or the file that it is read from: again now and then, and when a server does not know it. */
class Token {
  shown: string | undefined;
  readonly #file: string | undefined;
  #readAt = performance.now();

  constructor(token: string | undefined, file: string | undefined) {
    if (token !== undefined && file !== undefined) throw new UsageError("give a token or a file with one, not both");
    this.#file = file;
    this.shown = token;
    if (file !== undefined) {
      try {
        this.shown = readToken(file);
      } catch (error) {
        throw new UsageError(`the file with the token cannot be read: ${String(error)}`);
      }
    }
    if (this.shown !== undefined && !isSendable(this.shown)) {
      throw new UsageError("the token cannot be used: no header can carry it");
    }
  }

  current(): string | undefined {
    const isOld = this.#file !== undefined && performance.now() - this.#readAt >= TOKEN_AGE_MAX_MS;
    return isOld ? this.readAgain() : this.shown;
  }

  readAgain(): string | undefined {
    if (this.#file === undefined) return this.shown;
    this.#readAt = performance.now();
    try {
      const read = readToken(this.#file);
      if (isSendable(read)) this.shown = read;
    } catch {
      // It is just being replaced, perhaps.
    }
    return this.shown;
  }
}

function readToken(file: string): string {
  const opened = openSync(file, "r");
  try {
    const bytes = Buffer.alloc(TOKEN_BYTES_MAX);
    return bytes.toString("utf8", 0, readSync(opened, bytes)).trim();
  } finally {
    closeSync(opened);
  }
}

function isSendable(token: string): boolean {
  return /^[\x21-\x7e]+$/.test(token);
}

function readAuthorities(file: string): string {
  let read: string;
  try {
    read = readFileSync(file, "utf8");
  } catch (error) {
    throw new UsageError(`the certificates of authorities cannot be read: ${String(error)}`);
  }
  if (!read.includes("-----BEGIN CERTIFICATE-----")) throw new UsageError(`${file}: there is no certificate in it`);
  return read;
}

/** TLS is spoken to it. */
export function isProtected(server: string): boolean {
  return server.startsWith("https://");
}

/** It is on this machine, so that no other can listen on the way. */
export function isLoopback(server: string): boolean {
  const host = new URL(server).hostname.replace(/^\[|\]$/g, "").toLowerCase();
  const version = isIP(host);
  if (version === 0) return host === "localhost";
  return LOOPBACK.check(host, version === 6 ? "ipv6" : "ipv4");
}
