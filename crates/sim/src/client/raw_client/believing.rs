//! Leases by hand: what is believed of them, and what keeps them.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

use std::time::Duration;

use leasehold_core::{
    Acquire, CloseSession, Command, FencingToken, Grant, KeepAlive, LeaseId, Scope, Under,
};
use leasehold_engine::Call;
use leasehold_judge::history::Kept;

use super::super::{Due, Hold, Keep, Pending};
use super::{release_of, renew_of};
use crate::judge::Belief;
use crate::plan::micros;
use crate::rng::{Purpose, Rng};
use crate::time::{Micros, Moment};
use crate::world::World;

/// Where beliefs are numbered, those of the SDK have keys of its own.
const BY_HAND: u64 = 1 << 63;

/// The hold that a belief is about, if it is none of the SDK's.
pub(in crate::client) fn hold_of_belief(number: u64) -> Option<u64> {
    (number & BY_HAND != 0).then_some(number & !BY_HAND)
}

/// Until when one that asked at `sent`, by its own clock, goes on with its work; and when it knows that it has lost. A
/// clock that is 5 % too slow against one that is 5 % too fast is off by less than a tenth.
fn believed_until(sent: Micros, ttl: Micros) -> (Micros, Micros) {
    (sent + ttl / 10 * 9, sent + ttl)
}

impl World {
    /// A thread without the SDK that is just as careful with its lease. Only if there can be no doubt from when it counts.
    pub(super) fn begin_to_believe(
        &mut self,
        client: usize,
        number: u64,
        acquire: &Acquire,
        grant: &Grant,
        pending: &Pending,
    ) {
        let is_plain = matches!(acquire.under, Under::NewLease { .. });
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
    pub(super) fn keep(&self, client: usize, salt: u64) -> Keep {
        let mut rng = Rng::new(self.plan.seed, Purpose::Client, client as u64, salt ^ (5 << 40));
        rng.weighted(&[
            (70, Some(333)),
            (8, Some(900)),
            (4, Some(1000)),
            (4, Some(1001)),
            (14, None),
        ])
    }

    pub(super) fn renew_later(
        &mut self,
        client: usize,
        number: u64,
        sent: Micros,
        ttl: Micros,
        keep: Keep,
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

    pub(super) fn renewed(&mut self, client: usize, lease: LeaseId, sent: Micros, ttl: Micros) {
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
    pub(in crate::client) fn renew_in_time(&mut self, client: usize, number: u64) {
        let now = self.now;
        let at = &mut self.clients[client];
        // The timer was set anew meanwhile.
        let is_due = at.renewals.get(&number).is_some_and(|due| *due <= now);
        if at.draining || !is_due {
            return;
        }
        at.renewals.remove(&number);
        let command = if let Some(session) = at.sessions.get(&number) {
            let (namespace, session) = (session.namespace.clone(), session.id);
            let principal = at.owner.principal();
            Command::KeepAlive(KeepAlive { namespace, principal, session, ttl: None })
        } else if let Some(hold) = at.holds.get(&number) {
            Command::Renew(renew_of(hold))
        } else {
            return;
        };
        self.put(client, command, false);
    }

    pub(super) fn each_under(
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
    pub(super) fn renewed_under(
        &mut self,
        client: usize,
        lease: LeaseId,
        invoked: Moment,
        ttl: Duration,
        named: Option<(FencingToken, &Scope)>,
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

    pub(super) fn renewal_unknown(
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
        self.renew_soon(pending, lease);
    }

    /// No renewal was confirmed: it tries again soon.
    pub(super) fn renew_soon(&mut self, pending: &Pending, lease: LeaseId) {
        let client = pending.client;
        let at = &self.clients[client];
        let mine: Vec<(u64, Keep)> = at
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
    pub(in crate::client) fn give_everything_back(&mut self, client: usize) {
        let at = &self.clients[client];
        if !at.is_up {
            return;
        }
        let releases = at
            .holds
            .values()
            .filter(|hold| hold.session.is_none())
            .map(|hold| Command::Release(release_of(hold)));
        let closes = at.sessions.values().map(|session| {
            Command::CloseSession(CloseSession {
                namespace: session.namespace.clone(),
                principal: at.owner.principal(),
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
