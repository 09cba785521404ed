//! What was asked and may still happen. What was answered `not_applied` never happens, not later either.
//!
//! Every lasting change that comes of a command names what it was made for: a lease, a register, a file, or the reason
//! that an operator gave. When it is in the log, one who asked for just that must still be without an answer, or have
//! been told that the outcome is unknown. Endings may be acknowledged before they are durable.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::{
    Answer, Command, Ending, Fence, LeaseId, Millis, Namespace, Owner, RegisterName, Transition,
    Under,
};
use leasehold_engine::{Call, CallError, Reply};

use super::Verdict;
use crate::time::Moment;

#[derive(Debug, Default)]
pub(crate) struct Asks {
    /// How many calls may still bring each of these about.
    open: BTreeMap<Change, u32>,
    /// What operators and file systems have done, and when that was durable last.
    done: BTreeMap<Change, Moment>,
    /// The lengths that each lease has had.
    ttls: BTreeSet<(Namespace, LeaseId, Millis)>,
}

/// A change as both its command and the log name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Granted(Namespace, LeaseId, Owner),
    Opened(Namespace, LeaseId),
    Ttl(Namespace, LeaseId, Millis),
    Accepted(Namespace, RegisterName, Fence),
    Deleted(Namespace, RegisterName, Arc<str>),
    Revoked(Arc<str>),
    FileRemoved(Namespace, u64),
    /// By its holder.
    Ended(Namespace, LeaseId),
}

impl Asks {
    pub(super) fn asked(&mut self, call: &Call) {
        let Call::Command(command) = call else { return };
        if let Some(change) = asked_for(command) {
            self.open(change);
        }
        // A session that nobody hears of is closed again.
        if let Command::OpenSession(open) = command {
            self.open(Change::Ended(open.namespace.clone(), open.id));
        }
    }

    /// The server ends a session by itself when its stream is gone.
    pub(super) fn disconnected(&mut self, namespace: &Namespace, session: LeaseId) {
        self.open(Change::Ended(namespace.clone(), session));
    }

    fn open(&mut self, change: Change) {
        *self.open.entry(change).or_insert(0) += 1;
    }

    pub(super) fn replied(
        &mut self,
        now: Moment,
        asked: Moment,
        call: &Call,
        reply: &Result<Reply, CallError>,
    ) -> Result<(), Verdict> {
        let Call::Command(command) = call else { return Ok(()) };
        let Some(change) = asked_for(command) else { return Ok(()) };
        if let Ok(Reply::Answer(answer)) = reply {
            self.has_happened(now, asked, &change, answer)?;
        }
        let may_still = match reply {
            Ok(_) => matches!(change, Change::Ended(..)),
            Err(error) => is_unknown(error),
        };
        if !may_still && let Some(open) = self.open.get_mut(&change) {
            *open = open.saturating_sub(1);
        }
        Ok(())
    }

    /// What was answered as applied is in the log.
    fn has_happened(
        &self,
        now: Moment,
        asked: Moment,
        change: &Change,
        answer: &Answer,
    ) -> Result<(), Verdict> {
        let has = match (change, answer) {
            (Change::Ttl(namespace, lease, _), Answer::Renewed(renewed)) => {
                self.ttls.contains(&(namespace.clone(), *lease, renewed.ttl))
            }
            (
                Change::Revoked(_) | Change::FileRemoved(..),
                Answer::Broken { grants } | Answer::FileRemoved { grants, .. },
            ) if *grants > 0 => self.done.get(change).is_some_and(|at| asked <= *at),
            (Change::Deleted(..), Answer::FenceDeleted { .. })
            | (Change::Revoked(_), Answer::SessionClosed { .. }) => self.done.contains_key(change),
            _ => true,
        };
        if has {
            return Ok(());
        }
        let what = format!("{change:?}, answered with {answer:?}");
        Err(Verdict::new(now, "what was answered as applied has happened", what))
    }

    /// A transition is in the log.
    pub(super) fn written(&mut self, now: Moment, transition: &Transition) -> Result<(), Verdict> {
        self.note_ttl(transition);
        let Some(change) = made_by(transition) else { return Ok(()) };
        if self.open.get(&change).is_none_or(|open| *open == 0) {
            let what = format!("{change:?} is in the log");
            return Err(Verdict::new(now, "what was answered as not applied never happens", what));
        }
        if matches!(change, Change::Deleted(..) | Change::Revoked(_) | Change::FileRemoved(..)) {
            self.done.insert(change, now);
        }
        Ok(())
    }

    fn note_ttl(&mut self, transition: &Transition) {
        let (namespace, lease, ttl) = match transition {
            Transition::SessionOpened(opened) => (&opened.namespace, opened.lease, opened.ttl),
            Transition::Granted(granted) => match granted.opens {
                Some(ttl) => (&granted.namespace, granted.lease, ttl),
                None => return,
            },
            Transition::TtlChanged { namespace, lease, ttl } => (namespace, *lease, *ttl),
            _ => return,
        };
        self.ttls.insert((namespace.clone(), lease, ttl));
    }
}

/// Whether the one who asked does not learn what came of it.
pub(super) fn is_unknown(error: &CallError) -> bool {
    match error {
        CallError::StoreUnavailable { outcome_unknown, .. } => *outcome_unknown,
        CallError::Stopped => true,
        CallError::Refused(_)
        | CallError::NotLeader { .. }
        | CallError::Draining
        | CallError::Busy => false,
    }
}

/// The change that a command asks for, if it can make a lasting one.
fn asked_for(command: &Command) -> Option<Change> {
    let ttl = |namespace: &Namespace, lease: LeaseId, ttl: Option<std::time::Duration>| {
        Some(Change::Ttl(namespace.clone(), lease, Millis::from_duration(ttl?)?))
    };
    match command {
        Command::Acquire(acquire) => {
            let lease = match acquire.under {
                Under::NewLease { id, .. } | Under::Session(id) => id,
            };
            Some(Change::Granted(acquire.namespace.clone(), lease, acquire.owner.clone()))
        }
        Command::OpenSession(open) => Some(Change::Opened(open.namespace.clone(), open.id)),
        Command::Renew(renew) => ttl(&renew.namespace, renew.lease, renew.ttl),
        Command::KeepAlive(keep) => ttl(&keep.namespace, keep.session, keep.ttl),
        Command::AcceptFence(accept) => {
            let (namespace, register) = (accept.namespace.clone(), accept.register.clone());
            Some(Change::Accepted(namespace, register, accept.fence))
        }
        Command::DeleteFence(delete) => {
            let (namespace, register) = (delete.namespace.clone(), delete.register.clone());
            Some(Change::Deleted(namespace, register, delete.reason.clone()))
        }
        Command::Break(broken) => Some(Change::Revoked(broken.reason.clone())),
        Command::BreakSession(broken) => Some(Change::Revoked(broken.reason.clone())),
        Command::RemoveFile(remove) => {
            Some(Change::FileRemoved(remove.namespace.clone(), remove.inode))
        }
        Command::Release(release) => Some(Change::Ended(release.namespace.clone(), release.lease)),
        Command::Unlock(unlock) => Some(Change::Ended(unlock.namespace.clone(), unlock.session)),
        Command::CloseSession(close) => Some(Change::Ended(close.namespace.clone(), close.session)),
        Command::Disconnect(gone) => Some(Change::Ended(gone.namespace.clone(), gone.session)),
        _ => None,
    }
}

/// The same change as the log has it; `None` if it came of no command, or of the end of another grant.
fn made_by(transition: &Transition) -> Option<Change> {
    match transition {
        Transition::Granted(granted) => {
            let (namespace, owner) = (granted.namespace.clone(), granted.owner.clone());
            Some(Change::Granted(namespace, granted.lease, owner))
        }
        Transition::SessionOpened(opened) => {
            Some(Change::Opened(opened.namespace.clone(), opened.lease))
        }
        Transition::TtlChanged { namespace, lease, ttl } => {
            Some(Change::Ttl(namespace.clone(), *lease, *ttl))
        }
        Transition::FenceAccepted { namespace, register, fence } => {
            Some(Change::Accepted(namespace.clone(), register.clone(), *fence))
        }
        Transition::FenceDeleted { namespace, register, reason } => {
            Some(Change::Deleted(namespace.clone(), register.clone(), reason.clone()))
        }
        Transition::LeaseEnded { namespace, lease, ending }
        | Transition::GrantEnded { namespace, lease, ending, .. }
        | Transition::KeyEnded { namespace, lease, ending, .. }
        | Transition::RangeEnded { namespace, lease, ending, .. } => match ending {
            Ending::Released | Ending::Closed | Ending::Disconnected => {
                Some(Change::Ended(namespace.clone(), *lease))
            }
            Ending::Revoked(reason) => Some(Change::Revoked(reason.clone())),
            Ending::FileRemoved => match transition {
                Transition::RangeEnded { inode, .. } => {
                    Some(Change::FileRemoved(namespace.clone(), *inode))
                }
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}
