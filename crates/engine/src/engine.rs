//! The loop without the waiting: what is decided at once, what waits for its commit, what is shown when.
//!
//! A call is decided and applied the moment it arrives. Its transitions join those that wait to be written; its answer
//! is held back until everything it shows is durable, and goes out at once if it shows nothing new (a renewal, a
//! refusal because of an old grant). While one record is being written the next one gathers: group commit falls out.
//!
//! A commit that fails is never rolled back. Grants that nobody has been told of are withdrawn by further transitions,
//! their callers are told so, and the whole row is written when the store is back: the journal stays a faithful history
//! and the table stays its fold. Until then nothing is granted; renewals and releases go on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::planted;
use leasehold_core::{
    Answer, CallId, Cancel, CloseSession, Command, Conflict, Effect, Ending, Epoch, Event, Fence,
    Grant, LeaseId, LockTable, Namespace, News, Opened, Outcome, Refusal, Revision, Scope, Step,
    Timestamp, Transition, Withdraw,
};
use leasehold_store::{Batch, BatchWriter, Seq};

use crate::call::{Call, CallError, Query, Reply, View};

/// What an engine is told once.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How large a record may get, as the store says.
    pub record_bytes_max: usize,
    /// How long callers are told to wait when the store is away.
    pub store_retry_after: Duration,
}

/// The one writer, as a state machine.
#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    table: LockTable,
    epoch: Epoch,
    /// What requests for something new are told, once nothing is granted any more.
    closed: Option<CallError>,

    /// Decided and applied, but not durable yet.
    unwritten: VecDeque<Transition>,
    /// The revision up to which everything is durable.
    durable: Revision,
    /// No higher fence can have been seen by anybody.
    durable_fence: Fence,
    next_seq: Seq,
    /// How many of the unwritten transitions are in the record that is being written.
    in_flight: Option<usize>,
    /// The store does not keep anything for now.
    store_failed: bool,

    /// Waits until everything up to the revision is durable, in order.
    held_back: VecDeque<(Revision, Output)>,
    /// How many of those somebody waits for.
    awaited: usize,
    ready: Vec<Output>,
    /// What ended in unwritten transitions: nobody may be told yet that it is free.
    ended: VecDeque<(Revision, Namespace, Scope)>,
    /// Leases whose ttl was changed in unwritten transitions: nobody may be told yet how long they are.
    ttls: VecDeque<(Revision, LeaseId)>,
    /// What the calls that wait will be answered about.
    waiting: BTreeMap<CallId, About>,
    step: Step,
    #[cfg(feature = "inspect")]
    inspection: crate::inspect::Inspection,
}

/// Something that may be shown now.
#[derive(Clone, Debug)]
pub enum Output {
    Reply {
        call: CallId,
        reply: Result<Reply, CallError>,
        undo: Option<Undo>,
    },
    Event(Published),
    /// A holder should hear that its lease, or one grant of it, is gone.
    Lost {
        namespace: Namespace,
        lease: LeaseId,
        fence: Option<Fence>,
        ending: Ending,
    },
    /// Somebody waits, and the grant with this fence is in the way.
    Wanted {
        namespace: Namespace,
        lease: LeaseId,
        fence: Fence,
        scope: Scope,
    },
    /// This server leads, from this revision on.
    Began(Revision),
    /// It does not any more: there is nothing to watch here.
    Ended,
}

/// An event, and whether it is the last one of its revision: a watcher that has seen it has seen the whole change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub event: Arc<Event>,
    pub last_of_revision: bool,
}

/// What is known of a record that the store did not say it has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    Unwritten,
    Unknown,
}

impl Output {
    /// Whether somebody waits for it: news of what happened can come a moment later.
    fn is_awaited(&self) -> bool {
        match self {
            Output::Reply { .. } | Output::Lost { .. } => true,
            Output::Event(_) | Output::Wanted { .. } | Output::Began(_) | Output::Ended => false,
        }
    }
}

/// How to take back something that its caller will never hear of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    Grant(Box<Withdraw>),
    /// A grant that a retry can find by its request id: kept unless the commit failed.
    KnownGrant(Box<Withdraw>),
    Session(Box<CloseSession>),
    /// The same for a session.
    KnownSession(Box<CloseSession>),
}

impl Engine {
    /// Takes over a table that has just begun this epoch. What that left unwritten comes with it.
    pub fn new(
        settings: Settings,
        table: LockTable,
        next_seq: Seq,
        unwritten: Vec<Transition>,
    ) -> Engine {
        let durable = Revision(table.revision().0 - unwritten.len() as u64);
        Engine {
            settings,
            epoch: table.epoch(),
            durable_fence: table.fence(),
            #[cfg(feature = "inspect")]
            inspection: crate::inspect::Inspection::new(&table),
            table,
            closed: None,
            unwritten: unwritten.into(),
            durable,
            next_seq,
            in_flight: None,
            store_failed: false,
            held_back: VecDeque::new(),
            awaited: 0,
            ready: Vec::new(),
            ended: VecDeque::new(),
            ttls: VecDeque::new(),
            waiting: BTreeMap::new(),
            step: Step::new(),
        }
    }

    pub fn table(&self) -> &LockTable {
        &self.table
    }

    pub(crate) fn table_mut(&mut self) -> &mut LockTable {
        &mut self.table
    }

    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.table.next_deadline()
    }

    /// How many transitions wait to be written.
    pub fn unwritten_len(&self) -> usize {
        self.unwritten.len()
    }

    pub fn is_store_failed(&self) -> bool {
        self.store_failed
    }

    /// Everything that may be shown by now, put behind what is in `outputs`.
    pub fn take_outputs(&mut self, outputs: &mut Vec<Output>) {
        if outputs.is_empty() {
            // So that nothing is copied, and no memory has to be found for the next ones.
            std::mem::swap(&mut self.ready, outputs);
        } else {
            outputs.append(&mut self.ready);
        }
    }

    /// Whether somebody waits for what is unwritten to be durable. Nobody waits for the record of a release: it may ride
    /// with the next one.
    pub fn is_awaited(&self) -> bool {
        self.awaited > 0
    }

    /// From now on nothing is granted any more, and nobody waits: those who do, and those who come, are told `why`.
    pub fn close(&mut self, now: Timestamp, why: &CallError) {
        self.closed = Some(why.clone());
        self.run(now, Command::Suspend);
        let waiting = std::mem::take(&mut self.waiting);
        for (call, about) in waiting {
            if let About::Grant { namespace, .. } = about {
                self.run(now, Command::Cancel(Cancel { namespace, call }));
                self.reply(call, Err(why.clone()));
            }
        }
    }

    /// Another one decides from now on. Everybody who still waits is told `why`, and nothing more comes of this table.
    ///
    /// Whose answer was in a record of which nobody knows whether it was written does not learn more either.
    pub fn abandon(&mut self, why: &CallError, outcome: Failed) -> Vec<Output> {
        let mut outputs = std::mem::take(&mut self.ready);
        let (unknown, in_doubt) = (self.store_failure(true), self.in_doubt(outcome));
        for (revision, output) in self.held_back.drain(..) {
            if let Output::Reply { call, .. } = output {
                let why = if revision <= in_doubt { &unknown } else { why };
                outputs.push(Output::Reply { call, reply: Err(why.clone()), undo: None });
            }
        }
        self.awaited = 0;
        for call in std::mem::take(&mut self.waiting).into_keys() {
            outputs.push(Output::Reply { call, reply: Err(why.clone()), undo: None });
        }
        outputs
    }

    /// Another one may decide by now. What was written stands, but nobody is told any more that a lease goes on, or how
    /// things are.
    pub(crate) fn doubt(&mut self, why: &CallError) {
        let unknown = self.store_failure(true);
        for output in &mut self.ready {
            if let Output::Reply { reply, .. } = output {
                match reply {
                    Ok(Reply::Answer(Answer::Renewed(_))) => *reply = Err(unknown.clone()),
                    Ok(Reply::View(_)) => *reply = Err(why.clone()),
                    Ok(Reply::Answer(_)) | Err(_) => {}
                }
            }
        }
    }

    /// One call has arrived.
    pub fn submit(&mut self, now: Timestamp, id: CallId, call: Call) {
        match call {
            Call::Query(query) => self.answer_query(now, id, query),
            Call::Command(command) => match (&command, &self.closed) {
                (Command::Acquire(_) | Command::OpenSession(_), Some(why)) => {
                    let why = why.clone();
                    self.reply(id, Err(why));
                }
                _ => self.carry_out(now, id, command),
            },
        }
    }

    pub fn tick(&mut self, now: Timestamp) {
        self.run(now, Command::Tick);
    }

    /// An answer could not be delivered: what it gave is taken back, unless a retry will ask for it.
    pub fn undelivered(&mut self, now: Timestamp, undo: Undo) {
        match undo {
            Undo::KnownGrant(_) | Undo::KnownSession(_) => {}
            Undo::Grant(withdraw) => self.run(now, Command::Withdraw(*withdraw)),
            Undo::Session(close) => self.run(now, Command::CloseSession(*close)),
        }
    }

    fn carry_out(&mut self, now: Timestamp, id: CallId, command: Command) {
        let about = About::of(&command);
        let renews = renewed_by(&command);
        if let Command::Cancel(cancel) = &command {
            self.waiting.remove(&cancel.call);
        }
        let mut step = std::mem::take(&mut self.step);
        step.clear();
        let outcome = self.handle(now, command, &mut step);
        let changed = !step.transitions.is_empty();
        let answer = match outcome {
            Outcome::Queued(_) => {
                self.waiting.insert(id, about);
                None
            }
            Outcome::Answered(Answer::Granted(grant)) => {
                let undo = about.undo(&grant);
                Some((Ok(Reply::Answer(Answer::Granted(grant))), undo))
            }
            Outcome::Answered(Answer::SessionOpened(opened)) => {
                let undo = about.undo_session(&opened);
                Some((Ok(Reply::Answer(Answer::SessionOpened(opened))), undo))
            }
            Outcome::Answered(answer) => Some((Ok(Reply::Answer(answer)), None)),
            Outcome::Refused(refusal) => Some((Err(self.error_for(refusal)), None)),
        };
        // Once it is noted who waits: the rest of the step may have its answer already.
        self.take_step(&mut step);
        self.step = step;
        let Some((reply, undo)) = answer else { return };
        let output = Output::Reply { call: id, reply, undo };
        // A heartbeat right behind one that changed the ttl would show the new one as well.
        let changed = changed || renews.is_some_and(|lease| self.is_ttl_unwritten(lease));
        if self.may_go_at_once(&output, changed) {
            self.ready.push(output);
        } else {
            self.show(output);
        }
    }

    /// A command of the engine's own: nobody awaits its outcome.
    fn run(&mut self, now: Timestamp, command: Command) {
        let mut step = std::mem::take(&mut self.step);
        step.clear();
        self.handle(now, command, &mut step);
        self.take_step(&mut step);
        self.step = step;
    }

    fn handle(&mut self, now: Timestamp, command: Command, step: &mut Step) -> Outcome {
        #[cfg(feature = "inspect")]
        self.inspection.before(&command);
        let outcome = self.table.handle(now, command, step);
        #[cfg(feature = "inspect")]
        self.inspection.after(&self.table, step);
        outcome
    }

    /// Notes what a step changed, and what it has to say to others.
    fn take_step(&mut self, step: &mut Step) {
        let revision = self.table.revision();
        for transition in step.transitions.drain(..) {
            if let Transition::TtlChanged { lease, .. } = transition {
                self.ttls.push_back((revision, lease));
            }
            self.unwritten.push_back(transition);
        }
        // From the back; a lone one needs none.
        let mut is_last: Vec<bool> = Vec::new();
        if step.effects.len() > 1 {
            let mut last = Revision(u64::MAX);
            for effect in step.effects.iter().rev() {
                if let Effect::Event(event) = effect {
                    is_last.push(event.revision != last);
                    last = event.revision;
                }
            }
        }
        for effect in step.effects.drain(..) {
            let output = match effect {
                Effect::Granted { call, .. }
                    if planted!("wake-up-lost-while-writing") && self.in_flight.is_some() =>
                {
                    self.waiting.remove(&call);
                    continue;
                }
                Effect::Granted { call, grant } => {
                    let undo = self.waiting.remove(&call).and_then(|about| about.undo(&grant));
                    Output::Reply { call, reply: Ok(Reply::Answer(Answer::Granted(grant))), undo }
                }
                Effect::Refused { call, refusal } => {
                    self.waiting.remove(&call);
                    let reply = Err(self.error_for(refusal));
                    Output::Reply { call, reply, undo: None }
                }
                Effect::Lost { namespace, lease, fence, ending } => {
                    Output::Lost { namespace, lease, fence, ending }
                }
                Effect::Wanted { namespace, lease, fence, scope, .. } => {
                    Output::Wanted { namespace, lease, fence, scope }
                }
                Effect::Event(event) => {
                    self.note_ending(&event);
                    let last_of_revision = is_last.pop().unwrap_or(true);
                    Output::Event(Published { event, last_of_revision })
                }
            };
            self.show(output);
        }
    }

    fn note_ending(&mut self, event: &Event) {
        if let News::Ended { scope, .. } = &event.news {
            self.ended.push_back((event.revision, event.namespace.clone(), scope.clone()));
        }
    }

    /// Shows something as soon as everything up to now is durable.
    fn show(&mut self, output: Output) {
        let revision = self.table.revision();
        let is_durable = revision <= self.durable || planted!("ack-before-commit");
        if is_durable && self.held_back.is_empty() {
            self.ready.push(output);
        } else {
            self.awaited += usize::from(output.is_awaited());
            self.held_back.push_back((revision, output));
        }
    }

    /// Whether an answer shows nothing that could still be lost.
    fn may_go_at_once(&self, output: &Output, changed: bool) -> bool {
        let Output::Reply { reply, .. } = output else { return false };
        match reply {
            // A heartbeat costs no write.
            Ok(Reply::Answer(Answer::Renewed(_))) => !changed,
            Ok(Reply::Answer(Answer::Granted(grant))) => {
                grant.replayed
                    && grant.fence <= self.durable_fence
                    && !self.is_ttl_unwritten(grant.lease)
            }
            // A crash can only bring these back, never lose one.
            Ok(Reply::Answer(
                Answer::Released { .. }
                | Answer::Unlocked { .. }
                | Answer::Cancelled { .. }
                | Answer::SessionClosed { .. }
                | Answer::Withdrawn { .. },
            )) => true,
            Err(CallError::Refused(refusal)) => self.is_settled(refusal),
            Err(_) => true,
            Ok(_) => false,
        }
    }

    fn is_ttl_unwritten(&self, lease: LeaseId) -> bool {
        !planted!("ttl-shown-before-it-is-durable")
            && self.ttls.iter().any(|(_, changed)| *changed == lease)
    }

    /// Whether a refusal rests on nothing but what is durable.
    fn is_settled(&self, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::Held(conflict) => self.is_durable(conflict),
            Refusal::GracePeriod { conflict, .. } => {
                conflict.as_ref().is_none_or(|conflict| self.is_durable(conflict))
            }
            Refusal::NoGrace
            | Refusal::LimitMismatch { .. }
            | Refusal::TicketNotFound(_)
            | Refusal::Limit(_)
            | Refusal::Invalid(_)
            | Refusal::Suspended
            | Refusal::StaleEpoch { .. } => true,
            Refusal::ReclaimWindow(_)
            | Refusal::Deadlock { .. }
            | Refusal::LeaseLost
            | Refusal::NotHolder(_)
            | Refusal::RequestIdReused
            | Refusal::SessionNotFound
            | Refusal::StaleFence { .. }
            | Refusal::FileRemoved(_) => {
                self.unwritten.is_empty() || planted!("loss-told-before-it-is-durable")
            }
        }
    }

    fn is_durable(&self, conflict: &Conflict) -> bool {
        planted!("refusal-shows-what-may-be-lost")
            || conflict.holders.iter().all(|holder| holder.fence <= self.durable_fence)
    }

    fn error_for(&self, refusal: Refusal) -> CallError {
        match (&self.closed, refusal) {
            (Some(why), Refusal::Suspended) => why.clone(),
            (None, Refusal::Suspended) => self.store_failure(false),
            (_, refusal) => CallError::Refused(refusal),
        }
    }

    fn store_failure(&self, outcome_unknown: bool) -> CallError {
        let retry_after = self.settings.store_retry_after;
        CallError::StoreUnavailable { retry_after, outcome_unknown }
    }

    fn reply(&mut self, call: CallId, reply: Result<Reply, CallError>) {
        self.ready.push(Output::Reply { call, reply, undo: None });
    }

    fn answer_query(&mut self, now: Timestamp, call: CallId, query: Query) {
        // What is due by now is over for readers too.
        self.tick(now);
        let at_once = self.unwritten.is_empty() || self.is_query_settled(&query);
        let reply = self.view(query).map(Reply::View).map_err(|refusal| self.error_for(refusal));
        let at_once = at_once && self.is_view_durable(&reply);
        let output = Output::Reply { call, reply, undo: None };
        if at_once {
            self.ready.push(output);
        } else {
            self.show(output);
        }
    }

    /// Whether nothing that the query may be about has ended without that being durable.
    fn is_query_settled(&self, query: &Query) -> bool {
        match query {
            Query::Get { namespace, scope }
            | Query::Test { namespace, claim: leasehold_core::Claim { scope, .. }, .. }
            | Query::Check { namespace, scope, .. } => !self
                .ended
                .iter()
                .any(|(_, within, ended)| within == namespace && ended.overlaps(scope)),
            Query::Stats => true,
            Query::List(_)
            | Query::Session { .. }
            | Query::Sessions { .. }
            | Query::Register { .. }
            | Query::Graph { .. }
            | Query::Overview { .. }
            | Query::Tree(_) => false,
        }
    }

    /// Whether no grant in the view could still be lost.
    fn is_view_durable(&self, reply: &Result<Reply, CallError>) -> bool {
        let durable = |holder: &leasehold_core::Holder| holder.fence <= self.durable_fence;
        match reply {
            Ok(Reply::View(View::Lock(lock))) => lock.holders.iter().all(durable),
            Ok(Reply::View(View::Tested(holder))) => holder.iter().all(|holder| durable(holder)),
            Ok(Reply::View(View::Checked(check))) => check.holder.iter().all(durable),
            Ok(_) | Err(_) => true,
        }
    }

    fn view(&self, query: Query) -> Result<View, Refusal> {
        let table = &self.table;
        Ok(match query {
            Query::Get { namespace, scope } => View::Lock(Box::new(table.get(&namespace, &scope))),
            Query::Test { namespace, owner, claim } => {
                View::Tested(table.test(&namespace, &owner, &claim)?.map(Box::new))
            }
            Query::Check { namespace, scope, fence, lease } => {
                View::Checked(Box::new(table.check(&namespace, &scope, fence, lease)))
            }
            Query::List(query) => View::Page(Box::new(table.list(&query))),
            Query::Session { namespace, id } => {
                View::Session(table.session(&namespace, id).map(Box::new))
            }
            Query::Sessions { namespace, after, len_max } => {
                View::Sessions(table.sessions(&namespace, after, len_max))
            }
            Query::Register { namespace, register } => {
                View::Register(table.register(&namespace, &register))
            }
            Query::Graph { namespace, waits_max } => {
                View::Graph(Box::new(table.graph(&namespace, waits_max)))
            }
            Query::Overview { namespace, len_max } => {
                View::Overview(Box::new(table.overview(&namespace, len_max)))
            }
            Query::Tree(query) => View::Tree(Box::new(table.tree(&query))),
            Query::Stats => View::Stats(Box::new(table.stats())),
        })
    }

    /// The next record to append, unless one is under way or there is nothing to write.
    pub fn seal(&mut self) -> Option<Batch> {
        if self.in_flight.is_some() || self.unwritten.is_empty() {
            return None;
        }
        let mut writer = BatchWriter::new(self.epoch, self.next_seq);
        let mut len = 0;
        for transition in &self.unwritten {
            if len > 0 && writer.byte_len() >= self.settings.record_bytes_max / 2 {
                break;
            }
            writer.push(transition);
            len += 1;
        }
        self.in_flight = Some(len);
        Some(writer.seal())
    }

    /// The record under way, if everything that was decided is in it.
    pub(crate) fn sealed_all(&self) -> bool {
        self.in_flight == Some(self.unwritten.len())
    }

    pub(crate) fn in_flight_len(&self) -> usize {
        self.in_flight.unwrap_or(0)
    }

    pub(crate) fn next_seq(&self) -> Seq {
        self.next_seq
    }

    /// The record under way is durable.
    pub fn appended(&mut self, now: Timestamp) {
        let len = self.in_flight.take().expect("only a record that was sealed is appended");
        for transition in self.unwritten.range(..len) {
            if let Transition::Granted(granted) = transition {
                self.durable_fence = granted.fence;
            }
        }
        self.unwritten.drain(..len);
        self.next_seq = self.next_seq.next();
        self.durable.0 += len as u64;
        let shown = self.held_back.partition_point(|(revision, _)| *revision <= self.durable);
        let awaited = self.held_back.range(..shown).filter(|(_, output)| output.is_awaited());
        self.awaited -= awaited.count();
        self.ready.extend(self.held_back.drain(..shown).map(|(_, output)| output));
        while self.ended.front().is_some_and(|(revision, ..)| *revision <= self.durable) {
            self.ended.pop_front();
        }
        while self.ttls.front().is_some_and(|(revision, _)| *revision <= self.durable) {
            self.ttls.pop_front();
        }
        if self.store_failed && self.closed.is_none() {
            self.store_failed = false;
            if !planted!("store-never-trusted-again") {
                self.run(now, Command::Resume);
            }
        }
    }

    /// The record under way was not written, or nobody knows: callers are told, and what they were to be given is
    /// taken back. It will be written again, with what takes it back behind it.
    pub fn append_failed(&mut self, now: Timestamp, outcome: Failed) {
        self.store_failed = true;
        self.run(now, Command::Suspend);
        let (failed, unknown) = (self.store_failure(false), self.store_failure(true));
        let in_doubt = self.in_doubt(outcome);
        let mut kept = VecDeque::new();
        let mut undone = Vec::new();
        for (revision, output) in self.held_back.drain(..) {
            match output {
                Output::Reply { call, undo, .. } => {
                    undone.extend(undo);
                    let reply =
                        Err(if revision <= in_doubt { unknown.clone() } else { failed.clone() });
                    self.ready.push(Output::Reply { call, reply, undo: None });
                }
                Output::Event(_)
                | Output::Lost { .. }
                | Output::Wanted { .. }
                | Output::Began(_)
                | Output::Ended => {
                    kept.push_back((revision, output));
                }
            }
        }
        self.awaited = kept.iter().filter(|(_, output)| output.is_awaited()).count();
        self.held_back = kept;
        for undo in undone {
            self.run(
                now,
                match undo {
                    Undo::Grant(withdraw) | Undo::KnownGrant(withdraw) => {
                        Command::Withdraw(*withdraw)
                    }
                    Undo::Session(close) | Undo::KnownSession(close) => {
                        Command::CloseSession(*close)
                    }
                },
            );
        }
    }

    /// Up to where nobody knows what is durable.
    fn in_doubt(&self, outcome: Failed) -> Revision {
        match outcome {
            Failed::Unwritten => self.durable,
            Failed::Unknown => Revision(self.durable.0 + self.in_flight_len() as u64),
        }
    }

    /// The record that failed is known not to be there: it may be sealed again.
    pub fn unseal(&mut self) {
        self.in_flight = None;
    }
}

/// What an answer will be about, so that it can be taken back.
#[derive(Debug)]
enum About {
    Grant { namespace: Namespace, known: bool },
    Session { close: CloseSession, known: bool },
    Other,
}

impl About {
    fn of(command: &Command) -> About {
        if let Command::Acquire(acquire) = command {
            let (namespace, known) = (acquire.namespace.clone(), acquire.request_id.is_some());
            About::Grant { namespace, known }
        } else if let Command::OpenSession(open) = command {
            let close = CloseSession { namespace: open.namespace.clone(), session: open.id };
            About::Session { close, known: open.request_id.is_some() }
        } else {
            About::Other
        }
    }

    /// A grant that was made before is not this answer's to take back.
    fn undo(self, grant: &Grant) -> Option<Undo> {
        match self {
            About::Grant { namespace, known } if !grant.replayed => {
                let withdraw = Box::new(Withdraw::of(&namespace, grant));
                Some(if known { Undo::KnownGrant(withdraw) } else { Undo::Grant(withdraw) })
            }
            About::Grant { .. } | About::Session { .. } | About::Other => None,
        }
    }

    fn undo_session(self, opened: &Opened) -> Option<Undo> {
        match self {
            About::Session { close, known } if !opened.replayed => {
                let close = Box::new(close);
                Some(if known { Undo::KnownSession(close) } else { Undo::Session(close) })
            }
            About::Grant { .. } | About::Session { .. } | About::Other => None,
        }
    }
}

/// The lease that a command renews.
fn renewed_by(command: &Command) -> Option<LeaseId> {
    if let Command::Renew(renew) = command {
        Some(renew.lease)
    } else if let Command::KeepAlive(keep_alive) = command {
        Some(keep_alive.session)
    } else if let Command::Attach(attach) = command {
        Some(attach.session)
    } else {
        None
    }
}
