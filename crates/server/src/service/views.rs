//! Reading the table: one lock, lists, tokens, numbers. Reads change nothing.

use std::collections::BTreeMap;

use leasehold_access::{Object, Operation};
use leasehold_api::Code;
use leasehold_core::{
    Check, Claim, FencingToken, LeaseId, ListCursor, ListQuery, LockSummary, LockView, Namespace,
    Overview, Owner, Page, Scope, Stats, Tested, TokenView, Tree, TreeQuery,
};
use leasehold_engine::{Query, Status, View};

use super::app::App;
use super::caller::Caller;
use super::problems::{Failure, unexpected};
use super::sessions::SessionName;
use super::sight::only_whole;
use crate::cluster::balance::Seen;
use crate::telemetry::metrics::Op;
use crate::telemetry::samples::Sample;

pub(crate) const PAGE_SIZE: usize = 100;
pub(crate) const PAGE_SIZE_MAX: usize = 1000;
/// The most locks that are looked at for one page, so that a filter that hardly matches stops nobody.
pub(crate) const LOOKED_AT_MAX: usize = 10_000;
/// The most waiters and holders that an overview names.
const NAMED_MAX: usize = 10;
const NAMESPACES_MAX: usize = 100;
/// The most pages that are read for one of which all may be seen.
const ROUNDS_MAX: usize = 100;

/// The position of a listing after a lock: pieces of a file are told apart by their token.
pub(crate) fn cursor_of(lock: &LockSummary) -> ListCursor {
    let piece = lock.holders.first().filter(|_| !matches!(lock.scope, Scope::Key(_)));
    let fence = piece.map_or(FencingToken::ZERO, |holder| holder.fence);
    ListCursor { scope: lock.scope.clone(), fence }
}

/// Whether a claim could be granted now.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    pub(crate) namespace: Namespace,
    pub(crate) owner: Owner,
    pub(crate) lease: Option<LeaseId>,
    pub(crate) claim: Claim,
}

impl From<Test> for Query {
    fn from(Test { namespace, owner, lease, claim }: Test) -> Query {
        Query::Test { namespace, owner, lease, claim }
    }
}

/// Whether a token belongs to a holder of a lock.
#[derive(Clone, Debug)]
pub(crate) struct CheckToken {
    pub(crate) namespace: Namespace,
    pub(crate) scope: Scope,
    pub(crate) fence: FencingToken,
    pub(crate) lease: Option<LeaseId>,
}

impl From<CheckToken> for Query {
    fn from(CheckToken { namespace, scope, fence, lease }: CheckToken) -> Query {
        Query::Check { namespace, scope, fence, lease }
    }
}

/// A page of held locks.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) query: ListQuery,
    /// Only what is held under this session.
    pub(crate) session: Option<SessionName>,
}

/// The overview for operators.
#[derive(Debug)]
pub(crate) struct Situation {
    pub(crate) namespace: Namespace,
    pub(crate) view: Overview,
    /// All that this server decides about.
    pub(crate) totals: Sample,
    /// The median and the 99th percentile of the last waits, in milliseconds.
    pub(crate) waits: (Option<u64>, Option<u64>),
    /// Held locks by namespace.
    pub(crate) namespaces: Vec<(String, u64)>,
    /// The numbers are about all namespaces, not this one alone.
    pub(crate) is_about_all: bool,
}

/// One group of namespaces, as this server sees it; its numbers are known to its leader.
#[derive(Debug)]
pub(crate) struct GroupView {
    pub(crate) status: Status,
    pub(crate) stats: Option<Stats>,
}

#[derive(Debug)]
pub(crate) struct ClusterView {
    /// At least one.
    pub(crate) groups: Vec<GroupView>,
    pub(crate) servers: Vec<Seen>,
}

impl App {
    pub(crate) async fn lock(
        &self,
        caller: &Caller,
        asked: Result<(Namespace, Scope), Failure>,
    ) -> Result<(Namespace, Box<LockView>), Failure> {
        let looking = async {
            let (namespace, scope) = asked?;
            let query = Query::Get { namespace: namespace.clone(), scope };
            let View::Lock(view) = self.query(caller, query).await? else {
                return Err(unexpected());
            };
            Ok((namespace, view))
        };
        self.counted(caller, Op::Get, looking).await
    }

    /// Returns the lock as it was asked about, and what was found.
    pub(crate) async fn test(
        &self,
        caller: &Caller,
        asked: Result<Test, Failure>,
    ) -> Result<(String, Box<Tested>), Failure> {
        let testing = async {
            let asked = asked?;
            let lock = asked.claim.scope.to_string();
            let View::Tested(found) = self.query(caller, asked.into()).await? else {
                return Err(unexpected());
            };
            Ok((lock, found))
        };
        self.counted(caller, Op::Test, testing).await
    }

    /// Returns the lock and the token as they were asked about, and what was found.
    pub(crate) async fn check(
        &self,
        caller: &Caller,
        asked: Result<CheckToken, Failure>,
    ) -> Result<(String, FencingToken, Box<Check>), Failure> {
        let checking = async {
            let asked = asked?;
            let (lock, fence) = (asked.scope.to_string(), asked.fence);
            let View::Checked(found) = self.query(caller, asked.into()).await? else {
                return Err(unexpected());
            };
            Ok((lock, fence, found))
        };
        self.counted(caller, Op::Check, checking).await
    }

    /// Returns a page, the epoch of its revision, and whether the caller may not see all that was asked for.
    pub(crate) async fn list(
        &self,
        caller: &Caller,
        asked: Result<List, Failure>,
    ) -> Result<(u64, Box<Page>, bool), Failure> {
        let listing = async {
            let List { mut query, session } = asked?;
            if let Some(name) = session {
                let number = self.session_number(caller, &query.namespace, name).await?;
                query.session = Some(number);
            }
            let epoch = self.epoch(&query.namespace);
            let sight = caller.sight(&query.namespace);
            let is_filtered = sight.narrow(&mut query)?;
            for _ in 0..ROUNDS_MAX {
                let asked = Query::List(query.clone());
                let View::Page(mut page) = self.query(caller, asked).await? else {
                    return Err(unexpected());
                };
                match &page.next {
                    Some(next) if !sight.reads(&next.scope) => {}
                    Some(_) | None => return Ok((epoch, page, is_filtered)),
                }
                // Where a page goes on is told to its reader: that is never what it may not see.
                if let Some(last) = page.locks.last() {
                    page.next = Some(cursor_of(last));
                    return Ok((epoch, page, is_filtered));
                }
                query.after = page.next;
            }
            let said = "too much in between may not be read: ask for a longer prefix";
            Err(Failure::new(Code::Overloaded, said))
        };
        self.counted(caller, Op::List, listing).await
    }

    /// The grant that carries a token.
    pub(crate) async fn token(
        &self,
        caller: &Caller,
        asked: Result<(Namespace, FencingToken), Failure>,
    ) -> Result<Box<TokenView>, Failure> {
        let looking = async {
            let (namespace, fence) = asked?;
            let query = Query::Token { namespace, fence };
            self.admit_query(caller, &query)?;
            let View::Token(found) = self.look(caller, query).await? else {
                return Err(unexpected());
            };
            // It may be in another namespace than the one that was asked about.
            let sight = found.as_ref().map(|found| caller.sight(&found.namespace));
            let found = sight.map_or(View::Token(None), |sight| sight.view(View::Token(found)));
            let View::Token(found) = found else { return Err(unexpected()) };
            found.ok_or_else(|| {
                Failure::new(Code::NotFound, format!("nothing is known of token {fence}"))
            })
        };
        self.counted(caller, Op::Get, looking).await
    }

    pub(crate) async fn tree(
        &self,
        caller: &Caller,
        asked: TreeQuery,
    ) -> Result<Box<Tree>, Failure> {
        only_whole(caller, &asked.namespace)?;
        let View::Tree(tree) = self.query(caller, Query::Tree(asked)).await? else {
            return Err(unexpected());
        };
        Ok(tree)
    }

    pub(crate) async fn overview(
        &self,
        caller: &Caller,
        namespace: Namespace,
    ) -> Result<Situation, Failure> {
        only_whole(caller, &namespace)?;
        let query = Query::Overview { namespace: namespace.clone(), len_max: NAMED_MAX };
        let View::Overview(view) = self.query(caller, query).await? else {
            return Err(unexpected());
        };
        // Numbers about all namespaces are for those who may see them all.
        if !caller.allows(Operation::Cluster, Object::Server) {
            let (totals, waits) = (Sample::default(), (None, None));
            let namespaces = vec![(namespace.to_string(), view.grants as u64)];
            let (view, is_about_all) = (*view, false);
            return Ok(Situation { namespace, view, totals, waits, namespaces, is_about_all });
        }
        let totals = Sample::now(self).await;
        let waits = self.metrics.waits();
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for engine in self.groups.all() {
            for (namespace, _, held) in self.stats(engine).await.unwrap_or_default().kinds {
                *counts.entry(namespace.to_string()).or_default() += held as u64;
            }
        }
        let namespaces = counts.into_iter().take(NAMESPACES_MAX).collect();
        let (view, is_about_all) = (*view, true);
        Ok(Situation { namespace, view, totals, waits, namespaces, is_about_all })
    }

    /// The groups of namespaces, and the servers that share the store.
    pub(crate) async fn cluster(&self, _caller: &Caller) -> ClusterView {
        let mut groups = Vec::new();
        for engine in self.groups.all() {
            groups.push(GroupView { stats: self.stats(engine).await, status: engine.status() });
        }
        ClusterView { groups, servers: self.servers.all() }
    }
}
