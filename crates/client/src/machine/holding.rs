//! Keeping a lease: heartbeats, and what is believed when they fail.

use std::time::Duration;

use leasehold_api::Problem;

use super::acquiring::{is_denied, says_nothing_of_the_lease};
use super::entry::{Ask, Beat, Held, Phase};
use super::jitter::doubled;
use super::link::Link;
use super::machine::{Call, Loss, Machine, News, Request};
use super::slab::Key;
use super::time::Moment;
use super::window::{LeaseWindow, RESEND_PART, STALL_PART, State};

/// No ttl that a server grants is so short that it needs more.
const RESEND_MIN: Duration = Duration::from_millis(5);

impl<T> Machine<T> {
    fn held_mut(&mut self, key: Key) -> Option<&mut Held> {
        match &mut self.entries.get_mut(key)?.phase {
            Phase::Held(held) | Phase::Confirming(_, held) => Some(held),
            Phase::Acquiring(_)
            | Phase::Jeopardy(_)
            | Phase::Joined
            | Phase::Releasing(_)
            | Phase::Abandoned(_) => None,
        }
    }

    pub(super) fn held_due(&mut self, now: Moment, key: Key) {
        let Some(held) = self.held_mut(key) else { return };
        let (window, beat) = (held.window, held.beat);
        match window.state(now) {
            State::Lost => self.lapse(key),
            State::Jeopardy => self.in_jeopardy(key, window),
            State::Valid if beat.at <= now => self.send_beat(now, key),
            State::Valid => {}
        }
    }

    /// Renews now, whenever the next heartbeat is due. False if there is nothing to renew.
    pub fn renew(&mut self, now: Moment, key: Key) -> bool {
        self.work_off(now);
        let is_held = matches!(self.entries.get(key).map(|e| &e.phase), Some(Phase::Held(_)));
        if is_held {
            let beat = self.held_mut(key).map(|held| held.beat);
            self.send_beat(now, key);
            if let (Some(Beat::NONE), Some(held)) = (beat, self.held_mut(key)) {
                held.beat = Beat::NONE;
            }
            self.rearm(key);
        }
        is_held
    }

    /// Keeps a lease alive from here on that was asked for without.
    pub fn start_heartbeat(&mut self, now: Moment, key: Key) {
        self.work_off(now);
        let Some(entry) = self.entries.get_mut(key) else { return };
        if let Ask::Lease { is_kept, .. } = &mut entry.ask {
            *is_kept = true;
        }
        if let Phase::Held(Held { window, beat: Beat::NONE, .. }) = entry.phase {
            let beat = self.next_beat(window);
            if let Some(held) = self.held_mut(key) {
                held.beat = beat;
            }
            self.rearm(key);
        }
    }

    fn in_jeopardy(&mut self, key: Key, window: LeaseWindow) {
        let entry = self.entries.get_mut(key).expect("it was there");
        entry.phase = Phase::Jeopardy(window);
        let members: Vec<Key> = entry.members.iter().copied().collect();
        self.tell(key, News::Jeopardy);
        for member in members {
            if matches!(self.entries.get(member).map(|e| &e.phase), Some(Phase::Joined)) {
                self.tell(member, News::Jeopardy);
            }
        }
    }

    pub(super) fn send_beat(&mut self, now: Moment, key: Key) {
        self.give_up_stalled_link(now, key);
        let Some(held) = self.held_mut(key) else { return };
        let resend = (held.window.ttl() / RESEND_PART).max(RESEND_MIN);
        let resend = self.jitter.spread(resend);
        if self.send(now, key, Request::Renew)
            && let Some(held) = self.held_mut(key)
        {
            held.beat.tries += 1;
            held.beat.first_sent.get_or_insert(now);
            held.beat.at = now.plus(resend);
        }
    }

    /// A server that answers others is slow. One without any answer is gone, and another may be there.
    fn give_up_stalled_link(&mut self, now: Moment, key: Key) {
        let Link::Up { heard, .. } = self.link else { return };
        let Some(held) = self.held_mut(key) else { return };
        let Some(first) = held.beat.first_sent else { return };
        let silence = now.since(first.max(heard));
        if silence >= held.window.ttl() / STALL_PART {
            held.beat.first_sent = None;
            self.servers.rotate();
            self.drop_link(now);
        }
    }

    pub(super) fn renewed(&mut self, now: Moment, call: Call, ttl: Duration, left: Duration) {
        let key = call.key;
        let since = if planted!("lease-counted-from-the-answer") { now } else { call.sent };
        let window = LeaseWindow::counted(since, ttl, left);
        self.ttl_least = self.ttl_least.min(window.ttl());
        let beat = self.next_beat(window);
        let Some(entry) = self.entries.get_mut(key) else { return };
        let is_kept = entry.ask.is_kept();
        match &mut entry.phase {
            // An answer may come after a younger one. A server that counts in milliseconds may say of the younger that
            // it ends a little earlier, so they are told apart by when they were asked for.
            Phase::Held(held) if held.sent <= call.sent => {
                let beat = if is_kept { beat } else { Beat::NONE };
                *held = Held { window, sent: call.sent, beat };
                entry.denied = None;
                self.tell(key, News::Renewed(window));
            }
            Phase::Confirming(..) if window.state(now) == State::Valid => {
                let beat = if is_kept { beat } else { Beat::NONE };
                entry.phase = Phase::Held(Held { window, sent: call.sent, beat });
                self.tell(key, News::Granted(window));
            }
            // In jeopardy the work has been told to stop: it is too late to go on.
            Phase::Held(_)
            | Phase::Confirming(..)
            | Phase::Jeopardy(_)
            | Phase::Acquiring(_)
            | Phase::Joined
            | Phase::Releasing(_)
            | Phase::Abandoned(_) => {}
        }
    }

    pub(super) fn beat_failed(&mut self, now: Moment, key: Key, at_least: Option<Duration>) {
        let first = self.settings.backoff_first;
        let Some(held) = self.held_mut(key) else { return };
        let (tries, most) = (held.beat.tries, held.window.ttl() / RESEND_PART);
        let pause = self.jitter.spread(doubled(first, tries, most.max(first).min(first * 25)));
        let pause = at_least.map_or(pause, |at_least| pause.max(at_least).min(most));
        if let Some(held) = self.held_mut(key) {
            held.beat.at = now.plus(pause);
        }
    }

    pub(super) fn renewal_refused(&mut self, now: Moment, key: Key, problem: Box<Problem>) {
        let hint = problem.recommended_retry_ms.map(Duration::from_millis);
        if is_denied(&problem) {
            self.beat_failed(now, key, hint);
            if let Some(entry) = self.entries.get_mut(key) {
                entry.denied = Some(problem);
            }
        } else if says_nothing_of_the_lease(&problem) {
            self.beat_failed(now, key, hint);
        } else {
            self.lose(key, Loss::Told(problem));
        }
    }

    pub(super) fn confirming_due(&mut self, now: Moment, key: Key) {
        let Some(Phase::Confirming(acquiring, _)) = self.entries.get(key).map(|e| &e.phase) else {
            return;
        };
        if acquiring.next.is_some_and(|at| at <= now) {
            self.ask_anew(now, key);
        } else {
            self.send_beat(now, key);
        }
    }

    pub(super) fn confirm_refused(&mut self, now: Moment, key: Key, problem: &Problem) {
        if says_nothing_of_the_lease(problem) {
            let hint = problem.recommended_retry_ms.map(Duration::from_millis);
            self.beat_failed(now, key, hint);
        } else {
            self.ask_anew(now, key);
        }
    }

    /// The grant was over before the caller could be told of it.
    fn ask_anew(&mut self, now: Moment, key: Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Phase::Confirming(mut acquiring, _) =
            std::mem::replace(&mut entry.phase, Phase::Joined)
        else {
            unreachable!("only what is being confirmed is asked for anew");
        };
        acquiring.ticket = None;
        acquiring.is_in_doubt = true;
        entry.phase = Phase::Acquiring(*acquiring);
        entry.call = None;
        self.send_acquire(now, key);
    }
}
