//! A client at work while servers come and go: takes locks, keeps some of them alive, gives some back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_api::Code;

use crate::client::{Ask, Client, Lease, NoAnswer, Outcome};
use crate::history::{Mode, Recorder};
use crate::random::Random;

/// Many: what was granted to a request without an answer stays held until its lease ends.
const LOCKS: u64 = 60;
/// A server that stands still is left for another one after this.
const PATIENCE: Duration = Duration::from_secs(2);

/// One client, and what it holds.
#[derive(Debug)]
pub struct Worker {
    client: Client,
    addresses: Vec<SocketAddr>,
    /// Where it goes now.
    at: usize,
    ttls: [Duration; 2],
    random: Random,
    held: Vec<Held>,
    work: Work,
}

/// What a worker has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    /// How often a grant was there again after a server had gone.
    pub kept: usize,
    /// How often a server could not serve for the moment.
    pub refused: usize,
    /// Whether the last thing it asked for was answered.
    pub served: bool,
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    /// The server may have gone since the lease was last seen there.
    is_in_doubt: bool,
}

impl Worker {
    pub fn new(
        addresses: Vec<SocketAddr>,
        id: u32,
        ttls: [Duration; 2],
        recorder: &Recorder,
    ) -> Worker {
        let at = id as usize % addresses.len();
        let mut client = Client::new(addresses[at], id, recorder);
        if addresses.len() > 1 {
            client = client.impatient(PATIENCE);
        }
        let random = Random::new(crate::seed(u64::from(id)));
        let (held, work) = (Vec::new(), Work::default());
        Worker { client, addresses, at, ttls, random, held, work }
    }

    pub async fn run(mut self, is_over: Arc<AtomicBool>) -> Work {
        while !is_over.load(Ordering::Relaxed) {
            let reached = match self.random.below(100) {
                0..40 => self.acquire().await,
                40..85 => self.renew().await,
                _ => self.release().await,
            };
            self.work.served = reached;
            if !reached {
                self.held.iter_mut().for_each(|held| held.is_in_doubt = true);
                self.turn();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        self.work
    }

    fn turn(&mut self) {
        if self.addresses.len() > 1 {
            self.at = (self.at + 1) % self.addresses.len();
            self.client.turn_to(self.addresses[self.at]);
        }
    }

    /// Whether a server answered, and not only that it cannot.
    fn reached<T>(&mut self, outcome: &Outcome<T>) -> bool {
        match outcome {
            Outcome::Done(_) => true,
            Outcome::NoAnswer(_) => false,
            Outcome::Refused(problem) => {
                let cannot = matches!(
                    problem.code,
                    Code::NotLeader | Code::StoreUnavailable | Code::Draining | Code::Interrupted
                );
                self.work.refused += usize::from(cannot);
                !cannot
            }
        }
    }

    async fn acquire(&mut self) -> bool {
        if self.held.len() > 3 {
            return self.renew().await;
        }
        let lock = u32::try_from(self.random.below(LOCKS)).expect("there are few locks");
        if self.held.iter().any(|held| held.lease.lock == lock) {
            return true;
        }
        let mode = if self.random.chance(20) { Mode::Shared } else { Mode::Exclusive };
        let ttl = self.ttls[usize::from(self.random.chance(60))];
        let wait = if self.random.chance(30) { Duration::from_millis(30) } else { Duration::ZERO };
        let outcome = self.client.acquire(lock, Ask { mode, ttl, wait }).await;
        let reached = self.reached(&outcome);
        if let Outcome::Done(lease) = outcome {
            self.held.push(Held { lease, is_in_doubt: false });
        }
        reached
    }

    async fn renew(&mut self) -> bool {
        let in_doubt = self.held.iter().position(|held| held.is_in_doubt);
        let Some(at) = in_doubt.or_else(|| self.choose()) else { return true };
        let outcome = self.client.renew(&mut self.held[at].lease).await;
        let reached = self.reached(&outcome);
        match outcome {
            Outcome::Done(()) => {
                let was_in_doubt = std::mem::take(&mut self.held[at].is_in_doubt);
                self.work.kept += usize::from(was_in_doubt);
            }
            // Whether it was lost too early is for the judge to say.
            Outcome::Refused(_) if reached => {
                self.held.swap_remove(at);
            }
            Outcome::Refused(_) | Outcome::NoAnswer(_) => {}
        }
        reached
    }

    async fn release(&mut self) -> bool {
        let Some(at) = self.choose() else { return true };
        let outcome = self.client.release(&self.held[at].lease).await;
        let reached = self.reached(&outcome);
        if reached || matches!(outcome, Outcome::NoAnswer(NoAnswer::Unknown)) {
            self.held.swap_remove(at);
        }
        reached
    }

    fn choose(&mut self) -> Option<usize> {
        let len = u64::try_from(self.held.len()).expect("it holds few");
        (len > 0).then(|| usize::try_from(self.random.below(len)).expect("it holds few"))
    }
}
