//! Everything back, a page at a time, as of one revision.
//!
//! The revision is at least the one at which this server has won its mandate, and named in each request. So all that
//! was committed before is in it, whichever member answers: one that has not come so far yet refuses.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use leasehold_core::Epoch;

use super::Inner;
use super::client::Failure;
use super::keys::{first, get, range};
use super::leadership::{Mandate, found};
use super::proto::{KeyValue, StoredSnapshot, TxnRequest};
use crate::error::{Conflict, Error};
use crate::journal::{Loaded, Page, Position, Seq};
use crate::stored::{PAGE_BYTES, PageWriter, stored_batch, stored_chunk};

const TASK: &str = "the journal cannot be read";

/// etcd counts keys, not bytes: a page begins small, and later ones are as large as those before suggest. Even if all records of
/// one were as large as a record may be, the answer would be no larger than we take.
const PAGE_LEN_FIRST: i64 = 8;
const PAGE_LEN_MAX: i64 = 512;

impl Inner {
    pub(super) async fn load(&self, epoch: Epoch, from: Position) -> Result<Page, Error> {
        let mandate = self.mandate(epoch).await?;
        if from == Position::Start {
            let at = self.seen.load(Ordering::Acquire).max(mandate.revision);
            self.known(|known| {
                known.loading_at = at;
                known.page_len = PAGE_LEN_FIRST;
            });
        }
        let page = self.page(&mandate, from).await;
        let Err(Stopped::Compacted) = page else { return page.map_err(Stopped::error) };
        // The journal is this server's alone: a later revision has the same in it.
        let now = self.client.range(first(self.keys.leader.clone(), Vec::new(), 1)).await;
        let now = now.map_err(|failure| failure.unavailable(TASK))?;
        let revision = now.header.map_or(0, |header| header.revision);
        self.saw(revision);
        self.known(|known| known.loading_at = known.loading_at.max(revision));
        self.page(&mandate, from).await.map_err(Stopped::error)
    }

    async fn page(&self, mandate: &Mandate, from: Position) -> Result<Page, Stopped> {
        let at = self.known(|known| known.loading_at);
        match from {
            Position::After(seq) => self.load_records(mandate, at, seq).await,
            Position::Start => match self.snapshot_at(mandate, at).await? {
                Some(snapshot) => self.load_chunks(mandate, at, &snapshot, 0).await,
                None => self.load_records(mandate, at, Seq(0)).await,
            },
            Position::Chunk { as_of, index } => match self.snapshot_at(mandate, at).await? {
                Some(snapshot) if snapshot.as_of == as_of.0 => {
                    self.load_chunks(mandate, at, &snapshot, index).await
                }
                Some(_) | None => {
                    Err(Stopped::Error(Conflict::OutOfSnapshot { as_of, index }.into()))
                }
            },
        }
    }

    async fn snapshot_at(
        &self,
        mandate: &Mandate,
        at: i64,
    ) -> Result<Option<StoredSnapshot>, Stopped> {
        let key = self.keys.snapshot.clone();
        let (found, _) = self.read(mandate, at, key, Vec::new(), 1).await?;
        let Some(found) = found.first() else { return Ok(None) };
        let snapshot = prost::Message::decode(&*found.value).map_err(|error| {
            Stopped::Error(Error::corrupt("the key of the snapshot cannot be read").because(error))
        })?;
        Ok(Some(snapshot))
    }

    async fn load_chunks(
        &self,
        mandate: &Mandate,
        at: i64,
        snapshot: &StoredSnapshot,
        from: u32,
    ) -> Result<Page, Stopped> {
        let as_of = Seq(snapshot.as_of);
        let (start, end) =
            (self.keys.chunk(&snapshot.id, from, 0), self.keys.chunks_end(&snapshot.id));
        let limit = self.known(|known| known.page_len);
        let (found, more) = self.read(mandate, at, start, end, limit).await?;
        let mut chunks = self.join_parts(&found);
        if more && chunks.len() > 1 {
            // There may be more parts of the last one.
            chunks.pop();
        } else if more {
            let (from, end) = (
                self.keys.chunk(&snapshot.id, from, 0),
                self.keys.chunk(&snapshot.id, from.saturating_add(1), 0),
            );
            let (found, _) = self.read(mandate, at, from, end, 0).await?;
            chunks = self.join_parts(&found);
        }
        let mut page = PageWriter::default();
        let mut index = from;
        for (found, bytes) in chunks {
            if found != index {
                return Err(missing_chunk(as_of, index));
            }
            let len = bytes.len();
            page.push(Loaded::Chunk(stored_chunk(as_of, index, bytes.into())?), len);
            index += 1;
        }
        if more {
            return Ok(page.until(Position::Chunk { as_of, index }));
        }
        if index != snapshot.chunks {
            return Err(missing_chunk(as_of, index));
        }
        Ok(page.until(Position::After(as_of)))
    }

    fn join_parts(&self, found: &[KeyValue]) -> Vec<(u32, Vec<u8>)> {
        let mut chunks: Vec<(u32, Vec<u8>)> = Vec::new();
        for part in found {
            let Some((_, index)) = self.keys.chunk_of(&part.key) else { continue };
            match chunks.last_mut() {
                Some((last, bytes)) if *last == index => bytes.extend_from_slice(&part.value),
                Some(_) | None => chunks.push((index, part.value.clone())),
            }
        }
        chunks
    }

    async fn load_records(&self, mandate: &Mandate, at: i64, after: Seq) -> Result<Page, Stopped> {
        // From the record before, which is always kept: if it is not there, others may be missing too. And to the one
        // behind, which tells that there is more: etcd goes through all keys that are asked for, however few it is to give.
        let len = self.known(|known| known.page_len);
        let end = Seq(after.0.saturating_add(len.unsigned_abs()).saturating_add(2));
        let (start, end) = (self.keys.record(after), self.keys.record(end));
        let (mut found, _) = self.read(mandate, at, start, end.clone(), 0).await?;
        match found.first().and_then(|first| self.keys.seq_of(&first.key)) {
            Some(first) if first == after => drop(found.remove(0)),
            Some(_) | None if after == Seq(0) => return Err(missing_record(Seq(1))),
            Some(_) | None => return Err(missing_record(after)),
        }
        let more = i64::try_from(found.len()).is_ok_and(|found| found > len);
        if more {
            found.pop();
        } else {
            let behind = self.read(mandate, at, end, self.keys.records_end(), 1).await?;
            if !behind.0.is_empty() {
                return Err(missing_record(Seq(after.0 + found.len() as u64 + 1)));
            }
        }
        let count = found.len();
        let mut page = PageWriter::default();
        let mut last = after;
        for (place, record) in found.into_iter().enumerate() {
            let seq = last.next();
            if self.keys.seq_of(&record.key) != Some(seq) {
                return Err(missing_record(seq));
            }
            let bytes: Arc<[u8]> = record.value.into();
            let len = bytes.len();
            let is_last = !more && place + 1 == count;
            page.push(stored_batch(seq, bytes, is_last)?, len);
            last = seq;
        }
        Ok(if more { page.until(Position::After(last)) } else { page.end() })
    }

    /// Keys as they were at this revision, if the mandate still stands; and whether there are more.
    async fn read(
        &self,
        mandate: &Mandate,
        at: i64,
        from: Vec<u8>,
        to: Vec<u8>,
        limit: i64,
    ) -> Result<(Vec<KeyValue>, bool), Stopped> {
        let mut keys = first(from, to, limit);
        keys.revision = at;
        let txn = TxnRequest {
            compare: vec![self.is_mandated(mandate)],
            success: vec![range(keys)],
            failure: vec![get(&self.keys.leader)],
        };
        let answer = match self.client.txn(txn).await {
            Ok(answer) => answer,
            Err(Failure::Compacted) => return Err(Stopped::Compacted),
            Err(failure) => return Err(Stopped::Error(failure.unavailable(TASK))),
        };
        let found = found(&answer, 0);
        let kvs = found.map_or(&[][..], |found| &found.kvs);
        if !answer.succeeded {
            self.check_mandate(mandate, kvs).map_err(|conflict| Stopped::Error(conflict.into()))?;
            return Err(Stopped::Error(Error::unavailable(TASK)));
        }
        self.suit_page_len(kvs);
        Ok((kvs.to_vec(), found.is_some_and(|found| found.more)))
    }

    fn suit_page_len(&self, found: &[KeyValue]) {
        let bytes: usize = found.iter().map(|found| found.value.len()).sum();
        if found.len() < 2 || bytes == 0 {
            return;
        }
        let len = PAGE_BYTES * found.len() / bytes;
        let len = i64::try_from(len).unwrap_or(PAGE_LEN_MAX).clamp(2, PAGE_LEN_MAX);
        self.known(|known| known.page_len = len);
    }
}

/// The reason why a page could not be read.
enum Stopped {
    Compacted,
    Error(Error),
}

impl Stopped {
    fn error(self) -> Error {
        match self {
            Stopped::Compacted => Failure::Compacted.unavailable(TASK),
            Stopped::Error(error) => error,
        }
    }
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Error(error)
    }
}

fn missing_record(seq: Seq) -> Stopped {
    Stopped::Error(Error::corrupt(format!("journal record {seq} is missing")))
}

fn missing_chunk(as_of: Seq, index: u32) -> Stopped {
    Stopped::Error(Error::corrupt(format!(
        "chunk {index} of the snapshot as of record {as_of} is missing"
    )))
}

#[cfg(feature = "conformance")]
impl Inner {
    pub(super) async fn corrupt(&self, harm: crate::conformance::Corruption) {
        use crate::conformance::Corruption;
        let key = match harm {
            Corruption::CutRecord(seq)
            | Corruption::FlipRecord(seq)
            | Corruption::RemoveRecord(seq)
            | Corruption::NewerRecord(seq) => self.keys.record(seq),
            Corruption::FlipChunk(index) => {
                let snapshot = self.complete(0).await.expect("it can be read");
                self.keys.chunk(&snapshot.expect("there is one").id, index, 0)
            }
        };
        let found = self.client.range(first(key.clone(), Vec::new(), 1)).await;
        let found = found.expect("it can be read").kvs.remove(0);
        let change = match harm.apply(found.value) {
            Some(bytes) => super::keys::put(&key, &bytes),
            None => super::keys::delete(key, Vec::new()),
        };
        let txn = TxnRequest { success: vec![change], ..TxnRequest::default() };
        self.client.txn(txn).await.expect("it can be harmed");
    }
}
