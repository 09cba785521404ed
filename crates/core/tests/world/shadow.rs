//! What lasts must survive: a table built from the entries of another, or from a snapshot taken bit by bit while it
//! went on changing, and fed with the same transitions, is the same table.

use leasehold_core::*;

/// Tables that follow the real one by its entries and transitions alone.
#[derive(Debug, Default)]
pub(super) struct Shadows {
    follower: Option<LockTable>,
    snapshot: Option<Snapshot>,
}

#[derive(Debug)]
struct Snapshot {
    entries: Vec<Entry>,
    /// Of the table when the snapshot began.
    digest: u64,
}

/// How many steps a follower lives before the next one is built.
const LIFE: usize = 40;

impl Shadows {
    pub(super) fn follow(
        &mut self,
        steps: usize,
        table: &mut LockTable,
        step: &Step,
    ) -> Result<(), String> {
        if let Some(follower) = &mut self.follower {
            for transition in &step.transitions {
                follower.apply(transition).map_err(|unfit| unfit.to_string())?;
            }
            same_digest("replayed", follower, table.digest())?;
        }
        self.take_snapshot(steps, table)?;
        if steps % LIFE == 1 {
            let follower = restore(table.limits(), table.entries())?;
            same_digest("restored", &follower, table.digest())?;
            self.follower = Some(follower);
            table.begin_snapshot();
            self.snapshot = Some(Snapshot { entries: Vec::new(), digest: table.digest() });
        }
        Ok(())
    }

    /// A few entries after every step, until there are no more.
    fn take_snapshot(&mut self, steps: usize, table: &mut LockTable) -> Result<(), String> {
        let Some(mut snapshot) = self.snapshot.take() else {
            return Ok(());
        };
        snapshot.entries.extend(table.snapshot_next(steps % 3));
        if table.is_snapshotting() {
            self.snapshot = Some(snapshot);
            return Ok(());
        }
        let restored = restore(table.limits(), snapshot.entries)?;
        same_digest("restored from a snapshot", &restored, snapshot.digest)
    }
}

fn restore(limits: &Limits, entries: impl IntoIterator<Item = Entry>) -> Result<LockTable, String> {
    const ANOTHER_SEED: u64 = 11;
    LockTable::restore(limits.clone(), ANOTHER_SEED, entries).map_err(|unfit| unfit.to_string())
}

fn same_digest(how: &str, table: &LockTable, digest: u64) -> Result<(), String> {
    if table.digest() == digest {
        return Ok(());
    }
    let entries: Vec<Entry> = table.entries().collect();
    Err(format!("a table {how} is another table: {entries:#?}"))
}
