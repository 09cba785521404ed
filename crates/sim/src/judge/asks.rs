//! What was asked and may still happen. What was answered `not_applied` never happens, not later either; what was answered
//! as applied has happened.
//!
//! Every lasting change that comes of a command names what it was made for: a lease, a token, a register, a file, or the
//! reason that an operator gave. When it is in the log, one who asked for just that must still be without an answer, or
//! have been told that the outcome is unknown. Endings may be acknowledged before they are durable; then they are in the
//! log as soon as it has come as far as the table was when they were acknowledged, unless a new leader has begun before.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::{
    Answer, ByteRange, Claim, Command, DeleteFence, Ending, Epoch, FencingToken, LeaseId, Millis,
    Mode, Namespace, Owner, OwnerAction, RegisterName, Revision, Scope, Transition, Under,
};
use leasehold_engine::{Call, CallError, Reply};

use super::Verdict;
use super::log::Log;
use crate::time::Moment;

#[derive(Debug, Default)]
pub(crate) struct Asks {
    /// How many calls may still bring each of these about.
    open: BTreeMap<Change, u32>,
    /// What operators and file systems have done, and when that was durable last.
    done: BTreeMap<Change, Moment>,
    /// The lengths that each lease has had.
    ttls: BTreeSet<(Namespace, LeaseId, Millis)>,
    /// Who each lease was granted to.
    owners: BTreeMap<(Namespace, LeaseId), Owner>,
    /// Leases that were marked as over, to end in turns.
    ending: BTreeSet<(Namespace, LeaseId)>,
    /// Endings that were acknowledged.
    owed: Vec<Owed>,
}

/// A change as both its command and the log name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Granted(Namespace, LeaseId, Owner, Vec<Claim>),
    Opened(Namespace, LeaseId),
    Ttl(Namespace, LeaseId, Millis),
    /// Of a lease that its owner did not name.
    TtlOf(Namespace, Owner, Millis),
    Accepted(Namespace, RegisterName, FencingToken),
    Deleted(Namespace, RegisterName, Arc<str>),
    Revoked(Arc<str>),
    FileRemoved(Namespace, u64),
    /// By its holder: all of a lease, what was granted with a token, bytes.
    Released(Namespace, LeaseId),
    GrantReleased(Namespace, LeaseId, FencingToken),
    BytesReleased(Namespace, LeaseId, Owner, u64, ByteRange),
    /// Under a lease that its owner did not name.
    ReleasedOf(Namespace, Owner),
    Closed(Namespace, LeaseId),
    Disconnected(Namespace, LeaseId),
}

/// An ending that was acknowledged and is not in the log yet.
#[derive(Debug)]
struct Owed {
    epoch: Epoch,
    /// The log has it when it has come that far.
    revision: Revision,
    what: Ends,
}

#[derive(Debug)]
enum Ends {
    Grant(FencingToken),
    Lease(Namespace, LeaseId),
}

/// An answer, and when and where it was given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered<'a> {
    pub(crate) now: Moment,
    /// When the call came in.
    pub(crate) asked: Moment,
    /// How far the table of the server was, with what is in doubt.
    pub(crate) revision: Option<Revision>,
    pub(crate) call: &'a Call,
    pub(crate) reply: &'a Result<Reply, CallError>,
}

impl Asks {
    pub(super) fn asked(&mut self, call: &Call) {
        if let Call::Command(command) = call {
            asked_for(command).into_iter().for_each(|change| self.open(change));
        }
    }

    /// The server ends a session by itself when its stream is gone.
    pub(super) fn disconnected(&mut self, namespace: &Namespace, session: LeaseId) {
        self.open(Change::Disconnected(namespace.clone(), session));
    }

    /// Nobody heard that the session was opened: the server closes it again.
    pub(crate) fn unheard(&mut self, namespace: &Namespace, session: LeaseId) {
        self.open(Change::Closed(namespace.clone(), session));
    }

    /// A store that forgets is gone with its server, and what it owed.
    pub(super) fn forgotten(&mut self) {
        self.owed.clear();
    }

    fn open(&mut self, change: Change) {
        *self.open.entry(change).or_insert(0) += 1;
    }

    fn close(&mut self, change: &Change) {
        if let Some(open) = self.open.get_mut(change) {
            *open = open.saturating_sub(1);
        }
    }

    pub(super) fn replied(&mut self, answered: &Answered<'_>, log: &Log) -> Result<(), Verdict> {
        let Call::Command(command) = answered.call else { return Ok(()) };
        let changes = asked_for(command);
        match answered.reply {
            Ok(Reply::Answer(answer)) => {
                self.has_happened(answered, command, answer)?;
                // What was acknowledged before it is durable is still to come.
                let closed = changes.iter().filter(|change| !may_come_after(change));
                closed.for_each(|change| self.close(change));
                if let Some(revision) = answered.revision {
                    let what = ends(command, answer, answered.asked, log);
                    let epoch = log.epoch();
                    self.owed.extend(what.into_iter().map(|what| Owed { epoch, revision, what }));
                }
            }
            Err(error) if is_unknown(error) => {
                if let Command::OpenSession(open) = command {
                    self.unheard(&open.namespace, open.id);
                }
            }
            Ok(Reply::View(_)) | Err(_) => changes.iter().for_each(|change| self.close(change)),
        }
        Ok(())
    }

    /// What was answered as applied is in the log.
    fn has_happened(
        &self,
        answered: &Answered<'_>,
        command: &Command,
        answer: &Answer,
    ) -> Result<(), Verdict> {
        let (now, asked) = (answered.now, answered.asked);
        let was_long = |namespace: &Namespace, lease: LeaseId, ttl: Millis| {
            self.ttls.contains(&(namespace.clone(), lease, ttl))
        };
        let done = |change: &Change| self.done.get(change).is_some_and(|at| asked <= *at);
        let has = match (command, answer) {
            (Command::Renew(renew), Answer::Renewed(renewed)) => {
                was_long(&renew.namespace, renew.lease, renewed.ttl)
            }
            (Command::KeepAlive(keep), Answer::Renewed(renewed)) => {
                was_long(&keep.namespace, keep.session, renewed.ttl)
            }
            (Command::ByOwner(ask), Answer::Granted(grant)) => {
                was_long(&ask.namespace, grant.lease, grant.ttl)
            }
            (Command::Break(broken), Answer::Broken { grants, .. }) => {
                *grants == 0 || done(&Change::Revoked(broken.reason.clone()))
            }
            (Command::BreakSession(broken), Answer::SessionClosed { .. }) => {
                done(&Change::Revoked(broken.reason.clone()))
            }
            (Command::RemoveFile(remove), Answer::FileRemoved { grants, .. }) => {
                *grants == 0 || done(&Change::FileRemoved(remove.namespace.clone(), remove.inode))
            }
            (Command::DeleteFence(delete), Answer::FenceDeleted { .. }) => done(&deletion(delete)),
            _ => true,
        };
        if has {
            return Ok(());
        }
        let what = format!("{command:?}, answered with {answer:?}");
        Err(Verdict::new(now, "what was answered as applied has happened", what))
    }

    /// A transition is in the log.
    pub(super) fn written(&mut self, now: Moment, transition: &Transition) -> Result<(), Verdict> {
        self.note(transition);
        let changes = self.made_by(transition);
        let is_open = |change: &Change| self.open.get(change).is_some_and(|open| *open > 0);
        if !changes.is_empty() && !changes.iter().any(is_open) {
            let what = format!("{changes:?} is in the log");
            return Err(Verdict::new(now, "what was answered as not applied never happens", what));
        }
        for change in changes {
            if matches!(change, Change::Deleted(..) | Change::Revoked(_) | Change::FileRemoved(..))
            {
                self.done.insert(change, now);
            }
        }
        Ok(())
    }

    /// All of a record is in the log: what was acknowledged before is over.
    pub(super) fn settle(&mut self, now: Moment, log: &Log) -> Result<(), Verdict> {
        let (epoch, revision) = (log.epoch(), log.table().revision());
        for owed in std::mem::take(&mut self.owed) {
            if owed.epoch < epoch {
                // A crash may bring back what was released.
            } else if owed.revision > revision {
                self.owed.push(owed);
            } else if !owed.what.are_over(log) {
                let what = format!("{:?}, acknowledged at revision {}", owed.what, owed.revision.0);
                return Err(Verdict::new(now, "what was acknowledged has ended", what));
            }
        }
        Ok(())
    }

    fn note(&mut self, transition: &Transition) {
        let (namespace, lease, owner, ttl) = match transition {
            Transition::SessionOpened(opened) => {
                (&opened.namespace, opened.lease, Some(&opened.owner), opened.ttl)
            }
            Transition::Granted(granted) => match granted.opens {
                Some(ttl) => (&granted.namespace, granted.lease, Some(&granted.owner), ttl),
                None => return,
            },
            Transition::TtlChanged { namespace, lease, ttl } => (namespace, *lease, None, *ttl),
            Transition::LeaseEnding { namespace, lease, .. } => {
                self.ending.insert((namespace.clone(), *lease));
                return;
            }
            _ => return,
        };
        self.ttls.insert((namespace.clone(), lease, ttl));
        if let Some(owner) = owner {
            self.owners.insert((namespace.clone(), lease), owner.clone());
        }
    }

    /// What the log has, as those can have asked for it who can have; empty if it came of no command, or of the end of another
    /// grant.
    fn made_by(&self, transition: &Transition) -> Vec<Change> {
        let of_owner = |namespace: &Namespace, lease: LeaseId| {
            self.owners.get(&(namespace.clone(), lease)).cloned()
        };
        match transition {
            Transition::Granted(granted) => {
                let (namespace, owner) = (granted.namespace.clone(), granted.owner.clone());
                vec![Change::Granted(namespace, granted.lease, owner, sorted(&granted.claims))]
            }
            Transition::SessionOpened(opened) => {
                vec![Change::Opened(opened.namespace.clone(), opened.lease)]
            }
            Transition::TtlChanged { namespace, lease, ttl } => {
                let owner = of_owner(namespace, *lease);
                let of_owner = owner.map(|owner| Change::TtlOf(namespace.clone(), owner, *ttl));
                of_owner.into_iter().chain([Change::Ttl(namespace.clone(), *lease, *ttl)]).collect()
            }
            Transition::FenceAccepted { namespace, register, fence, .. } => {
                vec![Change::Accepted(namespace.clone(), register.clone(), *fence)]
            }
            Transition::FenceDeleted { namespace, register, reason } => {
                vec![Change::Deleted(namespace.clone(), register.clone(), reason.clone())]
            }
            // It was asked for when the lease was marked as over.
            Transition::LeaseEnded { namespace, lease, .. }
            | Transition::KeyEnded { namespace, lease, .. }
            | Transition::RangeEnded { namespace, lease, .. }
                if self.ending.contains(&(namespace.clone(), *lease)) =>
            {
                Vec::new()
            }
            Transition::LeaseEnding { namespace, lease, ending }
            | Transition::LeaseEnded { namespace, lease, ending }
            | Transition::GrantEnded { namespace, lease, ending, .. }
            | Transition::KeyEnded { namespace, lease, ending, .. }
            | Transition::RangeEnded { namespace, lease, ending, .. } => match ending {
                Ending::Released => {
                    let owner = of_owner(namespace, *lease);
                    let of_owner = owner.map(|owner| Change::ReleasedOf(namespace.clone(), owner));
                    of_owner.into_iter().chain(released_by(transition)).collect()
                }
                Ending::Closed => vec![Change::Closed(namespace.clone(), *lease)],
                Ending::Disconnected => vec![Change::Disconnected(namespace.clone(), *lease)],
                Ending::Revoked(reason) => vec![Change::Revoked(reason.clone())],
                Ending::FileRemoved => match transition {
                    Transition::RangeEnded { inode, .. } => {
                        vec![Change::FileRemoved(namespace.clone(), *inode)]
                    }
                    _ => Vec::new(),
                },
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }
}

impl Ends {
    fn are_over(&self, log: &Log) -> bool {
        match self {
            Ends::Grant(fence) => log.grant(*fence).is_none_or(|grant| grant.over.is_some()),
            Ends::Lease(namespace, lease) => {
                log.lease(namespace, *lease).is_none_or(|lease| lease.is_over)
            }
        }
    }
}

/// Whether the one who asked does not learn what came of it.
pub(crate) fn is_unknown(error: &CallError) -> bool {
    match error {
        CallError::StoreUnavailable { outcome_unknown, .. } => *outcome_unknown,
        CallError::Stopped => true,
        CallError::Refused(_)
        | CallError::NotLeader { .. }
        | CallError::Draining
        | CallError::Busy => false,
    }
}

fn deletion(delete: &DeleteFence) -> Change {
    Change::Deleted(delete.namespace.clone(), delete.register.clone(), delete.reason.clone())
}

/// The changes that a command can make, of those that last.
fn asked_for(command: &Command) -> Vec<Change> {
    let ttl = |namespace: &Namespace, lease: LeaseId, ttl: Option<std::time::Duration>| {
        let ttl = ttl.and_then(Millis::from_duration);
        ttl.map(|ttl| Change::Ttl(namespace.clone(), lease, ttl)).into_iter().collect()
    };
    match command {
        Command::Acquire(acquire) => {
            let lease = match acquire.under {
                Under::NewLease { id, .. } | Under::Session(id) => id,
            };
            let (namespace, owner) = (acquire.namespace.clone(), acquire.owner.clone());
            vec![Change::Granted(namespace, lease, owner, sorted(&acquire.claims))]
        }
        Command::ByOwner(ask) => {
            let (namespace, owner) = (ask.namespace.clone(), ask.owner.clone());
            match ask.action {
                OwnerAction::Hold { lease, ttl, .. } => {
                    let ttl = Millis::from_duration(ttl);
                    let longer =
                        ttl.map(|ttl| Change::TtlOf(namespace.clone(), owner.clone(), ttl));
                    let scope = Scope::Key(ask.key.clone());
                    let claim = Claim { scope, mode: Mode::Exclusive };
                    let granted = Change::Granted(namespace, lease, owner, vec![claim]);
                    longer.into_iter().chain([granted]).collect()
                }
                OwnerAction::Release => vec![Change::ReleasedOf(namespace, owner)],
            }
        }
        Command::OpenSession(open) => vec![Change::Opened(open.namespace.clone(), open.id)],
        Command::Renew(renew) => ttl(&renew.namespace, renew.lease, renew.ttl),
        Command::KeepAlive(keep) => ttl(&keep.namespace, keep.session, keep.ttl),
        Command::AcceptFence(accept) => {
            let (namespace, register) = (accept.namespace.clone(), accept.register.clone());
            vec![Change::Accepted(namespace, register, accept.fence)]
        }
        Command::DeleteFence(delete) => vec![deletion(delete)],
        Command::Break(broken) => vec![Change::Revoked(broken.reason.clone())],
        Command::BreakSession(broken) => vec![Change::Revoked(broken.reason.clone())],
        Command::RemoveFile(remove) => {
            vec![Change::FileRemoved(remove.namespace.clone(), remove.inode)]
        }
        Command::Release(release) => {
            let (namespace, lease) = (release.namespace.clone(), release.lease);
            match release.scope {
                Scope::Key(_) => vec![
                    Change::Released(namespace.clone(), lease),
                    Change::GrantReleased(namespace, lease, release.fence),
                ],
                Scope::Range { inode, range } => {
                    let owner = release.owner.clone();
                    vec![Change::BytesReleased(namespace, lease, owner, inode, range)]
                }
            }
        }
        Command::Unlock(unlock) => {
            let (namespace, owner) = (unlock.namespace.clone(), unlock.owner.clone());
            let (inode, range) = (unlock.inode, unlock.range);
            vec![Change::BytesReleased(namespace, unlock.session, owner, inode, range)]
        }
        Command::CloseSession(close) => {
            vec![Change::Closed(close.namespace.clone(), close.session)]
        }
        Command::Disconnect(gone) => {
            vec![Change::Disconnected(gone.namespace.clone(), gone.session)]
        }
        _ => Vec::new(),
    }
}

fn released_by(transition: &Transition) -> Option<Change> {
    match transition {
        Transition::LeaseEnded { namespace, lease, .. } => {
            Some(Change::Released(namespace.clone(), *lease))
        }
        Transition::GrantEnded { namespace, lease, fence, .. }
        | Transition::KeyEnded { namespace, lease, fence, .. } => {
            Some(Change::GrantReleased(namespace.clone(), *lease, *fence))
        }
        Transition::RangeEnded { namespace, lease, owner, inode, range, .. } => {
            let (namespace, owner) = (namespace.clone(), owner.clone());
            Some(Change::BytesReleased(namespace, *lease, owner, *inode, *range))
        }
        _ => None,
    }
}

/// What is over when this was acknowledged.
fn ends(command: &Command, answer: &Answer, asked: Moment, log: &Log) -> Vec<Ends> {
    match (command, answer) {
        (Command::Release(release), Answer::Released { .. })
            if matches!(release.scope, Scope::Key(_)) =>
        {
            vec![Ends::Grant(release.fence)]
        }
        (Command::ByOwner(ask), Answer::Released { .. }) => {
            let scope = Scope::Key(ask.key.clone());
            let held = log.table().get(&ask.namespace, &scope).holders;
            let own = held.into_iter().filter(|held| held.owner == ask.owner);
            let before = own.filter(|own| log.grant(own.fence).is_some_and(|at| at.at < asked));
            before.map(|own| Ends::Grant(own.fence)).collect()
        }
        (Command::CloseSession(close), Answer::SessionClosed { .. }) => {
            vec![Ends::Lease(close.namespace.clone(), close.session)]
        }
        (Command::Disconnect(gone), Answer::Disconnected { kept_until: None }) => {
            vec![Ends::Lease(gone.namespace.clone(), gone.session)]
        }
        _ => Vec::new(),
    }
}

/// Whether the change may be acknowledged before it is durable.
fn may_come_after(change: &Change) -> bool {
    match change {
        Change::Released(..)
        | Change::GrantReleased(..)
        | Change::BytesReleased(..)
        | Change::ReleasedOf(..)
        | Change::Closed(..)
        | Change::Disconnected(..) => true,
        Change::Granted(..)
        | Change::Opened(..)
        | Change::Ttl(..)
        | Change::TtlOf(..)
        | Change::Accepted(..)
        | Change::Deleted(..)
        | Change::Revoked(_)
        | Change::FileRemoved(..) => false,
    }
}

fn sorted(claims: &[Claim]) -> Vec<Claim> {
    let mut claims = claims.to_vec();
    claims.sort_unstable();
    claims.dedup();
    claims
}
