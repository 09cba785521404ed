//! The wait-for graph as it is defined, edge by edge, to compare the quick search with: on random tables both must come
//! to the same verdict, and tell the same circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::{Cycle, Link, Requester};
use crate::budget::Budget;
use crate::command::{Acquire, Claim, Command, Under, Wait};
use crate::conflict::{Asker, Blocker, Want};
use crate::effect::Step;
use crate::id::{CallId, LeaseId, Namespace, Owner, Ticket};
use crate::mode::Mode;
use crate::namespace::NamespaceState;
use crate::owners::OwnerIdx;
use crate::scope::Scope;
use crate::table::LockTable;
use crate::time::Timestamp;

/// One claim of one waiter, and those it waits for.
#[derive(Clone, Debug)]
struct Need {
    ticket: Ticket,
    scope: Scope,
    blockers: Vec<OwnerIdx>,
    /// The number of them that must go: all, or with permits perhaps fewer.
    count: usize,
}

impl Need {
    fn is_met_by(&self, finishing: &BTreeSet<OwnerIdx>) -> bool {
        let gone = self.blockers.iter().filter(|owner| finishing.contains(owner)).count();
        gone >= self.count
    }
}

impl NamespaceState {
    fn find_cycle_edge_by_edge(
        &self,
        owner: OwnerIdx,
        requester: Option<&Requester<'_>>,
    ) -> Option<Cycle> {
        let mut graph = Graph { space: self, owner, requester, needs: BTreeMap::new() };
        let circle = graph.circle(&BTreeSet::new())?;
        if graph.has_choice() {
            let finishing = graph.finishing();
            if finishing.contains(&owner) {
                return None;
            }
            return graph.circle(&finishing);
        }
        Some(circle)
    }

    /// For each claim, the owners that this one would have to wait for.
    fn needs_of(&self, asker: Asker, claims: &[Claim]) -> Vec<Need> {
        let ticket = asker.ticket;
        let mut needs = Vec::new();
        for claim in claims {
            let found = self.blockers(claim, asker, Want::All);
            let each = self.lasting(&found.each);
            let permits = self.lasting(&found.permits);
            // Reclaim windows end by themselves: so many permits will come free.
            let free = found.permits.len() - permits.len();
            for (blockers, count) in
                [(each.clone(), each.len()), (permits, found.permits_short.saturating_sub(free))]
            {
                if count > 0 {
                    needs.push(Need { ticket, scope: claim.scope.clone(), blockers, count });
                }
            }
        }
        needs
    }

    /// The owners of blockers that go only when their owner does something.
    fn lasting(&self, blockers: &[Blocker]) -> Vec<OwnerIdx> {
        blockers
            .iter()
            .filter(|blocker| {
                let over = |lease| self.lease(lease).is_over();
                blocker.lease().is_none_or(|lease| !over(lease))
            })
            .map(Blocker::owner)
            .collect()
    }
}

/// The part of the wait-for graph that can be reached from one owner.
struct Graph<'a> {
    space: &'a NamespaceState,
    owner: OwnerIdx,
    requester: Option<&'a Requester<'a>>,
    needs: BTreeMap<OwnerIdx, Vec<Need>>,
}

impl Graph<'_> {
    /// Breadth-first from the owner back to itself, past owners that will finish anyway.
    fn circle(&mut self, finishing: &BTreeSet<OwnerIdx>) -> Option<Cycle> {
        let mut came_by: BTreeMap<OwnerIdx, Link> = BTreeMap::new();
        let mut next = VecDeque::from([self.owner]);
        while let Some(waiter) = next.pop_front() {
            for (blocker, ticket, scope) in self.neighbours(waiter, finishing) {
                if finishing.contains(&blocker) || came_by.contains_key(&blocker) {
                    continue;
                }
                came_by.insert(blocker, Link { waiter, ticket, scope, blocker });
                next.push_back(blocker);
            }
        }
        came_by.contains_key(&self.owner).then(|| self.walk_back(&came_by))
    }

    fn walk_back(&self, came_by: &BTreeMap<OwnerIdx, Link>) -> Cycle {
        let mut links = vec![came_by[&self.owner].clone()];
        while links[links.len() - 1].waiter != self.owner {
            links.push(came_by[&links[links.len() - 1].waiter].clone());
        }
        links.reverse();
        Cycle(links)
    }

    /// The owners that one waits for, sorted by name and scope so that the answer does not depend on numbers.
    fn neighbours(
        &mut self,
        waiter: OwnerIdx,
        finishing: &BTreeSet<OwnerIdx>,
    ) -> Vec<(OwnerIdx, Ticket, Scope)> {
        let space = self.space;
        let mut neighbours: Vec<(OwnerIdx, Ticket, Scope)> = self
            .needs(waiter)
            .iter()
            .filter(|need| finishing.is_empty() || !need.is_met_by(finishing))
            .flat_map(|need| {
                need.blockers.iter().map(|&blocker| (blocker, need.ticket, need.scope.clone()))
            })
            .collect();
        neighbours.sort_by(|one, other| {
            let key = |entry: &(OwnerIdx, Ticket, Scope)| space.owners.name(entry.0).clone();
            (key(one), &one.2, one.1).cmp(&(key(other), &other.2, other.1))
        });
        neighbours
    }

    fn needs(&mut self, owner: OwnerIdx) -> &[Need] {
        let (space, requester) = (self.space, self.requester);
        self.needs.entry(owner).or_insert_with(|| {
            let mut needs = Vec::new();
            for ticket in space.waits_of(owner) {
                let waiter = &space.waiters[&ticket];
                needs.extend(space.needs_of(waiter.asker(ticket), &waiter.request.claims));
            }
            if let Some(requester) = requester.filter(|requester| requester.owner == owner) {
                let Requester { lease, ticket, claims, .. } = *requester;
                let asker = Asker { owner: Some(owner), lease, ticket, arriving: false };
                needs.extend(space.needs_of(asker, claims));
            }
            needs
        })
    }

    /// Whether an owner waits for less than all of those in its way.
    fn has_choice(&self) -> bool {
        self.needs.values().flatten().any(|need| need.count < need.blockers.len())
    }

    /// Owners that can get all they wait for once those before them have finished.
    fn finishing(&self) -> BTreeSet<OwnerIdx> {
        let mut finishing = BTreeSet::new();
        loop {
            let more: Vec<OwnerIdx> = self
                .needs
                .iter()
                .filter(|(owner, needs)| {
                    !finishing.contains(*owner)
                        && needs.iter().all(|need| need.is_met_by(&finishing))
                })
                .map(|(&owner, _)| owner)
                .collect();
            if more.is_empty() {
                return finishing;
            }
            finishing.extend(more);
        }
    }
}

/// Random numbers, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn claim(&mut self) -> Claim {
        const KEYS: [&str; 6] = ["a", "b", "path:/x", "path:/x/y", "path:/x/**", "path:/**"];
        let shared = if self.below(3) == 0 { Mode::Shared } else { Mode::Exclusive };
        let (scope, mode) = match self.below(10) {
            0..5 => (KEYS[usize::try_from(self.below(6)).unwrap()].to_string(), shared),
            5..7 => {
                let limit = std::num::NonZeroU32::new(1 + u32::try_from(self.below(3)).unwrap());
                let permits = Mode::Permits(limit.unwrap());
                (if limit.unwrap().get() == 1 { "path:/x/p" } else { "p" }.to_string(), permits)
            }
            _ => {
                let start = self.below(6);
                (format!("inode:1@{start}..{}", start + 1 + self.below(4)), shared)
            }
        };
        Claim { scope: Scope::parse(&scope).unwrap(), mode }
    }

    /// One claim, or a few that do not overlap.
    fn claims(&mut self) -> Vec<Claim> {
        let mut claims = vec![self.claim()];
        for _ in 0..self.below(6).saturating_sub(3) {
            let claim = self.claim();
            if !claims.iter().any(|other| other.scope.overlaps(&claim.scope)) {
                claims.push(claim);
            }
        }
        claims
    }

    fn acquire(&mut self, number: u64, wait: Wait) -> Acquire {
        Acquire {
            call: CallId(number),
            namespace: Namespace::default(),
            owner: Owner::new(&format!("o{}", self.below(6))).unwrap(),
            claims: self.claims(),
            under: Under::NewLease {
                id: LeaseId::from_u128(u128::from(number)),
                ttl: Duration::from_secs(if self.below(4) == 0 { 1 } else { 100 }),
            },
            wait,
            keep_place: false,
            ticket: None,
            request_id: None,
            reclaim_window: Duration::from_secs(if self.below(3) == 0 { 50 } else { 0 }),
            reclaim: false,
            metadata: None,
        }
    }
}

/// Whether all who want the same permits agree on their number.
fn fits(at: &NamespaceState, acquire: &Acquire) -> bool {
    acquire.claims.iter().all(|claim| match &claim.scope {
        Scope::Key(key) => {
            at.mode_in_use(key).is_none_or(|mode| mode.permits() == claim.mode.permits())
        }
        Scope::Range { .. } => true,
    })
}

/// A table with holders, lapsed holders in their windows, and waiters whom nobody has checked.
fn table(chance: &mut Chance) -> LockTable {
    let mut table = LockTable::new(crate::Limits::default(), 1);
    let mut step = Step::new();
    for number in 0..(4 + chance.below(8)) {
        let acquire = chance.acquire(number, Wait::Never);
        table.handle(Timestamp::ZERO, Command::Acquire(acquire), &mut step);
    }
    let later = Timestamp::from_millis(2_000 * chance.below(2));
    table.handle(later, Command::Tick, &mut step);
    let Some(space) = table.namespace_idx(&Namespace::default()) else { return table };
    for number in 0..chance.below(12) {
        let acquire = chance.acquire(1_000 + number, Wait::Forever);
        if fits(table.space(space), &acquire) {
            table.last_ticket = Ticket(table.last_ticket.0 + 1);
            table.add_waiter(space, table.last_ticket, acquire, (0, 0), later);
        }
    }
    table
}

#[test]
fn verdicts_and_circles_are_those_of_the_graph_edge_by_edge() {
    let mut chance = Chance(7);
    let (mut circles, mut longer, mut none, mut choices) = (0, 0, 0, 0);
    for _ in 0..6_000 {
        let table = table(&mut chance);
        let Some(at) = table.space_named(&Namespace::default()) else { continue };
        let requests: Vec<Acquire> =
            (0..4).map(|number| chance.acquire(2_000 + number, Wait::Forever)).collect();
        let ticket = Ticket(table.last_ticket.0 + 1);
        let asked = requests.iter().filter(|request| fits(at, request)).filter_map(|request| {
            let owner = at.owners.find(&request.owner)?;
            Some((owner, Some(Requester { owner, lease: None, ticket, claims: &request.claims })))
        });
        let owners = at.owners.iter().map(|(owner, _)| (owner, None));
        for (owner, requester) in asked.chain(owners) {
            let expected = at.find_cycle_edge_by_edge(owner, requester.as_ref());
            let mut budget = Budget::new(usize::MAX);
            let found = at.find_cycle(owner, requester.as_ref(), &mut budget).unwrap();
            let told = |cycle: &Option<Cycle>| {
                cycle.as_ref().map(|cycle| (cycle.edges(at), cycle.youngest()))
            };
            assert_eq!(told(&found), told(&expected), "{owner:?} {requester:?} {at:#?}");
            match &found {
                None => none += 1,
                Some(cycle) if cycle.0.len() > 2 => longer += 1,
                Some(_) => circles += 1,
            }
            let mut graph =
                Graph { space: at, owner, requester: requester.as_ref(), needs: BTreeMap::new() };
            choices += usize::from(graph.circle(&BTreeSet::new()).is_some() && graph.has_choice());
        }
    }
    let seen = (circles, longer, none, choices);
    assert!(circles > 1_000 && longer > 500 && none > 1_000 && choices > 1_000, "{seen:?}");
}

#[test]
fn stuck_are_those_who_have_a_circle_or_wait_for_one() {
    let mut chance = Chance(8);
    for _ in 0..3_000 {
        let table = table(&mut chance);
        let Some(at) = table.space_named(&Namespace::default()) else { continue };
        let stuck = at.stuck_owners(&mut Budget::new(usize::MAX)).unwrap();
        for (owner, _) in at.owners.iter() {
            let mut graph = Graph { space: at, owner, requester: None, needs: BTreeMap::new() };
            graph.circle(&BTreeSet::new());
            let finishes = graph.finishing().contains(&owner);
            assert_eq!(stuck.contains(&owner), !finishes, "{owner:?} {at:#?}");
        }
    }
}

/// Ten thousand waiters for one lock, and one owner that holds what one of them waits for as well.
#[test]
fn a_check_behind_ten_thousand_waiters_is_not_cut_short() {
    let mut table = LockTable::new(crate::Limits::default(), 1);
    let mut number = 0;
    let mut ask = |owner: &str, scope: &str, wait: Wait| {
        number += 1;
        let acquire = Acquire {
            owner: Owner::new(owner).unwrap(),
            claims: vec![Claim { scope: Scope::parse(scope).unwrap(), mode: Mode::Exclusive }],
            ..Chance(number).acquire(number, wait)
        };
        table.handle(Timestamp::ZERO, Command::Acquire(acquire), &mut Step::new())
    };
    ask("first", "a", Wait::Never);
    ask("me", "b", Wait::Never);
    for waiter in 0..9_000 {
        ask(&format!("waiter-{waiter}"), "a", Wait::Forever);
    }
    ask("waiter-7", "c", Wait::Never);
    ask("other", "b", Wait::Forever);
    // An owner waits for what it holds, but none that it would wait for.
    let queued = ask("me", "a", Wait::Forever);
    assert!(matches!(queued, crate::effect::Outcome::Queued(_)), "{queued:?}");
    // The first waits for it now, behind the other.
    let refused = ask("first", "b", Wait::Forever);
    let crate::effect::Outcome::Refused(crate::refusal::Refusal::Deadlock { cycle }) = refused
    else {
        panic!("{refused:?}")
    };
    assert_eq!(cycle.len(), 2, "{cycle:?}");
    let graph = table.graph(&Namespace::default(), 1_000);
    assert!(graph.truncated && graph.waits.len() == 1_000);
    assert!(graph.waits.iter().all(|wait| wait.blockers.len() <= 2), "holder and the one ahead");
}
