//! Snapshots: written piece by piece beside the appends, then made the one that counts, then the rest is removed.
//!
//! Each snapshot has a name of its own, of the epoch and a number. The key `begun` holds the name of the one begun last,
//! and only that one can go on or be committed: what arrives late for an older one does nothing.

use leasehold_core::Epoch;
use prost::Message;

use super::keys::{delete, first, holds, is_there, put};
use super::leadership::{Mandate, kvs, revision};
use super::proto::StoredSnapshot;
use super::{Inner, RECORD_BYTES_MAX};
use crate::error::{Conflict, Error};
use crate::journal::{Pruned, Seq};
use crate::record::Chunk;

/// The most that one call of `prune` removes.
const PRUNED_RECORDS: u64 = 512;

/// A snapshot that is being written.
#[derive(Clone, Debug)]
pub(super) struct OpenSnapshot {
    id: String,
    epoch: Epoch,
    as_of: Seq,
    chunks: u32,
    /// The key that was written last.
    last: Vec<u8>,
}

impl Inner {
    pub(super) async fn put_chunk(&self, chunk: &Chunk) -> Result<(), Error> {
        let (epoch, as_of, index) = (chunk.epoch(), chunk.as_of(), chunk.index());
        let conflict = Conflict::OutOfSnapshot { as_of, index };
        let mandate = self.mandate(epoch).await?;
        let open = self.known(|known| known.open.clone());
        let open =
            open.filter(|open| (open.epoch, open.as_of, open.chunks) == (epoch, as_of, index));
        let mut open = match open {
            Some(open) => open,
            None if index == 0 => {
                let last = self.last_snapshot(&mandate, "the snapshot cannot be written").await?;
                if last.is_some_and(|last| as_of.0 < last.as_of) {
                    return Err(conflict.into());
                }
                let number = self.known(|known| {
                    known.begun += 1;
                    known.begun
                });
                let id = format!("{:016x}-{number:08x}", epoch.0);
                OpenSnapshot { id, epoch, as_of, chunks: 0, last: Vec::new() }
            }
            None => return Err(self.out_of_snapshot(&mandate, conflict).await),
        };
        for (part, bytes) in chunk.bytes().chunks(RECORD_BYTES_MAX).enumerate() {
            if let Err(error) = self.put_part(&mandate, &mut open, index, part, bytes).await {
                // It may be there or not. A snapshot that is begun anew has another name.
                self.known(|known| known.open = None);
                return Err(error);
            }
        }
        open.chunks = index + 1;
        self.known(|known| known.open = Some(open));
        Ok(())
    }

    async fn put_part(
        &self,
        mandate: &Mandate,
        open: &mut OpenSnapshot,
        index: u32,
        part: usize,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let key = self.keys.chunk(&open.id, index, part);
        let (compare, success) = if (index, part) == (0, 0) {
            let begin = put(&self.keys.begun, open.id.as_bytes());
            (vec![is_there(self.keys.record(open.as_of))], vec![begin, put(&key, bytes)])
        } else {
            let goes_on = holds(&self.keys.begun, open.id.as_bytes());
            (vec![goes_on, is_there(open.last.clone())], vec![put(&key, bytes)])
        };
        let task = "the snapshot cannot be written";
        match self.as_leader(mandate, compare, success, task).await? {
            Some(_) => {
                open.last = key;
                Ok(())
            }
            None => Err(Conflict::OutOfSnapshot { as_of: open.as_of, index }.into()),
        }
    }

    /// It does not follow, unless there is no right to write at all.
    async fn out_of_snapshot(&self, mandate: &Mandate, conflict: Conflict) -> Error {
        let task = "the snapshot cannot be written";
        match self.as_leader(mandate, Vec::new(), Vec::new(), task).await {
            Ok(_) => conflict.into(),
            Err(error) => error,
        }
    }

    pub(super) async fn commit_snapshot(
        &self,
        epoch: Epoch,
        as_of: Seq,
        chunks: u32,
    ) -> Result<(), Error> {
        let task = "the snapshot cannot be committed";
        let conflict = Conflict::OutOfSnapshot { as_of, index: chunks };
        let mandate = self.mandate(epoch).await?;
        let open = self.known(|known| known.open.clone());
        let open =
            open.filter(|open| (open.epoch, open.as_of, open.chunks) == (epoch, as_of, chunks));
        let Some(open) = open else {
            return self.committed_before(&mandate, as_of, chunks, conflict).await;
        };
        let compare =
            vec![holds(&self.keys.begun, open.id.as_bytes()), is_there(open.last.clone())];
        let snapshot =
            StoredSnapshot { id: open.id.clone(), as_of: as_of.0, chunks, epoch: epoch.0 };
        let success = vec![put(&self.keys.snapshot, &snapshot.encode_to_vec())];
        if self.as_leader(&mandate, compare, success, task).await?.is_none() {
            return Err(conflict.into());
        }
        self.known(|known| known.open = None);
        Ok(())
    }

    /// An earlier call may have done it although it failed.
    async fn committed_before(
        &self,
        mandate: &Mandate,
        as_of: Seq,
        chunks: u32,
        conflict: Conflict,
    ) -> Result<(), Error> {
        let last = self.last_snapshot(mandate, "the snapshot cannot be committed").await?;
        let is_it = last.is_some_and(|last| {
            (last.epoch, last.as_of, last.chunks) == (mandate.epoch.0, as_of.0, chunks)
        });
        if is_it { Ok(()) } else { Err(conflict.into()) }
    }

    /// The one that counts. While the mandate holds, nobody else commits another.
    async fn last_snapshot(
        &self,
        mandate: &Mandate,
        task: &str,
    ) -> Result<Option<StoredSnapshot>, Error> {
        let read = vec![super::keys::get(&self.keys.snapshot)];
        let answer = self.as_leader(mandate, Vec::new(), read, task).await?;
        let found = answer.as_ref().and_then(|answer| kvs(answer, 0).first());
        Ok(found.and_then(|found| StoredSnapshot::decode(&*found.value).ok()))
    }

    // The record that the snapshot is as of stays: so the next record always follows one that is there.
    pub(super) async fn prune(&self, epoch: Epoch) -> Result<Pruned, Error> {
        let task = "what is superfluous cannot be removed";
        let mandate = self.mandate(epoch).await?;
        let mut look =
            vec![super::keys::get(&self.keys.snapshot), super::keys::get(&self.keys.begun)];
        let oldest = self.known(|known| known.oldest);
        if oldest.is_none() {
            let mut records = first(self.keys.record(Seq(0)), self.keys.records_end(), 1);
            records.keys_only = true;
            look.push(super::keys::range(records));
        }
        let answer = self.as_leader(&mandate, Vec::new(), look, task).await?;
        let answer = answer.ok_or_else(|| Error::unavailable(task))?;
        let snapshot =
            kvs(&answer, 0).first().and_then(|found| StoredSnapshot::decode(&*found.value).ok());
        let mut removals = self.stale_chunks(&mandate, &snapshot, kvs(&answer, 1)).await?;
        let found = kvs(&answer, 2).first().and_then(|found| self.keys.seq_of(&found.key));
        let mut oldest = oldest.or(found);
        let mut more = !removals.is_empty();
        if let (Some(snapshot), Some(oldest)) = (&snapshot, &mut oldest)
            && oldest.0 < snapshot.as_of
        {
            let end = Seq(snapshot.as_of.min(oldest.0 + PRUNED_RECORDS));
            removals.push(delete(self.keys.record(*oldest), self.keys.record(end)));
            more |= end.0 < snapshot.as_of;
            *oldest = end;
        }
        if !removals.is_empty() {
            let done = self.as_leader(&mandate, Vec::new(), removals, task).await?;
            let done = done.ok_or_else(|| Error::unavailable(task))?;
            self.known(|known| known.oldest = oldest);
            if !more {
                self.forget(revision(&done)).await;
            }
        }
        Ok(if more { Pruned::Partial } else { Pruned::Done })
    }

    /// The pieces of one snapshot that neither counts nor is being written.
    async fn stale_chunks(
        &self,
        mandate: &Mandate,
        complete: &Option<StoredSnapshot>,
        begun: &[super::proto::KeyValue],
    ) -> Result<Vec<super::proto::RequestOp>, Error> {
        // One that an earlier leader has begun can no longer go on.
        let own = format!("{:016x}-", mandate.epoch.0);
        let begun = begun.first().and_then(|begun| std::str::from_utf8(&begun.value).ok());
        let kept = [
            complete.as_ref().map(|snapshot| snapshot.id.as_str()),
            begun.filter(|begun| begun.starts_with(&own)),
        ];
        let (mut from, end) = self.keys.all_chunks();
        loop {
            let mut look = first(from, end.clone(), 1);
            look.keys_only = true;
            let found = self.client.range(look).await;
            let found = found
                .map_err(|failure| failure.unavailable("what is superfluous cannot be removed"))?;
            let Some(key) = found.kvs.first().map(|found| &found.key) else {
                return Ok(Vec::new());
            };
            let Some((id, _)) = self.keys.chunk_of(key) else { return Ok(Vec::new()) };
            if !kept.contains(&Some(id)) {
                return Ok(vec![delete(self.keys.chunks_start(id), self.keys.chunks_end(id))]);
            }
            from = self.keys.chunks_end(id);
        }
    }

    /// Lets etcd forget what was removed the time before: nobody reads that far back, and without it the file would
    /// only grow. What was removed now is kept until the next time.
    async fn forget(&self, revision: i64) {
        let until = self.known(|known| std::mem::replace(&mut known.forget_to, revision));
        if !self.compact || until == 0 {
            return;
        }
        match self.client.compact(until).await {
            // Another one, or another group, was ahead.
            Ok(()) | Err(super::client::Failure::Compacted) => {}
            Err(failure) => {
                tracing::warn!(store = %self.name, "old revisions cannot be forgotten: {failure}");
            }
        }
    }
}
