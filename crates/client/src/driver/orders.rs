//! Orders from clients and leases to the driver.

use std::sync::Arc;
use std::time::Duration;

use leasehold_api::RequestOutcome;
use tokio::sync::oneshot;

use super::{Arrived, Asked, Driver, Item, ReplySender};
use crate::download::Download;
use crate::error::{Error, LostBy};
use crate::http::{Answered, Ask as HttpAsk};
use crate::machine::{Ask, Failure, Key, Moment};
use crate::view::LeaseView;
use crate::watch::Way;

/// Between two tries of a request that was not carried out.
const ASK_AGAIN: Duration = Duration::from_millis(50);
/// Longest time for an answer to a request of a tool: the longest wait that the server allows in one request, and a little more. A peer
/// that has vanished would never answer.
const ANSWER_MAX: Duration = Duration::from_secs(70);

/// Order to the driver.
pub(crate) enum Order {
    Acquire {
        item: Box<Item>,
        ask: Ask,
    },
    Release {
        key: Key,
        done: ReplySender<()>,
    },
    /// The guard was dropped, or the caller that waited for it.
    Abandon(Key),
    /// The caller of an acquire went away before it knew its key.
    AbandonRequest(Arc<LeaseView>),
    Renew(Key),
    StartHeartbeat(Key),
    /// Asks for notices of waiters.
    Listen(Key),
    Http {
        ask: HttpAsk,
        done: ReplySender<Answered>,
    },
    Watch(crate::watch::Feed),
    Download {
        ask: HttpAsk,
        done: ReplySender<Download>,
    },
    /// Says when it is that late.
    Sleep {
        until: Moment,
        done: oneshot::Sender<()>,
    },
    /// Says when the connection stands for the first time, or why it does not.
    Connected(ReplySender<()>),
    /// Gives everything back, and says when that is done.
    Flush(oneshot::Sender<()>),
}

impl Driver {
    pub(super) fn obey(&mut self, now: Moment, order: Order) {
        match order {
            Order::Acquire { item, ask } => {
                // The caller may be gone already.
                if item.acquired.as_ref().is_some_and(|sender| !sender.is_closed()) {
                    let view = item.view.clone();
                    view.asked_as(self.machine.acquire(now, item, ask));
                }
            }
            Order::Release { key, done } => self.release(now, key, done),
            Order::Abandon(key) => self.machine.abandon(now, key),
            Order::AbandonRequest(view) => {
                if let Some(key) = view.key() {
                    self.machine.abandon(now, key);
                }
            }
            Order::Renew(key) => _ = self.machine.renew(now, key),
            Order::StartHeartbeat(key) => self.machine.start_heartbeat(now, key),
            Order::Listen(key) => {
                if let Some(item) = self.machine.data(key) {
                    self.listening.insert(item.granted.name(), item.view.clone());
                }
            }
            Order::Http { ask, done } => {
                let until = now.plus(self.machine.settings().patience);
                self.ask_http(Asked { ask, done, until });
            }
            Order::Watch(feed) => {
                let (server, arrivals) = (self.tools.subscribe(), self.arrivals.clone());
                let patience = self.machine.settings().patience;
                drop(self.tools_runtime.spawn(feed.run(Way { server, arrivals, patience })));
            }
            Order::Download { ask, done } => {
                let http = self.tools.subscribe().borrow().clone();
                drop(self.tools_runtime.spawn(async move {
                    let _ = done.send(Download::start(&http, &ask).await);
                }));
            }
            Order::Sleep { until, done } => {
                self.sleeping.retain(|(_, done)| !done.is_closed());
                self.sleeping.push((until, done));
            }
            Order::Connected(done) if self.is_up => _ = done.send(Ok(())),
            Order::Connected(done) => self.waiting_for_up.push(done),
            Order::Flush(done) => {
                self.give_all_back();
                self.flushing.push(done);
                self.stop_flushing_later();
            }
        }
    }

    fn release(&mut self, now: Moment, key: Key, done: ReplySender<()>) {
        let Some(item) = self.machine.data_mut(key) else {
            let _ = done.send(Err(Error::lost(LostBy::Lapse, RequestOutcome::NotApplied)));
            return;
        };
        item.view.lost(LostBy::Released);
        item.released = Some(done);
        if !self.machine.release(now, key)
            && let Some(done) = self.machine.data_mut(key).and_then(|item| item.released.take())
        {
            let _ = done.send(Err(Error::lost(LostBy::Lapse, RequestOutcome::Unknown)));
        }
    }

    pub(super) fn give_all_back(&mut self) {
        let now = self.clock.now();
        for key in self.machine.keys() {
            if let Some(item) = self.machine.data_mut(key) {
                item.view.lost(LostBy::Released);
                if let Some(acquired) = item.acquired.take() {
                    let _ = acquired.send(Err(Error::Closed));
                }
            }
            self.machine.abandon(now, key);
        }
    }

    /// Bounds a flush by the patience. A lease not released by then lapses.
    pub(super) fn stop_flushing_later(&mut self) {
        let until = self.clock.now().plus(self.machine.settings().patience);
        self.flush_until.get_or_insert(until);
    }

    pub(super) fn say_if_flushed(&mut self) {
        if self.flushing.is_empty() {
            return;
        }
        if self.machine.is_empty() || self.is_out_of_patience() {
            for done in self.flushing.drain(..) {
                let _ = done.send(());
            }
            self.flush_until = None;
        }
    }

    /// Asks the server in use. What certainly was not carried out, or only reads, is asked again while patience lasts.
    pub(super) fn ask_http(&self, asked: Asked) {
        let (http, arrivals, clock) =
            (self.tools.borrow().clone(), self.arrivals.clone(), self.clock.clone());
        drop(self.tools_runtime.spawn(async move {
            let mut asked = asked;
            let late = clock.sleep_until(clock.now().plus(ANSWER_MAX));
            let answered = tokio::select! {
                answered = http.send(&asked.ask) => answered,
                () = late => Err((Failure::Unknown, format!("no answer in {ANSWER_MAX:?}"))),
                () = asked.done.closed() => return,
            };
            if clock.now() < asked.until && asked.ask.may_be_repeated(&answered) {
                tokio::time::sleep(ASK_AGAIN).await;
                let _ = arrivals.send(Arrived::AskAgain(asked));
                return;
            }
            let answered = answered.map_err(|(failure, said)| unreachable(failure, said));
            let _ = asked.done.send(answered);
        }));
    }
}

fn unreachable(failure: Failure, said: String) -> Error {
    match failure {
        Failure::Unsent => Error::unsent(said),
        Failure::Unknown => Error::unanswered(said),
    }
}
