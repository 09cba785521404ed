//! What clients believe at each moment of true time.

use std::collections::BTreeMap;

use leasehold_core::{Claim, FencingToken, LeaseId, Mode, Namespace, Scope};

use super::log::GrantFact;
use super::{Judge, Verdict};
use crate::plan::Plan;
use crate::time::{Micros, Moment};

/// A client that takes itself for the holder of something.
#[derive(Clone, Debug)]
pub struct Belief {
    pub namespace: Namespace,
    pub lease: Option<LeaseId>,
    pub fence: Option<FencingToken>,
    pub claims: Vec<Claim>,
    /// By the client's own clock: from then on its work must not go on.
    pub stops_at: Micros,
    /// By the client's own clock: from then on it knows that it may have lost.
    pub lost_at: Micros,
}

/// Who believes what. By client and the number of its lease.
#[derive(Debug, Default)]
pub struct Beliefs {
    held: BTreeMap<(usize, u64), Belief>,
    /// Clocks all run at the same speed: then not even one who was told to stop may overlap with the next holder.
    is_exact: bool,
}

impl Beliefs {
    pub fn new(plan: &Plan) -> Beliefs {
        Beliefs { held: BTreeMap::new(), is_exact: plan.drift_ppm == 0 }
    }

    pub fn begin(&mut self, client: usize, number: u64, belief: Belief) {
        self.held.insert((client, number), belief);
    }

    /// A renewal moved both ends.
    pub fn go_on(&mut self, client: usize, number: u64, stops_at: Micros, lost_at: Micros) {
        if let Some(belief) = self.held.get_mut(&(client, number)) {
            (belief.stops_at, belief.lost_at) = (stops_at, lost_at);
        }
    }

    pub fn end(&mut self, client: usize, number: u64) -> bool {
        self.held.remove(&(client, number)).is_some()
    }

    pub fn forget(&mut self, client: usize) {
        self.held.retain(|(believer, _), _| *believer != client);
    }

    /// From now on the holder does not know how long it lasts.
    pub fn doubt(&mut self, client: usize, lease: LeaseId) {
        self.held
            .retain(|(believer, _), belief| *believer != client || belief.lease != Some(lease));
    }

    /// Only those that are still held are left.
    pub fn retain(&mut self, mut is_held: impl FnMut(usize, u64) -> bool) {
        self.held.retain(|(client, number), _| is_held(*client, *number));
    }

    /// An operator takes the scope away, whatever its holder believes.
    pub fn overrule(&mut self, namespace: &Namespace, scope: &Scope) {
        self.held.retain(|_, belief| {
            belief.namespace != *namespace
                || belief.claims.iter().all(|claim| !claim.scope.overlaps(scope))
        });
    }

    pub fn overrule_lease(&mut self, lease: LeaseId) {
        self.held.retain(|_, belief| belief.lease != Some(lease));
    }

    fn believes(&self, belief: &Belief, shows: Micros) -> bool {
        shows < if self.is_exact { belief.lost_at } else { belief.stops_at }
    }
}

impl Judge {
    /// Whether an operator took a grant away before its holder had heard of it.
    pub fn is_overruled(&self, fence: Option<FencingToken>) -> bool {
        fence.and_then(|fence| self.log.grant(fence)).is_some_and(|grant| grant.is_overruled)
    }

    /// Whether what is believed was taken away, or locked over: under one lease its owner may do that, also if it has
    /// forgotten that it did.
    fn is_unsure(&self, belief: &Belief) -> bool {
        let Some(own) = belief.fence.and_then(|fence| self.log.grant(fence)) else { return false };
        let is_bytes = |claim: &Claim| matches!(claim.scope, Scope::Range { .. });
        let overlaps = |claim: &Claim| {
            let mut mine = own.granted.claims.iter();
            is_bytes(claim) && mine.any(|mine| mine.scope.overlaps(&claim.scope))
        };
        let mut later = self.log.grants_after(own.granted.fence);
        own.is_overruled
            || later.any(|grant| {
                let whose = |grant: &GrantFact| (grant.granted.lease, grant.granted.owner.clone());
                whose(grant) == whose(own) && grant.granted.claims.iter().any(overlaps)
            })
    }

    /// A client has begun to believe, or has woken up and believes still. `shown` is what each client's clock shows now;
    /// `None` if it is paused.
    pub fn believed(
        &self,
        now: Moment,
        client: usize,
        number: u64,
        shown: &[Option<Micros>],
    ) -> Result<(), Verdict> {
        let beliefs = &self.beliefs;
        let believes = |client: usize, belief: &Belief| {
            shown[client].is_some_and(|shows| beliefs.believes(belief, shows))
        };
        let Some(mine) = beliefs.held.get(&(client, number)) else { return Ok(()) };
        if !believes(client, mine) {
            return Ok(());
        }
        for (&(other, _), theirs) in &beliefs.held {
            if other != client
                && conflict(mine, theirs)
                && believes(other, theirs)
                && ![mine, theirs].into_iter().any(|belief| self.is_unsure(belief))
            {
                let what = format!(
                    "client-{client} and client-{other}: {:?} and {:?}",
                    mine.claims, theirs.claims
                );
                return Err(Verdict::new(now, "no two clients believe at once", what));
            }
        }
        Ok(())
    }

    /// All that a client believes, looked at again.
    pub fn believes_still(
        &self,
        now: Moment,
        client: usize,
        shown: &[Option<Micros>],
    ) -> Result<(), Verdict> {
        let numbers = self.beliefs.held.keys().filter(|(believer, _)| *believer == client);
        numbers.map(|(_, number)| *number).try_for_each(|n| self.believed(now, client, n, shown))
    }
}

/// Permits are counted by the table's own invariants; here they only keep others out.
fn conflict(one: &Belief, other: &Belief) -> bool {
    let permits = |claim: &Claim| matches!(claim.mode, Mode::Permits(_));
    one.namespace == other.namespace
        && one.claims.iter().any(|mine| {
            other.claims.iter().any(|theirs| {
                let counted = permits(mine) && permits(theirs) && mine.scope == theirs.scope;
                mine.scope.overlaps(&theirs.scope)
                    && mine.mode.conflicts_with(theirs.mode)
                    && !counted
            })
        })
}
