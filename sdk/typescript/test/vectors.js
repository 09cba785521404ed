// Reads the files that say what every SDK must do alike.

import { readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

const FOLDER = process.env.LEASEHOLD_VECTORS ?? fileURLToPath(new URL("../../vectors", import.meta.url));

function lines(file) {
  const text = readFileSync(`${FOLDER}/${file}`, "utf8");
  return text.split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

export function table(name) {
  return lines(`${name}.jsonl`);
}

/** All vectors of the machine, by name; the first line of each is its header. */
export function machine() {
  const found = new Map();
  for (const file of readdirSync(`${FOLDER}/machine`).sort()) {
    let current;
    for (const line of lines(`machine/${file}`)) {
      if ("vector" in line) found.set(line.vector, (current = []));
      current.push(line);
    }
  }
  return found;
}
