//! What a client asks by hand: without the SDK, request by request.
//!
//! - `answers.rs`: what comes of it. `believing.rs`: leases.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

mod answers;
mod believing;

use std::rc::Rc;
use std::time::Duration;

use leasehold_core::{
    Acquire, CallId, Claim, CloseSession, Command, Disconnect, KeepAlive, LeaseId, Namespace,
    Release, Renew, Scope, Under, Wait,
};
use leasehold_engine::Call;
use leasehold_judge::history::Kept;

use super::{Due, Hold, Pending};
use crate::judge::{Attempt, Verdict};
use crate::plan::{Node, micros};
use crate::rng::{Purpose, Rng};
use crate::server::Wire;
use crate::time::{MILLI, Micros, Moment};
use crate::world::World;
pub(super) use believing::hold_of_belief;

/// How often something is tried while things go wrong.
const TRIES_MAX: u32 = 6;

impl World {
    fn rng_of(&self, client: usize, number: u64) -> Rng {
        Rng::new(self.plan.seed, Purpose::Client, client as u64, number + (2 << 32))
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
        if let Call::Command(Command::Unlock(unlock)) = &call {
            self.judge.beliefs.doubt(client, unlock.session);
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
            is_in_doubt: false,
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
        let mut rng = Rng::new(self.plan.seed, Purpose::LeaseId, place, number);
        LeaseId::from_u128(u128::from(rng.number()) << 64 | u128::from(rng.number()))
    }

    /// How long an answer is waited for. One that was asked to wait for ever is often waited for just so long.
    fn patience(&self, client: usize, number: u64, call: &Call) -> Option<Micros> {
        let ttl = self.plan.ttl;
        let mut rng = self.rng_of(client, number);
        let usual = rng.spread(ttl / 4, ttl * 2);
        let Call::Command(Command::Acquire(acquire)) = call else { return Some(usual) };
        match acquire.wait {
            Wait::Never => Some(usual),
            Wait::UpTo(wait) => Some(usual + micros(wait) * 2),
            Wait::Forever if rng.percent(30) => Some(rng.spread(ttl / 10, ttl * 4)),
            Wait::Forever => None,
        }
    }

    /// No answer came for too long.
    pub(super) fn lose_patience(&mut self, client: usize, number: u64) {
        let at = &mut self.clients[client];
        let life = at.life;
        // While all clients come to an end, none leaves: that is what is judged.
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
        let Some(pending) = self.clients[client].pending.get_mut(&number) else { return };
        pending.is_in_doubt = true;
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
        let mut rng = self.rng_of(client, number + u64::from(pending.tries) * 7919);
        let pause = rng.between(MILLI, (self.plan.ttl / 10).clamp(2 * MILLI, 250 * MILLI));
        self.client_due(client, Due::Retry(number), self.now + pause);
    }
}

impl super::Client {
    /// What a call gives back: it is not relied on any more from the moment it is asked.
    fn take_holds(&mut self, call: &Call) -> Vec<Hold> {
        let Call::Command(command) = call else { return Vec::new() };
        let is_taken: Box<dyn Fn(&Hold) -> bool + '_> = match command {
            Command::Release(release) => {
                let (lease, fence, owner) = (release.lease, release.fence, &release.owner);
                Box::new(move |hold| (hold.lease, hold.fence, &hold.owner) == (lease, fence, owner))
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

pub(super) fn renew_of(hold: &Hold) -> Renew {
    Renew {
        namespace: hold.namespace.clone(),
        scope: hold.claims[0].scope.clone(),
        owner: hold.owner.clone(),
        lease: hold.lease,
        fence: hold.fence,
        ttl: None,
    }
}

/// By a name or path if there is one: that ends all of a set, while a release of bytes ends those bytes alone.
pub(super) fn release_of(hold: &Hold) -> Release {
    let Renew { namespace, scope, owner, lease, fence, .. } = renew_of(hold);
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
