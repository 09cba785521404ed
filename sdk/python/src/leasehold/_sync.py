"""The client for programs without asyncio: every call waits on the calling thread."""

from __future__ import annotations

import functools
import inspect
import os
import ssl
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
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
from ._wanted import LOOK_AGAIN as WANTED_AGAIN
from ._wanted import NEWS, is_wanted, prefix_of_all
from ._watch import Feed, Watch
from .errors import Closed, Held, LeaseholdError, LeaseLost, Refused, Unreachable

L = TypeVar("L", bound="Lease")
R = TypeVar("R")


class Client:
    """A client of one or more servers.

    >>> client = Client("http://127.0.0.1:8080", owner="worker-1")      # doctest: +SKIP
    >>> with client.lock("db/migrate", ttl=30, wait=10) as lease:       # doctest: +SKIP
    ...     migrate(lease.fencing_token)

    It connects in the background, with the first thing that is asked. Threads share one client. ``close`` gives back
    what is held and waits for that; so does leaving a ``with`` block, and, for a moment, the end of the program.

    ``servers``: an address, or several with commas between them. ``owner``: who asks, unless a lock names another; a name
    of its own for each request if neither does. Conflicts and deadlocks are between owners. ``ttl``: how long leases
    stand without a renewal. ``patience``: how long a request is tried before it counts as unreachable; a wait in line is
    no part of it. ``heartbeat``: ``ttl/3``, or ``ttl/6`` to survive longer outages. ``token`` is a secret;
    ``token_file`` is a file with it, which is read again when it has changed and when the server does not know the token.
    To an http server on another machine a token is sent only with ``allow_cleartext_token``. ``cacert``: a file with the
    authorities that are trusted, in place of those of the system.
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
    def from_env(cls, **given: Any) -> Client:
        """A client as the environment says: ``LEASEHOLD_ADDR``, ``LEASEHOLD_NAMESPACE``, ``LEASEHOLD_TOKEN`` or
        ``LEASEHOLD_TOKEN_FILE``, ``LEASEHOLD_ALLOW_CLEARTEXT_TOKEN=1``, ``LEASEHOLD_CACERT``. What is given counts
        more."""
        found = from_environment(given)
        return cls(found.pop("servers"), **found)

    def connect(self) -> Client:
        """Waits until a connection stands; ``Unreachable`` if none does in time. Nothing needs it: requests wait too."""
        self._keeper.connected().result()
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
    ) -> Lock:
        """Asks for a lock, in a ``with`` block or by ``acquire``.

        Its name is the canonical text of what it covers: ``job/nightly``, ``path:/srv/a/**``, ``inode:42@100..200``.
        ``wait``: how long to queue; 0 is not at all, ``None`` for ever. ``permits``: together with up to so many
        holders; all who ask must name the same number. ``reclaim_window``: how long after the lease lapsed only this
        owner may take the lock back. Without ``heartbeat`` it is not kept alive before ``lease.start_heartbeat()``.
        """
        return Lock(
            self,
            LockSpec(
                self._setup,
                one(name, shared, permits),
                owner,
                self._setup.ttl if ttl is None else ttl,
                wait,
                metadata,
                reclaim_window,
                heartbeat,
            ),
        )

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
    ) -> Lock:
        """Asks for several locks, all or nothing, under one lease and one token: names, ``(name, "shared")``, or claims."""
        ttl = self._setup.ttl if ttl is None else ttl
        what = several(locks)
        return Lock(self, LockSpec(self._setup, what, owner, ttl, wait, metadata, reclaim_window, heartbeat))

    def session(self, *, ttl: Duration | None = None, owner: str | None = None, metadata: Json | None = None) -> Session:
        """Opens a session: one heartbeat for any number of locks, which end with it."""
        spec = session_spec(self._setup, owner, ttl, metadata)
        item, grant = _acquire(spec, 0)
        return Session(self, spec, item, grant)

    def election(self, name: str, *, owner: str | None = None, ttl: Duration | None = None) -> Election:
        """An election: whoever holds the lock of that name leads."""
        return Election(self, name, owner, ttl)

    def fence(self, name: str) -> Register:
        """A register on the server that remembers the highest fencing token it has seen."""
        return Register(self, name)

    def mutex(self, name: str, *, ttl: Duration | None = None, owner: str | None = None) -> Mutex:
        """A lock in the shape of ``threading.Lock``, for code that expects one."""
        return Mutex(self.lock(name, ttl=ttl, owner=owner))

    def locked(
        self, name: str, *, on_held: Literal["raise", "skip"] = "raise", **how: Any
    ) -> Callable[[Callable[..., R]], Callable[..., R | None]]:
        """A decorator: the function runs under the lock, whose options are those of ``lock``.

        If it has a parameter called ``lease``, it is given the lease. With ``on_held="skip"`` it is not run, and
        ``None`` comes back, when another owner has the lock.
        """

        def decorate(function: Callable[..., R]) -> Callable[..., R | None]:
            wants_lease = "lease" in inspect.signature(function).parameters

            @functools.wraps(function)
            def run(*args: Any, **kwargs: Any) -> R | None:
                try:
                    lease = self.lock(name, **how).acquire()
                except Held:
                    if on_held == "skip":
                        return None
                    raise
                with lease:
                    return function(*args, **({"lease": lease} if wants_lease else {}), **kwargs)

            return run

        return decorate

    def watch(self, prefix: str = "", *, after: str | None = None) -> Watch:
        """What happens to locks whose canonical name starts with ``prefix``, from now on or after the cursor of an event
        or a list. When this returns, nothing that happens from then on is missed, unless a ``resync`` says so."""
        feed = Feed(self._keeper, self._setup.namespace, prefix, after)
        self._keeper.spawn(feed.run, feed.is_over)
        feed.began.result()
        watch = Watch(feed)
        feed.take_error()
        return watch

    @property
    def api(self) -> Api:
        """The requests of the HTTP interface one by one, with nothing kept alive: for tools."""
        return Api(self)

    @property
    def namespace(self) -> str:
        """That of all locks of this client."""
        return self._setup.namespace

    def close(self) -> None:
        """Gives everything back and waits until the server has heard it; no longer than the client's patience. What is
        not given back by then lapses."""
        self._keeper.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Api(Calls[Json]):
    """See ``Client.api``."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._query = client._setup.query

    def _ask(self, method: str, path: str, body: Json | None = None) -> Json:
        return read(self._client._keeper.ask(method, path, body_of(body)).result())


def _acquire(spec: LockSpec, wait: Duration | None) -> tuple[Item, Grant]:
    item = spec.order(wait)
    try:
        return item, item.acquired.result()
    except LeaseholdError:
        raise
    except BaseException:
        # Whoever is interrupted leaves the queue, and leaves no lock behind.
        spec.setup.keeper.abandon(item)
        raise


class Lock:
    """How a lock, or a set of them, is asked for. ``with lock as lease:`` acquires, runs the body with it only, and
    gives it back."""

    def __init__(self, client: Client, spec: LockSpec) -> None:
        self._client = client
        self._spec = spec
        self._entered: dict[int, list[Lease]] = {}

    def acquire(self, *, retry: Retry | None = None) -> Lease:
        """Asks, and waits as long as was said: ``Held`` if that is over. A broken connection, a restart of the server or
        a change of the leader on the way only take time.

        With ``retry`` it tries again when it is refused for something that passes, so often and no more.
        """
        attempt = 1
        while True:
            try:
                item, grant = _acquire(self._spec, self._spec.wait)
                return Lease(self._client, item, grant)
            except Refused as error:
                pause = retry.pause_after(attempt, error) if retry is not None else None
                if pause is None:
                    raise
            time.sleep(pause)
            attempt += 1

    def acquire_with_retry(self, retry: Retry | None = None) -> Lease:
        """``acquire`` with bounded, jittered retries, as the server recommends."""
        return self.acquire(retry=retry or Retry())

    def try_acquire(self) -> Lease | None:
        """Asks once, without waiting. ``None`` if another owner has it."""
        try:
            item, grant = _acquire(self._spec, 0)
        except Held:
            return None
        return Lease(self._client, item, grant)

    def __enter__(self) -> Lease:
        lease = self.acquire()
        self._entered.setdefault(threading.get_ident(), []).append(lease)
        return lease

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        mine = self._entered[threading.get_ident()]
        lease = mine.pop()
        if not mine:
            del self._entered[threading.get_ident()]
        lease.__exit__(kind, error, trace)


class Moment:
    """When a lease becomes that bad: ``wait`` for it, or look with ``is_set``."""

    def __init__(self, lease: Lease, least: State) -> None:
        self._lease = lease
        self._least = least

    def is_set(self) -> bool:
        return self._lease.state >= self._least

    def wait(self, timeout: float | None = None) -> bool:
        """False if the time is over before, in seconds."""
        if self._lease._is_foreign:
            return True
        return self._lease._belief.wait(self._least, timeout)


class Lease(LeaseView):
    """A lock, or a set of them, that is held, and kept alive until it is given back.

    Before each write call ``check``; and show ``fencing_token`` to what the lock guards, which catches what no check of a
    clock can. In a ``with`` block it is given back at the end. If the body ends after the lease was lost, that is raised
    as ``LeaseLost``, unless the body has raised something itself.
    """

    def __init__(self, client: Client, item: Item, grant: Grant) -> None:
        super().__init__(client._keeper, item, grant)
        self._client = client

    @property
    def jeopardy(self) -> Moment:
        """When the work must stop: half of the ttl after the last confirmed renewal was sent."""
        return Moment(self, State.JEOPARDY)

    @property
    def lost(self) -> Moment:
        """When the lease is over. The work should have stopped before."""
        return Moment(self, State.LOST)

    def on_jeopardy(self, callback: Callback) -> None:
        """Calls back, on a thread of its own, when the work must stop; not when the lease is given back."""
        self._when(State.JEOPARDY, callback)

    def on_lost(self, callback: Callback) -> None:
        """Calls back, on a thread of its own, when the lease is over; not when it is given back."""
        self._when(State.LOST, callback)

    def _when(self, least: State, callback: Callback) -> None:
        keeper, belief = self._keeper, self._belief

        def tell() -> None:
            if belief._by != "released":
                keeper.call_back(callback)

        belief.when(least, tell)

    def verify(self) -> bool:
        """Asks the server whether the lease still stands."""
        lock, body = self._check_path()
        return bool(self._client.api.check(lock, **body)["valid"])

    def wait_until_wanted(self, timeout: float | None = None) -> bool:
        """Waits until somebody else waits in line for what this lease holds, or for a part of it: a good moment to give
        it back early. False if nobody did in time (in seconds). Of a session: for anything under it. ``LeaseLost`` if the
        lease ended meanwhile."""
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                # Watched before it is looked at, so that nobody comes in between.
                with self._client.watch(prefix_of_all(self.locks)) as watch:
                    return self._follow_queue(watch, until)
            except LeaseholdError as error:
                self.check()
                if not is_passing(error):
                    raise
                time.sleep(WANTED_AGAIN)

    def _follow_queue(self, watch: Watch, until: float | None) -> bool:
        while True:
            if self._is_waited_for():
                return True
            event = None
            while event is None or event.type not in NEWS:
                self.check()
                left = LOOK_AGAIN if until is None else until - time.monotonic()
                if left <= 0:
                    return False
                event = watch.next(min(left, LOOK_AGAIN))

    def _is_waited_for(self) -> bool:
        api = self._client.api
        if not self.locks:
            return is_wanted(api.list(session_id=self.lease_id)["locks"])
        return is_wanted([api.get(lock) for lock in self.locks])

    def renew(self) -> None:
        """Sends a heartbeat now."""
        self._keeper.renew(self._item)

    def release(self) -> None:
        """Gives it back, and says what happened. It is tried again while the lease could still stand: ``LeaseLost``
        means that it was over before, ``Unreachable`` that no server answered until then."""
        self.check_process()
        self._is_given_back = True
        self._keeper.release(self._item).result()

    def release_once(self) -> None:
        """As ``release``, for a lease that another part may have released: the first time counts, and what was given
        back or lost before is no error."""
        if self._is_given_back:
            return
        try:
            self.release()
        except LeaseLost:
            pass

    def check_process(self) -> None:
        """``LeaseLost`` in a forked child."""
        if self._is_foreign:
            raise LeaseLost("fork")

    def __enter__(self: L) -> L:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._is_given_back or self._is_foreign:
            return
        # Work that ended after the lease was over may have met with that of another.
        lost = self.error() if self.state is State.LOST else None
        try:
            self.release()
        except (LeaseLost, Unreachable, Closed):
            # The work is done; a lock that cannot be given back now lapses by itself.
            pass
        if lost is not None and error is None:
            raise lost

    def __del__(self) -> None:
        if not getattr(self, "_is_given_back", True) and not self._is_foreign and self.state is not State.LOST:
            warnings.warn(f"{self!r} was dropped without a release", ResourceWarning, stacklevel=2, source=self)
            self._keeper.abandon(self._item)


class Session(Lease):
    """A lease under which any number of locks are taken: renewed together, lost together, given back together."""

    def __init__(self, client: Client, spec: LockSpec, item: Item, grant: Grant) -> None:
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
    ) -> Lock:
        """Asks for a lock under this session."""
        spec = replace(self._session_spec, what=one(name, shared, permits), wait=wait, metadata=metadata)
        return Lock(self._client, replace(spec, owner=owner or spec.owner))

    def lock_set(self, locks: Iterable[LockName], *, wait: Duration | None = 0, metadata: Json | None = None) -> Lock:
        """Asks for several, all or nothing."""
        return Lock(self._client, replace(self._session_spec, what=several(locks), wait=wait, metadata=metadata))

    def verify(self) -> bool:
        """Asks the server whether the session still stands."""
        try:
            self._client.api.get_session(self.id)
        except Refused as error:
            if error.code == "session_not_found":
                return False
            raise
        return True

    def close(self) -> None:
        """Ends it, and everything under it."""
        self.release()


class Register:
    """A register on the server: see ``Client.fence``."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self._name = name

    def accept(self, token: int) -> int:
        """Shows a token, and says which is the highest now. ``StaleFence`` if a higher one was seen, ``Refused`` with
        ``invalid_request`` for one that was never issued."""
        return int(self._client.api.accept_fence(self._name, token)["high_water"])

    @property
    def high_water(self) -> int | None:
        """The highest token seen; ``None`` if it has seen none."""
        try:
            return int(self._client.api.get_fence(self._name)["high_water"])
        except Refused as error:
            if error.code == "not_found":
                return None
            raise


@dataclass(frozen=True)
class Leader:
    """Who leads."""

    owner: str
    value: str
    """What it said about itself, an address for instance."""
    fencing_token: int
    """Rises with each leader."""


VALUE = "value"
LOOK_AGAIN = 0.2


def leader_of(lock: Json) -> Leader | None:
    for holder in lock["holders"]:
        if holder["state"] in ("held", "recovering"):
            value = holder["metadata"].get(VALUE)
            return Leader(holder["owner_id"], value if isinstance(value, str) else "", holder["fencing_token"])
    return None


def is_passing(error: LeaseholdError) -> bool:
    """Whether the server is away, and may be back soon."""
    return isinstance(error, Unreachable) or (error.problem is not None and error.problem.status == 503)


class Election:
    """An election under a name. It is a lock: see ``Client.election``."""

    def __init__(self, client: Client, name: str, owner: str | None, ttl: Duration | None) -> None:
        self._client = client
        self._name = name
        self._owner = owner
        self._ttl = ttl

    def campaign(self, value: str = "", *, wait: Duration | None = None) -> Leadership:
        """Waits in line until elected. ``value`` is what the others see, an address for instance."""
        lock = self._client.lock(self._name, owner=self._owner, ttl=self._ttl, wait=wait, metadata={VALUE: value})
        item, grant = _acquire(lock._spec, wait)
        return Leadership(self._client, item, grant)

    def leader(self) -> Leader | None:
        """Who leads now."""
        return leader_of(self._client.api.get(self._name))

    def observe(self) -> Iterator[Leader | None]:
        """Who leads: at once for the first time, then whenever that has changed. ``None`` is nobody."""
        # Watched before it is looked at, so that no change falls between the two.
        with self._client.watch(self._name) as watch:
            last: Leader | None = None
            is_first = True
            while True:
                try:
                    now = self.leader()
                except LeaseholdError as error:
                    if not is_passing(error):
                        raise
                    time.sleep(LOOK_AGAIN)
                    continue
                if is_first or now != last:
                    is_first, last = False, now
                    yield now
                watch.next()


class Leadership(Lease):
    """Being elected, for as long as the lease stands."""

    def resign(self) -> None:
        """Steps down, and says when the next one can lead."""
        self.release()


class Mutex:
    """A lock in the shape of ``threading.Lock``: see ``Client.mutex``.

    As there, ``release`` may be called by another thread than ``acquire``. What such code cannot know is that the lock can
    be lost: ``lease`` has the lease while it is held, and ``release`` raises ``LeaseLost`` if it was.
    """

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self.lease: Lease | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Waits for it; not at all unless ``blocking``, and for ``timeout`` seconds if that is not negative. False if
        another owner has it still."""
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        wait: Duration | None = 0 if not blocking else None if timeout < 0 else timeout
        try:
            lease = Lock(self._lock._client, self._lock._spec.with_wait(wait)).acquire()
        except Held:
            return False
        self.lease = lease
        return True

    def release(self) -> None:
        """Gives it back: ``LeaseLost`` if it was lost meanwhile."""
        lease, self.lease = self.lease, None
        if lease is None:
            raise RuntimeError("release unlocked lock")
        lease.release()

    def locked(self) -> bool:
        """Whether it is held here."""
        lease = self.lease
        return lease is not None and lease.state is not State.LOST

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
