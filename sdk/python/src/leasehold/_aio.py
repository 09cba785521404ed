"""The client for programs with asyncio. The keeper is a thread all the same: a loop that is blocked loses no lock."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import ssl
import warnings
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, TypeVar

from ._calls import Calls, body_of, read
from ._clock import Clock
from ._duration import Duration
from ._keeper import Item, Keeper
from ._machine import State
from ._payload import Grant, Json
from ._spec import (
    TTL,
    Callback,
    LeaseView,
    LockName,
    LockSpec,
    Retry,
    Under,
    from_environment,
    one,
    session_spec,
    set_up,
    several,
)
from ._sync import LOOK_AGAIN, VALUE, Leader, is_passing, leader_of
from ._wanted import LOOK_AGAIN as WANTED_AGAIN
from ._wanted import NEWS, is_wanted, prefix_of_all
from ._watch import AsyncWatch, Feed
from .errors import Closed, Held, LeaseholdError, LeaseLost, Refused, Unreachable

L = TypeVar("L", bound="AsyncLease")
R = TypeVar("R")


class AsyncClient:
    """A client of one or more servers, for asyncio: see ``Client`` for what it is made of.

    >>> async with AsyncClient() as client, client.lock("report", ttl=30) as lease:     # doctest: +SKIP
    ...     await make_report(lease.fencing_token)

    The body of ``async with client.lock(…)`` is cancelled when the lease is in jeopardy, which is early enough: nobody
    else can have the lock yet. What comes out of the block is then ``LeaseLost``.
    """

    def __init__(
        self,
        servers: str = "http://127.0.0.1:8080",
        *,
        owner: str | None = None,
        namespace: str = "default",
        ttl: Duration = TTL,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        allow_cleartext_token: bool = False,
        cacert: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        patience: Duration = 10.0,
        heartbeat: str = "ttl/3",
        clock: Clock | None = None,
    ) -> None:
        self._setup = set_up(
            servers,
            owner=owner,
            namespace=namespace,
            ttl=ttl,
            token=token,
            token_file=token_file,
            allow_cleartext_token=allow_cleartext_token,
            cacert=cacert,
            ssl_context=ssl_context,
            patience=patience,
            heartbeat=heartbeat,
            clock=clock,
        )
        self._keeper: Keeper = self._setup.keeper
        # Nobody waits for a client that is simply dropped.
        weakref.finalize(self, self._keeper.close, None, False).atexit = False

    @classmethod
    def from_env(cls, **given: Any) -> AsyncClient:
        """A client as the environment says: see ``Client.from_env``."""
        found = from_environment(given)
        return cls(found.pop("servers"), **found)

    async def connect(self) -> AsyncClient:
        """Waits until a connection stands; ``Unreachable`` if none does in time. Nothing needs it: requests wait too."""
        await asyncio.wrap_future(self._keeper.connected())
        return self

    def lock(
        self,
        name: str,
        *,
        ttl: Duration | None = None,
        wait: Duration | None = 0,
        owner: str | None = None,
        shared: bool = False,
        permits: int | None = None,
        metadata: Json | None = None,
        reclaim_window: Duration = 0,
        heartbeat: bool = True,
    ) -> AsyncLock:
        """Asks for a lock: see ``Client.lock``."""
        ttl = self._setup.ttl if ttl is None else ttl
        what = one(name, shared, permits)
        return AsyncLock(self, LockSpec(self._setup, what, owner, ttl, wait, metadata, reclaim_window, heartbeat))

    def lock_set(
        self,
        locks: Iterable[LockName],
        *,
        ttl: Duration | None = None,
        wait: Duration | None = 0,
        owner: str | None = None,
        metadata: Json | None = None,
        reclaim_window: Duration = 0,
        heartbeat: bool = True,
    ) -> AsyncLock:
        """Asks for several locks, all or nothing, under one lease and one token: see ``Client.lock_set``."""
        ttl = self._setup.ttl if ttl is None else ttl
        what = several(locks)
        return AsyncLock(self, LockSpec(self._setup, what, owner, ttl, wait, metadata, reclaim_window, heartbeat))

    def session(
        self, *, ttl: Duration | None = None, owner: str | None = None, metadata: Json | None = None
    ) -> AsyncSessionRequest:
        """Opens a session, by ``await`` or ``async with``: one heartbeat for any number of locks, which end with it."""
        return AsyncSessionRequest(self, session_spec(self._setup, owner, ttl, metadata))

    def election(self, name: str, *, owner: str | None = None, ttl: Duration | None = None) -> AsyncElection:
        """An election: whoever holds the lock of that name leads."""
        return AsyncElection(self, name, owner, ttl)

    def fence(self, name: str) -> AsyncRegister:
        """A register on the server that remembers the highest fencing token it has seen."""
        return AsyncRegister(self, name)

    def locked(
        self, name: str, *, on_held: Literal["raise", "skip"] = "raise", **how: Any
    ) -> Callable[[Callable[..., Awaitable[R]]], Callable[..., Coroutine[Any, Any, R | None]]]:
        """A decorator: the coroutine runs under the lock, and is cancelled when its lease is in jeopardy. See
        ``Client.locked``."""

        def decorate(function: Callable[..., Awaitable[R]]) -> Callable[..., Coroutine[Any, Any, R | None]]:
            wants_lease = "lease" in inspect.signature(function).parameters

            @functools.wraps(function)
            async def run(*args: Any, **kwargs: Any) -> R | None:
                try:
                    lease = await self.lock(name, **how).acquire()
                except Held:
                    if on_held == "skip":
                        return None
                    raise
                async with lease:
                    return await function(*args, **({"lease": lease} if wants_lease else {}), **kwargs)

            return run

        return decorate

    async def watch(self, prefix: str = "", *, after: str | None = None) -> AsyncWatch:
        """What happens to locks whose canonical name starts with ``prefix``: see ``Client.watch``."""
        feed = Feed(self._keeper, self._setup.namespace, prefix, after)
        watch = AsyncWatch(feed)
        self._keeper.spawn(feed.run, feed.is_over)
        await asyncio.shield(asyncio.wrap_future(feed.began))
        feed.take_error()
        return watch

    @property
    def api(self) -> AsyncApi:
        """The requests of the HTTP interface one by one, with nothing kept alive: for tools."""
        return AsyncApi(self)

    @property
    def namespace(self) -> str:
        """That of all locks of this client."""
        return self._setup.namespace

    async def close(self) -> None:
        """Gives everything back and waits until the server has heard it; no longer than the client's patience."""
        closing = asyncio.get_running_loop().run_in_executor(None, self._keeper.close)
        await asyncio.shield(closing)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncApi(Calls[Awaitable[Json]]):
    """See ``AsyncClient.api``."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._query = client._setup.query

    def _ask(self, method: str, path: str, body: Json | None = None) -> Awaitable[Json]:
        return self._answer(method, path, body)

    async def _answer(self, method: str, path: str, body: Json | None) -> Json:
        return read(await asyncio.wrap_future(self._client._keeper.ask(method, path, body_of(body))))


async def _acquire(spec: LockSpec, wait: Duration | None) -> tuple[Item, Grant]:
    item = spec.order(wait)
    try:
        return item, await asyncio.wrap_future(item.acquired)
    except LeaseholdError:
        raise
    except BaseException:
        # A task that is cancelled leaves the queue, and leaves no lock behind.
        spec.setup.keeper.abandon(item)
        raise


class AsyncLock:
    """How a lock, or a set of them, is asked for. ``async with lock as lease:`` acquires, runs the body with it only,
    cancels it in jeopardy, and gives the lock back."""

    def __init__(self, client: AsyncClient, spec: LockSpec) -> None:
        self._client = client
        self._spec = spec
        self._entered: dict[asyncio.Task[Any] | None, list[AsyncLease]] = {}

    async def acquire(self, *, retry: Retry | None = None) -> AsyncLease:
        """Asks, and waits as long as was said: see ``Lock.acquire``."""
        attempt = 1
        while True:
            try:
                item, grant = await _acquire(self._spec, self._spec.wait)
                return AsyncLease(self._client, item, grant)
            except Refused as error:
                pause = retry.pause_after(attempt, error) if retry is not None else None
                if pause is None:
                    raise
            await asyncio.sleep(pause)
            attempt += 1

    async def acquire_with_retry(self, retry: Retry | None = None) -> AsyncLease:
        """``acquire`` with bounded, jittered retries, as the server recommends."""
        return await self.acquire(retry=retry or Retry())

    async def try_acquire(self) -> AsyncLease | None:
        """Asks once, without waiting. ``None`` if another owner has it."""
        try:
            item, grant = await _acquire(self._spec, 0)
        except Held:
            return None
        return AsyncLease(self._client, item, grant)

    async def __aenter__(self) -> AsyncLease:
        lease = await (await self.acquire()).__aenter__()
        self._entered.setdefault(asyncio.current_task(), []).append(lease)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        mine = self._entered[task]
        lease = mine.pop()
        if not mine:
            del self._entered[task]
        await lease.__aexit__(kind, error, trace)


class _Body:
    """The task that works under a lease. Cancelled once, when the lease is in jeopardy."""

    def __init__(self, lease: AsyncLease) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] = task
        self._loop = asyncio.get_running_loop()
        self._is_over = False
        self.is_cancelled = False
        # How often others had cancelled it before; since 3.11 a task keeps count.
        self._before: int = getattr(task, "cancelling", lambda: 0)()
        self.callback = lambda: _call_in(self._loop, self._cancel)
        lease._belief.when(State.JEOPARDY, self.callback)

    def _cancel(self) -> None:
        if not self._is_over:
            self._is_over = self.is_cancelled = True
            self._task.cancel()

    def end(self) -> bool:
        """Whether the task was cancelled by us alone; then it goes on."""
        self._is_over = True
        if not self.is_cancelled:
            return False
        uncancel = getattr(self._task, "uncancel", None)
        return uncancel is None or bool(uncancel() <= self._before)


def _call_in(loop: asyncio.AbstractEventLoop, what: Callable[..., object], *args: Any) -> None:
    """Runs something on a loop that may be closed by now."""
    try:
        loop.call_soon_threadsafe(what, *args)
    except RuntimeError:
        pass


class AsyncLease(LeaseView):
    """A lock, or a set of them, that is held, and kept alive until it is given back: see ``Lease``.

    In ``async with`` the body is cancelled when the lease is in jeopardy, and ``LeaseLost`` is raised in place of
    ``CancelledError``.
    """

    def __init__(self, client: AsyncClient, item: Item, grant: Grant) -> None:
        super().__init__(client._keeper, item, grant)
        self._client = client
        self._bodies: list[_Body] = []

    async def jeopardy(self) -> None:
        """Ends when the work must stop."""
        await self._until(State.JEOPARDY)

    async def lost(self) -> None:
        """Ends when the lease is over. The work should have stopped before."""
        await self._until(State.LOST)

    async def _until(self, least: State) -> None:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def done() -> None:
            if not waiter.done():
                waiter.set_result(None)

        def callback() -> None:
            _call_in(loop, done)

        self._belief.when(least, callback)
        try:
            while self.state < least:
                # A machine that slept tells the clock before the keeper has run.
                await asyncio.wait([waiter], timeout=LOOK_AGAIN)
        finally:
            self._belief.forget(callback)

    def on_jeopardy(self, callback: Callback) -> None:
        """Calls back, on the loop, when the work must stop; not when the lease is given back."""
        self._when(State.JEOPARDY, callback)

    def on_lost(self, callback: Callback) -> None:
        """Calls back, on the loop, when the lease is over; not when it is given back."""
        self._when(State.LOST, callback)

    def _when(self, least: State, callback: Callback) -> None:
        loop, belief = asyncio.get_running_loop(), self._belief

        def tell() -> None:
            if belief._by != "released":
                _call_in(loop, callback)

        belief.when(least, tell)

    async def wanted(self) -> None:
        """Ends when somebody else waits in line for what this lease holds, or for a part of it: a good moment to give it
        back early. Of a session: for anything under it. ``LeaseLost`` if the lease ended meanwhile."""
        following, ending = asyncio.ensure_future(self._follow_queue()), asyncio.ensure_future(self.jeopardy())
        try:
            await asyncio.wait([following, ending], return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                self.check()
            await following
        finally:
            following.cancel()
            ending.cancel()

    async def _follow_queue(self) -> None:
        while True:
            try:
                # Watched before it is looked at, so that nobody comes in between.
                async with await self._client.watch(prefix_of_all(self.locks)) as watch:
                    while not await self._is_waited_for():
                        while (await watch.next()).type not in NEWS:
                            pass
                    return
            except LeaseholdError as error:
                self.check()
                if not is_passing(error):
                    raise
                await asyncio.sleep(WANTED_AGAIN)

    async def _is_waited_for(self) -> bool:
        api = self._client.api
        if not self.locks:
            return is_wanted((await api.list(session_id=self.lease_id))["locks"])
        return is_wanted([await api.get(lock) for lock in self.locks])

    async def verify(self) -> bool:
        """Asks the server whether the lease still stands."""
        lock, body = self._check_path()
        return bool((await self._client.api.check(lock, **body))["valid"])

    def renew(self) -> None:
        """Sends a heartbeat now."""
        self._keeper.renew(self._item)

    async def release(self) -> None:
        """Gives it back, and says what happened: see ``Lease.release``."""
        if self._is_foreign:
            raise LeaseLost("fork")
        self._is_given_back = True
        done = self._keeper.release(self._item)
        # Whoever is cancelled here goes, and the release goes on.
        await asyncio.shield(asyncio.wrap_future(done))

    async def release_once(self) -> None:
        """As ``release``, for a lease that another part may have released: see ``Lease.release_once``."""
        if self._is_given_back:
            return
        try:
            await self.release()
        except LeaseLost:
            pass

    async def __aenter__(self: L) -> L:
        self._bodies.append(_Body(self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body = self._bodies.pop()
        is_ours_alone = body.end()
        self._belief.forget(body.callback)
        # Why it was told to stop, or that the work ended after another may have begun.
        lost = self.error() if body.is_cancelled or self.state is State.LOST else None
        if self._is_released():
            lost = None
        await self._give_back()
        if lost is None:
            return
        if isinstance(error, asyncio.CancelledError) and is_ours_alone:
            raise lost from None
        if error is None:
            raise lost

    async def _give_back(self) -> None:
        if self._is_given_back or self._is_foreign:
            return
        if self.state is not State.VALID:
            # Nobody waits for what may take until the end of the lease.
            self._is_given_back = True
            self._keeper.abandon(self._item)
            return
        try:
            await self.release()
        except (LeaseLost, Unreachable, Closed):
            # The work is done; a lock that cannot be given back now lapses by itself.
            pass

    def __del__(self) -> None:
        if not getattr(self, "_is_given_back", True) and not self._is_foreign and self.state is not State.LOST:
            warnings.warn(f"{self!r} was dropped without a release", ResourceWarning, stacklevel=2, source=self)
            self._keeper.abandon(self._item)


class AsyncSessionRequest:
    """How a session is opened: ``await`` it, or use it in ``async with``."""

    def __init__(self, client: AsyncClient, spec: LockSpec) -> None:
        self._client = client
        self._spec = spec
        self._opened: AsyncSession | None = None

    async def open(self) -> AsyncSession:
        item, grant = await _acquire(self._spec, 0)
        return AsyncSession(self._client, self._spec, item, grant)

    def __await__(self) -> Generator[Any, None, AsyncSession]:
        return self.open().__await__()

    async def __aenter__(self) -> AsyncSession:
        self._opened = await (await self.open()).__aenter__()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(kind, error, trace)


class AsyncSession(AsyncLease):
    """A lease under which any number of locks are taken: renewed together, lost together, given back together."""

    def __init__(self, client: AsyncClient, spec: LockSpec, item: Item, grant: Grant) -> None:
        super().__init__(client, item, grant)
        self._session_spec = replace(spec, owner=item.payload.owner, under=Under(item, grant.lease_id), metadata=None)

    @property
    def id(self) -> str:
        """A secret: whoever knows it can use and end the session."""
        return self.lease_id

    @property
    def number(self) -> int:
        """Its number in lists."""
        return self._grant.session_number

    def lock(
        self,
        name: str,
        *,
        wait: Duration | None = 0,
        shared: bool = False,
        permits: int | None = None,
        metadata: Json | None = None,
        owner: str | None = None,
    ) -> AsyncLock:
        """Asks for a lock under this session."""
        spec = replace(self._session_spec, what=one(name, shared, permits), wait=wait, metadata=metadata)
        return AsyncLock(self._client, replace(spec, owner=owner or spec.owner))

    def lock_set(self, locks: Iterable[LockName], *, wait: Duration | None = 0, metadata: Json | None = None) -> AsyncLock:
        """Asks for several, all or nothing."""
        return AsyncLock(self._client, replace(self._session_spec, what=several(locks), wait=wait, metadata=metadata))

    async def verify(self) -> bool:
        """Asks the server whether the session still stands."""
        try:
            await self._client.api.get_session(self.id)
        except Refused as error:
            if error.code == "session_not_found":
                return False
            raise
        return True

    async def close(self) -> None:
        """Ends it, and everything under it."""
        await self.release()


class AsyncRegister:
    """A register on the server: see ``Client.fence``."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self._client = client
        self._name = name

    async def accept(self, token: int) -> int:
        """Shows a token, and says which is the highest now. ``StaleFence`` if a higher one was seen."""
        return int((await self._client.api.accept_fence(self._name, token))["high_water"])

    async def high_water(self) -> int | None:
        """The highest token seen; ``None`` if it has seen none."""
        try:
            return int((await self._client.api.get_fence(self._name))["high_water"])
        except Refused as error:
            if error.code == "not_found":
                return None
            raise


class AsyncElection:
    """An election under a name. It is a lock: see ``Client.election``."""

    def __init__(self, client: AsyncClient, name: str, owner: str | None, ttl: Duration | None) -> None:
        self._client = client
        self._name = name
        self._owner = owner
        self._ttl = ttl

    async def campaign(self, value: str = "", *, wait: Duration | None = None) -> AsyncLeadership:
        """Waits in line until elected. ``value`` is what the others see, an address for instance."""
        lock = self._client.lock(self._name, owner=self._owner, ttl=self._ttl, wait=wait, metadata={VALUE: value})
        item, grant = await _acquire(lock._spec, wait)
        return AsyncLeadership(self._client, item, grant)

    async def leader(self) -> Leader | None:
        """Who leads now."""
        return leader_of(await self._client.api.get(self._name))

    async def observe(self) -> AsyncIterator[Leader | None]:
        """Who leads: at once for the first time, then whenever that has changed. ``None`` is nobody."""
        # Watched before it is looked at, so that no change falls between the two.
        async with await self._client.watch(self._name) as watch:
            last: Leader | None = None
            is_first = True
            while True:
                try:
                    now = await self.leader()
                except LeaseholdError as error:
                    if not is_passing(error):
                        raise
                    await asyncio.sleep(LOOK_AGAIN)
                    continue
                if is_first or now != last:
                    is_first, last = False, now
                    yield now
                await watch.next()


class AsyncLeadership(AsyncLease):
    """Being elected, for as long as the lease stands."""

    async def resign(self) -> None:
        """Steps down, and says when the next one can lead."""
        await self.release()
