/** Names as parts of a path, addresses of servers, and the texts of paths, files and ranges. */

import { UsageError } from "./errors.js";

const VERBS: ReadonlySet<string> = new Set(["acquire", "renew", "release", "test", "check", "break", "unlock"]);
const PLAIN = /%(2F|3A|40|24|2C|3B|3D)/g;

function encoded(name: string): string {
  let quoted: string;
  try {
    quoted = encodeURIComponent(name);
  } catch {
    throw new UsageError(`${JSON.stringify(name)} is no name: it has half of a character`);
  }
  return quoted.replace(PLAIN, (_, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
}

/**
 * A name as part of a path: slashes stay. Only the one before a last segment that could be taken for a verb is encoded.
 * Held to `sdk/vectors/names.jsonl`.
 */
export function pathPart(name: string): string {
  const slash = name.lastIndexOf("/");
  if (slash >= 0 && VERBS.has(name.slice(slash + 1))) {
    return `${encoded(name.slice(0, slash))}%2F${name.slice(slash + 1)}`;
  }
  return encoded(name);
}

/** Reads `http://host:port` or `https://host:port`, or several with commas between them. */
export function parseServers(text: string): string[] {
  const servers = text
    .split(",")
    .map((part) => part.trim())
    .filter((part) => part !== "")
    .map(parseServer);
  if (servers.length === 0) throw new UsageError("an address is needed, such as http://127.0.0.1:8080");
  return servers;
}

function parseServer(text: string): string {
  const wrong = new UsageError(`"${text}" is not a server: write http://host:port or https://host:port`);
  const full = text.includes("://") ? text : `http://${text}`;
  if (/[\s@?#\\]/.test(text) || !/^[a-z]+:\/\/[^/]+\/?$/i.test(full)) throw wrong;
  let url: URL;
  try {
    url = new URL(full);
  } catch {
    throw wrong;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new UsageError(`"${text}" is not a server: only http:// and https:// are spoken`);
  }
  const port = url.port === "" ? (url.protocol === "https:" ? "443" : "80") : url.port;
  return `${url.protocol}//${url.hostname}:${port}`;
}

/** The name of the lock on a path and all below it: `path:/srv/a/**`. */
export function subtree(path: string): string {
  return `path:${path.replace(/\/+$/, "")}/**`;
}

/**
 * The name of the lock on bytes of a file, from `start` up to and not including `end`: `inode:42@100..200`. Without an end
 * it reaches beyond the end of the file.
 */
export function byteRange(inode: number | bigint, start: number | bigint = 0, end?: number | bigint): string {
  if (Number(start) === 0 && end === undefined) return `inode:${inode}`;
  return `inode:${inode}@${start}..${end ?? ""}`;
}
