//! Keeping and giving back what is held, taking it away, and the registers.

use std::time::Duration;

use super::range::{bytes_of, range_of};
use super::{Answered, Held, Model, Register};
use leasehold_core::*;

impl Model {
    /// "`renew` and `release` must present owner, lease id and token; all three are compared."
    pub(crate) fn renew(&mut self, ask: &Renew) -> Answered {
        if let Some(ttl) = ask.ttl {
            self.check_ttl(ttl)?;
        }
        let principal = ask.owner.principal();
        if self.own_standing(&ask.namespace, ask.lease, &principal).is_none() {
            let why = self.why_lease_is_gone(&ask.namespace, ask.lease, &principal);
            return Err(Refusal::LeaseLost(Some(why)));
        }
        let own = self.presented(&ask.namespace, &ask.owner, ask.lease, &ask.scope);
        if !own.iter().any(|held| good_for(held, ask.fence)) {
            let shown = Release {
                namespace: ask.namespace.clone(),
                scope: ask.scope.clone(),
                owner: ask.owner.clone(),
                lease: ask.lease,
                fence: ask.fence,
            };
            let why = Some(self.why_not_holder(&shown));
            return Err(Refusal::NotHolder { scope: ask.scope.clone(), why });
        }
        Ok(self.renew_lease(&ask.namespace, ask.lease, ask.ttl))
    }

    /// What the owner holds of the scope under the lease.
    fn presented(
        &self,
        namespace: &Namespace,
        owner: &Owner,
        lease: LeaseId,
        scope: &Scope,
    ) -> Vec<Held> {
        let own = self.held.iter().filter(|held| {
            held.namespace == *namespace && held.owner == *owner && held.lease == lease
        });
        own.filter(|held| match scope {
            Scope::Key(_) => held.scope == *scope,
            Scope::Range { .. } => held.scope.overlaps(scope),
        })
        .cloned()
        .collect()
    }

    /// One request changes so many ranges of a lease and no more.
    pub(crate) fn check_own_ranges(
        &self,
        namespace: &Namespace,
        owner: &Owner,
        lease: LeaseId,
        scope: &Scope,
    ) -> Result<(), Refusal> {
        let is_range = matches!(scope, Scope::Range { .. });
        let max = self.limits.own_ranges_per_step_max;
        if is_range && self.presented(namespace, owner, lease, scope).len() > max {
            return Err(Refusal::Limit(Limit::OwnRanges { scope: scope.clone(), max }));
        }
        Ok(())
    }

    /// Taking bytes out of the middle of a range leaves two of them, for which there must be room.
    fn check_room_to_split(
        &self,
        namespace: &Namespace,
        owner: &Owner,
        lease: LeaseId,
        scope: &Scope,
    ) -> Result<(), Refusal> {
        let Scope::Range { range: hole, .. } = *scope else { return Ok(()) };
        let stands = self.own_standing(namespace, lease, &owner.principal()).is_some();
        let own = self.presented(namespace, owner, lease, scope);
        let splits = |held: &Held| {
            let whole = range_of(held);
            whole.start() < hole.start() && hole.last() < whole.last()
        };
        if stands && own.iter().any(splits) {
            return self.check_room_under(namespace, lease, 1, false);
        }
        Ok(())
    }

    /// A key takes everything with it that was granted with the same fence; a range just the named bytes.
    pub(crate) fn release(&mut self, ask: &Release) -> Answered {
        self.check_own_ranges(&ask.namespace, &ask.owner, ask.lease, &ask.scope)?;
        self.check_room_to_split(&ask.namespace, &ask.owner, ask.lease, &ask.scope)?;
        if let Some(held) = self.release_held(ask) {
            return Ok(Answer::Released { held, replayed: false });
        }
        if let Some(held) = self.released_before(ask) {
            return Ok(Answer::Released { held, replayed: true });
        }
        if self.has_nothing_of(ask) {
            return Ok(Answer::Released { held: Duration::ZERO, replayed: false });
        }
        let why = Some(self.why_not_holder(ask));
        Err(Refusal::NotHolder { scope: ask.scope.clone(), why })
    }

    /// "Unlocking what is not held succeeds": none of these bytes are, under a lease that stands.
    fn has_nothing_of(&self, ask: &Release) -> bool {
        let is_range = matches!(ask.scope, Scope::Range { .. });
        let own = self.presented(&ask.namespace, &ask.owner, ask.lease, &ask.scope);
        let principal = ask.owner.principal();
        is_range
            && own.is_empty()
            && self.own_standing(&ask.namespace, ask.lease, &principal).is_some()
    }

    fn release_held(&mut self, ask: &Release) -> Option<Duration> {
        self.standing(&ask.namespace, ask.lease)?;
        let own = self.presented(&ask.namespace, &ask.owner, ask.lease, &ask.scope);
        let held = match ask.scope {
            Scope::Key(_) => {
                let own = own.iter().find(|held| good_for(held, ask.fence))?;
                self.end_fence(&ask.namespace, ask.lease, ask.fence, &Ending::Released);
                self.now.since(own.granted_at)
            }
            Scope::Range { range, .. } => {
                if !own.iter().all(|held| good_for(held, ask.fence)) {
                    return None;
                }
                let first = own.iter().min_by_key(|held| held.granted_at)?;
                self.end_range(first, range, &Ending::Released);
                self.now.since(first.granted_at)
            }
        };
        Some(held)
    }

    /// "Unlocking what is not held succeeds and changes nothing."
    pub(crate) fn unlock(&mut self, ask: &Unlock) -> Answered {
        let principal = ask.owner.principal();
        if let Err(gone) = self.check_standing(&ask.namespace, ask.session, &principal) {
            let given_back = self.is_given_back(ask);
            return if given_back { Ok(Answer::Unlocked { changed: false }) } else { Err(gone) };
        }
        let scope = Scope::range(ask.inode, ask.range);
        self.check_own_ranges(&ask.namespace, &ask.owner, ask.session, &scope)?;
        self.check_room_to_split(&ask.namespace, &ask.owner, ask.session, &scope)?;
        let own = self.presented(&ask.namespace, &ask.owner, ask.session, &scope);
        if let Some(first) = own.first() {
            self.end_range(first, ask.range, &Ending::Released);
        }
        Ok(Answer::Unlocked { changed: !own.is_empty() })
    }

    /// "A waiter that leaves is forgotten at once"; of one whose connection broke the place is kept.
    pub(crate) fn cancel(&mut self, ask: &Cancel) -> Answer {
        let found = self.waiters.iter_mut().find(|waiter| {
            waiter.ask.namespace == ask.namespace && waiter.calls.contains(&ask.call)
        });
        let Some(waiter) = found else {
            return Answer::Cancelled { waiting: false };
        };
        waiter.calls.retain(|call| *call != ask.call);
        if waiter.calls.is_empty() {
            let ticket = waiter.ticket;
            let waiter = self.take_waiter(ticket);
            self.tell_left(&waiter);
            if ask.keep_place {
                self.keep_place(waiter);
            }
        }
        Answer::Cancelled { waiting: true }
    }

    /// "A named high-water mark that accepts a token only if it is not lower than the last one accepted", and no token
    /// that was never issued.
    pub(crate) fn accept_fence(&mut self, ask: &AcceptFence) -> Answered {
        let (presented, last, in_all) = (ask.fence, self.fence, self.registers.len());
        let of = |register: &&mut Register| register.namespace == ask.namespace;
        let found = self.registers.iter_mut().filter(of).find(|r| r.name == ask.register);
        let raised = match found {
            Some(register) if ask.fence < register.high_water => {
                let (presented, high_water) = (ask.fence, register.high_water);
                return Err(Refusal::StaleFence { presented, high_water });
            }
            _ if presented > last => {
                return Err(Refusal::Invalid(Invalid::FenceNotIssued { presented, last }));
            }
            Some(register) => std::mem::replace(&mut register.high_water, ask.fence) < ask.fence,
            None => {
                let max = self.limits.registers_per_namespace_max;
                if self.registers.iter_mut().filter(of).count() >= max {
                    let namespace = ask.namespace.clone();
                    return Err(Refusal::Limit(Limit::Registers { namespace, max }));
                }
                let max = self.limits.registers_max;
                if in_all >= max {
                    return Err(Refusal::Limit(Limit::RegistersInAll { max }));
                }
                let (namespace, name) = (ask.namespace.clone(), ask.register.clone());
                self.registers.push(Register { namespace, name, high_water: ask.fence });
                true
            }
        };
        if raised {
            let (namespace, register, fence) = (&ask.namespace, ask.register.clone(), ask.fence);
            self.record(Transition::FenceAccepted {
                namespace: namespace.clone(),
                register: register.clone(),
                principal: ask.principal.clone(),
                fence,
            });
            self.tell(namespace, News::FenceAccepted { register, fence });
        }
        Ok(Answer::FenceAccepted { high_water: ask.fence })
    }

    /// An operator removes a register: the next token that it is shown makes it anew.
    pub(crate) fn delete_fence(&mut self, ask: &DeleteFence) -> Answered {
        let (namespace, register, reason) = (&ask.namespace, ask.register.clone(), &ask.reason);
        let is_it = |r: &Register| r.namespace == *namespace && r.name == register;
        let Some(found) = self.registers.iter().position(is_it) else {
            return Err(Refusal::RegisterNotFound(register));
        };
        let high_water = self.registers.remove(found).high_water;
        self.record(Transition::FenceDeleted {
            namespace: namespace.clone(),
            register: register.clone(),
            reason: reason.clone(),
        });
        self.tell(namespace, News::FenceDeleted { register, reason: reason.clone() });
        Ok(Answer::FenceDeleted { high_water })
    }

    /// An operator ends every grant that overlaps the scope: keys with all their set, files just inside the scope.
    pub(crate) fn break_grants(&mut self, ask: &Break) -> Answer {
        let ending = Ending::Revoked(ask.reason.clone());
        let meant = |held: &&Held| {
            held.namespace == ask.namespace
                && held.scope.overlaps(&ask.scope)
                && ask.fence.is_none_or(|fence| fence == held.fence())
        };
        let mut found: Vec<Held> = self.held.iter().filter(meant).cloned().collect();
        found.sort_by_key(|held| (held.fence(), held.scope.clone()));
        for held in &found {
            match (&held.scope, &ask.scope) {
                (Scope::Range { range, .. }, Scope::Range { range: asked, .. }) => {
                    self.tell_held_lost(held, &ending);
                    let bytes = range.intersection(*asked).expect("they overlap");
                    self.end_range(held, bytes, &ending);
                }
                // An earlier ending may have taken it along: the whole set goes with its fence.
                _ if self.is_held(held) => {
                    self.tell_held_lost(held, &ending);
                    self.end_fence(&held.namespace, held.lease, held.fence(), &ending);
                }
                _ => {}
            }
        }
        Answer::Broken { grants: found.len(), truncated: false }
    }

    pub(crate) fn is_held(&self, held: &Held) -> bool {
        self.held.iter().any(|other| {
            (&other.namespace, other.lease, &other.scope, &other.fences)
                == (&held.namespace, held.lease, &held.scope, &held.fences)
        })
    }

    /// Who is in its reclaim window has lost it before.
    fn tell_held_lost(&mut self, held: &Held, ending: &Ending) {
        if held.window_until.is_none() {
            self.tell_lost(&held.namespace, held.lease, Some(held.fence()), ending);
        }
    }

    /// "`remove file` drops all grants and fails all waiters of an inode."
    pub(crate) fn remove_file(&mut self, ask: &RemoveFile) -> Answer {
        let whole = Scope::inode(ask.inode);
        let wants = |claim: &Claim| claim.scope.overlaps(&whole);
        let gone = self.take_waiters(|waiter| {
            waiter.ask.namespace == ask.namespace && waiter.ask.claims.iter().any(wants)
        });
        for waiter in &gone {
            self.tell_left(waiter);
            self.refuse_waiter(waiter, &Refusal::FileRemoved(ask.inode));
        }
        let of = |held: &&Held| held.namespace == ask.namespace && held.scope.overlaps(&whole);
        let mut found: Vec<Held> = self.held.iter().filter(of).cloned().collect();
        found.sort_by_key(|held| (held.fence(), held.scope.clone()));
        for held in &found {
            self.tell_held_lost(held, &Ending::FileRemoved);
            self.end_range(held, range_of(held), &Ending::FileRemoved);
        }
        Answer::FileRemoved { grants: found.len(), waiters: gone.len(), truncated: false }
    }

    /// "A grant whose reply could not be delivered is released again at once": its keys, and the bytes that came with
    /// it. Bytes held before stay held.
    pub(crate) fn withdraw(&mut self, ask: &Withdraw) -> Answer {
        let under = |held: &Held| {
            held.namespace == ask.namespace && held.lease == ask.lease && good_for(held, ask.fence)
        };
        let mut found = false;
        for &(inode, gained) in &ask.gained {
            for held in self.held.clone().iter().filter(|held| under(held)) {
                let bytes = bytes_of(held, inode).and_then(|range| range.intersection(gained));
                if let Some(bytes) = bytes {
                    self.end_range(held, bytes, &Ending::Withdrawn);
                    found = true;
                }
            }
        }
        let is_key = |held: &Held| matches!(held.scope, Scope::Key(_));
        let keys = self.held.iter().any(|held| under(held) && is_key(held));
        // Bytes held before stay held, but a retry must not take the request for granted.
        let retried = self.known.iter().any(|known| {
            known.namespace == ask.namespace && known.lease == ask.lease && known.fence == ask.fence
        });
        if keys || (retried && self.held.iter().any(under)) {
            self.sets.retain(|set| set.fence != ask.fence);
            self.end_fence(&ask.namespace, ask.lease, ask.fence, &Ending::Withdrawn);
        }
        Answer::Withdrawn { found: found || keys }
    }
}

/// Any fence that was issued for a part of a piece is good for it.
fn good_for(held: &Held, fence: FencingToken) -> bool {
    held.window_until.is_none() && held.fences.contains(&fence)
}
