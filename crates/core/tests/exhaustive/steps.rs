//! What the passing of time, a crash or the arrival of a message does to the world; and what must be true of it.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::invariant::{
    invariant_epochs_only_rise, invariant_fences_only_rise, invariant_leases_never_end_early,
    invariant_registers_only_rise,
};
use leasehold_core::{
    AcceptFence, Acquire, Answer, BeginEpoch, CallId, Cancel, Claim, Command, Effect, Ending,
    Epoch, FencingToken, GracePolicy, Grant, Namespace, Outcome, Principal, Refusal, Release,
    Renew, RequestId, Scope, Step, Transition, Under, Wait, Withdraw,
};

use super::model::{Config, count};
use super::server::{Server, lease_id, lease_number, owner, register};
use super::world::{Call, Fault, Packet, Place, Shared, Slot, World};

impl Config {
    pub(crate) fn tick(&self, world: &mut World) {
        world.now += 1;
        let age_max = self.ttl_max() + 1;
        for client in world.clients.iter_mut().filter(|client| !client.stopped) {
            for slot in &mut client.slots {
                match slot {
                    Slot::Idle => {}
                    Slot::Asking { age, .. } => *age = (*age + 1).min(age_max),
                    // Who has not heard of a renewal in time knows that it lost.
                    Slot::Holding { age, ttl, .. } if age == ttl => *slot = Slot::Idle,
                    Slot::Holding { age, .. } => *age += 1,
                }
            }
        }
        for sent in &mut world.packets {
            if let Packet::Renew { age, .. } | Packet::Renewed { age, .. } = &mut sent.packet {
                *age = (*age + 1).min(age_max);
            }
        }
        world.packets.sort_unstable();
        self.handle(world, Command::Tick);
    }

    pub(crate) fn crash(&self, world: &mut World, forget_release: bool) {
        count(&self.seen.recoveries);
        let stored = match world.behind.take() {
            Some(behind) if forget_release => {
                count(&self.seen.releases_undone);
                behind
            }
            Some(_) | None => world.server.clone(),
        };
        let restored = stored.0.restored();
        if restored.table.digest() != stored.0.table.digest() {
            world.blame(Fault::StepBreaksAPromise("a restored table is another one".into()));
        }
        // Their connections are gone.
        world.calls.clear();
        world.server = Shared(Arc::new(restored));
        let begin = BeginEpoch {
            epoch: Epoch(stored.0.table.epoch().0 + 1),
            grace: GracePolicy::Conflicting,
            grace_length: Duration::from_millis(u64::from(self.ttl)),
        };
        self.handle(world, Command::BeginEpoch(begin));
    }

    pub(crate) fn deliver(&self, world: &mut World, packet: &Packet) {
        match *packet {
            Packet::Acquire { to, attempt, wait } => self.acquire(world, to, attempt, wait),
            Packet::Renew { of, lease, fence, raise, age } => {
                self.renew(world, of, (lease, fence), raise, age);
            }
            Packet::Release { of, lease, fence } => self.release(world, of, lease, fence),
            Packet::Cancel { attempt } => self.cancel(world, attempt),
            Packet::Write { fence } => self.write(world, fence),
            Packet::Granted { to, attempt, lease, fence, .. } => {
                if let Slot::Asking { attempt: asked, age, doubtful } = world.slot(to)
                    && asked == attempt
                {
                    let holding = Slot::Holding { lease, fence, ttl: self.ttl, age, doubtful };
                    let in_time = age <= self.ttl;
                    *world.slot_mut(to) = if in_time { holding } else { Slot::Idle };
                }
            }
            Packet::Renewed { to, lease, fence, ttl, age } => {
                if let Slot::Holding { lease: l, fence: f, ttl: own_ttl, age: own, .. } =
                    world.slot_mut(to)
                    && (*l, *f) == (lease, fence)
                    && i64::from(ttl) - i64::from(age) > i64::from(*own_ttl) - i64::from(*own)
                {
                    (*own_ttl, *own) = (ttl, age);
                }
            }
        }
    }

    fn acquire(&self, world: &mut World, to: Place, attempt: u64, wait: bool) {
        let (call, lease) = (world.number(), world.number());
        let (scope, mode) = self.lock(to).clone();
        let millis = |length: u32| Duration::from_millis(u64::from(length));
        let request_id = RequestId::new(&attempt.to_string()).expect("a short name");
        let before = world.server.clone();
        let acquire = Acquire {
            call: CallId(call),
            namespace: Namespace::default(),
            owner: owner(to.client),
            claims: vec![Claim { scope, mode }],
            under: Under::NewLease { id: lease_id(lease), ttl: millis(self.ttl) },
            wait: if wait { Wait::UpTo(millis(self.wait)) } else { Wait::Never },
            keep_place: false,
            ticket: None,
            request_id: self.request_ids.then_some(request_id),
            reclaim_window: millis(self.reclaim_window),
            reclaim: false,
            metadata: None,
        };
        match self.handle(world, Command::Acquire(acquire)) {
            Outcome::Answered(Answer::Granted(grant)) => {
                let mut known = before.0.view.alive(world.now);
                let known = known.find(|held| held.attempt == Some(attempt));
                if let Some(held) = known.filter(|_| !grant.replayed) {
                    world.blame(Fault::GrantedTwice(format!("{held:?} and {grant:?}")));
                }
                self.answer(world, to, attempt, &grant);
            }
            Outcome::Queued(queued) => {
                count(&self.seen.waits);
                world.calls.push(Call { call, to, attempt, lease, ticket: queued.ticket.ticket.0 });
            }
            Outcome::Refused(Refusal::Deadlock { .. }) => count(&self.seen.deadlocks),
            // Who is refused and does not hear of it gives up some time.
            Outcome::Answered(_) | Outcome::Refused(_) => {}
        }
    }

    fn answer(&self, world: &mut World, to: Place, attempt: u64, grant: &Grant) {
        count(if grant.replayed { &self.seen.replays } else { &self.seen.grants });
        let (lease, fence) = (lease_number(grant.lease), grant.fence.get());
        let gained = grant.gained.clone();
        world.send(Packet::Granted { to, attempt, lease, fence, gained });
    }

    fn renew(&self, world: &mut World, of: Place, grant: (u64, u64), raise: bool, age: u32) {
        let (lease, fence) = grant;
        let scope = &self.lock(of).0;
        let before = world.server.clone();
        let mut alive = before.0.view.alive(world.now);
        let good = alive.find(|held| held.honours(lease, of.client, scope, fence));
        let raised = self.ttl_raised.filter(|_| raise);
        let renew = Renew {
            namespace: Namespace::default(),
            scope: scope.clone(),
            owner: owner(of.client),
            lease: lease_id(lease),
            fence: FencingToken::new(fence).expect("the table gave it"),
            ttl: raised.map(|ttl| Duration::from_millis(u64::from(ttl))),
        };
        let outcome = self.handle(world, Command::Renew(renew));
        match (&outcome, good) {
            (Outcome::Answered(Answer::Renewed(renewed)), Some(held)) => {
                count(&self.seen.renewals);
                let ttl = raised.unwrap_or(held.ttl);
                let deadline = world.now + u64::from(ttl);
                if (renewed.ttl.get(), renewed.deadline.as_millis()) != (ttl, deadline) {
                    world.blame(Fault::GoodRequestRefused(format!("{renewed:?}")));
                }
                world.send(Packet::Renewed { to: of, lease, fence, ttl, age });
            }
            (Outcome::Refused(_), None) => {
                count(&self.seen.stale_renewals);
                self.nothing_changed(world, &before.0);
            }
            (_, Some(_)) => world.blame(Fault::GoodRequestRefused(format!("{outcome:?}"))),
            (_, None) => world.blame(Fault::StaleRequestCounts(format!("{outcome:?}"))),
        }
    }

    fn release(&self, world: &mut World, of: Place, lease: u64, fence: u64) {
        let scope = &self.lock(of).0;
        let before = world.server.clone();
        let alive: Vec<_> = before.0.view.alive(world.now).collect();
        let good = alive.iter().any(|held| held.honours(lease, of.client, scope, fence));
        // Of a file, bytes that are not held do not matter.
        let bytes = matches!(scope, Scope::Range { .. });
        let idle = bytes && alive.iter().any(|held| held.lease == lease);
        let release = Release {
            namespace: Namespace::default(),
            scope: scope.clone(),
            owner: owner(of.client),
            lease: lease_id(lease),
            fence: FencingToken::new(fence).expect("the table gave it"),
        };
        let outcome = self.handle(world, Command::Release(release));
        let now = world.now;
        match (&outcome, good) {
            // The same client has released it before, by a packet that came twice.
            (Outcome::Answered(Answer::Released { replayed: true, .. }), false) => {
                count(&self.seen.stale_releases);
                self.nothing_changed(world, &before.0);
            }
            (Outcome::Answered(Answer::Released { replayed: false, .. }), true) => {
                let after = world.server.clone();
                let mut alive = after.0.view.alive(now);
                if alive.any(|held| held.honours(lease, of.client, scope, fence)) {
                    world.blame(Fault::GoodRequestRefused("still held".into()));
                }
            }
            (Outcome::Answered(Answer::Released { .. }), false) if idle => {
                self.nothing_changed(world, &before.0);
            }
            (Outcome::Refused(_), false) => {
                count(&self.seen.stale_releases);
                self.nothing_changed(world, &before.0);
            }
            (_, true) => world.blame(Fault::GoodRequestRefused(format!("{outcome:?}"))),
            (_, false) => world.blame(Fault::StaleRequestCounts(format!("{outcome:?}"))),
        }
    }

    /// A request that does not count changes no more than the passing of time does. A table that is late may find out
    /// about a lease that is over anyway.
    fn nothing_changed(&self, world: &mut World, before: &Server) {
        let (ticked, ..) = before.handle(world.now, Command::Tick);
        let after = &world.server.0.view;
        let same = if self.late {
            ticked.view.alive(world.now).all(|held| after.held.contains(held))
        } else {
            ticked.view == *after
        };
        if !same {
            let seen = format!("{:?} instead of {:?}", after, ticked.view);
            world.blame(Fault::StaleRequestCounts(seen));
        }
    }

    fn cancel(&self, world: &mut World, attempt: u64) {
        let gone: Vec<Call> = world.calls.extract_if(.., |call| call.attempt == attempt).collect();
        for Call { call, .. } in gone {
            count(&self.seen.cancels);
            let namespace = Namespace::default();
            let cancel = Cancel { namespace, call: CallId(call), keep_place: false };
            let outcome = self.handle(world, Command::Cancel(cancel));
            // Its wait may have run out just now, in this very step.
            if !matches!(outcome, Outcome::Answered(Answer::Cancelled { .. })) {
                world.blame(Fault::GoodRequestRefused(format!("{outcome:?}")));
            }
        }
    }

    fn write(&self, world: &mut World, fence: u64) {
        let accept = AcceptFence {
            namespace: Namespace::default(),
            register: register(),
            principal: Principal::ANONYMOUS,
            fence: FencingToken::new(fence).expect("the table gave it"),
        };
        let outcome = self.handle(world, Command::AcceptFence(accept));
        let stale = fence < world.accepted;
        match outcome {
            Outcome::Answered(Answer::FenceAccepted { .. }) if !stale => world.accepted = fence,
            Outcome::Refused(Refusal::StaleFence { .. }) if stale => {
                count(&self.seen.stale_writes);
            }
            outcome @ (Outcome::Answered(_) | Outcome::Queued(_) | Outcome::Refused(_)) => {
                let said = format!("{outcome:?}");
                world.blame(if stale {
                    Fault::StaleWriteAccepted(said)
                } else {
                    Fault::GoodRequestRefused(said)
                });
            }
        }
    }

    pub(crate) fn withdraw(&self, world: &mut World, lost: &Packet) {
        let Packet::Granted { lease, fence, gained, .. } = lost else { return };
        count(&self.seen.withdrawals);
        let withdraw = Withdraw {
            namespace: Namespace::default(),
            lease: lease_id(*lease),
            fence: FencingToken::new(*fence).expect("the table gave it"),
            gained: gained.clone(),
        };
        self.handle(world, Command::Withdraw(withdraw));
    }

    /// Hands a command to the server, passes the answers on, and looks at what the step did.
    fn handle(&self, world: &mut World, command: Command) -> Outcome {
        let before = world.server.clone();
        let (server, outcome, step) = before.0.handle(world.now, command);
        if let Err(broken) = invariant_fences_only_rise(&before.0.table, &server.table, &step)
            .and_then(|()| invariant_epochs_only_rise(&before.0.table, &server.table))
            .and_then(|()| invariant_registers_only_rise(&before.0.table, &server.table, &step))
            .and_then(|()| invariant_leases_never_end_early(&before.0.table, &server.table, &step))
        {
            world.blame(Fault::StepBreaksAPromise(broken.to_string()));
        }
        world.server = Shared(Arc::new(server));
        self.look_at_transitions(world, &step, &before);
        self.pass_on(world, &outcome, &step);
        outcome
    }

    /// Fences rise for ever; and only releases may be missing after a crash.
    fn look_at_transitions(&self, world: &mut World, step: &Step, before: &Shared) {
        let mut all_releases = true;
        for transition in &step.transitions {
            let ending = match transition {
                Transition::Granted(granted) => {
                    let fence = granted.fence.get();
                    if fence <= world.given {
                        let seen = format!("{fence} after {}", world.given);
                        world.blame(Fault::FenceNotRising(seen));
                    }
                    world.given = world.given.max(fence);
                    None
                }
                Transition::LeaseEnded { ending, .. }
                | Transition::GrantEnded { ending, .. }
                | Transition::KeyEnded { ending, .. }
                | Transition::RangeEnded { ending, .. }
                | Transition::LeaseEnding { ending, .. }
                | Transition::LeaseLapsed { ending, .. } => Some(ending),
                Transition::EpochBegan { .. }
                | Transition::Jumped { .. }
                | Transition::SessionOpened(_)
                | Transition::TtlChanged { .. }
                | Transition::FenceAccepted { .. }
                | Transition::FenceDeleted { .. } => None,
            };
            if ending == Some(&Ending::Expired) || ending == Some(&Ending::GraceExpired) {
                count(&self.seen.lapses);
            }
            all_releases &= ending == Some(&Ending::Released);
        }
        if step.transitions.is_empty() {
            return;
        }
        if all_releases {
            world.behind.get_or_insert_with(|| before.clone());
        } else {
            world.behind = None;
        }
    }

    fn pass_on(&self, world: &mut World, outcome: &Outcome, step: &Step) {
        let mut answered: Vec<u64> = Vec::new();
        if let Outcome::Answered(Answer::Granted(grant)) = outcome {
            answered.push(grant.fence.get());
        }
        for effect in &step.effects {
            let (call, grant) = match effect {
                Effect::Granted { call, grant } => (call.0, Some(grant)),
                Effect::Refused { call, .. } => (call.0, None),
                Effect::Lost { .. } | Effect::Wanted { .. } | Effect::Event(_) => continue,
            };
            let Some(at) = world.calls.iter().position(|waiting| waiting.call == call) else {
                if let Some(grant) = grant {
                    world.blame(Fault::GrantToNobody(format!("{grant:?}")));
                }
                continue;
            };
            let Call { to, attempt, .. } = world.calls.remove(at);
            if let Some(grant) = grant {
                count(&self.seen.wakes);
                answered.push(grant.fence.get());
                self.answer(world, to, attempt, grant);
            }
        }
        for transition in &step.transitions {
            if let Transition::Granted(granted) = transition
                && !answered.contains(&granted.fence.get())
            {
                world.blame(Fault::GrantToNobody(format!("{granted:?}")));
            }
        }
    }
}
