//! A record that was not written, or of which nobody knows.
//!
//! Everything after the last durable revision is undone: it has never happened, and no record will have it. Only endings
//! that were acknowledged are made again, to be written when the store is back.

use leasehold_core::{
    ByOwner, CallId, Command, Ending, LeaseId, Namespace, News, OwnerAction, Revision, Scope, Step,
    Timestamp, Transition, planted,
};

use super::writer::renewed_by;
use super::{Engine, Failed, Output, Published, Undo};
use crate::calls::Query;

/// A record that may have been written.
#[derive(Debug, Default)]
pub(super) struct Limbo {
    pub(super) transitions: Vec<Transition>,
    /// News of it, for when it is known to be written.
    outputs: Vec<Output>,
    /// Takes back what its callers do not know of.
    undo: Vec<Undo>,
}

impl Engine {
    /// The record under way was not written, or nobody knows: callers are told so, and the table goes back to what is
    /// durable.
    pub fn append_failed(&mut self, now: Timestamp, outcome: Failed) {
        // Since it failed first, nothing was decided but endings: those are written again.
        if std::mem::replace(&mut self.store_failed, true) {
            return;
        }
        self.draft = None;
        self.run(now, Command::Suspend);
        let in_doubt = self.in_doubt(outcome);
        let (mut limbo, kept, queries) = self.refuse_held_back(in_doubt);
        let stays = self.stays_len();
        let under_way = self.in_flight_len().max(stays);
        let undone: Vec<Transition> = self.unwritten.drain(stays..).collect();
        if outcome == Failed::Unknown {
            limbo.transitions = undone[..under_way - stays].to_vec();
            self.limbo = Some(limbo);
        }
        self.undo_unwritten();
        // What is held again may close a cycle of requests that wait.
        self.run(now, Command::Tick);
        self.make_again(undone);
        kept.into_iter().for_each(|output| self.show(output));
        for (call, query) in queries {
            self.answer_query(now, call, query);
        }
    }

    /// The number of unwritten transitions that are never undone: the beginning of the epoch.
    pub(super) fn stays_len(&self) -> usize {
        let len = usize::try_from(self.begun.0.saturating_sub(self.durable.0));
        len.unwrap_or(usize::MAX).min(self.unwritten.len())
    }

    /// Answers every caller that waits for something to be durable. Gives what is known of the record in doubt, what can
    /// still be shown, and the queries to be answered anew.
    fn refuse_held_back(
        &mut self,
        in_doubt: Revision,
    ) -> (Limbo, Vec<Output>, Vec<(CallId, Query)>) {
        let (failed, unknown) = (self.store_failure(false), self.store_failure(true));
        let (mut limbo, mut kept, mut queries) = (Limbo::default(), Vec::new(), Vec::new());
        for (revision, output) in std::mem::take(&mut self.held_back) {
            let is_in_doubt = revision <= in_doubt;
            match output {
                Output::Reply { call, undo, .. } => {
                    if let Some(query) = self.queries.remove(&call) {
                        queries.push((call, query));
                        continue;
                    }
                    limbo.undo.extend(undo.filter(|_| is_in_doubt));
                    self.reply(
                        call,
                        Err(if is_in_doubt { unknown.clone() } else { failed.clone() }),
                    );
                }
                Output::Event(mut published) if !lasts(&published.event.news) => {
                    let event = std::sync::Arc::make_mut(&mut published.event);
                    event.revision = event.revision.min(self.durable);
                    kept.push(Output::Event(Published { last_of_revision: true, ..published }));
                }
                Output::Wanted { fence, .. } if fence <= self.durable_fence => kept.push(output),
                Output::Event(_) | Output::Lost { .. } if is_in_doubt => {
                    limbo.outputs.push(output);
                }
                Output::Event(_)
                | Output::Queued { .. }
                | Output::Lost { .. }
                | Output::Wanted { .. }
                | Output::Began(_)
                | Output::Ended => {}
            }
        }
        self.awaited = 0;
        (limbo, kept, queries)
    }

    /// The table as it is in the store, but for the beginning of the epoch.
    fn undo_unwritten(&mut self) {
        let mut step = Step::new();
        self.table.roll_back(self.durable.max(self.begun), &mut step);
        #[cfg(feature = "inspect")]
        self.inspection.rolled_back(&self.table);
        self.ended.clear();
        self.ending.clear();
        self.ttls.clear();
        self.take_step(&mut step);
    }

    /// Makes those of the endings again that were acknowledged.
    pub(super) fn make_again(&mut self, undone: Vec<Transition>) {
        let mut step = Step::new();
        for transition in undone {
            if is_acknowledged(&transition) && !planted!("acknowledged-end-is-undone") {
                self.table.end_again(transition, &mut step);
            } else if planted!("refused-change-is-kept") && is_small(&transition) {
                self.keep_small(transition);
            }
        }
        #[cfg(feature = "inspect")]
        {
            self.inspection.before(&Command::Tick);
            self.inspection.after(&self.table, &step);
        }
        self.take_step(&mut step);
    }

    /// The record in doubt was written: makes its changes again, below those made since. Gives the latter.
    pub(super) fn remake(&mut self, limbo: &Limbo) -> Vec<Transition> {
        let stays = self.stays_len();
        let since = self.unwritten.drain(stays..).collect();
        let held_back = std::mem::take(&mut self.held_back);
        self.awaited = 0;
        self.undo_unwritten();
        for transition in &limbo.transitions {
            let made = self.table.redo(transition);
            debug_assert!(made.is_ok(), "it was decided by this table: {made:?}");
            #[cfg(feature = "inspect")]
            self.inspection.applied(&self.table, transition);
            self.unwritten.push_back(transition.clone());
        }
        for (_, output) in held_back {
            let stays = match &output {
                Output::Event(published) => !lasts(&published.event.news),
                Output::Wanted { .. } => true,
                Output::Reply { .. }
                | Output::Queued { .. }
                | Output::Lost { .. }
                | Output::Began(_)
                | Output::Ended => false,
            };
            if stays {
                self.show(output);
            }
        }
        since
    }

    /// Takes the record in doubt as durable. Gives the compensations for what callers do not know of.
    pub(super) fn show_limbo(&mut self, limbo: Limbo) -> Vec<Undo> {
        self.ready.extend(limbo.outputs);
        limbo.undo
    }

    /// The store keeps what it is given again.
    pub(super) fn store_works(&mut self, now: Timestamp, undone: Vec<Undo>) {
        self.store_failed = false;
        for undo in undone {
            self.run(
                now,
                match undo {
                    Undo::Grant(withdraw) | Undo::RetryableGrant(withdraw) => {
                        Command::Withdraw(*withdraw)
                    }
                    Undo::Session(close) | Undo::RetryableSession(close) => {
                        Command::CloseSession(*close)
                    }
                },
            );
        }
        if self.closed.is_none() && !planted!("store-never-trusted-again") {
            self.run(now, Command::Resume);
        }
    }

    /// Whether a command would change something that has to be durable before it is answered.
    pub(super) fn has_to_wait(&self, command: &Command) -> bool {
        if renewed_by(command).is_some_and(|lease| self.is_shortened_in_limbo(lease)) {
            return true;
        }
        match command {
            Command::Renew(renew) => {
                renew.ttl.is_some_and(|ttl| self.is_new_ttl(&renew.namespace, renew.lease, ttl))
            }
            Command::KeepAlive(keep) => {
                keep.ttl.is_some_and(|ttl| self.is_new_ttl(&keep.namespace, keep.session, ttl))
            }
            Command::AcceptFence(accept) => {
                self.table.register(&accept.namespace, &accept.register) < Some(accept.fence)
            }
            Command::ByOwner(ask) => self.is_new_ttl_of(ask),
            Command::DeleteFence(delete) => {
                self.table.register(&delete.namespace, &delete.register).is_some()
            }
            Command::Break(_) | Command::BreakSession(_) | Command::RemoveFile(_) => true,
            Command::Acquire(_)
            | Command::Release(_)
            | Command::Unlock(_)
            | Command::Cancel(_)
            | Command::OpenSession(_)
            | Command::CloseSession(_)
            | Command::Attach(_)
            | Command::Disconnect(_)
            | Command::Withdraw(_)
            | Command::BeginEpoch(_)
            | Command::Jump(_)
            | Command::Suspend
            | Command::Resume
            | Command::Tick => false,
        }
    }

    fn is_new_ttl(&self, namespace: &Namespace, lease: LeaseId, ttl: std::time::Duration) -> bool {
        self.table.ttl_of(namespace, lease).is_some_and(|known| known.as_duration() != ttl)
    }

    /// The same for what the owner holds by its name.
    fn is_new_ttl_of(&self, ask: &ByOwner) -> bool {
        let OwnerAction::Hold { ttl, .. } = ask.action else { return false };
        let lock = self.table.get(&ask.namespace, &Scope::Key(ask.key.clone()));
        lock.holders.iter().any(|held| held.owner == ask.owner && held.ttl.as_duration() != ttl)
    }

    /// A crash could bring a lease back with less than a heartbeat would promise.
    pub(super) fn is_shortened_in_limbo(&self, lease: LeaseId) -> bool {
        let changes = self.limbo.iter().flat_map(|limbo| &limbo.transitions);
        changes.into_iter().any(|transition| {
            matches!(transition, Transition::TtlChanged { namespace, lease: changed, ttl }
                if *changed == lease && Some(*ttl) < self.table.ttl_of(namespace, lease))
        })
    }

    fn keep_small(&mut self, transition: Transition) {
        if self.table.apply(&transition).is_ok() {
            #[cfg(feature = "inspect")]
            self.inspection.applied(&self.table, &transition);
            self.unwritten.push_back(transition);
        }
    }
}

/// Whether watchers are told of a lasting change: others do not raise the revision.
fn lasts(news: &News) -> bool {
    match news {
        News::GraceEnded | News::Queued { .. } | News::Left { .. } | News::Deadlock { .. } => false,
        News::EpochBegan { .. }
        | News::SessionOpened { .. }
        | News::SessionEnded { .. }
        | News::Granted { .. }
        | News::Ended { .. }
        | News::TtlChanged { .. }
        | News::FenceAccepted { .. }
        | News::FenceDeleted { .. } => true,
    }
}

/// Whether it was answered before it was durable: by its holder, or in place of a holder that will never hear of it.
fn is_acknowledged(transition: &Transition) -> bool {
    let ending = match transition {
        // An owner has given its reclaim window up; those that pass end with their whole grant.
        Transition::KeyEnded { ending: Ending::WindowOver, .. } => return true,
        Transition::LeaseEnding { ending, .. }
        | Transition::LeaseEnded { ending, .. }
        | Transition::GrantEnded { ending, .. }
        | Transition::KeyEnded { ending, .. }
        | Transition::RangeEnded { ending, .. } => ending,
        Transition::EpochBegan { .. }
        | Transition::Jumped { .. }
        | Transition::SessionOpened(_)
        | Transition::Granted(_)
        | Transition::TtlChanged { .. }
        | Transition::LeaseLapsed { .. }
        | Transition::FenceAccepted { .. }
        | Transition::FenceDeleted { .. } => return false,
    };
    match ending {
        Ending::Released | Ending::Closed | Ending::Disconnected | Ending::Withdrawn => true,
        // What is due falls due again; what an operator or a new grant ended was told to nobody.
        Ending::Expired
        | Ending::GraceExpired
        | Ending::Revoked(_)
        | Ending::FileRemoved
        | Ending::Replaced
        | Ending::WindowOver
        | Ending::Reclaimed => false,
    }
}

fn is_small(transition: &Transition) -> bool {
    matches!(transition, Transition::TtlChanged { .. } | Transition::FenceAccepted { .. })
}
