"""Following what happens on the server, over broken connections, restarts and changes of the leader."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ._http import NoAnswer
from ._keeper import Keeper, settle
from ._machine import Failure
from ._names import query_value
from .errors import Closed, LeaseholdError, Unreachable, read_problem, refusal

EVENT_STREAM = "text/event-stream"
EVENTS_AHEAD = 1024
PAUSE = 0.2
SILENCE_MAX = 45.0
"""Three heartbeats of a server that has nothing to say, in seconds."""
LINE_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Event:
    """What happened: ``type`` is ``granted``, ``ended``, ``queued``, ``left``, ``deadlock``, ``fence_accepted``, … or
    ``resync``, where events were missed on the way: look at the locks again. ``fields`` has all of it."""

    type: str
    revision: int
    cursor: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def lock(self) -> str | None:
        """The lock that it happened to, if it was one."""
        lock = self.fields.get("lock")
        return lock if isinstance(lock, str) else None


class _Stopped(Exception):
    """The watch is over."""


class Feed:
    """The keeper's end of a watch, and the queue between the two."""

    def __init__(self, keeper: Keeper, namespace: str, prefix: str, after: str | None) -> None:
        self.began: Future[None] = Future()
        self._keeper = keeper
        self._namespace = namespace
        self._prefix = prefix
        self._after = after
        self._has_gap = False
        self._ready: deque[Event | LeaseholdError] = deque()
        self._changed = threading.Condition()
        self._wakers: list[Callable[[], None]] = []
        self._is_stopped = False
        self._is_final = False
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._resume: Callable[[], None] | None = None

    # The side of the program, on any thread.

    def next(self, timeout: float | None) -> Event | None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._ready or self._is_stopped, timeout):
                return None
        return self.take()

    def take(self) -> Event | None:
        """The next event, if there is one; raises what has ended the watch."""
        with self._changed:
            if not self._ready:
                if self._is_stopped:
                    raise Closed("the watch is closed")
                return None
            first = self._ready[0]
            if isinstance(first, LeaseholdError):
                raise first
            self._ready.popleft()
            resume = self._resume if len(self._ready) < EVENTS_AHEAD // 2 else None
            self._resume = None if resume else self._resume
        if resume is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(resume)
        return first

    def take_error(self) -> None:
        """Raises what has ended the watch before it began."""
        with self._changed:
            first = self._ready[0] if self._ready else None
        if isinstance(first, LeaseholdError):
            raise first

    def wake_once(self, waker: Callable[[], None]) -> None:
        """Calls the waker when there is something to take."""
        with self._changed:
            if not self._ready and not self._is_stopped:
                self._wakers.append(waker)
                return
        waker()

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
        self._notify()
        try:
            self._keeper.order(self._cancel)
        except Closed:
            pass

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _notify(self) -> None:
        with self._changed:
            wakers, self._wakers = self._wakers, []
            self._changed.notify_all()
        for waker in wakers:
            waker()

    def _push(self, what: Event | LeaseholdError) -> int:
        with self._changed:
            self._ready.append(what)
            count = len(self._ready)
        self._notify()
        return count

    # The side of the keeper.

    async def run(self) -> None:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        if self._is_stopped:
            return
        await self._follow()

    def is_over(self, _: object) -> None:
        """The task has ended, and perhaps never began: the last event says why."""
        self._push(Closed("the watch is closed"))
        settle(self.began, None)

    async def _follow(self) -> None:
        since = self._loop_time()
        while True:
            server = self._keeper.pool.server
            error: LeaseholdError | None = None
            try:
                await self._stream()
            except NoAnswer as failure:
                is_unsent = failure.failure is Failure.UNSENT
                error = Unreachable(failure.said, "not_applied" if is_unsent else "unknown")
                if is_unsent:
                    self._keeper.unreachable(server)
            except LeaseholdError as passing:
                error = passing
            except _Stopped as final:
                self._push(final.args[0])
                return
            is_late = self._loop_time() - since >= self._keeper.settings.patience / 1e9
            if error is not None and not self.began.done() and is_late:
                self._push(error)
                return
            await asyncio.sleep(PAUSE)

    def _loop_time(self) -> float:
        return asyncio.get_running_loop().time()

    async def _stream(self) -> None:
        """One connection's worth of events."""
        path = f"/v1/watch?namespace={query_value(self._namespace)}&prefix={query_value(self._prefix)}"
        if self._after is not None:
            path += f"&after={query_value(self._after)}"
        heard = asyncio.Event()
        chunks: deque[bytes] = deque()

        def on_bytes(data: bytes) -> None:
            chunks.append(data)
            heard.set()

        patience = self._keeper.settings.patience / 1e9
        try:
            connection, status, headers = await asyncio.wait_for(
                self._keeper.pool.stream(path, EVENT_STREAM, on_bytes), patience
            )
        except (asyncio.TimeoutError, TimeoutError):
            raise NoAnswer(Failure.UNKNOWN, "no answer in time") from None
        try:
            if status != 200:
                self._refused(status, headers.get("", "").encode())
                return
            if not headers.get("content-type", "").startswith(EVENT_STREAM):
                self._not_ours(status)
            rest = b""
            while True:
                try:
                    await asyncio.wait_for(heard.wait(), SILENCE_MAX)
                except (asyncio.TimeoutError, TimeoutError):
                    return
                heard.clear()
                while chunks:
                    data = chunks.popleft()
                    if not data:
                        return
                    *lines, rest = (rest + data).split(b"\n")
                    if len(rest) > LINE_BYTES_MAX:
                        return
                    for line in lines:
                        count = self._take_in(line)
                        if count < 0:
                            return
                        if count >= EVENTS_AHEAD:
                            connection.pause()
                            with self._changed:
                                self._resume = connection.resume
        finally:
            connection.abort()

    def _refused(self, status: int, body: bytes) -> None:
        problem = read_problem(status, body)
        if problem is None:
            self._not_ours(status)
            return
        if problem.code == "revision_compacted":
            self._lose_track()
        elif status >= 500 or status == 429:
            raise refusal(problem)
        else:
            raise _Stopped(refusal(problem))

    def _not_ours(self, status: int) -> None:
        """In place of a server that was there before, something else may stand in for a while."""
        error = Unreachable(f"something that is no Leasehold server answered with {status}", "unknown")
        raise error if self.began.done() else _Stopped(error)

    def _lose_track(self) -> None:
        """From now on, whatever was before."""
        self._after, self._has_gap = None, True

    def _take_in(self, line: bytes) -> int:
        """One line of the stream. Says how many events wait to be taken; less than none when it is to be begun anew."""
        if not line.startswith(b"data:"):
            return 0
        try:
            said = json.loads(line[5:])
            event = Event(str(said["type"]), int(said["revision"]), said.get("cursor"), said)
        except (ValueError, TypeError, KeyError):
            return 0
        settle(self.began, None)
        after = event.cursor or self._after
        if event.type == "resync":
            self._lose_track()
            return -1
        if event.type == "bookmark":
            if not self._has_gap:
                self._after = after
                return 0
            # From here on nothing is missed: who looks at the locks now knows everything.
            self._has_gap = False
            event = Event("resync", event.revision, event.cursor, {**said, "type": "resync"})
        count = self._push(event)
        self._after = after
        return count


class Watch:
    """Events as they happen: iterate over it. It goes on after the last one when the connection breaks, the server
    restarts or another one leads. An error is final."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def next(self, timeout: float | None = None) -> Event | None:
        """The next event; ``None`` if there is none in time (in seconds)."""
        return self._feed.next(timeout)

    def __iter__(self) -> Iterator[Event]:
        while True:
            try:
                event = self.next()
            except Closed:
                return
            if event is not None:
                yield event

    def close(self) -> None:
        """Ends it."""
        self._feed.stop()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._feed.stop()


class AsyncWatch:
    """Events as they happen: ``async for event in watch``. It goes on after the last one when the connection breaks, the
    server restarts or another one leads. An error is final."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def next(self) -> Event:
        """The next event."""
        loop = asyncio.get_running_loop()
        while (event := self._feed.take()) is None:
            waiter: asyncio.Future[None] = loop.create_future()
            self._feed.wake_once(functools.partial(_call_in, loop, _done, waiter))
            await waiter
        return event

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            try:
                event = await self.next()
            except Closed:
                return
            yield event

    def close(self) -> None:
        """Ends it."""
        self._feed.stop()

    async def __aenter__(self) -> AsyncWatch:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self._feed.stop()


def _done(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _call_in(loop: asyncio.AbstractEventLoop, what: Callable[..., None], *args: Any) -> None:
    """Runs something on a loop that may be closed by now."""
    try:
        loop.call_soon_threadsafe(what, *args)
    except RuntimeError:
        pass
