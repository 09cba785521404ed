"""What is asked of a server for one lease, in JSON over HTTP."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Union

from ._duration import millis
from ._http import Answered
from ._machine import Answer, Granted, Refusal, Released, Renewed, Request
from ._machine.types import MILLISECOND
from ._names import path_part
from .errors import read_problem

HTTP_WAIT_MAX = 50_000
"""Over HTTP the server waits no longer in one request; a ticket keeps the place for the next. In milliseconds."""

Json = dict[str, Any]
Ask = tuple[str, str, bytes | None]
"""Method, path with its query, body."""


@dataclass(frozen=True)
class Claim:
    """One lock that is asked for: ``mode`` is ``exclusive`` if not set, or ``shared``; or a number of permits."""

    lock: str
    mode: str | None = None
    permits: int | None = None

    def json(self) -> Json:
        """As the interface has it."""
        body: Json = {"lock": self.lock}
        if self.mode is not None:
            body["mode"] = self.mode
        if self.permits is not None:
            body["permits"] = self.permits
        return body


@dataclass(frozen=True)
class SessionSpec:
    """A session that is to be opened."""

    on_disconnect: str = "release"


What = Union[Claim, tuple[Claim, ...], SessionSpec]


@dataclass(frozen=True)
class Grant:
    """What the server said about a grant, beside how long it stands."""

    lease_id: str = ""
    token: int = 0
    lock: str | None = None
    """The canonical spelling."""
    waited_ms: int = 0
    replayed: bool = False
    epoch: int = 0
    session_number: int = 0


@dataclass(frozen=True)
class Payload:
    """Everything that does not change between two tries."""

    what: What
    owner: str
    request_id: str
    ttl: int | None = None
    """A lease of its own; without it the grant stands under ``session``."""
    session: str | None = None
    reclaim_window: int = 0
    metadata: Json | None = None
    query: str = field(default="", repr=False)

    @property
    def claims(self) -> tuple[Claim, ...]:
        if isinstance(self.what, Claim):
            return (self.what,)
        return self.what if isinstance(self.what, tuple) else ()

    def asks(self, request: Request, grant: Grant) -> list[Ask]:
        """The request, or several that do it together."""
        if request.kind == "release" and isinstance(self.what, tuple) and self.session is not None:
            return [self._release(claim.lock, grant) for claim in parts_to_release(self.what)]
        return [self._one(request, grant)]

    def _one(self, request: Request, grant: Grant) -> Ask:
        what, query = self.what, self.query
        if request.kind == "acquire":
            if isinstance(what, SessionSpec):
                return _post(f"/v1/sessions{query}", self._open(what))
            if isinstance(what, Claim):
                body = what.json()
                return _post(f"/v1/locks/{path_part(body.pop('lock'))}/acquire{query}", self._acquire(request, body))
            locks = {"locks": [claim.json() for claim in what]}
            return _post(f"/v1/sets/acquire{query}", self._acquire(request, locks))
        if isinstance(what, Claim):
            if request.kind == "release":
                return self._release(what.lock, grant)
            return _post(f"/v1/locks/{path_part(what.lock)}/renew{query}", self._held(grant))
        if request.kind == "renew":
            return _post(f"/v1/sessions/{grant.lease_id}/keepalive{query}", {})
        return ("DELETE", f"/v1/sessions/{grant.lease_id}{query}", None)

    def _release(self, lock: str, grant: Grant) -> Ask:
        return _post(f"/v1/locks/{path_part(lock)}/release{self.query}", self._held(grant))

    def _held(self, grant: Grant) -> Json:
        return {"owner_id": self.owner, "lease_id": grant.lease_id, "fencing_token": grant.token}

    def _acquire(self, request: Request, body: Json) -> Json:
        body |= {"owner_id": self.owner, "request_id": self.request_id, "wait_ms": wait_ms(request)}
        if self.ttl is not None:
            body["ttl_ms"] = millis(self.ttl)
        if self.session is not None:
            body["session_id"] = self.session
        if self.reclaim_window:
            body["reclaim_ms"] = millis(self.reclaim_window)
        if request.ticket is not None:
            body["ticket"] = request.ticket
        if self.metadata is not None:
            body["metadata"] = self.metadata
        return body

    def _open(self, what: SessionSpec) -> Json:
        body: Json = {"owner_id": self.owner, "ttl_ms": millis(self.ttl or 0), "request_id": self.request_id}
        body["on_disconnect"] = what.on_disconnect
        if self.metadata is not None:
            body["metadata"] = self.metadata
        return body

    def read(self, request: Request, answered: Answered) -> tuple[Answer, Grant | None] | None:
        """What an answer says; ``None`` if it cannot be read."""
        if not answered.is_success:
            problem = read_problem(answered.status, answered.body)
            return None if problem is None else (Refusal(problem), None)
        if request.kind == "release":
            return Released(), None
        try:
            body = json.loads(answered.body)
            ttl, left = body["ttl_ms"] * MILLISECOND, body["expires_in_ms"] * MILLISECOND
            if request.kind == "renew":
                return Renewed(ttl, left), None
            grant = Grant(
                lease_id=str(body["session_id" if isinstance(self.what, SessionSpec) else "lease_id"]),
                token=int(body.get("fencing_token", 0)),
                lock=body.get("lock"),
                waited_ms=int(body.get("waited_ms", 0)),
                replayed=bool(body.get("replayed", False)),
                epoch=int(body["epoch"]),
                session_number=int(body.get("session", 0)),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return None
        return Granted(ttl, left), grant


def parts_to_release(claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
    """What of a set must be named to give back all of it while its session goes on: with a name or a path everything
    under the same token ends, bytes of files are given back one by one."""
    named = [claim for claim in claims if not claim.lock.startswith("inode:")]
    return (named[0],) if named else claims


def wait_ms(request: Request) -> int:
    length = request.wait.length
    return HTTP_WAIT_MAX if length is None else min(millis(length), HTTP_WAIT_MAX)


def _post(path: str, body: Json) -> Ask:
    return ("POST", path, encode(body))


def encode(body: Json) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
