//! What a client does with the answers to what it asked by hand.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

use std::rc::Rc;
use std::time::Duration;

use leasehold_core::{
    Acquire, Answer, CallId, Claim, CloseSession, Command, Disconnect, Fence, Grant, KeepAlive,
    LeaseId, Namespace, Refusal, Release, Renew, Scope, Under, Wait,
};
use leasehold_engine::{Call, CallError, Reply};
use leasehold_judge::history::Kept;

use super::{Due, Hold, Pending, Session};
use crate::dice::{Dice, Purpose};
use crate::judge::{Attempt, Belief, Verdict};
use crate::plan::{Node, micros};
use crate::server::Wire;
use crate::time::{MILLI, Micros, Moment};
use crate::world::World;

/// How often something is tried while things go wrong.
const TRIES_MAX: u32 = 6;

/// Where beliefs are numbered, those of the SDK have keys of its own.
const BY_HAND: u64 = 1 << 63;

/// The hold that a belief is about, if it is none of the SDK's.
pub(super) fn hold_of_belief(number: u64) -> Option<u64> {
    (number & BY_HAND != 0).then_some(number & !BY_HAND)
}

/// Until when one that asked at `sent`, by its own clock, goes on with its work; and when it knows that it has lost. A
/// clock that is 5 % too slow against one that is 5 % too fast is off by less than a tenth.
fn believed_until(sent: Micros, ttl: Micros) -> (Micros, Micros) {
    (sent + ttl / 10 * 9, sent + ttl)
}

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
    fn dice_of(&self, client: usize, number: u64) -> Dice {
        Dice::new(self.plan.seed, Purpose::Client, client as u64, number + (2 << 32))
    }

    /// Something new is asked; says by which number.
    pub(super) fn put(&mut self, client: usize, command: Command, is_deed: bool) -> u64 {
        self.put_call(client, Call::Command(command), is_deed)
    }

    pub(super) fn put_call(&mut self, client: usize, call: Call, is_deed: bool) -> u64 {
        let now = self.now;
        if let Call::Command(
            Command::Renew(Renew { lease, ttl: Some(ttl), .. })
            | Command::KeepAlive(KeepAlive { session: lease, ttl: Some(ttl), .. }),
        ) = &call
        {
            self.may_shorten(client, *lease, micros(*ttl));
        }
        let at = &mut self.clients[client];
        at.next_number += 1;
        let number = at.next_number;
        let attempt = match &call {
            Call::Command(Command::Acquire(acquire)) => attempt_of(client, acquire, now),
            Call::Command(_) | Call::Query(_) => None,
        };
        let pending = Pending {
            client,
            server: at.server,
            invoked: now,
            sent: 0,
            tries: 0,
            is_deed,
            attempt,
            taken: at.take_holds(&call),
            call: Rc::new(call),
        };
        at.pending.insert(number, pending);
        self.send(client, number);
        number
    }

    /// From now on nobody knows how long the lease is: it may lapse before any answer comes.
    fn may_shorten(&mut self, client: usize, lease: LeaseId, ttl: Micros) {
        let when = (self.now, None);
        self.judge.beliefs.doubt(client, lease);
        self.each_under(client, lease, |world, hold| {
            if ttl < hold.ttl {
                world.judge.history.released(client, hold.told(), when, hold.fence, Kept::Unknown);
            }
        });
    }

    /// Sends it, or sends it again, to the server of the day.
    pub(super) fn send(&mut self, client: usize, number: u64) {
        let fresh = self.fresh_lease(client, number);
        let now = self.now;
        let at = &mut self.clients[client];
        let (life, sent) = (at.life, at.clock.at(now));
        let Some(pending) = at.pending.get_mut(&number) else { return };
        pending.server = at.server;
        pending.sent = sent;
        pending.tries += 1;
        let (tries, server) = (pending.tries, pending.server);
        if tries > 1
            && let Call::Command(Command::Acquire(acquire)) = &*pending.call
            && let Under::NewLease { ttl, .. } = acquire.under
        {
            let mut again = acquire.clone();
            again.under = Under::NewLease { id: fresh, ttl };
            pending.attempt.iter_mut().for_each(|attempt| attempt.leases.push(fresh));
            pending.call = Rc::new(Call::Command(Command::Acquire(again)));
        }
        let call = pending.call.clone();
        let patience = self.patience(client, number, &call);
        if let Some(patience) = patience {
            self.client_due(client, Due::GiveUp(number), self.now + patience);
        }
        self.ask(server, Wire { client, life, number, tries }, call);
    }

    /// An id that nobody has used, as a server would draw it for each request.
    pub(super) fn fresh_lease(&self, client: usize, number: u64) -> LeaseId {
        let at = &self.clients[client];
        let tries = at.pending.get(&number).map_or(0, |pending| u64::from(pending.tries));
        let place = (client as u64) << 40 | at.life << 28 | tries << 20;
        let mut dice = Dice::new(self.plan.seed, Purpose::LeaseId, place, number);
        LeaseId::from_u128(u128::from(dice.number()) << 64 | u128::from(dice.number()))
    }

    /// How long an answer is waited for. One that was asked to wait for ever is often waited for just so long.
    fn patience(&self, client: usize, number: u64, call: &Call) -> Option<Micros> {
        let ttl = self.plan.ttl;
        let mut dice = self.dice_of(client, number);
        let usual = dice.spread(ttl / 4, ttl * 2);
        let Call::Command(Command::Acquire(acquire)) = call else { return Some(usual) };
        match acquire.wait {
            Wait::Never => Some(usual),
            Wait::UpTo(wait) => Some(usual + micros(wait) * 2),
            Wait::Forever if dice.percent(30) => Some(dice.spread(ttl / 10, ttl * 4)),
            Wait::Forever => None,
        }
    }

    /// No answer came for too long.
    pub(super) fn lose_patience(&mut self, client: usize, number: u64) {
        let at = &mut self.clients[client];
        let life = at.life;
        // While everybody comes to an end, nobody leaves: that is what is judged.
        if self.is_calm
            && at.pending.get(&number).is_none_or(|pending| pending.invoked.0 >= self.plan.length)
        {
            return;
        }
        let Some(pending) = at.pending.remove(&number) else { return };
        self.trace.line(self.now, Node::Client(client), format_args!("gives #{number} up"));
        self.hang_up(Wire { client, life, number, tries: pending.tries });
        self.given_up(&pending);
        self.go_on(client, &pending);
    }

    /// The connection broke before an answer came.
    pub(super) fn broken(&mut self, client: usize, number: u64, tries: u32) -> Result<(), Verdict> {
        let pending = self.clients[client].pending.get(&number);
        if pending.is_none_or(|pending| pending.tries != tries) {
            return Ok(());
        }
        self.trace.line(
            self.now,
            Node::Client(client),
            format_args!("connection of #{number} broke"),
        );
        let servers = self.plan.servers;
        let at = &mut self.clients[client];
        at.server = (at.server + 1) % servers;
        self.unknown(client, number);
        Ok(())
    }

    /// It may have happened or not. What can be sent again safely is.
    fn unknown(&mut self, client: usize, number: u64) {
        let Some(pending) = self.clients[client].pending.get(&number) else { return };
        let may_retry = match &*pending.call {
            Call::Command(Command::Acquire(acquire)) => acquire.request_id.is_some(),
            Call::Query(_) => true,
            Call::Command(_) => false,
        };
        if may_retry {
            self.retry(client, number);
        } else if let Some(pending) = self.clients[client].pending.remove(&number) {
            self.given_up(&pending);
            self.go_on(client, &pending);
        }
    }

    fn retry(&mut self, client: usize, number: u64) {
        let Some(pending) = self.clients[client].pending.get(&number) else { return };
        if pending.tries >= TRIES_MAX && !self.is_calm {
            if let Some(pending) = self.clients[client].pending.remove(&number) {
                self.given_up(&pending);
                self.go_on(client, &pending);
            }
            return;
        }
        let mut dice = self.dice_of(client, number + u64::from(pending.tries) * 7919);
        let pause = dice.between(MILLI, (self.plan.ttl / 10).clamp(2 * MILLI, 250 * MILLI));
        self.client_due(client, Due::Retry(number), self.now + pause);
    }

    /// An answer.
    pub(super) fn told(
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
                    if let Some(pending) = at.pending.remove(&number) {
                        self.refused(client, &pending, error);
                        self.go_on(client, &pending);
                    }
                }
                Means::Unknown => self.unknown(client, number),
            },
        }
        Ok(())
    }

    /// The thread goes on to its next deed.
    fn go_on(&mut self, client: usize, pending: &Pending) {
        let at = &self.clients[client];
        if !pending.is_deed || !at.is_up {
            return;
        }
        if at.winds_down {
            return self.give_everything_back(client);
        }
        let mut dice = self.dice_of(client, at.deeds + (3 << 32));
        let think = dice.between(0, self.plan.work.think * 2);
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

    /// A thread without the SDK that is just as careful with its lease. Only if there can be no doubt from when it counts.
    fn begin_to_believe(
        &mut self,
        client: usize,
        number: u64,
        acquire: &Acquire,
        grant: &Grant,
        pending: &Pending,
    ) {
        // Bytes move from lease to lease of one owner: what it has given back under one may be gone under another.
        let is_plain = matches!(acquire.under, Under::NewLease { .. })
            && acquire.claims.iter().all(|claim| matches!(claim.scope, Scope::Key(_)));
        if !is_plain || grant.replayed || pending.tries > 1 {
            return;
        }
        let (stops_at, lost_at) = believed_until(pending.sent, micros(grant.ttl.as_duration()));
        let belief = Belief {
            namespace: acquire.namespace.clone(),
            lease: Some(grant.lease),
            fence: Some(grant.fence),
            claims: acquire.claims.clone(),
            stops_at,
            lost_at,
        };
        self.judge.beliefs.begin(client, BY_HAND | number, belief);
        self.forget_what_is_given_back();
        let shown = self.clocks();
        let believed = self.judge.believed(self.now, client, BY_HAND | number, &shown);
        believed.unwrap_or_else(|verdict| self.judge.accuse(verdict));
    }

    /// When this holder will renew: mostly in time, sometimes at the last moment or never.
    fn keep(&self, client: usize, salt: u64) -> super::Keep {
        let mut dice = Dice::new(self.plan.seed, Purpose::Client, client as u64, salt ^ (5 << 40));
        dice.weighted(&[
            (70, Some(333)),
            (8, Some(900)),
            (4, Some(1000)),
            (4, Some(1001)),
            (14, None),
        ])
    }

    fn renew_later(
        &mut self,
        client: usize,
        number: u64,
        sent: Micros,
        ttl: Micros,
        keep: super::Keep,
    ) {
        if let Some(part) = keep {
            let at = self.clients[client].clock.when(sent + ttl * part / 1000);
            self.renew_at(client, number, at.max(self.now));
        }
    }

    fn renew_at(&mut self, client: usize, number: u64, at: Moment) {
        self.clients[client].renewals.insert(number, at);
        self.client_due(client, Due::Renew(number), at);
    }

    fn renewed(&mut self, client: usize, lease: LeaseId, sent: Micros, ttl: Micros) {
        let at = &mut self.clients[client];
        let mut due = Vec::new();
        for (&number, hold) in at.holds.iter_mut().filter(|(_, hold)| hold.lease == lease) {
            hold.ttl = ttl;
            if hold.session.is_none() {
                let (stops_at, lost_at) = believed_until(sent, ttl);
                self.judge.beliefs.go_on(client, BY_HAND | number, stops_at, lost_at);
                due.push((number, hold.keep));
            }
        }
        for (&number, session) in at.sessions.iter_mut().filter(|(_, session)| session.id == lease)
        {
            session.ttl = ttl;
            due.push((number, session.keep));
        }
        for (number, keep) in due {
            self.renew_later(client, number, sent, ttl, keep);
        }
    }

    /// The time to renew has come.
    pub(super) fn renew_in_time(&mut self, client: usize, number: u64) {
        let now = self.now;
        let at = &mut self.clients[client];
        // The timer was set anew meanwhile.
        let is_due = at.renewals.get(&number).is_some_and(|due| *due <= now);
        if at.winds_down || !is_due {
            return;
        }
        at.renewals.remove(&number);
        let command = if let Some(session) = at.sessions.get(&number) {
            let (namespace, session) = (session.namespace.clone(), session.id);
            Command::KeepAlive(KeepAlive { namespace, session, ttl: None })
        } else if let Some(hold) = at.holds.get(&number) {
            Command::Renew(renew_of(hold, &at.owner))
        } else {
            return;
        };
        self.put(client, command, false);
    }

    fn each_under(
        &mut self,
        client: usize,
        lease: LeaseId,
        mut with: impl FnMut(&mut World, &Hold),
    ) {
        let holds: Vec<Hold> = self.clients[client]
            .holds
            .values()
            .filter(|hold| hold.lease == lease)
            .cloned()
            .collect();
        for hold in holds {
            with(self, &hold);
        }
    }

    /// The server said that a lease goes on.
    fn renewed_under(
        &mut self,
        client: usize,
        lease: LeaseId,
        invoked: Moment,
        ttl: Duration,
        named: Option<(Fence, &Scope)>,
    ) {
        self.each_under(client, lease, |world, hold| {
            let named = named.filter(|(fence, _)| *fence == hold.fence).map(|(_, scope)| scope);
            let (when, what) = ((invoked, world.now), (hold.fence, ttl));
            // The renewal may have been before a grant that it was not sent for.
            if hold.since > invoked {
                let (judge, when) = (&mut world.judge, (invoked, Some(world.now)));
                let (fence, unknown) = (hold.fence, Kept::Unknown);
                return judge.history.renewed(client, hold.told(), when, fence, ttl, unknown);
            }
            world.judge.renewed_with(client, hold.told(), when, what, named);
        });
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
        let CallError::Refused(refusal) = error else { return self.given_up(pending) };
        match (command, refusal) {
            (Command::Acquire(acquire), refusal) => {
                self.acquire_refused(client, acquire, pending, refusal)
            }
            (Command::Renew(renew), Refusal::LeaseLost) => {
                self.lost(client, renew.lease, when);
            }
            (Command::Renew(renew), Refusal::NotHolder(_)) => {
                let at = &mut self.clients[client];
                let is_mine = |hold: &Hold| (hold.fence, hold.lease) == (renew.fence, renew.lease);
                if renew.owner == at.owner {
                    at.holds.retain(|_, hold| !is_mine(hold));
                }
            }
            (Command::KeepAlive(keep), Refusal::SessionNotFound) => {
                self.lost(client, keep.session, when)
            }
            (Command::CloseSession(_), Refusal::SessionNotFound)
            | (Command::Release(_), Refusal::LeaseLost) => {
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
        if let (Refusal::Held(_), Some(attempt)) = (refusal, &pending.attempt) {
            // Of a set nobody knows which of its scopes was in question; and an earlier try may still stand in line.
            let is_refused = acquire.claims.len() == 1 && pending.tries == 1;
            let returned = Some(self.now);
            self.judge.history.attempt(Attempt { is_refused, returned, ..attempt.clone() });
        } else {
            self.given_up(pending);
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

    fn renewal_unknown(
        &mut self,
        client: usize,
        lease: LeaseId,
        pending: &Pending,
        when: (Moment, Option<Moment>),
        ttl: Option<Micros>,
    ) {
        self.each_under(client, lease, |world, hold| {
            // A length that may have been changed to something shorter: nothing is certain about it any more.
            let longest = Duration::from_micros(ttl.unwrap_or(hold.ttl).max(hold.ttl));
            world.judge.history.renewed(
                client,
                hold.told(),
                when,
                hold.fence,
                longest,
                Kept::Unknown,
            );
            if ttl.is_some_and(|ttl| ttl < hold.ttl) {
                world.judge.history.released(client, hold.told(), when, hold.fence, Kept::Unknown);
            }
        });
        // It tries again soon.
        let at = &self.clients[client];
        let mine: Vec<(u64, super::Keep)> = at
            .holds
            .iter()
            .filter(|(_, hold)| hold.lease == lease && hold.session.is_none())
            .map(|(&n, hold)| (n, hold.keep))
            .chain(
                at.sessions
                    .iter()
                    .filter(|(_, session)| session.id == lease)
                    .map(|(&n, session)| (n, session.keep)),
            )
            .collect();
        let soon = self.plan.ttl / 10;
        for (number, keep) in mine {
            if keep.is_some() && !pending.is_deed {
                self.renew_at(client, number, self.now + soon);
            }
        }
    }

    /// Gives back everything it holds; what it still waits for comes later.
    pub(super) fn give_everything_back(&mut self, client: usize) {
        let at = &self.clients[client];
        if !at.is_up {
            return;
        }
        let owner = &at.owner;
        let releases = at
            .holds
            .values()
            .filter(|hold| hold.session.is_none())
            .map(|hold| Command::Release(release_of(hold, owner)));
        let closes = at.sessions.values().map(|session| {
            Command::CloseSession(CloseSession {
                namespace: session.namespace.clone(),
                session: session.id,
            })
        });
        let commands: Vec<Command> = releases.chain(closes).collect();
        for command in commands {
            let is_asked = self.clients[client]
                .pending
                .values()
                .any(|pending| matches!(&*pending.call, Call::Command(asked) if *asked == command));
            if !is_asked {
                self.put(client, command, false);
            }
        }
    }
}

impl super::Client {
    /// What a call gives back: it is not relied on any more from the moment it is asked.
    fn take_holds(&mut self, call: &Call) -> Vec<Hold> {
        let Call::Command(command) = call else { return Vec::new() };
        let is_taken: Box<dyn Fn(&Hold) -> bool> = match command {
            Command::Release(release) if release.owner == self.owner => {
                let (lease, fence) = (release.lease, release.fence);
                Box::new(move |hold| (hold.lease, hold.fence) == (lease, fence))
            }
            Command::CloseSession(CloseSession { session: lease, .. })
            | Command::Disconnect(Disconnect { session: lease, .. }) => {
                let lease = *lease;
                self.sessions.retain(|_, session| session.id != lease);
                Box::new(move |hold| hold.lease == lease)
            }
            _ => return Vec::new(),
        };
        let taken = self.holds.extract_if(.., |_, hold| is_taken(hold));
        taken.map(|(_, hold)| hold).collect()
    }
}

impl Hold {
    /// What histories are told of.
    fn told(&self) -> &[Claim] {
        if self.namespace == Namespace::default() { &self.claims } else { &[] }
    }
}

pub(super) fn renew_of(hold: &Hold, owner: &leasehold_core::Owner) -> Renew {
    Renew {
        namespace: hold.namespace.clone(),
        scope: hold.claims[0].scope.clone(),
        owner: owner.clone(),
        lease: hold.lease,
        fence: hold.fence,
        ttl: None,
    }
}

/// By a name or path if there is one: that ends all of a set, while a release of bytes ends those bytes alone.
pub(super) fn release_of(hold: &Hold, owner: &leasehold_core::Owner) -> Release {
    let Renew { namespace, scope, owner, lease, fence, .. } = renew_of(hold, owner);
    let mut keys = hold.claims.iter().map(|claim| &claim.scope);
    let key = keys.find(|scope| matches!(scope, Scope::Key(_))).cloned();
    Release { namespace, scope: key.unwrap_or(scope), owner, lease, fence }
}

/// Histories are told of the default namespace only.
fn attempt_of(client: usize, acquire: &Acquire, invoked: Moment) -> Option<Attempt> {
    if acquire.namespace != Namespace::default() {
        return None;
    }
    let (lease, ttl) = match acquire.under {
        Under::NewLease { id, ttl } => (id, ttl),
        Under::Session(id) => (id, Duration::ZERO),
    };
    Some(Attempt {
        client,
        owner: acquire.owner.clone(),
        claims: acquire.claims.clone(),
        ttl,
        waited: acquire.wait != Wait::Never,
        request_id: acquire.request_id.clone(),
        leases: vec![lease],
        invoked,
        returned: None,
        granted: None,
        is_refused: false,
    })
}

/// Calls are numbered by the server that takes them.
pub(super) const NO_CALL: CallId = CallId(0);
