//! What comes of an answer, or of none.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

use std::rc::Rc;
use std::time::Duration;

use leasehold_core::{
    Acquire, Answer, Command, Grant, Holder, HolderState, KeepAlive, LeaseId, Refusal, Under,
};
use leasehold_engine::{Call, CallError, Reply};
use leasehold_judge::history::Kept;

use super::super::{Due, Hold, Pending, Session, principal_of};
use crate::judge::{Attempt, Verdict};
use crate::plan::micros;
use crate::time::Moment;
use crate::world::World;

/// What an error means to the one who asked.
enum Means {
    /// Nothing happened; another server may know more.
    Elsewhere(Option<usize>),
    /// Nothing happened, and nothing will for now.
    NotNow,
    /// Nobody knows.
    Unknown,
    /// The rules say no.
    Refused,
}

fn meaning(error: &CallError) -> Means {
    match error {
        CallError::NotLeader { leader, .. } => {
            let hint = leader.as_ref().and_then(|leader| leader.strip_prefix("server-"));
            Means::Elsewhere(hint.and_then(|number| number.parse().ok()))
        }
        CallError::Draining => Means::Elsewhere(None),
        CallError::StoreUnavailable { outcome_unknown: true, .. } | CallError::Stopped => {
            Means::Unknown
        }
        CallError::StoreUnavailable { .. } | CallError::Busy => Means::NotNow,
        CallError::Refused(_) => Means::Refused,
    }
}

impl World {
    /// An answer.
    pub(in crate::client) fn told(
        &mut self,
        client: usize,
        number: u64,
        tries: u32,
        reply: &Rc<Result<Reply, CallError>>,
    ) -> Result<(), Verdict> {
        let servers = self.plan.servers;
        let at = &mut self.clients[client];
        let Some(pending) = at.pending.get(&number) else { return Ok(()) };
        // An answer of the first try may come while the second one is under way.
        let is_current = pending.tries == tries;
        match reply.as_ref() {
            Ok(_) => {
                if let Some(pending) = at.pending.remove(&number) {
                    self.done(client, &pending, reply);
                    self.go_on(client, &pending);
                }
            }
            Err(error) => match meaning(error) {
                Means::Elsewhere(_) if !is_current => {}
                Means::Elsewhere(hint) => {
                    at.server = hint.unwrap_or((at.server + 1) % servers);
                    self.retry(client, number);
                }
                Means::NotNow if self.is_calm => self.retry(client, number),
                Means::NotNow | Means::Refused => {
                    if let Some(mut pending) = at.pending.remove(&number) {
                        // Another copy of it may be under way.
                        pending.is_in_doubt |= !is_current || self.plan.network.double_ppm > 0;
                        self.refused(client, &pending, error);
                        self.go_on(client, &pending);
                    }
                }
                Means::Unknown => self.unknown(client, number),
            },
        }
        Ok(())
    }

    /// The thread goes on to its next action.
    pub(super) fn go_on(&mut self, client: usize, pending: &Pending) {
        let at = &self.clients[client];
        if !pending.is_deed || !at.is_up {
            return;
        }
        if at.draining {
            return self.give_everything_back(client);
        }
        let mut rng = self.rng_of(client, at.actions + (3 << 32));
        let think = rng.between(0, self.plan.work.think * 2);
        self.client_due(client, Due::Think, self.now + think);
    }

    fn done(&mut self, client: usize, pending: &Pending, reply: &Result<Reply, CallError>) {
        let (Call::Command(command), Ok(Reply::Answer(answer))) = (&*pending.call, reply) else {
            return;
        };
        match (command, answer) {
            (Command::Acquire(acquire), Answer::Granted(grant)) => {
                self.granted(client, acquire, grant, pending);
            }
            (Command::OpenSession(open), Answer::SessionOpened(opened)) => {
                let keep = self.keep(client, pending.sent);
                let (id, ttl) = (opened.session, micros(open.ttl));
                let session = Session { namespace: open.namespace.clone(), id, ttl, keep };
                let at = &mut self.clients[client];
                at.next_number += 1;
                let number = at.next_number;
                at.sessions.insert(number, session);
                self.renew_later(client, number, pending.sent, ttl, keep);
            }
            (Command::Renew(renew), Answer::Renewed(renewed)) => {
                let ttl = renewed.ttl.as_duration();
                let named = Some((renew.fence, &renew.scope));
                self.renewed_under(client, renew.lease, pending.invoked, ttl, named);
                self.renewed(client, renew.lease, pending.sent, micros(ttl));
            }
            (Command::KeepAlive(KeepAlive { session, .. }), Answer::Renewed(renewed)) => {
                let ttl = renewed.ttl.as_duration();
                self.renewed_under(client, *session, pending.invoked, ttl, None);
                self.renewed(client, *session, pending.sent, micros(ttl));
            }
            (Command::Attach(attach), Answer::Renewed(renewed)) => {
                let ttl = renewed.ttl.as_duration();
                self.renewed_under(client, attach.session, pending.invoked, ttl, None);
            }
            // It was released before, by a request that had no answer.
            (Command::Release(_), Answer::Released { replayed: true, .. }) => {
                self.coverage.mark("release replayed");
                self.perhaps_given_back(pending);
            }
            (Command::Release(release), Answer::Released { .. }) => {
                let when = (pending.invoked, self.now);
                for hold in &pending.taken {
                    let judge = &mut self.judge;
                    judge.released_with(client, hold.told(), when, hold.fence, &release.scope);
                }
            }
            // Not all that stood under a session need have been there when it was closed.
            (Command::CloseSession(_), Answer::SessionClosed { .. })
            | (Command::Disconnect(_), Answer::Disconnected { .. }) => {
                self.perhaps_given_back(pending);
            }
            _ => {}
        }
    }

    fn granted(&mut self, client: usize, acquire: &Acquire, grant: &Grant, pending: &Pending) {
        if let Some(mut attempt) = pending.attempt.clone() {
            attempt.returned = Some(self.now);
            attempt.granted = Some(grant.fence);
            self.judge.history.attempt(attempt);
            if let Under::Session(_) = acquire.under {
                // It stands for what is left of its session: something between nothing and the whole ttl.
                let (ttl, when) = (grant.ttl.as_duration(), (self.now + 1, Some(self.now + 2)));
                let (claims, fence) = (&acquire.claims, grant.fence);
                self.judge.history.renewed(client, claims, when, fence, ttl, Kept::Unknown);
            }
        }
        if grant.replayed {
            self.coverage.mark("grant replayed");
        }
        if grant.waited > Duration::ZERO {
            self.coverage.mark("waiter granted");
        }
        if acquire.claims.len() > 1 {
            self.coverage.mark("set granted");
        }
        if acquire.ticket.is_some() {
            self.coverage.mark("place taken up");
        }
        if acquire.reclaim {
            self.coverage.mark("lease recovered");
        }
        let (keep, now) = (self.keep(client, pending.sent), self.now);
        let at = &mut self.clients[client];
        if at.holds.values().any(|hold| hold.fence == grant.fence) {
            return;
        }
        let of_session = at.sessions.iter().find(|(_, session)| session.id == grant.lease);
        let session = of_session.map(|(&number, _)| number);
        let ttl = micros(grant.ttl.as_duration());
        let hold = Hold {
            namespace: acquire.namespace.clone(),
            owner: acquire.owner.clone(),
            claims: acquire.claims.clone(),
            lease: grant.lease,
            fence: grant.fence,
            since: now,
            ttl,
            session,
            keep,
        };
        at.next_number += 1;
        let number = at.next_number;
        at.holds.insert(number, hold);
        if session.is_none() {
            self.renew_later(client, number, pending.sent, ttl, keep);
        }
        self.begin_to_believe(client, number, acquire, grant, pending);
    }

    /// Nobody knows what of it was given back.
    fn perhaps_given_back(&mut self, pending: &Pending) {
        let (client, invoked, history) = (pending.client, pending.invoked, &mut self.judge.history);
        for hold in &pending.taken {
            let when = (invoked, None);
            history.released(client, hold.told(), when, hold.fence, Kept::Unknown);
            if hold.session.is_some() {
                history.may_last(client, hold.told(), invoked, hold.fence);
            }
        }
    }

    /// The server said no.
    fn refused(&mut self, client: usize, pending: &Pending, error: &CallError) {
        let Call::Command(command) = &*pending.call else { return };
        let when = (pending.invoked, Some(self.now));
        let CallError::Refused(refusal) = error else {
            return if pending.is_in_doubt {
                self.given_up(pending);
            } else {
                self.not_applied(pending);
            };
        };
        match (command, refusal) {
            (Command::Acquire(acquire), refusal) => {
                self.acquire_refused(client, acquire, pending, refusal)
            }
            // To another principal its lease was never there: that says nothing of it.
            (Command::Renew(renew), Refusal::LeaseLost(_))
                if !renew.owner.is_of(&principal_of(client)) => {}
            (Command::Renew(renew), Refusal::LeaseLost(_)) => {
                self.lost(client, renew.lease, when);
            }
            (Command::Renew(renew), Refusal::NotHolder { .. }) => {
                let at = &mut self.clients[client];
                let is_mine = |hold: &Hold| {
                    (hold.fence, hold.lease, &hold.owner)
                        == (renew.fence, renew.lease, &renew.owner)
                };
                at.holds.retain(|_, hold| !is_mine(hold));
            }
            (Command::KeepAlive(keep), Refusal::SessionNotFound(_)) => {
                self.lost(client, keep.session, when)
            }
            (Command::CloseSession(_), Refusal::SessionNotFound(_))
            | (Command::Release(_), Refusal::LeaseLost(_)) => {
                for hold in &pending.taken {
                    let ttl = Duration::from_micros(hold.ttl);
                    self.judge.history.renewed(
                        client,
                        hold.told(),
                        when,
                        hold.fence,
                        ttl,
                        Kept::Lost,
                    );
                }
            }
            (Command::Release(_), _) => self.perhaps_given_back(pending),
            _ => {}
        }
    }

    /// The server said that a lease is over.
    fn lost(&mut self, client: usize, lease: LeaseId, when: (Moment, Option<Moment>)) {
        self.each_under(client, lease, |world, hold| {
            let ttl = Duration::from_micros(hold.ttl);
            world.judge.history.renewed(client, hold.told(), when, hold.fence, ttl, Kept::Lost);
        });
        let at = &mut self.clients[client];
        at.holds.retain(|_, hold| hold.lease != lease);
        at.sessions.retain(|_, session| session.id != lease);
    }

    fn acquire_refused(
        &mut self,
        client: usize,
        acquire: &Acquire,
        pending: &Pending,
        refusal: &Refusal,
    ) {
        let place = match refusal {
            Refusal::Held(conflict) | Refusal::ReclaimWindow(conflict) => conflict.place,
            _ => None,
        };
        if let Some(place) = place {
            let places = &mut self.clients[client].places;
            places.insert(0, (place.ticket, acquire.clone()));
            places.truncate(2);
        }
        if let (Refusal::Held(conflict), Some(attempt)) = (refusal, &pending.attempt) {
            // Of a set nobody knows which of its scopes was in question; and an earlier try may still stand in line. What
            // a crash has brought back may have been released before.
            let has_come_back = |holder: &Holder| holder.state == HolderState::Recovering;
            let is_refused = acquire.claims.len() == 1
                && pending.tries == 1
                && !conflict.holders.iter().any(has_come_back);
            let returned = Some(self.now);
            self.judge.history.attempt(Attempt { is_refused, returned, ..attempt.clone() });
        } else if pending.is_in_doubt {
            self.given_up(pending);
        } else {
            self.not_applied(pending);
        }
    }

    /// Nothing came of it, and nothing will.
    fn not_applied(&mut self, pending: &Pending) {
        if let Some(attempt) = &pending.attempt {
            // It may have stood in line until now.
            let returned = Some(self.now);
            self.judge.history.attempt(Attempt { returned, ..attempt.clone() });
        }
        let Call::Command(command) = &*pending.call else { return };
        match command {
            Command::Release(_) | Command::CloseSession(_) | Command::Disconnect(_) => {
                // It believes no more that it holds what it wanted to give back.
                self.perhaps_given_back(pending);
            }
            Command::Renew(renew) => self.renew_soon(pending, renew.lease),
            Command::KeepAlive(keep) => self.renew_soon(pending, keep.session),
            _ => {}
        }
    }

    /// Nobody knows, or will know, what came of it.
    pub(crate) fn given_up(&mut self, pending: &Pending) {
        if let Some(attempt) = &pending.attempt {
            self.judge.history.attempt(attempt.clone());
        }
        let Call::Command(command) = &*pending.call else { return };
        let client = pending.client;
        let when = (pending.invoked, None);
        match command {
            Command::Release(_) | Command::CloseSession(_) | Command::Disconnect(_) => {
                self.perhaps_given_back(pending);
            }
            Command::Renew(renew) => {
                let lease = renew.lease;
                self.renewal_unknown(client, lease, pending, when, renew.ttl.map(micros));
            }
            Command::KeepAlive(keep) => {
                self.renewal_unknown(client, keep.session, pending, when, keep.ttl.map(micros));
            }
            Command::Attach(attach) => {
                self.renewal_unknown(client, attach.session, pending, when, None);
            }
            _ => {}
        }
    }
}
