//! The records that a leader writes, and the snapshots that take their place.

use std::time::Duration;

use leasehold_core::planted;
use leasehold_core::{Millis, Timestamp};
use leasehold_store::{Conflict, Error, Page, Pruned, Seq, with_cause};

use super::member::{Lead, Leading, RETRY_AFTER, Role};
use super::{Lane, Loading, Member, Request, Snapshots};
use crate::writer::{Engine, Failed, Output, Settings};

/// The longest time that transitions which no caller waits for stay unwritten.
const PIGGYBACK_WAIT_MAX: Millis = Millis::new(2);
/// With so many transitions unwritten they are written, whether or not a caller waits.
const PIGGYBACK_LEN_MAX: usize = 1024;
/// The time after which callers are told to retry when the store is away.
const STORE_RETRY: Duration = Duration::from_secs(1);

impl Member {
    pub(super) fn ask_about_records(&mut self, now: Timestamp) {
        self.resign_if_out_of_time(now);
        let failing = now < self.journal_at;
        if failing || !self.is_free(Lane::Journal) {
            return;
        }
        let request = match &mut self.role {
            Role::Loading(lead) => {
                let epoch = lead.leadership.epoch;
                match lead.work.position() {
                    Some(from) => Request::Load { epoch, from },
                    None => return self.begin(now),
                }
            }
            Role::Leading(lead) => match lead.next_record(now) {
                Some(request) => request,
                None => return self.resign_if_drained(now),
            },
            Role::Following(_) | Role::Resigning { .. } | Role::Stopped => return,
        };
        self.ask(now, request);
    }

    pub(super) fn loaded(&mut self, now: Timestamp, result: Result<Page, Error>) {
        let Role::Loading(lead) = &mut self.role else { return };
        match result {
            Ok(page) => {
                let added = lead.work.add(page);
                self.store_works();
                if let Err(fault) = added {
                    self.give_up(fault);
                }
            }
            // The snapshot was replaced under our eyes: begin anew.
            Err(Error::Conflict(Conflict::OutOfSnapshot { .. })) if self.caps.shared => {
                lead.work = Loading::new(self.plan.recovery.clone());
            }
            Err(error @ (Error::Conflict(_) | Error::Corrupt { .. } | Error::Newer { .. })) => {
                self.lost(now, error)
            }
            Err(error) if self.caps.shared => {
                self.store_failure = Some(with_cause(&error).into());
                self.journal_at = now.plus(RETRY_AFTER);
            }
            Err(error) => self.give_up(error.into()),
        }
    }

    /// The whole table is in.
    fn begin(&mut self, now: Timestamp) {
        let role = std::mem::replace(&mut self.role, Role::Stopped);
        let Role::Loading(lead) = role else { unreachable!("only what is loaded begins") };
        let Lead { leadership, certain_until, work } = *lead;
        let recovered = work.begin(leadership.epoch, now);
        tracing::info!(
            epoch = leadership.epoch.0,
            revision = recovered.table.revision().0,
            recovering = recovered.recovering,
            "state recovered"
        );
        if let Some(grace) = recovered.table.grace() {
            tracing::info!(
                policy = if grace.strict { "strict" } else { "conflicting" },
                ends_in_ms = u64::try_from(grace.ends_at.since(now).as_millis()).ok(),
                expected = grace.expected,
                "recovery grace active"
            );
        }
        self.outputs.push(Output::Began(recovered.beginning));
        let settings = Settings {
            record_bytes_max: self.caps.record_bytes_max,
            store_retry_after: STORE_RETRY,
        };
        let engine =
            Engine::new(settings, recovered.table, recovered.next_seq, recovered.unwritten);
        let snapshots =
            Snapshots::new(self.plan.snapshot_bytes, self.caps.shared, now, recovered.loaded);
        let work = Leading {
            engine,
            snapshots,
            appending_bytes: 0,
            outcome_unknown: false,
            piggyback_since: None,
            closing: None,
        };
        self.role = Role::Leading(Box::new(Lead { leadership, certain_until, work }));
        self.ask_about_records(now);
    }

    pub(super) fn appended(&mut self, now: Timestamp, result: Result<(), Error>) {
        let Role::Leading(lead) = &mut self.role else { return };
        let work = &mut lead.work;
        match result {
            Ok(()) => {
                work.snapshots.appended(now, work.appending_bytes);
                work.engine.appended(now);
                self.doubt_unless_certain(now);
                self.store_works();
            }
            Err(error)
                if matches!(error, Error::Unavailable { .. })
                    || (matches!(error, Error::OutcomeUnknown { .. })
                        && planted!("unknown-append-taken-for-unwritten")) =>
            {
                work.engine.append_failed(now, Failed::Unwritten);
                work.engine.unseal();
                work.snapshots.unsealed(work.engine.next_seq());
                self.store_failed(now, &error);
            }
            Err(error @ (Error::OutcomeUnknown { .. } | Error::Unavailable { .. })) => {
                work.engine.append_failed(now, Failed::Unknown);
                // The table is no longer of the moment that a snapshot may have begun at.
                work.snapshots.unsealed(work.engine.next_seq());
                work.outcome_unknown = true;
                self.store_failed(now, &error);
                // Not knowing is worse than waiting: ask at once.
                self.journal_at = now;
            }
            Err(error @ (Error::Conflict(_) | Error::Corrupt { .. } | Error::Newer { .. })) => {
                self.lost(now, error)
            }
        }
    }

    /// Whether a record was written is found out, however long that takes, before anything else is.
    pub(super) fn read_back(&mut self, now: Timestamp, result: Result<bool, Error>) {
        let Role::Leading(lead) = &mut self.role else { return };
        let work = &mut lead.work;
        match result {
            Ok(true) => {
                work.outcome_unknown = false;
                work.snapshots.appended(now, work.appending_bytes);
                work.engine.appended(now);
                self.doubt_unless_certain(now);
                self.store_works();
            }
            Ok(false) => {
                work.outcome_unknown = false;
                work.engine.unseal();
                work.snapshots.unsealed(work.engine.next_seq());
                self.journal_at = now.plus(RETRY_AFTER);
            }
            Err(error @ (Error::Unavailable { .. } | Error::OutcomeUnknown { .. })) => {
                self.store_failed(now, &error);
            }
            Err(error @ (Error::Conflict(_) | Error::Corrupt { .. } | Error::Newer { .. })) => {
                self.lost(now, error)
            }
        }
    }

    /// A leader that stood still may hear of its record when another one leads.
    fn doubt_unless_certain(&mut self, now: Timestamp) {
        let why = self.not_leader();
        if let Role::Leading(lead) = &mut self.role
            && !lead.is_certain(now)
        {
            lead.work.engine.redact_uncertain(&why);
        }
    }

    fn store_failed(&mut self, now: Timestamp, error: &Error) {
        let why = with_cause(error);
        if self.store_failure.is_none() {
            tracing::error!(error = why, "the store failed; nothing is granted until it is back");
        }
        self.store_failure = Some(why.into());
        self.journal_at = now.plus(RETRY_AFTER);
    }

    pub(super) fn store_works(&mut self) {
        if self.store_failure.take().is_some() {
            tracing::info!("the store is back");
        }
    }

    // Snapshots.

    pub(super) fn ask_about_snapshot(&mut self, now: Timestamp) {
        if !self.is_free(Lane::Snapshot) {
            return;
        }
        let Role::Leading(lead) = &mut self.role else { return };
        let work = &mut lead.work;
        if work.engine.is_store_failed() || work.closing.is_some() {
            return;
        }
        let durable = Seq(work.engine.next_seq().0 - 1);
        if work.engine.unwritten_len() == 0 {
            work.snapshots.begin_if_due(now, work.engine.table_mut(), durable);
        }
        let epoch = lead.leadership.epoch;
        let request = work.snapshots.next_request(work.engine.table_mut(), epoch, durable);
        if let Some(request) = request {
            self.ask(now, request);
        }
    }

    pub(super) fn snapshot_went_on(
        &mut self,
        now: Timestamp,
        result: Result<Option<Pruned>, Error>,
    ) {
        let Role::Leading(lead) = &mut self.role else { return };
        match result {
            Ok(Some(pruned)) => lead.work.snapshots.pruned(pruned),
            Ok(None) => {}
            Err(error @ Error::Conflict(Conflict::Deposed { .. })) => self.lost(now, error),
            Err(error) => {
                tracing::warn!(error = with_cause(&error), "snapshot aborted");
                lead.work.snapshots.failed(now);
            }
        }
    }
}

impl Lead<Leading> {
    /// The next question about the records, if there is one.
    fn next_record(&mut self, now: Timestamp) -> Option<Request> {
        let epoch = self.leadership.epoch;
        let work = &mut self.work;
        if work.outcome_unknown {
            return Some(Request::ReadBack { epoch, seq: work.engine.next_seq() });
        }
        if work.may_piggyback(now) {
            return None;
        }
        work.piggyback_since = None;
        let batch = work.engine.seal()?;
        if work.engine.sealed_all() {
            work.snapshots.begin_if_due(now, work.engine.table_mut(), batch.seq());
        }
        work.appending_bytes = batch.bytes().len();
        Some(Request::Append { transitions: work.engine.in_flight_len(), batch })
    }
}

impl Leading {
    /// When a snapshot is to begin without anything else happening.
    pub(super) fn snapshot_due(&self) -> Option<Timestamp> {
        let may_begin = self.engine.unwritten_len() == 0
            && !self.engine.is_store_failed()
            && self.closing.is_none();
        self.snapshots.due_at().filter(|_| may_begin)
    }

    /// When a record is to be written, or asked for again, without anything else happening.
    pub(super) fn record_due(&self, journal_at: Timestamp) -> Option<Timestamp> {
        let waits = self.outcome_unknown || self.engine.is_store_failed();
        match self.piggyback_since {
            Some(since) if !self.engine.is_store_failed() => {
                Some(since.plus(PIGGYBACK_WAIT_MAX).max(journal_at))
            }
            Some(_) | None => waits.then_some(journal_at),
        }
    }

    /// Whether what is unwritten can wait for something else to be written with.
    fn may_piggyback(&mut self, now: Timestamp) -> bool {
        let unwritten = self.engine.unwritten_len();
        let is_wanted = unwritten >= PIGGYBACK_LEN_MAX || self.engine.awaited_len() > 0;
        if unwritten == 0 || is_wanted || self.engine.is_store_failed() || self.closing.is_some() {
            return false;
        }
        let since = *self.piggyback_since.get_or_insert(now);
        now < since.plus(PIGGYBACK_WAIT_MAX)
    }
}
