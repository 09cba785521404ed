//! What a client's thread does next: mostly sensible things, now and then something wrong.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{
    AcceptFence, Acquire, Adapter, Attach, Break, BreakSession, ByOwner, ByteRange, Claim,
    CloseSession, Command, DeleteFence, Disconnect, FencingToken, KeepAlive, LeaseId, ListQuery,
    Mode, Namespace, OnDisconnect, OpenSession, Owner, OwnerAction, RegisterName, RemoveFile,
    RequestId, Scope, TreeQuery, Under, Unlock, Wait,
};
use leasehold_engine::{Call, Query};

use super::raw_client::{NO_CALL, release_of, renew_of};
use super::scopes::{claim, namespace, range, simple};
use super::{Due, Hold, Session, principal_of};
use crate::rng::{Purpose, Rng};
use crate::time::Micros;
use crate::world::World;

/// More than that it does not hold at a time.
const HOLDS_MAX: usize = 4;
const SESSIONS_MAX: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Deed {
    Acquire,
    /// Sends an earlier request again, as it was or changed.
    Repeat,
    /// Comes back for a place that was kept.
    Return,
    Reclaim,
    Release,
    Renew,
    Write,
    Open,
    KeepAlive,
    Close,
    Attach,
    Disconnect,
    Unlock,
    /// Takes, keeps or gives back the simple lock.
    Simple,
    AcceptFence,
    Break,
    BreakSession,
    RemoveFile,
    Look,
    Nothing,
}

impl World {
    /// The next action of a client's thread.
    pub(super) fn think(&mut self, client: usize) {
        if self.clients[client].draining {
            return;
        }
        let at = &mut self.clients[client];
        at.actions += 1;
        let number = at.actions;
        let mut rng = Rng::new(self.plan.seed, Purpose::Work, client as u64, number);
        if self.cut.actions.contains(&(client, number)) || !self.act(client, &mut rng) {
            let think = rng.between(1, self.plan.work.think * 2);
            self.client_due(client, Due::Think, self.now + think);
        }
    }

    /// Says whether there is an answer to wait for.
    fn act(&mut self, client: usize, rng: &mut Rng) -> bool {
        let at = &self.clients[client];
        let (holds, sessions) = (at.holds.len(), at.sessions.len());
        let if_any = |len: usize, weight: u64| if len > 0 { weight } else { 0 };
        let opens = self.plan.work.sessions / 8;
        let plain = self.plan.work.plain;
        let unless_plain = |weight: u64| if plain { 0 } else { weight };
        let shares = self.plan.work.shares && !plain;
        let if_shared = |weight: u64| if shares { weight } else { 0 };
        let is_bytes = |claim: &Claim| matches!(claim.scope, Scope::Range { .. });
        let files = at.holds.values().filter(|hold| hold.claims.iter().any(is_bytes)).count();
        let action = rng.weighted(&[
            (if holds < HOLDS_MAX { 50 } else { 0 }, Deed::Acquire),
            (if_any(at.recent.len(), 5), Deed::Repeat),
            (if_any(at.places.len(), 30), Deed::Return),
            (if_any(holds, unless_plain(2)), Deed::Reclaim),
            (if_any(holds, 30), Deed::Release),
            (if_any(holds, 6), Deed::Renew),
            (if_any(holds, 10), Deed::Write),
            (unless_plain(if sessions < SESSIONS_MAX { opens + 1 } else { 1 }), Deed::Open),
            (if_any(sessions, 4), Deed::KeepAlive),
            (if_any(sessions, 4), Deed::Close),
            (if_any(sessions, 3), Deed::Attach),
            (if_any(sessions, 2), Deed::Disconnect),
            (if_any(sessions, 5) + if_any(files, if_shared(8)), Deed::Unlock),
            (if_shared(6), Deed::Simple),
            (3, Deed::AcceptFence),
            (unless_plain(1), Deed::Break),
            (unless_plain(1), Deed::BreakSession),
            (unless_plain(1), Deed::RemoveFile),
            (8, Deed::Look),
            (4, Deed::Nothing),
        ]);
        let Some(call) = self.call_for(client, action, rng) else { return false };
        self.put_call(client, call, true);
        true
    }

    fn call_for(&mut self, client: usize, action: Deed, rng: &mut Rng) -> Option<Call> {
        let command = match action {
            Deed::Acquire => Command::Acquire(self.acquire(client, rng)),
            Deed::Repeat => Command::Acquire(self.repeat(client, rng)?),
            Deed::Return => Command::Acquire(self.come_back(client, rng)?),
            Deed::Reclaim => Command::Acquire(self.reclaim(client, rng)?),
            Deed::Release => {
                let hold = self.hold_of(client, rng)?;
                let mut release = release_of(&hold);
                self.spoil(client, rng, &hold, (&mut release.owner, &mut release.fence));
                Command::Release(release)
            }
            Deed::Renew => {
                let hold = self.hold_of(client, rng)?;
                let mut renew = renew_of(&hold);
                self.spoil(client, rng, &hold, (&mut renew.owner, &mut renew.fence));
                let changes = !self.plan.work.plain && rng.percent(40);
                renew.ttl = changes.then(|| self.ttl(rng));
                Command::Renew(renew)
            }
            Deed::Write => {
                let hold = self.hold_of(client, rng)?;
                self.write(&hold);
                return None;
            }
            Deed::Open => Command::OpenSession(self.open(client, rng)),
            Deed::KeepAlive => {
                let session = self.lease_of(client, rng)?;
                let ttl = rng.percent(50).then(|| self.ttl(rng));
                Command::KeepAlive(KeepAlive {
                    namespace: session.namespace,
                    principal: principal_of(client),
                    session: session.id,
                    ttl,
                })
            }
            Deed::Close => {
                let session = self.lease_of(client, rng)?;
                Command::CloseSession(CloseSession {
                    namespace: session.namespace,
                    principal: principal_of(client),
                    session: session.id,
                })
            }
            Deed::Attach => {
                let session = self.session_of(client, rng)?;
                Command::Attach(Attach {
                    namespace: session.namespace,
                    principal: principal_of(client),
                    session: session.id,
                })
            }
            Deed::Disconnect => {
                let session = self.session_of(client, rng)?;
                Command::Disconnect(Disconnect {
                    namespace: session.namespace,
                    principal: principal_of(client),
                    session: session.id,
                })
            }
            Deed::Unlock => Command::Unlock(self.unlock(client, rng)?),
            Deed::Simple => Command::ByOwner(self.simple(client, rng)),
            Deed::AcceptFence => self.accept_fence(client, rng),
            Deed::Break => Command::Break(Break {
                namespace: Namespace::default(),
                scope: claim(rng, &self.plan.work).scope,
                fence: None,
                reason: self.reason(client),
            }),
            Deed::BreakSession => {
                let namespace = Namespace::default();
                let sessions = self.judge.log.table().sessions(&namespace, 0, 10);
                let number = sessions.get(rng.index(sessions.len()))?.number;
                Command::BreakSession(BreakSession {
                    namespace,
                    number,
                    reason: self.reason(client),
                })
            }
            Deed::RemoveFile => Command::RemoveFile(RemoveFile {
                namespace: Namespace::default(),
                inode: 1 + rng.below(2),
            }),
            Deed::Look => return Some(Call::Query(self.query(client, rng))),
            Deed::Nothing => return None,
        };
        Some(Call::Command(command))
    }

    /// Like no other, so that the log tells who broke a lock.
    fn reason(&self, client: usize) -> Arc<str> {
        let at = &self.clients[client];
        format!("operator {client}, life {}, action {}", at.life, at.actions).into()
    }

    fn hold_of(&self, client: usize, rng: &mut Rng) -> Option<Hold> {
        let at = &self.clients[client];
        at.holds.values().nth(rng.index(at.holds.len())).cloned()
    }

    /// A session, or the lease of a single grant.
    fn lease_of(&self, client: usize, rng: &mut Rng) -> Option<Session> {
        if self.plan.work.shares && rng.percent(30) {
            let Hold { namespace, lease: id, ttl, keep, .. } = self.hold_of(client, rng)?;
            return Some(Session { namespace, id, ttl, keep });
        }
        self.session_of(client, rng)
    }

    /// Who it says it is when it locks these: where names are shared, all clients often say the same when they lock bytes,
    /// each under leases of its own.
    fn says_it_is(&self, client: usize, claims: &[Claim], rng: &mut Rng) -> Owner {
        let are_bytes = claims.iter().all(|claim| matches!(claim.scope, Scope::Range { .. }));
        if self.plan.work.shares && are_bytes && rng.percent(60) {
            return everybody(client);
        }
        self.clients[client].owner.clone()
    }

    fn unlock(&self, client: usize, rng: &mut Rng) -> Option<Unlock> {
        if self.plan.work.shares && (self.clients[client].sessions.is_empty() || rng.percent(60)) {
            let hold = self.hold_of(client, rng)?;
            let Scope::Range { inode, range: held } = hold.claims[0].scope else { return None };
            // Mostly a part of what it holds.
            let start = held.start() + rng.below(3).min(held.last() - held.start());
            let length = rng.between(1, 3);
            let part = ByteRange::half_open(start, Some(start + length));
            return Some(Unlock {
                namespace: hold.namespace,
                session: hold.lease,
                owner: hold.owner,
                inode,
                range: part.expect("not empty"),
            });
        }
        let session = self.session_of(client, rng)?;
        let owner = self.clients[client].owner.clone();
        let (inode, range) = (1 + rng.below(2), range(rng));
        let (namespace, session) = (session.namespace, session.id);
        Some(Unlock { namespace, session, owner, inode, range })
    }

    fn simple(&self, client: usize, rng: &mut Rng) -> ByOwner {
        let at = &self.clients[client];
        let Scope::Key(key) = simple(rng.below(2)) else { unreachable!("a name") };
        let owner = if rng.percent(70) { at.owner.clone() } else { everybody(client) };
        let action = if rng.percent(65) {
            let window = if rng.percent(30) { self.plan.ttl / 4 } else { 0 };
            OwnerAction::Hold {
                lease: self.fresh_lease(client, at.next_number + 1),
                ttl: self.ttl(rng),
                reclaim_window: Duration::from_millis(window / 1000),
            }
        } else {
            OwnerAction::Release
        };
        ByOwner { namespace: Namespace::default(), key, owner, action }
    }

    /// Now and then something is wrong.
    fn spoil(
        &self,
        client: usize,
        rng: &mut Rng,
        hold: &Hold,
        (owner, fence): (&mut Owner, &mut FencingToken),
    ) {
        match rng.below(40) {
            0 if rng.percent(50) => *owner = Owner::new("somebody").expect("a plain name"),
            // The same owner id of another principal.
            0 => {
                let principal = principal_of(client + 1);
                *owner = Owner::of(&principal, owner.as_str()).expect("it is a name");
            }
            1 => *fence = FencingToken::new(fence.get().saturating_sub(1)).unwrap_or(*fence),
            2 => *fence = FencingToken::new(fence.get() + 1).unwrap_or(*fence),
            3..=9 if self.plan.work.shares => {
                // Any between its own: some were issued to others.
                let held = self.clients[client].holds.values();
                let mine =
                    held.filter(|held| held.lease == hold.lease).map(|held| held.fence.get());
                let (least, most) = mine.fold((fence.get(), fence.get()), |(least, most), mine| {
                    (least.min(mine), most.max(mine))
                });
                *fence = FencingToken::new(rng.between(least, most)).unwrap_or(*fence);
            }
            _ => {}
        }
    }

    fn session_of(&self, client: usize, rng: &mut Rng) -> Option<Session> {
        let at = &self.clients[client];
        let mut session = at.sessions.values().nth(rng.index(at.sessions.len()))?.clone();
        if rng.percent(3) {
            let unknown = || self.fresh_lease(client, u64::MAX - at.actions);
            let others = self.session_of_another_principal(client).filter(|_| rng.percent(70));
            session.id = others.unwrap_or_else(unknown);
        }
        Some(session)
    }

    fn session_of_another_principal(&self, client: usize) -> Option<LeaseId> {
        let others =
            (0..self.clients.len()).filter(|other| principal_of(*other) != principal_of(client));
        let mut sessions = others.flat_map(|other| self.clients[other].sessions.values());
        sessions.next().map(|session| session.id)
    }

    fn ttl(&self, rng: &mut Rng) -> Duration {
        let ttl = self.plan.ttl;
        let length: Micros = if rng.percent(2) {
            *rng.pick(&[ttl * 3, ttl / 40])
        } else {
            *rng.pick(&[ttl, ttl, ttl, ttl / 2, ttl * 2, ttl / 4])
        };
        Duration::from_millis(length / 1000)
    }

    fn wait(&self, rng: &mut Rng) -> Wait {
        let ttl = Duration::from_micros(self.plan.ttl);
        if !rng.percent(self.plan.work.waits) {
            return Wait::Never;
        }
        match rng.below(40) {
            0 => Wait::UpTo(ttl * 5),
            1..=19 => Wait::Forever,
            _ => {
                Wait::UpTo(Duration::from_micros(rng.spread(self.plan.ttl / 50, self.plan.ttl * 2)))
            }
        }
    }

    fn acquire(&mut self, client: usize, rng: &mut Rng) -> Acquire {
        let work = self.plan.work;
        let mut claims = vec![claim(rng, &work)];
        if rng.percent(work.sets) {
            for _ in 0..rng.between(1, 2) {
                let more = claim(rng, &work);
                let overlaps = claims.iter().any(|claim| claim.scope.overlaps(&more.scope));
                if !overlaps || rng.percent(4) {
                    claims.push(more);
                }
            }
        }
        match rng.below(400) {
            0 => claims.clear(),
            1 => claims = vec![claims[0].clone(); 4],
            _ => {}
        }
        let owner = self.says_it_is(client, &claims, rng);
        let at = &self.clients[client];
        let session = at.sessions.values().nth(rng.index(at.sessions.len()));
        let session = session.filter(|_| rng.percent(work.sessions.max(20)));
        let (namespace, under) = match session {
            Some(session) => (session.namespace.clone(), Under::Session(session.id)),
            None => {
                let id = self.fresh_lease(client, at.next_number + 1);
                let namespace = namespace(rng);
                let namespace = if work.plain { Namespace::default() } else { namespace };
                (namespace, Under::NewLease { id, ttl: self.ttl(rng) })
            }
        };
        let wait = self.wait(rng);
        let window = match rng.below(40) {
            0 => self.plan.ttl * 2,
            1..=8 if !work.plain => self.plan.ttl / 4,
            _ => 0,
        };
        let request_id = rng.percent(work.known).then(|| request_id(client, at.life, at.actions));
        // A server that has forgotten everything can but believe whoever says that it held a lock.
        let is_believed = self.plan.store.forgets;
        let acquire = Acquire {
            call: NO_CALL,
            namespace,
            owner,
            claims,
            under,
            wait,
            keep_place: wait != Wait::Never && rng.percent(15),
            ticket: None,
            request_id,
            reclaim_window: Duration::from_millis(window / 1000),
            reclaim: !work.plain && rng.percent(2) && !is_believed,
            metadata: rng.percent(5).then(|| {
                Arc::from(if rng.percent(20) { "far too much to be kept" } else { "a note" })
            }),
        };
        if acquire.request_id.is_some() {
            let recent = &mut self.clients[client].recent;
            recent.insert(0, acquire.clone());
            recent.truncate(3);
        }
        acquire
    }

    fn repeat(&self, client: usize, rng: &mut Rng) -> Option<Acquire> {
        let recent = &self.clients[client].recent;
        let mut acquire = recent.get(rng.index(recent.len()))?.clone();
        self.renew_lease_id(client, &mut acquire);
        if rng.percent(25) {
            acquire.claims = vec![claim(rng, &self.plan.work)];
        }
        Some(acquire)
    }

    fn renew_lease_id(&self, client: usize, acquire: &mut Acquire) {
        if let Under::NewLease { id, .. } = &mut acquire.under {
            *id = self.fresh_lease(client, self.clients[client].next_number + 1);
        }
    }

    fn come_back(&mut self, client: usize, rng: &mut Rng) -> Option<Acquire> {
        let (ticket, mut acquire) = self.clients[client].places.pop()?;
        self.renew_lease_id(client, &mut acquire);
        let mut shown = ticket;
        if rng.percent(10) {
            shown.ticket.0 += 1000;
        } else if rng.percent(5) {
            shown.secret ^= 1;
        }
        acquire.ticket = Some(shown);
        acquire.wait = self.wait(rng);
        acquire.keep_place &= acquire.wait != Wait::Never;
        Some(acquire)
    }

    /// Takes up what it held before its server was gone, in case it was.
    fn reclaim(&self, client: usize, rng: &mut Rng) -> Option<Acquire> {
        let Hold { namespace, owner, mut claims, lease, fence, .. } = self.hold_of(client, rng)?;
        if rng.percent(20) {
            // All that stands under its lease, though it was not granted together.
            let others = self.clients[client].holds.values();
            let others = others.filter(|at| (at.lease, &at.owner) == (lease, &owner));
            let others = others.filter(|at| at.fence != fence);
            claims.extend(others.flat_map(|other| other.claims.clone()));
        }
        Some(Acquire {
            call: NO_CALL,
            namespace,
            owner,
            claims,
            under: Under::Session(lease),
            wait: Wait::Never,
            keep_place: false,
            ticket: None,
            request_id: None,
            reclaim_window: Duration::ZERO,
            reclaim: true,
            metadata: None,
        })
    }

    fn open(&self, client: usize, rng: &mut Rng) -> OpenSession {
        let at = &self.clients[client];
        let keep = match rng.below(30) {
            0 => OnDisconnect::Keep(Duration::from_micros(self.plan.ttl * 3)),
            1..=15 => OnDisconnect::Keep(Duration::from_millis(self.plan.ttl / 2000)),
            _ => OnDisconnect::Release,
        };
        OpenSession {
            namespace: namespace(rng),
            id: self.fresh_lease(client, at.next_number + 1),
            owner: at.owner.clone(),
            ttl: self.ttl(rng),
            adapter: Adapter::new(if rng.percent(80) { "grpc" } else { "nlm" })
                .expect("a plain name"),
            on_disconnect: keep,
            request_id: None,
            metadata: None,
        }
    }

    fn accept_fence(&self, client: usize, rng: &mut Rng) -> Command {
        let at = &self.clients[client];
        let held = at.holds.values().nth(rng.index(at.holds.len())).map(|hold| hold.fence);
        let fence = match held {
            // One that was never issued, or not yet.
            Some(fence) if self.plan.work.shares && rng.percent(15) => {
                let ahead = if rng.percent(70) { rng.between(1, 40) } else { 1 << 52 };
                FencingToken::new(fence.get() + ahead).unwrap_or(FencingToken::MAX)
            }
            Some(fence) if rng.percent(80) => fence,
            Some(_) | None => FencingToken::new(rng.below(50)).unwrap_or(FencingToken::ZERO),
        };
        let register = format!("register-{}", rng.below(4));
        let register = RegisterName::new(&register).expect("a plain name");
        let namespace = Namespace::default();
        if rng.percent(15) {
            return Command::DeleteFence(DeleteFence {
                namespace,
                register,
                reason: self.reason(client),
            });
        }
        let principal = principal_of(client);
        Command::AcceptFence(AcceptFence { namespace, register, principal, fence })
    }

    fn query(&self, client: usize, rng: &mut Rng) -> Query {
        let at = &self.clients[client];
        let namespace = Namespace::default();
        let wanted = claim(rng, &self.plan.work);
        let principal = principal_of(client);
        let held = at.holds.values().nth(rng.index(at.holds.len()));
        match rng.below(11) {
            0 => Query::Get { namespace, scope: wanted.scope },
            1 => Query::Test { namespace, owner: at.owner.clone(), lease: None, claim: wanted },
            2 => {
                let fence = held.map_or(FencingToken::ZERO, |hold| hold.fence);
                let scope = held.map_or(wanted.scope, |hold| hold.claims[0].scope.clone());
                Query::Check { namespace, scope, fence, lease: held.map(|hold| hold.lease) }
            }
            3 => Query::List(ListQuery {
                namespace,
                prefix: String::new(),
                owner: None,
                session: None,
                within: None,
                inode: None,
                state: None,
                after: None,
                len_max: 10,
                looked_at_max: 100,
            }),
            4 => match at.sessions.values().next() {
                Some(session) => {
                    let (namespace, id) = (session.namespace.clone(), session.id);
                    Query::Session { namespace, principal, id }
                }
                None => Query::Session { namespace, principal, id: self.fresh_lease(client, 0) },
            },
            5 => Query::Sessions { namespace, after: 0, len_max: 10 },
            6 => {
                let register = RegisterName::new("register-0").expect("a plain name");
                if rng.percent(40) {
                    Query::Registers { namespace, after: Some(register), len_max: 10 }
                } else {
                    Query::Register { namespace, register }
                }
            }
            7 => Query::Graph { namespace, waits_max: 100 },
            8 => Query::Overview { namespace, len_max: 10 },
            9 => Query::Tree(TreeQuery {
                namespace,
                prefix: String::new(),
                after: None,
                len_max: 10,
                looked_at_max: 100,
            }),
            _ => Query::Stats,
        }
    }

    /// Uses what it holds.
    fn write(&mut self, hold: &Hold) {
        self.write_to(&hold.namespace, &hold.claims[0], hold.fence);
    }

    /// Writes to what the lock guards.
    pub(super) fn write_to(&mut self, namespace: &Namespace, claim: &Claim, fence: FencingToken) {
        let is_guarded = claim.mode == Mode::Exclusive && matches!(claim.scope, Scope::Key(_));
        if is_guarded {
            let place = (namespace, &claim.scope);
            let written = self.judge.write(self.now, place, fence, &mut self.coverage);
            written.unwrap_or_else(|verdict| self.judge.accuse(verdict));
        }
    }
}

/// A name that all clients of a principal share.
fn everybody(client: usize) -> Owner {
    Owner::of(&principal_of(client), "everybody").expect("a plain name")
}

fn request_id(client: usize, life: u64, action: u64) -> RequestId {
    RequestId::new(&format!("{client}-{life}-{action}")).expect("a plain name")
}
