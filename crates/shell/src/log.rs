//! What became durable, by the records themselves.

use std::collections::{BTreeMap, BTreeSet};

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
    /// At the end of the record that granted it, or later, it was not taken back.
    stood: bool,
}

impl Log {
    pub(crate) fn written(&mut self, batch: &Batch) {
        let first = self.grants.len();
        let mut withdrawn = BTreeSet::new();
        for transition in batch.transitions() {
            let transition = transition.expect("what was written can be read");
            self.take_in(transition, &mut withdrawn);
        }
        for grant in &mut self.grants[first..] {
            grant.stood = !withdrawn.contains(&grant.fence);
        }
    }

    fn take_in(&mut self, transition: Transition, withdrawn: &mut BTreeSet<Fence>) {
        match transition {
            Transition::Granted(granted) => {
                self.open.entry(granted.lease).or_default().push(self.grants.len());
                let owner = granted.owner.to_string();
                self.grants.push(Grant { owner, fence: granted.fence, stood: false });
            }
            // None here has a reclaim window.
            Transition::LeaseLapsed { lease, .. } => _ = self.open.remove(&lease),
            Transition::LeaseEnded { lease, ending, .. } => {
                let ended = self.open.remove(&lease).unwrap_or_default();
                if ending == Ending::Withdrawn {
                    withdrawn.extend(ended.iter().map(|&at| self.grants[at].fence));
                }
            }
            Transition::GrantEnded { lease, fence, ending, .. } => {
                if ending == Ending::Withdrawn {
                    withdrawn.insert(fence);
                }
                if let Some(open) = self.open.get_mut(&lease) {
                    open.retain(|&at| self.grants[at].fence != fence);
                }
            }
            // One key of a set is never given back alone here.
            Transition::KeyEnded { .. }
            | Transition::RangeEnded { .. }
            | Transition::EpochBegan { .. }
            | Transition::Jumped { .. }
            | Transition::SessionOpened(_)
            | Transition::TtlChanged { .. }
            | Transition::FenceAccepted { .. } => {}
        }
    }

    /// Who was granted something although it had been told that nothing happened.
    pub(crate) fn applied(&self, not_applied: &BTreeSet<String>) -> Option<(&str, u64)> {
        let grant =
            self.grants.iter().find(|grant| grant.stood && not_applied.contains(&grant.owner))?;
        Some((&grant.owner, grant.fence.get()))
    }

    /// Who holds something.
    pub(crate) fn left(&self) -> Option<&str> {
        let at = *self.open.values().flatten().next()?;
        Some(&self.grants[at].owner)
    }
}
