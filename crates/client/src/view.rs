//! The holder's view of a lease, shared between the work and the driver that keeps the lease.
//!
//! Reading it needs no lock and no running task: the reader compares the clock with the moments noted here, so a
//! process that was stopped for a while gets the truth from its first question on.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::error::LostBy;
use crate::machine::{Key, LeaseWindow, Moment, State};

#[derive(Debug)]
pub(crate) struct LeaseView {
    clock: Arc<dyn Clock>,
    /// The window, in nanoseconds. The two are only written together by the driver, and a reader that meets them in
    /// between sees an older moment with the same ttl.
    since: AtomicU64,
    ttl: AtomicU64,
    told: AtomicU8,
    /// Another owner waits for the lock.
    is_wanted: AtomicBool,
    /// The machine's key; zero before there is one.
    key: AtomicU64,
    changed: Notify,
    lost_by: Mutex<Option<LostBy>>,
    /// Tells the work to stop; made by the first caller that asks for a token.
    stop: Mutex<Option<CancellationToken>>,
    /// For a grant under a session: what is believed of the session.
    session: Option<Arc<LeaseView>>,
}

const VALID: u8 = 0;
const JEOPARDY: u8 = 1;
const LOST: u8 = 2;

impl LeaseView {
    pub(crate) fn new(clock: Arc<dyn Clock>, session: Option<Arc<LeaseView>>) -> LeaseView {
        LeaseView {
            clock,
            since: AtomicU64::new(0),
            ttl: AtomicU64::new(0),
            told: AtomicU8::new(VALID),
            is_wanted: AtomicBool::new(false),
            key: AtomicU64::new(0),
            changed: Notify::new(),
            lost_by: Mutex::new(None),
            stop: Mutex::new(None),
            session,
        }
    }

    pub(crate) fn asked_as(&self, key: Key) {
        self.key.store(key.to_u64(), Ordering::Relaxed);
    }

    pub(crate) fn key(&self) -> Option<Key> {
        match self.key.load(Ordering::Relaxed) {
            0 => None,
            number => Some(Key::from_u64(number)),
        }
    }

    pub(crate) fn set_window(&self, window: LeaseWindow) {
        let ttl = u64::try_from(window.ttl().as_nanos()).unwrap_or(u64::MAX);
        self.ttl.store(ttl, Ordering::Relaxed);
        self.since.store(window.since().as_nanos(), Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) fn in_jeopardy(&self) {
        self.told.fetch_max(JEOPARDY, Ordering::AcqRel);
        self.stop_work();
    }

    pub(crate) fn wanted(&self) {
        self.is_wanted.store(true, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) fn lost(&self, by: LostBy) {
        let mut reason = self.lost_by.lock().unwrap_or_else(PoisonError::into_inner);
        reason.get_or_insert(by);
        drop(reason);
        self.told.store(LOST, Ordering::Release);
        self.stop_work();
    }

    fn stop_work(&self) {
        self.changed.notify_waiters();
        if let Some(stop) = &*self.stop.lock().unwrap_or_else(PoisonError::into_inner) {
            stop.cancel();
        }
    }

    /// A token of its own for each caller: none can stop the work of another with it.
    pub(crate) fn cancellation_token(&self) -> CancellationToken {
        let token = {
            let mut stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
            stop.get_or_insert_default().child_token()
        };
        // What was told before there was a token to cancel, or not yet told by a driver that did not run for a while.
        if self.state() != State::Valid {
            token.cancel();
        }
        token
    }

    pub(crate) fn lost_by(&self) -> LostBy {
        let told = self.lost_by.lock().unwrap_or_else(PoisonError::into_inner).clone();
        told.or_else(|| {
            let session = self.session.as_ref()?;
            session.lost_by.lock().unwrap_or_else(PoisonError::into_inner).clone()
        })
        .unwrap_or(match self.state() {
            State::Lost => LostBy::Lapse,
            State::Valid | State::Jeopardy => LostBy::Jeopardy,
        })
    }

    pub(crate) fn window(&self) -> LeaseWindow {
        if let Some(session) = &self.session {
            return session.window();
        }
        let since = Moment::from_nanos(self.since.load(Ordering::Acquire));
        let ttl = Duration::from_nanos(self.ttl.load(Ordering::Relaxed));
        LeaseWindow::counted(since, ttl, ttl)
    }

    pub(crate) fn state(&self) -> State {
        let told = match self.told.load(Ordering::Acquire) {
            VALID => State::Valid,
            JEOPARDY => State::Jeopardy,
            _ => State::Lost,
        };
        let under = match &self.session {
            Some(session) => session.state(),
            None => self.window().state(self.clock.now()),
        };
        told.max(under)
    }

    /// Time until jeopardy without another renewal.
    pub(crate) fn time_to_work(&self) -> Duration {
        match self.state() {
            State::Valid => self.window().jeopardy_at().since(self.clock.now()),
            State::Jeopardy | State::Lost => Duration::ZERO,
        }
    }

    /// Time until the lease lapses.
    pub(crate) fn time_left(&self) -> Duration {
        match self.state() {
            State::Valid | State::Jeopardy => self.window().lapses_at().since(self.clock.now()),
            State::Lost => Duration::ZERO,
        }
    }

    /// Waits until there is something else to believe than what was seen.
    pub(crate) async fn other_than(&self, seen: (State, LeaseWindow)) -> (State, LeaseWindow) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            let session = self.session.as_ref().map(|session| session.changed.notified());
            changed.as_mut().enable();
            let mut session = std::pin::pin!(session);
            if let Some(session) = session.as_mut().as_pin_mut() {
                session.enable();
            }
            let now = (self.state(), self.window());
            if now != seen {
                return now;
            }
            match session.as_pin_mut() {
                Some(session) => tokio::select! {
                    () = changed => {}
                    () = session => {}
                },
                None => changed.await,
            }
        }
    }

    /// Waits until another owner waits for the lock.
    pub(crate) async fn until_wanted(&self) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.is_wanted.load(Ordering::Acquire) {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the state is that bad. The driver wakes the waiters; it has its own alarm.
    pub(crate) async fn until(&self, state: State) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.state() >= state {
                return;
            }
            changed.await;
        }
    }
}
