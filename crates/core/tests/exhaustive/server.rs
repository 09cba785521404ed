//! The server of the small world: a real `LockTable`, and what it looks like from outside.

use std::time::Duration;

use leasehold_core::{
    Command, Entry, HolderState, LeaseEntry, LeaseId, Limits, ListQuery, LockTable, Mode,
    Namespace, Outcome, Owner, PieceEntry, RegisterName, Request, Scope, Step, Timestamp,
};

/// A table and the view of it. States of the world share them until a command changes the table.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) table: LockTable,
    pub(crate) view: View,
}

/// Everything about a table that its further behaviour depends on, in absolute numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    /// The last fence handed out.
    pub(crate) fence: u64,
    pub(crate) register: u64,
    /// By lease and scope.
    pub(crate) held: Vec<Held>,
    /// By place.
    pub(crate) waiters: Vec<(u64, Option<u64>)>,
    /// When the recovery grace ends.
    pub(crate) grace: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) lease: u64,
    pub(crate) owner: u8,
    pub(crate) scope: Scope,
    pub(crate) mode: Mode,
    pub(crate) fences: (u64, u64),
    pub(crate) state: HolderState,
    /// When the lease lapses, or, in a reclaim window, when that ends.
    pub(crate) deadline: u64,
    pub(crate) window: u32,
    pub(crate) ttl: u32,
    /// The attempt it was granted to, if a retry is to be known by it.
    pub(crate) attempt: Option<u64>,
}

impl Held {
    /// Whether its holder may still act on it.
    pub(crate) fn is_alive(&self, now: u64) -> bool {
        self.state != HolderState::ReclaimWindow && self.deadline >= now
    }

    /// Whether a client that shows these may renew or release it.
    pub(crate) fn honours(&self, lease: u64, owner: u8, scope: &Scope, fence: u64) -> bool {
        let proven = self.lease == lease && self.owner == owner;
        let known = match scope {
            Scope::Key(_) => self.scope == *scope && self.fences.1 == fence,
            Scope::Range { .. } => {
                self.scope.overlaps(scope) && self.fences.0 <= fence && fence <= self.fences.1
            }
        };
        proven && known
    }
}

impl Server {
    pub(crate) fn new(deadlines_per_step_max: usize) -> Server {
        Server::of(LockTable::new(limits(deadlines_per_step_max), 1))
    }

    fn of(table: LockTable) -> Server {
        let view = View::of(&table);
        Server { table, view }
    }

    /// The server after a command, with what came of it.
    pub(crate) fn handle(&self, now: u64, command: Command) -> (Server, Outcome, Step) {
        let mut table = self.table.clone();
        let mut step = Step::new();
        let outcome = table.handle(Timestamp::from_millis(now), command, &mut step);
        // A clone takes no more room than it needs; millions of them are kept.
        (Server::of(table.clone()), outcome, step)
    }

    /// The table as it is read back from a store that has all of its transitions.
    pub(crate) fn restored(&self) -> Server {
        let limits = self.table.limits().clone();
        let table = LockTable::restore(limits, 1, self.table.entries());
        Server::of(table.expect("a table's own entries fit"))
    }
}

fn limits(deadlines_per_step_max: usize) -> Limits {
    Limits { lease_ttl_min: Duration::from_millis(1), deadlines_per_step_max, ..Limits::default() }
}

pub(crate) fn owner(client: u8) -> Owner {
    Owner::new(&char::from(b'a' + client).to_string()).expect("a short name")
}

pub(crate) fn register() -> RegisterName {
    RegisterName::new("disk").expect("a short name")
}

pub(crate) fn lease_id(number: u64) -> LeaseId {
    LeaseId::from_u128(u128::from(number))
}

pub(crate) fn lease_number(id: LeaseId) -> u64 {
    u64::try_from(id.as_u128()).expect("the world numbers its leases")
}

fn client_of(owner: &Owner) -> u8 {
    owner.as_str().as_bytes()[0] - b'a'
}

/// The request that its newest token was granted to.
fn request_of<'a>(lease: &'a LeaseEntry, piece: &PieceEntry) -> Option<&'a Request> {
    let newest = piece.tokens.last();
    let known = lease.requests.iter().find(|known| Some(&known.fence) == newest);
    known.map(|known| &known.request)
}

fn attempt_of(request: Option<&Request>) -> Option<u64> {
    request.map(|request| request.id.as_str().parse().expect("the world numbers its requests"))
}

impl View {
    fn of(table: &LockTable) -> View {
        let namespace = Namespace::default();
        let mut held = Vec::new();
        let states = states(table);
        for entry in table.entries() {
            if let Entry::Lease(lease) = entry {
                let first = held.len();
                let id = lease_number(lease.lease);
                let ttl = lease.ttl.get();
                held.extend(lease.grants.iter().map(|grant| Held {
                    lease: id,
                    owner: client_of(&grant.owner),
                    scope: Scope::Key(grant.key.clone()),
                    mode: grant.mode,
                    fences: (grant.fence.get(), grant.fence.get()),
                    state: HolderState::Held,
                    deadline: 0,
                    window: grant.reclaim_window.get(),
                    ttl,
                    attempt: attempt_of(grant.request.as_ref()),
                }));
                held.extend(lease.pieces.iter().map(|piece| Held {
                    lease: id,
                    owner: client_of(&piece.owner),
                    scope: Scope::range(piece.inode, piece.range),
                    mode: piece.mode,
                    fences: (piece.tokens[0].get(), piece.tokens[piece.tokens.len() - 1].get()),
                    state: HolderState::Held,
                    deadline: 0,
                    window: piece.reclaim_window.get(),
                    ttl,
                    attempt: attempt_of(request_of(&lease, piece)),
                }));
                for item in &mut held[first..] {
                    let known = states
                        .iter()
                        .find(|(scope, fence, ..)| *fence == item.fences.1 && *scope == item.scope);
                    let (_, _, state, deadline) = *known.expect("what lasts is listed");
                    (item.state, item.deadline) = (state, deadline);
                }
            }
        }
        held.sort_by(|one, other| (one.lease, &one.scope).cmp(&(other.lease, &other.scope)));
        let register = table.register(&namespace, &register());
        View {
            fence: table.fence().get(),
            register: register.map_or(0, leasehold_core::FencingToken::get),
            held,
            waiters: waiters(table),
            grace: table.grace().map(|grace| grace.ends_at.as_millis()),
        }
    }

    /// Those who hold something of a scope and may still act on it.
    pub(crate) fn alive(&self, now: u64) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |held| held.is_alive(now))
    }
}

/// How firmly everything that is held stands, and until when.
fn states(table: &LockTable) -> Vec<(Scope, u64, HolderState, u64)> {
    let everything = ListQuery {
        namespace: Namespace::default(),
        prefix: String::new(),
        owner: None,
        session: None,
        within: None,
        inode: None,
        state: None,
        after: None,
        len_max: usize::MAX,
        looked_at_max: usize::MAX,
    };
    let page = table.list(&everything);
    let holders = page.locks.into_iter().flat_map(|lock| lock.holders);
    holders.map(|h| (h.scope, h.fence.get(), h.state, h.deadline.as_millis())).collect()
}

/// Places in the queues, and when each runs out.
fn waiters(table: &LockTable) -> Vec<(u64, Option<u64>)> {
    if table.stats().waiters == 0 {
        return Vec::new();
    }
    let namespace = Namespace::default();
    let mut waiters = Vec::new();
    for scope in ["job", "path:/**", "inode:1"] {
        let scope = Scope::parse(scope).expect("a scope");
        for waiter in table.get(&namespace, &scope).waiters {
            waiters.push((waiter.ticket.0, waiter.deadline.map(Timestamp::as_millis)));
        }
    }
    waiters.sort_unstable();
    waiters.dedup();
    waiters
}
