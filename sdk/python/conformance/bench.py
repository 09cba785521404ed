"""Pairs of acquire and release, one after the other on each of some threads, for `cargo xtask bench sdks`.

``bench.py leasehold URL SECONDS WORKERS`` measures this SDK, ``redis`` in its place the lock of redis-py. It prints pairs,
seconds, and the processor seconds of this process.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from leasehold import Client

Pair = Callable[[int], None]


def of_leasehold(url: str) -> Pair:
    client = Client(url)

    def pair(worker: int) -> None:
        with client.lock(f"bench/{worker}", ttl=30):
            pass

    return pair


def of_redis(url: str) -> Pair:
    import redis

    client = redis.Redis.from_url(url)

    def pair(worker: int) -> None:
        with client.lock(f"bench/{worker}", timeout=30):
            pass

    return pair


def main(contender: str, url: str, seconds: float, workers: int) -> None:
    pair = {"leasehold": of_leasehold, "redis": of_redis}[contender](url)
    counts = [0] * workers
    for worker in range(workers):
        pair(worker)
    began, cpu = time.monotonic(), time.process_time()

    def work(worker: int) -> None:
        while time.monotonic() - began < seconds:
            pair(worker)
            counts[worker] += 1

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, used = time.monotonic() - began, time.process_time() - cpu
    print(sum(counts), took, used)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]))
