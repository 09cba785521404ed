//! What lasts must survive: a table built from the entries of another, or from a snapshot taken bit by bit while it
//! went on changing, and fed with the same transitions, is the same table.

use std::collections::VecDeque;

use leasehold_core::*;

/// Tables that follow the real one by its entries and transitions alone.
#[derive(Debug, Default)]
pub(super) struct Shadows {
    follower: Option<LockTable>,
    snapshot: Option<Snapshot>,
    /// The digests of the last moments that can be gone back to.
    past: VecDeque<(Revision, u64)>,
    /// Every transition since the oldest of them.
    since: VecDeque<Transition>,
}

#[derive(Debug)]
struct Snapshot {
    entries: Vec<Entry>,
    /// Of the table when the snapshot began.
    digest: u64,
}

/// How many steps a follower lives before the next one is built.
const LIFE: usize = 40;
/// So many steps can be undone.
const PAST: usize = 12;

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
        self.roll_back(steps, table, step)?;
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

    /// A table that is rolled back is the table that was, and made anew by the same transitions the one that is.
    fn roll_back(
        &mut self,
        steps: usize,
        table: &mut LockTable,
        step: &Step,
    ) -> Result<(), String> {
        self.since.extend(step.transitions.iter().cloned());
        let begins = |transition: &Transition| {
            matches!(transition, Transition::EpochBegan { .. } | Transition::Jumped { .. })
        };
        if step.transitions.iter().any(begins) {
            // The beginning of an epoch is never undone.
            self.past.clear();
            self.since.clear();
            table.settle(table.revision());
        }
        if steps.is_multiple_of(2)
            && let Some(&(revision, digest)) = self.past.get(steps % PAST)
        {
            let mut back = table.clone();
            back.roll_back(revision, &mut Step::new());
            same_digest("rolled back", &back, digest)?;
            let undone = usize::try_from(table.revision().0 - revision.0).unwrap();
            let mut suspended = back.clone();
            suspended.handle(Timestamp::ZERO, Command::Suspend, &mut Step::new());
            invariant::check_all(&suspended).map_err(|broken| format!("rolled back: {broken}"))?;
            for transition in self.since.iter().skip(self.since.len() - undone) {
                back.apply(transition).map_err(|unfit| format!("made anew: {unfit}"))?;
            }
            same_digest("made anew", &back, table.digest())?;
            same_endings(&back, table)?;
        }
        self.past.push_back((table.revision(), table.digest()));
        if self.past.len() > PAST
            && let Some((oldest, _)) = self.past.pop_front()
        {
            let settled = self.past.front().map_or(oldest, |(revision, _)| *revision);
            let len = usize::try_from(settled.0 - oldest.0).unwrap();
            self.since.drain(..len);
            table.settle(settled);
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

/// What ended is remembered in the same way, with the moments at which it first ended.
fn same_endings(back: &LockTable, table: &LockTable) -> Result<(), String> {
    let last = table.fence().get();
    for fence in (last.saturating_sub(20)..=last).filter_map(FencingToken::new) {
        let ended = |table: &LockTable| {
            let mut ended = table.token(fence).map(|view| view.ended).unwrap_or_default();
            ended.sort_by_key(|ended| (ended.at, ended.scope.clone()));
            ended
        };
        let (expected, actual) = (ended(table), ended(back));
        if expected != actual {
            return Err(format!("endings of {fence} made anew: {expected:#?}\nnot {actual:#?}"));
        }
    }
    Ok(())
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
