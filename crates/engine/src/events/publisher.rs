//! The stream of events: a bounded memory of them, and its subscribers.
//!
//! The events lie in one ring for all, and each watcher has a place in it. The engine never waits for a watcher: one that
//! falls too far behind is told so and has to look at the table again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use leasehold_core::{Ending, Epoch, FencingToken, LeaseId, Namespace, Revision, Scope};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, watch};

use super::{Counts, History, HistoryLimits, LockLog, Totals};
use crate::writer::Published;

/// The most unread notices of a session before they are dropped.
const NOTICES_LEN_MAX: usize = 1024;
/// So many events a watcher takes at a time.
const TAKEN_LEN_MAX: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    memory: Arc<Mutex<Memory>>,
    /// Changes when there is something to take.
    grown: watch::Sender<()>,
    followers: Arc<Mutex<Followers>>,
    counts: Arc<Mutex<Counts>>,
    pub(crate) history: History,
    log: Arc<Mutex<LockLog>>,
}

/// The subscribers to what the holder of a lease has to know.
type Followers = HashMap<(Namespace, LeaseId), mpsc::Sender<Notice>>;

#[derive(Debug)]
struct Memory {
    events: VecDeque<Published>,
    len_max: usize,
    /// The number of events there ever were: the number of the next one.
    next: u64,
    /// The number of takeovers by another server. A watcher sees the events of one life only.
    life: u64,
    /// The number of the first event of this life.
    life_began: u64,
    /// Everything after this revision is remembered.
    complete_after: Revision,
    began: Beginning,
}

/// A point in the stream of events: all up to this revision have been seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The epoch in which the revision was seen, where that is known. Another epoch may count other revisions.
    pub epoch: Option<Epoch>,
    pub revision: Revision,
}

/// The point from which a server leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beginning {
    pub epoch: Epoch,
    pub revision: Revision,
    /// The epoch before this one and the revision at which it ended, if nothing of it is missing.
    pub before: Option<(Epoch, Revision)>,
}

/// Events after the asked revision are no longer all remembered, or never were known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events are remembered after revision {} only", oldest.0)]
pub struct Compacted {
    pub oldest: Revision,
}

/// The events from one point on.
#[derive(Debug)]
pub struct Watch {
    epoch: Epoch,
    after: Revision,
    memory: Arc<Mutex<Memory>>,
    grown: watch::Receiver<()>,
    life: u64,
    /// The number of the event that it takes next.
    next: u64,
    taken: VecDeque<Published>,
}

/// The next item of a watcher.
#[derive(Clone, Debug)]
pub enum Watched {
    Event(Published),
    /// So many events were missed: look at the table again.
    Missed(u64),
    /// The engine has stopped.
    End,
}

/// Something the holder of a lease should hear without asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The whole lease, or the grant with this fence, is gone.
    Lost { fence: Option<FencingToken>, ending: Ending },
    /// A request waits for this, and the grant with this fence is in the way.
    Wanted { fence: FencingToken, scope: Scope },
}

impl Publisher {
    pub(crate) fn new(memory_len_max: usize, history: HistoryLimits) -> Publisher {
        let memory = Memory {
            events: VecDeque::new(),
            len_max: memory_len_max,
            next: 0,
            life: 0,
            life_began: 0,
            complete_after: Revision(0),
            began: Beginning::default(),
        };
        let (memory, history) = (Arc::new(Mutex::new(memory)), History::new(history));
        let grown = watch::Sender::new(());
        Publisher {
            memory,
            grown,
            followers: Arc::default(),
            counts: Arc::default(),
            history,
            log: Arc::default(),
        }
    }

    /// The table starts here: nothing before is known.
    pub(crate) fn begin(&self, beginning: Beginning) {
        let mut memory = self.memory();
        memory.events.clear();
        memory.complete_after = beginning.revision;
        memory.began = beginning;
    }

    /// Another server decides from now on: whoever watches has to look there.
    pub(crate) fn end(&self) {
        let mut memory = self.memory();
        memory.life += 1;
        memory.life_began = memory.next;
        drop(memory);
        self.grown.send_replace(());
        self.followers.lock().clear();
    }

    /// In order; what is given is empty afterwards.
    pub(crate) fn publish(&self, events: &mut Vec<Published>) {
        if events.is_empty() {
            return;
        }
        self.history.note(events);
        self.counted().count(events);
        self.log.lock().tell(events);
        let mut memory = self.memory();
        // First some out, then as many in: a deque that is full would double for those too many.
        memory.make_room(events.len());
        memory.next += events.len() as u64;
        memory.events.extend(events.drain(..));
        memory.make_room(0);
        drop(memory);
        // Nobody watches most of the time.
        if self.grown.receiver_count() > 0 {
            self.grown.send_replace(());
        }
    }

    pub(crate) fn watch(&self, after: Cursor) -> Result<Watch, Compacted> {
        let memory = self.memory();
        let oldest = memory.complete_after;
        let after = memory.began.revision_of(after).filter(|after| *after >= oldest);
        let after = after.ok_or(Compacted { oldest })?;
        Ok(Watch {
            epoch: memory.began.epoch,
            after,
            memory: self.memory.clone(),
            grown: self.grown.subscribe(),
            life: memory.life,
            next: memory.first_after(after),
            taken: VecDeque::new(),
        })
    }

    /// Everything after this revision is remembered.
    pub(crate) fn complete_after(&self) -> Revision {
        self.memory().complete_after
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counted().clone()
    }

    pub(crate) fn totals(&self) -> Totals {
        self.counted().totals
    }

    fn counted(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock()
    }

    /// Everything the holder of this lease should hear from now on. A later follower takes over.
    pub(crate) fn follow(&self, namespace: Namespace, lease: LeaseId) -> mpsc::Receiver<Notice> {
        let (notices, following) = mpsc::channel(NOTICES_LEN_MAX);
        let mut followers = self.followers.lock();
        followers.retain(|_, follower| !follower.is_closed());
        followers.insert((namespace, lease), notices);
        following
    }

    pub(crate) fn notify(&self, namespace: Namespace, lease: LeaseId, notice: Notice) {
        let followers = self.followers.lock();
        if let Some(follower) = followers.get(&(namespace, lease)) {
            // One that does not read its notices finds out by its next heartbeat.
            let _ = follower.try_send(notice);
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock()
    }
}

impl Beginning {
    /// The revision of this epoch that a cursor stands for. What was seen in another epoch says nothing about this one,
    /// unless it is the very end of the epoch before.
    fn revision_of(&self, cursor: Cursor) -> Option<Revision> {
        match cursor.epoch {
            Some(epoch) if self.before == Some((epoch, cursor.revision)) => Some(self.revision),
            Some(epoch) if epoch != self.epoch => None,
            Some(_) | None => Some(cursor.revision),
        }
    }
}

impl Memory {
    /// The number of the first event after a revision. Revisions only rise.
    fn first_after(&self, after: Revision) -> u64 {
        let before = self.events.partition_point(|known| known.event.revision <= after);
        self.next - self.events.len() as u64 + before as u64
    }

    /// Forgets what is oldest, until so many more would not be too many.
    fn make_room(&mut self, more: usize) {
        let len = self.events.len();
        let gone = (len + more).saturating_sub(self.len_max).min(len);
        // They lie far apart and were not used for long. Looked at one right after the other, they come all at once;
        // to drop each first would be to wait for it first.
        let last = self.events.range(..gone).map(|forgotten| forgotten.event.revision).max();
        self.complete_after = last.unwrap_or(self.complete_after);
        self.events.drain(..gone);
    }
}

impl Watch {
    /// The epoch of all its events: it ends when another begins.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Its events come after this revision.
    pub fn after(&self) -> Revision {
        self.after
    }

    pub async fn next(&mut self) -> Watched {
        loop {
            if let Some(event) = self.taken.pop_front() {
                return Watched::Event(event);
            }
            // Before the look: what comes after it is noticed.
            self.grown.borrow_and_update();
            if let Some(told) = self.take() {
                return told;
            }
            if self.taken.is_empty() && self.grown.changed().await.is_err() {
                return Watched::End;
            }
        }
    }

    /// Takes some of what is there; says so if there is something else to be told.
    fn take(&mut self) -> Option<Watched> {
        let memory = self.memory.lock();
        let end = match memory.life - self.life {
            0 => memory.next,
            // What happened last before another server took over.
            1 => memory.life_began,
            _ => 0,
        };
        let oldest = memory.next - memory.events.len() as u64;
        if self.next < end && self.next >= oldest {
            let first = usize::try_from(self.next - oldest).unwrap_or(usize::MAX);
            let len = usize::try_from(end - self.next).unwrap_or(usize::MAX).min(TAKEN_LEN_MAX);
            self.taken.extend(memory.events.iter().skip(first).take(len).cloned());
            self.next += len as u64;
            return None;
        }
        if memory.life != self.life {
            return Some(Watched::End);
        }
        if self.next < oldest {
            let missed = oldest - self.next;
            self.next = oldest;
            return Some(Watched::Missed(missed));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::{Event, News, Timestamp};

    fn events(revisions: std::ops::Range<u64>) -> Vec<Published> {
        let event = |revision| {
            let (revision, at) = (Revision(revision), Timestamp::ZERO);
            let event =
                Event { revision, at, namespace: Namespace::default(), news: News::GraceEnded };
            Published { event: Arc::new(event), last_of_revision: true }
        };
        revisions.map(event).collect()
    }

    fn next(watch: &mut Watch) -> Option<Result<u64, u64>> {
        let next = std::pin::pin!(watch.next());
        match next.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Pending => None,
            std::task::Poll::Ready(Watched::Event(published)) => {
                Some(Ok(published.event.revision.0))
            }
            std::task::Poll::Ready(Watched::Missed(missed)) => Some(Err(missed)),
            std::task::Poll::Ready(Watched::End) => Some(Err(u64::MAX)),
        }
    }

    #[test]
    fn watchers_share_one_ring_and_each_goes_on_from_its_own_place() {
        let publisher = Publisher::new(100, HistoryLimits::default());
        publisher.publish(&mut events(1..11));
        let mut early = publisher
            .watch(Cursor { epoch: None, revision: Revision(0) })
            .expect("it is remembered");
        let mut late = publisher
            .watch(Cursor { epoch: None, revision: Revision(7) })
            .expect("it is remembered");
        assert_eq!(
            std::iter::from_fn(|| next(&mut late)).collect::<Vec<_>>(),
            [Ok(8), Ok(9), Ok(10)]
        );
        publisher.publish(&mut events(11..12));
        assert_eq!(next(&mut late), Some(Ok(11)));
        assert_eq!(next(&mut late), None);
        assert_eq!(std::iter::from_fn(|| next(&mut early)).count(), 11);
    }

    #[test]
    fn watcher_that_falls_behind_is_told_and_one_of_another_life_ends() {
        let publisher = Publisher::new(100, HistoryLimits::default());
        let mut watch = publisher
            .watch(Cursor { epoch: None, revision: Revision(0) })
            .expect("it is remembered");
        publisher.publish(&mut events(1..251));
        assert_eq!(next(&mut watch), Some(Err(150)), "so many are gone");
        assert_eq!(next(&mut watch), Some(Ok(151)));
        let mut other = publisher
            .watch(Cursor { epoch: None, revision: Revision(249) })
            .expect("it is remembered");
        publisher.end();
        publisher.publish(&mut events(251..252));
        assert_eq!(next(&mut other), Some(Ok(250)), "what was before is told yet");
        assert_eq!(next(&mut other), Some(Err(u64::MAX)));
    }
}
