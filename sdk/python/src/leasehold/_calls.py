"""The requests of the HTTP interface, one method for each."""

from __future__ import annotations

import json
from abc import abstractmethod
from typing import Any, Generic, TypeVar

from ._http import Answered
from ._names import path_part, query_value
from ._payload import Json, encode
from .errors import UsageError, read_problem, refusal, unreadable

R = TypeVar("R")
"""What a call comes to: a body, or something that can be awaited for one."""


class Calls(Generic[R]):
    """The requests of the HTTP interface one by one, with nothing kept alive: for tools.

    What they take and give is what the interface has, as dictionaries; see ``/openapi.json`` of a server. A request is
    repeated only if it certainly was not carried out, or only reads; for the client's patience at most. Programs use
    ``client.lock`` and ``client.session``.
    """

    _query: str

    @abstractmethod
    def _ask(self, method: str, path: str, body: Json | None = None) -> R:
        """Asks, and reads the answer."""

    def acquire(self, lock: str, **body: Any) -> R:
        """Takes one lock: ``owner_id``, ``ttl_ms``, ``wait_ms``, ``mode``, ``permits``, ``session_id``, ``request_id``,
        ``reclaim_ms``, ``reclaim``, ``ticket``, ``metadata``. The grant is not kept alive."""
        return self._of_lock(lock, "acquire", body)

    def renew(self, lock: str, **body: Any) -> R:
        """Moves the deadline of a grant: ``owner_id``, ``lease_id``, ``fencing_token``, ``ttl_ms``."""
        return self._of_lock(lock, "renew", body)

    def release(self, lock: str, **body: Any) -> R:
        """Gives a grant back: ``owner_id``, ``lease_id``, ``fencing_token``."""
        return self._of_lock(lock, "release", body)

    def test(self, lock: str, **body: Any) -> R:
        """Says whether a lock could be had now, and who is in the way if not: ``owner_id``, ``mode``, ``permits``."""
        return self._of_lock(lock, "test", body)

    def check(self, lock: str, **body: Any) -> R:
        """Says whether a fencing token is a current holder's: ``fencing_token``, ``lease_id``."""
        return self._of_lock(lock, "check", body)

    def unlock(self, lock: str, **body: Any) -> R:
        """Gives back bytes of a file, whatever grants they came from: ``owner_id``, ``session_id``."""
        return self._of_lock(lock, "unlock", body)

    def break_lock(self, lock: str, **body: Any) -> R:
        """Ends what is held, for operators: ``reason``, ``fencing_token``."""
        return self._of_lock(lock, "break", body)

    def get(self, lock: str) -> R:
        """One lock: its state, its holders, who waits."""
        return self._ask("GET", f"/v1/locks/{path_part(lock)}{self._query}")

    def list(self, **query: Any) -> R:
        """A page of the locks that are held: ``prefix``, ``state``, ``owner_id``, ``session_id``, ``page_size``,
        ``page_token``."""
        return self._ask("GET", self._with("/v1/locks", query))

    def acquire_set(self, **body: Any) -> R:
        """Takes several locks (``locks``), all or nothing, under one lease; the rest as ``acquire``."""
        return self._ask("POST", f"/v1/sets/acquire{self._query}", body)

    def open_session(self, **body: Any) -> R:
        """Opens a session: ``owner_id``, ``ttl_ms``, ``adapter``, ``on_disconnect``, ``request_id``, ``metadata``."""
        return self._ask("POST", f"/v1/sessions{self._query}", body)

    def keep_alive(self, session_id: str, **body: Any) -> R:
        """Renews a session, or the lease of a set: ``ttl_ms``."""
        return self._ask("POST", f"/v1/sessions/{path_part(session_id)}/keepalive{self._query}", body)

    def close_session(self, session_id: str) -> R:
        """Ends a session, or the lease of a set."""
        return self._ask("DELETE", f"/v1/sessions/{path_part(session_id)}{self._query}")

    def break_session(self, number: int, **body: Any) -> R:
        """Ends a session by its number, as lists tell it: ``reason``."""
        return self._ask("POST", f"/v1/sessions/{number}/break{self._query}", body)

    def get_session(self, session_id: str) -> R:
        return self._ask("GET", f"/v1/sessions/{path_part(session_id)}{self._query}")

    def list_sessions(self, **query: Any) -> R:
        """A page of the sessions that are open: ``page_size``, ``page_token``."""
        return self._ask("GET", self._with("/v1/sessions", query))

    def accept_fence(self, name: str, fencing_token: int) -> R:
        """Shows a token to a register; a stale one is refused with ``StaleFence``."""
        return self._ask("POST", f"/v1/fences/{path_part(name)}/accept{self._query}", {"fencing_token": fencing_token})

    def get_fence(self, name: str) -> R:
        """The highest token that a register has seen."""
        return self._ask("GET", f"/v1/fences/{path_part(name)}{self._query}")

    def list_fences(self, **query: Any) -> R:
        """A page of the fence registers, by name: ``page_size``, ``page_token``."""
        return self._ask("GET", self._with("/v1/fences", query))

    def delete_fence(self, name: str, **body: Any) -> R:
        """Removes a fence register, for operators: ``reason``. What it has seen is forgotten."""
        return self._ask("DELETE", f"/v1/fences/{path_part(name)}{self._query}", body)

    def remove_inode(self, inode: int) -> R:
        """Drops every lock and every waiter of a file that is gone."""
        return self._ask("DELETE", f"/v1/inodes/{inode}{self._query}")

    def events(self, **query: Any) -> R:
        """What has happened since ``after``; waits up to ``wait_ms`` if there is nothing yet: ``prefix``."""
        return self._ask("GET", self._with("/v1/events", query))

    def graph(self) -> R:
        """The wait-for graph."""
        return self._ask("GET", f"/v1/graph{self._query}")

    def history(self, **query: Any) -> R:
        """Past holders with their tokens and ends, as far as the server remembers: ``lock``."""
        return self._ask("GET", self._with("/v1/history", query))

    def token(self, fencing_token: int) -> R:
        """The grant that carries a fencing token, held or ended, as far as the server remembers."""
        return self._ask("GET", f"/v1/tokens/{fencing_token}{self._query}")

    def overview(self) -> R:
        """Numbers, the longest waits, the leases that end next."""
        return self._ask("GET", f"/v1/overview{self._query}")

    def tree(self, **query: Any) -> R:
        """The locks that are held as a tree: what follows after a ``prefix``, up to the next slash."""
        return self._ask("GET", self._with("/v1/tree", query))

    def limits(self) -> R:
        """The limits of the server."""
        return self._ask("GET", "/v1/limits")

    def cluster(self) -> R:
        """The server that answers, and who leads which group of namespaces."""
        return self._ask("GET", "/v1/cluster")

    def version(self) -> R:
        """What the server is, and which interfaces it speaks."""
        return self._ask("GET", "/v1/version")

    def ready(self) -> R:
        """Whether requests for locks are served, and how each part is."""
        return self._ask("GET", "/readyz?verbose=1")

    def raw(self, method: str, path: str, body: Json | None = None) -> R:
        """Any request of the HTTP interface: a path with its query."""
        return self._ask(method, path, body)

    def _of_lock(self, lock: str, verb: str, body: Json) -> R:
        if not lock:
            raise UsageError("a lock has a name")
        return self._ask("POST", f"/v1/locks/{path_part(lock)}/{verb}{self._query}", body)

    def _with(self, path: str, query: Json) -> str:
        given = "".join(f"&{name}={query_value(str(value))}" for name, value in query.items() if value is not None)
        return f"{path}{self._query}{given}"


def body_of(body: Json | None) -> bytes | None:
    if body is None:
        return None
    return encode({name: value for name, value in body.items() if value is not None})


def read(answered: Answered) -> Json:
    """What was asked for; raises why not."""
    if not answered.is_success:
        problem = read_problem(answered.status, answered.body)
        raise unreadable(answered.status) if problem is None else refusal(problem)
    try:
        said = json.loads(answered.body) if answered.body else {}
    except ValueError:
        raise unreadable(answered.status) from None
    return said if isinstance(said, dict) else {"answer": said}
