//! The same words in JSON and in gRPC. What has to be fast never comes this way.

use std::time::Duration;

use prost_types::{Struct, Timestamp, Value, value::Kind};

use super::{length, millis};
use crate::grpc as wire;
use crate::{Code, FieldError, Metadata, RequestOutcome};

/// A length in milliseconds, as it is sent.
pub fn ms(millis: u64) -> prost_types::Duration {
    length(Duration::from_millis(millis))
}

/// A moment for people; the text comes from the server's own clock and always is one.
fn at(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

fn text_of(at: Option<&Timestamp>) -> String {
    at.map(Timestamp::to_string).unwrap_or_default()
}

/// Milliseconds of a length that may be missing.
fn ms_of(length: Option<&prost_types::Duration>) -> u64 {
    length.and_then(|length| millis(*length)).unwrap_or(0)
}

/// Metadata as it is sent; none if it is empty.
pub fn metadata(map: &Metadata) -> Option<Struct> {
    let fields = || map.iter().map(|(key, value)| (key.clone(), value_of(value))).collect();
    (!map.is_empty()).then(|| Struct { fields: fields() })
}

fn value_of(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    let kind = match json {
        Json::Null => Kind::NullValue(0),
        Json::Bool(bool) => Kind::BoolValue(*bool),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::NAN)),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(values) => Kind::ListValue(prost_types::ListValue {
            values: values.iter().map(value_of).collect(),
        }),
        Json::Object(map) => Kind::StructValue(metadata(map).unwrap_or_default()),
    };
    Value { kind: Some(kind) }
}

/// Metadata as it was received; `None` if it has a number that JSON does not know.
pub fn metadata_of(fields: &Struct) -> Option<Metadata> {
    fields.fields.iter().map(|(key, value)| Some((key.clone(), json_of(value)?))).collect()
}

fn json_of(value: &Value) -> Option<serde_json::Value> {
    use serde_json::Value as Json;
    Some(match value.kind.as_ref()? {
        Kind::NullValue(_) => Json::Null,
        Kind::NumberValue(number) => whole(*number)
            .map(Json::from)
            .or_else(|| serde_json::Number::from_f64(*number).map(Json::Number))?,
        Kind::StringValue(text) => Json::String(text.clone()),
        Kind::BoolValue(bool) => Json::Bool(*bool),
        Kind::StructValue(fields) => Json::Object(metadata_of(fields)?),
        Kind::ListValue(list) => {
            Json::Array(list.values.iter().map(json_of).collect::<Option<_>>()?)
        }
    })
}

/// A whole number is written as one: `1`, not `1.0`.
#[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
fn whole(number: f64) -> Option<i64> {
    let exact = 9_007_199_254_740_992.0; // 2^53
    (number.fract() == 0.0 && number.abs() <= exact).then_some(number as i64)
}

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

fn mode(mode: crate::Mode) -> i32 {
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

fn state(state: crate::LockState) -> i32 {
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

fn holders(holders: &[crate::Holder]) -> Vec<wire::Holder> {
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

impl From<&crate::KeptAlive> for wire::KeptAlive {
    fn from(kept: &crate::KeptAlive) -> wire::KeptAlive {
        wire::KeptAlive {
            ttl: Some(ms(kept.ttl_ms)),
            expires_in: Some(ms(kept.expires_in_ms)),
            expires_at: at(&kept.expires_at),
            epoch: kept.epoch,
        }
    }
}

impl From<&crate::Opened> for wire::Opened {
    fn from(opened: &crate::Opened) -> wire::Opened {
        wire::Opened {
            session_id: opened.session_id.clone(),
            session: opened.session,
            owner_id: opened.owner_id.clone(),
            adapter: opened.adapter.clone(),
            ttl: Some(ms(opened.ttl_ms)),
            expires_in: Some(ms(opened.expires_in_ms)),
            expires_at: at(&opened.expires_at),
            epoch: opened.epoch,
            replayed: opened.replayed,
        }
    }
}

impl From<&crate::Session> for wire::Session {
    fn from(session: &crate::Session) -> wire::Session {
        wire::Session {
            session: session.session,
            namespace: session.namespace.clone(),
            owner_id: session.owner_id.clone(),
            adapter: session.adapter.clone(),
            on_disconnect: match session.on_disconnect {
                crate::OnDisconnect::Release => wire::OnDisconnect::Release,
                crate::OnDisconnect::Keep => wire::OnDisconnect::Keep,
            }
            .into(),
            disconnect_ttl: session.disconnect_ttl_ms.map(ms),
            attached: session.attached,
            recovering: session.recovering,
            opened_at: at(&session.opened_at),
            ttl: Some(ms(session.ttl_ms)),
            expires_at: at(&session.expires_at),
            expires_in: Some(ms(session.expires_in_ms)),
            locks: session.locks,
            waiters: session.waiters,
            metadata: metadata(&session.metadata),
        }
    }
}

impl From<&crate::WaitEdge> for wire::WaitEdge {
    fn from(edge: &crate::WaitEdge) -> wire::WaitEdge {
        wire::WaitEdge {
            waiter: edge.waiter.clone(),
            lock: edge.lock.clone(),
            blocker: edge.blocker.clone(),
            hidden: edge.hidden,
        }
    }
}

impl From<&wire::WaitEdge> for crate::WaitEdge {
    fn from(edge: &wire::WaitEdge) -> crate::WaitEdge {
        crate::WaitEdge {
            waiter: edge.waiter.clone(),
            lock: edge.lock.clone(),
            blocker: edge.blocker.clone(),
            hidden: edge.hidden,
        }
    }
}

fn cycle(edges: &[crate::WaitEdge]) -> Vec<wire::WaitEdge> {
    edges.iter().map(wire::WaitEdge::from).collect()
}

impl From<&crate::Graph> for wire::Graph {
    fn from(graph: &crate::Graph) -> wire::Graph {
        let lock = |lock: &crate::LockNode| wire::LockNode {
            state: state(lock.state),
            fencing_token: lock.fencing_token,
            ttl: Some(ms(lock.ttl_ms)),
            expires_in: Some(ms(lock.expires_in_ms)),
            holders: lock.holders,
        };
        let node = |node: &crate::Node| wire::Node {
            id: node.id.clone(),
            kind: match node.kind {
                crate::NodeKind::Owner => wire::node::Kind::Owner,
                crate::NodeKind::Lock => wire::node::Kind::Lock,
                crate::NodeKind::More => wire::node::Kind::More,
            }
            .into(),
            name: node.name.clone(),
            lock: node.lock.as_ref().map(lock),
            count: node.count,
        };
        let edge = |edge: &crate::Edge| wire::Edge {
            kind: match edge.kind {
                crate::EdgeKind::Holds => wire::edge::Kind::Holds,
                crate::EdgeKind::Waits => wire::edge::Kind::Waits,
                crate::EdgeKind::Overlaps => wire::edge::Kind::Overlaps,
                crate::EdgeKind::Refused => wire::edge::Kind::Refused,
            }
            .into(),
            from: edge.from.clone(),
            to: edge.to.clone(),
            mode: mode(edge.mode),
            since: Some(ms(edge.since_ms)),
            blockers: edge.blockers.clone(),
        };
        wire::Graph {
            nodes: graph.nodes.iter().map(node).collect(),
            edges: graph.edges.iter().map(edge).collect(),
            cycles: graph.cycles.iter().map(|edges| wire::Cycle { edges: cycle(edges) }).collect(),
            truncated: graph.truncated,
            revision: graph.revision,
        }
    }
}

impl From<&crate::Event> for wire::Event {
    fn from(event: &crate::Event) -> wire::Event {
        wire::Event {
            revision: event.revision,
            at: at(&event.at),
            namespace: event.namespace.clone(),
            last_of_revision: event.cursor.is_some(),
            cursor: event.cursor.map(|cursor| cursor.to_string()),
            news: Some(news(&event.news)),
        }
    }
}

fn news(news: &crate::News) -> wire::event::News {
    use crate::News;
    use wire::event::News as Out;
    match news.clone() {
        News::EpochBegan { epoch } => Out::EpochBegan(wire::EpochBegan { epoch }),
        News::GraceEnded => Out::GraceEnded(wire::GraceEnded {}),
        News::SessionOpened { session, owner_id, adapter, .. } => {
            Out::SessionOpened(wire::SessionOpened { session, owner_id, adapter })
        }
        News::SessionEnded { session, owner_id, reason, .. } => {
            Out::SessionEnded(wire::SessionEnded { session, owner_id, reason })
        }
        News::Granted { lock, owner_id, mode: held, permits, fencing_token, ttl_ms, .. } => {
            let (mode, ttl) = (mode(held), Some(ms(ttl_ms)));
            Out::Granted(wire::Granted { lock, owner_id, mode, permits, fencing_token, ttl })
        }
        News::Ended {
            lock,
            owner_id,
            mode: held,
            permits,
            fencing_token,
            reason,
            note,
            reclaim_ms,
            held_ms,
            ..
        } => Out::Ended(wire::Ended {
            lock,
            owner_id,
            mode: mode(held),
            permits,
            fencing_token,
            reason,
            note,
            reclaim_window: reclaim_ms.map(ms),
            held: Some(ms(held_ms)),
        }),
        News::TtlChanged { owner_id, ttl_ms, .. } => {
            Out::TtlChanged(wire::TtlChanged { owner_id, ttl: Some(ms(ttl_ms)) })
        }
        News::FenceAccepted { register, fencing_token } => {
            Out::FenceAccepted(wire::FenceAccepted { register, fencing_token })
        }
        News::FenceDeleted { register, note } => {
            Out::FenceDeleted(wire::FenceDeleted { register, note })
        }
        News::Queued { locks, owner_id, .. } => Out::Queued(wire::Queued { locks, owner_id }),
        News::Left { locks, owner_id, .. } => Out::Left(wire::Queued { locks, owner_id }),
        News::Deadlock { owner_id, cycle: edges } => {
            Out::Deadlock(wire::Deadlock { owner_id, cycle: cycle(&edges) })
        }
        News::Bookmark => Out::Bookmark(wire::Bookmark {}),
        News::Resync => Out::Resync(wire::Resync {}),
    }
}

fn role(role: crate::Role) -> i32 {
    match role {
        crate::Role::Starting => wire::Role::Starting,
        crate::Role::Leader => wire::Role::Leader,
        crate::Role::Follower => wire::Role::Follower,
        crate::Role::Draining => wire::Role::Draining,
        crate::Role::Stopped => wire::Role::Stopped,
    }
    .into()
}

fn grace(grace: &crate::Grace) -> wire::Grace {
    wire::Grace {
        strict: grace.strict,
        ends_in: Some(ms(grace.ends_in_ms)),
        expected: grace.expected,
    }
}

impl From<&crate::Group> for wire::Group {
    fn from(group: &crate::Group) -> wire::Group {
        let leader = |leader: &crate::LeaderView| wire::Leader {
            name: leader.name.clone(),
            address: leader.address.clone(),
        };
        wire::Group {
            group: group.group,
            role: role(group.role),
            leader: group.leader.as_ref().map(leader),
            has_numbers: group.has_numbers,
            epoch: group.epoch,
            revision: group.revision,
            store: group.store.clone(),
            grace: group.grace.as_ref().map(grace),
            locks_held: group.locks_held,
            sessions: group.sessions,
            waiters: group.waiters,
            last_fencing_token: group.last_fencing_token,
        }
    }
}

impl From<&crate::Cluster> for wire::ClusterState {
    fn from(cluster: &crate::Cluster) -> wire::ClusterState {
        wire::ClusterState {
            role: role(cluster.role),
            epoch: cluster.epoch,
            revision: cluster.revision,
            store: cluster.store.clone(),
            grace: cluster.grace.as_ref().map(grace),
            locks_held: cluster.locks_held,
            sessions: cluster.sessions,
            waiters: cluster.waiters,
            last_fencing_token: cluster.last_fencing_token,
            name: cluster.name.clone(),
            address: cluster.address.clone(),
            groups: cluster.groups.iter().map(wire::Group::from).collect(),
        }
    }
}

impl From<&crate::Problem> for wire::Problem {
    fn from(problem: &crate::Problem) -> wire::Problem {
        let outcome = match problem.outcome {
            RequestOutcome::NotApplied => wire::Outcome::NotApplied,
            RequestOutcome::Applied => wire::Outcome::Applied,
            RequestOutcome::Unknown => wire::Outcome::Unknown,
        };
        let error = |error: &FieldError| wire::FieldError {
            field: error.field.clone(),
            message: error.message.clone(),
        };
        wire::Problem {
            code: problem.code.as_str().into(),
            detail: problem.detail.clone(),
            outcome: outcome.into(),
            errors: problem.errors.iter().map(error).collect(),
            current_owner_id: problem.current_owner_id.clone(),
            recommended_retry: problem.recommended_retry_ms.map(ms),
            holders: problem.holders.as_deref().map(holders).unwrap_or_default(),
            waiters: problem.waiters,
            waited: problem.waited_ms.map(ms),
            ticket: problem.ticket.clone(),
            queue_position: problem.queue_position,
            cycle: problem.cycle.as_deref().map(cycle).unwrap_or_default(),
            high_water: problem.high_water,
            grace_ends_in: problem.grace_ends_in_ms.map(ms),
            oldest_revision: problem.oldest_revision,
            leader: problem.leader.clone(),
            request_id: problem.request_id.clone(),
            reason: problem.reason.map(|reason| reason.as_str().into()),
            quota: problem.quota.clone(),
            of: problem.of.clone(),
            max: problem.max,
        }
    }
}

impl From<&wire::Problem> for crate::Problem {
    /// A code that is not known here, of a newer server, is an internal one.
    fn from(problem: &wire::Problem) -> crate::Problem {
        let code = Code::ALL.into_iter().find(|code| code.as_str() == problem.code);
        let some_ms = |length: &Option<prost_types::Duration>| length.and_then(millis);
        crate::Problem {
            outcome: match problem.outcome() {
                wire::Outcome::NotApplied => RequestOutcome::NotApplied,
                wire::Outcome::Applied => RequestOutcome::Applied,
                wire::Outcome::Unspecified | wire::Outcome::Unknown => RequestOutcome::Unknown,
            },
            errors: problem
                .errors
                .iter()
                .map(|error| FieldError {
                    field: error.field.clone(),
                    message: error.message.clone(),
                })
                .collect(),
            current_owner_id: problem.current_owner_id.clone(),
            recommended_retry_ms: some_ms(&problem.recommended_retry),
            holders: (!problem.holders.is_empty())
                .then(|| problem.holders.iter().map(crate::Holder::from).collect()),
            waiters: problem.waiters,
            waited_ms: some_ms(&problem.waited),
            ticket: problem.ticket.clone(),
            queue_position: problem.queue_position,
            cycle: (!problem.cycle.is_empty())
                .then(|| problem.cycle.iter().map(crate::WaitEdge::from).collect()),
            high_water: problem.high_water,
            grace_ends_in_ms: some_ms(&problem.grace_ends_in),
            oldest_revision: problem.oldest_revision,
            leader: problem.leader.clone(),
            request_id: problem.request_id.clone(),
            reason: problem.reason.as_deref().and_then(crate::Gone::of),
            quota: problem.quota.clone(),
            of: problem.of.clone(),
            max: problem.max,
            ..crate::Problem::new(code.unwrap_or(Code::Internal), problem.detail.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_comes_back_as_it_went() {
        let map: Metadata =
            serde_json::from_str(r#"{"a":1,"b":[true,null,"x",1.5],"c":{"d":-3}}"#).unwrap();
        let sent = metadata(&map).unwrap();
        assert_eq!(metadata_of(&sent), Some(map));
        let odd = Value { kind: Some(Kind::NumberValue(f64::NAN)) };
        assert_eq!(metadata_of(&Struct { fields: [("x".into(), odd)].into() }), None);
    }

    #[test]
    fn problem_comes_back_as_it_went() {
        let holder = crate::Holder {
            lock: "job/x".into(),
            owner_id: "a".into(),
            mode: crate::Mode::Permits,
            permits: Some(3),
            state: crate::LockState::Recovering,
            fencing_token: 7,
            acquired_at: "2026-01-02T03:04:05.678Z".into(),
            expires_at: "2026-01-02T03:04:35.678Z".into(),
            ttl_ms: 30_000,
            expires_in_ms: 12_345,
            session: Some(4),
            metadata: Metadata::default(),
            principal: Some("billing".into()),
            hidden: false,
        };
        let mut problem = crate::Problem::new(Code::LockHeld, "job/x is held by a");
        problem.current_owner_id = Some("a".into());
        problem.recommended_retry_ms = Some(120);
        problem.holders = Some(vec![holder]);
        problem.waiters = Some(2);
        problem.waited_ms = Some(50);
        problem.ticket = Some("9".into());
        problem.queue_position = Some(1);
        problem.request_id = "r".into();
        problem.reason = Some(crate::Gone::OtherScope);
        let back = crate::Problem::from(&wire::Problem::from(&problem));
        assert_eq!(serde_json::to_value(&back).unwrap(), serde_json::to_value(&problem).unwrap());
    }
}
