//! Makes a command of a move: looks up in the model what there is to be picked.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::*;

use super::moves::{After, Ask, Move, Pick, ScopePick, Span};
use super::{Focus, World};
use crate::model::{Held, Lease, LeaseState, Past, Waiter};

pub(super) const KEYS: [&str; 7] =
    ["a", "sem", "path:/x", "path:/x/**", "path:/x/y", "path:/x/y/**", "b"];

impl World {
    pub(crate) fn moment(&self, after: After) -> Timestamp {
        let now = self.model.now.as_millis();
        Timestamp::from_millis(match after {
            After::Millis(millis) => now + u64::from(millis),
            After::At(millis) => millis,
            After::Back(millis) => now.saturating_sub(u64::from(millis)),
            After::ToDeadline(late) => match self.model.next_deadline() {
                Some(due) => (due.as_millis() + u64::from(late)).saturating_sub(1).max(now),
                None => now,
            },
        })
    }

    pub(crate) fn command(&mut self, what: &Move) -> Command {
        match what {
            Move::Acquire(ask) => self.acquire(ask),
            Move::Retry { pick, wait, change } => self.retry(*pick, *wait, *change),
            Move::Return { pick, wait, fault } => self.come_back(*pick, *wait, *fault),
            Move::Reclaim { pick, extra, fault } => self.reclaim(*pick, *extra, *fault),
            Move::TakeBack { pick, wait, reclaim } => self.take_back(*pick, *wait, *reclaim),
            Move::Renew { pick, fault, ttl } => {
                let Release { namespace, scope, owner, lease, fence } =
                    self.present(*pick, *fault, (0, 0));
                let ttl = ttl.map(ttl_of);
                Command::Renew(Renew { namespace, scope, owner, lease, fence, ttl })
            }
            Move::Release { pick, fault, range } => {
                Command::Release(self.present(*pick, *fault, *range))
            }
            Move::ByOwner { pick, owner, key, ttl, window, release } => {
                self.by_owner(*pick, owner_of(*owner), *key, (*ttl, *window), *release)
            }
            Move::Unlock { pick, inode, range, fault } => {
                self.unlock(*pick, *inode, *range, *fault)
            }
            Move::Cancel { pick, keep_place } => self.cancel(*pick, *keep_place),
            Move::OpenSession { owner, namespace, ttl, adapter, keep, request, fault } => {
                let on_disconnect = match keep {
                    0 | 1 => OnDisconnect::Release,
                    2 => OnDisconnect::Keep(Duration::from_millis(25)),
                    _ if *fault == 1 => OnDisconnect::Keep(Duration::from_secs(3600)),
                    _ => OnDisconnect::Keep(Duration::from_millis(60)),
                };
                let namespace = namespace_of(*namespace);
                let open = OpenSession {
                    id: self.new_lease(&namespace, *fault == 2),
                    namespace,
                    owner: owner_of(*owner),
                    ttl: ttl_of(*ttl),
                    adapter: Adapter::new(["http", "fuse"][usize::from(*adapter)]).unwrap(),
                    on_disconnect,
                    request_id: request.map(request_of),
                    metadata: metadata_of(if *fault == 3 { 2 } else { *fault / 4 }),
                };
                Command::OpenSession(self.as_before(open, *keep % 2 == 0))
            }
            Move::KeepAlive { pick, ttl, fault } => {
                let (namespace, principal, session) = self.own_lease_pick(*pick, *fault);
                let ttl = ttl.map(ttl_of);
                Command::KeepAlive(KeepAlive { namespace, principal, session, ttl })
            }
            Move::CloseSession { pick, fault } => {
                let (namespace, principal, session) = self.own_lease_pick(*pick, *fault);
                Command::CloseSession(CloseSession { namespace, principal, session })
            }
            Move::Attach { pick, fault } => {
                let (namespace, principal, session) = self.own_lease_pick(*pick, *fault);
                Command::Attach(Attach { namespace, principal, session })
            }
            Move::Disconnect { pick, fault } => {
                let (namespace, principal, session) = self.own_lease_pick(*pick, *fault);
                Command::Disconnect(Disconnect { namespace, principal, session })
            }
            Move::AcceptFence { namespace, register, fence, above } => {
                let (last, by) = (self.model.fence.get(), u64::from(*fence));
                let fence = if *above { last + 1 + by } else { last.saturating_sub(by) };
                Command::AcceptFence(AcceptFence {
                    namespace: namespace_of(*namespace),
                    register: register_of(*register),
                    principal: Principal::ANONYMOUS,
                    fence: FencingToken::new(fence).unwrap_or(FencingToken::MAX),
                })
            }
            Move::DeleteFence { namespace, register } => Command::DeleteFence(DeleteFence {
                namespace: namespace_of(*namespace),
                register: register_of(*register),
                reason: "stuck".into(),
            }),
            Move::Break { namespace, scope, pick } => {
                let fence = pick.and_then(|pick| picked(&self.model.held, pick));
                Command::Break(Break {
                    namespace: namespace_of(*namespace),
                    scope: self.scope_of(scope),
                    fence: fence.map(|held| held.fence()),
                    reason: Arc::from("stuck"),
                })
            }
            Move::BreakSession { pick, fault } => {
                let (namespace, id) = self.lease_pick(*pick, *fault);
                let session = self.model.lease(&namespace, id).and_then(|l| l.session.as_ref());
                let number = session.map_or(0, |session| session.terms.number);
                Command::BreakSession(BreakSession { namespace, number, reason: "stuck".into() })
            }
            Move::RemoveFile { namespace, inode } => Command::RemoveFile(RemoveFile {
                namespace: namespace_of(*namespace),
                inode: 1 + u64::from(*inode),
            }),
            Move::Withdraw { pick, fault } => self.withdraw(*pick, *fault),
            Move::BeginEpoch { stale, policy, length } => Command::BeginEpoch(BeginEpoch {
                epoch: self.epoch(*stale, 1),
                grace: [GracePolicy::Conflicting, GracePolicy::Strict, GracePolicy::StrictUnknown]
                    [usize::from(*policy)],
                grace_length: Duration::from_millis([30, 0, 10, 70][usize::from(*length)]),
            }),
            Move::Jump { stale, by } => Command::Jump(Jump {
                epoch: self.epoch(*stale, u64::from(*by) + 1),
                fence: match by {
                    &u8::MAX => FencingToken::new(FencingToken::MAX.get() - 3).unwrap(),
                    by => FencingToken::new(self.model.fence.get() + u64::from(*by) * 10)
                        .unwrap_or(FencingToken::MAX),
                },
            }),
            Move::Suspend => Command::Suspend,
            Move::Resume => Command::Resume,
            Move::Tick => Command::Tick,
        }
    }

    fn epoch(&self, stale: bool, by: u64) -> Epoch {
        Epoch(if stale { self.model.epoch.0 } else { self.model.epoch.0 + by })
    }

    fn fresh_lease(&mut self) -> LeaseId {
        self.last_lease += 1;
        LeaseId::from_u128(self.last_lease)
    }

    /// A fresh id, or one that is in use. A table in a hurry may have given out others than the model.
    fn new_lease(&mut self, namespace: &Namespace, in_use: bool) -> LeaseId {
        let mut here = self.model.leases.iter().filter(|lease| lease.namespace == *namespace);
        match here.next() {
            Some(lease) if in_use && !self.hurried => lease.id,
            Some(_) | None => self.fresh_lease(),
        }
    }

    fn fresh_call(&mut self) -> CallId {
        self.last_call += 1;
        CallId(self.last_call)
    }

    fn acquire(&mut self, ask: &Ask) -> Command {
        let namespace = namespace_of(ask.namespace);
        let claims = ask.claims.iter().map(|(scope, mode)| self.claim_of(scope, *mode));
        let claims = claims.collect();
        let under = self.under(ask, &namespace);
        let acquire = Acquire {
            call: self.fresh_call(),
            namespace,
            owner: owner_of(ask.owner),
            claims,
            under,
            wait: wait_of(ask.wait),
            keep_place: ask.keep_place,
            ticket: (ask.fault == 2)
                .then_some(SecretTicket { ticket: Ticket(1 + self.model.tickets / 2), secret: 0 }),
            request_id: ask.request.map(request_of),
            reclaim_window: window_of(ask.window),
            reclaim: ask.fault == 3,
            metadata: metadata_of(ask.metadata),
        };
        self.remember(&acquire);
        Command::Acquire(acquire)
    }

    /// The opening of a session as it was asked for before under the same request id, if that is wanted.
    fn as_before(&self, open: OpenSession, wanted: bool) -> OpenSession {
        let before = open
            .request_id
            .as_ref()
            .filter(|_| wanted)
            .and_then(|id| self.model.opened_before(&open.namespace, &open.owner, id));
        match before {
            Some((_, session)) => OpenSession { id: open.id, ..session.asked.clone() },
            None => open,
        }
    }

    fn under(&mut self, ask: &Ask, namespace: &Namespace) -> Under {
        // A plain lease will do as well, if it is the owner's.
        let principal = owner_of(ask.owner).principal();
        let here = |lease: &&Lease| {
            lease.namespace == *namespace && (lease.owner.is_of(&principal) || ask.fault == 5)
        };
        let sessions: Vec<Lease> = self.model.leases.iter().filter(here).cloned().collect();
        match ask.session.and_then(|pick| picked(&sessions, pick)) {
            Some(session) if ask.fault != 4 => Under::Session(session.id),
            Some(_) => Under::Session(LeaseId::from_u128(u128::MAX)),
            None => {
                let id = self.new_lease(namespace, ask.fault == 1);
                Under::NewLease { id, ttl: ttl_of(ask.ttl) }
            }
        }
    }

    fn remember(&mut self, acquire: &Acquire) {
        if acquire.request_id.is_some() {
            self.recent.insert(0, acquire.clone());
            self.recent.truncate(8);
        }
    }

    fn retry(&mut self, pick: Pick, wait: u8, change: bool) -> Command {
        let Some(mut again) = picked(&self.recent, pick) else {
            return Command::Tick;
        };
        again.call = self.fresh_call();
        again.wait = wait_of(wait);
        if let Under::NewLease { ttl, .. } = again.under {
            let id = self.fresh_lease();
            again.under = Under::NewLease { id, ttl };
        }
        if change {
            again.reclaim_window += Duration::from_millis(1);
        }
        Command::Acquire(again)
    }

    fn come_back(&mut self, pick: Pick, wait: u8, fault: u8) -> Command {
        let kept: Vec<Waiter> = match fault {
            // One that has not left the queue.
            5 => self.model.waiters.clone(),
            _ => self.model.kept.iter().map(|kept| kept.waiter.clone()).collect(),
        };
        let Some(waiter) = picked(&kept, pick) else {
            return Command::Tick;
        };
        let mut ask = waiter.ask.clone();
        ask.call = self.fresh_call();
        let mut shown = waiter.shown();
        match fault {
            1 if pick.is_multiple_of(2) => shown.ticket = Ticket(9999),
            1 => shown.secret += 1,
            _ => {}
        }
        ask.ticket = Some(shown);
        ask.wait = wait_of(wait);
        if fault == 2 {
            ask.owner = twin_of(&ask.owner);
        }
        if fault == 3 {
            ask.metadata = metadata_of(1);
        }
        if fault == 4 {
            ask.keep_place = false;
        }
        if let Under::NewLease { ttl, .. } = ask.under {
            let id = self.fresh_lease();
            ask.under = Under::NewLease { id, ttl };
        }
        Command::Acquire(ask)
    }

    fn reclaim(&mut self, pick: Pick, extra: Option<Pick>, fault: u8) -> Command {
        let Some(held) = picked(&self.model.held, pick) else {
            return Command::Tick;
        };
        let extra = extra.and_then(|pick| picked(&self.model.held, pick));
        let mut claims = vec![held.claim()];
        claims.extend(extra.map(|held| held.claim()));
        if fault == 1 {
            claims[0].mode = Mode::Shared;
        }
        if fault == 5
            && let Scope::Range { inode, range } = claims[0].scope
        {
            let longer = ByteRange::half_open(range.start(), None).unwrap();
            claims[0].scope = Scope::Range { inode, range: longer };
        }
        let under = match fault {
            2 => Under::NewLease { id: self.fresh_lease(), ttl: ttl_of(0) },
            3 => Under::Session(LeaseId::from_u128(u128::MAX)),
            _ => Under::Session(held.lease),
        };
        self.plain(&held, claims, under, 0, fault != 4)
    }

    fn take_back(&mut self, pick: Pick, wait: u8, reclaim: bool) -> Command {
        let open = |held: &&Held| held.window_until.is_some();
        let windows: Vec<Held> = self.model.held.iter().filter(open).cloned().collect();
        let Some(held) = picked(&windows, pick) else {
            return Command::Tick;
        };
        let under = Under::NewLease { id: self.fresh_lease(), ttl: ttl_of(0) };
        self.plain(&held, vec![held.claim()], under, wait, reclaim)
    }

    fn plain(
        &mut self,
        held: &Held,
        claims: Vec<Claim>,
        under: Under,
        wait: u8,
        reclaim: bool,
    ) -> Command {
        Command::Acquire(Acquire {
            call: self.fresh_call(),
            namespace: held.namespace.clone(),
            owner: held.owner.clone(),
            claims,
            under,
            wait: wait_of(wait),
            keep_place: false,
            ticket: None,
            request_id: None,
            reclaim_window: Duration::ZERO,
            reclaim,
            metadata: None,
        })
    }

    /// What a holder presents, or something that is not quite it.
    fn present(&mut self, pick: Pick, fault: u8, part: Span) -> Release {
        // Some repeat, or come too late.
        let past = || self.model.past.iter().rev().filter_map(Past::held).take(5).cloned();
        let late = if pick > 200 { picked(&past().collect::<Vec<_>>(), pick) } else { None };
        let Some(held) = late.or_else(|| picked(&self.model.held, pick)) else {
            return Release {
                namespace: Namespace::default(),
                scope: self.scope_of(&ScopePick { key: 0, inode: 0, range: part, kind: 0 }),
                owner: owner_of(0),
                lease: LeaseId::from_u128(u128::MAX),
                fence: FencingToken::ZERO,
            };
        };
        let fence = held.fence();
        let mut release = Release {
            namespace: held.namespace,
            scope: held.scope,
            owner: held.owner,
            lease: held.lease,
            fence,
        };
        if let Scope::Range { inode, .. } = release.scope
            && part.1 > 2
        {
            release.scope = Scope::range(inode, range_of(part));
        }
        match fault {
            1 => release.owner = twin_of(&release.owner),
            2 => release.lease = LeaseId::from_u128(u128::MAX),
            3 => release.fence = held.fences[0],
            4 => release.fence = FencingToken::new(held.fences[0].get().saturating_sub(1)).unwrap(),
            5 => release.scope = Scope::parse(KEYS[0]).unwrap(),
            _ => {}
        }
        release
    }

    /// Mostly somebody who holds the key or may take it back.
    fn by_owner(
        &mut self,
        pick: Option<Pick>,
        owner: Owner,
        key: u8,
        (ttl, window): (u8, u8),
        release: bool,
    ) -> Command {
        let keys = self.model.held.iter().filter_map(|held| match &held.scope {
            Scope::Key(key) => Some((held.namespace.clone(), key.clone(), held.owner.clone())),
            Scope::Range { .. } => None,
        });
        let keys: Vec<_> = keys.collect();
        let other = || match Scope::parse(KEYS[usize::from(key)]).unwrap() {
            Scope::Key(key) => (Namespace::default(), key, owner),
            Scope::Range { .. } => panic!("the keys have no ranges among them"),
        };
        let found = pick.and_then(|pick| picked(&keys, pick));
        let (namespace, key, owner) = found.unwrap_or_else(other);
        let action = if release {
            OwnerAction::Release
        } else {
            OwnerAction::Hold {
                lease: self.fresh_lease(),
                ttl: ttl_of(ttl),
                reclaim_window: window_of(window),
            }
        };
        Command::ByOwner(ByOwner { namespace, key, owner, action })
    }

    fn unlock(&mut self, pick: Pick, inode: u8, range: Span, fault: u8) -> Command {
        let (namespace, session) = self.lease_pick(pick, fault);
        let under = |held: &&Held| held.lease == session && held.namespace == namespace;
        let owner = self.model.held.iter().find(under).map(|held| held.owner.clone());
        Command::Unlock(Unlock {
            namespace,
            session,
            owner: owner.filter(|_| fault != 2).unwrap_or_else(|| owner_of(0)),
            inode: 1 + u64::from(inode),
            range: range_of(range),
        })
    }

    fn cancel(&mut self, pick: Pick, keep_place: bool) -> Command {
        let calls = |waiter: &Waiter| {
            let namespace = waiter.ask.namespace.clone();
            waiter.calls.iter().map(move |call| (namespace.clone(), *call)).collect::<Vec<_>>()
        };
        let calls: Vec<_> = self.model.waiters.iter().flat_map(calls).collect();
        let gone = (Namespace::default(), CallId(0));
        let (namespace, call) = picked(&calls, pick).unwrap_or(gone);
        Command::Cancel(Cancel { namespace, call, keep_place })
    }

    fn withdraw(&mut self, pick: Pick, fault: u8) -> Command {
        let Some((namespace, grant)) = picked(&self.grants, pick) else {
            return Command::Tick;
        };
        let fence = if fault == 1 { FencingToken::ZERO } else { grant.fence };
        let gained = grant.gained;
        Command::Withdraw(Withdraw { namespace, lease: grant.lease, fence, gained })
    }

    /// A lease, with its namespace and principal; sometimes shown by another principal.
    fn own_lease_pick(&self, pick: Pick, fault: u8) -> (Namespace, Principal, LeaseId) {
        let (namespace, id) = self.lease_pick(pick, fault);
        let lease = self.model.lease(&namespace, id).map(|lease| &lease.owner);
        let past = || self.model.past.iter().find(|past| past.lease == id).map(|past| &past.owner);
        let owner = lease.or_else(past).cloned().unwrap_or_else(|| owner_of(0));
        let shown_by = if fault >= 4 { twin_of(&owner) } else { owner };
        (namespace, shown_by.principal(), id)
    }

    /// A lease, with its namespace; rarely one that has lapsed, or that never was.
    fn lease_pick(&self, pick: Pick, fault: u8) -> (Namespace, LeaseId) {
        let usable = |lease: &&Lease| {
            fault == 3
                || lease.state != LeaseState::Lapsed
                    && (lease.session.is_some() || pick.is_multiple_of(5))
        };
        if pick > 225
            && let Some(past) = self.model.past.iter().rev().nth(usize::from(pick - 226) % 4)
        {
            return (past.namespace.clone(), past.lease);
        }
        let leases: Vec<Lease> = self.model.leases.iter().filter(usable).cloned().collect();
        match picked(&leases, pick) {
            Some(lease) if fault != 1 => (lease.namespace, lease.id),
            _ => (Namespace::default(), LeaseId::from_u128(u128::MAX)),
        }
    }

    /// The keys that ask with permits mostly agree on how many.
    fn claim_of(&self, scope: &ScopePick, mode: u8) -> Claim {
        let scope = self.scope_of(scope);
        let text = scope.to_string();
        let semaphore = text == KEYS[1] || text == KEYS[4] && self.focus == Focus::Permits;
        let permits = |limit| Mode::Permits(NonZeroU32::new(limit).unwrap());
        let mode = match mode {
            0 | 1 if semaphore => permits(2),
            0 => Mode::Exclusive,
            1 => Mode::Shared,
            2 if semaphore => Mode::Exclusive,
            2 | 3 if !semaphore => Mode::Shared,
            6 => permits(9),
            other => permits(u32::from(other) - 2),
        };
        Claim { scope, mode }
    }

    fn scope_of(&self, pick: &ScopePick) -> Scope {
        let key = |key: u8| Scope::parse(KEYS[usize::from(key)]).unwrap();
        let range = || Scope::range(1 + u64::from(pick.inode), range_of(pick.range));
        match (self.focus, pick.kind) {
            (_, 7) if pick.inode == 0 => Scope::inode(1),
            (Focus::Ranges, 0..=5) => Scope::range(1, range_of(pick.range)),
            (Focus::Ranges, _) => range(),
            (Focus::Keys, _) | (Focus::All, 0..=3) => key(pick.key),
            (Focus::Names, _) => key([0, 1, 6][usize::from(pick.key) % 3]),
            (Focus::Permits, 0..=4) => key(if pick.key < 4 { 1 } else { 4 }),
            (Focus::Permits, 5) => key(pick.key),
            (Focus::All | Focus::Permits, _) => range(),
        }
    }
}

fn picked<T: Clone>(all: &[T], pick: Pick) -> Option<T> {
    all.get(usize::from(pick) % all.len().max(1)).cloned()
}

/// Two owner ids, of two principals each.
fn owner_of(owner: u8) -> Owner {
    let principal = if owner < 2 { Principal::ANONYMOUS } else { Principal::new("team").unwrap() };
    Owner::of(&principal, ["ann", "bob"][usize::from(owner % 2)]).unwrap()
}

/// The same owner id of the other principal.
fn twin_of(owner: &Owner) -> Owner {
    let owners = (0..4).map(owner_of);
    let mut twins = owners.filter(|other| other.as_str() == owner.as_str() && other != owner);
    twins.next().unwrap()
}

pub(crate) fn namespace_of(namespace: u8) -> Namespace {
    Namespace::new(["default", "two", "three"][usize::from(namespace)]).unwrap()
}

fn register_of(register: u8) -> RegisterName {
    RegisterName::new(&format!("register-{register}")).unwrap()
}

fn ttl_of(ttl: u8) -> Duration {
    Duration::from_millis([40, 150, 70, 20, 100, 1][usize::from(ttl)])
}

fn window_of(window: u8) -> Duration {
    Duration::from_millis([0, 12, 40, 9999][usize::from(window)])
}

fn wait_of(wait: u8) -> Wait {
    match wait {
        0 => Wait::Never,
        1 => Wait::UpTo(Duration::from_millis(8)),
        2 => Wait::UpTo(Duration::from_millis(40)),
        3 => Wait::UpTo(Duration::ZERO),
        4 => Wait::Forever,
        _ => Wait::UpTo(Duration::from_secs(9999)),
    }
}

fn metadata_of(metadata: u8) -> Option<Arc<str>> {
    match metadata {
        0 => None,
        1 => Some(Arc::from("note")),
        _ => Some(Arc::from("more than is allowed")),
    }
}

fn range_of((start, len): Span) -> ByteRange {
    let start = u64::from(start);
    let end = (len > 0).then(|| start + u64::from(len));
    ByteRange::half_open(start, end).unwrap()
}

fn request_of(request: u8) -> RequestId {
    RequestId::new(&format!("request-{request}")).unwrap()
}
