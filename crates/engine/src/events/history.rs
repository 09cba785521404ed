//! Leases that ended lately, and deadlocks that were refused: a bounded memory for people who come after the fact.
//!
//! It is kept apart from the events for watchers: there a busy minute pushes out a deadlock of an hour ago.

use std::collections::VecDeque;
use std::sync::Arc;

use leasehold_core::{Ending, Event, News, Timestamp};
use parking_lot::{Mutex, MutexGuard};

use crate::writer::Published;

/// The number of entries that are copied at a time, so that a reader never keeps the engine waiting.
const CHUNK_LEN: usize = 256;

/// The number of entries that are remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Grants that ended.
    pub endings_max: usize,
    pub deadlocks_max: usize,
}

impl Default for HistoryLimits {
    fn default() -> HistoryLimits {
        HistoryLimits { endings_max: 10_000, deadlocks_max: 100 }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct History(Arc<Mutex<Rings>>);

#[derive(Debug)]
struct Rings {
    endings: Ring,
    deadlocks: Ring,
}

#[derive(Debug)]
struct Ring {
    /// The oldest first.
    entries: VecDeque<Published>,
    len_max: usize,
    /// The number of entries ever put in: the number of the newest one.
    count: u64,
    /// When the last one was that is no longer remembered.
    forgotten: Option<Timestamp>,
}

/// The entries found, the newest first.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    pub events: Vec<Published>,
    /// Everything after this moment is remembered; if there is none, everything since the start.
    pub complete_after: Option<Timestamp>,
}

impl History {
    pub(crate) fn new(limits: HistoryLimits) -> History {
        let ring = |len_max| Ring { entries: VecDeque::new(), len_max, count: 0, forgotten: None };
        let (endings, deadlocks) = (ring(limits.endings_max), ring(limits.deadlocks_max));
        History(Arc::new(Mutex::new(Rings { endings, deadlocks })))
    }

    pub(crate) fn note(&self, events: &[Published]) {
        let mut rings = self.rings();
        for published in events {
            match &published.event.news {
                News::Ended { ending, .. } if is_an_end(ending) => rings.endings.push(published),
                News::Deadlock { .. } => rings.deadlocks.push(published),
                News::Ended { .. }
                | News::EpochBegan { .. }
                | News::GraceEnded
                | News::SessionOpened { .. }
                | News::SessionEnded { .. }
                | News::Granted { .. }
                | News::TtlChanged { .. }
                | News::FenceAccepted { .. }
                | News::FenceDeleted { .. }
                | News::Queued { .. }
                | News::Left { .. } => {}
            }
        }
        rings.endings.trim();
        rings.deadlocks.trim();
    }

    pub(crate) fn endings(&self, wanted: impl Fn(&Event) -> bool, len_max: usize) -> Remembered {
        self.search(|rings| &rings.endings, wanted, len_max)
    }

    pub(crate) fn deadlocks(&self, wanted: impl Fn(&Event) -> bool, len_max: usize) -> Remembered {
        self.search(|rings| &rings.deadlocks, wanted, len_max)
    }

    /// From the newest back, a chunk at a time.
    fn search(
        &self,
        ring: impl Fn(&Rings) -> &Ring,
        wanted: impl Fn(&Event) -> bool,
        len_max: usize,
    ) -> Remembered {
        let mut found = Remembered::default();
        let mut before = u64::MAX;
        loop {
            let chunk = {
                let rings = self.rings();
                found.complete_after = ring(&rings).forgotten;
                ring(&rings).chunk_before(before)
            };
            let Some(&(oldest, _)) = chunk.last() else { return found };
            before = oldest;
            let chunk = chunk.into_iter().map(|(_, entry)| entry);
            found.events.extend(chunk.filter(|entry| wanted(&entry.event)));
            if found.events.len() >= len_max {
                found.events.truncate(len_max);
                return found;
            }
        }
    }

    fn rings(&self) -> MutexGuard<'_, Rings> {
        self.0.lock()
    }
}

impl Ring {
    fn push(&mut self, published: &Published) {
        self.count += 1;
        self.entries.push_back(published.clone());
    }

    /// Forgets what is too much. As in the memory for watchers, all of it is looked at before any of it is dropped.
    fn trim(&mut self) {
        let gone = self.entries.len().saturating_sub(self.len_max);
        let last = self.entries.range(..gone).map(|entry| entry.event.at).max();
        self.forgotten = last.or(self.forgotten);
        self.entries.drain(..gone);
    }

    /// The newest entries with a number below `before`, each with its number.
    fn chunk_before(&self, before: u64) -> Vec<(u64, Published)> {
        let numbered = (0..self.count).rev().zip(self.entries.iter().rev());
        let skipped = usize::try_from(self.count.saturating_sub(before)).unwrap_or(usize::MAX);
        let chunk = numbered.skip(skipped).take(CHUNK_LEN);
        chunk.map(|(number, entry)| (number, entry.clone())).collect()
    }
}

/// Whether an owner had it and now has not. The end of a reclaim window is no second end, and what was withdrawn
/// nobody ever had.
fn is_an_end(ending: &Ending) -> bool {
    match ending {
        Ending::WindowOver | Ending::Reclaimed | Ending::Withdrawn => false,
        Ending::Released
        | Ending::Closed
        | Ending::Expired
        | Ending::GraceExpired
        | Ending::Disconnected
        | Ending::Revoked(_)
        | Ending::FileRemoved
        | Ending::Replaced => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::{FencingToken, Mode, Namespace, Owner, Revision, Scope};

    fn ended(at: u64, ending: Ending) -> Published {
        let news = News::Ended {
            scope: Scope::parse("x").expect("a name"),
            owner: Owner::new("a").expect("a name"),
            mode: Mode::Exclusive,
            fence: FencingToken::new(at).expect("a small number"),
            since: Timestamp::ZERO,
            ending,
            window: None,
            session: None,
            disconnected: false,
        };
        let (revision, at) = (Revision(at), Timestamp::from_millis(at));
        let event = Event { revision, at, namespace: Namespace::default(), news };
        Published { event: Arc::new(event), last_of_revision: true }
    }

    fn moments(found: &Remembered) -> Vec<u64> {
        found.events.iter().map(|entry| entry.event.at.as_millis()).collect()
    }

    #[test]
    fn newest_come_first_and_the_oldest_are_forgotten() {
        let history = History::new(HistoryLimits { endings_max: 600, deadlocks_max: 1 });
        for at in 1..=1000 {
            history.note(&[ended(at, Ending::Expired)]);
        }
        let found = history.endings(|_| true, 10_000);
        assert_eq!(moments(&found), (401..=1000).rev().collect::<Vec<u64>>());
        assert_eq!(found.complete_after, Some(Timestamp::from_millis(400)));
        let few = history.endings(|event| event.at.as_millis().is_multiple_of(100), 3);
        assert_eq!(moments(&few), [1000, 900, 800]);
    }

    #[test]
    fn what_nobody_had_did_not_end() {
        let history = History::new(HistoryLimits::default());
        for ending in [Ending::WindowOver, Ending::Reclaimed, Ending::Withdrawn] {
            history.note(&[ended(1, ending)]);
        }
        assert!(history.endings(|_| true, 10).events.is_empty());
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_to_be_kept() {
        let history = History::new(HistoryLimits { endings_max: 0, deadlocks_max: 0 });
        history.note(&[ended(7, Ending::Released)]);
        let found = history.endings(|_| true, 10);
        assert!(found.events.is_empty());
        assert_eq!(found.complete_after, Some(Timestamp::from_millis(7)));
    }
}
