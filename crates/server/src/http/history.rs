//! History: past holders of a lock with their tokens, and the deadlocks that were refused.

use std::sync::Arc;

use axum::extract::State;
use leasehold_api::schema::LockName;
use leasehold_api::{CycleStep, History, PastDeadlock};
use leasehold_core::{Event, FencingToken, News, Scope, Timestamp};

use super::encode::{Answered, ok};
use super::extract::Params;
use super::openapi::{NamespaceParam, Problems};
use crate::convert;
use crate::convert::page::Room;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::history::PastOf;

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
pub(crate) async fn history(
    State(app): State<Arc<App>>,
    caller: Caller,
    mut params: Params,
) -> Answered {
    let namespace = params.namespace()?;
    let lock = params.take("lock").map(|lock| convert::scope(&lock)).transpose()?;
    let len_max = params.size("page_size", SIZE, SIZE_MAX)?;
    params.done()?;
    let asked = PastOf { namespace, lock, len_max };
    let past = app.past(&caller, &asked).await?;
    let now = app.now();
    let mut room = Room::new();
    let deadlocks = past.deadlocks.iter().filter_map(|(published, tokens)| {
        let deadlock = deadlock(now, &published.event, tokens)?;
        room.has_for(bytes(&deadlock)).then_some(deadlock)
    });
    let deadlocks = deadlocks.collect();
    let mut complete_after = past.complete_after;
    let mut holders = Vec::new();
    for published in &past.endings {
        let Some(holder) = convert::past_holder(now, &published.event) else { continue };
        if !room.has_for(bytes(&holder)) {
            // From here back it is not told, remembered or not.
            complete_after = Some(published.event.at);
            break;
        }
        holders.push(holder);
    }
    ok(&History {
        namespace: asked.namespace.to_string(),
        lock: asked.lock.as_ref().map(Scope::to_string),
        holders,
        deadlocks,
        complete_after: complete_after.map(convert::moment),
        events_after: past.events_after.0,
        now: convert::moment(now),
    })
}

/// The size of an entry in the answer.
fn bytes(part: &impl serde::Serialize) -> usize {
    serde_json::to_string(part).map_or(0, |text| text.len())
}

fn deadlock(
    now: Timestamp,
    event: &Event,
    tokens: &[Option<FencingToken>],
) -> Option<PastDeadlock> {
    let News::Deadlock { victim, cycle } = &event.news else { return None };
    let steps = convert::cycle(cycle);
    let steps = steps.into_iter().zip(tokens).map(|(edge, token)| CycleStep {
        waiter: edge.waiter,
        lock: edge.lock,
        blocker: edge.blocker,
        fencing_token: token.map(FencingToken::get),
    });
    Some(PastDeadlock {
        revision: event.revision.0,
        at: convert::moment(event.at),
        ms_ago: convert::millis(now.since(event.at)),
        victim: victim.to_string(),
        cycle: steps.collect(),
    })
}
