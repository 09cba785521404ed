// Every exported name says what it is, where an editor shows it.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const types = (file) => readFileSync(new URL(`../dist/${file}.d.ts`, import.meta.url), "utf8");

function exported() {
  const names = [...types("index").matchAll(/export (?:type )?\{([^}]*)\} from "\.\/([a-z]+)\.js"/g)];
  return names.flatMap(([, list, file]) => list.split(",").map((name) => [file, name.replace("type ", "").trim()]));
}

test("every exported name is documented", () => {
  const all = exported();
  assert.ok(all.length > 30, String(all.length));
  for (const [file, name] of all) {
    const lines = types(file).split("\n");
    const at = lines.findIndex((line) => new RegExp(`^export .*\\b${name}\\b`).test(line));
    assert.match(lines[at - 1] ?? "", /\*\/$/, `${file}: ${name}`);
  }
});
