//! Asking for a lease until there is an answer, and cleaning up after an abandoned one.

use std::time::Duration;

use leasehold_api::{Code, Problem, RequestOutcome};

use super::entry::{Abandoned, Acquiring, Ask, Beat, Entry, Held, Phase, Releasing, Wait};
use super::jitter::doubled;
use super::machine::{Action, Call, Ended, Machine, News, Request};
use super::slab::Key;
use super::time::Moment;
use super::window::LeaseWindow;

impl<T> Machine<T> {
    /// Asks for a lease, a session, or a grant under one.
    pub fn acquire(&mut self, now: Moment, data: T, ask: Ask) -> Key {
        self.work_off(now);
        let wait_until = match ask.wait() {
            Wait::Never => Some(now),
            Wait::UpTo(wait) => Some(now.plus(wait)),
            Wait::Forever => None,
        };
        let acquiring = Acquiring {
            give_up: wait_until.map(|until| until.plus(self.settings.patience)),
            wait_until,
            ticket: None,
            is_in_doubt: false,
            tries: 0,
            next: None,
            last: None,
        };
        let key = self.entries.insert(Entry {
            data,
            ask,
            phase: Phase::Acquiring(acquiring),
            timer: None,
            call: None,
            is_in_line: false,
            members: std::collections::BTreeSet::new(),
            denied: None,
        });
        if let Ask::Under { session, .. } = ask {
            match self.entries.get_mut(session) {
                Some(session) => _ = session.members.insert(key),
                None => {
                    self.end(key, Ended::Lost(super::Loss::SessionClosed));
                    return key;
                }
            }
        }
        self.send_acquire(now, key);
        self.rearm(key);
        key
    }

    pub(super) fn send_acquire(&mut self, now: Moment, key: Key) {
        let answer_timeout = self.settings.answer_timeout;
        let Some((ask, acquiring)) = self.acquiring_mut(key) else { return };
        let wait = match (ask.wait(), acquiring.wait_until) {
            (Wait::Never, _) => Wait::Never,
            (Wait::UpTo(_), Some(until)) if until <= now => Wait::Never,
            (Wait::UpTo(_), Some(until)) => Wait::UpTo(until.since(now)),
            (Wait::UpTo(_) | Wait::Forever, _) => Wait::Forever,
        };
        acquiring.next = match wait {
            Wait::Never => Some(now.plus(answer_timeout)),
            Wait::UpTo(wait) => Some(now.plus(wait).plus(answer_timeout)),
            Wait::Forever => None,
        };
        let ticket = acquiring.ticket.clone();
        self.send(now, key, Request::Acquire { wait, ticket });
    }

    fn acquiring_mut(&mut self, key: Key) -> Option<(Ask, &mut Acquiring)> {
        let entry = self.entries.get_mut(key)?;
        match &mut entry.phase {
            Phase::Acquiring(acquiring) => Some((entry.ask, acquiring)),
            Phase::Confirming(..)
            | Phase::Held(_)
            | Phase::Jeopardy(_)
            | Phase::Joined
            | Phase::Releasing(_)
            | Phase::Abandoned(_) => None,
        }
    }

    pub(super) fn acquiring_due(&mut self, now: Moment, key: Key) {
        let Some((_, acquiring)) = self.acquiring_mut(key) else { return };
        if acquiring.give_up.is_some_and(|at| at <= now) {
            self.give_up(now, key);
        } else if acquiring.next.is_some_and(|at| at <= now) {
            self.forget_call(now, key);
            self.send_acquire(now, key);
        }
    }

    /// The answer is overdue. The request goes out again; should the old answer come, it is ignored. Says whether
    /// there was one to come.
    pub(super) fn forget_call(&mut self, now: Moment, key: Key) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };
        let Some(call) = entry.call.take() else { return false };
        if let Phase::Acquiring(acquiring) = &mut entry.phase {
            acquiring.is_in_doubt = true;
        }
        self.actions.push_back(Action::Cancel { call, key });
        self.overdue(now, call);
        true
    }

    fn give_up(&mut self, now: Moment, key: Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let is_on_its_way = entry.call.is_some();
        let Phase::Acquiring(acquiring) = &mut entry.phase else { return };
        if is_on_its_way || acquiring.is_in_doubt {
            self.tell(key, News::GaveUp);
            self.clean_up(now, key);
            return;
        }
        let how = match acquiring.last.take() {
            Some(problem) => Ended::Refused(problem),
            None => Ended::Unreachable,
        };
        self.end(key, how);
    }

    /// Gives up an acquire, or the grant that it got, without a caller to tell.
    pub fn abandon(&mut self, now: Moment, key: Key) {
        self.work_off(now);
        let Some(entry) = self.entries.get_mut(key) else { return };
        let is_on_its_way = entry.call.is_some();
        match &entry.phase {
            Phase::Acquiring(acquiring) if is_on_its_way || acquiring.is_in_doubt => {
                self.clean_up(now, key);
            }
            Phase::Acquiring(_) => self.end(key, Ended::Forgotten),
            Phase::Confirming(..) | Phase::Held(_) | Phase::Jeopardy(_) | Phase::Joined => {
                self.start_release(now, key, true);
            }
            Phase::Releasing(_) | Phase::Abandoned(_) => {}
        }
        self.rearm(key);
    }

    /// Leaves the queue, and finds out whether there is something to give back.
    fn clean_up(&mut self, now: Moment, key: Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Phase::Acquiring(_) = &entry.phase else { return };
        let lease_max = match entry.ask {
            Ask::Lease { ttl, .. } => ttl,
            Ask::Under { session, .. } => self.ttl_of(session),
        };
        let on_its_way = self.entries.get(key).and_then(|entry| entry.call);
        // Whatever it got lapses by then.
        let until = now.plus(lease_max);
        let abandoned = Abandoned { until, tries: 0, next: None };
        self.entries.get_mut(key).expect("it was there").phase = Phase::Abandoned(abandoned);
        match on_its_way {
            Some(call) => self.actions.push_back(Action::Cancel { call, key }),
            None => self.send_to_find_out(now, key),
        }
    }

    fn ttl_of(&self, session: Key) -> Duration {
        let session = self.entries.get(session);
        session.and_then(Entry::window).map_or(Duration::ZERO, |window| window.ttl())
    }

    /// The same request again, without a wait: if it was granted before, this is that grant, and it can be released.
    pub(super) fn send_to_find_out(&mut self, now: Moment, key: Key) {
        let next = now.plus(self.settings.answer_timeout);
        if let Some(abandoned) = self.abandoned_mut(key) {
            abandoned.next = Some(next);
            self.send(now, key, Request::Acquire { wait: Wait::Never, ticket: None });
        }
    }

    fn abandoned_mut(&mut self, key: Key) -> Option<&mut Abandoned> {
        match &mut self.entries.get_mut(key)?.phase {
            Phase::Abandoned(abandoned) => Some(abandoned),
            Phase::Acquiring(_)
            | Phase::Confirming(..)
            | Phase::Held(_)
            | Phase::Jeopardy(_)
            | Phase::Joined
            | Phase::Releasing(_) => None,
        }
    }

    pub(super) fn abandoned_due(&mut self, now: Moment, key: Key) {
        self.forget_call(now, key);
        let Some(abandoned) = self.abandoned_mut(key) else { return };
        if abandoned.until <= now {
            self.end(key, Ended::Forgotten);
        } else {
            self.send_to_find_out(now, key);
        }
    }

    pub(super) fn abandoned_failed(&mut self, now: Moment, key: Key) {
        let pause = |tries| doubled(self.settings.backoff_first, tries, self.settings.backoff_max);
        let Some(Phase::Abandoned(abandoned)) = self.entries.get(key).map(|entry| &entry.phase)
        else {
            return;
        };
        let pause = pause(abandoned.tries);
        let pause = self.jitter.spread(pause);
        if let Some(abandoned) = self.abandoned_mut(key) {
            abandoned.tries += 1;
            abandoned.next = Some(now.plus(pause));
        }
    }

    pub(super) fn abandoned_refused(&mut self, now: Moment, key: Key, problem: &Problem) {
        if is_undecided(problem) {
            self.abandoned_failed(now, key);
        } else {
            self.end(key, Ended::Forgotten);
        }
    }

    pub(super) fn granted(&mut self, now: Moment, call: Call, ttl: Duration, left: Duration) {
        let key = call.key;
        let Some(entry) = self.entries.get_mut(key) else { return };
        match (&entry.phase, entry.ask) {
            (Phase::Acquiring(_), Ask::Under { session, .. }) => self.joined(now, key, session),
            (Phase::Acquiring(_), Ask::Lease { .. }) => {
                let late = planted!("lease-counted-from-the-answer");
                let since = if late { now } else { call.sent };
                let window = LeaseWindow::counted(since, ttl, left);
                self.leased(now, call, window);
            }
            (Phase::Abandoned(abandoned), _) => {
                let until = abandoned.until.max(LeaseWindow::counted(now, ttl, left).lapses_at());
                entry.phase = Phase::Releasing(Releasing::until(until, true));
                self.send_release(now, key);
            }
            // An answer to a request that was sent twice: it is the same grant.
            (
                Phase::Confirming(..)
                | Phase::Held(_)
                | Phase::Jeopardy(_)
                | Phase::Joined
                | Phase::Releasing(_),
                _,
            ) => {}
        }
    }

    fn joined(&mut self, now: Moment, key: Key, session: Key) {
        let window = self.entries.get(session).and_then(Entry::window);
        let Some(window) = window else {
            // The session is on its way out, and this grant with it.
            self.end(key, Ended::Lost(super::Loss::SessionClosed));
            return;
        };
        self.entries.get_mut(key).expect("it was there").phase = Phase::Joined;
        self.tell(key, News::Granted(window));
        if window.state(now) != super::State::Valid {
            self.tell(key, News::Jeopardy);
        }
    }

    fn leased(&mut self, now: Moment, call: Call, window: LeaseWindow) {
        let key = call.key;
        let beat = self.next_beat(window);
        let heartbeat_at = window.heartbeat_at(self.settings.heartbeat);
        self.ttl_least = self.ttl_least.min(window.ttl());
        let entry = self.entries.get_mut(key).expect("it was there");
        let beat = if entry.ask.is_kept() { beat } else { Beat::NONE };
        let held = Held { window, sent: call.sent, beat };
        if now < heartbeat_at {
            entry.phase = Phase::Held(held);
            self.tell(key, News::Granted(window));
            return;
        }
        // It came late, after a wait in line: it is unknown how much of the lease is left.
        let before = Phase::Held(held);
        let Phase::Acquiring(mut acquiring) = std::mem::replace(&mut entry.phase, before) else {
            unreachable!("only an acquire is granted");
        };
        acquiring.next = Some(now.plus(window.ttl()));
        entry.phase = Phase::Confirming(Box::new(acquiring), held);
        self.send_beat(now, key);
    }

    /// The next heartbeat of a lease: early rather than late.
    pub(super) fn next_beat(&mut self, window: LeaseWindow) -> Beat {
        let interval = self.settings.heartbeat.of(window.ttl());
        let at = window.since().plus(self.jitter.shortened(interval));
        Beat { at, tries: 0, first_sent: None }
    }

    pub(super) fn acquire_failed(&mut self, now: Moment, key: Key) {
        if !planted!("acquire-lost-with-its-connection") {
            self.try_acquire_later(now, key, Duration::ZERO);
        }
    }

    fn try_acquire_later(&mut self, now: Moment, key: Key, at_least: Duration) {
        let (first, most) = (self.settings.backoff_first, self.settings.backoff_max);
        let Some((_, acquiring)) = self.acquiring_mut(key) else { return };
        let pause = doubled(first, acquiring.tries, most);
        acquiring.tries += 1;
        let pause = self.jitter.spread(pause).max(at_least);
        if let Some((_, acquiring)) = self.acquiring_mut(key) {
            acquiring.next = Some(now.plus(pause));
        }
    }

    pub(super) fn acquire_refused(&mut self, now: Moment, key: Key, mut problem: Box<Problem>) {
        let Some((_, acquiring)) = self.acquiring_mut(key) else { return };
        if is_undecided(&problem) {
            self.undecided(now, key, problem);
            return;
        }
        let has_time = acquiring.wait_until.is_none_or(|until| until > now);
        let is_in_the_way = matches!(problem.code, Code::LockHeld | Code::ReclaimWindow);
        if is_in_the_way && has_time && problem.ticket.is_some() {
            acquiring.ticket = problem.ticket;
            self.send_acquire(now, key);
        } else if problem.code == Code::TicketNotFound && acquiring.ticket.take().is_some() {
            self.send_acquire(now, key);
        } else {
            // This try came to nothing. The outcome of one that was never answered is unknown: it may have been granted, and
            // its lease be over by now.
            if acquiring.is_in_doubt {
                problem.outcome = RequestOutcome::Unknown;
            }
            self.end(key, Ended::Refused(problem));
        }
    }

    /// The server cannot decide just now: it is asked again, unless that would be too late for the caller.
    fn undecided(&mut self, now: Moment, key: Key, problem: Box<Problem>) {
        let Some((_, acquiring)) = self.acquiring_mut(key) else { return };
        acquiring.is_in_doubt |= problem.outcome == RequestOutcome::Unknown;
        let pause = Duration::from_millis(problem.recommended_retry_ms.unwrap_or(0));
        // Another server may know more, so its hint does not bind when there is a choice.
        let pause = if problem.code == Code::NotLeader { Duration::ZERO } else { pause };
        let is_too_long = acquiring.give_up.is_some_and(|at| now.plus(pause) >= at);
        acquiring.last = Some(problem);
        if is_too_long {
            self.give_up(now, key);
        } else {
            self.try_acquire_later(now, key, pause);
        }
    }
}

/// True if the server does not let the caller in, who may have a better token soon: the lease stands all the same.
pub fn is_denied(problem: &Problem) -> bool {
    matches!(problem.code, Code::Unauthenticated | Code::PermissionDenied)
}

/// The same for what is held already: a server that has too much to do has not ended the lease.
pub fn says_nothing_of_the_lease(problem: &Problem) -> bool {
    is_undecided(problem) || problem.code == Code::QuotaExceeded
}

/// True if the refusal does not depend on the lock: the same request may be decided a little later, or by another server.
pub fn is_undecided(problem: &Problem) -> bool {
    let is_decided = matches!(
        problem.code,
        Code::LockHeld
            | Code::ReclaimWindow
            | Code::TooManyWaiters
            | Code::SessionLimit
            | Code::QuotaExceeded
    );
    problem.code == Code::Internal || (problem.code.is_retryable() && !is_decided)
}
