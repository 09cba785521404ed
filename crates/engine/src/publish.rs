//! What watchers are told: a bounded memory of events, and everybody who follows them.
//!
//! The engine never waits for a watcher. One that falls too far behind is told so and has to look at the table again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold_core::{Event, Revision};
use tokio::sync::broadcast;

#[derive(Clone, Debug)]
pub(crate) struct Publisher {
    memory: Arc<Mutex<Memory>>,
    live: broadcast::Sender<Arc<Event>>,
}

#[derive(Debug)]
struct Memory {
    events: VecDeque<Arc<Event>>,
    len_max: usize,
    /// Everything after this revision is remembered.
    complete_after: Revision,
}

/// Events after the asked revision are no longer all remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events are remembered after revision {} only", oldest.0)]
pub struct Compacted {
    pub oldest: Revision,
}

/// The events from one point on.
#[derive(Debug)]
pub struct Watch {
    backlog: VecDeque<Arc<Event>>,
    live: broadcast::Receiver<Arc<Event>>,
}

/// What a watcher gets next.
#[derive(Clone, Debug)]
pub enum Watched {
    Event(Arc<Event>),
    /// So many events were missed: look at the table again.
    Missed(u64),
    /// The engine has stopped.
    End,
}

impl Publisher {
    pub(crate) fn new(memory_len_max: usize, backlog_len_max: usize) -> Publisher {
        let (live, _) = broadcast::channel(backlog_len_max);
        let events = VecDeque::new();
        let memory = Memory { events, len_max: memory_len_max, complete_after: Revision(0) };
        Publisher { memory: Arc::new(Mutex::new(memory)), live }
    }

    /// The table starts here: nothing before is known.
    pub(crate) fn start_after(&self, revision: Revision) {
        self.memory().complete_after = revision;
    }

    pub(crate) fn publish(&self, event: Arc<Event>) {
        let mut memory = self.memory();
        memory.events.push_back(event.clone());
        if memory.events.len() > memory.len_max
            && let Some(forgotten) = memory.events.pop_front()
        {
            memory.complete_after = forgotten.revision;
        }
        // Nobody watching is no failure.
        let _ = self.live.send(event);
    }

    pub(crate) fn watch(&self, after: Option<Revision>) -> Result<Watch, Compacted> {
        let memory = self.memory();
        let backlog = match after {
            None => VecDeque::new(),
            Some(after) if after < memory.complete_after => {
                return Err(Compacted { oldest: memory.complete_after });
            }
            Some(after) => {
                memory.events.iter().filter(|event| event.revision > after).cloned().collect()
            }
        };
        // Under the lock, so that nothing falls between the backlog and what comes after it.
        Ok(Watch { backlog, live: self.live.subscribe() })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
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
