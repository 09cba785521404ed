"""Drives the machine: one thread with one loop, whatever the program around it does.

::

     callers --orders--> keeper --requests--> connections --> server
        ^                 |  ^                    |
        +-- futures, -----+  +----- answers ------+        clock: one alarm for all leases
            beliefs

The thread is the client's own. A program that blocks does not lose its locks, and the blocking client and the one for
asyncio are the same code.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ._belief import Belief
from ._clock import Clock
from ._http import Access, Answered, NoAnswer, Pool
from ._machine import (
    Ask,
    Cancel,
    Connect,
    End,
    Ended,
    Failure,
    Key,
    Loss,
    Machine,
    News,
    Refusal,
    Request,
    Send,
    Settings,
    Tell,
)
from ._payload import Grant, Payload
from .errors import Closed, LeaseholdError, LeaseLost, Problem, Unreachable, UsageError, read_problem, refusal

T = TypeVar("T")

BEATS_MAX = 8
"""Heartbeats and releases that are under way at once."""
LOOK_AGAIN = 0.1
"""The timers of the loop stand still while the machine sleeps, so none of them is trusted for longer, in seconds."""
ASK_AGAIN = 0.05
"""Between two tries of a request that was not carried out, in seconds."""


@dataclass
class Item:
    """What is kept with each lease."""

    payload: Payload
    belief: Belief
    acquired: Future[Grant]
    grant: Grant = field(default_factory=Grant)
    released: Future[None] | None = None
    key: Key | None = None


class Keeper:
    """The thread behind a client. Everything but the first methods runs on it."""

    def __init__(self, servers: list[str], settings: Settings, access: Access, clock: Clock) -> None:
        self.clock = clock
        self.settings = settings
        self._servers = servers
        self._access = access
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._loop = asyncio.new_event_loop()
        self._is_closing = False
        self._callbacks: queue.SimpleQueue[Callable[[], object] | None] | None = None
        self._machine: Machine
        self.pool: Pool
        self._pools: weakref.WeakSet[Pool] = weakref.WeakSet()
        self._running: dict[Key, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._beats: asyncio.Semaphore
        self._alarm: asyncio.TimerHandle | None = None
        self._link = 0
        self._connecting: asyncio.Task[None] | None = None
        self._complaint = "no server answered"
        self._unusable: UsageError | None = None
        self._is_version_known = False
        self._waiting_for_up: list[Future[None]] = []
        self._flushed: asyncio.Event
        self._beliefs: weakref.WeakSet[Belief] = weakref.WeakSet()
        KEEPERS.add(self)

    # From any thread.

    @property
    def is_of_parent(self) -> bool:
        return self._pid != os.getpid()

    def order(self, what: Callable[..., Any], *args: Any) -> None:
        """Runs something on the keeper's thread, which begins with the first order."""
        if self.is_of_parent:
            raise Closed("the client belongs to the parent process: make one after the fork")
        with self._lock:
            if self._is_closing:
                raise Closed()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leasehold", daemon=True)
                self._thread.start()
        self._loop.call_soon_threadsafe(what, *args)

    def acquire(self, payload: Payload, ask: Ask, session: Belief | None) -> Item:
        item = Item(payload, Belief(self.clock, session), Future())
        self._beliefs.add(item.belief)
        self.order(self._acquire, item, ask)
        return item

    def release(self, item: Item) -> Future[None]:
        done: Future[None] = Future()
        self.order(self._release, item, done)
        return done

    def abandon(self, item: Item) -> None:
        """Nobody waits for it, or holds the guard, any more."""
        item.acquired.cancel()
        try:
            self.order(self._abandon, item)
        except Closed:
            pass

    def renew(self, item: Item) -> None:
        self.order(self._with_key, item, self._renew)

    def start_heartbeat(self, item: Item) -> None:
        self.order(self._with_key, item, self._start_heartbeat)

    def connected(self) -> Future[None]:
        """Done when a connection stands, or when none could be made while the patience of the client lasted."""
        done: Future[None] = Future()
        self.order(self._wait_for_up, done)
        return done

    def ask(self, method: str, path: str, body: bytes | None) -> Future[Answered]:
        """Asks the server in use. What was not carried out, or only reads, is asked again while patience lasts."""
        done: Future[Answered] = Future()
        self.order(self._start_asking, method, path, body, done)
        return done

    def spawn(self, what: Callable[[], Coroutine[Any, Any, None]], is_over: Callable[[object], None]) -> None:
        """Runs something on the keeper's loop, and says when it has ended, however it did."""
        self.order(lambda: self._spawn(what).add_done_callback(is_over))

    def call_back(self, what: Callable[[], object]) -> None:
        """Runs what a program gave us on a thread where it may block."""
        with self._lock:
            if self._callbacks is None:
                self._callbacks = queue.SimpleQueue()
                name = "leasehold-callbacks"
                threading.Thread(target=_call_back, args=(self._callbacks,), name=name, daemon=True).start()
            self._callbacks.put(what)

    def close(self, timeout: float | None = None, is_waited_for: bool = True) -> None:
        """Gives everything back and waits until the server has heard it; no longer than the client's patience."""
        if self.is_of_parent:
            return
        with self._lock:
            is_first, self._is_closing = not self._is_closing, True
            thread = self._thread
        if thread is None:
            if is_first:
                self._loop.close()
            return
        if is_first:
            self._loop.call_soon_threadsafe(self._spawn, self._flush, timeout)
        if is_waited_for and thread is not threading.current_thread():
            thread.join(timeout)

    def forked(self) -> None:
        """In a child process: everything belongs to the parent, whose sockets are let go without a word."""
        for belief in list(self._beliefs):
            belief.forked()
        for pool in list(self._pools):
            for connection in list(pool.all):
                connection.close_in_child()

    # The thread.

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._beats = asyncio.Semaphore(BEATS_MAX)
        self._flushed = asyncio.Event()
        self.pool = self._pool_of(self._servers[0])
        self._machine = Machine(self.clock.now(), self._servers, self.settings)
        try:
            self._act()
            self._loop.run_forever()
        finally:
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._tell_those_who_wait()
            for pool in list(self._pools):
                pool.close()
                for connection in list(pool.all):
                    connection.abort()
            self._loop.run_until_complete(asyncio.sleep(0))
            self._loop.close()
            if self._callbacks is not None:
                self._callbacks.put(None)

    def _tell_those_who_wait(self) -> None:
        """What was not answered by the end never is."""
        for key in self._machine.all_keys():
            item: Item | None = self._machine.data(key)
            if item is not None:
                self._refuse(item, Closed())
                self._is_released(item, Unreachable(f"no answer came to the release; {self._complaint}", "unknown"))
        for done in self._waiting_for_up:
            fail(done, Closed())

    def _pool_of(self, server: str) -> Pool:
        pool = Pool(self._loop, server, self._access)
        self._pools.add(pool)
        return pool

    def _spawn(self, what: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> asyncio.Task[None]:
        task = self._loop.create_task(what(*args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _act(self) -> None:
        """Does what the machine says, until it has nothing more to say."""
        while (action := self._machine.next_action()) is not None:
            if isinstance(action, Send):
                self._send(action)
            elif isinstance(action, Tell):
                self._tell(action)
            elif isinstance(action, End):
                self._end(action.data, action.how)
            elif isinstance(action, Cancel):
                self._cancel(action)
            elif isinstance(action, Connect):
                self._connect(action)
        if len(self._machine) == 0:
            self._flushed.set()
        else:
            self._flushed.clear()
        self._set_alarm()

    def _set_alarm(self) -> None:
        at = self._machine.next_wake()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if at is not None:
            delay = max(0, at - self.clock.now()) / 1e9
            self._alarm = self._loop.call_later(min(delay, LOOK_AGAIN), self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._machine.wake(self.clock.now())
        self._act()

    # Orders.

    def _acquire(self, item: Item, ask: Ask) -> None:
        if item.acquired.cancelled():
            return
        if self._unusable is not None:
            fail(item.acquired, self._unusable)
            return
        item.key = item.belief.key = self._machine.acquire(self.clock.now(), item, ask)
        self._act()

    def _release(self, item: Item, done: Future[None]) -> None:
        known = self._machine.data(item.key) if item.key is not None else None
        if known is not item or item.key is None:
            fail(done, item.belief.error(item.belief.state()))
            return
        item.belief.is_lost("released")
        item.released = done
        if not self._machine.release(self.clock.now(), item.key) and item.released is not None:
            item.released = None
            fail(done, LeaseLost("lapse"))
        self._act()

    def _abandon(self, item: Item) -> None:
        item.belief.is_lost("released")
        self._with_key(item, self._machine.abandon)

    def _renew(self, now: int, key: Key) -> None:
        self._machine.renew(now, key)

    def _start_heartbeat(self, now: int, key: Key) -> None:
        self._machine.start_heartbeat(now, key)

    def _with_key(self, item: Item, what: Callable[[int, Key], None]) -> None:
        if item.key is not None and self._machine.data(item.key) is item:
            what(self.clock.now(), item.key)
            self._act()

    def _wait_for_up(self, done: Future[None]) -> None:
        if self._is_up:
            settle(done, None)
            return
        self._waiting_for_up.append(done)
        self._loop.call_later(self.settings.patience / 1e9, self._give_up_connecting)

    def _give_up_connecting(self) -> None:
        waiting, self._waiting_for_up = self._waiting_for_up, []
        for done in waiting:
            fail(done, Unreachable(self._complaint))

    async def _flush(self, timeout: float | None) -> None:
        now = self.clock.now()
        for key in self._machine.all_keys():
            item: Item | None = self._machine.data(key)
            if item is not None:
                item.belief.is_lost("released")
                self._refuse(item, Closed())
            self._machine.abandon(now, key)
        self._act()
        try:
            patience = self.settings.patience / 1e9 if timeout is None else timeout
            await asyncio.wait_for(self._flushed.wait(), patience)
        except (asyncio.TimeoutError, TimeoutError):
            pass
        # What could not be given back by then lapses by itself.
        self._loop.stop()

    # Connections and requests.

    _is_up = False

    def _connect(self, action: Connect) -> None:
        self._is_up, self._link = False, action.link
        if self._connecting is not None:
            self._connecting.cancel()
        running, self._running = self._running, {}
        for task in running.values():
            task.cancel()
        self.pool.close()
        self.pool = self._pool_of(action.address)
        self._connecting = self._spawn(self._probe, action.link, self.pool)

    async def _probe(self, link: int, pool: Pool) -> None:
        """Over HTTP there is no connection to speak of: a server that accepts one is there."""
        try:
            await pool.warm()
        except NoAnswer as failure:
            if link == self._link:
                self._complaint = failure.said
                self._machine.down(self.clock.now(), link)
                if failure.is_lasting and len(self._servers) == 1:
                    self._give_up_connecting()
                self._act()
            return
        if link != self._link:
            return
        self._is_up = True
        self._machine.up(self.clock.now(), link)
        waiting, self._waiting_for_up = self._waiting_for_up, []
        for done in waiting:
            settle(done, None)
        self._act()
        if not self._is_version_known:
            self._is_version_known = True
            self._spawn(self._look_at_version, pool)

    async def _look_at_version(self, pool: Pool) -> None:
        try:
            answered = await pool.send("GET", "/v1/version", None)
            said = json.loads(answered.body) if answered.is_success else {}
            spoken = said.get("api")
        except (NoAnswer, ValueError, AttributeError):
            self._is_version_known = False
            return
        if isinstance(spoken, list) and "v1" not in spoken:
            named = ", ".join(str(one) for one in spoken)
            self._unusable = UsageError(f"{pool.server} does not speak v1 of the interface, only {named}")

    def _send(self, action: Send) -> None:
        item: Item | None = self._machine.data(action.key)
        if item is None:
            return
        task = self._spawn(self._exchange, action.call, action.request, item, self.pool)
        self._running[action.call] = task

    async def _exchange(self, call: Key, request: Request, item: Item, pool: Pool) -> None:
        try:
            answered = await self._send_each(request, item, pool)
        except NoAnswer as failure:
            if self._running.pop(call, None) is not None:
                self._complaint = failure.said
                self._machine.failed(self.clock.now(), call, failure.failure)
                self._act()
            return
        if self._running.pop(call, None) is None:
            return
        now = self.clock.now()
        read = item.payload.read(request, answered)
        if read is None:
            self._complaint = f"{pool.server}: something that is no Leasehold server answered with {answered.status}"
            self._machine.failed(now, call, Failure.UNKNOWN)
        else:
            answer, grant = read
            if isinstance(answer, Refusal) and isinstance(answer.problem, Problem):
                self._note_leader(answer.problem)
            if grant is not None:
                item.grant = grant
            self._machine.answer(now, call, answer)
        self._act()

    def _note_leader(self, problem: Problem) -> None:
        """The machine follows whatever leader it is told of, so it is not told of one that must not be followed."""
        if problem.leader is not None:
            problem.fields["leader"] = self._access.leader(self._machine.server, problem.leader)

    async def _send_each(self, request: Request, item: Item, pool: Pool) -> Answered:
        """Sends one after the other, and says what came of the first that was refused, or else of the last."""
        refused: Answered | None = None
        answered: Answered | None = None
        for method, path, body in item.payload.asks(request, item.grant):
            if request.kind == "acquire":
                answered = await pool.send(method, path, body)
            else:
                async with self._beats:
                    answered = await pool.send(method, path, body, is_reserved=True)
            if not answered.is_success and refused is None:
                refused = answered
        assert answered is not None
        return refused or answered

    def _cancel(self, action: Cancel) -> None:
        # A request that is cancelled closes its connection, and the server takes it out of the queue.
        task = self._running.pop(action.call, None)
        if task is not None:
            task.cancel()
            self._machine.failed(self.clock.now(), action.call, Failure.UNKNOWN)

    def _start_asking(self, method: str, path: str, body: bytes | None, done: Future[Answered]) -> None:
        # One that ends without an answer was ended by `close`.
        self._spawn(self._ask, method, path, body, done).add_done_callback(lambda _: fail(done, Closed()))

    async def _ask(self, method: str, path: str, body: bytes | None, done: Future[Answered]) -> None:
        until = self.clock.now() + self.settings.patience
        while True:
            error: LeaseholdError | None = self._unusable
            answered: Answered | None = None
            may_be_repeated = False
            if error is None:
                try:
                    answered = await self._ask_once(method, path, body)
                except NoAnswer as failure:
                    is_unsent = failure.failure is Failure.UNSENT
                    error = Unreachable(failure.said, "not_applied" if is_unsent else "unknown")
                    may_be_repeated = is_unsent or method == "GET"
                else:
                    may_be_repeated = not answered.is_success and _is_elsewhere(answered)
            if done.cancelled():
                return
            if may_be_repeated and self.clock.now() < until:
                await asyncio.sleep(ASK_AGAIN)
                self._machine.suspect(self.clock.now())
                self._act()
                continue
            if answered is not None:
                settle(done, answered)
            else:
                fail(done, error or Closed())
            return

    async def _ask_once(self, method: str, path: str, body: bytes | None) -> Answered:
        """One that nobody answers is given up when the patience is over."""
        length = self.settings.patience / 1e9 + _wait_in(path)
        try:
            return await asyncio.wait_for(self.pool.send(method, path, body), length)
        except (asyncio.TimeoutError, TimeoutError):
            raise NoAnswer(Failure.UNKNOWN, f"{self.pool.server}: no answer in {length:g} s") from None

    def unreachable(self, server: str) -> None:
        """A watch could not connect to this server."""
        if self._machine.server == server:
            self._machine.suspect_if_idle(self.clock.now())
            self._act()

    # Telling.

    def _tell(self, action: Tell) -> None:
        item: Item | None = self._machine.data(action.key)
        if item is None:
            return
        if action.news is News.RENEWED and action.standing is not None:
            item.belief.stands(action.standing)
        elif action.news is News.JEOPARDY:
            item.belief.in_jeopardy()
        elif action.news is News.GRANTED and action.standing is not None:
            item.belief.stands(action.standing)
            if not settle(item.acquired, item.grant):
                self._machine.abandon(self.clock.now(), action.key)
        elif action.news is News.GAVE_UP:
            self._refuse(item, Unreachable(f"no answer came in time; {self._complaint}", "unknown"))

    def _end(self, item: Item, how: Ended) -> None:
        if how.kind == "lost":
            lost = _lost_by(how)
            item.belief.is_lost(lost.by, lost.problem)
            self._refuse(item, lost)
            self._is_released(item, lost)
        elif how.kind == "not_released":
            lost = LeaseLost("server", _whole(how))
            item.belief.is_lost("server", lost.problem)
            self._is_released(item, lost)
        elif how.kind == "release_unanswered":
            item.belief.is_lost("lapse")
            self._is_released(item, Unreachable(f"no answer came to the release; {self._complaint}", "unknown"))
        elif how.kind == "refused":
            item.belief.is_lost("lapse")
            problem = _whole(how)
            assert problem is not None
            self._refuse(item, refusal(problem))
        elif how.kind == "unreachable":
            item.belief.is_lost("lapse")
            self._refuse(item, Unreachable(self._complaint))
        else:
            item.belief.is_lost("released")
            self._refuse(item, Closed())
            self._is_released(item, None)

    def _refuse(self, item: Item, error: LeaseholdError) -> None:
        fail(item.acquired, error)

    def _is_released(self, item: Item, error: LeaseholdError | None) -> None:
        done, item.released = item.released, None
        if done is not None and error is None:
            settle(done, None)
        elif done is not None and error is not None:
            fail(done, error)


def settle(done: Future[T], result: T) -> bool:
    """False if nobody waits for it any more."""
    if done.done() or not done.set_running_or_notify_cancel():
        return False
    done.set_result(result)
    return True


def fail(done: Future[T], error: LeaseholdError) -> None:
    if not done.done() and done.set_running_or_notify_cancel():
        done.set_exception(error)


def _whole(how: Ended) -> Problem | None:
    return how.problem if isinstance(how.problem, Problem) else None


def _lost_by(how: Ended) -> LeaseLost:
    if how.loss is Loss.TOLD:
        return LeaseLost("server", _whole(how))
    return LeaseLost("session" if how.loss is Loss.SESSION_CLOSED else "lapse")


def _is_elsewhere(answered: Answered) -> bool:
    problem = read_problem(answered.status, answered.body)
    return problem is not None and problem.code == "not_leader"


def _wait_in(path: str) -> float:
    """How long a request of a list of events may take beyond others, in seconds."""
    return 60.0 if "wait_ms=" in path or path.partition("?")[0].endswith("/acquire") else 0.0


def _call_back(callbacks: queue.SimpleQueue[Callable[[], object] | None]) -> None:
    while (callback := callbacks.get()) is not None:
        try:
            callback()
        except Exception:
            # It is reported as one of any other thread, and the next one is called all the same.
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


KEEPERS: weakref.WeakSet[Keeper] = weakref.WeakSet()
_OF_PARENT: list[Keeper] = []


def _forked() -> None:
    """Keeps what belongs to the parent from being cleaned up by the child, loops above all."""
    for keeper in list(KEEPERS):
        _OF_PARENT.append(keeper)
        keeper.forked()


EXIT_PATIENCE = 2.0
"""How long the end of a program waits for what is still to be given back, in seconds."""


def _exiting() -> None:
    for is_waited_for in (False, True):
        for keeper in list(KEEPERS):
            keeper.close(EXIT_PATIENCE, is_waited_for)


atexit.register(_exiting)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
