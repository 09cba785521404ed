/** The collections of the machine: places that are used again, timers in order, servers in turn. */

import { type Key, byPlace } from "./types.js";

interface Place<T> {
  generation: number;
  taken: { readonly key: Key; readonly value: T } | undefined;
}

/** Numbered places that are used again under a new name; the one freed last comes first. */
export class Slab<T> {
  readonly #places: Place<T>[] = [];
  readonly #free: number[] = [];

  insert(value: T): Key {
    let index = this.#free.pop();
    if (index === undefined) {
      index = this.#places.length;
      this.#places.push({ generation: 1, taken: undefined });
    }
    const place = this.#places[index] as Place<T>;
    const key: Key = { place: index, generation: place.generation };
    place.taken = { key, value };
    return key;
  }

  get(key: Key): T | undefined {
    const place = this.#places[key.place];
    return place?.generation === key.generation ? place.taken?.value : undefined;
  }

  remove(key: Key): T | undefined {
    const place = this.#places[key.place];
    const value = this.get(key);
    if (place === undefined || value === undefined) return undefined;
    place.generation += 1;
    place.taken = undefined;
    this.#free.push(key.place);
    return value;
  }

  items(): [Key, T][] {
    const found: [Key, T][] = [];
    for (const { taken } of this.#places) {
      if (taken !== undefined) found.push([taken.key, taken.value]);
    }
    return found;
  }

  get size(): number {
    return this.#places.length - this.#free.length;
  }
}

interface Timer {
  readonly at: number;
  readonly key: Key;
}

function isBefore(one: Timer, other: Timer): boolean {
  return one.at < other.at || (one.at === other.at && byPlace(one.key, other.key) < 0);
}

/** A heap: the earliest first, at the same moment by place. */
export class Timers {
  readonly #heap: Timer[] = [];

  get first(): Timer | undefined {
    return this.#heap[0];
  }

  push(at: number, key: Key): void {
    const heap = this.#heap;
    const added = { at, key };
    let hole = heap.length;
    heap.push(added);
    while (hole > 0) {
      const parent = (hole - 1) >> 1;
      const above = heap[parent] as Timer;
      if (!isBefore(added, above)) break;
      heap[hole] = above;
      hole = parent;
    }
    heap[hole] = added;
  }

  pop(): Timer | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let hole = 0;
    for (;;) {
      let child = 2 * hole + 1;
      if (child >= heap.length) break;
      const right = heap[child + 1];
      if (right !== undefined && isBefore(right, heap[child] as Timer)) child += 1;
      const below = heap[child] as Timer;
      if (!isBefore(below, last)) break;
      heap[hole] = below;
      hole = child;
    }
    heap[hole] = last;
    return first;
  }
}

/** More servers than that nobody runs, and one that lies about the leader fills no memory. */
const LEARNED_MAX = 16;

/** The servers, and which of them to talk to. */
export class Servers {
  readonly #addresses: string[];
  #current = 0;

  constructor(addresses: readonly string[]) {
    if (addresses.length === 0) throw new RangeError("a client has at least one server");
    this.#addresses = [...addresses];
  }

  get current(): string {
    return this.#addresses[this.#current] as string;
  }

  get size(): number {
    return this.#addresses.length;
  }

  rotate(): void {
    this.#current = (this.#current + 1) % this.#addresses.length;
  }

  /** Goes to the server that is said to lead; false if it is the one we talk to. */
  follow(said: string): boolean {
    let hint = said.replace(/\/+$/, "");
    const scheme = this.current.split("://", 1)[0] as string;
    if (!hint.includes("://") && this.current.includes("://")) hint = `${scheme}://${hint}`;
    const at = this.#addresses.indexOf(hint);
    if (at >= 0) {
      if (at === this.#current) return false;
      this.#current = at;
      return true;
    }
    if (this.#addresses.length >= LEARNED_MAX) return false;
    this.#addresses.push(hint);
    this.#current = this.#addresses.length - 1;
    return true;
  }
}
