"""What a holder believes, shared between the one who works and the thread that keeps the lease.

Reading it needs no lock and no running thread: whoever asks compares the clock with the moments noted here, so a process
that was stopped for a while gets the truth from its first question on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ._clock import Clock
from ._machine import Key, Standing, State
from .errors import LeaseLost, LostBy, Problem

LOOK_AGAIN = 0.1
"""Nobody who waits for a moment trusts in being woken for longer, in seconds."""


class Belief:
    """What is believed of one lease, session, or grant under a session."""

    def __init__(self, clock: Clock, session: Belief | None = None) -> None:
        self._clock = clock
        self._session = session
        self._standing: Standing | None = None
        self._told = State.VALID
        self._by: LostBy | None = None
        self._problem: Problem | None = None
        self._changed = threading.Condition(threading.Lock())
        self._callbacks: list[tuple[State, Callable[[], None]]] = []
        self._relays: list[tuple[Callable[[], None], Callable[[], None]]] = []
        """What its session calls back, for each who wants to be."""
        self.key: Key | None = None

    # What the keeper tells.

    def stands(self, standing: Standing) -> None:
        self._standing = standing

    def in_jeopardy(self) -> None:
        self._tell(max(self._told, State.JEOPARDY))

    def is_lost(self, by: LostBy, problem: Problem | None = None) -> None:
        if self._by is None:
            self._problem, self._by = problem, by
        self._tell(State.LOST)

    def _tell(self, state: State) -> None:
        with self._changed:
            self._told = state
            due = [callback for least, callback in self._callbacks if state >= least]
            self._callbacks = [one for one in self._callbacks if state < one[0]]
            relays, self._relays = (self._relays, []) if state is State.LOST else ([], self._relays)
            self._changed.notify_all()
        if self._session is not None:
            for _, relay in relays:
                self._session.forget(relay)
        for callback in due:
            callback()

    def forked(self) -> None:
        """In a child process: the lease belongs to the parent. No lock is taken, since its owner may be gone."""
        self._by, self._told = "fork", State.LOST
        self._changed = threading.Condition(threading.Lock())
        self._callbacks, self._relays = [], []

    # What holders ask.

    @property
    def standing(self) -> Standing | None:
        return self._session.standing if self._session is not None else self._standing

    def state(self) -> State:
        told = self._told
        if self._session is not None:
            return max(told, self._session.state())
        standing = self._standing
        if standing is None:
            return told
        return max(told, standing.state(self._clock.now()))

    def error(self, state: State) -> LeaseLost:
        """Why the lease is not valid."""
        if state is State.JEOPARDY:
            return LeaseLost("jeopardy")
        for belief in (self, self._session):
            if belief is not None and belief._by is not None:
                return LeaseLost(belief._by, belief._problem)
        return LeaseLost("lapse")

    def time_to_work(self) -> float:
        """How long the work may go on without another renewal, in seconds."""
        standing = self.standing
        if standing is None or self.state() is not State.VALID:
            return 0.0
        return max(0, standing.jeopardy_at - self._clock.now()) / 1e9

    def time_left(self) -> float:
        """How long until another owner may hold the lock, in seconds."""
        standing = self.standing
        if standing is None or self.state() is State.LOST:
            return 0.0
        return max(0, standing.lapses_at - self._clock.now()) / 1e9

    def when(self, least: State, callback: Callable[[], None]) -> None:
        """Calls back from the keeper's thread when the belief is that bad; at once if it is already."""
        with self._changed:
            is_due = self._told >= least
            if not is_due:
                self._callbacks.append((least, callback))
        if is_due:
            callback()
        elif self._session is not None:

            def relay() -> None:
                self._pass_on(least, callback)

            with self._changed:
                self._relays.append((callback, relay))
            self._session.when(least, relay)

    def _pass_on(self, least: State, callback: Callable[[], None]) -> None:
        with self._changed:
            is_there = (least, callback) in self._callbacks
            if is_there:
                self._callbacks.remove((least, callback))
        if is_there:
            callback()

    def forget(self, callback: Callable[[], None]) -> None:
        """Nobody wants to be called back any more."""
        with self._changed:
            self._callbacks = [one for one in self._callbacks if one[1] is not callback]
            relays = [relay for of, relay in self._relays if of is callback]
            self._relays = [one for one in self._relays if one[0] is not callback]
        if self._session is not None:
            for relay in relays:
                self._session.forget(relay)

    def wait(self, least: State, timeout: float | None) -> bool:
        """Waits until the belief is that bad; false if the time is over before."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.state() < least:
            left = LOOK_AGAIN if until is None else min(LOOK_AGAIN, until - time.monotonic())
            if left <= 0:
                return False
            with self._changed:
                if self._told < least:
                    self._changed.wait(left)
        return True
