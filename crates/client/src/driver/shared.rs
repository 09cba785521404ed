//! Hand-over of the driver between a task on the caller's runtime and the guard, which is the client's own thread.
//!
//! ```text
//!            ┌──────────── task ──► poll ─┐
//!  runtime ──┤                            ├──► Mutex<Driver>
//!            └ blocked, idle, dropped     │
//!  thread ─────── guard ──► look ─────────┘    only if something is overdue and the task has not run
//! ```
//!
//! On the caller's runtime an order and its answer wake no other thread, which is most of what a request costs. But a program may
//! block its runtime, leave it without running it, or drop it. So the guard sleeps until the driver's next moment is past by
//! [`Machine::slack`](crate::machine::Machine::slack), looks whether the task has run, waits that long once more, and then takes
//! over. It makes a connection of its own: that of the task is driven by the caller's runtime, which does not run. Requests on their
//! way are sent again under the same ids. When the task runs again it takes the driver back in the same manner; when it was dropped,
//! the guard keeps it. There is one machine, and only who holds the mutex touches it: what a holder believes never depends on who
//! drives.
//!
//! Without a runtime there is no task, and the guard drives from the beginning.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use super::{Driver, Step};
use crate::clock::Clock;
use crate::machine::Moment;
use crate::surroundings::Place;

/// Age of an order at which the task counts as stopped.
const ORDERS_LATE: Duration = Duration::from_millis(100);

/// Calls the guard when something was ordered. While orders are frequent the guard looks by itself, and calling it costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Attention {
    called: Notify,
    is_patrolled: AtomicBool,
}

impl Attention {
    /// Notes an order, or the end of all orders.
    pub(crate) fn ordered(&self) {
        // Either the guard sees the order after it has ended its patrol, or it is seen here that it has.
        fence(Ordering::SeqCst);
        if !self.is_patrolled.load(Ordering::Relaxed)
            && !self.is_patrolled.swap(true, Ordering::SeqCst)
        {
            self.called.notify_one();
        }
    }
}

/// The driver, and the two that may poll it.
pub(crate) struct SharedDriver {
    clock: Arc<dyn Clock>,
    attention: Arc<Attention>,
    seat: Mutex<Seat>,
}

struct Seat {
    /// Until it has come to its end.
    driver: Option<Box<Driver>>,
    /// True while there is a task that could drive.
    has_task: bool,
    task: Option<Waker>,
    guard: Option<Waker>,
    /// Counts how often the driver was polled.
    polls: u64,
    /// The guard sleeps until then.
    guard_until: Moment,
}

/// Findings of the guard's last look.
#[derive(Default)]
struct Seen {
    polls: u64,
    /// Since when something is overdue, and how often the driver had been polled.
    overdue: Option<(Moment, u64)>,
}

enum Look {
    SleepUntil(Moment),
    Drive,
    End,
}

impl SharedDriver {
    pub(crate) fn new(driver: Driver, attention: Arc<Attention>) -> SharedDriver {
        let clock = driver.clock.clone();
        let has_task = driver.place == Place::Caller;
        let seat = Seat {
            driver: Some(Box::new(driver)),
            has_task,
            task: None,
            guard: None,
            polls: 0,
            guard_until: Moment::ZERO,
        };
        SharedDriver { clock, attention, seat: Mutex::new(seat) }
    }

    /// After a panic nothing of the driver can be trusted: its callers hear that the client is closed, and its leases lapse.
    fn seat(&self) -> MutexGuard<'_, Seat> {
        self.seat.lock().unwrap_or_else(|poisoned| {
            let mut seat = poisoned.into_inner();
            seat.driver = None;
            seat
        })
    }

    /// The task on the caller's runtime.
    pub(crate) async fn run_task(self: Arc<SharedDriver>) {
        let task = Task(self);
        task.0.drive(Place::Caller).await;
    }

    /// The guard on the client's own thread.
    pub(crate) async fn run_guard(self: Arc<SharedDriver>) {
        let mut seen = Seen::default();
        loop {
            match self.look(&mut seen) {
                Look::End => return,
                Look::Drive => self.drive(Place::Guard).await,
                Look::SleepUntil(until) => tokio::select! {
                    biased;
                    () = self.attention.called.notified() => {}
                    () = self.sleep_until(until) => {}
                },
            }
        }
    }

    async fn sleep_until(&self, until: Moment) {
        if until == Moment::MAX {
            std::future::pending::<()>().await;
        }
        self.clock.sleep_until(until).await;
    }

    /// Drives until the end, or until the other takes over.
    async fn drive(&self, place: Place) {
        loop {
            match std::future::poll_fn(|context| self.poll(place, context)).await {
                Some(Step::Yield) => tokio::task::yield_now().await,
                Some(Step::End) | None => return,
            }
        }
    }

    fn poll(&self, place: Place, context: &mut Context<'_>) -> Poll<Option<Step>> {
        let mut seat = self.seat();
        let seat = &mut *seat;
        let Some(driver) = &mut seat.driver else { return Poll::Ready(None) };
        let span = driver.span.clone();
        let _entered = span.enter();
        let (mine, other) = match place {
            Place::Caller => (&mut seat.task, &mut seat.guard),
            Place::Guard => (&mut seat.guard, &mut seat.task),
        };
        match mine {
            Some(waker) if waker.will_wake(context.waker()) => {}
            Some(_) | None => *mine = Some(context.waker().clone()),
        }
        if driver.place != place {
            if place == Place::Guard {
                return Poll::Ready(None);
            }
            driver.move_to(Place::Caller);
            wake(other);
        }
        seat.polls += 1;
        match driver.poll(context) {
            Poll::Ready(Step::End) => {
                wake(other);
                self.attention.called.notify_one();
                seat.driver = None;
                Poll::Ready(Some(Step::End))
            }
            Poll::Ready(Step::Yield) => Poll::Ready(Some(Step::Yield)),
            Poll::Pending => {
                let overdue_at = driver.overdue_at();
                if place == Place::Caller && overdue_at < seat.guard_until {
                    seat.guard_until = overdue_at;
                    self.attention.called.notify_one();
                }
                Poll::Pending
            }
        }
    }

    fn look(&self, seen: &mut Seen) -> Look {
        let now = self.clock.now();
        let mut seat = self.seat();
        let seat = &mut *seat;
        let Some(driver) = &mut seat.driver else { return Look::End };
        let span = driver.span.clone();
        let _entered = span.enter();
        let overdue_at = driver.overdue_at();
        let limit = if overdue_at <= now {
            Some(driver.machine.slack())
        } else {
            driver.has_unseen_orders().then_some(ORDERS_LATE)
        };
        let mut until = match (limit, seen.overdue) {
            _ if !seat.has_task => now,
            (None, _) => {
                seen.overdue = None;
                overdue_at
            }
            (Some(limit), Some((since, polls))) if polls == seat.polls => since.plus(limit),
            // The guard may have been as late as the task: after the machine has slept, for instance.
            (Some(limit), _) => {
                seen.overdue = Some((now, seat.polls));
                now.plus(limit)
            }
        };
        if until <= now {
            *seen = Seen::default();
            if driver.place == Place::Caller {
                driver.move_to(Place::Guard);
                wake(&mut seat.task);
            }
            return Look::Drive;
        }
        if self.attention.is_patrolled.load(Ordering::SeqCst) {
            if seat.polls == seen.polls && limit.is_none() {
                self.attention.is_patrolled.store(false, Ordering::SeqCst);
                fence(Ordering::SeqCst);
            }
            if seat.polls != seen.polls || limit.is_some() || driver.has_unseen_orders() {
                self.attention.is_patrolled.store(true, Ordering::SeqCst);
                until = until.min(now.plus(ORDERS_LATE));
            }
            seen.polls = seat.polls;
        }
        seat.guard_until = until;
        Look::SleepUntil(until)
    }
}

impl Driver {
    /// Moment at which a driver that has not run counts as stopped; the end of time if nothing is due.
    fn overdue_at(&self) -> Moment {
        self.next_wake().map_or(Moment::MAX, |at| at.plus(self.machine.slack()))
    }

    fn has_unseen_orders(&self) -> bool {
        self.is_open && (self.orders.is_closed() || !self.orders.is_empty())
    }
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// The task for as long as the caller's runtime keeps it.
struct Task(Arc<SharedDriver>);

impl Drop for Task {
    fn drop(&mut self) {
        let mut seat = self.0.seat();
        (seat.has_task, seat.task) = (false, None);
        drop(seat);
        self.0.attention.called.notify_one();
    }
}
