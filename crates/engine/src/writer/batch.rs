//! Records: what is in one, and what becomes of those who wait for it.

use leasehold_core::{Revision, Timestamp, Transition};
use leasehold_store::{Batch, BatchWriter, Seq};

use super::{Engine, Failed, Output};

/// The next record, as far as it is encoded.
#[derive(Debug)]
pub(super) struct Draft {
    writer: BatchWriter,
    /// The number of its transitions.
    len: usize,
}

impl Engine {
    /// The next record to append, unless one is under way or there is nothing to write.
    pub fn seal(&mut self) -> Option<Batch> {
        if self.in_flight.is_some() {
            return None;
        }
        if self.unwritten.is_empty() {
            return self.probe();
        }
        self.draft_on(0, self.next_seq);
        let draft = self.draft.take()?;
        self.in_flight = Some(draft.len);
        let batch = draft.writer.seal();
        assert_eq!(batch.epoch(), self.epoch, "a record is of the epoch that its writer leads");
        assert_eq!(batch.seq(), self.next_seq, "records follow each other without a gap");
        Some(batch)
    }

    /// A record of nothing: it tells whether a store that failed works again.
    fn probe(&mut self) -> Option<Batch> {
        if !self.store_failed || self.closed.is_some() {
            return None;
        }
        self.in_flight = Some(0);
        Some(BatchWriter::new(self.epoch, self.next_seq).seal())
    }

    /// Encodes what is to be in the next record as far as it is known: then nobody waits for that when its time has come.
    pub fn draft_next(&mut self) {
        // What follows a record in doubt is known when that is settled.
        if self.limbo.is_some() {
            return;
        }
        let (from, seq) = match self.in_flight {
            Some(under_way) => (under_way, self.next_seq.next()),
            None => (0, self.next_seq),
        };
        if self.unwritten.len() > from {
            self.draft_on(from, seq);
        }
    }

    /// Goes on with the draft, whose first transition is number `from` of the unwritten ones.
    fn draft_on(&mut self, from: usize, seq: Seq) {
        let draft = self
            .draft
            .get_or_insert_with(|| Draft { writer: BatchWriter::new(self.epoch, seq), len: 0 });
        for transition in self.unwritten.range(from + draft.len..) {
            let is_large = draft.writer.byte_len() >= self.settings.record_bytes_max / 2;
            if draft.len > 0 && is_large {
                break;
            }
            draft.writer.push(transition);
            draft.len += 1;
        }
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
        let limbo = self.limbo.take();
        let again = limbo.as_ref().map(|limbo| self.remake(limbo)).unwrap_or_default();
        for transition in self.unwritten.range(..len) {
            if let Transition::Granted(granted) = transition {
                self.durable_fence = granted.fence;
            }
        }
        self.unwritten.drain(..len);
        self.next_seq = self.next_seq.next();
        self.durable.0 += len as u64;
        self.table.settle(self.durable);
        let undone = limbo.map(|limbo| self.show_limbo(limbo)).unwrap_or_default();
        self.show_durable();
        if self.store_failed {
            self.make_again(again);
            self.store_works(now, undone);
        }
    }

    fn show_durable(&mut self) {
        let shown = self.held_back.partition_point(|(revision, _)| *revision <= self.durable);
        let awaited = self.held_back.range(..shown).filter(|(_, output)| output.is_awaited());
        self.awaited -= awaited.count();
        for (_, output) in self.held_back.drain(..shown) {
            if let Output::Reply { call, .. } = &output {
                self.queries.remove(call);
            }
            self.ready.push(output);
        }
        while self.ended.front().is_some_and(|(revision, ..)| *revision <= self.durable) {
            self.ended.pop_front();
        }
        while self.ending.front().is_some_and(|(revision, _)| *revision <= self.durable) {
            self.ending.pop_front();
        }
        while self.ttls.front().is_some_and(|(revision, _)| *revision <= self.durable) {
            self.ttls.pop_front();
        }
    }

    /// Up to where nobody knows what is durable.
    pub(super) fn in_doubt(&self, outcome: Failed) -> Revision {
        match outcome {
            Failed::Unwritten => self.durable,
            Failed::Unknown => Revision(self.durable.0 + self.in_flight_len() as u64),
        }
    }

    /// The record that failed is known not to be there: it may be sealed again.
    pub fn unseal(&mut self) {
        (self.in_flight, self.limbo) = (None, None);
        // It would have come after that one.
        self.draft = None;
    }
}
