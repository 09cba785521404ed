"""Answers in all the ways that HTTP/1.1 knows, and in some that it does not."""

from __future__ import annotations

import asyncio

import pytest

from leasehold._http import Access, Answered, NoAnswer, Pool
from leasehold._machine import Failure


def ask(*answers: bytes, is_closed: bool = False) -> list[Answered]:
    """What is read of answers that come in pieces of a few bytes."""

    async def main() -> list[Answered]:
        left = list(answers)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while left:
                try:
                    await reader.readuntil(b"\r\n\r\n")
                except asyncio.IncompleteReadError:
                    break
                answer = left.pop(0)
                for at in range(0, len(answer), 7):
                    writer.write(answer[at : at + 7])
                    await writer.drain()
                if is_closed:
                    break
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        pool = Pool(asyncio.get_running_loop(), f"http://127.0.0.1:{port}", Access([]))
        try:
            return [await asyncio.wait_for(pool.send("GET", "/", None), 5) for _ in answers]
        finally:
            pool.close()
            for connection in list(pool.all):
                connection.abort()
            server.close()
            await asyncio.sleep(0)

    return asyncio.run(main())


def test_lengths_chunks_and_nothing_follow_each_other() -> None:
    told = ask(
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 409 Conflict\r\ntransfer-encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n10;x=y\r\n0123456789abcdef\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    )
    assert [one.status for one in told] == [200, 409, 204, 200]
    assert [one.body for one in told] == [b"hello", b"abc0123456789abcdef", b"", b""]


def test_answer_without_a_length_ends_with_the_connection() -> None:
    assert ask(b"HTTP/1.0 200 OK\r\n\r\nall of it", is_closed=True)[0].body == b"all of it"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
def test_what_cannot_be_read_is_no_answer_and_may_have_been_done(answer: bytes) -> None:
    with pytest.raises(NoAnswer) as error:
        ask(answer, is_closed=True)
    assert error.value.failure is Failure.UNKNOWN


def test_what_cannot_be_connected_to_was_not_done() -> None:
    async def main() -> None:
        pool = Pool(asyncio.get_running_loop(), "http://127.0.0.1:1", Access([]))
        with pytest.raises(NoAnswer) as error:
            await pool.send("POST", "/", b"{}")
        assert error.value.failure is Failure.UNSENT

    asyncio.run(main())
