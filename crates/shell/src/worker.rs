//! A thread of control that takes locks through the SDK, works while it holds them, and gives them back.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use leasehold_api::{Mode as WireMode, RequestOutcome};
use leasehold_client::{Change, Client, Error, Lease, LeaseHandle, LockRequest, LostBy, Session};
use leasehold_judge::history::{Kept, LockIndex, Mode};
use leasehold_sim::rng::{Purpose, Rng};

use crate::clock;
use crate::judge::{Holding, Judge, NotGranted};
use crate::plan::Plan;

/// How often a holder writes to what its lock guards.
const WRITE_EVERY: Duration = Duration::from_millis(170);

pub(crate) struct Worker {
    client: Client,
    client_number: usize,
    name: String,
    asked: u64,
    locks: u64,
    ttl: Duration,
    rng: Rng,
    judge: Rc<RefCell<Judge>>,
}

/// What a worker asks for.
struct Wish {
    owner: String,
    locks: Vec<LockIndex>,
    mode: Mode,
    ttl: Duration,
    wait: Duration,
}

pub(crate) fn lock_name(lock: LockIndex) -> String {
    format!("job/{lock}")
}

impl Worker {
    pub(crate) fn new(
        plan: &Plan,
        client: Client,
        (client_number, number): (usize, usize),
        judge: Rc<RefCell<Judge>>,
    ) -> Worker {
        let (one, two) = (client_number as u64, number as u64);
        Worker {
            client,
            client_number,
            name: format!("c{client_number}w{number}"),
            asked: 0,
            locks: plan.locks,
            ttl: plan.ttl,
            rng: Rng::new(plan.seed, Purpose::Client, one, two),
            judge,
        }
    }

    pub(crate) async fn run(mut self, until: Duration) {
        while clock::elapsed() < until {
            let pause = Duration::from_millis(self.rng.spread(5, 800));
            tokio::time::sleep(pause).await;
            match self.rng.below(100) {
                0..80 => self.take_and_work().await,
                _ => self.work_in_session().await,
            }
        }
    }

    fn wish(&mut self, locks_max: u64) -> Wish {
        self.asked += 1;
        let count = if self.rng.percent(15) { locks_max.min(self.locks) } else { 1 };
        let first = self.rng.below(self.locks);
        let lock = |at: u64| u32::try_from((first + at) % self.locks).unwrap_or(0);
        let wait = match self.rng.below(100) {
            0..40 => Duration::ZERO,
            _ => Duration::from_millis(self.rng.spread(50, 6000)),
        };
        Wish {
            owner: format!("{}-{}", self.name, self.asked),
            locks: (0..count).map(lock).collect(),
            mode: if self.rng.percent(20) { Mode::Shared } else { Mode::Exclusive },
            ttl: self.ttl * u32::try_from(self.rng.between(2, 6)).unwrap_or(4) / 4,
            wait,
        }
    }

    async fn take_and_work(&mut self) {
        let wish = self.wish(2);
        let names: Vec<String> = wish.locks.iter().map(|&lock| lock_name(lock)).collect();
        let request = match &names[..] {
            [name] => self.client.lock(name),
            names => self.client.set(names.iter().map(String::as_str)),
        };
        let request = request.owner(&wish.owner).ttl(wish.ttl);
        if let Some(lease) = self.acquire(request, &wish).await {
            let since = clock::elapsed();
            self.work(&wish, &lease).await;
            self.let_go(&wish, lease, since).await;
        }
    }

    async fn acquire(&mut self, request: LockRequest, wish: &Wish) -> Option<Lease> {
        let wire = match wish.mode {
            Mode::Exclusive => WireMode::Exclusive,
            Mode::Shared => WireMode::Shared,
        };
        let request = request.mode(wire).wait(wish.wait);
        // Now and then somebody goes away before its answer has come.
        let patience = match self.rng.below(100) {
            0..8 => Duration::from_millis(self.rng.spread(5, 3000)),
            _ => Duration::from_secs(3600),
        };
        let invoked = clock::elapsed();
        let what = format_args!(
            "{} asks for {:?} {:?}, waits {:?}",
            wish.owner, wish.locks, wish.mode, wish.wait
        );
        self.judge.borrow_mut().say(what);
        let answer = tokio::time::timeout(patience, request.acquire()).await;
        let why = match answer {
            Ok(Ok(lease)) => {
                self.granted(wish, &lease, invoked);
                return Some(lease);
            }
            Ok(Err(error)) => why(&error),
            Err(_) => NotGranted::Unknown("its caller has gone".into()),
        };
        let when = (invoked, !wish.wait.is_zero());
        let asked = (wish.owner.as_str(), &wish.locks[..]);
        let mut judge = self.judge.borrow_mut();
        judge.not_granted(self.client_number, asked, when, (wish.mode, wish.ttl), &why);
        None
    }

    /// Asks for a lock when the faults are over, and gives it back.
    pub(crate) async fn has_to_be_served(&mut self, lock: LockIndex, within: Duration) {
        let owner = format!("c{}-last-{lock}", self.client_number);
        let (locks, mode, ttl) = (vec![lock], Mode::Exclusive, self.ttl);
        let wish = Wish { owner, locks, mode, ttl, wait: within };
        let request = self.client.lock(&lock_name(lock)).owner(&wish.owner).ttl(ttl).wait(within);
        let invoked = clock::elapsed();
        match request.acquire().await {
            Ok(lease) => {
                self.granted(&wish, &lease, invoked);
                let (since, token) = (clock::elapsed(), lease.fencing_token());
                self.judge.borrow_mut().lets_go(&wish.owner);
                let outcome = kept(&lease.release().await);
                self.released(&wish, token, (since, since), outcome);
            }
            Err(error) => {
                let what = format!("{} is not served after the faults: {error}", wish.owner);
                self.judge.borrow_mut().broken(what);
            }
        }
    }

    fn granted(&self, wish: &Wish, lease: &Lease, invoked: Duration) {
        let holding = Holding {
            owner: wish.owner.clone(),
            locks: wish.locks.clone(),
            mode: wish.mode,
            handle: lease.handle().clone(),
        };
        let mut judge = self.judge.borrow_mut();
        judge.granted(self.client_number, invoked, !wish.wait.is_zero(), holding);
    }

    /// Works until it is done or has to stop.
    async fn work(&mut self, wish: &Wish, lease: &LeaseHandle) {
        let length = Duration::from_millis(self.rng.spread(5, 4000)).min(wish.ttl * 3);
        let mut done = std::pin::pin!(tokio::time::sleep(length));
        let mut changes = lease.changes();
        loop {
            if lease.is_valid() && wish.mode == Mode::Exclusive {
                let mut judge = self.judge.borrow_mut();
                for &lock in &wish.locks {
                    judge.write(lock, lease.fencing_token(), &wish.owner);
                }
            }
            tokio::select! {
                biased;
                change = changes.next() => match change {
                    Change::Renewed(window) => {
                        let sent = Duration::from_nanos(window.since().as_nanos());
                        let what = (&wish.locks[..], lease.fencing_token());
                        let mut judge = self.judge.borrow_mut();
                        judge.renewed(self.client_number, what, (sent, window.ttl()));
                    }
                    Change::Jeopardy => return,
                    Change::Lost(by) => {
                        return self.judge.borrow_mut().lost(&wish.owner, lease, &by.to_string());
                    }
                },
                () = &mut done => return,
                () = tokio::time::sleep(WRITE_EVERY) => {}
            }
        }
    }

    /// Gives back what it has held since then, or just drops it.
    async fn let_go(&mut self, wish: &Wish, lease: Lease, since: Duration) {
        let token = lease.fencing_token();
        self.judge.borrow_mut().lets_go(&wish.owner);
        let invoked = clock::elapsed();
        let outcome = if self.rng.percent(80) {
            kept(&lease.release().await)
        } else {
            drop(lease);
            Kept::Unknown
        };
        self.released(wish, token, (invoked, since), outcome);
    }

    fn released(&self, wish: &Wish, token: u64, when: (Duration, Duration), outcome: Kept) {
        let what = (&wish.locks[..], token);
        let mut judge = self.judge.borrow_mut();
        judge.released(self.client_number, what, when, wish.ttl, outcome);
    }

    async fn work_in_session(&mut self) {
        self.asked += 1;
        let owner = format!("{}-{}", self.name, self.asked);
        let ttl = self.ttl;
        let session = match self.client.session().owner(&owner).ttl(ttl).open().await {
            Ok(session) => session,
            Err(error) => {
                if error.outcome() == RequestOutcome::NotApplied {
                    self.judge.borrow_mut().session_not_opened(&owner);
                }
                return;
            }
        };
        let wish = Wish { owner, ttl, ..self.wish(1) };
        let request = session.lock(&lock_name(wish.locks[0]));
        let Some(lease) = self.acquire(request, &wish).await else {
            let _ = session.close().await;
            return;
        };
        let since = clock::elapsed();
        self.work(&wish, &lease).await;
        if self.rng.percent(50) {
            self.let_go(&wish, lease, since).await;
            let _ = session.close().await;
            return;
        }
        self.judge.borrow_mut().lets_go(&wish.owner);
        let (token, invoked) = (lease.fencing_token(), clock::elapsed());
        let outcome = close(session).await;
        drop(lease);
        self.released(&wish, token, (invoked, since), outcome);
    }
}

async fn close(session: Session) -> Kept {
    kept(&session.close().await)
}

/// A release that had to be sent again may be told that there is nothing left, because the first one did it.
fn kept(released: &Result<(), Error>) -> Kept {
    match released {
        Ok(()) => Kept::Done,
        Err(Error::LeaseLost {
            by: LostBy::Server { .. },
            outcome: RequestOutcome::NotApplied,
        }) => Kept::Lost,
        Err(_) => Kept::Unknown,
    }
}

fn why(error: &Error) -> NotGranted {
    let said = error.to_string();
    match (error, error.outcome()) {
        (_, RequestOutcome::NotApplied) if error.is_held() => NotGranted::Held,
        (_, RequestOutcome::NotApplied) => NotGranted::NotApplied(said),
        (_, RequestOutcome::Applied | RequestOutcome::Unknown) => NotGranted::Unknown(said),
    }
}
