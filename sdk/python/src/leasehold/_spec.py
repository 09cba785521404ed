"""What both clients have in common: how a client is set up, how a lock is asked for, how a lease is looked at."""

from __future__ import annotations

import os
import random
import secrets
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, Union

from ._belief import Belief
from ._clock import Clock, SystemClock
from ._codes import RETRYABLE
from ._duration import Duration, nanos
from ._http import Access
from ._keeper import Item, Keeper
from ._machine import Ask, Settings, Standing, State, Wait
from ._names import parse_servers, query_value
from ._payload import Claim, Grant, Json, Payload, SessionSpec, What
from .errors import LeaseholdError, LeaseLost, Refused, UsageError

TTL: Duration = 30.0
"""A lease that nobody set the length of, in seconds."""

LockName = Union[str, tuple[str, str], Claim]
"""A lock of a set: its name, ``(name, "shared")``, or a ``Claim``."""

S = TypeVar("S", bound="LockSpec")


@dataclass(frozen=True)
class Retry:
    """How often ``acquire(retry=…)`` tries. It pauses as long as the server recommends; for FIFO order,
    say ``wait`` instead. Pauses are in seconds."""

    attempts: int = 5
    pause: float = 0.1
    """After the first refusal, if the server recommends none. It doubles, and is jittered."""
    pause_max: float = 5.0

    def pause_after(self, attempt: int, error: LeaseholdError) -> float | None:
        """How long to wait before the next try; ``None`` if there is to be none."""
        if attempt >= self.attempts or not isinstance(error, Refused) or error.code not in RETRYABLE:
            return None
        advised = error.retry_after
        if advised is None:
            advised = min(self.pause * 2 ** (attempt - 1), self.pause_max) * random.uniform(0.5, 1.5)
        return min(advised, self.pause_max)


@dataclass(frozen=True)
class Setup:
    """What a client is made of."""

    keeper: Keeper
    namespace: str
    owner: str | None
    ttl: Duration
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def query(self) -> str:
        return f"?namespace={query_value(self.namespace)}"


def set_up(
    servers: str,
    *,
    owner: str | None,
    namespace: str,
    ttl: Duration,
    token: str | None,
    token_file: str | os.PathLike[str] | None,
    allow_cleartext_token: bool,
    cacert: str | None,
    ssl_context: ssl.SSLContext | None,
    patience: Duration,
    heartbeat: str,
    clock: Clock | None,
) -> Setup:
    parsed = parse_servers(servers)
    parts = {"ttl/3": 3, "ttl/6": 6}
    if heartbeat not in parts:
        raise UsageError(f"heartbeat: {heartbeat!r} is neither ttl/3 nor ttl/6")
    settings = Settings(patience=nanos(patience, "patience"), heartbeat_part=parts[heartbeat])
    access = Access(
        parsed,
        token=token,
        token_file=token_file,
        allow_cleartext_token=allow_cleartext_token,
        cacert=cacert,
        context=ssl_context,
    )
    return Setup(Keeper(parsed, settings, access, clock or SystemClock()), namespace, owner, ttl)


def from_environment(given: Mapping[str, Any]) -> dict[str, Any]:
    """``LEASEHOLD_ADDR``, ``LEASEHOLD_NAMESPACE``, ``LEASEHOLD_TOKEN``, ``LEASEHOLD_TOKEN_FILE``,
    ``LEASEHOLD_ALLOW_CLEARTEXT_TOKEN``, ``LEASEHOLD_CACERT``, under what is given."""
    environment = os.environ
    found: dict[str, Any] = {"servers": environment.get("LEASEHOLD_ADDR", "http://127.0.0.1:8080")}
    token, token_file = environment.get("LEASEHOLD_TOKEN"), environment.get("LEASEHOLD_TOKEN_FILE")
    if "token" in given or "token_file" in given:
        token = token_file = None
    elif token and token_file:
        raise UsageError("set LEASEHOLD_TOKEN or LEASEHOLD_TOKEN_FILE, not both")
    for name, value in (
        ("namespace", environment.get("LEASEHOLD_NAMESPACE")),
        ("token", token),
        ("token_file", token_file),
        ("allow_cleartext_token", environment.get("LEASEHOLD_ALLOW_CLEARTEXT_TOKEN") == "1"),
        ("cacert", environment.get("LEASEHOLD_CACERT")),
    ):
        if value:
            found[name] = value
    return {**found, **given}


@dataclass(frozen=True)
class Under:
    """The session that a grant is to stand under."""

    item: Item
    id: str


@dataclass(frozen=True)
class LockSpec:
    """How a lock, or a set of them, is asked for."""

    setup: Setup = field(repr=False)
    what: What
    owner: str | None = None
    ttl: Duration = TTL
    wait: Duration | None = 0
    metadata: Json | None = None
    reclaim_window: Duration = 0
    is_kept: bool = True
    under: Under | None = field(default=None, repr=False)

    def order(self, wait: Duration | None) -> Item:
        """Asks. The item's future says what comes of it."""
        setup, under = self.setup, self.under
        if under is not None and under.item.key is None:
            raise LeaseLost("session")
        payload = Payload(
            what=self.what,
            owner=self.owner or setup.owner or f"{os.getpid()}-{setup.nonce[:8]}-{secrets.token_hex(4)}",
            request_id=secrets.token_hex(16),
            ttl=nanos(self.ttl, "ttl") if under is None else None,
            session=under.id if under else None,
            reclaim_window=nanos(self.reclaim_window, "reclaim_window"),
            metadata=self.metadata,
            query=setup.query,
        )
        length = None if wait is None else nanos(wait, "wait")
        session = under.item.key if under else None
        ask = Ask(payload.ttl or 0, Wait(length), self.is_kept, session)
        return setup.keeper.acquire(payload, ask, under.item.belief if under else None)

    def with_wait(self: S, wait: Duration | None) -> S:
        return replace(self, wait=wait)


def claim(lock: LockName) -> Claim:
    if isinstance(lock, Claim):
        return lock
    if isinstance(lock, str):
        return Claim(lock)
    name, mode = lock
    if mode not in ("shared", "exclusive"):
        raise UsageError(f"{mode!r} is no mode: write shared or exclusive")
    return Claim(name, None if mode == "exclusive" else mode)


def one(lock: str, shared: bool, permits: int | None) -> Claim:
    if shared and permits is not None:
        raise UsageError("a lock is shared or has permits, not both")
    return Claim(lock, "shared" if shared else None, permits)


def several(locks: Iterable[LockName]) -> tuple[Claim, ...]:
    if isinstance(locks, str):
        raise UsageError("a set is a list of locks, not one text")
    return tuple(claim(lock) for lock in locks)


def session_spec(setup: Setup, owner: str | None, ttl: Duration | None, metadata: Json | None) -> LockSpec:
    return LockSpec(
        setup,
        SessionSpec(),
        owner=owner or setup.owner,
        ttl=setup.ttl if ttl is None else ttl,
        metadata=metadata,
    )


class LeaseView:
    """A lease as its holder sees it. All of it reads the client's own clock and what was confirmed: no request."""

    def __init__(self, keeper: Keeper, item: Item, grant: Grant) -> None:
        self._keeper = keeper
        self._item = item
        self._grant = grant
        self._belief: Belief = item.belief
        self._is_given_back = False

    @property
    def fencing_token(self) -> int:
        """To be shown with every write to what the lock guards."""
        return self._grant.token

    @property
    def lease_id(self) -> str:
        """A secret: whoever knows it can renew and release."""
        return self._grant.lease_id

    @property
    def owner(self) -> str:
        return self._item.payload.owner

    @property
    def name(self) -> str:
        """The lock in its canonical spelling; of a set the first one as it was asked for."""
        return self._grant.lock or (self.locks[0] if self.locks else "")

    @property
    def locks(self) -> list[str]:
        """What was asked for."""
        return [one.lock for one in self._item.payload.claims]

    @property
    def waited(self) -> float:
        """How long it stood in line, in seconds."""
        return self._grant.waited_ms / 1000

    @property
    def is_replayed(self) -> bool:
        """Whether it was granted to an earlier try of the same request."""
        return self._grant.replayed

    @property
    def epoch(self) -> int:
        """The epoch of the server that granted it."""
        return self._grant.epoch

    @property
    def standing(self) -> Standing | None:
        return self._belief.standing

    @property
    def ttl(self) -> float:
        """How long it stands without a renewal, in seconds."""
        standing = self._belief.standing
        return standing.ttl / 1e9 if standing else 0.0

    @property
    def state(self) -> State:
        """``VALID``, ``JEOPARDY`` from half of the ttl on without a renewal, or ``LOST``."""
        return State.LOST if self._is_foreign else self._belief.state()

    @property
    def is_valid(self) -> bool:
        return self.state is State.VALID

    @property
    def time_to_work(self) -> float:
        """How long the work may go on without another renewal, in seconds."""
        return 0.0 if self._is_foreign else self._belief.time_to_work()

    @property
    def time_left(self) -> float:
        """How long until another owner may hold the lock, in seconds."""
        return 0.0 if self._is_foreign else self._belief.time_left()

    def check(self) -> None:
        """``LeaseLost`` unless the lease is valid now, by the clock: to be asked right before each write."""
        if self._is_foreign:
            raise LeaseLost("fork")
        state = self._belief.state()
        if state is not State.VALID:
            raise self._belief.error(state)

    def error(self) -> LeaseLost | None:
        """What ``check`` would raise."""
        try:
            self.check()
        except LeaseLost as lost:
            return lost
        return None

    def start_heartbeat(self) -> None:
        """Keeps the lease alive from here on, if it was asked for with ``heartbeat=False``."""
        self._keeper.start_heartbeat(self._item)

    @property
    def _is_foreign(self) -> bool:
        return self._keeper.is_of_parent

    def _is_released(self) -> bool:
        return self._belief._by == "released"

    def _check_path(self) -> tuple[str, Json]:
        return self.name, {"fencing_token": self.fencing_token, "lease_id": self.lease_id}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name or 'session'!r} token={self.fencing_token} {self.state.name.lower()}>"


Callback = Callable[[], object]
