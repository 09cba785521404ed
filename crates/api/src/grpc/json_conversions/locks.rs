//! Locks, their holders and waiters, and what a grant or a renewal is answered with.

use super::{at, metadata, metadata_of, ms, ms_of, text_of};
use crate::grpc as wire;

impl From<crate::Mode> for wire::Mode {
    fn from(mode: crate::Mode) -> wire::Mode {
        match mode {
            crate::Mode::Exclusive => wire::Mode::Exclusive,
            crate::Mode::Shared => wire::Mode::Shared,
            crate::Mode::Permits => wire::Mode::Permits,
        }
    }
}

impl From<wire::Mode> for crate::Mode {
    fn from(mode: wire::Mode) -> crate::Mode {
        match mode {
            wire::Mode::Unspecified | wire::Mode::Exclusive => crate::Mode::Exclusive,
            wire::Mode::Shared => crate::Mode::Shared,
            wire::Mode::Permits => crate::Mode::Permits,
        }
    }
}

pub(super) fn mode(mode: crate::Mode) -> i32 {
    wire::Mode::from(mode).into()
}

impl From<crate::LockState> for wire::LockState {
    fn from(state: crate::LockState) -> wire::LockState {
        match state {
            crate::LockState::Free => wire::LockState::Free,
            crate::LockState::Held => wire::LockState::Held,
            crate::LockState::Recovering => wire::LockState::Recovering,
            crate::LockState::ReclaimWindow => wire::LockState::ReclaimWindow,
        }
    }
}

impl From<wire::LockState> for crate::LockState {
    fn from(state: wire::LockState) -> crate::LockState {
        match state {
            wire::LockState::Unspecified | wire::LockState::Free => crate::LockState::Free,
            wire::LockState::Held => crate::LockState::Held,
            wire::LockState::Recovering => crate::LockState::Recovering,
            wire::LockState::ReclaimWindow => crate::LockState::ReclaimWindow,
        }
    }
}

pub(super) fn state(state: crate::LockState) -> i32 {
    wire::LockState::from(state).into()
}

impl From<&crate::Holder> for wire::Holder {
    fn from(holder: &crate::Holder) -> wire::Holder {
        wire::Holder {
            lock: holder.lock.clone(),
            owner_id: holder.owner_id.clone(),
            mode: mode(holder.mode),
            permits: holder.permits,
            state: state(holder.state),
            fencing_token: holder.fencing_token,
            acquired_at: at(&holder.acquired_at),
            expires_at: at(&holder.expires_at),
            expires_in: Some(ms(holder.expires_in_ms)),
            session: holder.session,
            metadata: metadata(&holder.metadata),
            ttl: Some(ms(holder.ttl_ms)),
            principal: holder.principal.clone(),
            hidden: holder.hidden,
        }
    }
}

impl From<&wire::Holder> for crate::Holder {
    fn from(holder: &wire::Holder) -> crate::Holder {
        crate::Holder {
            lock: holder.lock.clone(),
            owner_id: holder.owner_id.clone(),
            mode: holder.mode().into(),
            permits: holder.permits,
            state: holder.state().into(),
            fencing_token: holder.fencing_token,
            acquired_at: text_of(holder.acquired_at.as_ref()),
            expires_at: text_of(holder.expires_at.as_ref()),
            expires_in_ms: ms_of(holder.expires_in.as_ref()),
            session: holder.session,
            metadata: holder.metadata.as_ref().and_then(metadata_of).unwrap_or_default(),
            ttl_ms: ms_of(holder.ttl.as_ref()),
            principal: holder.principal.clone(),
            hidden: holder.hidden,
        }
    }
}

impl From<&crate::PastHolder> for wire::PastHolder {
    fn from(past: &crate::PastHolder) -> wire::PastHolder {
        wire::PastHolder {
            lock: past.lock.clone(),
            owner_id: past.owner_id.clone(),
            mode: mode(past.mode),
            permits: past.permits,
            fencing_token: past.fencing_token,
            acquired_at: at(&past.acquired_at),
            ended_at: at(&past.ended_at),
            held: Some(ms(past.held_ms)),
            ended_ago: Some(ms(past.ended_ms_ago)),
            reason: past.reason.clone(),
            note: past.note.clone(),
        }
    }
}

impl From<crate::TokenState> for wire::TokenState {
    fn from(state: crate::TokenState) -> wire::TokenState {
        match state {
            crate::TokenState::Held => wire::TokenState::Held,
            crate::TokenState::Recovering => wire::TokenState::Recovering,
            crate::TokenState::ReclaimWindow => wire::TokenState::ReclaimWindow,
            crate::TokenState::Ended => wire::TokenState::Ended,
        }
    }
}

impl From<&crate::TokenView> for wire::TokenView {
    fn from(view: &crate::TokenView) -> wire::TokenView {
        wire::TokenView {
            fencing_token: view.fencing_token,
            namespace: view.namespace.clone(),
            state: wire::TokenState::from(view.state).into(),
            holders: holders(&view.holders),
            ended: view.ended.iter().map(wire::PastHolder::from).collect(),
        }
    }
}

pub(super) fn holders(holders: &[crate::Holder]) -> Vec<wire::Holder> {
    holders.iter().map(wire::Holder::from).collect()
}

impl From<&crate::Waiter> for wire::Waiter {
    fn from(waiter: &crate::Waiter) -> wire::Waiter {
        wire::Waiter {
            owner_id: waiter.owner_id.clone(),
            lock: waiter.lock.clone(),
            mode: mode(waiter.mode),
            permits: waiter.permits,
            position: waiter.position,
            waiting: Some(ms(waiter.waiting_ms)),
            gives_up_in: waiter.gives_up_in_ms.map(ms),
        }
    }
}

impl From<&wire::Waiter> for crate::Waiter {
    fn from(waiter: &wire::Waiter) -> crate::Waiter {
        crate::Waiter {
            owner_id: waiter.owner_id.clone(),
            lock: waiter.lock.clone(),
            mode: waiter.mode().into(),
            permits: waiter.permits,
            position: waiter.position,
            waiting_ms: ms_of(waiter.waiting.as_ref()),
            gives_up_in_ms: waiter.gives_up_in.as_ref().map(|length| ms_of(Some(length))),
        }
    }
}

impl From<&crate::Lock> for wire::Lock {
    fn from(lock: &crate::Lock) -> wire::Lock {
        wire::Lock {
            lock: lock.lock.clone(),
            namespace: lock.namespace.clone(),
            state: state(lock.state),
            holders: holders(&lock.holders),
            holders_total: lock.holders_total,
            waiters: lock.waiters.iter().map(wire::Waiter::from).collect(),
            waiters_total: lock.waiters_total,
            last_fencing_token: lock.last_fencing_token,
            truncated: lock.truncated,
            revision: lock.revision,
        }
    }
}

impl From<&wire::Lock> for crate::Lock {
    fn from(lock: &wire::Lock) -> crate::Lock {
        crate::Lock {
            lock: lock.lock.clone(),
            namespace: lock.namespace.clone(),
            state: lock.state().into(),
            holders: lock.holders.iter().map(crate::Holder::from).collect(),
            holders_total: lock.holders_total,
            waiters: lock.waiters.iter().map(crate::Waiter::from).collect(),
            waiters_total: lock.waiters_total,
            last_fencing_token: lock.last_fencing_token,
            truncated: lock.truncated,
            revision: lock.revision,
        }
    }
}

impl From<&crate::LockPage> for wire::LockPage {
    fn from(page: &crate::LockPage) -> wire::LockPage {
        let summary = |lock: &crate::LockSummary| wire::LockSummary {
            lock: lock.lock.clone(),
            state: state(lock.state),
            holders: holders(&lock.holders),
            holders_total: lock.holders_total,
            waiters_total: lock.waiters_total,
            truncated: lock.truncated,
        };
        wire::LockPage {
            locks: page.locks.iter().map(summary).collect(),
            next_page_token: page.next_page_token.clone().unwrap_or_default(),
            revision: page.revision,
            cursor: page.cursor.map(|cursor| cursor.to_string()),
            filtered: page.filtered,
        }
    }
}

impl From<&crate::Grant> for wire::Grant {
    fn from(grant: &crate::Grant) -> wire::Grant {
        wire::Grant {
            lock: grant.lock.clone(),
            owner_id: grant.owner_id.clone(),
            lease_id: grant.lease_id.clone(),
            fencing_token: grant.fencing_token,
            mode: mode(grant.mode),
            permits: grant.permits,
            ttl: Some(ms(grant.ttl_ms)),
            expires_in: Some(ms(grant.expires_in_ms)),
            expires_at: at(&grant.expires_at),
            acquired_at: at(&grant.acquired_at),
            waited: Some(ms(grant.waited_ms)),
            replayed: grant.replayed,
            epoch: grant.epoch,
        }
    }
}

impl From<&crate::SetGrant> for wire::SetGrant {
    fn from(grant: &crate::SetGrant) -> wire::SetGrant {
        let claim = |claim: &crate::Claim| wire::Claim {
            lock: claim.lock.clone(),
            mode: claim.mode.map_or(0, mode),
            permits: claim.permits,
        };
        wire::SetGrant {
            locks: grant.locks.iter().map(claim).collect(),
            owner_id: grant.owner_id.clone(),
            lease_id: grant.lease_id.clone(),
            fencing_token: grant.fencing_token,
            ttl: Some(ms(grant.ttl_ms)),
            expires_in: Some(ms(grant.expires_in_ms)),
            expires_at: at(&grant.expires_at),
            acquired_at: at(&grant.acquired_at),
            waited: Some(ms(grant.waited_ms)),
            replayed: grant.replayed,
            epoch: grant.epoch,
        }
    }
}

impl From<&crate::Renewed> for wire::Renewed {
    fn from(renewed: &crate::Renewed) -> wire::Renewed {
        wire::Renewed {
            lock: renewed.lock.clone(),
            owner_id: renewed.owner_id.clone(),
            fencing_token: renewed.fencing_token,
            ttl: Some(ms(renewed.ttl_ms)),
            expires_in: Some(ms(renewed.expires_in_ms)),
            expires_at: at(&renewed.expires_at),
            epoch: renewed.epoch,
        }
    }
}
