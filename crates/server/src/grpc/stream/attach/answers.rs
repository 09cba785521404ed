//! Answers and notices: events of the engine, as the messages that a client gets.

use std::time::Duration;

use leasehold_api::Code;
use leasehold_api::grpc::push::News;
use leasehold_api::grpc::reply::Answer as Answered;
use leasehold_api::grpc::{
    self, Accepted, Cancelled, Closed, Extended, Lost, Place, Problem, Push, Released,
    Reply as Said, StreamGrant, Unlocked, Wanted, length,
};
use leasehold_core::{self as core, Answer, LeaseId, Timestamp};
use leasehold_engine::{CallError, Notice, Reply, View};

use super::{Attached, LIGHT_BYTES};
use crate::convert;
use crate::grpc::stream::slots::{Slot, Traced, Work};
use crate::grpc::{locks, read};
use crate::service::operation;
use crate::service::problems::{Failure, unexpected};
use crate::telemetry::metrics::Op;
use crate::telemetry::traces::Acquired;

impl Attached {
    pub(super) fn reply(&mut self, now: Timestamp, number: u32, reply: Result<Reply, CallError>) {
        let Some(slot) = self.slots.take(number) else { return };
        if matches!(slot.work, Work::Test { .. } | Work::Check { .. } | Work::Get) {
            self.queries -= 1;
        }
        if !self.waiting.is_empty() && matches!(slot.work, Work::Acquire { .. }) {
            self.waiting.remove(&slot.id);
        }
        match reply {
            Ok(Reply::View(view)) => {
                let view = self.caller.sight(&self.namespace).view(view);
                self.answer(now, &slot, Reply::View(view));
            }
            Ok(reply) => self.answer(now, &slot, reply),
            Err(error) => {
                let failure = self.caller.sight(&self.namespace).failure(error);
                self.count(&slot, Err(&failure));
                if !slot.is_silent() {
                    self.refuse(slot.id, &failure);
                }
            }
        }
    }

    pub(super) fn answer(&mut self, now: Timestamp, slot: &Slot, reply: Reply) {
        let mut weight = LIGHT_BYTES;
        let answer = match (reply, &slot.work) {
            (
                Reply::Answer(Answer::Granted(grant)),
                Work::Acquire { kind, in_session, respelled },
            ) => {
                if *in_session && !self.is_session(grant.lease) {
                    self.sessions.insert(grant.lease);
                }
                let took = slot.watch.until(self.answered);
                let times = (took, grant.waited);
                self.app.count_acquire(&self.caller, &mut self.acquires, kind, times, Ok(()));
                self.trace(slot, times, Ok(()));
                Answered::Granted(self.granted(now, &grant, respelled.as_deref()))
            }
            (Reply::Answer(Answer::Renewed(renewed)), Work::Renew(lease)) => {
                self.port.follow(*lease);
                Answered::Renewed(Extended {
                    ttl: Some(length(renewed.ttl.as_duration())),
                    expires_in: Some(length(renewed.deadline.since(now))),
                    epoch: self.epoch,
                })
            }
            (Reply::Answer(Answer::Released { held, replayed }), Work::Release(lease)) => {
                self.forget(*lease);
                Answered::Released(Released { held: Some(length(held)), replayed })
            }
            (Reply::Answer(Answer::Unlocked { changed }), Work::Unlock { lock }) => {
                Answered::Unlocked(Unlocked { lock: lock.clone(), changed })
            }
            (Reply::Answer(Answer::SessionClosed { grants, replayed }), Work::Close(lease)) => {
                self.sessions.remove(lease);
                self.forget(*lease);
                Answered::Closed(Closed { released: grants as u64, replayed })
            }
            (Reply::Answer(Answer::Cancelled { waiting }), Work::Cancel { waiter, told }) => {
                if waiting {
                    self.cancelled(*waiter);
                }
                if !told {
                    return;
                }
                Answered::Cancelled(Cancelled { waiting })
            }
            (Reply::Answer(Answer::FenceAccepted { high_water }), Work::Accept) => {
                Answered::Accepted(Accepted { high_water: high_water.get() })
            }
            (Reply::View(View::Tested(found)), Work::Test { lock }) => {
                let tested = locks::tested(&self.app, lock.clone(), &found);
                Answered::Tested(Box::new(tested))
            }
            (Reply::View(View::Checked(check)), Work::Check { lock, fencing_token }) => {
                let checked = locks::checked(&self.app, lock.clone(), *fencing_token, &check);
                Answered::Checked(Box::new(checked))
            }
            (Reply::View(View::Lock(view)), Work::Get) => {
                weight += 512 * (view.holders.len() + view.waiters.len() + 1);
                let lock = grpc::Lock::from(&convert::lock(now, &self.namespace, &view));
                Answered::Lock(Box::new(lock))
            }
            (_, _) => {
                let problem = convert::problem(now, &unexpected());
                Answered::Problem(Box::new(Problem::from(&problem)))
            }
        };
        if !matches!(slot.work, Work::Acquire { .. }) {
            self.count(slot, Ok(()));
        }
        self.push(slot.id, answer, weight);
    }

    fn granted(&self, now: Timestamp, grant: &core::Grant, lock: Option<&str>) -> StreamGrant {
        StreamGrant {
            lease_id: self.lease_text(grant.lease),
            fencing_token: grant.fence.get(),
            ttl: Some(length(grant.ttl.as_duration())),
            expires_in: Some(length(grant.deadline.since(now))),
            waited: (!grant.waited.is_zero()).then(|| length(grant.waited)),
            replayed: grant.replayed,
            epoch: self.epoch,
            lock: lock.unwrap_or_default().into(),
        }
    }

    /// A request that still waited gets no reply any more.
    fn cancelled(&mut self, waiter: u32) {
        if let Some(slot) = self.slots.take(waiter) {
            self.waiting.remove(&slot.id);
            self.count(&slot, Err(&Failure::new(Code::LockHeld, "cancelled")));
        }
    }

    /// A request stands in the queue: its client learns how to come back should this stream break.
    pub(super) fn queued(&mut self, number: u32, queued: core::Queued) {
        let Some(slot) = self.slots.get(number) else { return };
        let place = Place {
            command_id: slot.id,
            ticket: convert::ticket_text(queued.ticket),
            queue_position: queued.position as u64,
        };
        self.next.pushes.push(Push { news: Some(News::Queued(place)) });
        self.weight += LIGHT_BYTES;
    }

    pub(super) fn notice(&mut self, lease: LeaseId, notice: Notice) {
        let news = match notice {
            Notice::Lost { fence, ending } => News::Lost(Lost {
                lease_id: self.lease_text(lease),
                fencing_token: fence.map(core::FencingToken::get),
                reason: ending.to_string(),
            }),
            Notice::Wanted { fence, scope } => News::Wanted(Wanted {
                lock: scope.to_string(),
                lease_id: self.lease_text(lease),
                fencing_token: fence.get(),
            }),
        };
        self.next.pushes.push(Push { news: Some(news) });
        self.weight += LIGHT_BYTES;
    }

    /// A lease's id; nothing for the stream's own session.
    fn lease_text(&self, lease: LeaseId) -> String {
        match self.is_session(lease) {
            true => String::new(),
            false => convert::lease_id_text(lease),
        }
    }

    fn is_session(&self, lease: LeaseId) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.binding.session() == lease)
    }

    fn forget(&mut self, lease: LeaseId) {
        if !self.is_session(lease) && !self.sessions.contains(&lease) {
            self.port.forget(lease);
        }
    }

    pub(super) fn refuse(&mut self, id: u64, failure: &Failure) {
        let mut problem = read::reworded(convert::problem(self.app.now(), failure));
        problem.request_id = self.caller.request_id.as_ref().into();
        let weight = LIGHT_BYTES * 4 * (1 + problem.holders.as_ref().map_or(0, Vec::len));
        self.push(id, Answered::Problem(Box::new(Problem::from(&problem))), weight);
    }

    pub(super) fn push(&mut self, id: u64, answer: Answered, weight: usize) {
        self.next.replies.push(Said { id, answer: Some(answer) });
        self.weight += weight;
    }

    /// Tells the trace that a command is part of.
    fn trace(&self, slot: &Slot, (took, waited): (Duration, Duration), outcome: Result<(), Code>) {
        let (tracer, namespace) = (&self.app.tracer, &self.namespace);
        match slot.traced.as_deref() {
            None => {}
            Some(Traced::Acquire { parent, claims }) => {
                let (kind, since) = (operation::kind(claims), slot.watch);
                let acquired = Acquired { namespace, claims, kind, since, took, waited, outcome };
                tracer.acquired(&self.caller, *parent, &acquired);
            }
            Some(Traced::Release(releasing)) => {
                tracer.released(&self.caller, *releasing, took, outcome);
            }
        }
    }

    pub(super) fn count(&mut self, slot: &Slot, answer: Result<(), &Failure>) {
        let took = slot.watch.until(self.answered);
        let outcome = answer.map_err(Failure::code);
        let waited = answer.err().map_or(Duration::ZERO, Failure::waited);
        self.trace(slot, (took, waited), outcome);
        let op = match &slot.work {
            Work::Acquire { kind, .. } => {
                let times = (took, waited);
                return self.app.count_acquire(
                    &self.caller,
                    &mut self.acquires,
                    kind,
                    times,
                    outcome,
                );
            }
            Work::Release(_) | Work::Unlock { .. } => Op::Release,
            Work::Renew(_) => Op::Renew,
            Work::Test { .. } => Op::Test,
            Work::Check { .. } => Op::Check,
            Work::Get => Op::Get,
            Work::Accept => Op::Fence,
            Work::Close(_) => Op::Session,
            Work::Cancel { .. } => return,
        };
        self.app.count(op, took, outcome);
    }
}
