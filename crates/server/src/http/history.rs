//! What was: past holders of a lock with their tokens, and the deadlocks that were refused.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use leasehold_api::schema::LockName;
use leasehold_api::{CycleStep, History, PastDeadlock};
use leasehold_core as core;
use leasehold_core::{Event, Namespace, News, Scope};
use leasehold_engine::{Query, View};

use super::locks::unexpected;
use super::{Answered, extract, ok};
use crate::convert;
use crate::convert::page::Room;
use crate::http::openapi::{NamespaceParam, Problems};
use crate::service::app::App;
use crate::service::problems::Failure;

const SIZE: usize = 100;
const SIZE_MAX: usize = 1000;

/// List past holders and deadlocks
///
/// Lists past holders and refused deadlocks, newest first, as far as the server remembers.
#[utoipa::path(
    get, path = "/v1/history", operation_id = "get_history", tag = "watch",
    params(
        NamespaceParam,
        ("lock" = Option<LockName>, Query, description = "Only what overlaps this lock"),
        ("page_size" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "How many of each, 1 to 1000; 100 if left out"),
    ),
    responses((status = 200, description = "Past holders and refused deadlocks, the newest first, as far as they are remembered", body = History), Problems)
)]
pub(crate) async fn history(State(app): State<Arc<App>>, uri: Uri) -> Answered {
    let mut params = extract::Params::of(&uri)?;
    let namespace = params.namespace()?;
    let lock = params.take("lock").map(|lock| convert::scope(&lock)).transpose()?;
    let len_max = params.size("page_size", SIZE, SIZE_MAX)?;
    params.done()?;
    let wanted = |event: &Event| event.namespace == namespace && is_about(event, lock.as_ref());
    let endings = app.engine(&namespace).endings(wanted, len_max);
    let refused = app.engine(&namespace).deadlocks(wanted, len_max);
    let mut deadlocks = Vec::new();
    for published in &refused.events {
        deadlocks.extend(deadlock(&app, &namespace, &published.event).await?);
    }
    let now = app.now();
    let mut room = Room::new();
    deadlocks.retain(|deadlock| room.has_for(bytes(deadlock)));
    let mut complete_after = endings.complete_after;
    let mut holders = Vec::new();
    for published in &endings.events {
        let Some(past) = convert::past_holder(now, &published.event) else { continue };
        if !room.has_for(bytes(&past)) {
            // From here back it is not told, remembered or not.
            complete_after = Some(published.event.at);
            break;
        }
        holders.push(past);
    }
    ok(&History {
        namespace: namespace.to_string(),
        lock: lock.as_ref().map(Scope::to_string),
        holders,
        deadlocks,
        complete_after: complete_after.map(convert::moment),
        events_after: app.engine(&namespace).events_after().0,
        now: convert::moment(now),
    })
}

/// How large something is in the answer.
fn bytes(part: &impl serde::Serialize) -> usize {
    serde_json::to_string(part).map_or(0, |text| text.len())
}

fn is_about(event: &Event, lock: Option<&Scope>) -> bool {
    let Some(lock) = lock else { return true };
    match &event.news {
        News::Deadlock { cycle, .. } => cycle.iter().any(|edge| edge.scope.overlaps(lock)),
        News::EpochBegan { .. }
        | News::GraceEnded
        | News::SessionOpened { .. }
        | News::SessionEnded { .. }
        | News::Granted { .. }
        | News::Ended { .. }
        | News::TtlChanged { .. }
        | News::FenceAccepted { .. }
        | News::FenceDeleted { .. }
        | News::Queued { .. }
        | News::Left { .. } => convert::scopes_of(event).iter().any(|scope| scope.overlaps(lock)),
    }
}

async fn deadlock(
    app: &App,
    namespace: &Namespace,
    event: &Event,
) -> Result<Option<PastDeadlock>, Failure> {
    let News::Deadlock { victim, cycle } = &event.news else { return Ok(None) };
    let mut steps = Vec::with_capacity(cycle.len());
    for edge in cycle.iter() {
        steps.push(CycleStep {
            waiter: edge.waiter.to_string(),
            lock: edge.scope.to_string(),
            blocker: edge.blocker.to_string(),
            fencing_token: token_then(app, namespace, edge, event.at).await?,
        });
    }
    Ok(Some(PastDeadlock {
        revision: event.revision.0,
        at: convert::moment(event.at),
        ms_ago: convert::millis(app.now().since(event.at)),
        victim: victim.to_string(),
        cycle: steps,
    }))
}

/// The token that the blocker held then: it holds it still, or its end is remembered.
async fn token_then(
    app: &App,
    namespace: &Namespace,
    edge: &core::WaitEdge,
    then: core::Timestamp,
) -> Result<Option<u64>, Failure> {
    let query = Query::Get { namespace: namespace.clone(), scope: edge.scope.clone() };
    let View::Lock(now) = app.query(query).await? else { return Err(unexpected()) };
    let holds = |holder: &&core::Holder| holder.owner == edge.blocker && holder.since <= then;
    if let Some(holder) = now.holders.iter().find(holds) {
        return Ok(Some(holder.fence.get()));
    }
    let had = |event: &Event| {
        event.namespace == *namespace
            && event.at >= then
            && matches!(&event.news, News::Ended { scope, owner, since, .. }
                if *owner == edge.blocker && scope.overlaps(&edge.scope) && *since <= then)
    };
    let found = app.engine(namespace).endings(had, 1);
    Ok(found.events.first().and_then(|published| match &published.event.news {
        News::Ended { fence, .. } => Some(fence.get()),
        News::EpochBegan { .. }
        | News::GraceEnded
        | News::SessionOpened { .. }
        | News::SessionEnded { .. }
        | News::Granted { .. }
        | News::TtlChanged { .. }
        | News::FenceAccepted { .. }
        | News::FenceDeleted { .. }
        | News::Queued { .. }
        | News::Left { .. }
        | News::Deadlock { .. } => None,
    }))
}
