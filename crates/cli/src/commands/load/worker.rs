//! One client under load: takes a lock, writes to its register now and then, and gives it back or vanishes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use leasehold_api::Code;
use leasehold_client::{Change, Client, Clock, Error, Lease, SystemClock};
use tokio::sync::watch;

use super::judge::Judge;
use crate::args::Load;

/// Of so many holds, one writes to the register: writes would otherwise be half of what is measured.
const WRITE_EVERY: u64 = 16;
/// The same when some vanish and come back with stale writes: those must meet newer ones.
const WRITE_EVERY_WITH_CRASHES: u64 = 2;
/// Of so many writes, one is followed by a stale one.
const STALE_EVERY: u64 = 4;
/// So many workers try a stale write at the end.
const STALE_AT_THE_END: u32 = 8;
const PAUSE_WHEN_UNREACHABLE: Duration = Duration::from_millis(100);
/// Enough for a lease that another worker let lapse.
const ANY_MICROS: u64 = 600_000_000;

pub(super) struct Worker {
    number: u32,
    run: u32,
    client: Client,
    locks: u32,
    /// There are enough for all, so no worker meets another.
    has_own_lock: bool,
    ttl: Duration,
    hold: Duration,
    wait: Duration,
    crash_rate: u8,
    /// Of so many holds, one writes to the register.
    write_every: Option<u64>,
    prefix: String,
    judge: Arc<Judge>,
    stop: watch::Receiver<bool>,
    random: u64,
    counts: Counts,
}

#[derive(Debug)]
pub(super) struct Counts {
    pub(super) acquired: u64,
    pub(super) refused: u64,
    /// Got it, but stood in the queue.
    pub(super) waited: u64,
    pub(super) crashed: u64,
    pub(super) lost: u64,
    pub(super) written: u64,
    /// Writes with a token that the register had certainly seen a higher one after.
    pub(super) stale_tried: u64,
    pub(super) stale_refused: u64,
    pub(super) unreachable: u64,
    pub(super) acquire_micros: Histogram<u64>,
    pub(super) release_micros: Histogram<u64>,
}

impl Counts {
    pub(super) fn new() -> Counts {
        Counts {
            acquired: 0,
            refused: 0,
            waited: 0,
            crashed: 0,
            lost: 0,
            written: 0,
            stale_tried: 0,
            stale_refused: 0,
            unreachable: 0,
            acquire_micros: histogram(),
            release_micros: histogram(),
        }
    }

    pub(super) fn add(&mut self, other: &Counts) {
        self.acquired += other.acquired;
        self.refused += other.refused;
        self.waited += other.waited;
        self.crashed += other.crashed;
        self.lost += other.lost;
        self.written += other.written;
        self.stale_tried += other.stale_tried;
        self.stale_refused += other.stale_refused;
        self.unreachable += other.unreachable;
        self.acquire_micros.add(&other.acquire_micros).expect("both have the same range");
        self.release_micros.add(&other.release_micros).expect("both have the same range");
    }
}

impl Worker {
    pub(super) fn new(
        number: u32,
        run: u32,
        client: Client,
        args: &Load,
        judge: Arc<Judge>,
        stop: watch::Receiver<bool>,
    ) -> Worker {
        Worker {
            number,
            run,
            client,
            locks: args.hot,
            has_own_lock: args.hot >= args.clients,
            ttl: args.ttl,
            hold: args.hold,
            wait: args.wait,
            crash_rate: args.crash_rate,
            write_every: args.has_registers.then_some(if args.crash_rate > 0 {
                WRITE_EVERY_WITH_CRASHES
            } else {
                WRITE_EVERY
            }),
            prefix: args.prefix.clone(),
            judge,
            stop,
            random: (u64::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(run),
            counts: Counts::new(),
        }
    }

    /// Until it is told to stop, or refused for a reason that no further try can change.
    pub(super) async fn run(mut self) -> Result<Counts, Error> {
        let mut round = 0_u64;
        while !*self.stop.borrow() {
            let lock = if self.has_own_lock { self.number } else { self.below(self.locks) };
            self.once(lock, round).await?;
            round += 1;
            if self.write_every.is_some_and(|every| round.is_multiple_of(STALE_EVERY * every)) {
                self.write_stale(lock).await;
            }
        }
        // However short the load was, a few stale writes are tried: each worker sees to one lock.
        if self.write_every.is_some() && self.number < STALE_AT_THE_END {
            self.write_stale(self.number % self.locks).await;
        }
        Ok(self.counts)
    }

    async fn once(&mut self, lock: u32, round: u64) -> Result<(), Error> {
        let vanishes = u8::try_from(self.below(100)).unwrap_or(0) < self.crash_rate;
        let name = self.name(lock);
        let request = self.client.lock(&name).owner(&format!("load-{}", self.number)).ttl(self.ttl);
        let request = request.wait(self.wait);
        let request = if vanishes { request.manual_heartbeat() } else { request };
        let start = Instant::now();
        let acquired = tokio::select! {
            acquired = request.acquire() => acquired,
            () = told(&mut self.stop) => return Ok(()),
        };
        let lease = match acquired {
            Ok(lease) => lease,
            Err(error) => return self.not_got(error).await,
        };
        record(&mut self.counts.acquire_micros, start);
        self.counts.acquired += 1;
        self.counts.waited += u64::from(!lease.waited().is_zero());
        let token = lease.fencing_token();
        self.judge.took(SystemClock.now(), lock, token, lease.window().lapses_at());
        if !self.hold.is_zero() {
            self.hold(lock, token, &lease).await;
        }
        if vanishes {
            self.vanish(lock, &name, lease).await;
            return Ok(());
        }
        if self.write_every.is_some_and(|every| round.is_multiple_of(every)) {
            self.write(lock, &name, token).await;
        }
        self.give_back(lock, token, lease).await;
        Ok(())
    }

    async fn not_got(&mut self, error: Error) -> Result<(), Error> {
        if error.is_unreachable() {
            self.counts.unreachable += 1;
            tokio::time::sleep(PAUSE_WHEN_UNREACHABLE).await;
            return Ok(());
        }
        if !error.code().is_some_and(is_passing) {
            return Err(error);
        }
        self.counts.refused += 1;
        let pause = error.recommended_retry().filter(|_| self.wait.is_zero());
        tokio::time::sleep(pause.unwrap_or_default()).await;
        Ok(())
    }

    /// Works until the time is over or the lease is in doubt, and tells the judge of renewals.
    async fn hold(&mut self, lock: u32, token: u64, lease: &Lease) {
        let mut changes = lease.changes();
        let end = tokio::time::sleep(self.hold);
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return,
                () = told(&mut self.stop) => return,
                change = changes.next() => match change {
                    Change::Renewed(window) => {
                        self.judge.keeps(lock, token, window.lapses_at());
                    }
                    Change::Jeopardy | Change::Lost(_) => return,
                },
            }
        }
    }

    async fn give_back(&mut self, lock: u32, token: u64, lease: Lease) {
        self.judge.gives_back(lock, token);
        let start = Instant::now();
        match lease.release().await {
            Ok(()) => record(&mut self.counts.release_micros, start),
            Err(error) if error.is_unreachable() => self.counts.unreachable += 1,
            Err(_) => self.counts.lost += 1,
        }
    }

    /// Goes without a word. When the lock is another worker's, it comes back and writes, as a process would that was
    /// stopped for a while.
    async fn vanish(&mut self, lock: u32, name: &str, lease: Lease) {
        self.counts.crashed += 1;
        let token = lease.fencing_token();
        tokio::select! {
            _ = lease.lost() => {}
            () = told(&mut self.stop) => return self.give_back(lock, token, lease).await,
        }
        tokio::time::sleep(self.ttl / 4).await;
        self.write(lock, name, token).await;
    }

    async fn write(&mut self, lock: u32, name: &str, token: u64) {
        let before = self.judge.before_write(lock);
        match self.client.api().accept_fence(name, token).await {
            Ok(_) => {
                self.counts.written += 1;
                self.judge.wrote(lock, token, before);
            }
            Err(error) if error.code() == Some(Code::StaleFence) => {
                self.counts.stale_refused += 1;
                self.judge.refused_write(lock, token, before);
            }
            Err(_) => self.counts.unreachable += 1,
        }
    }

    /// Writes as a holder would that was stopped for a while and does not know it: after a newer one has written.
    async fn write_stale(&mut self, lock: u32) {
        let Some((stale, newer)) = self.judge.stale_and_newer(lock) else { return };
        let name = self.name(lock);
        if self.judge.before_write(lock) <= stale {
            self.write(lock, &name, newer).await;
        }
        self.counts.stale_tried += u64::from(self.judge.before_write(lock) > stale);
        self.write(lock, &name, stale).await;
    }

    fn name(&self, lock: u32) -> String {
        super::lock_name(&self.prefix, self.run, lock)
    }

    /// A small generator of our own: load needs variety, not secrets.
    fn below(&mut self, bound: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        u32::try_from((self.random >> 33) % u64::from(bound.max(1))).unwrap_or(0)
    }
}

/// Ends when it is time to stop.
async fn told(stop: &mut watch::Receiver<bool>) {
    // Who could tell is gone only when all is over.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Whether the next try may fare better.
fn is_passing(code: Code) -> bool {
    code.is_retryable() || matches!(code, Code::Deadlock | Code::LeaseLost)
}

pub(in crate::commands) fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(ANY_MICROS, 3).expect("three digits are allowed")
}

pub(in crate::commands) fn record(micros: &mut Histogram<u64>, start: Instant) {
    let took = u64::try_from(start.elapsed().as_micros()).unwrap_or(ANY_MICROS);
    micros.saturating_record(took.min(ANY_MICROS));
}
