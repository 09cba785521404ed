//! Past holders of a lock with their tokens, and the deadlocks that were refused.

use std::borrow::Cow;
use std::sync::Arc;

use leasehold_access::{Object, Operation};
use leasehold_core as core;
use leasehold_core::{Event, FencingToken, Namespace, News, Scope, Timestamp};
use leasehold_engine::{Published, Query, View};

use super::app::App;
use super::caller::Caller;
use super::problems::{Failure, unexpected};
use super::watch::scopes_of;

/// The history of a lock, or of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct PastOf {
    pub(crate) namespace: Namespace,
    /// Only what overlaps this lock.
    pub(crate) lock: Option<Scope>,
    /// The most entries of each kind.
    pub(crate) len_max: usize,
}

/// The newest first.
#[derive(Debug)]
pub(crate) struct Past {
    /// Grants that have ended.
    pub(crate) endings: Vec<Published>,
    /// Deadlocks, with the token that the blocker of each step held then.
    pub(crate) deadlocks: Vec<(Published, Vec<Option<FencingToken>>)>,
    /// All endings after this moment are remembered.
    pub(crate) complete_after: Option<Timestamp>,
    pub(crate) events_after: core::Revision,
}

impl App {
    pub(crate) async fn past(&self, caller: &Caller, asked: &PastOf) -> Result<Past, Failure> {
        let PastOf { namespace, lock, len_max } = asked;
        caller.may(Operation::History, Object::Namespace(namespace))?;
        let wanted =
            |event: &Event| event.namespace == *namespace && is_about(event, lock.as_ref());
        let engine = self.engine(namespace);
        let sight = caller.sight(namespace);
        let is_readable = |event: &Event| scopes_of(event).iter().all(|scope| sight.reads(scope));
        let endings = engine.endings(|event| wanted(event) && is_readable(event), *len_max);
        let mut deadlocks = Vec::new();
        let is_shown = |event: &Event| wanted(event) && sight.event(event).is_some();
        for mut published in engine.deadlocks(is_shown, *len_max).events {
            if let Some(Cow::Owned(event)) = sight.event(&published.event) {
                published.event = Arc::new(event);
            }
            let News::Deadlock { cycle, .. } = &published.event.news else { continue };
            let mut tokens = Vec::with_capacity(cycle.len());
            for edge in cycle.iter() {
                tokens.push(self.token_then(caller, namespace, edge, published.event.at).await?);
            }
            deadlocks.push((published, tokens));
        }
        Ok(Past {
            endings: endings.events,
            deadlocks,
            complete_after: endings.complete_after,
            events_after: engine.events_after(),
        })
    }

    /// The token that the blocker held then: it holds it still, or its end is remembered.
    async fn token_then(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        edge: &core::WaitEdge,
        then: Timestamp,
    ) -> Result<Option<FencingToken>, Failure> {
        let query = Query::Get { namespace: namespace.clone(), scope: edge.scope.clone() };
        let View::Lock(now) = self.look(caller, query).await? else { return Err(unexpected()) };
        let holds = |holder: &&core::Holder| holder.owner == edge.blocker && holder.since <= then;
        if let Some(holder) = now.holders.iter().find(holds) {
            return Ok(Some(holder.fence));
        }
        let had = |event: &Event| {
            event.namespace == *namespace
                && event.at >= then
                && matches!(&event.news, News::Ended { scope, owner, since, .. }
                    if *owner == edge.blocker && scope.overlaps(&edge.scope) && *since <= then)
        };
        let found = self.engine(namespace).endings(had, 1);
        Ok(found.events.first().and_then(|published| fence_of_ended(&published.event)))
    }
}

fn is_about(event: &Event, lock: Option<&Scope>) -> bool {
    let Some(lock) = lock else { return true };
    if let News::Deadlock { cycle, .. } = &event.news {
        return cycle.iter().any(|edge| edge.scope.overlaps(lock));
    }
    scopes_of(event).iter().any(|scope| scope.overlaps(lock))
}

fn fence_of_ended(event: &Event) -> Option<FencingToken> {
    let News::Ended { fence, .. } = &event.news else { return None };
    Some(*fence)
}
