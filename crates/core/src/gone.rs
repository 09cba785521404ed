//! Answers from the memory of endings: why a token or a lease is not good, what was released before, who had a token.

use std::time::Duration;

use crate::budget::Budget;
use crate::command::{Release, Unlock};
use crate::conflict::Blocker;
use crate::endings::{Ended, What};
use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Namespace, Principal};
use crate::inode::Party;
use crate::lease::LeaseIdx;
use crate::namespace::{NamespaceIdx, NamespaceState};
use crate::read::Holder;
use crate::read::covers;
use crate::read::view::{EndedGrant, TokenView};
use crate::refusal::Gone;
use crate::scope::Scope;
use crate::table::LockTable;
use crate::time::Timestamp;
use crate::transition::Ending;

/// The most holds and endings that a view of one token names.
const NAMED_MAX: usize = 100;

impl LockTable {
    /// The grant that carries a token, held or ended, in whatever namespace; `None` if nothing of it is remembered.
    pub fn token(&self, fence: FencingToken) -> Option<TokenView> {
        let held =
            self.spaces_by_name().find_map(|(space, at)| Some((space, at.lease_of_token(fence)?)));
        let ended: Vec<&Ended> = self.endings.of_token(fence).take(NAMED_MAX).collect();
        let namespace = match (held, ended.first()) {
            (Some((space, _)), _) => self.space(space).name.clone(),
            (None, Some(ended)) => ended.namespace.clone(),
            (None, None) => return None,
        };
        let found = held.map(|(space, lease)| (space, self.shown_with(space, lease, fence)));
        let holders = found.into_iter().flat_map(|(space, found)| {
            found.into_iter().filter_map(move |grant| self.holder(space, &grant))
        });
        let mut holders: Vec<Holder> = holders.collect();
        let mut past = Vec::new();
        if let Some((space, lease)) = held
            && let Some(under_way) = self.space(space).ending.get(&lease)
        {
            let at = self.ended_at(space, lease);
            past.extend(holders.drain(..).map(|held| EndedGrant {
                scope: held.scope,
                owner: held.owner,
                mode: held.mode,
                since: held.since,
                at,
                ending: under_way.ending.clone(),
            }));
        }
        past.extend(ended.into_iter().filter_map(ended_grant));
        Some(TokenView { fence, namespace, holders, ended: past })
    }

    /// When a lease that ends in turns was marked as over.
    fn ended_at(&self, space: NamespaceIdx, lease: LeaseIdx) -> Timestamp {
        let at = self.space(space);
        let held = at.lease(lease);
        let mut ended = self.endings.of_lease(&at.name, held.id);
        let marked = ended.find(|ended| matches!(ended.what, What::Lease { .. }));
        marked.map_or(held.deadline, |marked| marked.at)
    }

    /// The grants under a lease with a token; the first of them if there are many.
    fn shown_with(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        fence: FencingToken,
    ) -> Vec<Blocker> {
        let at = self.space(space);
        let held = &at.lease(lease).held;
        let keys = held.stamped(fence).into_iter().filter_map(|key| {
            let owner = held.get(fence, &key)?.owner;
            Some(Blocker::Grant { key, fence, lease, owner })
        });
        let pieces = held.shown_with(fence).filter_map(|(inode, owner, start)| {
            let piece = at.inodes.get(&inode)?.pieces.get(&(Party { owner, lease }, start))?;
            Some(Blocker::Piece { inode, range: piece.range, lease, owner })
        });
        keys.chain(pieces).take(NAMED_MAX).collect()
    }

    /// Whether a token that is shown is that of a grant which was good for the scope.
    fn is_shown_on(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        fence: FencingToken,
        scope: &Scope,
    ) -> bool {
        let found = self.shown_with(space, lease, fence);
        found.iter().any(|grant| grant.scope().is_some_and(|held| is_about(&held, scope)))
    }

    /// The reason why a lease cannot be used. To other principals none was ever known.
    pub(crate) fn why_lease_is_gone(
        &self,
        namespace: &Namespace,
        lease: LeaseId,
        principal: &Principal,
    ) -> Gone {
        // What is in the table and no longer live has lapsed into its reclaim windows, or ends in turns.
        let is_own = |at: &NamespaceState, no| at.lease(no).is_over() && at.is_of(no, principal);
        if let Some(at) = self.space_named(namespace)
            && let Some(no) = at.lease_no(lease).filter(|&no| is_own(at, no))
        {
            return at.ending.get(&no).map_or(Gone::Expired, |found| Gone::by(&found.ending));
        }
        let newest = self.endings.of_lease(namespace, lease).next();
        let newest = newest.filter(|ended| ended.owner.is_of(principal));
        newest.map_or(Gone::Unknown, |ended| Gone::by(&ended.ending))
    }

    /// The reason why this owner, lease and token are not those of a grant on the scope.
    pub(crate) fn why_not_holder(&self, shown: &Release) -> Gone {
        let Release { namespace, scope, owner, lease, fence } = shown;
        let ended = self.endings.of_token(*fence).filter(|ended| {
            ended.lease == *lease && ended.namespace == *namespace && ended.owner == *owner
        });
        let is_about = |ended: &Scope| match scope {
            Scope::Key(_) => ended == scope,
            Scope::Range { .. } => ended.overlaps(scope),
        };
        match why_of(ended, is_about) {
            Some(why) => why,
            None if self.holds_with(shown) => Gone::OtherScope,
            None if self.is_live(namespace, *lease) => Gone::Unknown,
            None => self.why_lease_is_gone(namespace, *lease, &owner.principal()),
        }
    }

    /// Whether this owner holds anything but the scope with the token, under a lease that stands.
    fn holds_with(&self, shown: &Release) -> bool {
        let found = self.namespace_idx(&shown.namespace).and_then(|space| {
            let lease = self.space(space).live_lease(shown.lease)?;
            Some((space, self.shown_with(space, lease, shown.fence)))
        });
        let Some((space, found)) = found else { return false };
        let at = self.space(space);
        found.iter().any(|grant| match grant {
            Blocker::Grant { owner, .. } | Blocker::Piece { owner, .. } => {
                *at.owners.name(*owner) == shown.owner
                    && grant.scope().is_some_and(|held| !held.overlaps(&shown.scope))
            }
            Blocker::Waiter { .. } => false,
        })
    }

    /// The time it was held, if this owner has released it before, under the same lease.
    pub(crate) fn released_before(&self, release: &Release) -> Option<Duration> {
        let is_own = |ended: &&Ended| {
            ended.lease == release.lease
                && ended.namespace == release.namespace
                && ended.owner == release.owner
                && ended.ending == Ending::Released
        };
        match &release.scope {
            Scope::Key(_) => {
                let ended = self.endings.of_token(release.fence).filter(is_own);
                let mut same = ended.filter(|ended| ended.scope() == Some(&release.scope));
                same.find_map(held_for)
            }
            Scope::Range { .. } => {
                let ended = self.endings.of_lease(&release.namespace, release.lease);
                let bytes = ended.filter(is_own).filter(|ended| ended.is_good_for(release));
                // What one release has ended, it has ended at once.
                let mut bytes = bytes.peekable();
                let revision = bytes.peek()?.revision;
                bytes.take_while(|ended| ended.revision == revision).filter_map(held_for).max()
            }
        }
    }

    /// The number of grants closed with a session, or a lease, that was closed before.
    pub(crate) fn closed_before(
        &self,
        namespace: &Namespace,
        lease: LeaseId,
        principal: &Principal,
    ) -> Option<usize> {
        if let Some(at) = self.space_named(namespace)
            && let Some(no) = at.lease_no(lease)
            && let Some(under_way) = at.ending.get(&no)
        {
            let is_own = under_way.ending == Ending::Closed && at.is_of(no, principal);
            return is_own.then_some(under_way.grants);
        }
        let newest = self.endings.of_lease(namespace, lease).next()?;
        if !newest.owner.is_of(principal) && !planted!("closed-for-another-principal") {
            return None;
        }
        match (&newest.what, &newest.ending) {
            (What::Lease { grants }, Ending::Closed) => Some(*grants),
            (What::Lease { .. } | What::Hold { .. }, _) => None,
        }
    }

    /// Whether a plain lease has ended because this owner has given back the last of it.
    pub(crate) fn is_given_back(&self, unlock: &Unlock) -> bool {
        let newest = self.endings.of_lease(&unlock.namespace, unlock.session).next();
        newest.is_some_and(|ended| ended.owner == unlock.owner && ended.ending == Ending::Released)
    }

    /// The reason why a token is not good for a scope on which no such grant is held.
    pub(crate) fn why_not_held(
        &self,
        namespace: &Namespace,
        scope: &Scope,
        fence: FencingToken,
        lease: Option<LeaseId>,
        budget: &mut Budget,
    ) -> Gone {
        let is_lease = |id: LeaseId| lease.is_none_or(|lease| lease == id);
        if let Some(space) = self.namespace_idx(namespace)
            && let Some(no) = self.space(space).lease_of_token(fence)
        {
            let at = self.space(space);
            return match at.ending.get(&no) {
                _ if !is_lease(at.lease(no).id) => Gone::Unknown,
                Some(under_way) if self.is_shown_on(space, no, fence, scope) => {
                    Gone::by(&under_way.ending)
                }
                Some(_) | None => Gone::OtherScope,
            };
        }
        let ended = self.endings.of_token(fence).filter(|ended| ended.namespace == *namespace);
        let mut ended = ended.peekable();
        if ended.peek().is_some() {
            let own = ended.filter(|ended| is_lease(ended.lease));
            return why_of(own, |ended| is_about(ended, scope)).unwrap_or(Gone::Unknown);
        }
        let later = self.last_fence(namespace, scope, budget).is_some_and(|last| last > fence);
        if later && fence > FencingToken::ZERO { Gone::Superseded } else { Gone::Unknown }
    }

    /// The highest token that the lock is known to have been granted with, as far as the budget goes.
    fn last_fence(
        &self,
        namespace: &Namespace,
        scope: &Scope,
        budget: &mut Budget,
    ) -> Option<FencingToken> {
        let space = self.namespace_idx(namespace);
        let held = space.and_then(|space| self.holding(space, scope, 0, budget).last_fence);
        held.max(self.endings.last_fence(namespace, scope))
    }
}

/// The reason of the newest ending that is about the scope; if there are only others, it is another scope.
fn why_of<'a>(
    ended: impl Iterator<Item = &'a Ended>,
    is_about: impl Fn(&Scope) -> bool,
) -> Option<Gone> {
    let mut ended = ended.peekable();
    ended.peek()?;
    let about = ended.find(|ended| ended.scope().is_some_and(&is_about));
    Some(about.map_or(Gone::OtherScope, |ended| Gone::by(&ended.ending)))
}

/// Whether a grant of one scope would have been good for another.
fn is_about(ended: &Scope, asked: &Scope) -> bool {
    match (ended, asked) {
        (Scope::Key(ended), Scope::Key(asked)) => ended == asked || covers(ended, asked),
        (_, _) => ended.overlaps(asked),
    }
}

fn held_for(ended: &Ended) -> Option<Duration> {
    match &ended.what {
        What::Hold { since, .. } => Some(ended.at.since(*since)),
        What::Lease { .. } => None,
    }
}

fn ended_grant(ended: &Ended) -> Option<EndedGrant> {
    let What::Hold { scope, mode, since, .. } = &ended.what else { return None };
    Some(EndedGrant {
        scope: scope.clone(),
        owner: ended.owner.clone(),
        mode: *mode,
        since: *since,
        at: ended.at,
        ending: ended.ending.clone(),
    })
}

impl Ended {
    /// Whether a release by range was about these bytes, with a token that was good for them.
    fn is_good_for(&self, release: &Release) -> bool {
        match &self.what {
            What::Hold { scope, tokens, .. } => {
                scope.overlaps(&release.scope) && tokens.contains(release.fence)
            }
            What::Lease { .. } => false,
        }
    }
}
