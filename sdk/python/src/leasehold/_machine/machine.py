"""The machine itself: what is sent when, and what a holder may still believe.

- A lease counts from the moment before the request was sent that got or renewed it, see ``Standing``.
- A heartbeat goes out after a third of the ttl at the latest. What fails by transport is sent again until half of the
  ttl is over, and so is what the server does not let in; what it refuses otherwise ends the lease at once.
- Half of the ttl after the last confirmed request was sent the work must stop (jeopardy), and does not start again.
  When the ttl is over the lease is lost.
- A grant that comes so late that a heartbeat is due is confirmed by one before anybody is told.
- An acquire is sent again, under the same request id, after a broken connection and when a server cannot decide just
  now; a release is too, as long as the lease could still stand.
- An acquire that nobody wants any more leaves nothing behind: it is cancelled, and what it may have got is released.
- With several servers, the next one is tried when one cannot be reached, answers nobody or does not lead.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import Any

from .._codes import DENIED, LEASE_IS_OVER, says_nothing_of_the_lease, says_nothing_of_the_lock
from .types import (
    FORGOTTEN,
    MILLISECOND,
    NEVER,
    RELEASE,
    RENEW,
    Abandoned,
    Acquiring,
    Action,
    Answer,
    Ask,
    Beat,
    Call,
    Cancel,
    Confirming,
    Connect,
    End,
    Ended,
    Entry,
    Failure,
    Granted,
    Held,
    Jeopardy,
    Jitter,
    Joined,
    Key,
    Loss,
    News,
    Problem,
    Refusal,
    Releasing,
    Renewed,
    Request,
    Send,
    Servers,
    Settings,
    Slab,
    Standing,
    State,
    Tell,
    Wait,
    doubled,
    earliest,
    lost,
)

RESEND_PART = 18
"""A heartbeat that is not answered is sent again after this part of the ttl: three fit between a third and a half."""
RESEND_MIN = 5 * MILLISECOND
STALL_PART = 9
"""A connection over which nothing came for this part of the ttl, though a heartbeat is out, is given up."""


class Machine:
    """One client. ``data`` is whatever the one who drives it wants to keep with each lease."""

    def __init__(
        self, now: int, servers: list[str], settings: Settings | None = None, jitter: Jitter | None = None
    ) -> None:
        self.settings = settings or Settings()
        self._servers = Servers(servers)
        self._jitter = jitter or Jitter()
        self._entries: Slab[Entry] = Slab()
        self._calls: Slab[Call] = Slab()
        self._timers: list[tuple[int, Key]] = []
        self._line: list[Key] = []
        self._actions: deque[Action] = deque()
        self._links = 0
        self._link: int | None = None
        self._is_up = False
        self._heard = 0
        self._link_until: int | None = now
        self._link_tries = 0
        self._reconnect_if_due(now)

    # What the driver sees.

    def next_action(self) -> Action | None:
        """What to do next; ``None`` when all is done for now."""
        return self._actions.popleft() if self._actions else None

    def next_wake(self) -> int | None:
        """When ``wake`` must be called at the latest."""
        while self._timers and not self._is_timer(*self._timers[0]):
            heapq.heappop(self._timers)
        lease = self._timers[0][0] if self._timers else None
        return earliest(lease, self._link_until)

    def wake(self, now: int) -> None:
        """It is that late."""
        self._work_off(now)

    def key_of(self, call: Key) -> Key | None:
        """What a request on its way is about."""
        sent = self._calls.get(call)
        return sent.key if sent else None

    def data(self, key: Key) -> Any:
        entry = self._entries.get(key)
        return entry.data if entry else None

    def standing(self, key: Key) -> Standing | None:
        """The lease that the key's grant stands under, while it is held."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if isinstance(entry.phase, Joined) and entry.ask.session is not None:
            session = self._entries.get(entry.ask.session)
            return session.standing() if session else None
        return entry.standing()

    def all_keys(self) -> list[Key]:
        return [key for key, _ in self._entries.items()]

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def servers_len(self) -> int:
        return len(self._servers)

    @property
    def server(self) -> str:
        """The server that is in use or about to be."""
        return self._servers.current

    # What is asked.

    def acquire(self, now: int, data: Any, ask: Ask) -> Key:
        """Asks for a lease, a session, or a grant under one."""
        self._work_off(now)
        wait_until = None if ask.wait.length is None else now + ask.wait.length
        give_up = None if wait_until is None else wait_until + self.settings.patience
        acquiring = Acquiring(give_up, wait_until)
        key = self._entries.insert(Entry(data, ask, acquiring, ask.is_kept))
        if ask.session is not None:
            session = self._entries.get(ask.session)
            if session is None:
                self._end(key, lost(Loss.SESSION_CLOSED))
                return key
            session.members.add(key)
        self._send_acquire(now, key)
        self._rearm(key)
        return key

    def release(self, now: int, key: Key) -> bool:
        """Gives it back; with a session, everything under it. False if there is nothing to give back any more."""
        self._work_off(now)
        entry = self._entries.get(key)
        if entry is None or not isinstance(entry.phase, (Held, Jeopardy, Joined)):
            return False
        self._start_release(now, key, is_quiet=False)
        self._rearm(key)
        return True

    def abandon(self, now: int, key: Key) -> None:
        """Nobody wants the answer to an acquire any more, or the grant that it got."""
        self._work_off(now)
        entry = self._entries.get(key)
        if entry is None:
            return
        phase = entry.phase
        if isinstance(phase, Acquiring):
            if entry.call is not None or phase.is_in_doubt:
                self._clean_up(now, key)
            else:
                self._end(key, FORGOTTEN)
        elif isinstance(phase, (Confirming, Held, Jeopardy, Joined)):
            self._start_release(now, key, is_quiet=True)
        self._rearm(key)

    def renew(self, now: int, key: Key) -> bool:
        """Renews now, whenever the next heartbeat is due. False if there is nothing to renew."""
        self._work_off(now)
        entry = self._entries.get(key)
        if entry is None or not isinstance(entry.phase, Held):
            return False
        is_unwanted = entry.phase.beat == Beat(None)
        self._send_beat(now, key)
        if is_unwanted and isinstance(entry.phase, Held):
            entry.phase.beat = Beat(None)
        self._rearm(key)
        return True

    def start_heartbeat(self, now: int, key: Key) -> None:
        """Keeps a lease alive from here on that was asked for without."""
        self._work_off(now)
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.ask.session is None:
            entry.is_kept = True
        if isinstance(entry.phase, Held) and entry.phase.beat == Beat(None):
            entry.phase.beat = self._next_beat(entry.phase.standing)
            self._rearm(key)

    # What is heard.

    def answer(self, now: int, call: Key, answer: Answer) -> None:
        """An answer came."""
        self._work_off(now)
        sent = self._calls.remove(call)
        if sent is None:
            return
        self._heard_from(now, sent.link)
        entry = self._entries.get(sent.key)
        if entry is None:
            return
        is_latest = entry.call == call
        if is_latest:
            entry.call = None
        if isinstance(answer, Granted):
            self._granted(now, sent, answer)
        elif isinstance(answer, Renewed):
            self._renewed(now, sent, answer)
        elif isinstance(answer, Refusal):
            self._refused(now, sent, is_latest, answer.problem)
        else:
            self._released(sent.key)
        self._rearm(sent.key)

    def failed(self, now: int, call: Key, failure: Failure) -> None:
        """No answer came, though the connection may go on."""
        self._work_off(now)
        sent = self._calls.remove(call)
        if sent is None:
            return
        self._try_another(now, sent.link)
        self._call_failed(now, call, sent, failure)

    def lost(self, now: int, key: Key, problem: Problem) -> None:
        """The server said, unasked, that a lease or a grant is over."""
        self._work_off(now)
        entry = self._entries.get(key)
        if entry is not None and isinstance(entry.phase, (Held, Jeopardy, Joined)):
            self._end(key, lost(Loss.TOLD, problem))

    def up(self, now: int, link: int) -> None:
        """The connection stands; requests can be sent over it."""
        self._work_off(now)
        if self._link != link or self._is_up:
            return
        self._is_up, self._heard, self._link_until = True, now, None
        self._send_what_is_in_line(now)

    def down(self, now: int, link: int) -> None:
        """The connection broke, or could not be made."""
        self._work_off(now)
        if self._link == link:
            self._servers.rotate()
            self._drop_link(now)

    def suspect(self, now: int) -> None:
        """Something that was asked beside the machine failed: another server may do better, if there is one."""
        self._work_off(now)
        if self._is_up and self._link is not None:
            self._try_another(now, self._link)

    def suspect_if_idle(self, now: int) -> None:
        """The same, unless something is held: then its heartbeats decide."""
        if not self._is_anything_held():
            self.suspect(now)

    # Time.

    def _work_off(self, now: int) -> None:
        """Does what is due, the oldest first."""
        while self._timers and self._timers[0][0] <= now:
            at, key = heapq.heappop(self._timers)
            if not self._is_timer(at, key):
                continue
            entry = self._entries.get(key)
            assert entry is not None
            entry.timer = None
            due = entry.due_at()
            # It may have been set for something that has happened meanwhile.
            if due is not None and due <= now:
                self._due(now, key, entry)
            self._rearm(key)
        self._reconnect_if_due(now)

    def _is_timer(self, at: int, key: Key) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.timer == at

    def _due(self, now: int, key: Key, entry: Entry) -> None:
        phase = entry.phase
        if isinstance(phase, Acquiring):
            self._acquiring_due(now, key, phase)
        elif isinstance(phase, Confirming):
            if phase.acquiring.next is not None and phase.acquiring.next <= now:
                self._ask_anew(now, key)
            else:
                self._send_beat(now, key)
        elif isinstance(phase, Held):
            self._held_due(now, key, phase)
        elif isinstance(phase, Jeopardy):
            self._lapse(key)
        elif isinstance(phase, Releasing):
            self._releasing_due(now, key, phase)
        elif isinstance(phase, Abandoned):
            self._forget_call(now, key)
            if phase.until <= now:
                self._end(key, FORGOTTEN)
            else:
                self._send_to_find_out(now, key)

    def _rearm(self, key: Key) -> None:
        """Sees to it that there is a timer when the entry is next due, or earlier: most leases are given back before any
        of their timers fires, and looking once too often costs less than setting each anew."""
        entry = self._entries.get(key)
        if entry is None:
            return
        due = entry.due_at()
        if due is None or (entry.timer is not None and entry.timer <= due):
            return
        entry.timer = due
        heapq.heappush(self._timers, (due, key))

    # Sending.

    def _send(self, now: int, key: Key, request: Request) -> bool:
        """Sends, or stands in line for a connection; true if it was sent."""
        entry = self._entries.get(key)
        if entry is None:
            return False
        if not self._is_up or self._link is None:
            if not entry.is_in_line:
                entry.is_in_line = True
                self._line.append(key)
            return False
        call = self._calls.insert(Call(key, now, self._link))
        entry.call = call
        self._actions.append(Send(call, key, request))
        return True

    def _tell(self, key: Key, news: News, standing: Standing | None = None) -> None:
        self._actions.append(Tell(key, news, standing))

    def _end(self, key: Key, how: Ended) -> None:
        """Forgets the entry, and ends what stands under it."""
        entry = self._entries.remove(key)
        if entry is None:
            return
        if entry.ask.session is not None:
            session = self._entries.get(entry.ask.session)
            if session is not None:
                session.members.discard(key)
        for member in sorted(entry.members):
            self._end(member, how.of_what_stood_under())
        self._actions.append(End(key, entry.data, how))

    def _call_failed(self, now: int, call: Key, sent: Call, failure: Failure) -> None:
        key = sent.key
        entry = self._entries.get(key)
        if entry is None:
            return
        phase = entry.phase
        if isinstance(phase, Acquiring) and failure is Failure.UNKNOWN:
            phase.is_in_doubt = True
        # Another one was sent since: that one counts.
        if entry.call != call:
            return
        entry.call = None
        if isinstance(phase, Acquiring):
            self._try_acquire_later(now, phase, 0)
        elif isinstance(phase, (Confirming, Held)):
            self._beat_failed(now, phase, None)
        elif isinstance(phase, Releasing):
            self._release_failed(now, phase, failure)
        elif isinstance(phase, Abandoned):
            self._abandoned_failed(now, phase)
        self._rearm(key)

    def _refused(self, now: int, sent: Call, is_latest: bool, problem: Problem) -> None:
        """A refusal of a request that was sent again since says nothing, except that a lease is over."""
        if problem.code == "not_leader":
            self._follow(now, sent.link, problem.leader)
        entry = self._entries.get(sent.key)
        if entry is None:
            return
        phase = entry.phase
        if isinstance(phase, Confirming):
            if says_nothing_of_the_lease(problem.code):
                self._beat_failed(now, phase, hint_of(problem))
            else:
                self._ask_anew(now, sent.key)
        elif isinstance(phase, (Held, Jeopardy)):
            is_denied = problem.code in DENIED
            if is_denied:
                entry.denied = problem
            if not is_denied and not says_nothing_of_the_lease(problem.code):
                self._end(sent.key, lost(Loss.TOLD, problem))
            elif isinstance(phase, Held):
                self._beat_failed(now, phase, hint_of(problem))
        elif isinstance(phase, Acquiring) and is_latest:
            self._acquire_refused(now, sent.key, phase, problem)
        elif isinstance(phase, Releasing) and is_latest:
            self._release_refused(now, sent.key, phase, problem)
        elif isinstance(phase, Abandoned) and is_latest:
            if says_nothing_of_the_lock(problem.code):
                self._abandoned_failed(now, phase)
            else:
                self._end(sent.key, FORGOTTEN)

    # Acquiring.

    def _send_acquire(self, now: int, key: Key) -> None:
        entry = self._entries.get(key)
        if entry is None or not isinstance(entry.phase, Acquiring):
            return
        acquiring = entry.phase
        if entry.ask.wait.is_never:
            wait = NEVER
        elif acquiring.wait_until is None:
            wait = Wait(None)
        else:
            wait = Wait(max(0, acquiring.wait_until - now))
        if wait.length is None:
            acquiring.next = None
        else:
            acquiring.next = now + wait.length + self.settings.answer_timeout
        self._send(now, key, Request("acquire", wait, acquiring.ticket))

    def _acquiring_due(self, now: int, key: Key, acquiring: Acquiring) -> None:
        if acquiring.give_up is not None and acquiring.give_up <= now:
            self._give_up(now, key)
        elif acquiring.next is not None and acquiring.next <= now:
            self._forget_call(now, key)
            self._send_acquire(now, key)

    def _forget_call(self, now: int, key: Key) -> bool:
        """The answer is overdue. The request goes out again; should the old answer come, nobody waits for it. Says
        whether there was one to come."""
        entry = self._entries.get(key)
        if entry is None or entry.call is None:
            return False
        call, entry.call = entry.call, None
        if isinstance(entry.phase, Acquiring):
            entry.phase.is_in_doubt = True
        self._actions.append(Cancel(call, key))
        self._overdue(now, call)
        return True

    def _give_up(self, now: int, key: Key) -> None:
        entry = self._entries.get(key)
        if entry is None or not isinstance(entry.phase, Acquiring):
            return
        if entry.call is not None or entry.phase.is_in_doubt:
            self._tell(key, News.GAVE_UP)
            self._clean_up(now, key)
        elif entry.phase.last is not None:
            self._end(key, Ended("refused", problem=entry.phase.last))
        else:
            self._end(key, Ended("unreachable"))

    def _clean_up(self, now: int, key: Key) -> None:
        """Leaves the queue, and finds out whether there is something to give back."""
        entry = self._entries.get(key)
        if entry is None or not isinstance(entry.phase, Acquiring):
            return
        # Whatever it got lapses by then.
        until = now + (entry.ask.ttl if entry.ask.session is None else self._ttl_of(entry.ask.session))
        entry.phase = Abandoned(until)
        if entry.call is not None:
            self._actions.append(Cancel(entry.call, key))
        else:
            self._send_to_find_out(now, key)

    def _ttl_of(self, session: Key) -> int:
        entry = self._entries.get(session)
        standing = entry.standing() if entry else None
        return standing.ttl if standing else 0

    def _send_to_find_out(self, now: int, key: Key) -> None:
        """The same request again, without a wait: if it was granted before, this is that grant, and it can be released."""
        entry = self._entries.get(key)
        if entry is not None and isinstance(entry.phase, Abandoned):
            entry.phase.next = now + self.settings.answer_timeout
            self._send(now, key, Request("acquire"))

    def _abandoned_failed(self, now: int, abandoned: Abandoned) -> None:
        abandoned.next = now + self._backoff(abandoned.tries)
        abandoned.tries += 1

    def _backoff(self, tries: int) -> int:
        return self._jitter.spread(doubled(self.settings.backoff_first, tries, self.settings.backoff_max))

    def _granted(self, now: int, sent: Call, answer: Granted) -> None:
        key = sent.key
        entry = self._entries.get(key)
        if entry is None:
            return
        if isinstance(entry.phase, Acquiring):
            if entry.ask.session is not None:
                self._joined(now, key, entry, entry.ask.session)
            else:
                self._leased(now, sent, entry, Standing.counted(sent.sent, answer.ttl, answer.left))
        elif isinstance(entry.phase, Abandoned):
            until = max(entry.phase.until, Standing.counted(now, answer.ttl, answer.left).lapses_at)
            entry.phase = Releasing(until, is_quiet=True)
            self._send_release(now, key)
        # Otherwise it answers a request that was sent twice: it is the same grant.

    def _joined(self, now: int, key: Key, entry: Entry, session: Key) -> None:
        under = self._entries.get(session)
        standing = under.standing() if under else None
        if standing is None:
            # The session is on its way out, and this grant with it.
            self._end(key, lost(Loss.SESSION_CLOSED))
            return
        entry.phase = Joined()
        self._tell(key, News.GRANTED, standing)
        if standing.state(now) is not State.VALID:
            self._tell(key, News.JEOPARDY)

    def _leased(self, now: int, sent: Call, entry: Entry, standing: Standing) -> None:
        acquiring = entry.phase
        assert isinstance(acquiring, Acquiring)
        beat = self._next_beat(standing) if entry.is_kept else Beat(None)
        held = Held(standing, sent.sent, beat)
        if now < standing.heartbeat_at(self.settings.heartbeat_part):
            entry.phase = held
            self._tell(sent.key, News.GRANTED, standing)
            return
        # It came late, after a wait in line: nobody knows how much of the lease is left.
        acquiring.next = now + standing.ttl
        entry.phase = Confirming(acquiring, held)
        self._send_beat(now, sent.key)

    def _next_beat(self, standing: Standing) -> Beat:
        """The next heartbeat of a lease: early rather than late."""
        return Beat(standing.since + self._jitter.shortened(standing.ttl // self.settings.heartbeat_part))

    def _try_acquire_later(self, now: int, acquiring: Acquiring, at_least: int) -> None:
        acquiring.next = now + max(self._backoff(acquiring.tries), at_least)
        acquiring.tries += 1

    def _acquire_refused(self, now: int, key: Key, acquiring: Acquiring, problem: Problem) -> None:
        if says_nothing_of_the_lock(problem.code):
            self._undecided(now, key, acquiring, problem)
            return
        has_time = acquiring.wait_until is None or acquiring.wait_until > now
        is_in_the_way = problem.code in ("lock_held", "reclaim_window")
        if is_in_the_way and has_time and problem.ticket is not None:
            acquiring.ticket = problem.ticket
            self._send_acquire(now, key)
        elif problem.code == "ticket_not_found" and acquiring.ticket is not None:
            acquiring.ticket = None
            self._send_acquire(now, key)
        else:
            # This try came to nothing. What came of one that was never answered, nobody knows: it may have been
            # granted, and its lease be over by now.
            if acquiring.is_in_doubt:
                problem.outcome = "unknown"
            self._end(key, Ended("refused", problem=problem))

    def _undecided(self, now: int, key: Key, acquiring: Acquiring, problem: Problem) -> None:
        """The server cannot decide just now: it is asked again, unless that would be too late for the caller."""
        acquiring.is_in_doubt |= problem.outcome == "unknown"
        # Another server may know more, so its hint does not bind when there is a choice.
        pause = 0 if problem.code == "not_leader" else hint_of(problem) or 0
        acquiring.last = problem
        if acquiring.give_up is not None and now + pause >= acquiring.give_up:
            self._give_up(now, key)
        else:
            self._try_acquire_later(now, acquiring, pause)

    # Holding.

    def _held_due(self, now: int, key: Key, held: Held) -> None:
        state = held.standing.state(now)
        if state is State.LOST:
            self._lapse(key)
        elif state is State.JEOPARDY:
            self._in_jeopardy(key, held.standing)
        elif held.beat.at is not None and held.beat.at <= now:
            self._send_beat(now, key)

    def _lapse(self, key: Key) -> None:
        """The ttl is over. If the last renewal was not let in, that is why."""
        entry = self._entries.get(key)
        denied = entry.denied if entry is not None else None
        self._end(key, lost(Loss.LAPSED) if denied is None else lost(Loss.TOLD, denied))

    def _in_jeopardy(self, key: Key, standing: Standing) -> None:
        entry = self._entries.get(key)
        assert entry is not None
        entry.phase = Jeopardy(standing)
        self._tell(key, News.JEOPARDY)
        for member in sorted(entry.members):
            under = self._entries.get(member)
            if under is not None and isinstance(under.phase, Joined):
                self._tell(member, News.JEOPARDY)

    def _held(self, key: Key) -> Held | None:
        entry = self._entries.get(key)
        if entry is not None and isinstance(entry.phase, Held):
            return entry.phase
        if entry is not None and isinstance(entry.phase, Confirming):
            return entry.phase.held
        return None

    def _send_beat(self, now: int, key: Key) -> None:
        self._give_up_stalled_link(now, key)
        held = self._held(key)
        if held is None:
            return
        resend = self._jitter.spread(max(held.standing.ttl // RESEND_PART, RESEND_MIN))
        if self._send(now, key, RENEW):
            held.beat.tries += 1
            if held.beat.first_sent is None:
                held.beat.first_sent = now
            held.beat.at = now + resend

    def _give_up_stalled_link(self, now: int, key: Key) -> None:
        """A server that answers others is slow. One that answers nobody is gone, and another may be there."""
        held = self._held(key)
        if not self._is_up or held is None or held.beat.first_sent is None:
            return
        silence = now - max(held.beat.first_sent, self._heard)
        if silence >= held.standing.ttl // STALL_PART:
            held.beat.first_sent = None
            self._servers.rotate()
            self._drop_link(now)

    def _renewed(self, now: int, sent: Call, answer: Renewed) -> None:
        entry = self._entries.get(sent.key)
        if entry is None:
            return
        standing = Standing.counted(sent.sent, answer.ttl, answer.left)
        phase = entry.phase
        # An answer may come after a younger one. A server that counts in milliseconds may say of the younger that it
        # ends a little earlier, so they are told apart by when they were asked for.
        if isinstance(phase, Held) and phase.sent <= sent.sent:
            news = News.RENEWED
        elif isinstance(phase, Confirming) and standing.state(now) is State.VALID:
            news = News.GRANTED
        else:
            # In jeopardy the work has been told to stop: it is too late to go on.
            return
        beat = self._next_beat(standing) if entry.is_kept else Beat(None)
        entry.phase, entry.denied = Held(standing, sent.sent, beat), None
        self._tell(sent.key, news, standing)

    def _beat_failed(self, now: int, phase: Held | Confirming, at_least: int | None) -> None:
        held = phase.held if isinstance(phase, Confirming) else phase
        first, most = self.settings.backoff_first, held.standing.ttl // RESEND_PART
        pause = self._jitter.spread(doubled(first, held.beat.tries, min(max(most, first), first * 25)))
        if at_least is not None:
            pause = min(max(pause, at_least), most)
        held.beat.at = now + pause

    def _ask_anew(self, now: int, key: Key) -> None:
        """The grant was over before anybody could be told of it."""
        entry = self._entries.get(key)
        assert entry is not None and isinstance(entry.phase, Confirming)
        acquiring = entry.phase.acquiring
        acquiring.ticket, acquiring.is_in_doubt = None, True
        entry.phase, entry.call = acquiring, None
        self._send_acquire(now, key)

    # Releasing.

    def _start_release(self, now: int, key: Key, is_quiet: bool) -> None:
        entry = self._entries.get(key)
        if entry is None:
            return
        if isinstance(entry.phase, Joined) and entry.ask.session is not None:
            until = self._lapse_of(entry.ask.session)
        elif isinstance(entry.phase, Confirming):
            until = entry.phase.held.standing.lapses_at
        else:
            until = self._lapse_of(key)
        entry.phase = Releasing(now if until is None else until, is_quiet)
        entry.call = None
        # Whoever stands under it must not believe in it from here on.
        members, entry.members = sorted(entry.members), set()
        for member in members:
            self._end(member, lost(Loss.SESSION_CLOSED))
        self._send_release(now, key)

    def _lapse_of(self, key: Key) -> int | None:
        entry = self._entries.get(key)
        standing = entry.standing() if entry else None
        return standing.lapses_at if standing else None

    def _send_release(self, now: int, key: Key) -> None:
        entry = self._entries.get(key)
        if entry is not None and isinstance(entry.phase, Releasing):
            entry.phase.next = now + self.settings.answer_timeout
            self._send(now, key, RELEASE)

    def _releasing_due(self, now: int, key: Key, releasing: Releasing) -> None:
        entry = self._entries.get(key)
        assert entry is not None
        longer = None if entry.ask.session is None else self._lapse_of(entry.ask.session)
        releasing.is_in_doubt |= self._forget_call(now, key)
        if longer is not None:
            releasing.until = max(releasing.until, longer)
        if releasing.until <= now:
            self._end(key, FORGOTTEN if releasing.is_quiet else Ended("release_unanswered"))
        else:
            self._send_release(now, key)

    def _release_failed(self, now: int, releasing: Releasing, failure: Failure) -> None:
        releasing.is_in_doubt |= failure is Failure.UNKNOWN
        releasing.next = now + self._backoff(releasing.tries)
        releasing.tries += 1

    def _released(self, key: Key) -> None:
        entry = self._entries.get(key)
        if entry is not None and isinstance(entry.phase, Releasing):
            self._end(key, FORGOTTEN if entry.phase.is_quiet else Ended("released"))

    def _release_refused(self, now: int, key: Key, releasing: Releasing, problem: Problem) -> None:
        if says_nothing_of_the_lease(problem.code):
            is_unknown = problem.outcome == "unknown"
            self._release_failed(now, releasing, Failure.UNKNOWN if is_unknown else Failure.UNSENT)
        elif releasing.is_quiet:
            self._end(key, FORGOTTEN)
        elif problem.code in LEASE_IS_OVER and problem.reason != "expired" and releasing.is_in_doubt:
            # Nothing is left to release because an earlier try did it, whose answer was lost. A server that remembers it
            # says so; one that has started since does not know.
            self._end(key, Ended("released"))
        else:
            self._end(key, Ended("not_released", problem=problem))

    # The connection.

    def _send_what_is_in_line(self, now: int) -> None:
        """What keeps leases goes first: a crowd of waiters must not cost a holder its lease."""
        line, self._line = self._line, []
        keeping: list[Key] = []
        others: list[Key] = []
        for key in line:
            entry = self._entries.get(key)
            is_keeping = entry is not None and isinstance(entry.phase, (Held, Confirming, Releasing))
            (keeping if is_keeping else others).append(key)
        for key in keeping + others:
            entry = self._entries.get(key)
            if entry is not None and entry.is_in_line:
                entry.is_in_line = False
                self._send_again(now, key, entry)
                self._rearm(key)

    def _send_again(self, now: int, key: Key, entry: Entry) -> None:
        """Sends what the entry has to send now."""
        phase = entry.phase
        if isinstance(phase, Acquiring):
            self._send_acquire(now, key)
        elif isinstance(phase, (Confirming, Held)):
            self._send_beat(now, key)
        elif isinstance(phase, Releasing):
            self._send_release(now, key)
        elif isinstance(phase, Abandoned):
            self._send_to_find_out(now, key)

    def _drop_link(self, now: int) -> None:
        """Gives the connection up and makes the next one, to the server that is then the current one."""
        was_up, link = self._is_up, self._link
        tries = self._link_tries
        self._link_tries = min(tries + 1, 1 << 20)
        # Each server gets one try at once; then it is their turn to come back.
        rounds = (tries + 1) // len(self._servers)
        if (was_up and tries == 0) or rounds == 0:
            until = now
        else:
            until = now + self._backoff(rounds - 1)
        self._link, self._is_up, self._link_until = None, False, until
        if link is not None:
            for call, sent in self._calls.items():
                if sent.link == link and self._calls.remove(call) is not None:
                    self._call_failed(now, call, sent, Failure.UNKNOWN)
        self._reconnect_if_due(now)

    def _reconnect_if_due(self, now: int) -> None:
        if self._is_up or self._link_until is None or self._link_until > now:
            return
        if self._link is not None:
            # It took too long.
            self._servers.rotate()
            self._drop_link(now)
            return
        self._links += 1
        self._link, self._link_until = self._links, now + self.settings.connect_timeout
        self._actions.append(Connect(self._links, self._servers.current))

    def _is_anything_held(self) -> bool:
        return any(isinstance(entry.phase, Held) for _, entry in self._entries.items())

    def _overdue(self, now: int, call: Key) -> None:
        """The answer to a request is overdue. A server that answers others is slow. One that answers nobody is gone, and
        another may be there. If something is held, its heartbeats decide that."""
        sent = self._calls.get(call)
        if sent is None:
            return
        is_silent = self._is_up and self._heard <= sent.sent
        if is_silent and not self._is_anything_held():
            self._try_another(now, sent.link)

    def _try_another(self, now: int, link: int) -> None:
        """Another server may do better."""
        if len(self._servers) > 1 and self._link == link:
            self._servers.rotate()
            self._drop_link(now)

    def _follow(self, now: int, link: int, hint: str | None) -> None:
        if hint is None:
            self._try_another(now, link)
        elif self._link == link and self._servers.follow(hint):
            self._drop_link(now)

    def _heard_from(self, now: int, link: int) -> None:
        if self._is_up and self._link == link:
            self._heard = now
            # Only what answers is a server: one that accepts and closes is tried as rarely as one that is not there.
            self._link_tries = 0


def hint_of(problem: Problem) -> int | None:
    """How long the server would wait before it is asked again."""
    hint = problem.recommended_retry_ms
    return None if hint is None else hint * MILLISECOND
