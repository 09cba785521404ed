/** Durations: milliseconds as numbers, or text such as `30s`, `1m30s`, `1.5h`. Held to `sdk/vectors/durations.jsonl`. */

import { UsageError } from "./errors.js";
import { MILLISECOND } from "./machine/types.js";

/** Milliseconds, or text such as `30s`, `1m30s`, `1500ms`. */
export type Duration = number | string;

const SECOND_NANOS = 1_000_000_000n;
const UNITS: Readonly<Record<string, bigint>> = {
  d: 86_400n * SECOND_NANOS,
  h: 3_600n * SECOND_NANOS,
  m: 60n * SECOND_NANOS,
  s: SECOND_NANOS,
  ms: 1_000_000n,
  us: 1000n,
  "\u00b5s": 1000n,
  "\u03bcs": 1000n,
  ns: 1n,
};
const NUMBER = "(?:([0-9]+)(?:\\.([0-9]*))?|\\.([0-9]+))";
const BARE = new RegExp(`^${NUMBER}$`);
const PART = new RegExp(`${NUMBER}(ms|us|\u00b5s|\u03bcs|ns|d|h|m|s)`, "y");
const SECONDS_MAX = 2n ** 64n - 1n;
/** Longer than that no number holds a length in microseconds exactly. */
const MILLIS_MAX = Number.MAX_SAFE_INTEGER / MILLISECOND;

/** The length in microseconds, rounded up; `UsageError` if it is none. */
export function micros(length: Duration, what = "duration"): number {
  const wrong = (): UsageError =>
    new UsageError(`${what}: ${String(length)} is not a duration: write 30s, 1m30s, 1500ms, or a number of milliseconds`);
  let millis: number;
  if (typeof length === "string") {
    const nanos = parse(length);
    if (nanos === undefined) throw wrong();
    millis = Number((nanos + 999n) / 1000n) / 1000;
  } else {
    millis = length;
  }
  if (typeof millis !== "number" || !Number.isFinite(millis) || millis < 0 || millis > MILLIS_MAX) throw wrong();
  return Math.ceil(millis * MILLISECOND);
}

/** The length in nanoseconds, or `undefined` if the text is none. */
export function parse(text: string): bigint | undefined {
  const isNegative = text.startsWith("-");
  const rest = /^[+-]/.test(text) ? text.slice(1) : text;
  const bare = BARE.exec(rest);
  let total = 0n;
  if (bare !== null) {
    total = times(bare, SECOND_NANOS);
  } else {
    if (rest === "") return undefined;
    PART.lastIndex = 0;
    while (PART.lastIndex < rest.length) {
      const part = PART.exec(rest);
      if (part === null) return undefined;
      total += times(part, UNITS[part[4] as string] as bigint);
    }
  }
  if ((isNegative && total > 0n) || total / SECOND_NANOS > SECONDS_MAX) return undefined;
  return total;
}

function times(number: RegExpExecArray, unit: bigint): bigint {
  const fraction = (number[2] ?? number[3] ?? "").slice(0, 18);
  const whole = BigInt(number[1] ?? "0") * unit;
  return fraction === "" ? whole : whole + (BigInt(fraction) * unit) / 10n ** BigInt(fraction.length);
}

/** Whole milliseconds of microseconds, rounded up: a wait or a ttl is never shorter than asked. */
export function millis(length: number): number {
  return Math.ceil(length / MILLISECOND);
}
