// The one stream of events that a browser has. It follows the server, notices when it is gone, comes back to where it was,
// and says at every moment whether what is shown can be trusted.

/**
 * @typedef {import('../types.js').LockEvent} LockEvent
 * @typedef {{ kind: 'state', live: boolean, revision: number }
 *   | { kind: 'events', events: LockEvent[], dropped: number }
 *   | { kind: 'resync' }} Message
 */

/** How often the server is asked whether it lives: a connection can die without a word. */
const PULSE_MS = 4000;
const PULSE_PATIENCE_MS = 4000;
const RETRY_MAX_MS = 3000;
/** Events are handed on in batches, so that a storm of them costs a page little. */
const BATCH_MS = 150;
const BATCH_LEN_MAX = 500;

export class Stream {
  /** @param {string} namespace @param {(message: Message) => void} tell */
  constructor(namespace, tell) {
    this.namespace = namespace;
    this.tell = tell;
    this.live = false;
    this.revision = 0;
    /** Everything up to here has been told. */
    this.cursor = '';
    /** Something was missed, and that is still to be told. */
    this.hasGap = false;
    this.isClosed = false;
    /** @type {LockEvent[]} */
    this.batch = [];
    this.dropped = 0;
    this.isBatchDue = false;
    this.connection = new AbortController();
    this.run();
    this.pulse = setInterval(() => this.feel(), PULSE_MS);
  }

  close() {
    this.isClosed = true;
    clearInterval(this.pulse);
    this.connection.abort();
  }

  async run() {
    for (let failures = 0; !this.isClosed; ) {
      this.connection = new AbortController();
      try {
        await this.follow(() => (failures = 0));
      } catch {
        // Gone, or not there yet: what to do is the same.
      }
      this.setLive(false);
      failures += 1;
      const wait = Math.min(RETRY_MAX_MS, 200 * 2 ** Math.min(failures, 5));
      await new Promise((done) => setTimeout(done, wait * (0.75 + Math.random() / 2)));
    }
  }

  /** @param {() => void} begun */
  async follow(begun) {
    const { signal } = this.connection;
    const within = `namespace=${encodeURIComponent(this.namespace)}`;
    const after = this.cursor ? `&after=${this.cursor}` : '';
    const headers = { accept: 'application/x-ndjson' };
    const url = `/v1/watch?${within}${after}`;
    const response = await fetch(url, { signal, headers, cache: 'no-store' });
    if (response.status === 410) this.loseTrack();
    if (!response.ok || !response.body) throw new Error(String(response.status));
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ; ) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) if (line) this.take(JSON.parse(line));
      this.setLive(true);
      begun();
    }
  }

  /** @param {LockEvent} event */
  take(event) {
    if (event.type === 'resync') return this.loseTrack();
    this.revision = event.revision;
    if (event.cursor) this.cursor = event.cursor;
    if (this.hasGap) {
      // From here on nothing is missed: a page that looks again now knows everything.
      this.hasGap = false;
      this.tell({ kind: 'resync' });
    }
    if (event.type === 'bookmark') return;
    this.batch.push(event);
    if (this.batch.length > BATCH_LEN_MAX) {
      this.batch.shift();
      this.dropped += 1;
    }
    if (this.isBatchDue) return;
    this.isBatchDue = true;
    setTimeout(() => this.flush(), BATCH_MS);
  }

  /** From now on, whatever was before. */
  loseTrack() {
    this.cursor = '';
    this.hasGap = true;
  }

  flush() {
    this.isBatchDue = false;
    const { batch, dropped } = this;
    this.batch = [];
    this.dropped = 0;
    this.tell({ kind: 'events', events: batch, dropped });
  }

  /** @param {boolean} live */
  setLive(live) {
    if (live === this.live) return;
    this.live = live;
    this.tell(this.state());
  }

  /** @returns {Message} */
  state() {
    return { kind: 'state', live: this.live, revision: this.revision };
  }

  async feel() {
    if (!this.live) return;
    try {
      const response = await fetch('/livez', { cache: 'no-store', signal: AbortSignal.timeout(PULSE_PATIENCE_MS) });
      if (response.ok) return;
    } catch {
      // Said below.
    }
    this.setLive(false);
    this.connection.abort();
  }
}
