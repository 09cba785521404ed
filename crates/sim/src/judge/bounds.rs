//! Everything that can grow, and how far it may.
//!
//! Worlds are small, so the bounds are too: a few clients ask a few things at a time. What is longer than that is not busy
//! but forgotten.

use std::fmt;

use super::Verdict;
use crate::plan::Plan;
use crate::time::Moment;

/// Something that has a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// What is to happen.
    Agenda,
    /// Calls that a server owes an answer.
    Owed,
    /// Transitions that a server has not written.
    Unwritten,
    /// Requests that stand in the queue at a server.
    Waiting,
    /// What a client has asked by hand and has no answer to.
    Asked,
    /// What a client's SDK has asked and has no answer to.
    Exchanges,
    /// What a client's SDK keeps or wants.
    Kept,
    /// Calls on their way to the store.
    StoreCalls,
    /// Bytes of records behind the last snapshot, when everything is over.
    Journal,
}

const QUEUES: [(Queue, &str); 9] = [
    (Queue::Agenda, "events to come"),
    (Queue::Owed, "answers owed"),
    (Queue::Unwritten, "transitions unwritten"),
    (Queue::Waiting, "requests in line"),
    (Queue::Asked, "questions of a client"),
    (Queue::Exchanges, "questions of an SDK"),
    (Queue::Kept, "leases of an SDK"),
    (Queue::StoreCalls, "calls to the store"),
    (Queue::Journal, "bytes behind the snapshot"),
];

impl Queue {
    fn bound(self, plan: &Plan) -> usize {
        match self {
            Queue::Agenda => 20_000,
            // A server that stood still for long finds all that was asked meanwhile.
            Queue::Owed => 500,
            Queue::Unwritten => 2000,
            // Whoever comes back to a kept place was let in before, and is let in again.
            Queue::Waiting => plan.limits.waiters_max + plan.limits.kept_places_max,
            Queue::Asked => 200,
            // Those of a server that stands still are kept until they are given up, or its connection is.
            Queue::Exchanges => 200,
            Queue::Kept => 32,
            Queue::StoreCalls => 100 * plan.servers,
            Queue::Journal => {
                let due = usize::try_from(plan.snapshot_bytes).unwrap_or(usize::MAX);
                due.saturating_mul(2) + 20_000
            }
        }
    }
}

/// How long each of them has been at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaks([usize; QUEUES.len()]);

impl Peaks {
    /// It is this long now.
    pub fn see(
        &mut self,
        now: Moment,
        plan: &Plan,
        queue: Queue,
        len: usize,
    ) -> Result<(), Verdict> {
        let most = &mut self.0[queue as usize];
        if len <= *most {
            return Ok(());
        }
        *most = len;
        let bound = queue.bound(plan);
        if len > bound {
            let (_, name) = QUEUES[queue as usize];
            let what = format!("{len} {name}, more than {bound}");
            return Err(Verdict::new(now, "nothing grows without end", what));
        }
        Ok(())
    }

    pub fn add(&mut self, other: &Peaks) {
        for (most, len) in self.0.iter_mut().zip(other.0) {
            *most = (*most).max(len);
        }
    }
}

impl fmt::Display for Peaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            QUEUES.iter().zip(self.0).map(|((_, name), most)| format!("{most} {name}")).collect();
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_has_its_place() {
        for (at, (queue, _)) in QUEUES.into_iter().enumerate() {
            assert_eq!(queue as usize, at);
        }
    }

    #[test]
    fn what_grows_beyond_its_bound_is_told_of() {
        let (plan, mut peaks) = (Plan::new(0, None), Peaks::default());
        assert_eq!(peaks.see(Moment(1), &plan, Queue::Kept, 32), Ok(()));
        let told = peaks.see(Moment(2), &plan, Queue::Kept, 33).expect_err("too many");
        assert_eq!(told.seen, "33 leases of an SDK, more than 32");
    }
}
