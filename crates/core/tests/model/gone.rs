//! What has ended, and what there is to say of it: nothing is ever forgotten here but by a new epoch.

use std::time::Duration;

use super::{Held, Lease, LeaseState, Model};
use leasehold_core::*;

/// A hold that has ended, or a lease: a session, or one that was closed as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) revision: Revision,
    pub(crate) namespace: Namespace,
    pub(crate) lease: LeaseId,
    pub(crate) owner: Owner,
    pub(crate) what: PastWhat,
    pub(crate) at: Timestamp,
    pub(crate) ending: Ending,
}

#[derive(Clone, Debug)]
pub(crate) enum PastWhat {
    Hold(Held),
    Lease { grants: usize },
}

impl Past {
    pub(crate) fn held(&self) -> Option<&Held> {
        match &self.what {
            PastWhat::Hold(held) => Some(held),
            PastWhat::Lease { .. } => None,
        }
    }

    fn had(&self, fence: FencingToken) -> bool {
        self.held().is_some_and(|held| held.fence() == fence)
    }
}

impl Model {
    pub(crate) fn remember(&mut self, held: &Held, ending: &Ending) {
        self.past.push(Past {
            revision: self.revision,
            namespace: held.namespace.clone(),
            lease: held.lease,
            owner: held.owner.clone(),
            what: PastWhat::Hold(held.clone()),
            at: self.now,
            ending: ending.clone(),
        });
    }

    pub(crate) fn remember_lease(
        &mut self,
        namespace: &Namespace,
        id: LeaseId,
        grants: usize,
        ending: &Ending,
    ) {
        let lease = self.lease(namespace, id).expect("it has just ended");
        if lease.session.is_some() || *ending == Ending::Closed {
            self.past.push(Past {
                revision: self.revision,
                namespace: namespace.clone(),
                lease: id,
                owner: lease.owner.clone(),
                what: PastWhat::Lease { grants },
                at: self.now,
                ending: ending.clone(),
            });
        }
    }

    /// Newest first.
    fn past_of(&self, namespace: &Namespace, lease: LeaseId) -> impl Iterator<Item = &Past> {
        let of = move |past: &&Past| past.lease == lease && past.namespace == *namespace;
        self.past.iter().rev().filter(of)
    }

    pub(crate) fn why_lease_is_gone(
        &self,
        namespace: &Namespace,
        id: LeaseId,
        principal: &Principal,
    ) -> Gone {
        let is_own = |owner: &Owner| owner.principal() == *principal;
        let lapsed = |lease: &Lease| lease.state == LeaseState::Lapsed && is_own(&lease.owner);
        if self.lease(namespace, id).is_some_and(lapsed) {
            return Gone::Expired;
        }
        let newest = self.past_of(namespace, id).next().filter(|past| is_own(&past.owner));
        newest.map_or(Gone::Unknown, |past| Gone::by(&past.ending))
    }

    /// "Told apart": what ended of just this, by whoever shows the right owner, lease and token; then what else they
    /// stand for; then what became of the lease.
    pub(crate) fn why_not_holder(&self, shown: &Release) -> Gone {
        let own: Vec<&Past> = self
            .past_of(&shown.namespace, shown.lease)
            .filter(|past| past.owner == shown.owner && past.had(shown.fence))
            .collect();
        let same = |scope: &Scope| match scope {
            Scope::Key(_) => *scope == shown.scope,
            Scope::Range { .. } => scope.overlaps(&shown.scope),
        };
        if let Some(past) = own.iter().find(|past| past.held().is_some_and(|h| same(&h.scope))) {
            return Gone::by(&past.ending);
        }
        let elsewhere = self.held.iter().any(|held| {
            held.namespace == shown.namespace
                && held.lease == shown.lease
                && held.owner == shown.owner
                && held.window_until.is_none()
                && held.fence() == shown.fence
                && !held.scope.overlaps(&shown.scope)
        });
        if elsewhere || !own.is_empty() {
            Gone::OtherScope
        } else if self.standing(&shown.namespace, shown.lease).is_some() {
            Gone::Unknown
        } else {
            self.why_lease_is_gone(&shown.namespace, shown.lease, &shown.owner.principal())
        }
    }

    /// "A release repeated by the same owner and lease": how long it was held then.
    pub(crate) fn released_before(&self, release: &Release) -> Option<Duration> {
        let own = self
            .past_of(&release.namespace, release.lease)
            .filter(|past| past.owner == release.owner && past.ending == Ending::Released);
        let held_for = |past: &Past| Some(past.at.since(past.held()?.granted_at));
        let is_same = |past: &&Past| {
            past.held().is_some_and(|held| match release.scope {
                Scope::Key(_) => held.scope == release.scope && held.fence() == release.fence,
                Scope::Range { .. } => {
                    held.scope.overlaps(&release.scope) && held.fences.contains(&release.fence)
                }
            })
        };
        let same: Vec<&Past> = own.filter(is_same).collect();
        let first = same.first()?.revision;
        same.into_iter().filter(|past| past.revision == first).filter_map(held_for).max()
    }

    pub(crate) fn closed_before(&self, ask: &CloseSession) -> Option<usize> {
        let newest = self.past_of(&ask.namespace, ask.session).next()?;
        if newest.owner.principal() != ask.principal {
            return None;
        }
        match (&newest.what, &newest.ending) {
            (PastWhat::Lease { grants }, Ending::Closed) => Some(*grants),
            (PastWhat::Lease { .. } | PastWhat::Hold(_), _) => None,
        }
    }

    pub(crate) fn is_given_back(&self, ask: &Unlock) -> bool {
        let newest = self.past_of(&ask.namespace, ask.session).next();
        newest.is_some_and(|past| past.owner == ask.owner && past.ending == Ending::Released)
    }

    /// Why a token is no longer, or not, good for a scope.
    pub(crate) fn why_not_good(
        &self,
        namespace: &Namespace,
        scope: &Scope,
        fence: FencingToken,
        lease: Option<LeaseId>,
    ) -> Gone {
        let is_lease = |id: LeaseId| lease.is_none_or(|lease| lease == id);
        let here = |held: &&Held| held.namespace == *namespace;
        let shown = |held: &&Held| {
            held.fence() == fence || (lease.is_some() && held.fences.contains(&fence))
        };
        let mut on_scope = self.held.iter().filter(here).filter(shown);
        if let Some(held) = on_scope.find(|held| held.scope.overlaps(scope)) {
            let over = held.window_until.is_some() || self.lease_of(held).deadline < self.now;
            return match is_lease(held.lease) {
                false => Gone::Unknown,
                true if over => Gone::Expired,
                true => Gone::OtherScope,
            };
        }
        if let Some(held) = self.held.iter().filter(here).find(|held| held.fence() == fence) {
            return if is_lease(held.lease) { Gone::OtherScope } else { Gone::Unknown };
        }
        let past = self.past.iter().rev();
        let past: Vec<&Past> =
            past.filter(|past| past.namespace == *namespace && past.had(fence)).collect();
        if !past.is_empty() {
            let mut own = past.into_iter().filter(|past| is_lease(past.lease)).peekable();
            if own.peek().is_none() {
                return Gone::Unknown;
            }
            let about = own.find(|past| past.held().is_some_and(|held| good(&held.scope, scope)));
            return about.map_or(Gone::OtherScope, |past| Gone::by(&past.ending));
        }
        match self.last_fence(namespace, scope) {
            Some(last) if last > fence && fence > FencingToken::ZERO => Gone::Superseded,
            Some(_) | None => Gone::Unknown,
        }
    }

    /// The highest token of what is held of a scope, or was: of exactly this name, or of bytes that overlap.
    pub(crate) fn last_fence(&self, namespace: &Namespace, scope: &Scope) -> Option<FencingToken> {
        let held = self.held.iter().filter(|held| held.scope.overlaps(scope));
        let past = self.past.iter().filter_map(Past::held).filter(|held| match scope {
            Scope::Key(_) => held.scope == *scope,
            Scope::Range { .. } => held.scope.overlaps(scope),
        });
        let here = held.chain(past).filter(|held| held.namespace == *namespace);
        here.map(Held::fence).max()
    }

    /// Everything that is known of a token, as it is told: what is held with it, and what has ended.
    pub(crate) fn token(
        &self,
        fence: FencingToken,
    ) -> Option<(Namespace, Vec<Holder>, Vec<EndedGrant>)> {
        let held: Vec<&Held> = self.held.iter().filter(|held| held.fence() == fence).collect();
        let past: Vec<&Past> = self.past.iter().filter(|past| past.had(fence)).collect();
        let namespace = held.first().map(|held| &held.namespace);
        let namespace = namespace.or(past.first().map(|past| &past.namespace))?.clone();
        let ended = past.into_iter().filter_map(|past| {
            let held = past.held()?;
            Some(EndedGrant {
                scope: held.scope.clone(),
                owner: held.owner.clone(),
                mode: held.mode,
                since: held.granted_at,
                at: past.at,
                ending: past.ending.clone(),
            })
        });
        let ended = ended.collect();
        Some((namespace, held.into_iter().map(|held| self.holder(held)).collect(), ended))
    }
}

/// Whether a hold on one scope is good for another.
fn good(held: &Scope, asked: &Scope) -> bool {
    match (held, asked) {
        (Scope::Key(_), Scope::Key(_)) => super::view::covers(held, asked),
        (_, _) => held.overlaps(asked),
    }
}
