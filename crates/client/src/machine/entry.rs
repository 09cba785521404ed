//! One lease on its way: asked for, held, given back.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_api::Problem;

use super::slab::{CallId, Key};
use super::standing::Standing;
use super::time::Moment;

/// How long to wait for what is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Never,
    UpTo(Duration),
    Forever,
}

/// What is asked for, as far as time is concerned.
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
    /// When it is next looked at.
    pub(super) timer: Option<Moment>,
    /// The request that was sent last, if its answer is still to come.
    pub(super) call: Option<CallId>,
    /// It has something to send and waits for a connection.
    pub(super) is_in_line: bool,
    /// What stands under it, if it is a session.
    pub(super) members: BTreeSet<Key>,
}

#[derive(Debug)]
pub(super) enum Phase {
    Acquiring(Acquiring),
    /// Granted, but so long ago that it must be confirmed before anybody relies on it.
    Confirming(Box<Acquiring>, Held),
    Held(Held),
    /// Nothing is renewed any more.
    Jeopardy(Standing),
    /// Held under a session.
    Joined,
    Releasing(Releasing),
    /// Nobody wants it any more; what it may have got must not stay behind.
    Abandoned(Abandoned),
}

#[derive(Debug)]
pub(super) struct Acquiring {
    /// When the caller is told that no answer came.
    pub(super) give_up: Option<Moment>,
    /// When the waiting in line is over.
    pub(super) wait_until: Option<Moment>,
    /// Keeps the place in the queue.
    pub(super) ticket: Option<String>,
    /// Something was sent of which nobody knows what came.
    pub(super) is_in_doubt: bool,
    pub(super) tries: u32,
    /// When to send again: after a failure, or because the answer is overdue.
    pub(super) next: Option<Moment>,
    /// Why the last try failed.
    pub(super) last: Option<Box<Problem>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) standing: Standing,
    /// When the request was sent that the standing is the answer to.
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
    /// Nobody asked for it: it cleans up.
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
    /// When something must be done about it, whatever else happens.
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
                earliest(Some(held.standing.jeopardy_at()), unless_in_line(Some(held.beat.at)))
            }
            Phase::Jeopardy(standing) => Some(standing.lapses_at()),
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
    pub(super) fn standing(&self) -> Option<Standing> {
        match &self.phase {
            Phase::Held(held) => Some(held.standing),
            Phase::Jeopardy(standing) => Some(*standing),
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
