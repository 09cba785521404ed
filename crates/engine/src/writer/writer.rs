//! The loop without the waiting: what is decided at once, what waits for its commit, what is shown when.
//!
//! A call is decided and applied the moment it arrives. Its transitions join those that wait to be written; its answer
//! is held back until everything it shows is durable, and goes out at once if it shows nothing new (a renewal, a
//! refusal because of an old grant). While one record is being written the next one gathers: group commit falls out.
//!
//! When a commit fails, the table goes back to what is durable, and the callers hear that nothing was applied, or that it
//! is unknown: then the store is read first, and the record is either made again or forgotten. Endings that were
//! acknowledged before are made again at once. Until the store is back nothing lasting is changed but by such endings;
//! heartbeats go on, and queries show what is durable.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::planted;
use leasehold_core::{
    Answer, CallId, Cancel, Command, Effect, Ending, Epoch, Event, FencingToken, LeaseId,
    LockTable, Namespace, News, Outcome, Queued, Quotas, Refusal, Revision, Scope, Step, Timestamp,
    Transition,
};
use leasehold_store::Seq;

use super::batch::Draft;
use super::compensation::{Compensation, Undo};
use super::failure::Limbo;
use crate::calls::{Call, CallError, Query, Reply};
use crate::events::Beginning;

/// The settings of a writer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The largest record that the store takes.
    pub record_bytes_max: usize,
    /// The time after which callers are told to retry when the store is away.
    pub store_retry_after: Duration,
}

/// The one writer, as a state machine.
#[derive(Debug)]
pub struct Engine {
    pub(super) settings: Settings,
    pub(super) table: LockTable,
    pub(super) epoch: Epoch,
    /// The answer to requests for something new, once nothing is granted any more.
    pub(super) closed: Option<CallError>,

    /// Decided and applied, but not durable yet.
    pub(super) unwritten: VecDeque<Transition>,
    /// The revision up to which everything is durable.
    pub(super) durable: Revision,
    /// No higher fence can have been seen by a client.
    pub(super) durable_fence: FencingToken,
    pub(super) next_seq: Seq,
    /// The number of unwritten transitions that are in the record being written.
    pub(super) in_flight: Option<usize>,
    pub(super) draft: Option<Draft>,
    /// The store does not keep anything for now.
    pub(super) store_failed: bool,
    /// The revision that the epoch began with: nothing up to it is ever undone.
    pub(super) begun: Revision,
    /// The record of which nobody knows whether it was written. The table is as it was before it.
    pub(super) limbo: Option<Limbo>,
    /// Queries whose answers are held back.
    pub(super) queries: BTreeMap<CallId, Query>,

    /// Waits until everything up to the revision is durable, in order.
    pub(super) held_back: VecDeque<(Revision, Output)>,
    /// The number of those that a caller waits for.
    pub(super) awaited: usize,
    pub(super) ready: Vec<Output>,
    /// The scopes freed by unwritten transitions: they may not be shown as free yet.
    pub(super) ended: VecDeque<(Revision, Namespace, Scope)>,
    /// The namespaces in which leases ended as a whole in unwritten transitions: any lock there may have been theirs.
    pub(super) ending: VecDeque<(Revision, Namespace)>,
    /// Leases whose ttl was changed in unwritten transitions: nobody may be told yet how long they are.
    pub(super) ttls: VecDeque<(Revision, LeaseId)>,
    /// The subjects of the answers to waiting calls.
    pub(super) waiting: BTreeMap<CallId, Compensation>,
    pub(super) step: Step,
    #[cfg(feature = "inspect")]
    pub(super) inspection: crate::inspect::Inspection,
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
    /// A call stands in the queue, with the ticket that keeps its place.
    Queued {
        call: CallId,
        queued: Queued,
    },
    /// A holder should hear that its lease, or one grant of it, is gone.
    Lost {
        namespace: Namespace,
        lease: LeaseId,
        fence: Option<FencingToken>,
        ending: Ending,
    },
    /// A request waits, and the grant with this fence is in the way.
    Wanted {
        namespace: Namespace,
        lease: LeaseId,
        fence: FencingToken,
        scope: Scope,
    },
    /// This server leads, from here on.
    Began(Beginning),
    /// It does not any more: there is nothing to watch here.
    Ended,
}

/// An event, and whether it is the last one of its revision: a watcher that has seen it has seen the whole change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub event: Arc<Event>,
    pub last_of_revision: bool,
}

/// The state of a record that the store did not say it has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    Unwritten,
    Unknown,
}

impl Output {
    /// Whether a caller waits for it: news of what happened can come a moment later.
    pub(super) fn is_awaited(&self) -> bool {
        match self {
            Output::Reply { .. } | Output::Lost { .. } => true,
            Output::Event(_)
            | Output::Queued { .. }
            | Output::Wanted { .. }
            | Output::Began(_)
            | Output::Ended => false,
        }
    }
}

impl Engine {
    /// Takes over a table that has just begun this epoch. What that left unwritten comes with it.
    pub fn new(
        settings: Settings,
        mut table: LockTable,
        next_seq: Seq,
        unwritten: Vec<Transition>,
    ) -> Engine {
        let durable = Revision(table.revision().0 - unwritten.len() as u64);
        table.keep_undo();
        let table_revision = table.revision();
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
            draft: None,
            store_failed: false,
            begun: table_revision,
            limbo: None,
            queries: BTreeMap::new(),
            held_back: VecDeque::new(),
            awaited: 0,
            ready: Vec::new(),
            ended: VecDeque::new(),
            ending: VecDeque::new(),
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

    /// The number of transitions to be written.
    pub fn unwritten_len(&self) -> usize {
        self.unwritten.len()
    }

    /// The number of transitions the store has perhaps kept, so that they may yet be made again below all since.
    pub fn in_doubt_len(&self) -> usize {
        self.limbo.as_ref().map_or(0, |limbo| limbo.transitions.len())
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

    /// The number of callers that wait for unwritten transitions. No caller waits for the record of a release: it may go
    /// with the next one.
    pub fn awaited_len(&self) -> usize {
        self.awaited
    }

    /// The number of callers that wait: for what is unwritten, or in a queue.
    pub(crate) fn callers_len(&self) -> usize {
        self.awaited + self.waiting.len()
    }

    /// Ends granting and waiting: callers that wait, and those that come later, are told `why`.
    pub fn close(&mut self, now: Timestamp, why: &CallError) {
        self.closed = Some(why.clone());
        self.run(now, Command::Suspend);
        let waiting = std::mem::take(&mut self.waiting);
        for (call, about) in waiting {
            if let Compensation::Grant { namespace, .. } = about {
                let cancel = Cancel { namespace, call, keep_place: false };
                self.run(now, Command::Cancel(cancel));
                self.reply(call, Err(why.clone()));
            }
        }
    }

    /// Gives up this table: another server decides from now on. Every caller that still waits is told `why`, also one whose
    /// record was perhaps written.
    pub fn abandon(&mut self, why: &CallError, outcome: Failed) -> Vec<Output> {
        let mut outputs = std::mem::take(&mut self.ready);
        let (unknown, in_doubt) = (self.store_failure(true), self.in_doubt(outcome));
        for (revision, output) in self.held_back.drain(..) {
            if let Output::Reply { call, .. } = output {
                // Nothing comes of a query.
                let is_query = self.queries.remove(&call).is_some();
                let why = if revision <= in_doubt && !is_query { &unknown } else { why };
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
    pub(crate) fn redact_uncertain(&mut self, why: &CallError) {
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
        self.submit_within(now, id, call, &Quotas::UNLIMITED);
    }

    /// The same for a principal that may have so much and no more.
    pub fn submit_within(&mut self, now: Timestamp, id: CallId, call: Call, quotas: &Quotas) {
        match call {
            Call::Query(query) => self.answer_query(now, id, query),
            Call::Command(command) if self.store_failed && self.has_to_wait(&command) => {
                let why = self.store_failure(false);
                self.reply(id, Err(why));
            }
            Call::Command(command) => match (&command, &self.closed) {
                (Command::Acquire(_) | Command::OpenSession(_), Some(why)) => {
                    let why = why.clone();
                    self.reply(id, Err(why));
                }
                _ => self.carry_out(now, id, command, quotas),
            },
        }
    }

    pub fn tick(&mut self, now: Timestamp) {
        self.run(now, Command::Tick);
    }

    /// An answer could not be delivered: what it gave is taken back, unless a retry will ask for it.
    pub fn undelivered(&mut self, now: Timestamp, undo: Undo) {
        match undo {
            Undo::RetryableGrant(_) | Undo::RetryableSession(_) => {}
            Undo::Grant(withdraw) => self.run(now, Command::Withdraw(*withdraw)),
            Undo::Session(close) => self.run(now, Command::CloseSession(*close)),
        }
    }

    fn carry_out(&mut self, now: Timestamp, id: CallId, command: Command, quotas: &Quotas) {
        let about = Compensation::of(&command);
        let renews = renewed_by(&command);
        let breaks = matches!(command, Command::BreakSession(_));
        if let Command::Cancel(cancel) = &command {
            self.waiting.remove(&cancel.call);
        }
        let mut step = std::mem::take(&mut self.step);
        step.clear();
        let outcome = self.handle(now, command, quotas, &mut step);
        let answer = match outcome {
            Outcome::Queued(queued) => {
                self.waiting.insert(id, about);
                // No place in line is lasting, so it rests on nothing that could still be lost.
                self.ready.push(Output::Queued { call: id, queued });
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
        // A heartbeat right behind one that changed the ttl would show the new one as well.
        let waits = breaks || renews.is_some_and(|lease| self.is_ttl_unwritten(lease));
        if self.may_go_at_once(&reply, waits) {
            self.ready.push(Output::Reply { call: id, reply, undo });
        } else if self.store_failed {
            let why = self.store_failure(false);
            self.reply(id, Err(why));
        } else {
            self.show(Output::Reply { call: id, reply, undo });
        }
    }

    /// A command of the engine's own: nobody awaits its outcome.
    pub(super) fn run(&mut self, now: Timestamp, command: Command) {
        let mut step = std::mem::take(&mut self.step);
        step.clear();
        self.handle(now, command, &Quotas::UNLIMITED, &mut step);
        self.take_step(&mut step);
        self.step = step;
    }

    fn handle(
        &mut self,
        now: Timestamp,
        command: Command,
        quotas: &Quotas,
        step: &mut Step,
    ) -> Outcome {
        #[cfg(feature = "inspect")]
        self.inspection.before(&command);
        let outcome = self.table.handle_within(now, command, quotas, step);
        #[cfg(feature = "inspect")]
        self.inspection.after(&self.table, step);
        outcome
    }

    /// Notes what a step changed, and what it has to say to others.
    pub(super) fn take_step(&mut self, step: &mut Step) {
        let revision = self.table.revision();
        for transition in step.transitions.drain(..) {
            if let Transition::TtlChanged { lease, .. } = transition {
                self.ttls.push_back((revision, lease));
            }
            if let Transition::LeaseEnding { namespace, .. } = &transition {
                self.ending.push_back((revision, namespace.clone()));
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
                    if self.store_failed {
                        let may_go = self.may_go_at_once(&reply, false);
                        let failed = self.store_failure(false);
                        self.reply(call, if may_go { reply } else { Err(failed) });
                        continue;
                    }
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

    pub(super) fn note_ending(&mut self, event: &Event) {
        if let News::Ended { scope, .. } = &event.news {
            self.ended.push_back((event.revision, event.namespace.clone(), scope.clone()));
        }
    }

    /// Shows something as soon as everything up to now is durable.
    pub(super) fn show(&mut self, output: Output) {
        let revision = self.table.revision();
        let is_durable = revision <= self.durable || planted!("ack-before-commit");
        if is_durable && self.held_back.is_empty() {
            self.ready.push(output);
        } else {
            self.awaited += usize::from(output.is_awaited());
            self.held_back.push_back((revision, output));
        }
    }

    pub(super) fn error_for(&self, refusal: Refusal) -> CallError {
        match (&self.closed, refusal) {
            (Some(why), Refusal::Suspended) => why.clone(),
            (None, Refusal::Suspended) => self.store_failure(false),
            (_, refusal) => CallError::Refused(refusal),
        }
    }

    pub(super) fn store_failure(&self, outcome_unknown: bool) -> CallError {
        let retry_after = self.settings.store_retry_after;
        CallError::StoreUnavailable { retry_after, outcome_unknown }
    }

    pub(super) fn reply(&mut self, call: CallId, reply: Result<Reply, CallError>) {
        self.ready.push(Output::Reply { call, reply, undo: None });
    }
}

/// The lease that a command renews.
pub(super) fn renewed_by(command: &Command) -> Option<LeaseId> {
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
