/** What a runner tells an action, and is told by it: environment variables, files and lines of output. */

import { randomUUID } from "node:crypto";
import { appendFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export function input(name) {
  return (process.env[`INPUT_${name.replaceAll(" ", "_").toUpperCase()}`] ?? "").trim();
}

/** A value that later steps see as an output of this one. */
export function output(name, value) {
  entry("GITHUB_OUTPUT", name, value);
}

/** A value for the post step of this action. */
export function save(name, value) {
  entry("GITHUB_STATE", name, value);
}

export function saved(name) {
  return process.env[`STATE_${name}`] ?? "";
}

/** Ends this step as failed. */
export function fail(text) {
  process.exitCode = 1;
  console.log(`::error::${escaped(text)}`);
}

export function warn(text) {
  console.log(`::warning::${escaped(text)}`);
}

/** The log of the job shows stars in its place. */
export function mask(secret) {
  if (secret !== "") console.log(`::add-mask::${escaped(secret)}`);
}

/** Where the keeper listens: a socket of which only the owner of the folder can make use. */
export function newChannel() {
  const name = `leasehold-${randomUUID().slice(0, 8)}`;
  return process.platform === "win32" ? `\\\\.\\pipe\\${name}` : join(process.env.RUNNER_TEMP || tmpdir(), `${name}.sock`);
}

function entry(variable, name, value) {
  const file = process.env[variable];
  const end = `end-${randomUUID()}`;
  if (file) appendFileSync(file, `${name}<<${end}\n${value}\n${end}\n`);
}

function escaped(text) {
  return String(text).replaceAll("%", "%25").replaceAll("\r", "%0D").replaceAll("\n", "%0A");
}
