//! What became durable, by the records themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::{Ending, FencingToken, LeaseId, Transition};
use leasehold_store::Batch;

use crate::raw_client::{Done, OWNER};

/// Everything that was granted, and what is left of it.
#[derive(Debug, Default)]
pub(crate) struct Log {
    grants: Vec<Grant>,
    open: BTreeMap<LeaseId, Vec<usize>>,
    /// The ttls with which leases were opened by hand.
    by_hand: BTreeMap<LeaseId, u64>,
    done: BTreeSet<Done>,
}

#[derive(Debug)]
struct Grant {
    owner: String,
    fence: FencingToken,
    over: Option<Over>,
}

/// How and when a grant ended, by the records.
#[derive(Clone, Copy, Debug)]
struct Over {
    at: Duration,
    /// Nobody has ever learned of it.
    is_withdrawn: bool,
}

/// An end that was decided is durable soon after that.
const WRITTEN_BY: Duration = Duration::from_secs(3);

impl Log {
    /// Takes in a record, and says what it is about.
    pub(crate) fn written(&mut self, now: Duration, batch: &Batch) -> String {
        let mut said = format!("record {} of epoch {}:", batch.seq(), batch.epoch().0);
        for transition in batch.transitions() {
            let transition = transition.expect("what was written can be read");
            said += &shown(&transition);
            self.take_in(now, transition);
        }
        said
    }

    fn take_in(&mut self, now: Duration, transition: Transition) {
        self.note_by_hand(&transition);
        match transition {
            Transition::Granted(granted) => {
                self.open.entry(granted.lease).or_default().push(self.grants.len());
                let owner = granted.owner.to_string();
                self.grants.push(Grant { owner, fence: granted.fence, over: None });
            }
            Transition::SessionOpened(opened) => {
                self.open.entry(opened.lease).or_default().push(self.grants.len());
                let owner = session_of(opened.owner.as_str());
                self.grants.push(Grant { owner, fence: FencingToken::ZERO, over: None });
            }
            // Only the simple lock has a reclaim window, and no lease here has more than one range.
            Transition::LeaseLapsed { lease, ending, .. }
            | Transition::RangeEnded { lease, ending, .. }
            | Transition::LeaseEnding { lease, ending, .. }
            | Transition::LeaseEnded { lease, ending, .. } => {
                for at in self.open.remove(&lease).unwrap_or_default() {
                    self.end(now, at, &ending);
                }
            }
            Transition::GrantEnded { lease, fence, ending, .. } => {
                let open = self.open.entry(lease).or_default();
                let at = open.iter().position(|&at| self.grants[at].fence == fence);
                if let Some(at) = at.map(|at| open.remove(at)) {
                    self.end(now, at, &ending);
                }
            }
            // One key of a set is never given back alone here.
            Transition::KeyEnded { .. }
            | Transition::EpochBegan { .. }
            | Transition::Jumped { .. }
            | Transition::TtlChanged { .. }
            | Transition::FenceAccepted { .. }
            | Transition::FenceDeleted { .. } => {}
        }
    }

    /// What requests by hand have done.
    fn note_by_hand(&mut self, transition: &Transition) {
        let done = match transition {
            Transition::Granted(granted) if granted.owner.as_str().starts_with(OWNER) => {
                let Some(ttl) = granted.opens else { return };
                self.by_hand.insert(granted.lease, ttl.get().into());
                Done::Ttl(ttl.get().into())
            }
            Transition::SessionOpened(opened) if opened.owner.as_str().starts_with(OWNER) => {
                self.by_hand.insert(opened.lease, opened.ttl.get().into());
                Done::Ttl(opened.ttl.get().into())
            }
            Transition::TtlChanged { lease, ttl, .. } if self.by_hand.contains_key(lease) => {
                Done::Ttl(ttl.get().into())
            }
            Transition::FenceAccepted { register, .. } => Done::Accepted(register.to_string()),
            Transition::LeaseEnding { lease, ending, .. }
            | Transition::LeaseEnded { lease, ending, .. }
            | Transition::GrantEnded { lease, ending, .. }
            | Transition::KeyEnded { lease, ending, .. }
            | Transition::RangeEnded { lease, ending, .. } => {
                let inode = if let Transition::RangeEnded { inode, .. } = transition {
                    Some(*inode)
                } else {
                    None
                };
                match (ending, self.by_hand.get(lease), inode) {
                    (Ending::Revoked(reason), ..) => Done::Revoked(reason.to_string()),
                    (Ending::FileRemoved, _, Some(inode)) => Done::FileRemoved(inode),
                    (Ending::Released | Ending::Closed, Some(ttl), _) => Done::Ended(*ttl),
                    (Ending::Expired | Ending::GraceExpired, Some(ttl), _) => Done::Lapsed(*ttl),
                    _ => return,
                }
            }
            Transition::Granted(_)
            | Transition::SessionOpened(_)
            | Transition::LeaseLapsed { .. }
            | Transition::EpochBegan { .. }
            | Transition::Jumped { .. }
            | Transition::TtlChanged { .. }
            | Transition::FenceDeleted { .. } => return,
        };
        self.done.insert(done);
    }

    pub(crate) fn has_done(&self, done: &Done) -> bool {
        self.done.contains(done)
    }

    fn end(&mut self, at: Duration, grant: usize, ending: &Ending) {
        let is_withdrawn = *ending == Ending::Withdrawn;
        self.grants[grant].over.get_or_insert(Over { at, is_withdrawn });
    }

    /// Who held something, or got it later, although it had been told that nothing happened.
    pub(crate) fn applied(&self, not_applied: &BTreeMap<String, Duration>) -> Option<(&str, u64)> {
        let is_applied = |grant: &&Grant| {
            let Some(&told) = not_applied.get(&grant.owner) else { return false };
            grant.over.is_none_or(|over| !over.is_withdrawn && over.at > told + WRITTEN_BY)
        };
        let grant = self.grants.iter().find(is_applied)?;
        Some((&grant.owner, grant.fence.get()))
    }

    /// Who holds something.
    pub(crate) fn left(&self) -> Option<&str> {
        let at = *self.open.values().flatten().next()?;
        Some(&self.grants[at].owner)
    }
}

/// What a session is called beside the grants.
pub(crate) fn session_of(owner: &str) -> String {
    format!("the session of {owner}")
}

fn shown(transition: &Transition) -> String {
    match transition {
        Transition::Granted(granted) => format!(" {} gets {};", granted.owner, granted.fence.get()),
        Transition::GrantEnded { fence, ending, .. } => format!(" {} {ending};", fence.get()),
        Transition::LeaseEnded { lease, ending, .. }
        | Transition::LeaseEnding { lease, ending, .. }
        | Transition::LeaseLapsed { lease, ending, .. } => format!(" {lease:?} {ending};"),
        Transition::SessionOpened(opened) => format!(" {} opens a session;", opened.owner),
        Transition::KeyEnded { .. }
        | Transition::RangeEnded { .. }
        | Transition::EpochBegan { .. }
        | Transition::Jumped { .. }
        | Transition::TtlChanged { .. }
        | Transition::FenceAccepted { .. }
        | Transition::FenceDeleted { .. } => " …;".into(),
    }
}
