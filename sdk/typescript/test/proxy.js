// A network before a server that can be broken: `works`, `stalls` (nothing passes), `resets` (all connections break, no new
// ones), `deafens` (requests arrive, answers do not).

import { connect, createServer } from "node:net";

export async function proxyBefore(address) {
  const [host, port] = address.split(":");
  let network = "works";
  const pairs = new Set();

  const server = createServer((near) => {
    if (network === "resets") {
      near.resetAndDestroy();
      return;
    }
    const far = connect(Number(port), host);
    const pair = { near, far, toFar: [], toNear: [] };
    pairs.add(pair);
    near.on("data", (data) => pass(pair, "toFar", data));
    far.on("data", (data) => pass(pair, "toNear", data));
    for (const socket of [near, far]) {
      socket.on("error", () => {});
      socket.on("close", () => {
        pairs.delete(pair);
        near.destroy();
        far.destroy();
      });
    }
  });

  function pass(pair, way, data) {
    const isHeld = network === "stalls" || (network === "deafens" && way === "toNear");
    if (isHeld || pair[way].length > 0) pair[way].push(data);
    else (way === "toFar" ? pair.far : pair.near).write(data);
  }

  function set(next) {
    network = next;
    for (const pair of pairs) {
      if (next === "resets") pair.near.resetAndDestroy();
      if (next !== "works") continue;
      for (const data of pair.toFar.splice(0)) pair.far.write(data);
      for (const data of pair.toNear.splice(0)) pair.near.write(data);
    }
  }

  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () => {
    set("resets");
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}`, set, close };
}
