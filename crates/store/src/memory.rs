//! A store that forgets: everything is in this process and gone with it.
//!
//! It keeps to every other promise of the port, and can be shared by several servers in one process, as PostgreSQL and
//! etcd are by several machines. So it is also what a simulated store wraps, and the plainest way to see what the port
//! means.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use leasehold_core::{Epoch, planted};
use parking_lot::{Mutex, MutexGuard};

use crate::access::{
    AccessChange, AccessStore, Changed, DOCUMENTS_MAX, Document, DocumentId, Documents,
};
#[cfg(feature = "conformance")]
use crate::conformance::Corruption;
use crate::error::{Conflict, Error};
use crate::journal::{
    Campaign, Candidate, Heartbeat, Journal, JournalCaps, Leader, Leadership, Loaded, Page, Peer,
    Pending, Position, Pruned, Seq, ready,
};
use crate::record::{Batch, Chunk};
use crate::stored::{PageWriter, check_jump, stored_batch, stored_chunk};

const PRUNED_AT_ONCE: usize = 1024;

/// A journal in memory. Clones are the same journal.
#[derive(Clone, Debug, Default)]
pub struct MemoryJournal {
    shelf: Arc<Mutex<Shelf>>,
}

type Records = VecDeque<(Seq, Arc<[u8]>)>;

#[derive(Debug, Default)]
struct Shelf {
    /// Each clone may be a server of its own, so that a leader has to be outlived before another one leads.
    shared: bool,
    epoch: Epoch,
    leader: Option<Leader>,
    /// The last record's bytes do not hold: the next append replaces it.
    torn: bool,
    records: Records,
    snapshot: Option<Snapshot>,
    /// The snapshot that is being written.
    open: Option<Snapshot>,
    bytes: usize,
    bytes_max: Option<usize>,
    servers: BTreeMap<String, Peer>,
    access: Shelved,
}

/// The access documents.
#[derive(Debug, Default)]
struct Shelved {
    version: u64,
    documents: BTreeMap<DocumentId, Document>,
}

#[derive(Debug)]
struct Snapshot {
    epoch: Epoch,
    as_of: Seq,
    chunks: Vec<Arc<[u8]>>,
}

impl MemoryJournal {
    /// An empty journal for one server; the first campaign gives epoch 1.
    pub fn new() -> MemoryJournal {
        MemoryJournal::default()
    }

    /// An empty journal for several servers: each has a clone, and one of them leads for as long as it confirms.
    pub fn shared() -> MemoryJournal {
        let journal = MemoryJournal::new();
        journal.shelf().shared = true;
        journal
    }

    /// An empty journal for one server, whose first campaign gives this epoch.
    pub fn starting_at(epoch: Epoch) -> MemoryJournal {
        let journal = MemoryJournal::new();
        journal.shelf().epoch = Epoch(epoch.0.saturating_sub(1));
        journal
    }

    /// Takes no record that would make the records larger than that in all.
    pub fn set_size_max(&self, bytes: Option<usize>) {
        self.shelf().bytes_max = bytes;
    }

    // A panic while the lock is held can only be a bug here, and leaves nothing half done that another call would see.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock()
    }
}

#[cfg(feature = "conformance")]
impl MemoryJournal {
    /// Harms what is stored.
    pub fn corrupt(&self, harm: Corruption) {
        let mut shelf = self.shelf();
        match harm {
            Corruption::CutRecord(seq)
            | Corruption::FlipRecord(seq)
            | Corruption::RemoveRecord(seq)
            | Corruption::NewerRecord(seq) => {
                let mut records = std::mem::take(&mut shelf.records);
                records.retain_mut(|(found, bytes)| *found != seq || corrupted(bytes, harm));
                shelf.records = records;
            }
            Corruption::FlipChunk(index) => {
                let snapshot = shelf.snapshot.as_mut();
                let chunk = snapshot.and_then(|snapshot| snapshot.chunks.get_mut(index as usize));
                chunk.map(|bytes| corrupted(bytes, harm));
            }
        }
    }
}

/// False if nothing is left of it.
#[cfg(feature = "conformance")]
fn corrupted(bytes: &mut Arc<[u8]>, harm: Corruption) -> bool {
    let left = harm.apply(bytes.to_vec());
    left.map(|left| *bytes = left.into()).is_some()
}

impl AccessStore for MemoryJournal {
    fn version(&self) -> Pending<u64> {
        ready(Ok(self.shelf().access.version))
    }

    fn documents(&self) -> Pending<Documents> {
        let shelf = self.shelf();
        let all = shelf.access.documents.values().cloned().collect();
        ready(Ok(Documents { version: shelf.access.version, all }))
    }

    fn change(&self, expected: u64, change: AccessChange) -> Pending<Changed> {
        let mut shelf = self.shelf();
        let access = &mut shelf.access;
        if access.version != expected {
            return ready(Ok(Changed::Conflict { version: access.version }));
        }
        let is_new = |document: &&Document| !access.documents.contains_key(document.id());
        if access.documents.len() + change.puts().iter().filter(is_new).count() > DOCUMENTS_MAX {
            return ready(Ok(Changed::Full));
        }
        for document in change.puts() {
            access.documents.insert(document.id().clone(), document.clone());
        }
        for id in change.removes() {
            access.documents.remove(id);
        }
        access.version += 1;
        ready(Ok(Changed::To(access.version)))
    }
}

// Each call does all its work before it returns, under one lock: that is its transaction.
impl Journal for MemoryJournal {
    fn caps(&self) -> JournalCaps {
        JournalCaps {
            name: "memory",
            lasting: false,
            shared: self.shelf().shared,
            record_bytes_max: usize::MAX,
        }
    }

    fn access(self: Arc<Self>) -> Option<Arc<dyn AccessStore>> {
        Some(self)
    }

    fn leader(&self) -> Pending<Option<Leader>> {
        ready(Ok(self.shelf().leader.clone()))
    }

    fn campaign(&self, candidate: Candidate, overdue: Option<Heartbeat>) -> Pending<Campaign> {
        ready(Ok(self.shelf().campaign(candidate, overdue)))
    }

    fn confirm(&self, epoch: Epoch) -> Pending<()> {
        ready(self.shelf().confirm(epoch))
    }

    fn resign(&self, epoch: Epoch) -> Pending<()> {
        ready(self.shelf().resign(epoch))
    }

    fn jump_epoch(&self, epoch: Epoch, to: Epoch) -> Pending<()> {
        ready(self.shelf().jump_epoch(epoch, to))
    }

    fn append(&self, batch: Batch) -> Pending<()> {
        ready(self.shelf().append(&batch))
    }

    fn read_back(&self, epoch: Epoch, seq: Seq) -> Pending<Option<Batch>> {
        ready(self.shelf().read_back(epoch, seq))
    }

    fn put_chunk(&self, chunk: Chunk) -> Pending<()> {
        ready(self.shelf().put_chunk(&chunk))
    }

    fn commit_snapshot(&self, epoch: Epoch, as_of: Seq, chunks: u32) -> Pending<()> {
        ready(self.shelf().commit_snapshot(epoch, as_of, chunks))
    }

    fn prune(&self, epoch: Epoch) -> Pending<Pruned> {
        ready(self.shelf().prune(epoch))
    }

    fn load(&self, epoch: Epoch, from: Position) -> Pending<Page> {
        ready(self.shelf().load(epoch, from))
    }

    fn announce(&self, server: Peer) -> Pending<()> {
        self.shelf().servers.insert(server.name.clone(), server);
        ready(Ok(()))
    }

    fn forget(&self, name: String) -> Pending<()> {
        self.shelf().servers.remove(&name);
        ready(Ok(()))
    }

    fn servers(&self) -> Pending<Vec<Peer>> {
        ready(Ok(self.shelf().servers.values().cloned().collect()))
    }
}

impl Shelf {
    fn campaign(&mut self, candidate: Candidate, overdue: Option<Heartbeat>) -> Campaign {
        if let Some(leader) = &self.leader
            && self.shared
            && overdue != Some(leader.beat)
            && !planted!("campaign-outlives-nobody")
        {
            return Campaign::Lost(leader.clone());
        }
        self.epoch = Epoch(self.epoch.0 + 1);
        self.open = None;
        self.torn = self.last_is_torn();
        let lease = candidate.lease;
        self.leader = Some(Leader {
            beat: Heartbeat { epoch: self.epoch, count: 0 },
            name: candidate.name,
            address: candidate.address,
            lease,
        });
        Campaign::Won(Leadership { epoch: self.epoch, lease: self.shared.then_some(lease) })
    }

    fn last_is_torn(&self) -> bool {
        let Some((seq, bytes)) = self.records.back() else {
            return false;
        };
        let is_needed = self.snapshot.as_ref().is_none_or(|snapshot| snapshot.as_of < *seq);
        let found = stored_batch(*seq, bytes.clone(), true);
        is_needed && matches!(found, Ok(Loaded::Torn { .. }))
    }

    fn check_leader(&self, epoch: Epoch) -> Result<(), Conflict> {
        match &self.leader {
            Some(leader) if leader.beat.epoch == epoch => Ok(()),
            Some(_) if planted!("epoch-compare-dropped") => Ok(()),
            Some(_) | None => Err(Conflict::Deposed { epoch, current: self.epoch }),
        }
    }

    fn confirm(&mut self, epoch: Epoch) -> Result<(), Error> {
        self.check_leader(epoch)?;
        if let Some(leader) = &mut self.leader {
            leader.beat.count += 1;
        }
        Ok(())
    }

    fn resign(&mut self, epoch: Epoch) -> Result<(), Error> {
        self.check_leader(epoch)?;
        self.leader = None;
        Ok(())
    }

    fn jump_epoch(&mut self, epoch: Epoch, to: Epoch) -> Result<(), Error> {
        self.check_leader(epoch)?;
        check_jump(epoch, to)?;
        self.epoch = to;
        if let Some(leader) = &mut self.leader {
            leader.beat.epoch = to;
        }
        self.open = None;
        Ok(())
    }

    fn next_seq(&self) -> Seq {
        match self.records.back() {
            Some((seq, _)) if self.torn => *seq,
            Some((seq, _)) => seq.next(),
            None => Seq(1),
        }
    }

    fn append(&mut self, batch: &Batch) -> Result<(), Error> {
        self.check_leader(batch.epoch())?;
        let next = self.next_seq();
        if batch.seq() != next && !planted!("record-number-not-compared") {
            let seq = batch.seq();
            return Err(Conflict::OutOfOrder { seq, next }.into());
        }
        let bytes = batch.bytes().len();
        if self.bytes_max.is_some_and(|max| self.bytes + bytes > max) {
            return Err(Error::unavailable("the memory set aside for it is full"));
        }
        if std::mem::take(&mut self.torn) {
            let torn = self.records.pop_back();
            self.removed(torn);
        }
        self.records.push_back((next, batch.shared_bytes()));
        self.bytes += bytes;
        Ok(())
    }

    fn removed(&mut self, record: Option<(Seq, Arc<[u8]>)>) {
        if let Some((_, bytes)) = record {
            self.bytes -= bytes.len();
        }
    }

    fn read_back(&self, epoch: Epoch, seq: Seq) -> Result<Option<Batch>, Error> {
        self.check_leader(epoch)?;
        let found = self.records.iter().rev().find(|(found, _)| *found == seq);
        let Some((seq, bytes)) = found else {
            return Ok(None);
        };
        // A record that was found torn is there until one has taken its place.
        let may_be_torn =
            self.torn && self.next_seq() == *seq && !planted!("torn-record-taken-for-corrupt");
        match stored_batch(*seq, bytes.clone(), may_be_torn)? {
            Loaded::Batch(batch) => Ok(Some(batch)),
            Loaded::Torn { .. } | Loaded::Chunk(_) => Ok(None),
        }
    }

    fn put_chunk(&mut self, chunk: &Chunk) -> Result<(), Error> {
        self.check_leader(chunk.epoch())?;
        let goes_back = self.snapshot.as_ref().is_some_and(|last| chunk.as_of() < last.as_of);
        if chunk.index() == 0 && chunk.as_of() < self.next_seq() && !goes_back {
            self.open =
                Some(Snapshot { epoch: chunk.epoch(), as_of: chunk.as_of(), chunks: Vec::new() });
        }
        match &mut self.open {
            Some(open)
                if (open.epoch, open.as_of) == (chunk.epoch(), chunk.as_of())
                    && open.chunks.len() == chunk.index() as usize =>
            {
                open.chunks.push(chunk.shared_bytes());
                Ok(())
            }
            Some(_) | None => {
                Err(Conflict::OutOfSnapshot { as_of: chunk.as_of(), index: chunk.index() }.into())
            }
        }
    }

    fn commit_snapshot(&mut self, epoch: Epoch, as_of: Seq, chunks: u32) -> Result<(), Error> {
        self.check_leader(epoch)?;
        let is_it = |snapshot: &Snapshot| {
            (snapshot.epoch, snapshot.as_of) == (epoch, as_of)
                && snapshot.chunks.len() == chunks as usize
        };
        if self.open.as_ref().is_some_and(is_it) {
            self.snapshot = self.open.take();
            return Ok(());
        }
        if self.snapshot.as_ref().is_some_and(is_it) {
            return Ok(());
        }
        Err(Conflict::OutOfSnapshot { as_of, index: chunks }.into())
    }

    // The record that the snapshot is as of stays: so the next number is always that of the last record plus one.
    fn prune(&mut self, epoch: Epoch) -> Result<Pruned, Error> {
        self.check_leader(epoch)?;
        let Some(as_of) = self.snapshot.as_ref().map(|snapshot| snapshot.as_of) else {
            return Ok(Pruned::Done);
        };
        for _ in 0..PRUNED_AT_ONCE {
            let record = self.records.pop_front_if(|(seq, _)| *seq < as_of);
            if record.is_none() {
                return Ok(Pruned::Done);
            }
            self.removed(record);
        }
        Ok(Pruned::Partial)
    }

    fn load(&self, epoch: Epoch, from: Position) -> Result<Page, Error> {
        self.check_leader(epoch)?;
        match (from, &self.snapshot) {
            (Position::Start, Some(snapshot)) => load_chunks(snapshot, 0),
            (Position::Start, None) => self.load_records(Seq(0)),
            (Position::Chunk { as_of, index }, Some(snapshot)) if snapshot.as_of == as_of => {
                load_chunks(snapshot, index)
            }
            (Position::Chunk { as_of, index }, Some(_) | None) => {
                Err(Conflict::OutOfSnapshot { as_of, index }.into())
            }
            (Position::After(seq), _) => self.load_records(seq),
        }
    }

    fn load_records(&self, after: Seq) -> Result<Page, Error> {
        let first = self.records.partition_point(|(seq, _)| *seq <= after);
        let mut page = PageWriter::default();
        let mut expected = after.next();
        for (at, (seq, bytes)) in self.records.iter().enumerate().skip(first) {
            if *seq != expected {
                return Err(Error::corrupt(format!("journal record {expected} is missing")));
            }
            if page.is_full() {
                return Ok(page.until(Position::After(Seq(seq.0 - 1))));
            }
            let last = at + 1 == self.records.len();
            page.push(stored_batch(*seq, bytes.clone(), last)?, bytes.len());
            expected = seq.next();
        }
        Ok(page.end())
    }
}

fn load_chunks(snapshot: &Snapshot, from: u32) -> Result<Page, Error> {
    let as_of = snapshot.as_of;
    let mut page = PageWriter::default();
    for (index, bytes) in (0..).zip(&snapshot.chunks).skip(from as usize) {
        if page.is_full() {
            return Ok(page.until(Position::Chunk { as_of, index }));
        }
        let chunk = stored_chunk(as_of, index, bytes.clone())?;
        page.push(Loaded::Chunk(chunk), bytes.len());
    }
    Ok(page.until(Position::After(as_of)))
}
