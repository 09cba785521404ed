"""What the driver does for each request. One table for both clients: those of the blocking one run on threads."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from leasehold import (
    AsyncClient,
    Client,
    Deadlock,
    Held,
    LeaseholdError,
    LeaseLost,
    Refused,
    Retry,
    StaleFence,
    TestClock,
    Unreachable,
    UsageError,
)

Line = dict[str, Any]

FEATURES_OF_ALL = ["advance_clock", "keeps_while_blocked", "fork", "token_file"]


def said(error: BaseException) -> Line:
    """An error as the harness reads it."""
    kinds: list[tuple[type[BaseException], str]] = [
        (Held, "held"),
        (Deadlock, "deadlock"),
        (StaleFence, "stale_fence"),
        (Refused, "refused"),
        (LeaseLost, "lease_lost"),
        (Unreachable, "unreachable"),
        (UsageError, "usage"),
        (LeaseholdError, "closed"),
        (asyncio.CancelledError, "cancelled"),
    ]
    kind = next((kind for of, kind in kinds if isinstance(error, of)), "bug")
    line: Line = {"kind": kind, "detail": f"{type(error).__name__}: {error}"}
    if isinstance(error, LeaseholdError):
        line |= {"code": error.code, "outcome": error.outcome}
    if isinstance(error, LeaseLost):
        line["by"] = error.by
    if isinstance(error, Held):
        line |= {"holders": [one.owner_id for one in error.holders], "retry_after_ms": ms(error.retry_after)}
    if isinstance(error, Deadlock):
        line["cycle"] = [[one.waiter, one.lock, one.blocker] for one in error.cycle]
    return line


def ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def seconds(millis: float | None) -> float | None:
    return None if millis is None else millis / 1000


class Driver:
    """The state of one driven process: a client, and what it holds, by name."""

    def __init__(self, is_sync: bool) -> None:
        self.is_sync = is_sync
        self.clock = TestClock()
        self.client: Any = None
        self.things: dict[str, Any] = {}
        self.number = 0
        self.output = threading.Lock()

    def say(self, line: Line) -> None:
        with self.output:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

    def keep(self, letter: str, thing: Any) -> str:
        with self.output:
            self.number += 1
            name = f"{letter}{self.number}"
            self.things[name] = thing
        return name

    async def do(self, call: Callable[[], Any]) -> Any:
        """Calls the client, on a thread if it is the one that blocks."""
        if self.is_sync:
            return await in_thread(call)
        done = call()
        return await done if inspect.isawaitable(done) else done

    async def answer(self, line: Line) -> None:
        try:
            ok = await getattr(self, f"op_{line['op']}")(line)
        except BaseException as error:
            self.say({"id": line["id"], "err": said(error)})
            if not isinstance(error, (Exception, asyncio.CancelledError)):
                raise
        else:
            self.say({"id": line["id"], "ok": ok or {}})

    # What the harness asks for.

    async def op_features(self, _: Line) -> Line:
        name = "python-sync" if self.is_sync else "python-asyncio"
        own = [] if self.is_sync else ["cancel", "cancels_work"]
        return {"sdk": name, "features": FEATURES_OF_ALL + own}

    async def op_connect(self, line: Line) -> None:
        kind: Any = Client if self.is_sync else AsyncClient
        names = ("owner", "namespace", "token", "token_file", "cacert", "heartbeat")
        given = {name: line[name] for name in names if name in line}
        if "patience_ms" in line:
            given["patience"] = line["patience_ms"] / 1000
        if line.get("from_env"):
            self.client = kind.from_env(clock=self.clock, **given)
        else:
            self.client = kind(line["servers"], clock=self.clock, **given)

    def lock(self, line: Line) -> Any:
        given: Line = {}
        for name in ("owner", "shared", "permits", "metadata", "heartbeat"):
            if name in line:
                given[name] = line[name]
        if "wait_ms" in line:
            given["wait"] = seconds(line["wait_ms"])
        under = self.things[line["session"]] if "session" in line else self.client
        if "ttl_ms" in line and "session" not in line:
            given["ttl"] = line["ttl_ms"] / 1000
        if "locks" in line:
            locks = [(one["lock"], one.get("mode", "exclusive")) for one in line["locks"]]
            given.pop("shared", None)
            return under.lock_set(locks, **given)
        return under.lock(line["lock"], **given)

    def held(self, lease: Any) -> Line:
        name = self.keep("h", lease)
        lease.on_jeopardy(lambda: self.say({"event": "jeopardy", "lease": name}))
        lease.on_lost(lambda: self.say({"event": "lost", "lease": name, "by": getattr(lease.error(), "by", None)}))
        return {
            "lease": name,
            "token": lease.fencing_token,
            "name": lease.name,
            "waited_ms": lease.waited * 1000,
            "replayed": lease.is_replayed,
        }

    async def op_acquire(self, line: Line) -> Line:
        retry = None
        if "attempts" in line:
            retry = Retry(attempts=line["attempts"], pause=0.02, pause_max=0.1)
        lock = self.lock(line)
        return self.held(await self.do(lambda: lock.acquire(retry=retry)))

    async def op_try(self, line: Line) -> Line:
        lease = await self.do(self.lock(line).try_acquire)
        return {"lease": None} if lease is None else self.held(lease)

    async def op_session(self, line: Line) -> Line:
        given: Line = {"ttl": line["ttl_ms"] / 1000}
        if "owner" in line:
            given["owner"] = line["owner"]
        session = await self.do(lambda: self.client.session(**given))
        return {**self.held(session), "number": session.number}

    async def op_release(self, line: Line) -> None:
        await self.do(self.things[line["lease"]].release)

    async def op_release_once(self, line: Line) -> None:
        await self.do(self.things[line["lease"]].release_once)

    async def op_drop(self, line: Line) -> None:
        """Nobody holds the guard any more."""
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            lease = self.things.pop(line["lease"])
            lease._belief._callbacks.clear()
            del lease

    async def op_check(self, line: Line) -> None:
        self.things[line["lease"]].check()

    async def op_state(self, line: Line) -> Line:
        lease = self.things[line["lease"]]
        left, work = lease.time_left, lease.time_to_work
        return {"state": lease.state.name.lower(), "time_left_ms": left * 1000, "time_to_work_ms": work * 1000}

    async def op_verify(self, line: Line) -> Line:
        return {"valid": await self.do(self.things[line["lease"]].verify)}

    async def op_renew(self, line: Line) -> None:
        self.things[line["lease"]].renew()

    async def op_wanted(self, line: Line) -> None:
        lease = self.things[line["lease"]]
        await self.do(lease.wait_until_wanted if self.is_sync else lease.wanted)

    async def op_start_heartbeat(self, line: Line) -> None:
        self.things[line["lease"]].start_heartbeat()

    async def op_run(self, line: Line) -> Line:
        """Work under a lock: it sleeps for so long, in a body."""
        length = line["sleep_ms"] / 1000
        lock = self.lock(line)
        began = time.monotonic()
        if self.is_sync:
            ran: Line = await in_thread(lambda: self.run_sync(lock, length, began))
            return ran
        async with lock as lease:
            self.say({"event": "running", "id": line["id"], "token": lease.fencing_token})
            try:
                await asyncio.sleep(length)
            finally:
                self.say({"event": "stopped", "id": line["id"]})
        return {"took_ms": (time.monotonic() - began) * 1000}

    def run_sync(self, lock: Any, length: float, began: float) -> Line:
        with lock as lease:
            self.say({"event": "running", "token": lease.fencing_token})
            time.sleep(length)
        return {"took_ms": (time.monotonic() - began) * 1000}

    async def op_campaign(self, line: Line) -> Line:
        given = {"owner": line["owner"]} if "owner" in line else {}
        if "ttl_ms" in line:
            given["ttl"] = line["ttl_ms"] / 1000
        election = self.client.election(line["lock"], **given)
        return self.held(await self.do(lambda: election.campaign(line["value"])))

    async def op_observe(self, line: Line) -> Line:
        name = self.keep("o", None)

        def told(leader: Any) -> None:
            event: Line = {"event": "leader", "observer": name, "owner": None}
            if leader is not None:
                event |= {"owner": leader.owner, "value": leader.value, "token": leader.fencing_token}
            self.say(event)

        election = self.client.election(line["lock"])
        if self.is_sync:

            def follow() -> None:
                for leader in election.observe():
                    told(leader)

            in_background(follow)
        else:

            async def follow_async() -> None:
                async for leader in election.observe():
                    told(leader)

            self.things[name] = asyncio.ensure_future(follow_async())
        return {"observer": name}

    async def op_fence(self, line: Line) -> Line:
        register = self.client.fence(line["fence"])
        return {"high_water": await self.do(lambda: register.accept(line["token"]))}

    async def op_watch(self, line: Line) -> Line:
        watch = await self.do(lambda: self.client.watch(line["prefix"], after=line.get("after")))
        name = self.keep("w", watch)

        def told(event: Any) -> None:
            self.say({"event": "news", "watch": name, "type": event.type, "lock": event.lock, "cursor": event.cursor})

        if self.is_sync:

            def follow() -> None:
                for event in watch:
                    told(event)

            in_background(follow)
        else:

            async def follow_async() -> None:
                async for event in watch:
                    told(event)

            self.things[f"{name}-task"] = asyncio.ensure_future(follow_async())
        return {"watch": name}

    async def op_api(self, line: Line) -> Line:
        return {"body": await self.do(lambda: self.client.api.raw(line["method"], line["path"], line.get("body")))}

    async def op_advance_clock(self, line: Line) -> None:
        self.clock.advance(line["ms"] / 1000)

    async def op_block(self, line: Line) -> None:
        """The thread of the program, and with it its loop, does something else for a while."""
        time.sleep(line["ms"] / 1000)

    async def op_fork(self, line: Line) -> Line:
        """Asks a forked child what it thinks of a lease, and of the client."""
        lease = self.things[line["lease"]]
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                told: Line = {"state": lease.state.name.lower(), "check": said(lease.error() or ValueError())}
                try:
                    self.client._keeper.connected()
                except LeaseholdError as error:
                    told["client"] = said(error)["kind"]
                os.write(writing, json.dumps(told).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            told = json.loads(await in_thread(pipe.read))
        os.waitpid(child, 0)
        return told

    async def op_close(self, _: Line) -> None:
        await self.do(self.client.close)


def in_background(call: Callable[[], Any]) -> None:
    def run() -> None:
        try:
            call()
        except LeaseholdError:
            pass

    threading.Thread(target=run, daemon=True).start()


async def in_thread(call: Callable[[], Any]) -> Any:
    """On a thread of its own: any number of requests may wait at once."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def tell(result: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)

    def run() -> None:
        try:
            result, error = call(), None
        except Exception as caught:
            result, error = None, caught
        loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, daemon=True).start()
    return await done


async def serve(driver: Driver) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    under_way: dict[int, asyncio.Task[None]] = {}
    while text := await reader.readline():
        line = json.loads(text)
        if line["op"] == "cancel":
            task = under_way.get(line["of"])
            if task is not None:
                task.cancel()
            driver.say({"id": line["id"], "ok": {}})
            continue
        task = asyncio.ensure_future(driver.answer(line))
        under_way[line["id"]] = task
        task.add_done_callback(functools.partial(forget, under_way, line["id"]))


def forget(under_way: dict[int, asyncio.Task[None]], number: int, _: object) -> None:
    under_way.pop(number, None)


def main(arguments: list[str]) -> None:
    asyncio.run(serve(Driver("--sync" in arguments)))
