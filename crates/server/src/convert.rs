//! Between what is spoken and what is decided: the only file that knows both the core's types and the api's.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use leasehold_api as api;
use leasehold_api::{Code, FieldError, Problem};
use leasehold_core as core;
use leasehold_core::{
    CallId, Claim, Conflict, Ending, Event, Fence, Holder, HolderState, Invalid, LeaseId, Limit,
    Mode, Namespace, News, Owner, Refusal, RequestId, Scope, Ticket, Timestamp, Under, Wait,
};
use leasehold_engine::{CallError, Phase, Status};

use crate::problem::Failure;
use crate::random;
use crate::retry;

/// Over HTTP no request waits longer: proxies cut after a minute. The ticket keeps the place for the next one.
pub(crate) const HTTP_WAIT_MAX: Duration = Duration::from_secs(50);

// From outside to inside.

pub(crate) fn namespace(text: Option<&str>) -> Result<Namespace, Failure> {
    match text {
        None => Ok(Namespace::default()),
        Some(text) => {
            Namespace::new(text).map_err(|fault| Failure::field("namespace", fault.to_string()))
        }
    }
}

pub(crate) fn scope(text: &str) -> Result<Scope, Failure> {
    Scope::parse(text).map_err(|fault| Failure::new(Code::InvalidLockName, fault.to_string()))
}

pub(crate) fn owner(text: &str) -> Result<Owner, Failure> {
    Owner::new(text).map_err(|fault| Failure::field("owner_id", fault.to_string()))
}

pub(crate) fn fence(number: u64) -> Result<Fence, Failure> {
    Fence::new(number).ok_or_else(|| {
        Failure::field(
            "fencing_token",
            format!("{number} is above {}, the highest there is", Fence::MAX),
        )
    })
}

/// A lease id in its one spelling: 32 lower-case hexadecimal digits.
pub(crate) fn lease_id(field: &str, text: &str) -> Result<LeaseId, Failure> {
    // The text is not repeated: it may be somebody's secret with one digit missing.
    let refused = || Failure::field(field, "must be 32 lower-case hexadecimal digits");
    let (high, low) = text.split_at_checked(16).ok_or_else(refused)?;
    let halves = hex_digits(high).zip(hex_digits(low)).ok_or_else(refused)?;
    Ok(LeaseId::from_u128(u128::from(halves.0) << 64 | u128::from(halves.1)))
}

/// 16 lower-case hexadecimal digits. By hand, as every release reads one.
fn hex_digits(text: &str) -> Option<u64> {
    let digits: &[u8; 16] = text.as_bytes().try_into().ok()?;
    let (mut number, mut seen) = (0, 0);
    for digit in digits {
        let value = HEX_VALUES[usize::from(*digit)];
        (number, seen) = (number << 4 | u64::from(value), seen | value);
    }
    (seen < 16).then_some(number)
}

/// What each byte is worth as a digit; 255 if it is none.
const HEX_VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    values
};

/// By hand, as every grant writes one.
pub(crate) fn lease_id_text(id: LeaseId) -> String {
    let digit = |half: u8| b"0123456789abcdef"[usize::from(half & 15)];
    let mut text = [0; 32];
    for (two, byte) in text.chunks_exact_mut(2).zip(id.as_u128().to_be_bytes()) {
        two.copy_from_slice(&[digit(byte >> 4), digit(byte)]);
    }
    std::str::from_utf8(&text).expect("digits are ASCII").to_owned()
}

pub(crate) fn mode(mode: Option<api::Mode>, permits: Option<u32>) -> Result<Mode, Failure> {
    match (mode, permits) {
        (None | Some(api::Mode::Exclusive), None) => Ok(Mode::Exclusive),
        (Some(api::Mode::Shared), None) => Ok(Mode::Shared),
        (Some(api::Mode::Permits), None) => {
            Err(Failure::field("permits", "is needed with mode permits"))
        }
        (None | Some(api::Mode::Permits), Some(limit)) => NonZeroU32::new(limit)
            .map(Mode::Permits)
            .ok_or_else(|| Failure::field("permits", "must be at least 1")),
        (Some(api::Mode::Exclusive | api::Mode::Shared), Some(_)) => {
            Err(Failure::field("permits", "goes with mode permits only: leave mode out"))
        }
    }
}

/// What is kept of the metadata: its text, or nothing if it is empty.
pub(crate) fn metadata(given: Option<&api::Metadata>) -> Result<Option<Arc<str>>, Failure> {
    let Some(map) = given.filter(|map| !map.is_empty()) else {
        return Ok(None);
    };
    if map.iter().any(|(key, value)| is_unprintable(key) || has_unprintable(value)) {
        return Err(Failure::field("metadata", "has a control character"));
    }
    let text = serde_json::to_string(map)
        .map_err(|_| Failure::field("metadata", "cannot be written as JSON"))?;
    Ok(Some(text.into()))
}

fn has_unprintable(value: &serde_json::Value) -> bool {
    use serde_json::Value;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => is_unprintable(text),
        Value::Array(values) => values.iter().any(has_unprintable),
        Value::Object(map) => {
            map.iter().any(|(key, value)| is_unprintable(key) || has_unprintable(value))
        }
    }
}

/// Text may have several lines here; anything else that moves a cursor is not meant to be read.
fn is_unprintable(text: &str) -> bool {
    text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t'))
}

fn metadata_shown(kept: Option<&Arc<str>>) -> api::Metadata {
    kept.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// An acquire of one lock or of a set, before the engine numbers it.
pub(crate) fn acquire(
    namespace: Namespace,
    claims: Vec<Claim>,
    request: &api::AcquireRequest,
) -> Result<core::Acquire, Failure> {
    Ok(core::Acquire {
        call: CallId(0),
        namespace,
        owner: owner(&request.owner_id)?,
        claims,
        under: under(request)?,
        wait: match wait(request.wait_ms)? {
            Duration::ZERO => Wait::Never,
            length => Wait::UpTo(length),
        },
        keep_place: request.wait_ms > 0,
        ticket: request.ticket.as_deref().map(ticket).transpose()?,
        request_id: request.request_id.as_deref().map(request_id).transpose()?,
        reclaim_window: Duration::from_millis(request.reclaim_ms),
        reclaim: request.reclaim,
        metadata: metadata(request.metadata.as_ref())?,
    })
}

fn under(request: &api::AcquireRequest) -> Result<Under, Failure> {
    match (&request.session_id, request.ttl_ms) {
        (Some(_), Some(_)) => {
            Err(Failure::field("ttl_ms", "belongs to the session: leave it out with session_id"))
        }
        (Some(session), None) => lease_id("session_id", session).map(Under::Session),
        (None, Some(ttl)) => {
            Ok(Under::NewLease { id: random::lease_id(), ttl: Duration::from_millis(ttl) })
        }
        (None, None) => Err(Failure::field("ttl_ms", "is missing")),
    }
}

/// How long one request over HTTP waits: proxies cut off those that take longer.
pub(crate) fn wait(millis: u64) -> Result<Duration, Failure> {
    let day = 24 * 60 * 60 * 1000;
    if millis > day {
        return Err(Failure::field("wait_ms", format!("is {millis}, the limit is {day}")));
    }
    Ok(Duration::from_millis(millis).min(HTTP_WAIT_MAX))
}

pub(crate) fn ticket(text: &str) -> Result<Ticket, Failure> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits => Ok(Ticket(number)),
        Ok(_) | Err(_) => Err(Failure::field("ticket", "is not a ticket")),
    }
}

pub(crate) fn request_id(text: &str) -> Result<RequestId, Failure> {
    RequestId::new(text).map_err(|fault| Failure::field("request_id", fault.to_string()))
}

pub(crate) fn on_disconnect(request: &api::OpenRequest) -> Result<core::OnDisconnect, Failure> {
    match (request.on_disconnect, request.disconnect_ttl_ms) {
        (api::OnDisconnect::Release, None) => Ok(core::OnDisconnect::Release),
        (api::OnDisconnect::Keep, Some(ttl)) => {
            Ok(core::OnDisconnect::Keep(Duration::from_millis(ttl)))
        }
        (api::OnDisconnect::Release, Some(_)) => {
            Err(Failure::field("disconnect_ttl_ms", "goes with on_disconnect keep only"))
        }
        (api::OnDisconnect::Keep, None) => {
            Err(Failure::field("disconnect_ttl_ms", "is needed with on_disconnect keep"))
        }
    }
}

pub(crate) fn lock_state(text: &str) -> Result<core::LockState, Failure> {
    match text {
        "held" => Ok(core::LockState::Held),
        "recovering" => Ok(core::LockState::Recovering),
        "reclaim_window" => Ok(core::LockState::ReclaimWindow),
        _ => Err(Failure::field("state", "is one of held, recovering, reclaim_window")),
    }
}

// From inside to outside. Moments are told as of `now`.

/// A moment for people, as RFC 3339.
pub(crate) fn moment(at: Timestamp) -> String {
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX).to_string()
}

pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

fn count(number: usize) -> u64 {
    number as u64
}

pub(crate) fn mode_shown(mode: Mode) -> (api::Mode, Option<u32>) {
    match mode {
        Mode::Exclusive => (api::Mode::Exclusive, None),
        Mode::Shared => (api::Mode::Shared, None),
        Mode::Permits(limit) => (api::Mode::Permits, Some(limit.get())),
    }
}

pub(crate) fn grant(now: Timestamp, epoch: u64, claim: &Claim, grant: &core::Grant) -> api::Grant {
    let (mode, permits) = mode_shown(claim.mode);
    api::Grant {
        lock: claim.scope.to_string(),
        owner_id: grant.owner.to_string(),
        lease_id: lease_id_text(grant.lease),
        fencing_token: grant.fence.get(),
        mode,
        permits,
        ttl_ms: grant.ttl.get().into(),
        lease_expiry_ms: grant.deadline.as_millis(),
        expires_in_ms: millis(grant.deadline.since(now)),
        expires_at: moment(grant.deadline),
        acquired_at: moment(grant.granted_at),
        waited_ms: millis(grant.waited),
        replayed: grant.replayed,
        epoch,
    }
}

pub(crate) fn set_grant(
    now: Timestamp,
    epoch: u64,
    claims: &[Claim],
    grant: &core::Grant,
) -> api::SetGrant {
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
        lease_expiry_ms: grant.deadline.as_millis(),
        expires_in_ms: millis(grant.deadline.since(now)),
        expires_at: moment(grant.deadline),
        acquired_at: moment(grant.granted_at),
        waited_ms: millis(grant.waited),
        replayed: grant.replayed,
        epoch,
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
        lease_expiry_ms: renewed.deadline.as_millis(),
        expires_in_ms: millis(renewed.deadline.since(now)),
        expires_at: moment(renewed.deadline),
        epoch,
    }
}

/// A session as it is told to the one who opened it.
pub(crate) fn opened(
    now: Timestamp,
    epoch: u64,
    asked: &core::OpenSession,
    opened: &core::Opened,
) -> api::Opened {
    api::Opened {
        session_id: lease_id_text(opened.session),
        session: opened.number,
        owner_id: asked.owner.to_string(),
        adapter: asked.adapter.to_string(),
        ttl_ms: opened.ttl.get().into(),
        lease_expiry_ms: opened.deadline.as_millis(),
        expires_in_ms: millis(opened.deadline.since(now)),
        expires_at: moment(opened.deadline),
        replayed: opened.replayed,
        epoch,
    }
}

pub(crate) fn kept_alive(now: Timestamp, epoch: u64, renewed: core::Renewed) -> api::KeptAlive {
    api::KeptAlive {
        ttl_ms: renewed.ttl.get().into(),
        lease_expiry_ms: renewed.deadline.as_millis(),
        expires_in_ms: millis(renewed.deadline.since(now)),
        expires_at: moment(renewed.deadline),
        epoch,
    }
}

pub(crate) fn holder(now: Timestamp, holder: &Holder) -> api::Holder {
    let (mode, permits) = mode_shown(holder.mode);
    api::Holder {
        lock: holder.scope.to_string(),
        owner_id: holder.owner.to_string(),
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
    }
}

fn holders(now: Timestamp, found: &[Holder]) -> Vec<api::Holder> {
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
        last_fencing_token: view.last_fence.map(Fence::get),
        revision: view.revision.0,
    }
}

pub(crate) fn lock_page(now: Timestamp, page: &core::Page) -> api::LockPage {
    let summary = |lock: &core::LockSummary| api::LockSummary {
        lock: lock.scope.to_string(),
        state: state_shown(lock.state),
        holders: holders(now, &lock.holders),
        holders_total: count(lock.holders_len),
        waiters_total: count(lock.waiters_len),
    };
    api::LockPage {
        locks: page.locks.iter().map(summary).collect(),
        next_page_token: page.next.as_ref().map(page_token),
        revision: page.revision.0,
    }
}

/// Where a listing goes on, as hexadecimal digits: callers are not to read anything into it.
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
            scope: Scope::parse(scope).ok()?,
            fence: Fence::new(fence.parse().ok()?)?,
        })
    };
    parse().ok_or_else(|| Failure::field("page_token", "is not one that was handed out"))
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
    let edge = |edge: &core::WaitEdge| api::WaitEdge {
        waiter: edge.waiter.to_string(),
        lock: edge.scope.to_string(),
        blocker: edge.blocker.to_string(),
    };
    edges.iter().map(edge).collect()
}

pub(crate) fn event(event: &Event) -> api::Event {
    api::Event {
        revision: event.revision.0,
        at: moment(event.at),
        namespace: event.namespace.to_string(),
        news: news(event.at, &event.news),
    }
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
        News::Granted { scope, owner, mode, fence, ttl } => {
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
        News::Ended { scope, owner, mode, fence, since, ending, window } => {
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

pub(crate) fn overview(
    now: Timestamp,
    namespace: &Namespace,
    view: &core::Overview,
    server: (api::Totals, api::Series, Vec<api::NamespaceCount>),
) -> api::Overview {
    let (totals, series, namespaces) = server;
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

/// The locks that an event is about; none for those about sessions, registers and the server itself.
pub(crate) fn scopes_of(event: &Event) -> &[Scope] {
    match &event.news {
        News::Granted { scope, .. } | News::Ended { scope, .. } => std::slice::from_ref(scope),
        News::Queued { scopes, .. } | News::Left { scopes, .. } => scopes,
        News::EpochBegan { .. }
        | News::GraceEnded
        | News::SessionOpened { .. }
        | News::SessionEnded { .. }
        | News::TtlChanged { .. }
        | News::FenceAccepted { .. }
        | News::Deadlock { .. } => &[],
    }
}

/// Whether an event tells of a queue, not of a lasting change.
pub(crate) fn is_of_queues(event: &Event) -> bool {
    matches!(event.news, News::Queued { .. } | News::Left { .. } | News::Deadlock { .. })
}

/// Whether an event concerns every namespace.
pub(crate) fn is_for_all(event: &Event) -> bool {
    matches!(event.news, News::EpochBegan { .. } | News::GraceEnded)
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

// Refusals and failures.

pub(crate) fn problem(now: Timestamp, error: &CallError) -> Problem {
    let said = error.to_string();
    match error {
        CallError::Refused(refusal) => refused(now, refusal),
        CallError::StoreUnavailable { retry_after, outcome_unknown } => {
            let mut problem = Problem::new(Code::StoreUnavailable, said);
            if *outcome_unknown {
                problem.outcome = api::Happened::Unknown;
            }
            retried(problem, *retry_after)
        }
        CallError::NotLeader { leader, retry_after } => {
            let problem = Problem { leader: leader.clone(), ..Problem::new(Code::NotLeader, said) };
            retried(problem, *retry_after)
        }
        CallError::Draining => retried(Problem::new(Code::Draining, said), Duration::from_secs(1)),
        CallError::Busy => retried(Problem::new(Code::Overloaded, said), Duration::from_secs(1)),
        CallError::Stopped => {
            retried(Problem::new(Code::Interrupted, said), Duration::from_secs(1))
        }
    }
}

fn retried(problem: Problem, after: Duration) -> Problem {
    Problem { recommended_retry_ms: Some(retry::jittered(after)), ..problem }
}

fn refused(now: Timestamp, refusal: &Refusal) -> Problem {
    let said = refusal.to_string();
    match refusal {
        Refusal::Held(conflict) => {
            conflicted(now, Problem::new(Code::LockHeld, held_detail(now, conflict)), conflict)
        }
        Refusal::ReclaimWindow(conflict) => {
            let said = format!(
                "{}; only that owner may take it back until then",
                held_detail(now, conflict)
            );
            conflicted(now, Problem::new(Code::ReclaimWindow, said), conflict)
        }
        Refusal::GracePeriod { ends_in, conflict } => {
            let problem = Problem::new(Code::GracePeriod, said);
            let problem = match conflict {
                Some(conflict) => conflicted(now, problem, conflict),
                None => problem,
            };
            let problem = Problem { grace_ends_in_ms: Some(millis(*ends_in)), ..problem };
            retried(problem, *ends_in)
        }
        Refusal::Deadlock { cycle: edges } => {
            Problem { cycle: Some(cycle(edges)), ..Problem::new(Code::Deadlock, said) }
        }
        Refusal::NoGrace => Problem::new(Code::NoGrace, said),
        Refusal::LeaseLost => Problem::new(Code::LeaseLost, said),
        Refusal::NotHolder(_) => Problem::new(Code::NotHolder, said),
        Refusal::LimitMismatch { .. } => Problem::new(Code::LimitMismatch, said),
        Refusal::RequestIdReused => Problem::new(Code::RequestIdReused, said),
        Refusal::SessionNotFound => Problem::new(Code::SessionNotFound, said),
        Refusal::TicketNotFound(_) => Problem::new(Code::TicketNotFound, said),
        Refusal::FileRemoved(_) => Problem::new(Code::FileRemoved, said),
        Refusal::StaleFence { high_water, .. } => {
            Problem { high_water: Some(high_water.get()), ..Problem::new(Code::StaleFence, said) }
        }
        Refusal::Limit(limit) => limited(limit),
        Refusal::Invalid(invalid) => invalid_request(invalid),
        Refusal::Suspended => {
            retried(Problem::new(Code::StoreUnavailable, said), Duration::from_secs(1))
        }
        Refusal::StaleEpoch { .. } => Problem::new(Code::Internal, "the epoch is over"),
    }
}

fn held_detail(now: Timestamp, conflict: &Conflict) -> String {
    match conflict.holders.first() {
        Some(holder) => format!(
            "{} is held by {} for another {} ms",
            holder.scope,
            holder.owner,
            millis(holder.deadline.since(now))
        ),
        None => format!("others wait for {} already", conflict.scope),
    }
}

fn conflicted(now: Timestamp, problem: Problem, conflict: &Conflict) -> Problem {
    Problem {
        current_owner_id: conflict.holders.first().map(|holder| holder.owner.to_string()),
        recommended_retry_ms: Some(retry::after_conflict(now, conflict)),
        holders: Some(holders(now, &conflict.holders)),
        waiters: Some(count(conflict.waiters)),
        waited_ms: Some(millis(conflict.waited)),
        ticket: conflict.place.map(|place| place.ticket.0.to_string()),
        queue_position: conflict.place.map(|place| count(place.position)),
        ..problem
    }
}

fn limited(limit: &Limit) -> Problem {
    let code = match limit {
        Limit::WaitersPerScope { .. } | Limit::Waiters { .. } => Code::TooManyWaiters,
        Limit::Sessions { .. } => Code::SessionLimit,
        Limit::LocksPerSession { .. } | Limit::Registers { .. } | Limit::Namespaces { .. } => {
            Code::QuotaExceeded
        }
    };
    retried(Problem::new(code, limit.to_string()), Duration::from_secs(1))
}

fn invalid_request(invalid: &Invalid) -> Problem {
    let field = match invalid {
        Invalid::Ttl { .. } => "ttl_ms",
        Invalid::DisconnectTtl { .. } => "disconnect_ttl_ms",
        Invalid::ReclaimWindow { .. } => "reclaim_ms",
        Invalid::Wait { .. } => "wait_ms",
        Invalid::SetSize { .. } | Invalid::SetOverlap { .. } => "locks",
        Invalid::RangePermits(_) | Invalid::Permits { .. } => "permits",
        Invalid::MetadataSize { .. } => "metadata",
        Invalid::NotOneGrant => "reclaim",
        Invalid::LeaseIdInUse => return Problem::new(Code::Internal, "the lease id is in use"),
    };
    let message = invalid.to_string();
    let errors = vec![FieldError { field: field.into(), message: message.clone() }];
    Problem { errors, ..Problem::new(Code::InvalidRequest, message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_id_has_one_spelling() {
        let id = LeaseId::from_u128(0xab);
        let text = lease_id_text(id);
        assert_eq!(text, "000000000000000000000000000000ab");
        assert_eq!(lease_id("lease_id", &text).unwrap(), id);
        for other in ["ab", "000000000000000000000000000000AB", "+00000000000000000000000000000ab"]
        {
            assert_eq!(lease_id("lease_id", other).unwrap_err().0.code, Code::InvalidRequest);
        }
    }

    #[test]
    fn page_token_leads_back_to_where_the_page_ended() {
        let cursor = core::ListCursor {
            scope: Scope::parse("a name with spaces/b").unwrap(),
            fence: Fence::new(7).unwrap(),
        };
        assert_eq!(list_cursor(&page_token(&cursor)).unwrap(), cursor);
        for token in ["", "zz", "2", "2020", "é"] {
            assert!(list_cursor(token).is_err(), "{token}");
        }
    }

    #[test]
    fn wait_is_cut_to_what_proxies_allow_but_nonsense_is_refused() {
        assert_eq!(wait(0).unwrap(), Duration::ZERO);
        assert_eq!(wait(1).unwrap(), Duration::from_millis(1));
        assert_eq!(wait(600_000).unwrap(), HTTP_WAIT_MAX);
        assert!(wait(1 << 63).is_err());
    }

    #[test]
    fn metadata_with_a_control_character_is_refused() {
        let map = |text: &str| serde_json::from_str::<api::Metadata>(text).unwrap();
        assert!(metadata(Some(&map(r#"{"a":"\u0000"}"#))).is_err());
        assert!(metadata(Some(&map(r#"{"a\u001b":1}"#))).is_err());
        assert_eq!(metadata(Some(&map("{}"))).unwrap(), None);
        assert_eq!(
            metadata(Some(&map(r#"{"a":"x\ny"}"#))).unwrap().as_deref(),
            Some(r#"{"a":"x\ny"}"#)
        );
    }
}
