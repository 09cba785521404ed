//! Visibility: the answers that may be shown before everything that was decided is durable.

use leasehold_core::{
    Answer, CallId, Conflict, Gone, Invalid, LeaseId, Refusal, Revision, Step, Timestamp, planted,
};

use super::{Engine, Output};
use crate::calls::{CallError, Query, Reply, View};

/// With more endings than this that are not durable, queries are refused while the store is away: undoing them for a
/// moment would take longer than a few milliseconds.
const LOOK_BACK_MAX: usize = 4096;

impl Engine {
    /// Whether an answer shows nothing that could still be lost. `waits` is for answers to several kinds of command: this one
    /// is shown when it is durable.
    pub(super) fn may_go_at_once(&self, reply: &Result<Reply, CallError>, waits: bool) -> bool {
        match reply {
            // A heartbeat costs no write.
            Ok(Reply::Answer(Answer::Renewed(_))) => !waits,
            Ok(Reply::Answer(Answer::Granted(grant))) => {
                grant.replayed
                    && grant.fence <= self.durable_fence
                    && !self.is_ttl_unwritten(grant.lease)
                    && !self.is_shortened_in_limbo(grant.lease)
            }
            // A crash can only bring these back, never lose one.
            Ok(Reply::Answer(
                Answer::Released { .. }
                | Answer::Unlocked { .. }
                | Answer::Cancelled { .. }
                | Answer::Disconnected { .. }
                | Answer::Withdrawn { .. },
            )) => true,
            // One that an operator has broken is not given back by its holder.
            Ok(Reply::Answer(Answer::SessionClosed { .. })) => !waits,
            // What was never kept is no longer in the table.
            Ok(Reply::Answer(Answer::FenceAccepted { .. })) => self.store_failed,
            Ok(Reply::Answer(Answer::SessionOpened(opened))) => {
                self.store_failed && opened.replayed
            }
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
            Refusal::Held(conflict) | Refusal::GracePeriodPlaceKept { conflict, .. } => {
                self.is_durable(conflict)
            }
            // It tells of the last token, which may not be durable yet.
            Refusal::Invalid(Invalid::FenceNotIssued { last, .. }) => *last <= self.durable_fence,
            Refusal::GracePeriod { .. }
            | Refusal::NoGrace
            | Refusal::LimitMismatch { .. }
            | Refusal::TicketNotFound(_)
            | Refusal::Limit(_)
            | Refusal::Invalid(_)
            | Refusal::Suspended
            | Refusal::StaleEpoch { .. } => true,
            Refusal::StaleFence { .. } | Refusal::RegisterNotFound(_) if self.store_failed => true,
            Refusal::ReclaimWindow(_)
            | Refusal::Deadlock { .. }
            | Refusal::LeaseLost(_)
            | Refusal::NotHolder { .. }
            | Refusal::NothingToReclaim(_)
            | Refusal::RequestIdReused
            | Refusal::SessionNotFound(_)
            | Refusal::StaleFence { .. }
            | Refusal::RegisterNotFound(_)
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
        if self.store_failed {
            return self.answer_as_durable(call, query);
        }
        let at_once = self.unwritten.is_empty() || self.is_query_settled(&query);
        let reply =
            self.view(query.clone()).map(Reply::View).map_err(|refusal| self.error_for(refusal));
        let at_once = at_once && self.is_view_durable(&reply);
        let output = Output::Reply { call, reply, undo: None };
        if at_once {
            self.ready.push(output);
        } else {
            self.queries.insert(call, query);
            self.show(output);
        }
    }

    /// While the store is away: from the table as it was when everything in it was durable.
    fn answer_as_durable(&mut self, call: CallId, query: Query) {
        let stays = self.stays_len();
        let open = self.unwritten.len() - stays;
        if open > LOOK_BACK_MAX {
            let why = self.store_failure(false);
            return self.reply(call, Err(why));
        }
        let durable = Revision(self.table.revision().0 - open as u64);
        self.table.look_back(durable, &mut Step::new());
        let reply = self.view(query).map(Reply::View).map_err(|refusal| self.error_for(refusal));
        for ended in self.unwritten.range(stays..) {
            let made = self.table.apply(ended);
            debug_assert!(made.is_ok(), "what was just undone fits: {made:?}");
        }
        self.reply(call, reply);
    }

    /// Whether nothing that the query may be about has ended without that being durable.
    fn is_query_settled(&self, query: &Query) -> bool {
        match query {
            Query::Get { namespace, scope }
            | Query::Test { namespace, claim: leasehold_core::Claim { scope, .. }, .. }
            | Query::Check { namespace, scope, .. } => {
                let mut ended = self.ended.iter();
                let ended = ended.any(|(_, of, ended)| of == namespace && ended.overlaps(scope));
                // What ends with a whole lease is not told one by one.
                !ended && !self.ending.iter().any(|(_, of)| of == namespace)
            }
            Query::Stats => true,
            Query::List(_)
            | Query::Session { .. }
            | Query::Sessions { .. }
            | Query::Register { .. }
            | Query::Registers { .. }
            | Query::Token { .. }
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
            Ok(Reply::View(View::Checked(check))) => {
                let rests_on_others = match check.why {
                    None | Some(Gone::Unknown | Gone::Expired | Gone::Released) => false,
                    Some(Gone::OtherScope | Gone::Superseded) => true,
                };
                let settled = !rests_on_others || self.unwritten.is_empty();
                settled && check.holder.iter().all(durable)
            }
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
            Query::Session { namespace, principal, id } => {
                View::Session(table.session(&namespace, id, &principal).map(Box::new))
            }
            Query::Sessions { namespace, after, len_max } => {
                View::Sessions(table.sessions(&namespace, after, len_max))
            }
            Query::Register { namespace, register } => {
                View::Register(table.register(&namespace, &register))
            }
            Query::Registers { namespace, after, len_max } => {
                View::Registers(table.registers(&namespace, after.as_ref(), len_max))
            }
            Query::Token { fence, .. } => View::Token(table.token(fence).map(Box::new)),
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
