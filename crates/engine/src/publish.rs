//! What watchers are told: a bounded memory of events, and everybody who follows them.
//!
//! The engine never waits for a watcher. One that falls too far behind is told so and has to look at the table again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{Ending, Epoch, Fence, LeaseId, Namespace, Revision, Scope};
use tokio::sync::{broadcast, mpsc};

use crate::counts::{Counts, Totals};
use crate::engine::Published;
use crate::history::{History, HistoryLimits};

/// How many notices a session may leave unread before they are dropped.
const NOTICES_LEN_MAX: usize = 1024;

#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    memory: Arc<Mutex<Memory>>,
    followers: Arc<Mutex<Followers>>,
    counts: Arc<Mutex<Counts>>,
    pub(crate) history: History,
}

/// Who hears what the holder of a lease should.
type Followers = HashMap<(Namespace, LeaseId), mpsc::Sender<Notice>>;

#[derive(Debug)]
struct Memory {
    events: VecDeque<Published>,
    len_max: usize,
    /// To everybody who watches now.
    live: broadcast::Sender<Published>,
    backlog_len_max: usize,
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
    backlog: VecDeque<Published>,
    live: broadcast::Receiver<Published>,
}

/// What a watcher gets next.
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
    Lost { fence: Option<Fence>, ending: Ending },
    /// Somebody waits for this, and the grant with this fence is in the way.
    Wanted { fence: Fence, scope: Scope },
}

impl Publisher {
    pub(crate) fn new(
        memory_len_max: usize,
        backlog_len_max: usize,
        history: HistoryLimits,
    ) -> Publisher {
        let (live, _) = broadcast::channel(backlog_len_max);
        let memory = Memory {
            events: VecDeque::new(),
            len_max: memory_len_max,
            live,
            backlog_len_max,
            complete_after: Revision(0),
            began: Beginning::default(),
        };
        let (memory, history) = (Arc::new(Mutex::new(memory)), History::new(history));
        Publisher { memory, followers: Arc::default(), counts: Arc::default(), history }
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
        let (live, _) = broadcast::channel(memory.backlog_len_max);
        memory.live = live;
        self.followers.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// In order; what is given is empty afterwards.
    pub(crate) fn publish(&self, events: &mut Vec<Published>) {
        if events.is_empty() {
            return;
        }
        self.history.note(events);
        self.counted().count(events);
        let mut memory = self.memory();
        // Nobody watches most of the time.
        let is_watched = memory.live.receiver_count() > 0;
        // First some out, then as many in: a deque that is full would double for those too many.
        memory.make_room(events.len());
        for published in events.drain(..) {
            if is_watched {
                let _ = memory.live.send(published.clone());
            }
            memory.events.push_back(published);
        }
        memory.make_room(0);
    }

    pub(crate) fn watch(&self, after: Cursor) -> Result<Watch, Compacted> {
        let memory = self.memory();
        let oldest = memory.complete_after;
        let after = memory.began.revision_of(after).filter(|after| *after >= oldest);
        let after = after.ok_or(Compacted { oldest })?;
        let later = memory.events.iter().filter(|known| known.event.revision > after);
        let backlog = later.cloned().collect();
        // Under the lock, so that nothing falls between the backlog and what comes after it.
        Ok(Watch { epoch: memory.began.epoch, after, backlog, live: memory.live.subscribe() })
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
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything the holder of this lease should hear from now on. A later follower takes over.
    pub(crate) fn follow(&self, namespace: Namespace, lease: LeaseId) -> mpsc::Receiver<Notice> {
        let (notices, following) = mpsc::channel(NOTICES_LEN_MAX);
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        followers.retain(|_, follower| !follower.is_closed());
        followers.insert((namespace, lease), notices);
        following
    }

    pub(crate) fn notify(&self, namespace: Namespace, lease: LeaseId, notice: Notice) {
        let followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(follower) = followers.get(&(namespace, lease)) {
            // One that does not read its notices finds out by its next heartbeat.
            let _ = follower.try_send(notice);
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
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
        if let Some(event) = self.backlog.pop_front() {
            return Watched::Event(event);
        }
        match self.live.recv().await {
            Ok(event) => Watched::Event(event),
            Err(broadcast::error::RecvError::Lagged(missed)) => Watched::Missed(missed),
            Err(broadcast::error::RecvError::Closed) => Watched::End,
        }
    }
}
