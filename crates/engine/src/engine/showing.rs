//! What may be shown before everything that was decided is durable.

use leasehold_core::{Answer, CallId, Conflict, LeaseId, Refusal, Timestamp, planted};

use super::{Engine, Output};
use crate::call::{CallError, Query, Reply, View};

impl Engine {
    /// Whether an answer shows nothing that could still be lost.
    pub(super) fn may_go_at_once(&self, output: &Output, changed: bool) -> bool {
        let Output::Reply { reply, .. } = output else { return false };
        match reply {
            // A heartbeat costs no write.
            Ok(Reply::Answer(Answer::Renewed(_))) => !changed,
            Ok(Reply::Answer(Answer::Granted(grant))) => {
                grant.replayed
                    && grant.fence <= self.durable_fence
                    && !self.is_ttl_unwritten(grant.lease)
            }
            // A crash can only bring these back, never lose one.
            Ok(Reply::Answer(
                Answer::Released { .. }
                | Answer::Unlocked { .. }
                | Answer::Cancelled { .. }
                | Answer::SessionClosed { .. }
                | Answer::Withdrawn { .. },
            )) => true,
            Err(CallError::Refused(refusal)) => self.is_settled(refusal),
            Err(_) => true,
            Ok(_) => false,
        }
    }

    pub(super) fn is_ttl_unwritten(&self, lease: LeaseId) -> bool {
        !planted!("ttl-shown-before-it-is-durable")
            && self.ttls.iter().any(|(_, changed)| *changed == lease)
    }

    /// Whether a refusal rests on nothing but what is durable.
    fn is_settled(&self, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::Held(conflict) => self.is_durable(conflict),
            Refusal::GracePeriod { conflict, .. } => {
                conflict.as_ref().is_none_or(|conflict| self.is_durable(conflict))
            }
            Refusal::NoGrace
            | Refusal::LimitMismatch { .. }
            | Refusal::TicketNotFound(_)
            | Refusal::Limit(_)
            | Refusal::Invalid(_)
            | Refusal::Suspended
            | Refusal::StaleEpoch { .. } => true,
            Refusal::ReclaimWindow(_)
            | Refusal::Deadlock { .. }
            | Refusal::LeaseLost
            | Refusal::NotHolder(_)
            | Refusal::RequestIdReused
            | Refusal::SessionNotFound
            | Refusal::StaleFence { .. }
            | Refusal::FileRemoved(_) => {
                self.unwritten.is_empty() || planted!("loss-told-before-it-is-durable")
            }
        }
    }

    fn is_durable(&self, conflict: &Conflict) -> bool {
        planted!("refusal-shows-what-may-be-lost")
            || conflict.holders.iter().all(|holder| holder.fence <= self.durable_fence)
    }

    pub(super) fn answer_query(&mut self, now: Timestamp, call: CallId, query: Query) {
        // What is due by now is over for readers too.
        self.tick(now);
        let at_once = self.unwritten.is_empty() || self.is_query_settled(&query);
        let reply = self.view(query).map(Reply::View).map_err(|refusal| self.error_for(refusal));
        let at_once = at_once && self.is_view_durable(&reply);
        let output = Output::Reply { call, reply, undo: None };
        if at_once {
            self.ready.push(output);
        } else {
            self.show(output);
        }
    }

    /// Whether nothing that the query may be about has ended without that being durable.
    fn is_query_settled(&self, query: &Query) -> bool {
        match query {
            Query::Get { namespace, scope }
            | Query::Test { namespace, claim: leasehold_core::Claim { scope, .. }, .. }
            | Query::Check { namespace, scope, .. } => !self
                .ended
                .iter()
                .any(|(_, within, ended)| within == namespace && ended.overlaps(scope)),
            Query::Stats => true,
            Query::List(_)
            | Query::Session { .. }
            | Query::Sessions { .. }
            | Query::Register { .. }
            | Query::Graph { .. }
            | Query::Overview { .. }
            | Query::Tree(_) => false,
        }
    }

    /// Whether no grant in the view could still be lost.
    fn is_view_durable(&self, reply: &Result<Reply, CallError>) -> bool {
        let durable = |holder: &leasehold_core::Holder| holder.fence <= self.durable_fence;
        match reply {
            Ok(Reply::View(View::Lock(lock))) => lock.holders.iter().all(durable),
            Ok(Reply::View(View::Tested(tested))) => tested.conflict.iter().all(durable),
            Ok(Reply::View(View::Checked(check))) => check.holder.iter().all(durable),
            Ok(_) | Err(_) => true,
        }
    }

    fn view(&self, query: Query) -> Result<View, Refusal> {
        let table = &self.table;
        Ok(match query {
            Query::Get { namespace, scope } => View::Lock(Box::new(table.get(&namespace, &scope))),
            Query::Test { namespace, owner, lease, claim } => {
                View::Tested(Box::new(table.test(&namespace, &owner, lease, &claim)?))
            }
            Query::Check { namespace, scope, fence, lease } => {
                View::Checked(Box::new(table.check(&namespace, &scope, fence, lease)))
            }
            Query::List(query) => View::Page(Box::new(table.list(&query))),
            Query::Session { namespace, id } => {
                View::Session(table.session(&namespace, id).map(Box::new))
            }
            Query::Sessions { namespace, after, len_max } => {
                View::Sessions(table.sessions(&namespace, after, len_max))
            }
            Query::Register { namespace, register } => {
                View::Register(table.register(&namespace, &register))
            }
            Query::Graph { namespace, waits_max } => {
                View::Graph(Box::new(table.graph(&namespace, waits_max)))
            }
            Query::Overview { namespace, len_max } => {
                View::Overview(Box::new(table.overview(&namespace, len_max)))
            }
            Query::Tree(query) => View::Tree(Box::new(table.tree(&query))),
            Query::Stats => View::Stats(Box::new(table.stats())),
        })
    }
}
