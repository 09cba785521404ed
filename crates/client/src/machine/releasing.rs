//! Giving a lease back, for as long as it could still stand.

use leasehold_api::{Code, Gone, Problem, RequestOutcome};

use super::acquiring::says_nothing_of_the_lease;
use super::entry::{Ask, Entry, Phase, Releasing};
use super::jitter::doubled;
use super::machine::{Ended, Failure, Loss, Machine, Request};
use super::slab::Key;
use super::time::Moment;

impl Releasing {
    pub(super) const fn until(until: Moment, is_quiet: bool) -> Releasing {
        Releasing { until, is_in_doubt: false, tries: 0, next: None, is_quiet }
    }
}

impl<T> Machine<T> {
    /// Gives it back; with a session, everything under it. False if there is nothing to give back any more.
    pub fn release(&mut self, now: Moment, key: Key) -> bool {
        self.work_off(now);
        let Some(entry) = self.entries.get(key) else { return false };
        match entry.phase {
            Phase::Held(_) | Phase::Jeopardy(_) | Phase::Joined => {}
            Phase::Acquiring(_)
            | Phase::Confirming(..)
            | Phase::Releasing(_)
            | Phase::Abandoned(_) => return false,
        }
        self.start_release(now, key, false);
        self.rearm(key);
        true
    }

    pub(super) fn start_release(&mut self, now: Moment, key: Key, is_quiet: bool) {
        let until = match self.entries.get(key).map(|entry| (&entry.phase, entry.ask)) {
            Some((Phase::Joined, Ask::Under { session, .. })) => self.lapse_of(session),
            Some((Phase::Confirming(_, held), _)) => Some(held.window.lapses_at()),
            Some(_) => self.entries.get(key).and_then(Entry::window).map(|s| s.lapses_at()),
            None => None,
        };
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.phase = Phase::Releasing(Releasing::until(until.unwrap_or(now), is_quiet));
        entry.call = None;
        // The grants under it end with it from here on.
        for member in std::mem::take(&mut entry.members) {
            self.end(member, Ended::Lost(Loss::SessionClosed));
        }
        self.send_release(now, key);
    }

    fn lapse_of(&self, session: Key) -> Option<Moment> {
        self.entries.get(session).and_then(Entry::window).map(|window| window.lapses_at())
    }

    pub(super) fn send_release(&mut self, now: Moment, key: Key) {
        let next = now.plus(self.settings.answer_timeout);
        if let Some(releasing) = self.releasing_mut(key) {
            releasing.next = Some(next);
            self.send(now, key, Request::Release);
        }
    }

    fn releasing_mut(&mut self, key: Key) -> Option<&mut Releasing> {
        match &mut self.entries.get_mut(key)?.phase {
            Phase::Releasing(releasing) => Some(releasing),
            Phase::Acquiring(_)
            | Phase::Confirming(..)
            | Phase::Held(_)
            | Phase::Jeopardy(_)
            | Phase::Joined
            | Phase::Abandoned(_) => None,
        }
    }

    pub(super) fn releasing_due(&mut self, now: Moment, key: Key) {
        let Some(entry) = self.entries.get(key) else { return };
        let longer = match entry.ask {
            Ask::Under { session, .. } => self.lapse_of(session),
            Ask::Lease { .. } => None,
        };
        let is_unanswered = self.forget_call(now, key);
        let Some(releasing) = self.releasing_mut(key) else { return };
        releasing.is_in_doubt |= is_unanswered;
        releasing.until = longer.map_or(releasing.until, |at| at.max(releasing.until));
        if releasing.until <= now {
            let how = if releasing.is_quiet { Ended::Forgotten } else { Ended::ReleaseUnanswered };
            self.end(key, how);
        } else {
            self.send_release(now, key);
        }
    }

    pub(super) fn release_failed(&mut self, now: Moment, key: Key, failure: Failure) {
        let (first, most) = (self.settings.backoff_first, self.settings.backoff_max);
        let Some(releasing) = self.releasing_mut(key) else { return };
        releasing.is_in_doubt |= failure == Failure::Unknown;
        let pause = doubled(first, releasing.tries, most);
        releasing.tries += 1;
        let pause = self.jitter.spread(pause);
        if let Some(releasing) = self.releasing_mut(key) {
            releasing.next = Some(now.plus(pause));
        }
    }

    pub(super) fn released(&mut self, _now: Moment, key: Key) {
        if let Some(releasing) = self.releasing_mut(key) {
            let how = if releasing.is_quiet { Ended::Forgotten } else { Ended::Released };
            self.end(key, how);
        }
    }

    pub(super) fn release_refused(&mut self, now: Moment, key: Key, problem: Box<Problem>) {
        let Some(releasing) = self.releasing_mut(key) else { return };
        if says_nothing_of_the_lease(&problem) {
            let is_unknown = problem.outcome == RequestOutcome::Unknown;
            let failure = if is_unknown { Failure::Unknown } else { Failure::Unsent };
            self.release_failed(now, key, failure);
            return;
        }
        let is_over =
            matches!(problem.code, Code::NotHolder | Code::LeaseLost | Code::SessionNotFound)
                && problem.reason != Some(Gone::Expired);
        // Nothing is left to release because an earlier try did it, whose answer was lost. A server that remembers it says
        // so; one that has started since does not know.
        let how = if releasing.is_quiet {
            Ended::Forgotten
        } else if is_over && releasing.is_in_doubt {
            Ended::Released
        } else {
            Ended::NotReleased(problem)
        };
        self.end(key, how);
    }
}
