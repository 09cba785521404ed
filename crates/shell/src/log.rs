//! What became durable, by the records themselves.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::{Ending, Fence, LeaseId, Transition};
use leasehold_store::Batch;

/// Everything that was granted, and what is left of it.
#[derive(Debug, Default)]
pub(crate) struct Log {
    grants: Vec<Grant>,
    open: BTreeMap<LeaseId, Vec<usize>>,
}

#[derive(Debug)]
struct Grant {
    owner: String,
    fence: Fence,
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
        match transition {
            Transition::Granted(granted) => {
                self.open.entry(granted.lease).or_default().push(self.grants.len());
                let owner = granted.owner.to_string();
                self.grants.push(Grant { owner, fence: granted.fence, over: None });
            }
            // None here has a reclaim window.
            Transition::LeaseLapsed { lease, ending, .. }
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
            | Transition::RangeEnded { .. }
            | Transition::EpochBegan { .. }
            | Transition::Jumped { .. }
            | Transition::SessionOpened(_)
            | Transition::TtlChanged { .. }
            | Transition::FenceAccepted { .. }
            | Transition::FenceDeleted { .. } => {}
        }
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

fn shown(transition: &Transition) -> String {
    match transition {
        Transition::Granted(granted) => format!(" {} gets {};", granted.owner, granted.fence.get()),
        Transition::GrantEnded { fence, ending, .. } => format!(" {} {ending};", fence.get()),
        Transition::LeaseEnded { lease, ending, .. }
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
