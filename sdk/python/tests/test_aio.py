"""The shapes of the client for asyncio. The body under a lock is cancelled in jeopardy, and nobody else is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leasehold import AsyncClient, AsyncLease, Closed, Held, LeaseLost, State, TestClock

from .fake import Fake, Json, problem


def run(fake: Fake, clock: TestClock, body: Callable[[AsyncClient], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with AsyncClient(fake.url, clock=clock, patience=2) as client:
            return await body(client)

    return asyncio.run(main())


def test_body_runs_with_the_lock_and_gives_it_back(fake: Fake, clock: TestClock) -> None:
    async def body(client: AsyncClient) -> None:
        async with client.lock("a", ttl=30) as lease:
            assert lease.is_valid
            assert await lease.verify()
            assert "a" in fake.held
            assert await client.lock("a", owner="other").try_acquire() is None
            with pytest.raises(Held):
                await client.lock("a", owner="other").acquire()
        assert not fake.held

    run(fake, clock, body)


def test_body_is_cancelled_in_jeopardy_and_the_loss_is_raised(fake: Fake, clock: TestClock) -> None:
    async def body(client: AsyncClient) -> None:
        stopped = False
        with pytest.raises(LeaseLost) as lost:
            async with client.lock("a", ttl=30, heartbeat=False):
                clock.advance(15)
                try:
                    await asyncio.sleep(60)
                finally:
                    stopped = True
        assert stopped
        assert lost.value.by == "jeopardy"
        # The task goes on as if nothing had happened.
        await asyncio.sleep(0)

    run(fake, clock, body)


def test_cancellation_from_outside_stays_one(fake: Fake, clock: TestClock) -> None:
    async def body(client: AsyncClient) -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with client.lock("a"):
                inside.set()
                await asyncio.sleep(60)

        task = asyncio.ensure_future(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not fake.held

    run(fake, clock, body)


def test_cancellation_from_outside_counts_more_than_the_loss(fake: Fake, clock: TestClock) -> None:
    if not hasattr(asyncio.Task, "uncancel"):
        pytest.skip("before 3.11 a task does not count who has cancelled it")

    async def body(client: AsyncClient) -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with client.lock("a", ttl=30, heartbeat=False) as lease:
                inside.set()
                try:
                    await asyncio.sleep(60)
                finally:
                    await asyncio.shield(lease.jeopardy())

        task = asyncio.ensure_future(work())
        await inside.wait()
        task.cancel()
        await asyncio.sleep(0)
        clock.advance(15)
        with pytest.raises(asyncio.CancelledError):
            await task

    run(fake, clock, body)


def test_loss_ends_a_timeout_and_a_group_as_itself(fake: Fake, clock: TestClock) -> None:
    if not hasattr(asyncio, "timeout"):
        pytest.skip("there are none before 3.11")

    async def body(client: AsyncClient) -> None:
        with pytest.raises(LeaseLost):
            async with getattr(asyncio, "timeout")(60), client.lock("a", ttl=30, heartbeat=False):  # noqa: B009
                clock.advance(15)
                await asyncio.sleep(60)
        await asyncio.sleep(0)

    run(fake, clock, body)


def test_work_that_ended_after_the_lease_was_over_is_told(fake: Fake, clock: TestClock) -> None:
    async def body(client: AsyncClient) -> None:
        with pytest.raises(LeaseLost) as lost:
            async with client.lock("a", ttl=30):
                clock.advance(31)
        assert lost.value.by == "lapse"

    run(fake, clock, body)


def test_task_that_is_cancelled_leaves_no_lock_behind(fake: Fake, clock: TestClock) -> None:
    async def body(client: AsyncClient) -> None:
        await client.connect()
        fake.instead = lambda *_: (409, problem("lock_held", ticket="t"))
        task = asyncio.ensure_future(client.lock("a", wait=None).acquire())
        deadline = time.monotonic() + 5
        while not any(path.endswith("/acquire") for _, path, _ in fake.seen) and time.monotonic() < deadline:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        fake.instead = lambda *_: None

    run(fake, clock, body)
    assert not fake.held


def test_moments_and_callbacks_tell_of_the_end(fake: Fake, clock: TestClock) -> None:
    async def body(client: AsyncClient) -> None:
        lease = await client.lock("a", ttl=30, heartbeat=False).acquire()
        told = asyncio.Event()
        lease.on_jeopardy(told.set)
        clock.advance(15)
        await asyncio.wait_for(lease.jeopardy(), 5)
        await asyncio.wait_for(told.wait(), 5)
        clock.advance(15)
        await asyncio.wait_for(lease.lost(), 5)
        assert lease.state is State.LOST

    run(fake, clock, body)


def test_decorator_runs_under_the_lock_or_not_at_all(fake: Fake, clock: TestClock) -> None:
    async def body(client: AsyncClient) -> None:
        @client.locked("nightly", ttl=60, on_held="skip")
        async def nightly(what: str, lease: AsyncLease) -> str:
            assert lease.is_valid
            return what

        assert await nightly("done") == "done"
        async with client.lock("nightly", owner="other"):
            assert await nightly("done") is None

    run(fake, clock, body)


def test_close_ends_what_waits(fake: Fake, clock: TestClock) -> None:
    async def main() -> None:
        client = AsyncClient(fake.url, clock=clock)
        await client.connect()
        inside = asyncio.Event()
        loop = asyncio.get_running_loop()

        def held(method: str, path: str, body: Json) -> tuple[int, Json] | None:
            if path.endswith("/acquire"):
                loop.call_soon_threadsafe(inside.set)
                return 503, {**problem("store_unavailable"), "recommended_retry_ms": 60_000}
            return None

        fake.instead = held
        waiting = asyncio.ensure_future(client.lock("a", wait=None).acquire())
        await inside.wait()
        await client.close()
        with pytest.raises(Closed):
            await waiting

    asyncio.run(main())
