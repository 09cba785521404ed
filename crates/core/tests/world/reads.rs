//! The reads that answer more than a plain look: `test`, `check`, lists page by page, the wait-for graph.

use leasehold_core::*;

use super::World;
use super::compare::same;
use super::resolve::namespace_of;
use crate::model::{Held, Past};

impl World {
    pub(super) fn compare_reads(&self) -> Result<(), String> {
        for namespace in (0..3).map(namespace_of) {
            self.compare_lists(&namespace)?;
            self.compare_graph(&namespace)?;
        }
        self.compare_tests()?;
        self.compare_checks()
    }

    /// Every waiter asks for its claims again: the first holder in its way is the answer.
    fn compare_tests(&self) -> Result<(), String> {
        for waiter in &self.model.waiters {
            for claim in &waiter.ask.claims {
                let (namespace, owner) = (&waiter.ask.namespace, &waiter.ask.owner);
                let lease = match waiter.ask.under {
                    Under::Session(id) => Some(id),
                    Under::NewLease { .. } => None,
                };
                let expected = self.model.test(namespace, owner, lease, claim);
                same("test", &expected, &self.table.test(namespace, owner, lease, claim))?;
            }
        }
        Ok(())
    }

    /// The last few fences are shown for everything held: each is good for what it was stamped on, and for no more.
    fn compare_checks(&self) -> Result<(), String> {
        let last = self.model.fence.get();
        for fence in last.saturating_sub(9)..=last {
            self.compare_token(FencingToken::new(fence).unwrap())?;
        }
        for past in self.model.past.iter().rev().filter_map(Past::held).take(6) {
            for fence in last.saturating_sub(5)..=last {
                self.compare_check(past, FencingToken::new(fence).unwrap(), None)?;
            }
            self.compare_check(past, past.fence(), None)?;
            self.compare_check(past, past.fences[0], Some(past.lease))?;
            let unknown = Some(LeaseId::from_u128(u128::MAX));
            self.compare_check(past, past.fence(), unknown)?;
        }
        for held in &self.model.held {
            for fence in last.saturating_sub(5)..=last {
                self.compare_check(held, FencingToken::new(fence).unwrap(), None)?;
            }
            for fence in last.saturating_sub(9)..=last {
                self.compare_check(held, FencingToken::new(fence).unwrap(), Some(held.lease))?;
            }
        }
        Ok(())
    }

    fn compare_check(
        &self,
        held: &Held,
        fence: FencingToken,
        lease: Option<LeaseId>,
    ) -> Result<(), String> {
        let (namespace, scope) = (&held.namespace, &held.scope);
        let expected = self.model.check(namespace, scope, fence, lease);
        let actual = self.table.check(namespace, scope, fence, lease);
        let told = |why: String| format!("{why} {scope} {fence} {lease:?}");
        same("check", &expected, &actual.valid).map_err(told)?;
        let why = (!expected).then(|| self.model.why_not_good(namespace, scope, fence, lease));
        same("reason", &why, &actual.why).map_err(told)
    }

    fn compare_token(&self, fence: FencingToken) -> Result<(), String> {
        let expected = self.model.token(fence).map(|(namespace, holders, ended)| TokenView {
            fence,
            namespace,
            holders,
            ended,
        });
        let sorted = |mut view: TokenView| {
            view.holders.sort_by_key(|holder| holder.scope.clone());
            view.ended.sort_by_key(|ended| (ended.at, ended.scope.clone()));
            view
        };
        let actual = self.table.token(fence).map(sorted);
        same("token", &expected.map(sorted), &actual)
    }

    /// All pages together, with and without filters.
    fn compare_lists(&self, namespace: &Namespace) -> Result<(), String> {
        let all = ListQuery {
            namespace: namespace.clone(),
            prefix: String::new(),
            owner: None,
            session: None,
            within: None,
            inode: None,
            state: None,
            after: None,
            len_max: 2,
            looked_at_max: 3,
        };
        let first = self.model.held.first();
        let owner = first.map(|held| held.owner.clone());
        let session = first.and_then(|held| self.model.holder(held).session);
        let queries = [
            ListQuery { prefix: "path:/x/".into(), ..all.clone() },
            ListQuery { prefix: "inode:1".into(), ..all.clone() },
            ListQuery { owner, ..all.clone() },
            ListQuery { session, ..all.clone() },
            ListQuery { inode: Some(1), ..all.clone() },
            ListQuery { state: Some(LockState::ReclaimWindow), ..all.clone() },
            all,
        ];
        for query in queries {
            let pages = self.pages(query.clone())?;
            same("list", &self.model.list(&query), &pages)
                .map_err(|why| format!("{why} {query:?}"))?;
        }
        Ok(())
    }

    fn pages(&self, mut query: ListQuery) -> Result<Vec<LockSummary>, String> {
        let mut locks = Vec::new();
        for _ in 0..200 {
            let page = self.table.list(&query);
            locks.extend(page.locks);
            query.after = page.next;
            if query.after.is_none() {
                return Ok(locks);
            }
        }
        Err(format!("a list never ends: {query:?}"))
    }

    /// Who waits for whom; and nobody in a circle. Those right in front are named, and lead to all who are in the way.
    fn compare_graph(&self, namespace: &Namespace) -> Result<(), String> {
        let graph = self.table.graph(namespace, usize::MAX);
        same("circles", &Vec::new(), &graph.cycles)?;
        same("a small graph is shown whole", &false, &graph.truncated)?;
        let expected = self.model.waits(namespace);
        let bare = |wait: &GraphWait| GraphWait { blockers: Vec::new(), ..wait.clone() };
        let waits = |waits: &[GraphWait]| waits.iter().map(bare).collect::<Vec<_>>();
        same("waits", &waits(&expected), &waits(&graph.waits))?;
        for (expected, wait) in expected.iter().zip(&graph.waits) {
            let is_in_the_way = |owner| expected.blockers.contains(owner);
            same("those in front are in the way", &true, &wait.blockers.iter().all(is_in_the_way))?;
            let mut reached = wait.blockers.clone();
            let mut at = 0;
            while at < reached.len() {
                let from = reached[at].clone();
                let next = graph.waits.iter().filter(|wait| wait.waiter == from);
                for owner in next.flat_map(|wait| &wait.blockers) {
                    if !reached.contains(owner) {
                        reached.push(owner.clone());
                    }
                }
                at += 1;
            }
            let is_reached = |owner: &Owner| reached.contains(owner);
            same("all in the way are reached", &true, &expected.blockers.iter().all(is_reached))?;
        }
        Ok(())
    }
}
