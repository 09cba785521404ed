//! From one store to another, while no server runs on either.
//!
//! Everything is loaded as a server would load it, and written to the new store as one snapshot. Leases keep their ids,
//! owners, ttls and fences, so their holders go on as after a restart. The new store begins under an epoch above all
//! that either store has seen, and hands out fences above all that either has handed out. Then it is loaded back, and
//! has to be the same.
//!
//! The copy leads both stores while it lasts. So a server that is started too early waits, and one that was not stopped
//! is found out.

use std::time::{Duration, Instant};

use leasehold_core::{Entry, Epoch, FencingToken, GracePolicy, Limits, LockTable, Transition};
use leasehold_store::{
    Batch, Campaign, Candidate, ChunkWriter, Error, Journal, Leadership, Pruned, Seq,
};

use crate::member::{Loading, Recovery, StartError};

/// The time after which a copy that stays silent is replaced by a server.
const LEASE: Duration = Duration::from_secs(30);
/// So often it shows that it is there.
const CONFIRM_EVERY: Duration = Duration::from_secs(5);

/// The report of a finished migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migrated {
    pub leases: usize,
    pub registers: usize,
    pub chunks: u32,
    pub bytes: u64,
    /// The new store goes on above these.
    pub epoch: Epoch,
    pub fence: FencingToken,
    /// Of everything that lasts; equal in both stores.
    pub digest: u64,
}

/// The progress of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Waiting to see whether the leader that the store names is still there.
    Waiting {
        at_most: Duration,
    },
    Loading {
        items: usize,
    },
    Writing {
        leases: usize,
        of: usize,
    },
    Verifying {
        items: usize,
    },
}

/// The reason why a migration failed.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error("a server leads the store to copy {which}: {leader}; stop all servers first")]
    Led { which: &'static str, leader: String },
    #[error("the store to copy to has {leases} leases and {registers} fence registers already")]
    NotEmpty { leases: usize, registers: usize },
    #[error("what was written is not what was read: nothing may use the new store")]
    Differs,
    #[error("the store to copy {which}")]
    Store { which: &'static str, source: Error },
    #[error("the store to copy {which} cannot be loaded")]
    Load { which: &'static str, source: StartError },
}

/// One of the two stores, led by the copy.
struct Side<'a> {
    which: &'static str,
    journal: &'a dyn Journal,
    epoch: Epoch,
    confirmed: Instant,
}

/// Copies everything. With `force` what the new store has is replaced; its fences and epochs still count.
pub async fn migrate(
    from: &dyn Journal,
    to: &dyn Journal,
    force: bool,
    mut progress: impl FnMut(Progress),
) -> Result<Migrated, MigrateError> {
    let mut from = Side::lead("from", from, &mut progress).await?;
    let mut to = Side::lead("to", to, &mut progress).await?;
    let (mut table, _) = from.load(|items| progress(Progress::Loading { items })).await?;
    let (replaced, next) = to.load(|_| {}).await?;
    let (leases, registers) = count(&replaced);
    if leases + registers > 0 && !force {
        return Err(MigrateError::NotEmpty { leases, registers });
    }
    jump(&mut table, &replaced, from.epoch.max(to.epoch))
        .map_err(|source| from.unloaded(source))?;
    to.jump(table.epoch()).await?;
    let written = to.write(&mut table, next, &mut from, &mut progress).await?;
    let (found, _) = to.load(|items| progress(Progress::Verifying { items })).await?;
    if found.digest() != table.digest() {
        return Err(MigrateError::Differs);
    }
    to.resign().await?;
    from.resign().await?;
    Ok(written)
}

/// Above all that either store has seen.
fn jump(table: &mut LockTable, replaced: &LockTable, epoch: Epoch) -> Result<(), StartError> {
    let highest = epoch.max(table.epoch()).max(replaced.epoch());
    let epoch = Epoch(highest.0.saturating_add(1));
    let fence = table.fence().max(replaced.fence());
    Ok(table.apply(&Transition::Jumped { epoch, fence })?)
}

/// Leases and fence registers.
fn count(table: &LockTable) -> (usize, usize) {
    table.entries().fold((0, 0), |(leases, registers), entry| match entry {
        Entry::Lease(_) => (leases + 1, registers),
        Entry::Register { .. } => (leases, registers + 1),
        Entry::Counters { .. } => (leases, registers),
    })
}

impl<'a> Side<'a> {
    /// Becomes leader, unless a server is.
    async fn lead(
        which: &'static str,
        journal: &'a dyn Journal,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Side<'a>, MigrateError> {
        let fault = |source| MigrateError::Store { which, source };
        let candidate =
            Candidate { name: "leasehold migrate".into(), address: String::new(), lease: LEASE };
        let confirmed = Instant::now();
        let mut won = journal.campaign(candidate.clone(), None).await.map_err(fault)?;
        if let Campaign::Lost(leader) = &won {
            // A server confirms several times in the length of its lease.
            let at_most = leader.lease + leader.lease / 2;
            progress(Progress::Waiting { at_most });
            tokio::time::sleep(at_most).await;
            won = journal.campaign(candidate, Some(leader.beat)).await.map_err(fault)?;
        }
        match won {
            Campaign::Won(Leadership { epoch, .. }) => {
                Ok(Side { which, journal, epoch, confirmed })
            }
            Campaign::Lost(leader) => {
                let leader = format!("{} at {}", leader.name, leader.address);
                Err(MigrateError::Led { which, leader })
            }
        }
    }

    fn fault(&self, source: Error) -> MigrateError {
        MigrateError::Store { which: self.which, source }
    }

    async fn confirm_if_due(&mut self) -> Result<(), MigrateError> {
        if self.confirmed.elapsed() < CONFIRM_EVERY {
            return Ok(());
        }
        let now = Instant::now();
        self.journal.confirm(self.epoch).await.map_err(|error| self.fault(error))?;
        self.confirmed = now;
        Ok(())
    }

    fn unloaded(&self, source: StartError) -> MigrateError {
        MigrateError::Load { which: self.which, source }
    }

    /// Everything, and the number of the next record.
    async fn load(
        &mut self,
        mut progress: impl FnMut(usize),
    ) -> Result<(LockTable, Seq), MigrateError> {
        let mut loading = Loading::new(Recovery {
            limits: Limits::default(),
            seed: 0,
            grace: GracePolicy::Conflicting,
            grace_length: Duration::ZERO,
            fence_floor: None,
        });
        let mut items = 0;
        while let Some(position) = loading.position() {
            let page = self.journal.load(self.epoch, position).await;
            let page = page.map_err(|error| self.fault(error))?;
            items += page.items.len();
            loading.add(page).map_err(|source| self.unloaded(source))?;
            progress(items);
            self.confirm_if_due().await?;
        }
        loading.into_table().map_err(|source| self.unloaded(source))
    }

    async fn jump(&mut self, to: Epoch) -> Result<(), MigrateError> {
        self.journal.jump_epoch(self.epoch, to).await.map_err(|error| self.fault(error))?;
        self.epoch = to;
        Ok(())
    }

    /// An empty record, and a snapshot as of it, which replaces all that was there before.
    async fn write(
        &mut self,
        table: &mut LockTable,
        seq: Seq,
        other: &mut Side<'_>,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Migrated, MigrateError> {
        let (leases, registers) = count(table);
        let record = Batch::new(self.epoch, seq, []);
        self.journal.append(record).await.map_err(|error| self.fault(error))?;
        let (mut chunks, mut bytes, mut done) = (0, 0, 0);
        table.begin_snapshot();
        while chunks == 0 || table.is_snapshotting() {
            let mut writer = ChunkWriter::new(self.epoch, seq, chunks);
            while !writer.is_full() && table.is_snapshotting() {
                for entry in table.snapshot_next(64) {
                    done += 1;
                    writer.push(&entry);
                }
            }
            let chunk = writer.seal();
            bytes += chunk.bytes().len() as u64;
            self.journal.put_chunk(chunk).await.map_err(|error| self.fault(error))?;
            chunks += 1;
            progress(Progress::Writing { leases: done.min(leases), of: leases });
            self.confirm_if_due().await?;
            other.confirm_if_due().await?;
        }
        let committed = self.journal.commit_snapshot(self.epoch, seq, chunks).await;
        committed.map_err(|error| self.fault(error))?;
        while self.journal.prune(self.epoch).await.map_err(|error| self.fault(error))?
            == Pruned::Partial
        {}
        let (epoch, fence, digest) = (table.epoch(), table.fence(), table.digest());
        Ok(Migrated { leases, registers, chunks, bytes, epoch, fence, digest })
    }

    async fn resign(&self) -> Result<(), MigrateError> {
        self.journal.resign(self.epoch).await.map_err(|error| self.fault(error))
    }
}
