"""For APScheduler: jobs that run in one process of many.

::

    scheduler.add_job(locked_job(client, "nightly", nightly, ttl=60), "cron", hour=3)

This module imports nothing of APScheduler: a job is a function.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ._duration import Duration
from ._sync import Client
from .errors import Held

R = TypeVar("R")

__all__ = ["locked_job"]


def locked_job(
    client: Client, name: str, function: Callable[..., R], *, ttl: Duration = 60, wait: Duration | None = 0
) -> Callable[..., R | None]:
    """The job under a lock: it is skipped where another process runs it. If it has a parameter called ``lease``, it is
    given the lease.

    A job that is done before the next process gets to it would run once more: keep the lock for longer than clocks of
    processes differ, by ``ttl`` and a job that takes its time, or name the lock after the run: ``nightly/2026-01-01``.
    """
    wants_lease = "lease" in inspect.signature(function).parameters

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> R | None:
        try:
            lease = client.lock(name, ttl=ttl, wait=wait).acquire()
        except Held:
            return None
        with lease:
            return function(*args, **kwargs, **({"lease": lease} if wants_lease else {}))

    # APScheduler looks at the arguments of what it calls; the lease is none that it gives.
    signature = inspect.signature(function)
    left = [one for one in signature.parameters.values() if one.name != "lease"]
    run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
    del run.__wrapped__
    return run
