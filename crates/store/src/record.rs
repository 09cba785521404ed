//! The bytes that last: what a journal record and a piece of a snapshot look like.
//!
//! ```text
//!  byte 0    1      2 3 4 5    6 …
//!  ┌───────┬──────┬──────────┬──────────────────────────────────────────────┐
//!  │version│ kind │  CRC-32  │ place, then transitions or entries to the end │
//!  └───────┴──────┴──────────┴──────────────────────────────────────────────┘
//!                    over all bytes but its own four
//! ```
//!
//! The first six bytes keep their meaning in every version to come, so that a damaged record can always be told
//! from one that a newer build has written. The place (epoch, sequence number; in a snapshot also the number of the
//! piece) is under the checksum: a record that turns up where it does not belong is found out.
//!
//! Numbers are varints (seven bits a byte, low ones first). Fences and moments are written as the difference to the
//! last one in the same record, and so are the names of namespaces, owners and locks: what they begin with as the last
//! one does is left out, and one that is the same is a single zero byte. A lease that is the same as in the transition
//! before is left out as well. A plain grant takes about 30 bytes and what is new in its names, under a session 10.
//!
//! The code is written out by hand, without a serialization framework. What is stored must not change because a
//! type in the core was given another field or another order, and decoding has to be safe on any bytes whatever: it
//! never panics, and never reserves more memory than the bytes at hand can account for.

mod entry;
mod transition;
mod wire;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use leasehold_core::{Entry, Epoch, Transition};

use crate::journal::Seq;
use wire::{Decoder, Encoder};

/// The version that this build writes, and the highest it can read.
pub const VERSION: u8 = 1;

/// The size that a piece of a snapshot should have: small enough that an append beside it hardly waits, large enough
/// that a million locks are a few thousand pieces.
pub const CHUNK_BYTES: usize = 64 * 1024;

const SEAL_BYTES: usize = 6;

/// The content of a record; its second byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Batch = 1,
    Chunk = 2,
}

/// The reason why bytes are not a record that can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("it is only {len} bytes long")]
    TooShort { len: usize },
    #[error("its checksum is {found:08x}, its bytes give {computed:08x}")]
    Checksum { found: u32, computed: u32 },
    #[error("it has format version {0}, this build reads up to version {VERSION}")]
    Version(u8),
    #[error("it is not a {wanted}")]
    Kind { wanted: &'static str },
    #[error("it ends in the middle of a {what}")]
    EndsEarly { what: &'static str },
    #[error("byte {at} begins no {what}")]
    Value { what: &'static str, at: usize },
}

/// The transitions of one batch, sealed: one record of the journal.
#[derive(Clone, PartialEq, Eq)]
pub struct Batch {
    epoch: Epoch,
    seq: Seq,
    content: usize,
    bytes: Arc<[u8]>,
}

/// Collects the transitions of a batch, encoding them as they come.
#[derive(Debug)]
pub struct BatchWriter {
    epoch: Epoch,
    seq: Seq,
    content: usize,
    encoder: Encoder,
}

/// Some entries of a snapshot, sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct Chunk {
    epoch: Epoch,
    as_of: Seq,
    index: u32,
    content: usize,
    bytes: Arc<[u8]>,
}

/// Collects the entries of a chunk, encoding them as they come.
#[derive(Debug)]
pub struct ChunkWriter {
    epoch: Epoch,
    as_of: Seq,
    index: u32,
    content: usize,
    encoder: Encoder,
}

impl Batch {
    /// The record with which the leader of `epoch` would go on after `seq - 1`.
    pub fn new<'a>(
        epoch: Epoch,
        seq: Seq,
        transitions: impl IntoIterator<Item = &'a Transition>,
    ) -> Batch {
        let mut writer = BatchWriter::new(epoch, seq);
        for transition in transitions {
            writer.push(transition);
        }
        writer.seal()
    }

    /// Opens what a store has kept. Seal and place are checked here, the transitions as they are read.
    pub fn parse(bytes: impl Into<Arc<[u8]>>) -> Result<Batch, Fault> {
        let bytes = bytes.into();
        check_seal(&bytes, Kind::Batch)?;
        let mut decoder = decoder(&bytes, SEAL_BYTES);
        let epoch = Epoch(decoder.varint("epoch")?);
        let seq = Seq(decoder.varint("sequence number")?);
        let content = decoder.at();
        Ok(Batch { epoch, seq, content, bytes })
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn seq(&self) -> Seq {
        self.seq
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same bytes, to keep.
    pub fn shared_bytes(&self) -> Arc<[u8]> {
        self.bytes.clone()
    }

    /// Decodes the transitions one by one; stops at the first fault.
    pub fn transitions(&self) -> impl Iterator<Item = Result<Transition, Fault>> + '_ {
        decode_all(decoder(&self.bytes, self.content), Decoder::transition)
    }
}

impl BatchWriter {
    pub fn new(epoch: Epoch, seq: Seq) -> BatchWriter {
        let mut encoder = start(Kind::Batch);
        encoder.varint(epoch.0);
        encoder.varint(seq.0);
        BatchWriter { epoch, seq, content: encoder.len(), encoder }
    }

    pub fn push(&mut self, transition: &Transition) {
        self.encoder.transition(transition);
    }

    /// Nothing was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.encoder.len() == self.content
    }

    /// The size that the record has so far.
    pub fn byte_len(&self) -> usize {
        self.encoder.len()
    }

    pub fn seal(self) -> Batch {
        Batch { epoch: self.epoch, seq: self.seq, content: self.content, bytes: seal(self.encoder) }
    }
}

impl Chunk {
    /// Piece number `index` of the snapshot that holds everything up to and including record `as_of`.
    pub fn new<'a>(
        epoch: Epoch,
        as_of: Seq,
        index: u32,
        entries: impl IntoIterator<Item = &'a Entry>,
    ) -> Chunk {
        let mut writer = ChunkWriter::new(epoch, as_of, index);
        for entry in entries {
            writer.push(entry);
        }
        writer.seal()
    }

    /// Opens what a store has kept. Seal and place are checked here, the entries as they are read.
    pub fn parse(bytes: impl Into<Arc<[u8]>>) -> Result<Chunk, Fault> {
        let bytes = bytes.into();
        check_seal(&bytes, Kind::Chunk)?;
        let mut decoder = decoder(&bytes, SEAL_BYTES);
        let epoch = Epoch(decoder.varint("epoch")?);
        let as_of = Seq(decoder.varint("sequence number")?);
        let index = decoder.varint_u32("chunk number")?;
        let content = decoder.at();
        Ok(Chunk { epoch, as_of, index, content, bytes })
    }

    /// The leader that took the snapshot.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub fn as_of(&self) -> Seq {
        self.as_of
    }

    pub fn index(&self) -> u32 {
        self.index
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same bytes, to keep.
    pub fn shared_bytes(&self) -> Arc<[u8]> {
        self.bytes.clone()
    }

    /// Decodes the entries one by one; stops at the first fault.
    pub fn entries(&self) -> impl Iterator<Item = Result<Entry, Fault>> + '_ {
        decode_all(decoder(&self.bytes, self.content), Decoder::entry)
    }
}

impl ChunkWriter {
    pub fn new(epoch: Epoch, as_of: Seq, index: u32) -> ChunkWriter {
        let mut encoder = start(Kind::Chunk);
        encoder.varint(epoch.0);
        encoder.varint(as_of.0);
        encoder.varint(u64::from(index));
        ChunkWriter { epoch, as_of, index, content: encoder.len(), encoder }
    }

    pub fn push(&mut self, entry: &Entry) {
        self.encoder.entry(entry);
    }

    /// Nothing was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.encoder.len() == self.content
    }

    /// It has reached the size that a chunk should have. A single entry may be larger than that.
    pub fn is_full(&self) -> bool {
        self.encoder.len() >= CHUNK_BYTES
    }

    pub fn seal(self) -> Chunk {
        Chunk {
            epoch: self.epoch,
            as_of: self.as_of,
            index: self.index,
            content: self.content,
            bytes: seal(self.encoder),
        }
    }
}

/// Names only: the bytes hold lease ids, which are secrets.
impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("epoch", &self.epoch)
            .field("seq", &self.seq)
            .field("byte_len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk")
            .field("epoch", &self.epoch)
            .field("as_of", &self.as_of)
            .field("index", &self.index)
            .field("byte_len", &self.bytes.len())
            .finish_non_exhaustive()
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Batch => "journal record",
            Kind::Chunk => "chunk of a snapshot",
        }
    }
}

fn start(kind: Kind) -> Encoder {
    let mut encoder = Encoder::default();
    encoder.raw(&[VERSION, kind as u8, 0, 0, 0, 0]);
    encoder
}

/// Reads what was sealed, from `at` on.
fn decoder(bytes: &[u8], at: usize) -> Decoder<'_> {
    Decoder::new(bytes, at)
}

fn seal(encoder: Encoder) -> Arc<[u8]> {
    let mut bytes = encoder.into_bytes();
    reseal(&mut bytes);
    bytes.into()
}

/// Puts the checksum right.
pub(crate) fn reseal(bytes: &mut [u8]) {
    let checksum = checksum(bytes);
    bytes[2..SEAL_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// Over everything but the four bytes it is kept in.
fn checksum(bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..2]);
    hasher.update(&bytes[SEAL_BYTES..]);
    hasher.finalize()
}

// The checksum comes before the version: bytes that were harmed must not pass for those of a newer build.
fn check_seal(bytes: &[u8], wanted: Kind) -> Result<(), Fault> {
    let Some(&[version, kind, a, b, c, d]) = bytes.first_chunk::<SEAL_BYTES>() else {
        return Err(Fault::TooShort { len: bytes.len() });
    };
    let found = u32::from_le_bytes([a, b, c, d]);
    let computed = checksum(bytes);
    if found != computed {
        return Err(Fault::Checksum { found, computed });
    }
    if version == 0 || version > VERSION {
        return Err(Fault::Version(version));
    }
    if kind != wanted as u8 {
        return Err(Fault::Kind { wanted: wanted.name() });
    }
    Ok(())
}

fn decode_all<'a, T>(
    mut decoder: Decoder<'a>,
    mut decode: impl FnMut(&mut Decoder<'a>) -> Result<T, Fault> + 'a,
) -> impl Iterator<Item = Result<T, Fault>> + 'a {
    let mut failed = false;
    std::iter::from_fn(move || {
        if failed || decoder.is_at_end() {
            return None;
        }
        let item = decode(&mut decoder);
        failed = item.is_err();
        Some(item)
    })
}
