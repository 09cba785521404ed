//! Looks on while clients work, and notes each promise that is broken.
//!
//! A client's belief to hold a lock counts by its own clock, from before it asked until its lease is over or it gave the
//! lock back. All clients are in one process, so their clocks are one.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_client::machine::Moment;
use parking_lot::{Mutex, MutexGuard};

use crate::args::Fault;

/// More of the same says nothing new.
const BROKEN_MAX: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    TwoBelievers { lock: u32, earlier: u64, later: u64 },
    TokenDidNotRise { lock: u32, before: u64, token: u64 },
    StaleWriteAccepted { lock: u32, written: u64, token: u64 },
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::TwoBelievers { lock, earlier, later } => {
                write!(
                    f,
                    "lock {lock}: token {later} was granted while the holder of {earlier} still believed"
                )
            }
            Broken::TokenDidNotRise { lock, before, token } => {
                write!(f, "lock {lock}: token {token} came after {before}")
            }
            Broken::StaleWriteAccepted { lock, written, token } => {
                write!(f, "lock {lock}: a write with {token} was accepted after one with {written}")
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Judge {
    locks: Vec<Mutex<Seen>>,
    granted: AtomicU64,
    broken: Mutex<Vec<Broken>>,
    plant: Option<Fault>,
}

/// One lock, as its clients have seen it.
#[derive(Debug, Default)]
struct Seen {
    token: u64,
    /// The one before it: a write with it is stale once the other has written.
    older: u64,
    /// The client that believes to hold it, and until when.
    believer: Option<(u64, Moment)>,
    /// The highest token that its register is known to have accepted.
    written: u64,
    /// A write was sent, whatever came of it.
    is_written_to: bool,
}

impl Judge {
    pub(super) fn new(locks: u32, plant: Option<Fault>) -> Judge {
        let locks = (0..locks).map(|_| Mutex::default()).collect();
        Judge { locks, granted: AtomicU64::new(0), broken: Mutex::default(), plant }
    }

    fn seen(&self, lock: u32) -> MutexGuard<'_, Seen> {
        self.locks[lock as usize].lock()
    }

    fn note(&self, broken: Broken) {
        let mut noted = self.broken.lock();
        if noted.len() < BROKEN_MAX {
            noted.push(broken);
        }
    }

    pub(super) fn broken(&self) -> Vec<Broken> {
        self.broken.lock().clone()
    }

    pub(super) fn granted(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }

    /// A client has just been told that it holds the lock, and may believe so until `lapses_at`.
    pub(super) fn took(&self, now: Moment, lock: u32, token: u64, lapses_at: Moment) {
        self.granted.fetch_add(1, Ordering::Relaxed);
        let mut seen = self.seen(lock);
        let token =
            if self.plant == Some(Fault::TokenRepeated) { seen.token.max(1) } else { token };
        if let Some((earlier, until)) = seen.believer
            && now < until
        {
            self.note(Broken::TwoBelievers { lock, earlier, later: token });
        }
        if token <= seen.token {
            self.note(Broken::TokenDidNotRise { lock, before: seen.token, token });
        }
        if token > seen.token {
            seen.older = seen.token;
            seen.token = token;
        }
        seen.believer = Some((token, lapses_at));
    }

    /// The lease was renewed.
    pub(super) fn keeps(&self, lock: u32, token: u64, lapses_at: Moment) {
        let mut seen = self.seen(lock);
        if let Some((believer, until)) = &mut seen.believer
            && *believer == token
        {
            *until = lapses_at.max(*until);
        }
    }

    /// The client is about to give it back: it believes no longer.
    pub(super) fn gives_back(&self, lock: u32, token: u64) {
        if self.plant == Some(Fault::TwoBelievers) {
            return;
        }
        let mut seen = self.seen(lock);
        if seen.believer.is_some_and(|(believer, _)| believer == token) {
            seen.believer = None;
        }
    }

    /// The highest token that the register has accepted for certain, before a write is sent.
    pub(super) fn before_write(&self, lock: u32) -> u64 {
        let mut seen = self.seen(lock);
        seen.is_written_to = true;
        seen.written
    }

    /// The locks whose registers may exist.
    pub(super) fn written_to(&self) -> impl Iterator<Item = u32> {
        (0_u32..)
            .zip(&self.locks)
            .map(|(lock, _)| lock)
            .filter(|lock| self.seen(*lock).is_written_to)
    }

    /// A token whose holder is gone, and the one that came after it; if there were two.
    pub(super) fn stale_and_newer(&self, lock: u32) -> Option<(u64, u64)> {
        let seen = self.seen(lock);
        (seen.older > 0).then_some((seen.older, seen.token))
    }

    /// The register accepted a write. `before` is what it had accepted before that was sent.
    pub(super) fn wrote(&self, lock: u32, token: u64, before: u64) {
        if token < before {
            self.note(Broken::StaleWriteAccepted { lock, written: before, token });
        }
        let mut seen = self.seen(lock);
        seen.written = seen.written.max(token);
    }

    /// The register refused a stale write, as it must.
    pub(super) fn refused_write(&self, lock: u32, token: u64, before: u64) {
        if self.plant == Some(Fault::StaleWrite) {
            self.wrote(lock, token, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_millis(millis)
    }

    #[test]
    fn holders_one_after_the_other_break_nothing() {
        let judge = Judge::new(1, None);
        judge.took(at(0), 0, 1, at(100));
        judge.gives_back(0, 1);
        judge.took(at(10), 0, 2, at(110));
        // It vanished; the next one comes when its lease is over.
        judge.took(at(110), 0, 3, at(210));
        let before = judge.before_write(0);
        judge.wrote(0, 3, before);
        judge.refused_write(0, 2, judge.before_write(0));
        assert_eq!(judge.broken(), []);
        assert_eq!(judge.granted(), 3);
    }

    #[test]
    fn second_believer_is_noted() {
        let judge = Judge::new(1, None);
        judge.took(at(0), 0, 1, at(100));
        judge.keeps(0, 1, at(150));
        judge.took(at(149), 0, 2, at(250));
        assert_eq!(judge.broken(), [Broken::TwoBelievers { lock: 0, earlier: 1, later: 2 }]);
    }

    #[test]
    fn token_that_does_not_rise_is_noted() {
        let judge = Judge::new(2, None);
        judge.took(at(0), 1, 7, at(1));
        judge.took(at(5), 1, 7, at(6));
        assert_eq!(judge.broken(), [Broken::TokenDidNotRise { lock: 1, before: 7, token: 7 }]);
    }

    #[test]
    fn stale_write_is_noted_only_if_the_newer_one_was_there_before_it_was_sent() {
        let judge = Judge::new(1, None);
        let early = judge.before_write(0);
        judge.wrote(0, 9, judge.before_write(0));
        judge.wrote(0, 8, early);
        assert_eq!(judge.broken(), []);
        judge.wrote(0, 8, judge.before_write(0));
        assert_eq!(judge.broken(), [Broken::StaleWriteAccepted { lock: 0, written: 9, token: 8 }]);
    }
}
