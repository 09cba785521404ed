//! The callers that await answers, and the way back to them.

use std::collections::{HashMap, HashSet, VecDeque, hash_set};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use leasehold_core::{Answer, CallId, LeaseId};
use tokio::sync::oneshot;

use super::{CallBatch, CallError, PortEvent, Reply, ReplyEnvelope, ReplyQueue, port_of};
use crate::events::{Notice, Publisher};
use crate::writer::{Output, Published, Undo};

/// So many leases one port hears of without asking; of more it learns by its next heartbeat.
const FOLLOWED_MAX: usize = 200_000;
/// So many leases of ports that are gone are forgotten at a time: a port that followed many stops nobody.
const FORGOTTEN_AT_ONCE: usize = 1000;

/// Everybody who awaits an answer.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    callers: HashMap<CallId, oneshot::Sender<ReplyEnvelope>, OwnIds>,
    ports: HashMap<u32, OpenPort, OwnIds>,
    /// The port that follows each lease.
    followed: HashMap<LeaseId, u32, OwnIds>,
    /// The leases that ports which are gone followed, as far as they are not forgotten yet.
    gone: Vec<(u32, hash_set::IntoIter<LeaseId>)>,
    /// The ports that something was gathered for.
    touched: Vec<u32>,
    /// The events that watchers are told next.
    events: Vec<Published>,
}

#[derive(Debug)]
struct OpenPort {
    replies_to: Arc<ReplyQueue>,
    gathered: VecDeque<PortEvent>,
    followed: HashSet<LeaseId, OwnIds>,
}

impl Replies {
    /// A caller of its own awaits this answer.
    pub(crate) fn await_reply(&mut self, call: CallId, caller: oneshot::Sender<ReplyEnvelope>) {
        self.callers.insert(call, caller);
    }

    /// A port has sent something.
    pub(crate) fn heard_of(&mut self, calls: &CallBatch) {
        let port = calls.replies_to.port;
        self.ports.entry(port).or_insert_with(|| OpenPort {
            replies_to: calls.replies_to.clone(),
            gathered: VecDeque::new(),
            followed: HashSet::default(),
        });
        for lease in &calls.forget {
            self.unfollow(*lease);
        }
        for lease in &calls.follow {
            self.follow(port, *lease);
        }
    }

    pub(crate) fn closed(&mut self, port: u32) {
        if let Some(closed) = self.ports.remove(&port)
            && !closed.followed.is_empty()
        {
            self.gone.push((port, closed.followed.into_iter()));
        }
        self.forget_gone();
    }

    /// Forgets some of what ports that are gone followed.
    fn forget_gone(&mut self) {
        for _ in 0..FORGOTTEN_AT_ONCE {
            let Some((port, leases)) = self.gone.last_mut() else { return };
            match leases.next() {
                Some(lease) if self.followed.get(&lease) == Some(port) => {
                    self.followed.remove(&lease);
                }
                // Another port follows it by now.
                Some(_) => {}
                None => {
                    self.gone.pop();
                }
            }
        }
    }

    /// Gives an output to whom it concerns. What nobody takes delivery of comes back, to be undone.
    pub(crate) fn give(&mut self, output: Output, publisher: &Publisher) -> Option<Undo> {
        match output {
            Output::Reply { call, reply, undo } => match port_of(call) {
                Some((port, number)) => return self.give_port(port, number, reply, undo),
                None => {
                    // Whoever has its answer finds in the events what led to it.
                    publisher.publish(&mut self.events);
                    let Some(caller) = self.callers.remove(&call) else { return undo };
                    return caller
                        .send(ReplyEnvelope { reply, undo })
                        .err()
                        .and_then(|envelope| envelope.undo);
                }
            },
            Output::Event(event) => self.events.push(event),
            Output::Queued { call, queued } => {
                if let Some((port, number)) = port_of(call)
                    && let Some(open) = self.ports.get_mut(&port)
                {
                    gather(&mut self.touched, port, open, PortEvent::Queued { number, queued });
                }
            }
            Output::Began(beginning) => {
                publisher.publish(&mut self.events);
                publisher.begin(beginning);
            }
            Output::Ended => {
                publisher.publish(&mut self.events);
                publisher.end();
            }
            Output::Lost { namespace, lease, fence, ending } => {
                let notice = Notice::Lost { fence, ending };
                if !self.notify_port(lease, &notice) {
                    publisher.notify(namespace, lease, notice);
                } else if fence.is_none() {
                    self.unfollow(lease);
                }
            }
            Output::Wanted { namespace, lease, fence, scope } => {
                let notice = Notice::Wanted { fence, scope };
                if !self.notify_port(lease, &notice) {
                    publisher.notify(namespace, lease, notice);
                }
            }
        }
        None
    }

    fn give_port(
        &mut self,
        port: u32,
        number: u32,
        reply: Result<Reply, CallError>,
        undo: Option<Undo>,
    ) -> Option<Undo> {
        if let Ok(Reply::Answer(Answer::Granted(grant))) = &reply {
            self.follow(port, grant.lease);
        }
        let Some(open) = self.ports.get_mut(&port) else { return undo };
        gather(&mut self.touched, port, open, PortEvent::Reply { number, reply, undo });
        None
    }

    fn notify_port(&mut self, lease: LeaseId, notice: &Notice) -> bool {
        let Some(port) = self.followed.get(&lease).copied() else { return false };
        let Some(open) = self.ports.get_mut(&port) else { return false };
        let notice = PortEvent::Notice { lease, notice: notice.clone() };
        gather(&mut self.touched, port, open, notice);
        true
    }

    fn follow(&mut self, port: u32, lease: LeaseId) {
        let Some(open) = self.ports.get_mut(&port) else { return };
        if open.followed.len() >= FOLLOWED_MAX {
            return;
        }
        open.followed.insert(lease);
        if let Some(before) = self.followed.insert(lease, port).filter(|before| *before != port)
            && let Some(open) = self.ports.get_mut(&before)
        {
            open.followed.remove(&lease);
        }
    }

    fn unfollow(&mut self, lease: LeaseId) {
        if let Some(port) = self.followed.remove(&lease)
            && let Some(open) = self.ports.get_mut(&port)
        {
            open.followed.remove(&lease);
        }
    }

    /// Hands everything that was gathered to its port, in one go each. What a port that is gone does not take comes back.
    /// Watchers hear of it as well.
    pub(crate) fn flush(&mut self, publisher: &Publisher) -> Vec<Undo> {
        publisher.publish(&mut self.events);
        self.forget_gone();
        let mut undone = Vec::new();
        for port in self.touched.drain(..) {
            let Some(open) = self.ports.get_mut(&port) else { continue };
            open.replies_to.put(&mut open.gathered);
            undone.extend(open.gathered.drain(..).filter_map(PortEvent::into_undo));
        }
        undone
    }
}

impl Drop for Replies {
    /// Callers of their own see their channel close; ports have to be told.
    fn drop(&mut self) {
        for open in self.ports.values() {
            open.replies_to.orphan();
        }
    }
}

fn gather(touched: &mut Vec<u32>, number: u32, port: &mut OpenPort, reply: PortEvent) {
    if port.gathered.is_empty() {
        touched.push(number);
    }
    port.gathered.push_back(reply);
}

/// For ids that this server has made, by counting or at random: nobody can choose them so that they collide.
type OwnIds = BuildHasherDefault<Spread>;

#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut number = [0; 8];
            number[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(number));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let spread = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ spread >> 32;
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::HistoryLimits;
    use leasehold_core::{Ending, Namespace};

    fn lease(number: u128) -> LeaseId {
        LeaseId::from_u128(number)
    }

    fn follows(port: u32, leases: impl Iterator<Item = u128>) -> CallBatch {
        let (calls, forget) = (Vec::new(), Vec::new());
        let follow = leases.map(lease).collect();
        CallBatch { replies_to: Arc::new(ReplyQueue::new(port)), calls, follow, forget }
    }

    fn lost(number: u128) -> Output {
        let (namespace, lease) = (Namespace::default(), lease(number));
        Output::Lost { namespace, lease, fence: None, ending: Ending::Expired }
    }

    #[test]
    fn port_that_closes_is_forgotten_piece_by_piece_and_takes_nothing_from_others() {
        const MANY: u128 = 100_000;
        let publisher = Publisher::new(16, HistoryLimits::default());
        let mut replies = Replies::default();
        replies.heard_of(&follows(1, 0..MANY));
        replies.heard_of(&follows(2, 0..10));
        replies.closed(1);
        let left = replies.followed.len();
        assert!(left > MANY as usize - 2 * FORGOTTEN_AT_ONCE, "{left}: too much in one step");
        // Of another port's leases none is forgotten, whoever followed them before.
        replies.give(lost(3), &publisher);
        assert_eq!(replies.touched, [2]);
        // What the port followed that is gone has no follower, forgotten or not.
        assert!(
            !replies.notify_port(
                lease(MANY - 1),
                &Notice::Lost { fence: None, ending: Ending::Expired }
            )
        );
        for _ in 0..=MANY as usize / FORGOTTEN_AT_ONCE {
            replies.flush(&publisher);
        }
        assert_eq!(replies.followed.len(), 9);
    }

    #[test]
    fn many_ports_that_close_cost_what_they_followed() {
        let mut replies = Replies::default();
        replies.heard_of(&follows(0, 0..150_000));
        for port in 1..10_000 {
            let first = 1_000_000 + u128::from(port);
            replies.heard_of(&follows(port, first..first + 1));
        }
        let begun = std::time::Instant::now();
        for port in 1..10_000 {
            replies.closed(port);
        }
        // A look at all that is followed for each of them would take a minute here.
        assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(replies.followed.len(), 150_000);
    }
}
