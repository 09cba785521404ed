"""Just enough HTTP/1.1: one request at a time on a connection, kept alive, over TCP or TLS."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ._machine import Failure
from ._names import is_loopback, is_protected, parse_server
from ._version import VERSION
from .errors import UsageError

CONNECT_TIMEOUT = 2.0
IDLE_TIMEOUT = 60.0
"""Shorter than the server's: a connection that is about to be closed is not used."""
ANSWER_BYTES_MAX = 64 << 20
HEAD_BYTES_MAX = 64 << 10
IDLE_MAX = 32
TOKEN_AGE_MAX = 1.0
"""How long a token is shown before its file is read again, in seconds."""
TOKEN_BYTES_MAX = 64 << 10


class NoAnswer(Exception):
    """Why no answer came, and whether the request may have been carried out."""

    def __init__(self, failure: Failure, said: str, is_lasting: bool = False) -> None:
        super().__init__(said)
        self.failure = failure
        self.said = said
        self.is_lasting = is_lasting
        """It will not get better by trying again."""


@dataclass(frozen=True)
class Answered:
    status: int
    body: bytes

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


class Access:
    """Whom we trust, and as whom we come."""

    def __init__(
        self,
        servers: Sequence[str],
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        allow_cleartext_token: bool = False,
        cacert: str | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._servers = frozenset(servers)
        self._is_pinned = cacert is not None
        self._token = Token(token, token_file)
        if self._token.shown is not None and not allow_cleartext_token:
            for server in servers:
                if not is_protected(server) and not is_loopback(server):
                    raise UsageError(f"{server}: the token would be sent unencrypted; use https://")
        self.context = context
        if context is None and any(is_protected(server) for server in servers):
            try:
                self.context = ssl.create_default_context(cafile=cacert)
            except (OSError, ssl.SSLError) as error:
                raise UsageError(f"the certificates of authorities cannot be read: {error}") from None

    def token(self) -> str | None:
        """The token to show now."""
        return self._token.current()

    def has_newer(self, shown: str | None) -> bool:
        """After a 401: whether there is another token by now than the one that was shown."""
        return self._token.read_again() != shown

    def leader(self, current: str, hint: str | None) -> str | None:
        """The leader that the server in use names, if it may be followed there: to a server that was named, or over TLS
        to one that an authority of ``cacert`` has signed. Nothing leads from https to http."""
        if hint is None:
            return None
        try:
            server = parse_server(hint if "://" in hint else f"{current.partition('://')[0]}://{hint}")
        except UsageError:
            return None
        if is_protected(current) and not is_protected(server):
            return None
        is_vouched_for = self._is_pinned and is_protected(current)
        return server if is_vouched_for or server in self._servers else None


class Token:
    """A secret, or the file that it is read from: again now and then, and when a server does not know it."""

    def __init__(self, token: str | None, file: str | os.PathLike[str] | None) -> None:
        if token is not None and file is not None:
            raise UsageError("give a token or a file with one, not both")
        self._file = file
        self._read_at = time.monotonic()
        if file is not None:
            try:
                token = _read(file)
            except OSError as error:
                raise UsageError(f"the file with the token cannot be read: {error}") from None
        if token is not None and not _is_sendable(token):
            raise UsageError("the token cannot be used: no header can carry it")
        self.shown = token

    def current(self) -> str | None:
        if self._file is not None and time.monotonic() - self._read_at >= TOKEN_AGE_MAX:
            return self.read_again()
        return self.shown

    def read_again(self) -> str | None:
        if self._file is not None:
            self._read_at = time.monotonic()
            try:
                token = _read(self._file)
            except OSError:
                # It is just being replaced, perhaps.
                return self.shown
            if _is_sendable(token):
                self.shown = token
        return self.shown


def _read(file: str | os.PathLike[str]) -> str:
    with open(file, encoding="utf-8", errors="replace") as opened:
        return opened.read(TOKEN_BYTES_MAX).strip()


def _is_sendable(token: str) -> bool:
    return bool(token) and token.isascii() and token.isprintable() and " " not in token


def head(
    method: str, host: str, path: str, body: bytes | None, *, token: str | None = None, accept: str | None = None
) -> bytes:
    """A request up to its body, and that."""
    text = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: leasehold-python/{VERSION}\r\n"
    if token:
        text += f"Authorization: Bearer {token}\r\n"
    if accept:
        text += f"Accept: {accept}\r\n"
    if body is not None:
        text += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    elif method != "GET":
        text += "Content-Length: 0\r\n"
    return text.encode("latin-1") + b"\r\n" + (body or b"")


class Connection(asyncio.Protocol):
    """One connection, on which at most one request is under way."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._waiter: asyncio.Future[Any] | None = None
        self._head: tuple[int, dict[str, str]] | None = None
        self._stream: Callable[[bytes], None] | None = None
        self._wants_stream: Callable[[bytes], None] | None = None
        self._chunks: bytearray | None = None
        self._chunk_left = -1
        self.is_open = False
        self.idle_since = 0.0
        self.on_lost: Callable[[Connection], None] | None = None

    # What the loop says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._waiter is None and self._stream is None:
            # Nothing was asked: whatever this is, it is no answer.
            self.abort()
            return
        self._buffer += data
        try:
            self._read()
        except ValueError as error:
            self._break(f"the answer cannot be read: {error}")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        # An answer without a length ends with the connection.
        head, self._head = self._head, None
        if head is not None and self._stream is None and self._chunks is None and "content-length" not in head[1]:
            self._head = head
            self._whole(bytes(self._buffer))
        self._break(str(exc) if exc else "the connection was closed")
        if self.on_lost is not None:
            self.on_lost(self)

    # What is asked.

    async def request(self, data: bytes) -> Answered:
        """Sends, and waits for the whole answer. A request that is cancelled closes the connection."""
        answer = await self._ask(data)
        assert isinstance(answer, Answered)
        return answer

    async def stream(self, data: bytes, on_bytes: Callable[[bytes], None]) -> tuple[int, dict[str, str]]:
        """Sends, and waits until the answer begins. A success is then told in pieces, until the connection closes."""
        answer = await self._ask(data, on_bytes)
        assert isinstance(answer, tuple)
        return answer

    async def _ask(self, data: bytes, on_bytes: Callable[[bytes], None] | None = None) -> Any:
        if not self.is_open or self._transport is None:
            raise NoAnswer(Failure.UNSENT, "the connection was closed")
        self._waiter = self._loop.create_future()
        self._wants_stream = on_bytes
        self._transport.write(data)
        try:
            return await self._waiter
        except asyncio.CancelledError:
            self.abort()
            raise
        finally:
            self._waiter = None

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def close_in_child(self) -> None:
        """Closes the descriptor of a forked process and nothing else: the parent goes on with the connection."""
        inner = self._transport.get_extra_info("socket") if self._transport is not None else None
        own = getattr(inner, "_sock", None)
        if isinstance(own, socket.socket):
            own.close()

    # Reading.

    def _read(self) -> None:
        if self._head is None and not self._read_head():
            return
        if self._head is None:
            return
        status, headers = self._head
        if self._wants_stream is not None and self._stream is None and status == 200:
            self._stream = self._wants_stream
            self._done((status, headers))
        if headers.get("transfer-encoding", "").lower() == "chunked":
            self._read_chunks()
            return
        if self._stream is not None:
            data, self._buffer = bytes(self._buffer), bytearray()
            self._stream(data)
            return
        length = 0 if status in (204, 304) else self._length(headers)
        if length is None:
            if len(self._buffer) > ANSWER_BYTES_MAX:
                raise ValueError("it is too long")
        elif len(self._buffer) >= length:
            body = bytes(self._buffer[:length])
            del self._buffer[:length]
            self._whole(body)

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > HEAD_BYTES_MAX:
                raise ValueError("its head is too long")
            return False
        lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        parts = lines[0].split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
            raise ValueError("it is not HTTP/1.1")
        status = int(parts[1])
        if status < 200:
            return self._read_head()
        headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        if parts[0] == "HTTP/1.0":
            headers.setdefault("connection", "close")
        self._head, self._chunks, self._chunk_left = (status, headers), None, -1
        return True

    @staticmethod
    def _length(headers: dict[str, str]) -> int | None:
        length = headers.get("content-length")
        if length is None:
            return None
        if not length.isdigit() or int(length) > ANSWER_BYTES_MAX:
            raise ValueError(f"its length is {length!r}")
        return int(length)

    def _read_chunks(self) -> None:
        if self._chunks is None:
            self._chunks = bytearray()
        while True:
            if self._chunk_left < 0:
                end = self._buffer.find(b"\r\n")
                if end < 0:
                    return
                self._chunk_left = int(bytes(self._buffer[:end]).split(b";")[0] or b"0", 16)
                del self._buffer[: end + 2]
                if self._chunk_left == 0:
                    del self._buffer[:2]
                    self._whole(bytes(self._chunks))
                    return
            if len(self._buffer) < self._chunk_left + 2:
                return
            data = bytes(self._buffer[: self._chunk_left])
            del self._buffer[: self._chunk_left + 2]
            self._chunk_left = -1
            if self._stream is not None:
                self._stream(data)
            else:
                self._chunks += data
                if len(self._chunks) > ANSWER_BYTES_MAX:
                    raise ValueError("it is too long")

    def _whole(self, body: bytes) -> None:
        assert self._head is not None
        status, headers = self._head
        self._head, self._chunks = None, None
        if self._stream is not None:
            # The end of what is told in pieces.
            self.abort()
            return
        if headers.get("connection", "").lower() == "close":
            self.is_open = False
        if self._wants_stream is not None:
            self._done((status, {**headers, "": body.decode("utf-8", "replace")}))
            return
        self._done(Answered(status, body))

    def _done(self, answer: Any) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(answer)

    def _break(self, said: str) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(NoAnswer(Failure.UNKNOWN, said))
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream(b"")
        self.abort()


class Pool:
    """Connections to one server, kept for the next request. One is reserved for what keeps and ends leases."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: str, access: Access) -> None:
        self._loop = loop
        self.server = server
        self._access = access
        parts = urlsplit(server)
        self._host, self._port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        self._authority = parts.netloc
        self._tls = access.context if parts.scheme == "https" else None
        self._idle: list[Connection] = []
        self._reserved: Connection | None = None
        self._is_closed = False
        self.all: set[Connection] = set()

    async def connect(self) -> Connection:
        said = ""
        try:
            making = self._loop.create_connection(
                lambda: Connection(self._loop),
                self._host,
                self._port,
                ssl=self._tls,
                server_hostname=self._host if self._tls else None,
            )
            _, connection = await asyncio.wait_for(making, CONNECT_TIMEOUT)
        except ssl.SSLCertVerificationError as error:
            said = f"{self.server}: its certificate cannot be trusted: {error.verify_message}"
            raise NoAnswer(Failure.UNSENT, said, is_lasting=True) from None
        except (asyncio.TimeoutError, TimeoutError):
            raise NoAnswer(Failure.UNSENT, f"{self.server}: no answer in {CONNECT_TIMEOUT:g} s") from None
        except OSError as error:
            raise NoAnswer(Failure.UNSENT, f"{self.server}: {error.strerror or error}") from None
        self.all.add(connection)
        connection.on_lost = self._forget
        return connection

    async def warm(self) -> None:
        """Makes a connection for the next request; a server that accepts one is there."""
        self._keep(await self.connect(), is_reserved=False)

    async def send(self, method: str, path: str, body: bytes | None, is_reserved: bool = False) -> Answered:
        token = self._access.token()
        answered = await self._send(method, path, body, is_reserved, token)
        if answered.status == 401 and self._access.has_newer(token):
            answered = await self._send(method, path, body, is_reserved, self._access.token())
        return answered

    async def _send(self, method: str, path: str, body: bytes | None, is_reserved: bool, token: str | None) -> Answered:
        connection = self._take(is_reserved) or await self.connect()
        try:
            answered = await connection.request(head(method, self._authority, path, body, token=token))
        except NoAnswer as failure:
            failure.said = f"{self.server}: {failure.said}"
            raise
        self._keep(connection, is_reserved)
        return answered

    async def stream(
        self, path: str, accept: str, on_bytes: Callable[[bytes], None]
    ) -> tuple[Connection, int, dict[str, str]]:
        """On a connection of its own, which the caller closes."""
        token = self._access.token()
        connection, status, headers = await self._stream(path, accept, on_bytes, token)
        if status == 401 and self._access.has_newer(token):
            connection.abort()
            return await self._stream(path, accept, on_bytes, self._access.token())
        return connection, status, headers

    async def _stream(
        self, path: str, accept: str, on_bytes: Callable[[bytes], None], token: str | None
    ) -> tuple[Connection, int, dict[str, str]]:
        connection = await self.connect()
        asked = head("GET", self._authority, path, None, token=token, accept=accept)
        try:
            status, headers = await connection.stream(asked, on_bytes)
        except BaseException:
            connection.abort()
            raise
        return connection, status, headers

    def close(self) -> None:
        """Closes what is idle; what is under way closes when it is done."""
        self._is_closed = True
        for connection in [*self._idle, *([self._reserved] if self._reserved else [])]:
            connection.abort()
        self._idle, self._reserved = [], None

    def _take(self, is_reserved: bool) -> Connection | None:
        if is_reserved and self._reserved is not None:
            connection, self._reserved = self._reserved, None
            if connection.is_open:
                return connection
        oldest = self._loop.time() - IDLE_TIMEOUT
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    def _keep(self, connection: Connection, is_reserved: bool) -> None:
        if not connection.is_open or self._is_closed:
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        if is_reserved and self._reserved is None:
            self._reserved = connection
        elif len(self._idle) < IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.abort()

    def _forget(self, connection: Connection) -> None:
        self.all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        if connection is self._reserved:
            self._reserved = None
