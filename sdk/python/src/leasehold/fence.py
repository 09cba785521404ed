"""The side that is protected: turning stale writers away.

A lock alone cannot stop a writer that was paused, lost its lease meanwhile, and goes on where it was. The thing that is
written to can: it remembers the highest fencing token it has seen and refuses any lower one.
"""

from __future__ import annotations

import threading

from .errors import Problem, StaleFence


class Fence:
    """The highest fencing token seen so far, in this process.

    >>> fence = Fence()
    >>> fence.accept(33)
    >>> fence.accept(34)  # the next holder
    >>> fence.accept(33)  # the first one wakes up
    Traceback (most recent call last):
        ...
    leasehold.errors.StaleFence: stale_fence: fencing token 33 is stale: 34 was seen
    """

    def __init__(self, high_water: int = 0) -> None:
        self._high_water = high_water
        self._lock = threading.Lock()

    @property
    def high_water(self) -> int:
        """The highest token seen."""
        return self._high_water

    def accept(self, token: int) -> None:
        """``StaleFence`` if a higher token was seen. To be asked in the same step as the write."""
        with self._lock:
            if token < self._high_water:
                seen = self._high_water
                detail = f"fencing token {token} is stale: {seen} was seen"
                raise StaleFence(Problem("stale_fence", detail, "not_applied", fields={"high_water": seen}))
            self._high_water = token
