//! The effect of each transition on the table: the only place where what lasts is touched.

mod requests;
mod ranges;
mod leases;
mod ended;

use ended::Ended;

use crate::command::Claim;
use crate::effect::{News, Step};
use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Namespace};
use crate::inode::{Party, Piece};
use crate::lease::{Extra, Grant, LeaseIdx, request_of};
use crate::namespace::NamespaceIdx;
use crate::owners::OwnerIdx;
use crate::range::ByteRange;
use crate::scope::{Key, Scope};
use crate::table::{LockTable, Unfit};
use crate::tokens::Tokens;
use crate::transition::{Ending, Granted, Transition};

pub(crate) use leases::Window;
pub(crate) use ranges::ranges_of;

/// The receiver of events for watchers.
pub(crate) enum Listener<'a> {
    Step(&'a mut Step),
    /// It was told when it happened; now it is replayed.
    Nobody,
    /// It is undone, and has never happened.
    Undoing,
}

impl Listener<'_> {
    fn hear(&mut self, table: &LockTable, namespace: &Namespace, news: News) {
        match self {
            Listener::Step(step) => table.tell(namespace.clone(), news, step),
            Listener::Nobody | Listener::Undoing => {}
        }
    }
}

impl LockTable {
    pub(crate) fn change(
        &mut self,
        transition: &Transition,
        listener: &mut Listener<'_>,
    ) -> Result<(), Unfit> {
        self.note_undo(transition);
        self.revision.0 += 1;
        let changed = self.make(transition, listener);
        if changed.is_err() {
            self.forget_last_undo();
        }
        changed
    }

    fn make(&mut self, transition: &Transition, listener: &mut Listener<'_>) -> Result<(), Unfit> {
        match transition {
            Transition::EpochBegan { epoch } => {
                self.epoch = *epoch;
                self.endings.clear();
                listener.hear(self, &Namespace::default(), News::EpochBegan { epoch: *epoch });
            }
            Transition::Jumped { epoch, fence } => {
                // Revisions jump as far as fences: those handed out since the backup are never met again.
                let skipped = fence.get().saturating_sub(self.fence.get());
                self.revision.0 = self.revision.0.saturating_add(skipped);
                self.epoch = self.epoch.max(*epoch);
                self.fence = self.fence.max(*fence);
            }
            Transition::SessionOpened(opened) => self.open_session(opened, listener)?,
            Transition::Granted(granted) => self.add_grant(granted, listener)?,
            Transition::TtlChanged { namespace, lease, ttl } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                self.before_change(space, lease);
                let changed = self.space_mut(space).lease_mut(lease);
                changed.ttl = *ttl;
                let owner = changed.owner;
                let owner = self.space(space).owners.name(owner).clone();
                listener.hear(self, namespace, News::TtlChanged { owner, ttl: *ttl });
            }
            Transition::LeaseLapsed { namespace, lease, ending } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                self.lapse(space, lease, ending, listener);
            }
            Transition::LeaseEnding { namespace, lease, ending } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                if self.space(space).lease(lease).is_over() {
                    return Err(self.unfit("a lease that is over"));
                }
                self.begin_to_end(space, lease, ending, listener);
            }
            Transition::LeaseEnded { namespace, lease, ending } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                self.end_lease(space, lease, ending, listener);
            }
            Transition::GrantEnded { namespace, lease, fence, ending } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                self.end_stamped(space, lease, *fence, ending, listener);
            }
            Transition::KeyEnded { namespace, lease, fence, key, ending } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                if self.space(space).lease(lease).held.get(*fence, key).is_none() {
                    return Err(self.unfit("a grant that is not there"));
                }
                self.before_change(space, lease);
                self.end_grant(space, lease, *fence, key, ending, listener);
                self.drop_if_bare(space, lease);
            }
            Transition::RangeEnded { namespace, lease, owner, inode, range, ending } => {
                let (space, lease) = self.locate(namespace, *lease)?;
                let owner = self.space(space).owners.find(owner);
                let owner = owner.ok_or_else(|| self.unfit("an owner that holds nothing"))?;
                self.before_change(space, lease);
                self.end_range(space, lease, owner, *inode, *range, ending, listener);
                self.drop_if_bare(space, lease);
            }
            Transition::FenceAccepted { namespace, register, principal, fence } => {
                self.registers.set(namespace, register.clone(), principal, *fence);
                let accepted = News::FenceAccepted { register: register.clone(), fence: *fence };
                listener.hear(self, namespace, accepted);
            }
            Transition::FenceDeleted { namespace, register, reason } => {
                let removed = self.registers.remove(namespace, register);
                removed.ok_or_else(|| self.unfit("an unknown fence register"))?;
                let deleted =
                    News::FenceDeleted { register: register.clone(), reason: reason.clone() };
                listener.hear(self, namespace, deleted);
            }
        }
        Ok(())
    }

    fn unfit(&self, what: &'static str) -> Unfit {
        Unfit { revision: self.revision, what }
    }

    fn locate(
        &self,
        namespace: &Namespace,
        lease: LeaseId,
    ) -> Result<(NamespaceIdx, LeaseIdx), Unfit> {
        let space =
            self.namespace_idx(namespace).ok_or_else(|| self.unfit("an unknown namespace"))?;
        let lease = self.space(space).lease_no(lease);
        Ok((space, lease.ok_or_else(|| self.unfit("an unknown lease"))?))
    }

    fn add_grant(&mut self, granted: &Granted, listener: &mut Listener<'_>) -> Result<(), Unfit> {
        let space = self.space_or_insert(&granted.namespace);
        let lease = match granted.opens {
            Some(ttl) => self.add_lease(space, granted.lease, &granted.owner, ttl, None)?,
            None => self.locate(&granted.namespace, granted.lease)?.1,
        };
        self.before_change(space, lease);
        self.fence = self.fence.max(granted.fence);
        let owner = match granted.opens {
            Some(_) => self.space(space).lease(lease).owner,
            None => self.mention(space, &granted.owner),
        };
        self.remember_request(space, lease, owner, granted);
        for claim in &granted.claims {
            self.add_claim(space, lease, owner, claim, granted, listener);
        }
        self.remember_set(space, lease, granted);
        if granted.opens.is_none() {
            self.forget_owner(space, owner);
        }
        Ok(())
    }

    fn add_claim(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        claim: &Claim,
        granted: &Granted,
        listener: &mut Listener<'_>,
    ) {
        match &claim.scope {
            Scope::Key(key) => {
                let extra = Extra::boxed(granted.request.clone(), granted.metadata.clone());
                let at = self.space_mut(space);
                at.add_holder(key, claim.mode, granted.fence, lease);
                let grant = Grant {
                    key: key.clone(),
                    fence: granted.fence,
                    granted_at: granted.granted_at,
                    mode: claim.mode,
                    owner,
                    reclaim_window: granted.reclaim_window,
                    extra,
                };
                let hold = grant.hold();
                at.lease_mut(lease).held.insert(grant);
                self.count_hold(space, owner, lease, hold);
            }
            Scope::Range { inode, range } => {
                let piece = Piece {
                    range: *range,
                    mode: claim.mode,
                    lease,
                    tokens: Tokens::One(granted.fence),
                    granted_at: granted.granted_at,
                    reclaim_window: granted.reclaim_window,
                    metadata: granted.metadata.clone(),
                };
                self.lock_range(space, Party { owner, lease }, *inode, piece, listener);
            }
        }
        let told = News::Granted {
            scope: claim.scope.clone(),
            owner: granted.owner.clone(),
            mode: claim.mode,
            fence: granted.fence,
            ttl: self.space(space).lease(lease).ttl,
            session: self.space(space).lease(lease).session_number(),
            waited: self.waited,
        };
        listener.hear(self, &granted.namespace, told);
    }

    /// Ends everything stamped with one fence under a lease.
    fn end_stamped(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        fence: FencingToken,
        ending: &Ending,
        listener: &mut Listener<'_>,
    ) {
        self.before_change(space, lease);
        for key in self.space(space).lease(lease).held.stamped(fence) {
            self.end_grant(space, lease, fence, &key, ending, listener);
        }
        let set = self.space(space).lease(lease).held.set(fence).cloned();
        if let Some(set) = set {
            self.space_mut(space).lease_mut(lease).held.many().sets.remove(&fence);
            // What is withdrawn says itself which bytes go: those held before stay.
            let ranges = if *ending == Ending::Withdrawn { Vec::new() } else { set.ranges };
            for (inode, range) in ranges {
                let Some(owner) = self.space(space).owners.find(&set.owner) else {
                    break;
                };
                for own in self.honouring(space, lease, owner, inode, range, fence) {
                    self.end_range(space, lease, owner, inode, own, ending, listener);
                }
            }
        }
        self.forget_byte_request(space, lease, fence);
        self.drop_if_bare(space, lease);
    }

    /// The parts of `range` that the owner still holds under this lease and fence.
    pub(crate) fn honouring(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        inode: u64,
        range: ByteRange,
        fence: FencingToken,
    ) -> Vec<ByteRange> {
        let Some(at) = self.space(space).inodes.get(&inode) else {
            return Vec::new();
        };
        at.own_pieces(Party { owner, lease }, range)
            .filter(|piece| piece.honours(fence))
            .filter_map(|piece| piece.range.intersection(range))
            .collect()
    }

    pub(crate) fn end_grant(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        fence: FencingToken,
        key: &Key,
        ending: &Ending,
        listener: &mut Listener<'_>,
    ) {
        let held = &mut self.space_mut(space).lease_mut(lease).held;
        let grant = held.remove(fence, key).expect("the grant was found there");
        self.grant_gone(space, lease, grant, ending, listener);
    }

    /// A grant was taken out of its lease: the rest of the table has to forget it.
    fn grant_gone(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        grant: Grant,
        ending: &Ending,
        listener: &mut Listener<'_>,
    ) {
        let at = self.space_mut(space);
        at.remove_holder(&grant.key, grant.fence, lease);
        if let Some(request) = request_of(grant.extra.as_deref()) {
            at.forget_request(grant.owner, &request.id, grant.fence);
        }
        // Bytes that were granted with it may be gone already.
        self.forget_spent_requests(space, lease, &Tokens::One(grant.fence));
        let (hold, ended) = (grant.hold(), Ended::grant(&grant));
        let scope = Scope::Key(grant.key);
        self.tell_ended(space, lease, scope.clone(), grant.owner, &ended, ending, listener);
        self.uncount_hold(space, grant.owner, lease, hold);
        self.freed.push((space, scope));
    }
}
