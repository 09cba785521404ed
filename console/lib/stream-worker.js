// Shared by all tabs: one stream for each namespace that any of them looks at.

import { Stream } from './stream.js';

/** @type {Map<string, { stream: Stream, ports: Set<MessagePort> }>} */
const streams = new Map();

addEventListener('connect', (event) => {
  const port = /** @type {MessageEvent} */ (event).ports[0];
  port.onmessage = ({ data }) => {
    leave(port);
    if (data.namespace) join(port, data.namespace);
  };
});

/** @param {MessagePort} port @param {string} namespace */
function join(port, namespace) {
  let shared = streams.get(namespace);
  if (!shared) {
    /** @type {Set<MessagePort>} */
    const ports = new Set();
    const stream = new Stream(namespace, (message) => ports.forEach((other) => other.postMessage(message)));
    shared = { stream, ports };
    streams.set(namespace, shared);
  }
  shared.ports.add(port);
  port.postMessage(shared.stream.state());
}

/** @param {MessagePort} port */
function leave(port) {
  for (const [namespace, { stream, ports }] of streams) {
    if (ports.delete(port) && ports.size === 0) {
      stream.close();
      streams.delete(namespace);
    }
  }
}
