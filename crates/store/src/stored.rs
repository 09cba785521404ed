//! Checks of bytes that come out of a store: the same in every store.

use std::sync::Arc;

use leasehold_core::Epoch;

use crate::error::Error;
use crate::journal::{Loaded, Page, Position, Seq};
use crate::record::{Batch, Chunk, Fault};

/// The size of one page of a load.
pub(crate) const PAGE_BYTES: usize = 1 << 20;

/// A record has to be larger than this before its own size decides how far fences jump when it is lost.
const TORN_JUMP_MIN: u64 = 1 << 20;

/// The record that was found under number `seq`; `last` says that no other follows it.
///
/// Only the last record can have been cut off by a crash, so only there are bad bytes forgiven.
pub fn stored_batch(seq: Seq, bytes: Arc<[u8]>, last: bool) -> Result<Loaded, Error> {
    let byte_len = bytes.len() as u64;
    match Batch::parse(bytes) {
        Ok(batch) if batch.seq() == seq => Ok(Loaded::Batch(batch)),
        Ok(batch) => {
            Err(Error::corrupt(format!("journal record {seq} holds record {}", batch.seq())))
        }
        Err(Fault::TooShort { .. } | Fault::Checksum { .. }) if last => {
            Ok(Loaded::Torn { seq, fence_jump: byte_len.max(TORN_JUMP_MIN) })
        }
        Err(fault) => Err(Error::unreadable(&format!("journal record {seq}"), &fault)),
    }
}

/// The chunk that was found as number `index` of the snapshot as of record `as_of`.
pub fn stored_chunk(as_of: Seq, index: u32, bytes: Arc<[u8]>) -> Result<Chunk, Error> {
    match Chunk::parse(bytes) {
        Ok(chunk) if (chunk.as_of(), chunk.index()) == (as_of, index) => Ok(chunk),
        Ok(chunk) => Err(Error::corrupt(format!(
            "chunk {index} of the snapshot as of record {as_of} holds chunk {} as of record {}",
            chunk.index(),
            chunk.as_of()
        ))),
        Err(fault) => {
            let place = format!("chunk {index} of the snapshot as of record {as_of}");
            Err(Error::unreadable(&place, &fault))
        }
    }
}

/// An epoch is never gone back to.
pub(crate) fn check_jump(epoch: Epoch, to: Epoch) -> Result<(), Error> {
    if to > epoch {
        return Ok(());
    }
    Err(Error::unavailable(format!("epoch {} is not above epoch {}", to.0, epoch.0)))
}

/// Gathers a page until it is large enough.
#[derive(Debug, Default)]
pub(crate) struct PageWriter {
    items: Vec<Loaded>,
    bytes: usize,
}

impl PageWriter {
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= PAGE_BYTES
    }

    pub(crate) fn push(&mut self, item: Loaded, bytes: usize) {
        self.items.push(item);
        self.bytes += bytes;
    }

    pub(crate) fn until(self, next: Position) -> Page {
        Page { items: self.items, next: Some(next) }
    }

    pub(crate) fn end(self) -> Page {
        Page { items: self.items, next: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_that_turns_up_in_another_place_is_corrupt() {
        let batch = Batch::new(Epoch(1), Seq(7), []);
        let error = stored_batch(Seq(8), batch.shared_bytes(), true).unwrap_err();
        assert_eq!(error.to_string(), "the store is corrupt: journal record 8 holds record 7");
    }

    #[test]
    fn chunk_that_turns_up_in_another_place_is_corrupt() {
        let chunk = Chunk::new(Epoch(1), Seq(7), 2, []);
        for (as_of, index) in [(7, 1), (6, 2)] {
            let error = stored_chunk(Seq(as_of), index, chunk.shared_bytes()).unwrap_err();
            let shown = error.to_string();
            assert!(shown.ends_with("holds chunk 2 as of record 7"), "{shown}");
        }
    }
}
