"""The clock that leases are counted on.

It must go on while the machine sleeps: a laptop that wakes up has to know at once that its lease is over.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Protocol

__all__ = ["Clock", "SystemClock", "TestClock"]


class Clock(Protocol):
    """Nanoseconds from some moment on, never backwards."""

    def now(self) -> int:
        """The time."""
        ...


if sys.platform == "linux":

    def _now() -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

elif sys.platform == "darwin":

    def _now() -> int:
        # `time.monotonic` stands still while a Mac sleeps, this does not.
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

else:

    def _now() -> int:
        return time.monotonic_ns()


class SystemClock:
    """The clock of the system."""

    def now(self) -> int:
        """The time."""
        return _now()


class TestClock:
    """The clock of the system, which a test can set forward: as if the machine had slept."""

    __test__ = False

    def __init__(self) -> None:
        self._ahead = 0
        self._lock = threading.Lock()

    def now(self) -> int:
        """The time."""
        return _now() + self._ahead

    def advance(self, seconds: float) -> None:
        """Sets it forward."""
        with self._lock:
            self._ahead += round(seconds * 1e9)
