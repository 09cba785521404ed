"""What can go wrong, and whether anything came of it.

*Refused* is an answer, *unreachable* is the lack of one; no class is both. Every error has ``outcome``:
``not_applied``, ``applied`` or ``unknown``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from ._codes import HELD

Outcome = Literal["not_applied", "applied", "unknown"]
LostBy = Literal["lapse", "jeopardy", "server", "session", "released", "fork"]


@dataclass(frozen=True)
class Holder:
    """Somebody who holds what was asked for, or a part of it."""

    lock: str
    owner_id: str
    mode: str
    fencing_token: int
    expires_in_ms: int
    state: str = "held"
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class WaitEdge:
    """One step of a cycle: ``waiter`` waits for ``lock`` because of ``blocker``."""

    waiter: str
    lock: str
    blocker: str


@dataclass
class Problem:
    """A refusal as the server said it (``application/problem+json``); ``fields`` has all of it."""

    code: str
    detail: str
    outcome: str
    status: int = 0
    request_id: str = ""
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def recommended_retry_ms(self) -> int | None:
        """When a retry makes sense."""
        return _number(self.fields.get("recommended_retry_ms"))

    @property
    def ticket(self) -> str | None:
        """What keeps the place in the queue."""
        return _text(self.fields.get("ticket"))

    @property
    def leader(self) -> str | None:
        """The server that leads, where another was asked."""
        return _text(self.fields.get("leader"))

    @property
    def reason(self) -> str | None:
        """Why a lease or a token is no good any more."""
        return _text(self.fields.get("reason"))


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def read_problem(status: int, body: bytes) -> Problem | None:
    """The problem in an answer; ``None`` if nobody who answers so is a Leasehold server."""
    try:
        said = json.loads(body)
    except ValueError:
        said = None
    if isinstance(said, dict):
        code, outcome = said.get("code"), said.get("outcome")
        if isinstance(code, str) and outcome in ("not_applied", "applied", "unknown"):
            detail, request_id = said.get("detail"), said.get("request_id")
            return Problem(
                code,
                detail if isinstance(detail, str) else "",
                outcome,
                status,
                request_id if isinstance(request_id, str) else "",
                said,
            )
    # Whoever stands before the server and lets nobody in need not speak as it does.
    denied = {401: "unauthenticated", 403: "permission_denied"}.get(status)
    if denied is not None:
        return Problem(denied, f"the answer is {status}", "not_applied", status)
    return None


class LeaseholdError(Exception):
    """The base of all errors of this package."""

    outcome: Outcome = "not_applied"
    """Whether anything came of the request."""
    problem: Problem | None = None
    """Everything that the server said, if it did."""

    @property
    def code(self) -> str | None:
        """The server's code, if it gave one: programs decide by it."""
        return self.problem.code if self.problem else None

    @property
    def reason(self) -> str | None:
        """Why a lease or a token is no good any more, if the server said it: ``expired``, ``released``, ``superseded``,
        ``other_scope``, ``unknown``."""
        return self.problem.reason if self.problem else None


class Refused(LeaseholdError):
    """The server said no; ``code`` says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.code}: {problem.detail}" if problem.detail else problem.code)
        self.problem = self._said = problem
        self.outcome = cast(Outcome, problem.outcome)

    @property
    def detail(self) -> str:
        """What the server says to people."""
        return self._said.detail

    @property
    def retry_after(self) -> float | None:
        """When the server thinks that a retry makes sense, in seconds from now."""
        hint = self._said.recommended_retry_ms
        return None if hint is None else hint / 1000


class Held(Refused):
    """Somebody else has it, and the wait is over."""

    @property
    def holders(self) -> list[Holder]:
        """Those in the way; the first few if they are many."""
        known = Holder.__dataclass_fields__
        listed = self._said.fields.get("holders") or []
        return [Holder(**{name: one[name] for name in known if name in one}) for one in listed]

    @property
    def waiters(self) -> int:
        """How many wait already."""
        return _number(self._said.fields.get("waiters")) or 0

    @property
    def ticket(self) -> str | None:
        """What keeps the place in the queue."""
        return self._said.ticket


class Deadlock(Refused):
    """Waiting would have closed a cycle."""

    @property
    def cycle(self) -> list[WaitEdge]:
        """Who waits for which lock because of whom, all the way round."""
        listed = self._said.fields.get("cycle") or []
        return [WaitEdge(one["waiter"], one["lock"], one["blocker"]) for one in listed]


class StaleFence(Refused):
    """The register, or ``Fence``, has seen a higher fencing token."""

    @property
    def high_water(self) -> int:
        """The highest token seen."""
        return _number(self._said.fields.get("high_water")) or 0


class LeaseLost(LeaseholdError):
    """The lease is over, or must be taken for over. ``by`` says how:

    ``jeopardy``: no renewal was confirmed for half of the ttl, so the work must stop, and no other owner can have it
    yet; ``lapse``: the ttl is over; ``server``: it said so, ``code`` says why; ``session``: its session was closed;
    ``released``: it was given back; ``fork``: it belongs to the parent process.
    """

    def __init__(self, by: LostBy, problem: Problem | None = None) -> None:
        said = {
            "lapse": "it was not renewed in time",
            "jeopardy": "no renewal was confirmed in time, so the work must stop",
            "session": "its session was closed",
            "released": "it was given back",
            "fork": "it belongs to the parent process",
            "server": f"the server says {problem.code}: {problem.detail}" if problem else "the server says so",
        }
        super().__init__(f"the lease is over: {said[by]}")
        self.by: LostBy = by
        self.problem = problem

    @property
    def code(self) -> str | None:
        """What the server said, or ``lease_lost`` if it said nothing."""
        return self.problem.code if self.problem else "lease_lost"


class Unreachable(LeaseholdError):
    """No server answered; ``outcome`` says whether the request may have been carried out all the same."""

    def __init__(self, detail: str, outcome: Outcome = "not_applied") -> None:
        super().__init__(f"no server could be reached: {detail}")
        self.outcome = outcome


class Closed(LeaseholdError):
    """The client was closed, or belongs to the parent process."""

    def __init__(self, said: str = "the client is closed") -> None:
        super().__init__(said)


class UsageError(LeaseholdError, ValueError):
    """Something that the client was given cannot be used: an address, a duration, a token, a certificate."""


def refusal(problem: Problem) -> Refused:
    """The error for a problem."""
    if problem.code in HELD:
        return Held(problem)
    if problem.code == "deadlock":
        return Deadlock(problem)
    if problem.code == "stale_fence":
        return StaleFence(problem)
    return Refused(problem)


def unreadable(status: int) -> Unreachable:
    """The error for an answer that none of our servers gives."""
    return Unreachable(f"something that is no Leasehold server answered with {status}", "unknown")
