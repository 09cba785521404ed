//! From what is stored to a table that serves: load, replay, and put every grant in doubt.

use std::time::Duration;

use leasehold_core::{
    BeginEpoch, Command, Epoch, FencingToken, GracePolicy, Jump, Limits, LockTable, Outcome, Step,
    Timestamp, Transition, Unfit,
};
use leasehold_store::{Fault, Journal, Loaded, Page, Position, Seq};

use crate::events::Beginning;

/// The reason why a server could not take over what is stored.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Store(#[from] leasehold_store::Error),
    #[error("record {seq} cannot be read")]
    Record { seq: Seq, source: Fault },
    #[error("chunk {index} of the snapshot cannot be read")]
    Chunk { index: u32, source: Fault },
    #[error("what is stored does not fit together")]
    Unfit(#[from] Unfit),
}

/// A table that has begun its epoch, and what that left to be written.
#[derive(Debug)]
pub struct Recovered {
    pub table: LockTable,
    pub next_seq: Seq,
    pub unwritten: Vec<Transition>,
    pub beginning: Beginning,
    /// The number of leases that wait for their holders.
    pub recovering: usize,
    pub loaded: LoadedBytes,
}

/// The size of a loaded journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadedBytes {
    pub snapshot: u64,
    pub records: u64,
    /// The number of those records.
    pub records_len: u64,
}

/// The settings for the beginning of an epoch.
#[derive(Clone, Debug)]
pub struct Recovery {
    pub limits: Limits,
    /// Random; see `LockTable::new`.
    pub seed: u64,
    pub grace: GracePolicy,
    pub grace_length: Duration,
    /// For a store that forgets: fences go on from here at least.
    pub fence_floor: Option<FencingToken>,
}

/// A table on its way in, page by page.
#[derive(Debug)]
pub struct Loading {
    recovery: Recovery,
    table: LockTable,
    last: Seq,
    fence_jump: u64,
    position: Option<Position>,
    loaded: LoadedBytes,
}

impl Loading {
    pub fn new(recovery: Recovery) -> Loading {
        let table = LockTable::new(recovery.limits.clone(), recovery.seed);
        let position = Some(Position::Start);
        let loaded = LoadedBytes::default();
        Loading { recovery, table, last: Seq(0), fence_jump: 0, position, loaded }
    }

    /// The page to ask for next; `None` when all are in.
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    pub fn add(&mut self, page: Page) -> Result<(), StartError> {
        for item in page.items {
            match item {
                Loaded::Chunk(chunk) => {
                    self.last = chunk.as_of();
                    self.loaded.snapshot += chunk.bytes().len() as u64;
                    for entry in chunk.entries() {
                        let index = chunk.index();
                        let entry = entry.map_err(|source| StartError::Chunk { index, source })?;
                        self.table.add_entry(entry)?;
                    }
                }
                Loaded::Batch(batch) => {
                    self.last = batch.seq();
                    self.loaded.records += batch.bytes().len() as u64;
                    self.loaded.records_len += 1;
                    for transition in batch.transitions() {
                        let seq = batch.seq();
                        let transition =
                            transition.map_err(|source| StartError::Record { seq, source })?;
                        self.table.apply(&transition)?;
                    }
                }
                Loaded::Torn { seq, fence_jump } => {
                    tracing::error!(
                        record = seq.0,
                        "the last record is torn and was left out: what it held may have been promised"
                    );
                    self.fence_jump = fence_jump;
                }
            }
        }
        self.position = page.next;
        Ok(())
    }

    /// Everything is in: the table as it is stored, and the number of the next record.
    pub(crate) fn into_table(mut self) -> Result<(LockTable, Seq), StartError> {
        if self.fence_jump > 0 {
            let fence = FencingToken::new(self.table.fence().get() + self.fence_jump);
            let (epoch, fence) = (self.table.epoch(), fence.unwrap_or(FencingToken::MAX));
            self.table.apply(&Transition::Jumped { epoch, fence })?;
        }
        Ok((self.table, self.last.next()))
    }

    /// Everything is in: the epoch begins, and every grant is in doubt.
    pub fn begin(self, epoch: Epoch, now: Timestamp) -> Recovered {
        let Loading { recovery, mut table, last, fence_jump, loaded, .. } = self;
        let mut step = Step::new();
        let mut before = Some((table.epoch(), table.revision()));
        let floor = recovery.fence_floor.unwrap_or(FencingToken::ZERO).get();
        let jumped = FencingToken::new((table.fence().get() + fence_jump).max(floor))
            .unwrap_or(FencingToken::MAX);
        if jumped > table.fence() {
            let jump = Jump { epoch: table.epoch(), fence: jumped };
            table.handle(now, Command::Jump(jump), &mut step);
            // Something is missing, or may be.
            before = None;
        }
        let grace_length = recovery.grace_length;
        let begin = BeginEpoch { epoch, grace: recovery.grace, grace_length };
        let outcome = table.handle(now, Command::BeginEpoch(begin), &mut step);
        debug_assert!(
            matches!(outcome, Outcome::Answered(_)),
            "the store only gives out higher epochs"
        );
        let recovering = table.stats().recovering;
        let (next_seq, unwritten) = (last.next(), step.transitions);
        let beginning = Beginning { epoch, revision: table.revision(), before };
        Recovered { table, next_seq, unwritten, beginning, recovering, loaded }
    }
}

/// Loads everything the journal has and begins the epoch.
pub async fn recover(
    journal: &dyn Journal,
    epoch: Epoch,
    now: Timestamp,
    recovery: Recovery,
) -> Result<Recovered, StartError> {
    let mut loading = Loading::new(recovery);
    while let Some(from) = loading.position() {
        loading.add(journal.load(epoch, from).await?)?;
    }
    Ok(loading.begin(epoch, now))
}
