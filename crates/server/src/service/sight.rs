//! Visibility of a namespace to a caller: every view, refusal and event goes through here on its way out.
//!
//! A hidden party has no owner ([`Owner::HIDDEN`]): such a holder, or step of a cycle, is written as hidden by every
//! encoder. What a caller acquires it may look at; metadata and the owners of others are for those who may read.

use std::borrow::Cow;
use std::sync::Arc;

use leasehold_access::{NamespaceRights, Verb, Verbs};
use leasehold_api::Code;
use leasehold_core::{
    Conflict, Event, FencingToken, Graph, Holder, ListCursor, ListQuery, Namespace, News, Owner,
    Parts, Principal, Refusal, RegisterName, Scope, SessionView, WaitEdge,
};
use leasehold_engine::{CallError, View};

use super::caller::Caller;
use super::problems::Failure;

const READ: Verbs = Verbs::of(&[Verb::Read]);
const READ_OR_ACQUIRE: Verbs = Verbs::of(&[Verb::Read, Verb::Acquire]);
const READ_OR_FENCE: Verbs = Verbs::of(&[Verb::Read, Verb::Fence]);
const WATCH: Verbs = Verbs::of(&[Verb::Watch]);

/// The filter on what a caller is told of one namespace; `None` inside: nothing is left out.
#[derive(Clone, Debug)]
pub(crate) struct Sight(Option<Seen>);

#[derive(Clone, Debug)]
struct Seen {
    principal: Principal,
    rights: Arc<(Namespace, NamespaceRights)>,
}

impl Caller {
    pub(crate) fn sight(&self, namespace: &Namespace) -> Sight {
        let Some(rights) = &self.rights else { return Sight(None) };
        let known = self.resolved.as_ref().filter(|resolved| resolved.0 == *namespace);
        let resolve = || Arc::new((namespace.clone(), rights.in_namespace(namespace)));
        let rights = known.cloned().unwrap_or_else(resolve);
        Sight(Some(Seen { principal: self.principal.clone(), rights }))
    }
}

impl Sight {
    /// Whether every lock of the namespace may be read.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.as_ref().is_none_or(|seen| seen.rights.1.allows_everything(Verb::Read).is_some())
    }

    pub(crate) fn reads(&self, scope: &Scope) -> bool {
        self.allows(READ, scope)
    }

    pub(crate) fn shows_register(&self, name: &RegisterName) -> bool {
        self.0
            .as_ref()
            .is_none_or(|seen| seen.rights.1.allows_register(READ_OR_FENCE, name).is_some())
    }

    /// Whether the session of an owner may be seen: one's own, or with the verb for those of others.
    pub(crate) fn shows_session_of(&self, owner: &Owner) -> bool {
        self.0.as_ref().is_none_or(|seen| {
            owner.is_of(&seen.principal) || seen.rights.1.allows_sessions().is_some()
        })
    }

    fn allows(&self, verbs: Verbs, scope: &Scope) -> bool {
        self.0.as_ref().is_none_or(|seen| seen.rights.1.allows(verbs, scope).is_some())
    }

    fn is_own(&self, owner: &Owner) -> bool {
        self.0.as_ref().is_none_or(|seen| owner.is_of(&seen.principal))
    }

    /// Cuts a list down to what may be read; whether there is more than that. A page token is of no use where nothing could
    /// have been listed.
    pub(crate) fn narrow(&self, query: &mut ListQuery) -> Result<bool, Failure> {
        let Some(seen) = &self.0 else { return Ok(false) };
        if let Some(ListCursor { scope, .. }) = &query.after
            && !self.reads(scope)
        {
            return Err(Failure::field("page_token", "is not a valid page token"));
        }
        let visible = seen.rights.1.visible(READ, &query.prefix);
        let is_filtered = visible.is_filtered;
        query.within = Some(Arc::new(Parts { keys: visible.keys, inodes: visible.inodes }));
        Ok(is_filtered)
    }

    /// A view without what may not be seen. Lists of sessions and registers are cut by whoever turns their pages.
    pub(crate) fn view(&self, view: View) -> View {
        if self.0.is_none() {
            return view;
        }
        match view {
            View::Lock(mut lock) => {
                lock.holders.iter_mut().for_each(|holder| self.cover(holder));
                lock.waiters.retain(|waiter| self.allows(READ_OR_ACQUIRE, &waiter.scope));
                for waiter in &mut lock.waiters {
                    self.cover_owner(&waiter.scope, &mut waiter.owner);
                }
                View::Lock(lock)
            }
            View::Tested(mut tested) => {
                tested.conflict.iter_mut().for_each(|holder| self.cover(holder));
                View::Tested(tested)
            }
            View::Checked(mut check) => {
                check.holder.iter_mut().for_each(|holder| self.cover(holder));
                View::Checked(check)
            }
            View::Page(mut page) => {
                page.locks.retain(|lock| self.reads(&lock.scope));
                for lock in &mut page.locks {
                    lock.holders.iter_mut().for_each(|holder| self.cover(holder));
                }
                View::Page(page)
            }
            View::Session(found) => {
                View::Session(found.filter(|session| self.shows_session(session)))
            }
            View::Sessions(mut sessions) => {
                sessions.retain(|session| self.shows_session(session));
                View::Sessions(sessions)
            }
            View::Registers(mut registers) => {
                registers.retain(|register| self.shows_register(&register.name));
                View::Registers(registers)
            }
            View::Token(found) => View::Token(found.and_then(|mut token| {
                token.holders.retain(|holder| self.reads(&holder.scope));
                token.ended.retain(|ended| self.reads(&ended.scope));
                let is_seen = !(token.holders.is_empty() && token.ended.is_empty());
                is_seen.then_some(token)
            })),
            View::Graph(mut graph) => {
                self.cover_graph(&mut graph);
                View::Graph(graph)
            }
            View::Overview(mut overview) => {
                overview.longest_waits.retain(|waiter| self.reads(&waiter.scope));
                overview.next_to_lapse.retain(|holder| self.reads(&holder.scope));
                View::Overview(overview)
            }
            view @ (View::Register(_) | View::Tree(_) | View::Stats(_)) => view,
        }
    }

    fn shows_session(&self, session: &SessionView) -> bool {
        self.shows_session_of(&session.owner)
    }

    fn cover(&self, holder: &mut Holder) {
        if self.is_own(&holder.owner) {
            return;
        }
        if !self.allows(READ_OR_ACQUIRE, &holder.scope) {
            holder.owner = Owner::HIDDEN;
            holder.session = None;
            holder.fence = FencingToken::ZERO;
        }
        if !self.reads(&holder.scope) {
            holder.metadata = None;
            // The owner id alone, without the principal.
            holder.owner = Owner::stored(holder.owner.as_str()).unwrap_or(Owner::HIDDEN);
        }
    }

    fn cover_owner(&self, scope: &Scope, owner: &mut Owner) {
        if !self.is_own(owner) && !self.reads(scope) {
            *owner = Owner::HIDDEN;
        }
    }

    fn cover_graph(&self, graph: &mut Graph) {
        graph.holds.retain(|holder| self.reads(&holder.scope));
        graph.waits.retain(|wait| self.reads(&wait.scope));
        let is_named = |owner: &Owner| {
            self.is_own(owner)
                || graph.holds.iter().any(|holder| holder.owner == *owner)
                || graph.waits.iter().any(|wait| wait.waiter == *owner)
        };
        let named: Vec<Vec<Owner>> = graph
            .waits
            .iter()
            .map(|wait| wait.blockers.iter().filter(|owner| is_named(owner)).cloned().collect())
            .collect();
        for (wait, blockers) in graph.waits.iter_mut().zip(named) {
            wait.blockers = blockers;
        }
        for cycle in &mut graph.cycles {
            *cycle = self.cycle(cycle);
        }
    }

    /// A cycle of which only the steps remain that may be seen; the others are hidden ones.
    pub(crate) fn cycle(&self, cycle: &[WaitEdge]) -> Arc<[WaitEdge]> {
        let step = |edge: &WaitEdge| {
            let mut edge = edge.clone();
            if self.allows(READ_OR_ACQUIRE, &edge.scope) {
                self.cover_owner(&edge.scope, &mut edge.waiter);
                self.cover_owner(&edge.scope, &mut edge.blocker);
            } else {
                edge.waiter = Owner::HIDDEN;
                edge.blocker = Owner::HIDDEN;
            }
            edge
        };
        cycle.iter().map(step).collect()
    }

    /// The failure of an operation, without what may not be seen of those in its way.
    pub(crate) fn failure(&self, error: CallError) -> Failure {
        let CallError::Refused(mut refusal) = error else { return error.into() };
        if self.0.is_some() {
            match &mut refusal {
                Refusal::Held(conflict)
                | Refusal::ReclaimWindow(conflict)
                | Refusal::GracePeriodPlaceKept { conflict, .. } => {
                    self.cover_conflict(conflict);
                }
                Refusal::Deadlock { cycle } => *cycle = self.cycle(cycle),
                Refusal::LimitMismatch { scope, current, asked } => {
                    if !self.allows(READ_OR_ACQUIRE, scope) {
                        *current = *asked;
                    }
                }
                Refusal::GracePeriod { .. }
                | Refusal::NoGrace
                | Refusal::LeaseLost(_)
                | Refusal::NothingToReclaim(_)
                | Refusal::NotHolder { .. }
                | Refusal::RequestIdReused
                | Refusal::SessionNotFound(_)
                | Refusal::TicketNotFound(_)
                | Refusal::StaleFence { .. }
                | Refusal::RegisterNotFound(_)
                | Refusal::Limit(_)
                | Refusal::Invalid(_)
                | Refusal::FileRemoved(_)
                | Refusal::Suspended
                | Refusal::StaleEpoch { .. } => {}
            }
        }
        CallError::Refused(refusal).into()
    }

    fn cover_conflict(&self, conflict: &mut Conflict) {
        conflict.holders.iter_mut().for_each(|holder| self.cover(holder));
    }

    /// An event as far as it may be seen; `None` if nothing of it may.
    pub(crate) fn event<'a>(&self, event: &'a Event) -> Option<Cow<'a, Event>> {
        if self.0.is_none() {
            return Some(Cow::Borrowed(event));
        }
        let is_seen = match &event.news {
            News::EpochBegan { .. } | News::GraceEnded => true,
            News::Granted { scope, .. } | News::Ended { scope, .. } => self.allows(WATCH, scope),
            News::SessionOpened { owner, .. }
            | News::SessionEnded { owner, .. }
            | News::TtlChanged { owner, .. } => self.shows_session_of(owner),
            News::FenceAccepted { register, .. } | News::FenceDeleted { register, .. } => {
                self.shows_register(register)
            }
            News::Queued { scopes, owner, ticket } => {
                let (scopes, owner, ticket) = (self.watched(scopes)?, owner.clone(), *ticket);
                return Some(of(event, News::Queued { scopes, owner, ticket }));
            }
            News::Left { scopes, owner, ticket } => {
                let (scopes, owner, ticket) = (self.watched(scopes)?, owner.clone(), *ticket);
                return Some(of(event, News::Left { scopes, owner, ticket }));
            }
            News::Deadlock { victim, cycle } => {
                return self.deadlock(victim, cycle).map(|news| of(event, news));
            }
        };
        is_seen.then_some(Cow::Borrowed(event))
    }

    /// Those of several scopes that may be seen, if there are any.
    fn watched(&self, scopes: &[Scope]) -> Option<Vec<Scope>> {
        let seen = scopes.iter().filter(|scope| self.allows(WATCH, scope));
        let seen: Vec<Scope> = seen.cloned().collect();
        (!seen.is_empty()).then_some(seen)
    }

    fn deadlock(&self, victim: &Owner, cycle: &[WaitEdge]) -> Option<News> {
        let cycle = self.cycle(cycle);
        let seen = cycle.iter().find(|edge| !edge.waiter.is_hidden())?;
        let is_named = cycle.iter().any(|edge| edge.waiter == *victim || edge.blocker == *victim);
        let victim = if is_named { victim.clone() } else { seen.waiter.clone() };
        Some(News::Deadlock { victim, cycle })
    }
}

/// The same event with other news.
fn of<'a>(event: &Event, news: News) -> Cow<'a, Event> {
    Cow::Owned(Event { news, ..event.clone() })
}

/// For what is told of a whole namespace at a time, and of nothing in it alone.
pub(crate) fn only_whole(caller: &Caller, namespace: &Namespace) -> Result<(), Failure> {
    if caller.sight(namespace).is_whole() {
        return Ok(());
    }
    let said = format!("{} lacks read on all of namespace {namespace}", caller.principal);
    Err(Failure::new(Code::PermissionDenied, said))
}
