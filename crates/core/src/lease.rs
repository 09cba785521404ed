//! The promise that something stands until a deadline, and what stands under it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::fencing_token::FencingToken;
use crate::id::{LeaseId, Owner};
use crate::mode::Mode;
use crate::owners::OwnerIdx;
use crate::quota::Hold;
use crate::range::ByteRange;
use crate::scope::Key;
use crate::time::{Millis, Timestamp};
use crate::tokens::Tokens;
use crate::transition::{Ending, Request, SessionTerms};

/// A lease's number inside its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeaseIdx(pub(crate) u32);

/// One lease. There may be millions: keep it small.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) id: LeaseId,
    pub(crate) owner: OwnerIdx,
    pub(crate) ttl: Millis,
    pub(crate) state: LeaseState,
    /// When it lapses; of a lapsed lease, when it did.
    pub(crate) deadline: Timestamp,
    /// Its place among the timers. A renewal leaves this behind: the timer finds out when it fires.
    pub(crate) timer: Timestamp,
    pub(crate) session: Option<Box<Session>>,
    pub(crate) held: Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseState {
    Live,
    /// Comes from the last epoch; its holder has not been heard of yet.
    Recovering,
    /// Over, but for reclaim windows.
    Lapsed(Lapse),
    /// Over. So much stood under it that it is cleared in turns.
    Ending,
}

/// The way in which an expired lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lapse {
    Expired,
    GraceExpired,
}

impl Lapse {
    pub(crate) fn ending(self) -> Ending {
        match self {
            Lapse::Expired => Ending::Expired,
            Lapse::GraceExpired => Ending::GraceExpired,
        }
    }

    pub(crate) fn of(ending: &Ending) -> Lapse {
        match ending {
            Ending::GraceExpired => Lapse::GraceExpired,
            Ending::Released
            | Ending::Closed
            | Ending::Expired
            | Ending::Disconnected
            | Ending::Revoked(_)
            | Ending::FileRemoved
            | Ending::Replaced
            | Ending::Withdrawn
            | Ending::WindowOver
            | Ending::Reclaimed => Lapse::Expired,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) terms: SessionTerms,
    pub(crate) opened_at: Timestamp,
    /// Bound to a live stream.
    pub(crate) attached: bool,
    /// Its stream broke, and it was not renewed since: it stands for as long as it is kept.
    pub(crate) kept: bool,
}

/// The grants and pieces under a lease. Most leases carry one grant, so that one costs no allocation.
#[derive(Clone, Debug)]
pub(crate) enum Held {
    Nothing,
    One(Grant),
    Many(Box<Many>),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Many {
    pub(crate) grants: BTreeMap<(FencingToken, Key), Grant>,
    /// The keys of the pieces of files: inode, owner, first byte.
    pub(crate) pieces: BTreeSet<(u64, OwnerIdx, u64)>,
    /// The same by the token that each is shown with.
    pub(crate) shown: BTreeSet<(FencingToken, u64, OwnerIdx, u64)>,
    /// The byte ranges of each set that also has keys, so that its fence releases them too.
    pub(crate) sets: BTreeMap<FencingToken, SetRanges>,
    /// The requests with an id that were granted bytes of files, by the token of their grant.
    pub(crate) requests: BTreeMap<FencingToken, ByteRequest>,
    /// The number of grants and pieces by the length of their reclaim window.
    windows: BTreeMap<Millis, usize>,
}

/// A request that was granted bytes of files: a retry is known by it as long as any of them is held.
#[derive(Clone, Debug)]
pub(crate) struct ByteRequest {
    pub(crate) owner: OwnerIdx,
    pub(crate) request: Request,
    pub(crate) granted_at: Timestamp,
    pub(crate) ranges: Vec<(u64, ByteRange)>,
    /// The number of pieces under the lease that remember its token.
    pub(crate) pieces: usize,
}

impl Many {
    /// The pieces that are shown with this token.
    pub(crate) fn shown_with(
        &self,
        token: FencingToken,
    ) -> impl Iterator<Item = (u64, OwnerIdx, u64)> + '_ {
        let all = (token, 0, OwnerIdx::MIN, 0)..=(token, u64::MAX, OwnerIdx::MAX, u64::MAX);
        self.shown.range(all).map(|&(_, inode, owner, start)| (inode, owner, start))
    }

    pub(crate) fn count_window(&mut self, window: Millis) {
        if window > Millis::ZERO {
            *self.windows.entry(window).or_insert(0) += 1;
        }
    }

    pub(crate) fn uncount_window(&mut self, window: Millis) {
        if let Some(count) = self.windows.get_mut(&window) {
            *count -= 1;
            if *count == 0 {
                self.windows.remove(&window);
            }
        }
    }

    fn put(&mut self, grant: Grant) {
        self.count_window(grant.reclaim_window);
        self.grants.insert((grant.fence, grant.key.clone()), grant);
    }

    /// A piece with these tokens is there now.
    pub(crate) fn count_tokens(&mut self, tokens: &Tokens) {
        if !self.requests.is_empty() {
            for token in tokens.as_slice() {
                self.requests.entry(*token).and_modify(|request| request.pieces += 1);
            }
        }
    }

    /// A piece with these tokens is gone.
    pub(crate) fn uncount_tokens(&mut self, tokens: &Tokens) {
        if !self.requests.is_empty() {
            for token in tokens.as_slice() {
                self.requests.entry(*token).and_modify(|request| request.pieces -= 1);
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SetRanges {
    pub(crate) owner: Owner,
    pub(crate) ranges: Vec<(u64, ByteRange)>,
}

/// The hold of one owner on a name, path or subtree.
#[derive(Clone, Debug)]
pub(crate) struct Grant {
    pub(crate) key: Key,
    pub(crate) fence: FencingToken,
    pub(crate) granted_at: Timestamp,
    pub(crate) mode: Mode,
    pub(crate) owner: OwnerIdx,
    pub(crate) reclaim_window: Millis,
    pub(crate) extra: Option<Box<Extra>>,
}

/// The fields that few grants have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    pub(crate) request: Option<Request>,
    pub(crate) metadata: Option<Arc<str>>,
}

impl Extra {
    pub(crate) fn boxed(
        request: Option<Request>,
        metadata: Option<Arc<str>>,
    ) -> Option<Box<Extra>> {
        (request.is_some() || metadata.is_some()).then(|| Box::new(Extra { request, metadata }))
    }
}

pub(crate) fn request_of(extra: Option<&Extra>) -> Option<&Request> {
    extra?.request.as_ref()
}

pub(crate) fn metadata_of(extra: Option<&Extra>) -> Option<Arc<str>> {
    extra?.metadata.clone()
}

impl Grant {
    /// The kind it is counted as.
    pub(crate) fn hold(&self) -> Hold {
        let metadata = self.extra.as_ref().and_then(|extra| extra.metadata.as_ref());
        let bytes = self.key.as_str().len() + metadata.map_or(0, |metadata| metadata.len());
        Hold { kind: self.key.kind(), mode: self.mode, bytes }
    }
}

impl Lease {
    /// The number of the session that it is.
    pub(crate) fn session_number(&self) -> Option<u64> {
        self.session.as_ref().map(|session| session.terms.number)
    }

    /// Whether nobody may act on it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_lapsed() || self.is_ending()
    }

    /// Whether only reclaim windows are left of it.
    pub(crate) fn is_lapsed(&self) -> bool {
        matches!(self.state, LeaseState::Lapsed(_))
    }

    /// Whether it is cleared in turns: nothing under it counts as held.
    pub(crate) fn is_ending(&self) -> bool {
        self.state == LeaseState::Ending
    }

    /// The deadline itself still belongs to the holder: a renewal stamped with the same millisecond must win,
    /// or a client that renews exactly on time loses its lock to rounding.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.deadline < now || planted!("expires-on-the-deadline", self.deadline == now)
    }

    /// The time it is kept if its holder does not come back.
    pub(crate) fn kept_for(&self) -> Millis {
        let keep = self.session.as_ref().map_or(Millis::ZERO, |session| session.terms.kept_for());
        self.ttl.max(keep)
    }
}

impl SessionTerms {
    fn kept_for(&self) -> Millis {
        match self.on_disconnect {
            crate::command::OnDisconnect::Release => Millis::ZERO,
            crate::command::OnDisconnect::Keep(length) => {
                Millis::from_duration(length).unwrap_or(Millis::new(u32::MAX))
            }
        }
    }
}

impl Held {
    pub(crate) fn len(&self) -> usize {
        match self {
            Held::Nothing => 0,
            Held::One(_) => 1,
            Held::Many(many) => many.grants.len() + many.pieces.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn insert(&mut self, grant: Grant) {
        match std::mem::replace(self, Held::Nothing) {
            Held::Nothing => *self = Held::One(grant),
            Held::One(first) => {
                let mut many = Box::new(Many::default());
                many.put(first);
                many.put(grant);
                *self = Held::Many(many);
            }
            Held::Many(mut many) => {
                many.put(grant);
                *self = Held::Many(many);
            }
        }
    }

    pub(crate) fn remove(&mut self, fence: FencingToken, key: &Key) -> Option<Grant> {
        match self {
            Held::Nothing => None,
            Held::One(grant) if grant.fence == fence && grant.key == *key => {
                match std::mem::replace(self, Held::Nothing) {
                    Held::One(grant) => Some(grant),
                    Held::Nothing | Held::Many(_) => None,
                }
            }
            Held::One(_) => None,
            Held::Many(many) => {
                let gone = many.grants.remove(&(fence, key.clone()))?;
                many.uncount_window(gone.reclaim_window);
                Some(gone)
            }
        }
    }

    /// The shortest reclaim window under the lease, if anything has one.
    pub(crate) fn shortest_window(&self) -> Option<Millis> {
        match self {
            Held::Nothing => None,
            Held::One(grant) => Some(grant.reclaim_window).filter(|&window| window > Millis::ZERO),
            Held::Many(many) => many.windows.first_key_value().map(|(&window, _)| window),
        }
    }

    pub(crate) fn get(&self, fence: FencingToken, key: &Key) -> Option<&Grant> {
        match self {
            Held::Nothing => None,
            Held::One(grant) => (grant.fence == fence && grant.key == *key).then_some(grant),
            Held::Many(many) => many.grants.get(&(fence, key.clone())),
        }
    }

    pub(crate) fn grants(&self) -> impl Iterator<Item = &Grant> {
        let (one, many) = match self {
            Held::Nothing => (None, None),
            Held::One(grant) => (Some(grant), None),
            Held::Many(many) => (None, Some(many.grants.values())),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// All grants, in order; they are no longer there.
    pub(crate) fn take_grants(&mut self) -> impl Iterator<Item = Grant> + use<> {
        let (one, many) = match std::mem::replace(self, Held::Nothing) {
            Held::Nothing => (None, None),
            Held::One(grant) => (Some(grant), None),
            Held::Many(mut many) => {
                let grants = std::mem::take(&mut many.grants);
                for grant in grants.values() {
                    many.uncount_window(grant.reclaim_window);
                }
                *self = Held::Many(many);
                (None, Some(grants.into_values()))
            }
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// The grants stamped with this fence: one, or those of a set.
    pub(crate) fn stamped(&self, fence: FencingToken) -> Vec<Key> {
        match self {
            Held::Nothing => Vec::new(),
            Held::One(grant) if grant.fence == fence => vec![grant.key.clone()],
            Held::One(_) => Vec::new(),
            Held::Many(many) => {
                let lowest = (fence, Key::least());
                let same = many.grants.range(lowest..).take_while(|((f, _), _)| *f == fence);
                same.map(|((_, key), _)| key.clone()).collect()
            }
        }
    }

    /// Whether nothing stands under the lease but the grants stamped with this fence.
    pub(crate) fn is_all_stamped(&self, fence: FencingToken) -> bool {
        match self {
            Held::Nothing => true,
            Held::One(grant) => grant.fence == fence,
            Held::Many(many) => {
                many.pieces.is_empty() && many.grants.keys().all(|(stamp, _)| *stamp == fence)
            }
        }
    }

    /// Room for pieces and sets, whatever was there before.
    pub(crate) fn many(&mut self) -> &mut Many {
        if !matches!(self, Held::Many(_)) {
            let first = std::mem::replace(self, Held::Many(Box::default()));
            if let Held::One(grant) = first {
                self.insert(grant);
            }
        }
        match self {
            Held::Many(many) => many,
            Held::Nothing | Held::One(_) => unreachable!("it was just made so"),
        }
    }

    pub(crate) fn pieces(&self) -> Option<&BTreeSet<(u64, OwnerIdx, u64)>> {
        match self {
            Held::Many(many) => Some(&many.pieces),
            Held::Nothing | Held::One(_) => None,
        }
    }

    /// The pieces that are shown with this token.
    pub(crate) fn shown_with(
        &self,
        token: FencingToken,
    ) -> impl Iterator<Item = (u64, OwnerIdx, u64)> + '_ {
        let many = match self {
            Held::Many(many) => Some(many.shown_with(token)),
            Held::Nothing | Held::One(_) => None,
        };
        many.into_iter().flatten()
    }

    /// Whether anything under the lease is shown with this token.
    pub(crate) fn is_shown_with(&self, token: FencingToken) -> bool {
        match self {
            Held::Nothing => false,
            Held::One(grant) => grant.fence == token,
            Held::Many(many) => {
                let first = many.grants.range((token, Key::least())..).next();
                first.is_some_and(|((fence, _), _)| *fence == token)
                    || many.shown_with(token).next().is_some()
            }
        }
    }

    pub(crate) fn byte_request(&self, fence: FencingToken) -> Option<&ByteRequest> {
        match self {
            Held::Many(many) => many.requests.get(&fence),
            Held::Nothing | Held::One(_) => None,
        }
    }

    pub(crate) fn set(&self, fence: FencingToken) -> Option<&SetRanges> {
        match self {
            Held::Many(many) => many.sets.get(&fence),
            Held::Nothing | Held::One(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_with_one_grant_is_small() {
        assert!(size_of::<Lease>() <= 136, "{} bytes", size_of::<Lease>());
    }
}
