"""For Celery: tasks that run once at a time, and a beat that runs once.

::

    client = Client.from_env()

    @app.task
    @singleton(client, ttl=60)
    def report(customer: int) -> None: ...          # one at a time for each customer

    with BeatLock(client, "beat", stop=beat.stop):  # or as a scheduler waits in line for its turn
        beat.start()

This module imports nothing of Celery: a task is a function, and a beat something that can be stopped.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, TypeVar

from ._duration import Duration
from ._sync import Client, Lease
from .errors import Held

R = TypeVar("R")

__all__ = ["BeatLock", "singleton"]


def singleton(
    client: Client,
    *,
    name: str | Callable[..., str] | None = None,
    ttl: Duration = 60,
    wait: Duration | None = 0,
    on_held: Literal["raise", "skip"] = "skip",
) -> Callable[[Callable[..., R]], Callable[..., R | None]]:
    """A decorator: of all calls with the same arguments, one runs at a time; the others are skipped, or raise ``Held``.

    The lock is called ``celery/module.function/arguments``, unless ``name`` says otherwise: a text, or a function of the
    arguments. If the function has a parameter called ``lease``, it is given the lease. Put it below ``@app.task``; with
    ``bind=True`` the task itself is no argument that counts.
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R | None]:
        signature = inspect.signature(function)
        wants_lease = "lease" in signature.parameters

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> R | None:
            lock = _name(function, name, args, kwargs)
            try:
                lease = client.lock(lock, ttl=ttl, wait=wait).acquire()
            except Held:
                if on_held == "skip":
                    return None
                raise
            with lease:
                return function(*args, **kwargs, **({"lease": lease} if wants_lease else {}))

        if wants_lease:
            # Whoever calls the task does not name it.
            left = [one for one in signature.parameters.values() if one.name != "lease"]
            run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
            del run.__wrapped__
        return run

    return decorate


def _name(function: Callable[..., Any], name: str | Callable[..., str] | None, args: Any, kwargs: Any) -> str:
    if callable(name):
        return name(*args, **kwargs)
    if name is not None:
        return name
    counted = [one for one in args if not (hasattr(one, "request") and hasattr(one, "apply_async"))]
    told = json.dumps([counted, kwargs], default=str, sort_keys=True, separators=(",", ":"))
    return f"celery/{function.__module__}.{function.__qualname__}/{told.replace('/', '|')}"


class BeatLock:
    """A beat, or any other scheduler, that runs in one process of many.

    Entering waits for the turn of this process. When the lease is in jeopardy ``stop`` is called, early enough: no other
    beat can run yet.
    """

    def __init__(
        self,
        client: Client,
        name: str = "celery/beat",
        *,
        stop: Callable[[], object],
        ttl: Duration = 30,
        wait: Duration | None = None,
    ) -> None:
        self._lock = client.lock(name, ttl=ttl, wait=wait)
        self._stop = stop
        self.lease: Lease | None = None

    def __enter__(self) -> Lease:
        self.lease = self._lock.acquire()
        self.lease.on_jeopardy(self._stop)
        return self.lease

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        lease, self.lease = self.lease, None
        if lease is not None:
            lease.__exit__(kind, error, trace)
