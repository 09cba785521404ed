//! The same processes as owners in a `LockTable`.
//!
//! A process is an owner. Either each has a session of its own, which is closed when the process ends, or all are owners
//! under one session, as with a mount, and what an owner holds is unlocked when its process ends.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::invariant::{check_all, check_step};
use leasehold_core::{
    Acquire, Adapter, Answer, ByteRange, CallId, Cancel, Claim, CloseSession, Command, Effect,
    FencingToken, LeaseId, Limits, ListQuery, LockTable, Mode, Namespace, OnDisconnect,
    OpenSession, Outcome, Owner, Principal, Refusal, Release, Scope, Step as TableStep, Ticket,
    Timestamp, Under, Unlock, Wait, WaitEdge,
};

use super::step::{Act, Step};
use super::wire::{Kind, Order};

/// Long enough never to matter here.
const TTL: Duration = Duration::from_secs(12 * 60 * 60);

#[derive(Clone, Debug)]
pub(crate) struct Mirror {
    table: LockTable,
    inode: u64,
    parties: Vec<Party>,
    one_session: bool,
    /// Numbers owners, sessions and calls; doubles as the time.
    last_number: u64,
}

#[derive(Clone, Debug)]
struct Party {
    owner: Owner,
    session: LeaseId,
    waiting: Option<CallId>,
    flock: Option<(Kind, FencingToken)>,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) range: ByteRange,
    pub(crate) mode: Mode,
    pub(crate) ticket: Ticket,
}

/// What the table says to a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) verdict: Verdict,
    /// The processes whose waiting request was granted.
    pub(crate) woken: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Done,
    Conflict,
    Waits,
    Deadlock(Vec<WaitEdge>),
    /// `F_GETLK`: whether anything is in the way.
    Tested {
        free: bool,
    },
    /// The process has gone.
    Gone,
}

impl Mirror {
    pub(crate) fn new(inode: u64, len: usize, one_session: bool) -> Mirror {
        let mut mirror = Mirror {
            table: LockTable::new(Limits::default(), 1),
            inode,
            parties: Vec::new(),
            one_session,
            last_number: 0,
        };
        for _ in 0..len {
            let party = mirror.new_party();
            mirror.parties.push(party);
        }
        mirror
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn new_party(&mut self) -> Party {
        let number = self.number();
        let owner = Owner::new(&format!("process {number}")).expect("a short name");
        let shared = self.parties.first().filter(|_| self.one_session);
        let session = shared.map(|first| first.session);
        let session = session.unwrap_or_else(|| self.open_session(&owner));
        Party { owner, session, waiting: None, flock: None }
    }

    fn open_session(&mut self, owner: &Owner) -> LeaseId {
        let id = LeaseId::from_u128(u128::from(self.number()));
        let open = OpenSession {
            namespace: Namespace::default(),
            id,
            owner: owner.clone(),
            ttl: TTL,
            adapter: Adapter::new("fuse").expect("a short name"),
            on_disconnect: OnDisconnect::Release,
            request_id: None,
            metadata: None,
        };
        let (outcome, _) = self.handle(Command::OpenSession(open));
        assert!(matches!(outcome, Outcome::Answered(_)), "{outcome:?}");
        id
    }

    /// Hands a command to the table and holds the table to its promises.
    fn handle(&mut self, command: Command) -> (Outcome, Vec<usize>) {
        let now = Timestamp::from_millis(self.number());
        let before = self.table.clone();
        let mut step = TableStep::new();
        let outcome = self.table.handle(now, command, &mut step);
        check_all(&self.table).expect("a table keeps its promises");
        check_step(&before, &self.table, &step).expect("a step keeps its promises");
        (outcome, self.woken(&step))
    }

    fn woken(&mut self, step: &TableStep) -> Vec<usize> {
        let mut woken = Vec::new();
        for effect in &step.effects {
            let answered = match effect {
                Effect::Granted { call, .. } | Effect::Refused { call, .. } => *call,
                Effect::Lost { .. } | Effect::Wanted { .. } | Effect::Event(_) => continue,
            };
            let mut parties = self.parties.iter_mut().enumerate();
            let (process, party) = parties
                .find(|(_, party)| party.waiting == Some(answered))
                .expect("only those who wait are answered");
            party.waiting = None;
            if matches!(effect, Effect::Granted { .. }) {
                woken.push(process);
            }
        }
        woken.sort_unstable();
        woken
    }

    pub(crate) fn apply(&mut self, step: Step) -> Said {
        let process = step.process;
        let (verdict, woken) = match step.act {
            Act::Order(Order::Lock { wait, kind, span }) => {
                self.lock(process, wait, kind, span.bytes())
            }
            Act::Order(Order::Unlock(span)) => (Verdict::Done, self.unlock(process, span.bytes())),
            // Whatever descriptor was closed, everything goes.
            Act::Order(Order::Close(_)) => (Verdict::Done, self.unlock(process, ByteRange::ALL)),
            Act::Order(Order::Test { kind, span }) => {
                let free = self.is_free(process, kind, span.bytes());
                (Verdict::Tested { free }, Vec::new())
            }
            Act::Order(Order::Flock(kind)) => (self.flock(process, kind), Vec::new()),
            Act::Interrupt => (Verdict::Gone, self.cancel(process)),
            Act::Exit | Act::Kill => (Verdict::Gone, self.end(process)),
        };
        Said { verdict, woken }
    }

    fn claim(&self, kind: Kind, range: ByteRange) -> Claim {
        Claim { scope: Scope::range(self.inode, range), mode: kind.mode() }
    }

    fn acquire(&mut self, process: usize, claim: Claim, wait: Wait) -> (Outcome, Vec<usize>) {
        let call = CallId(self.number());
        let party = &mut self.parties[process];
        // Known before the answer: nobody is woken by a request that starts to wait.
        party.waiting = Some(call);
        let acquire = Acquire {
            call,
            namespace: Namespace::default(),
            owner: party.owner.clone(),
            claims: vec![claim],
            under: Under::Session(party.session),
            wait,
            keep_place: false,
            ticket: None,
            request_id: None,
            reclaim_window: Duration::ZERO,
            reclaim: false,
            metadata: None,
        };
        let (outcome, woken) = self.handle(Command::Acquire(acquire));
        if !matches!(outcome, Outcome::Queued(_)) {
            self.parties[process].waiting = None;
        }
        (outcome, woken)
    }

    fn lock(
        &mut self,
        process: usize,
        wait: bool,
        kind: Kind,
        range: ByteRange,
    ) -> (Verdict, Vec<usize>) {
        let wait = if wait { Wait::Forever } else { Wait::Never };
        let (outcome, woken) = self.acquire(process, self.claim(kind, range), wait);
        let verdict = match outcome {
            Outcome::Answered(_) => Verdict::Done,
            Outcome::Queued(_) => Verdict::Waits,
            Outcome::Refused(Refusal::Held(_)) => Verdict::Conflict,
            Outcome::Refused(Refusal::Deadlock { cycle }) => Verdict::Deadlock(cycle.to_vec()),
            Outcome::Refused(refusal) => panic!("no such refusal was to be had: {refusal}"),
        };
        (verdict, woken)
    }

    fn unlock(&mut self, process: usize, range: ByteRange) -> Vec<usize> {
        let party = &self.parties[process];
        let unlock = Unlock {
            namespace: Namespace::default(),
            session: party.session,
            owner: party.owner.clone(),
            inode: self.inode,
            range,
        };
        let (outcome, woken) = self.handle(Command::Unlock(unlock));
        let unlocked = matches!(outcome, Outcome::Answered(Answer::Unlocked { .. }));
        assert!(unlocked, "{outcome:?}");
        woken
    }

    /// Whether a process could lock these bytes; if not, the table must name something that is in the way.
    fn is_free(&self, process: usize, kind: Kind, range: ByteRange) -> bool {
        let Party { owner, session, .. } = &self.parties[process];
        let claim = self.claim(kind, range);
        let found = self.table.test(&Namespace::default(), owner, Some(*session), &claim);
        // Linux lets a request pass those who wait.
        let Some(found) = found.expect("no strict grace is on").conflict else {
            return true;
        };
        let holder = self.process_of(&found.owner);
        let named = (holder, bytes_of(&found.scope), Kind::of(found.mode));
        let known = self.conflicting(process, kind, range);
        assert!(known.contains(&named), "{named:?} is not in the way");
        false
    }

    /// All pieces of others that keep a process from locking these bytes.
    pub(crate) fn conflicting(
        &self,
        process: usize,
        kind: Kind,
        range: ByteRange,
    ) -> Vec<(usize, ByteRange, Kind)> {
        let mut pieces = self.pieces();
        pieces.retain(|&(holder, held, mode)| {
            holder != process && held.overlaps(range) && mode.conflicts_with(kind.mode())
        });
        let named = pieces.into_iter();
        named.map(|(p, r, m)| (p, r, Kind::of(m))).collect()
    }

    fn flock(&mut self, process: usize, kind: Option<Kind>) -> Verdict {
        if self.parties[process].flock.map(|(held, _)| held) == kind {
            return Verdict::Done;
        }
        // The kernel, too, drops the old lock first, and does not give it back if the new one is not to be had.
        self.drop_flock(process);
        let Some(kind) = kind else {
            return Verdict::Done;
        };
        let claim = Claim { scope: self.flock_scope(), mode: kind.mode() };
        let (outcome, woken) = self.acquire(process, claim, Wait::Never);
        assert!(woken.is_empty(), "nobody waits for a flock here");
        match outcome {
            Outcome::Answered(Answer::Granted(grant)) => {
                self.parties[process].flock = Some((kind, grant.fence));
                Verdict::Done
            }
            Outcome::Refused(Refusal::Held(_)) => Verdict::Conflict,
            Outcome::Answered(_) | Outcome::Queued(_) | Outcome::Refused(_) => {
                panic!("{outcome:?}")
            }
        }
    }

    fn drop_flock(&mut self, process: usize) {
        let scope = self.flock_scope();
        let party = &mut self.parties[process];
        let Some((_, fence)) = party.flock.take() else {
            return;
        };
        let release = Release {
            namespace: Namespace::default(),
            scope,
            owner: party.owner.clone(),
            lease: party.session,
            fence,
        };
        let (outcome, woken) = self.handle(Command::Release(release));
        assert!(matches!(outcome, Outcome::Answered(_)), "{outcome:?}");
        assert!(woken.is_empty(), "nobody waits for a flock here");
    }

    fn flock_scope(&self) -> Scope {
        Scope::parse(&format!("flock:{}", self.inode)).expect("a name")
    }

    fn cancel(&mut self, process: usize) -> Vec<usize> {
        let Some(call) = self.parties[process].waiting.take() else {
            return Vec::new();
        };
        let namespace = Namespace::default();
        let (outcome, woken) =
            self.handle(Command::Cancel(Cancel { namespace, call, keep_place: false }));
        let waited = Outcome::Answered(Answer::Cancelled { waiting: true });
        assert_eq!(outcome, waited);
        woken
    }

    /// The process is over, and a new one takes its place.
    fn end(&mut self, process: usize) -> Vec<usize> {
        let mut woken = Vec::new();
        if self.one_session {
            woken.extend(self.cancel(process));
            woken.extend(self.unlock(process, ByteRange::ALL));
            self.drop_flock(process);
        } else {
            let close = CloseSession {
                namespace: Namespace::default(),
                principal: Principal::ANONYMOUS,
                session: self.parties[process].session,
            };
            woken.extend(self.handle(Command::CloseSession(close)).1);
        }
        self.parties[process] = self.new_party();
        woken.sort_unstable();
        woken
    }

    /// The table as it would be if nobody waited.
    pub(crate) fn without_waiters(&self) -> Mirror {
        let mut bare = self.clone();
        let mut waiting: Vec<(Ticket, usize)> =
            self.waiting().into_iter().map(|(process, wanted)| (wanted.ticket, process)).collect();
        // The last to come is in nobody's way.
        waiting.sort_unstable_by(|one, other| other.cmp(one));
        for (_, process) in waiting {
            let woken = bare.cancel(process);
            assert!(woken.is_empty(), "nobody waited for the last in the queue");
        }
        bare
    }

    pub(crate) fn len(&self) -> usize {
        self.parties.len()
    }

    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    pub(crate) fn sessions(&self) -> &'static str {
        if self.one_session { "one session for all" } else { "a session each" }
    }

    pub(crate) fn is_waiting(&self, process: usize) -> bool {
        self.parties[process].waiting.is_some()
    }

    pub(crate) fn process_of(&self, owner: &Owner) -> usize {
        let found = self.parties.iter().position(|party| party.owner == *owner);
        found.expect("every owner is a process")
    }

    /// The byte-range locks of the file, as the table lists them.
    pub(crate) fn pieces(&self) -> Vec<(usize, ByteRange, Mode)> {
        let query = ListQuery {
            namespace: Namespace::default(),
            prefix: String::new(),
            owner: None,
            session: None,
            within: None,
            inode: Some(self.inode),
            state: None,
            after: None,
            len_max: usize::MAX,
            looked_at_max: usize::MAX,
        };
        let page = self.table.list(&query);
        let holders = page.locks.iter().flat_map(|lock| &lock.holders);
        holders.map(|h| (self.process_of(&h.owner), bytes_of(&h.scope), h.mode)).collect()
    }

    pub(crate) fn pieces_of(&self, process: usize) -> Vec<(ByteRange, Mode)> {
        let pieces = self.pieces().into_iter();
        let own = pieces.filter(|&(holder, ..)| holder == process);
        own.map(|(_, range, mode)| (range, mode)).collect()
    }

    pub(crate) fn flocks(&self) -> Vec<(usize, Kind)> {
        let view = self.table.get(&Namespace::default(), &self.flock_scope());
        let holders = view.holders.iter();
        holders.map(|holder| (self.process_of(&holder.owner), Kind::of(holder.mode))).collect()
    }

    pub(crate) fn waiting(&self) -> BTreeMap<usize, Wanted> {
        let view = self.table.get(&Namespace::default(), &Scope::inode(self.inode));
        let waiters = view.waiters.iter();
        waiters
            .map(|waiter| {
                let wanted = Wanted {
                    range: bytes_of(&waiter.scope),
                    mode: waiter.mode,
                    ticket: waiter.ticket,
                };
                (self.process_of(&waiter.owner), wanted)
            })
            .collect()
    }
}

fn bytes_of(scope: &Scope) -> ByteRange {
    match scope {
        Scope::Range { range, .. } => *range,
        Scope::Key(key) => panic!("{key:?} is no range"),
    }
}
