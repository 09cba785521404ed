"""Hearing that somebody waits for what is held: the queue is watched, and whatever happens in it is a reason to ask."""

from __future__ import annotations

from collections.abc import Sequence

from ._payload import Json

LOOK_AGAIN = 1.0
"""Between two looks at a queue that cannot be watched, in seconds."""

NEWS = ("queued", "resync")
"""The types of events that are a reason to ask."""


def is_wanted(locks: Sequence[Json]) -> bool:
    return any(lock.get("waiters_total", 0) > 0 for lock in locks)


def prefix_of_all(locks: Sequence[str]) -> str:
    """What the names of everything that could be in conflict with these locks begin with.

    >>> prefix_of_all(["job/x", "job/y"]), prefix_of_all(["path:/srv/a"]), prefix_of_all(["inode:42@0..10"])
    ('job/', 'path:/', 'inode:42')
    """
    prefixes = [_prefix_of(lock) for lock in locks]
    same = 0
    for letters in zip(*prefixes, strict=False):
        if len(set(letters)) > 1:
            break
        same += 1
    return prefixes[0][:same] if prefixes else ""


def _prefix_of(lock: str) -> str:
    if lock.startswith("path:"):
        return "path:/"
    return lock.partition("@")[0] if lock.startswith("inode:") else lock
