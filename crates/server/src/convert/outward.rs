//! From inside to outside. Moments are told as of `now`.

use std::sync::Arc;
use std::time::Duration;

use leasehold_api as api;
use leasehold_core as core;
use leasehold_core::{
    Claim, Ending, Event, FencingToken, Holder, HolderState, LeaseId, Mode, Namespace, News, Scope,
    Timestamp,
};
use leasehold_engine::{Cursor, Phase, Status};

use crate::convert::page::{self, Room};
use crate::convert::wall;
use crate::service::acquire::Granted;
use crate::service::problems::{Failure, unexpected};
use crate::service::sessions::SessionOpened;
use crate::service::views::{Situation, cursor_of};
use crate::service::watch::{Mark, Told};

/// A moment for people, as RFC 3339.
pub(crate) fn moment(at: Timestamp) -> String {
    let millis = i64::try_from(wall::millis(at)).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX).to_string()
}

pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

pub(super) fn count(number: usize) -> u64 {
    number as u64
}

pub(crate) fn mode_shown(mode: Mode) -> (api::Mode, Option<u32>) {
    match mode {
        Mode::Exclusive => (api::Mode::Exclusive, None),
        Mode::Shared => (api::Mode::Shared, None),
        Mode::Permits(limit) => (api::Mode::Permits, Some(limit.get())),
    }
}

/// The grant of one lock.
pub(crate) fn grant(now: Timestamp, granted: &Granted) -> Result<api::Grant, Failure> {
    let Granted { claims, grant, epoch, .. } = granted;
    let claim = claims.first().ok_or_else(unexpected)?;
    let (mode, permits) = mode_shown(claim.mode);
    Ok(api::Grant {
        lock: claim.scope.to_string(),
        owner_id: grant.owner.to_string(),
        lease_id: lease_id_text(grant.lease),
        fencing_token: grant.fence.get(),
        mode,
        permits,
        ttl_ms: grant.ttl.get().into(),
        lease_expiry_ms: wall::millis(grant.deadline),
        expires_in_ms: millis(grant.deadline.since(now)),
        expires_at: moment(grant.deadline),
        acquired_at: moment(grant.granted_at),
        waited_ms: millis(grant.waited),
        replayed: grant.replayed,
        epoch: *epoch,
    })
}

pub(crate) fn set_grant(now: Timestamp, granted: &Granted) -> api::SetGrant {
    let Granted { claims, grant, epoch, .. } = granted;
    let claim = |claim: &Claim| {
        let (mode, permits) = mode_shown(claim.mode);
        api::Claim { lock: claim.scope.to_string(), mode: Some(mode), permits }
    };
    api::SetGrant {
        locks: claims.iter().map(claim).collect(),
        owner_id: grant.owner.to_string(),
        lease_id: lease_id_text(grant.lease),
        fencing_token: grant.fence.get(),
        ttl_ms: grant.ttl.get().into(),
        lease_expiry_ms: wall::millis(grant.deadline),
        expires_in_ms: millis(grant.deadline.since(now)),
        expires_at: moment(grant.deadline),
        acquired_at: moment(grant.granted_at),
        waited_ms: millis(grant.waited),
        replayed: grant.replayed,
        epoch: *epoch,
    }
}

pub(crate) fn renewed(
    now: Timestamp,
    epoch: u64,
    renew: &core::Renew,
    renewed: core::Renewed,
) -> api::Renewed {
    api::Renewed {
        lock: renew.scope.to_string(),
        owner_id: renew.owner.to_string(),
        fencing_token: renew.fence.get(),
        ttl_ms: renewed.ttl.get().into(),
        lease_expiry_ms: wall::millis(renewed.deadline),
        expires_in_ms: millis(renewed.deadline.since(now)),
        expires_at: moment(renewed.deadline),
        epoch,
    }
}

/// A session as it is told to the one who opened it.
pub(crate) fn opened(now: Timestamp, session: &SessionOpened) -> api::Opened {
    let SessionOpened { asked, opened, epoch, .. } = session;
    api::Opened {
        session_id: lease_id_text(opened.session),
        session: opened.number,
        owner_id: asked.owner.to_string(),
        adapter: asked.adapter.to_string(),
        ttl_ms: opened.ttl.get().into(),
        lease_expiry_ms: wall::millis(opened.deadline),
        expires_in_ms: millis(opened.deadline.since(now)),
        expires_at: moment(opened.deadline),
        replayed: opened.replayed,
        epoch: *epoch,
    }
}

pub(crate) fn kept_alive(now: Timestamp, epoch: u64, renewed: core::Renewed) -> api::KeptAlive {
    api::KeptAlive {
        ttl_ms: renewed.ttl.get().into(),
        lease_expiry_ms: wall::millis(renewed.deadline),
        expires_in_ms: millis(renewed.deadline.since(now)),
        expires_at: moment(renewed.deadline),
        epoch,
    }
}

pub(crate) fn holder(now: Timestamp, holder: &Holder) -> api::Holder {
    let (mode, permits) = mode_shown(holder.mode);
    let is_hidden = holder.owner.is_hidden();
    api::Holder {
        lock: if is_hidden { String::new() } else { holder.scope.to_string() },
        owner_id: holder.owner.to_string(),
        hidden: is_hidden,
        mode,
        permits,
        state: match holder.state {
            HolderState::Held => api::LockState::Held,
            HolderState::Recovering => api::LockState::Recovering,
            HolderState::ReclaimWindow => api::LockState::ReclaimWindow,
        },
        fencing_token: holder.fence.get(),
        acquired_at: moment(holder.since),
        ttl_ms: holder.ttl.get().into(),
        expires_at: moment(holder.deadline),
        expires_in_ms: millis(holder.deadline.since(now)),
        session: holder.session,
        metadata: metadata_shown(holder.metadata.as_ref()),
        principal: principal_shown(&holder.owner),
    }
}

fn principal_shown(owner: &core::Owner) -> Option<String> {
    let principal = owner.principal();
    (!principal.is_anonymous()).then(|| principal.to_string())
}

pub(super) fn holders(now: Timestamp, found: &[Holder]) -> Vec<api::Holder> {
    found.iter().map(|found| holder(now, found)).collect()
}

/// In the order in which they stand.
fn waiters(now: Timestamp, found: &[core::WaiterView]) -> Vec<api::Waiter> {
    let waiter = |(at, waiter): (usize, &core::WaiterView)| {
        let (mode, permits) = mode_shown(waiter.mode);
        api::Waiter {
            owner_id: waiter.owner.to_string(),
            lock: waiter.scope.to_string(),
            mode,
            permits,
            position: count(at + 1),
            waiting_ms: millis(now.since(waiter.since)),
            gives_up_in_ms: waiter.deadline.map(|deadline| millis(deadline.since(now))),
        }
    };
    found.iter().enumerate().map(waiter).collect()
}

fn state_shown(state: core::LockState) -> api::LockState {
    match state {
        core::LockState::Free => api::LockState::Free,
        core::LockState::Held => api::LockState::Held,
        core::LockState::Recovering => api::LockState::Recovering,
        core::LockState::ReclaimWindow => api::LockState::ReclaimWindow,
    }
}

pub(crate) fn lock(now: Timestamp, namespace: &Namespace, view: &core::LockView) -> api::Lock {
    api::Lock {
        lock: view.scope.to_string(),
        namespace: namespace.to_string(),
        state: state_shown(view.state),
        holders: holders(now, &view.holders),
        holders_total: count(view.holders_len),
        waiters: waiters(now, &view.waiters),
        waiters_total: count(view.waiters_len),
        last_fencing_token: view.last_fence.map(FencingToken::get),
        truncated: view.truncated,
        revision: view.revision.0,
    }
}

pub(crate) fn lock_page(
    now: Timestamp,
    epoch: u64,
    found: &core::Page,
    filtered: bool,
) -> api::LockPage {
    let summary = |lock: &core::LockSummary| api::LockSummary {
        lock: lock.scope.to_string(),
        state: state_shown(lock.state),
        holders: holders(now, &lock.holders),
        holders_total: count(lock.holders_len),
        waiters_total: count(lock.waiters_len),
        truncated: lock.truncated,
    };
    let mut room = Room::new();
    let shown: Vec<&core::LockSummary> =
        found.locks.iter().take_while(|lock| room.has_for(page::lock_bytes(lock))).collect();
    // The rest is on the next page, which begins after the last one shown.
    let cut = shown.last().filter(|_| shown.len() < found.locks.len()).map(|last| cursor_of(last));
    api::LockPage {
        locks: shown.into_iter().map(summary).collect(),
        next_page_token: cut.as_ref().or(found.next.as_ref()).map(page_token),
        revision: found.revision.0,
        cursor: Some(api::Cursor::new(epoch, found.revision.0)),
        filtered,
    }
}

/// As many sessions as go on a page, and the number to go on after.
pub(crate) fn session_page(
    now: Timestamp,
    found: &[core::SessionView],
    len_max: usize,
) -> (Vec<api::Session>, Option<u64>) {
    let mut room = Room::new();
    let shown: Vec<&core::SessionView> =
        found.iter().take_while(|view| room.has_for(page::session_bytes(view))).collect();
    let is_cut = shown.len() < found.len() || found.len() == len_max;
    let next = shown.last().filter(|_| is_cut).map(|last| last.number);
    (shown.into_iter().map(|view| session(now, view)).collect(), next)
}

/// Registers that go on one page, and the last one if there may be more.
pub(crate) fn register_page(
    found: &[core::RegisterView],
    len_max: usize,
) -> (Vec<api::Register>, Option<String>) {
    let mut room = Room::new();
    let shown: Vec<api::Register> = found
        .iter()
        .take_while(|view| room.has_for(page::register_bytes(view)))
        .map(|view| api::Register {
            name: view.name.to_string(),
            high_water: view.high_water.get(),
        })
        .collect();
    let is_cut = shown.len() < found.len() || found.len() == len_max;
    let next = shown.last().filter(|_| is_cut).map(|last| last.name.clone());
    (shown, next)
}

/// The position of a listing, as hexadecimal digits: callers are not to read anything into it.
fn page_token(cursor: &core::ListCursor) -> String {
    let text = format!("{} {}", cursor.fence, cursor.scope);
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn list_cursor(token: &str) -> Result<core::ListCursor, Failure> {
    let parse = || {
        let bytes: Option<Vec<u8>> = (0..token.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(token.get(at..at + 2)?, 16).ok())
            .collect();
        let text = String::from_utf8(bytes?).ok()?;
        let (fence, scope) = text.split_once(' ')?;
        Some(core::ListCursor {
            scope: Scope::stored(scope).ok()?,
            fence: FencingToken::new(fence.parse().ok()?)?,
        })
    };
    parse().ok_or_else(|| Failure::field("page_token", "is not a valid page token"))
}

pub(crate) fn session(now: Timestamp, view: &core::SessionView) -> api::Session {
    let (on_disconnect, disconnect_ttl_ms) = match view.on_disconnect {
        core::OnDisconnect::Release => (api::OnDisconnect::Release, None),
        core::OnDisconnect::Keep(ttl) => (api::OnDisconnect::Keep, Some(millis(ttl))),
    };
    api::Session {
        session: view.number,
        namespace: view.namespace.to_string(),
        owner_id: view.owner.to_string(),
        adapter: view.adapter.to_string(),
        on_disconnect,
        disconnect_ttl_ms,
        attached: view.attached,
        recovering: view.recovering,
        opened_at: moment(view.opened_at),
        ttl_ms: view.ttl.get().into(),
        expires_at: moment(view.deadline),
        expires_in_ms: millis(view.deadline.since(now)),
        locks: count(view.grants),
        waiters: count(view.waiters),
        metadata: metadata_shown(view.metadata.as_ref()),
    }
}

pub(crate) fn cycle(edges: &[core::WaitEdge]) -> Vec<api::WaitEdge> {
    let edge = |edge: &core::WaitEdge| {
        let hidden = edge.waiter.is_hidden() && edge.blocker.is_hidden();
        api::WaitEdge {
            waiter: edge.waiter.to_string(),
            lock: if hidden { String::new() } else { edge.scope.to_string() },
            blocker: edge.blocker.to_string(),
            hidden,
        }
    };
    edges.iter().map(edge).collect()
}

/// An event or a mark, as a watcher reads it.
pub(crate) fn told(told: Told<'_>) -> api::Event {
    match told {
        Told::Event { event, cursor } => api::Event {
            revision: event.revision.0,
            cursor: cursor.map(cursor_shown),
            at: moment(event.at),
            namespace: event.namespace.to_string(),
            news: news(event.at, &event.news),
        },
        Told::Mark { mark, cursor, at, namespace } => api::Event {
            revision: cursor.revision.0,
            cursor: Some(cursor_shown(cursor)),
            at: moment(at),
            namespace: namespace.to_string(),
            news: match mark {
                Mark::Bookmark => api::News::Bookmark,
                Mark::Resync => api::News::Resync,
            },
        },
    }
}

fn cursor_shown(cursor: Cursor) -> api::Cursor {
    api::Cursor { epoch: cursor.epoch.map(|epoch| epoch.0), revision: cursor.revision.0 }
}

/// The point that a watcher has come to.
pub(crate) fn cursor(cursor: api::Cursor) -> Cursor {
    Cursor { epoch: cursor.epoch.map(core::Epoch), revision: core::Revision(cursor.revision) }
}

fn news(at: Timestamp, news: &News) -> api::News {
    let texts = |scopes: &[Scope]| scopes.iter().map(Scope::to_string).collect();
    match news {
        News::EpochBegan { epoch } => api::News::EpochBegan { epoch: epoch.0 },
        News::GraceEnded => api::News::GraceEnded,
        News::SessionOpened { number, owner, adapter } => api::News::SessionOpened {
            session: *number,
            owner_id: owner.to_string(),
            adapter: adapter.to_string(),
        },
        News::SessionEnded { number, owner, ending } => api::News::SessionEnded {
            session: *number,
            owner_id: owner.to_string(),
            reason: ending.to_string(),
        },
        News::Granted { scope, owner, mode, fence, ttl, .. } => {
            let (mode, permits) = mode_shown(*mode);
            api::News::Granted {
                lock: scope.to_string(),
                owner_id: owner.to_string(),
                mode,
                permits,
                fencing_token: fence.get(),
                ttl_ms: ttl.get().into(),
            }
        }
        News::Ended { scope, owner, mode, fence, since, ending, window, .. } => {
            let (mode, permits) = mode_shown(*mode);
            api::News::Ended {
                lock: scope.to_string(),
                owner_id: owner.to_string(),
                mode,
                permits,
                fencing_token: fence.get(),
                held_ms: millis(at.since(*since)),
                reason: ending.to_string(),
                note: note(ending),
                reclaim_ms: window.map(|window| window.get().into()),
            }
        }
        News::TtlChanged { owner, ttl } => {
            api::News::TtlChanged { owner_id: owner.to_string(), ttl_ms: ttl.get().into() }
        }
        News::FenceAccepted { register, fence } => {
            api::News::FenceAccepted { register: register.to_string(), fencing_token: fence.get() }
        }
        News::FenceDeleted { register, reason } => {
            api::News::FenceDeleted { register: register.to_string(), note: reason.to_string() }
        }
        News::Queued { scopes, owner, .. } => {
            api::News::Queued { locks: texts(scopes), owner_id: owner.to_string() }
        }
        News::Left { scopes, owner, .. } => {
            api::News::Left { locks: texts(scopes), owner_id: owner.to_string() }
        }
        News::Deadlock { victim, cycle: edges } => {
            api::News::Deadlock { owner_id: victim.to_string(), cycle: cycle(edges) }
        }
    }
}

pub(crate) fn overview(now: Timestamp, situation: Situation, series: api::Series) -> api::Overview {
    let Situation {
        namespace, view, totals, waits: (wait_p50_ms, wait_p99_ms), namespaces, ..
    } = situation;
    let totals = api::Totals {
        locks_held: totals.held,
        waiters: totals.waiters,
        sessions: totals.sessions,
        grants: totals.grants,
        expired: totals.expired,
        deadlocks: totals.deadlocks,
        wait_p50_ms,
        wait_p99_ms,
    };
    let namespaces = namespaces
        .into_iter()
        .map(|(namespace, locks_held)| api::NamespaceCount { namespace, locks_held });
    let namespaces = namespaces.collect();
    api::Overview {
        namespace: namespace.to_string(),
        locks_held: count(view.grants),
        waiters: count(view.waiters),
        sessions: count(view.sessions),
        longest_waits: waiters(now, &view.longest_waits),
        about_to_expire: holders(now, &view.next_to_lapse),
        is_partial: view.is_partial,
        totals,
        series,
        namespaces,
        revision: view.revision.0,
    }
}

pub(crate) fn tree(prefix: &str, view: &core::Tree) -> api::TreePage {
    let branch = |branch: &core::Branch| api::Branch {
        name: branch.text.clone(),
        is_lock: branch.is_lock,
        locks: count(branch.locks),
        is_partial: branch.is_partial,
    };
    let last = view.branches.last().filter(|_| view.has_more);
    api::TreePage {
        prefix: prefix.into(),
        branches: view.branches.iter().map(branch).collect(),
        next_page_token: last.map(|last| last.text.clone()),
        revision: view.revision.0,
    }
}

/// A grant that has ended, from the event that told of it.
pub(crate) fn past_holder(now: Timestamp, event: &Event) -> Option<api::PastHolder> {
    let News::Ended { scope, owner, mode, fence, since, ending, .. } = &event.news else {
        return None;
    };
    let (mode, permits) = mode_shown(*mode);
    Some(api::PastHolder {
        lock: scope.to_string(),
        owner_id: owner.to_string(),
        mode,
        permits,
        fencing_token: fence.get(),
        acquired_at: moment(*since),
        ended_at: moment(event.at),
        held_ms: millis(event.at.since(*since)),
        ended_ms_ago: millis(now.since(event.at)),
        reason: ending.to_string(),
        note: note(ending),
    })
}

/// The grant that carries a token.
pub(crate) fn token(now: Timestamp, view: &core::TokenView) -> api::TokenView {
    let has = |state| view.holders.iter().any(|holder| holder.state == state);
    let state = if has(HolderState::Held) {
        api::TokenState::Held
    } else if has(HolderState::Recovering) {
        api::TokenState::Recovering
    } else if has(HolderState::ReclaimWindow) {
        api::TokenState::ReclaimWindow
    } else {
        api::TokenState::Ended
    };
    let ended = view.ended.iter().map(|ended| {
        let (mode, permits) = mode_shown(ended.mode);
        api::PastHolder {
            lock: ended.scope.to_string(),
            owner_id: ended.owner.to_string(),
            mode,
            permits,
            fencing_token: view.fence.get(),
            acquired_at: moment(ended.since),
            ended_at: moment(ended.at),
            held_ms: millis(ended.at.since(ended.since)),
            ended_ms_ago: millis(now.since(ended.at)),
            reason: ended.ending.to_string(),
            note: note(&ended.ending),
        }
    });
    api::TokenView {
        fencing_token: view.fence.get(),
        namespace: view.namespace.to_string(),
        state,
        holders: holders(now, &view.holders),
        ended: ended.collect(),
    }
}

pub(crate) fn gone(why: core::Gone) -> api::Gone {
    match why {
        core::Gone::Unknown => api::Gone::Unknown,
        core::Gone::Expired => api::Gone::Expired,
        core::Gone::Released => api::Gone::Released,
        core::Gone::OtherScope => api::Gone::OtherScope,
        core::Gone::Superseded => api::Gone::Superseded,
    }
}

fn note(ending: &Ending) -> Option<String> {
    match ending {
        Ending::Revoked(reason) => Some(reason.to_string()),
        Ending::Released
        | Ending::Closed
        | Ending::Expired
        | Ending::GraceExpired
        | Ending::Disconnected
        | Ending::FileRemoved
        | Ending::Replaced
        | Ending::Withdrawn
        | Ending::WindowOver
        | Ending::Reclaimed => None,
    }
}

pub(crate) fn role(status: &Status) -> api::Role {
    match status.phase {
        Phase::Starting => api::Role::Starting,
        Phase::Leading => api::Role::Leader,
        Phase::Doubtful | Phase::Following => api::Role::Follower,
        Phase::Draining => api::Role::Draining,
        Phase::Stopped => api::Role::Stopped,
    }
}

fn metadata_shown(kept: Option<&Arc<str>>) -> api::Metadata {
    kept.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// By hand, as every grant writes one.
pub(crate) fn lease_id_text(id: LeaseId) -> String {
    let digit = |half: u8| b"0123456789abcdef"[usize::from(half & 15)];
    let mut text = [0; 32];
    for (two, byte) in text.chunks_exact_mut(2).zip(id.as_u128().to_be_bytes()) {
        two.copy_from_slice(&[digit(byte >> 4), digit(byte)]);
    }
    std::str::from_utf8(&text).expect("digits are ASCII").to_owned()
}

#[cfg(test)]
mod tests {
    use leasehold_api::Code;

    use super::super::inward::lease_id;
    use super::*;

    #[test]
    fn lease_id_has_one_spelling() {
        let id = LeaseId::from_u128(0xab);
        let text = lease_id_text(id);
        assert_eq!(text, "000000000000000000000000000000ab");
        assert_eq!(lease_id("lease_id", &text).unwrap(), id);
        for other in ["ab", "000000000000000000000000000000AB", "+00000000000000000000000000000ab"]
        {
            assert_eq!(lease_id("lease_id", other).unwrap_err().code(), Code::InvalidRequest);
        }
    }

    #[test]
    fn page_token_leads_back_to_where_the_page_ended() {
        let cursor = core::ListCursor {
            scope: Scope::parse("a name with spaces/b").unwrap(),
            fence: FencingToken::new(7).unwrap(),
        };
        assert_eq!(list_cursor(&page_token(&cursor)).unwrap(), cursor);
        for token in ["", "zz", "2", "2020", "é"] {
            assert!(list_cursor(token).is_err(), "{token}");
        }
    }
}
