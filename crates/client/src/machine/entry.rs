//! One lease on its way: asked for, held, given back.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_api::Problem;

use super::machine::Loss;
use super::slab::{CallId, Key};
use super::time::Moment;
use super::window::LeaseWindow;

/// Longest wait in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Never,
    UpTo(Duration),
    Forever,
}

/// Request for a lease or a grant, as far as time is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A grant with a lease of its own; a session, which is a lease that nothing stands under yet.
    ///
    /// It is kept alive by heartbeats, unless that is not wanted yet.
    Lease { ttl: Duration, wait: Wait, is_kept: bool },
    /// A grant under the lease of a session: renewed with it, lost with it.
    Under { session: Key, wait: Wait },
}

impl Ask {
    pub(super) const fn is_kept(&self) -> bool {
        match self {
            Ask::Lease { is_kept, .. } => *is_kept,
            Ask::Under { .. } => true,
        }
    }

    pub(super) const fn wait(&self) -> Wait {
        match self {
            Ask::Lease { wait, .. } | Ask::Under { wait, .. } => *wait,
        }
    }
}

#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) data: T,
    pub(super) ask: Ask,
    pub(super) phase: Phase,
    /// Moment of its timer.
    pub(super) timer: Option<Moment>,
    /// The request that was sent last, if its answer is still to come.
    pub(super) call: Option<CallId>,
    /// It has something to send and waits for a connection.
    pub(super) is_in_line: bool,
    /// Grants under it, if it is a session.
    pub(super) members: BTreeSet<Key>,
    /// The reason why the last renewal was rejected. If no other is accepted, that is how the lease was lost.
    pub(super) denied: Option<Box<Problem>>,
}

impl<T> Entry<T> {
    /// The ending of the lease when its ttl is over.
    pub(super) fn lapse(&mut self) -> Loss {
        self.denied.take().map_or(Loss::Lapsed, Loss::Told)
    }
}

#[derive(Debug)]
pub(super) enum Phase {
    Acquiring(Acquiring),
    /// Granted, but so long ago that it must be confirmed before the caller relies on it.
    Confirming(Box<Acquiring>, Held),
    Held(Held),
    /// No heartbeat is sent any more.
    Jeopardy(LeaseWindow),
    /// Held under a session.
    Joined,
    Releasing(Releasing),
    /// The caller is gone; a grant it may have got must be released.
    Abandoned(Abandoned),
}

#[derive(Debug)]
pub(super) struct Acquiring {
    /// Moment at which the caller is told that no answer came.
    pub(super) give_up: Option<Moment>,
    /// End of the wait in the queue.
    pub(super) wait_until: Option<Moment>,
    /// Keeps the place in the queue.
    pub(super) ticket: Option<String>,
    /// The outcome of an earlier try is unknown.
    pub(super) is_in_doubt: bool,
    pub(super) tries: u32,
    /// Moment of the next try: after a failure, or because the answer is overdue.
    pub(super) next: Option<Moment>,
    /// The reason why the last try failed.
    pub(super) last: Option<Box<Problem>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) window: LeaseWindow,
    /// Moment at which the request was sent that the window is the answer to.
    pub(super) sent: Moment,
    pub(super) beat: Beat,
}

/// The next heartbeat, and the ones that were sent since the last that was confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beat {
    pub(super) at: Moment,
    pub(super) tries: u32,
    pub(super) first_sent: Option<Moment>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Releasing {
    /// After that the lease is over anyway.
    pub(super) until: Moment,
    pub(super) is_in_doubt: bool,
    pub(super) tries: u32,
    pub(super) next: Option<Moment>,
    /// Cleanup without a caller.
    pub(super) is_quiet: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Abandoned {
    pub(super) until: Moment,
    pub(super) tries: u32,
    pub(super) next: Option<Moment>,
}

impl Beat {
    /// None is wanted.
    pub(super) const NONE: Beat = Beat { at: Moment::MAX, tries: 0, first_sent: None };
}

impl<T> Entry<T> {
    /// Moment of its next action, unless an input comes first.
    pub(super) fn due_at(&self) -> Option<Moment> {
        // What waits for a connection is sent when there is one, not at a time.
        let unless_in_line = |at: Option<Moment>| at.filter(|_| !self.is_in_line);
        match &self.phase {
            Phase::Acquiring(acquiring) => {
                earliest(acquiring.give_up, unless_in_line(acquiring.next))
            }
            Phase::Confirming(acquiring, held) => {
                earliest(acquiring.next, unless_in_line(Some(held.beat.at)))
            }
            Phase::Held(held) => {
                earliest(Some(held.window.jeopardy_at()), unless_in_line(Some(held.beat.at)))
            }
            Phase::Jeopardy(window) => Some(window.lapses_at()),
            Phase::Joined => None,
            Phase::Releasing(releasing) => {
                earliest(Some(releasing.until), unless_in_line(releasing.next))
            }
            Phase::Abandoned(abandoned) => {
                earliest(Some(abandoned.until), unless_in_line(abandoned.next))
            }
        }
    }

    /// The lease as it stands, while it is held.
    pub(super) fn window(&self) -> Option<LeaseWindow> {
        match &self.phase {
            Phase::Held(held) => Some(held.window),
            Phase::Jeopardy(window) => Some(*window),
            Phase::Acquiring(_)
            | Phase::Confirming(..)
            | Phase::Joined
            | Phase::Releasing(_)
            | Phase::Abandoned(_) => None,
        }
    }
}

fn earliest(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
