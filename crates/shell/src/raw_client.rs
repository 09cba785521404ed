//! Requests one by one, without the SDK's care: each can be told from all others in the journal, so that what was answered
//! can be compared with what became durable.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use leasehold_api::{
    AcquireRequest, BreakRequest, BreakSessionRequest, Grant, KeepAliveRequest, OpenRequest,
    ReleaseRequest, RenewRequest, RequestOutcome,
};
use leasehold_client::{Api, Client, Error, Method};
use leasehold_sim::rng::{Purpose, Rng};

use crate::clock;
use crate::judge::Judge;
use crate::plan::Plan;

/// Owners of requests by hand begin with this.
pub(crate) const OWNER: &str = "hand-";
/// No ttl is shorter. Each that is asked for is another one.
const TTL_MS_LEAST: u64 = 1000;
const CLIENTS_MAX: u64 = 8;

/// Something that one request was for, and no other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Done {
    /// A lease of that many milliseconds: opened, or made so long.
    Ttl(u64),
    /// The lease that was opened with that ttl was ended by its holder.
    Ended(u64),
    /// The lease that was opened with that ttl lapsed.
    Lapsed(u64),
    Accepted(String),
    /// An operator's reason.
    Revoked(String),
    FileRemoved(u64),
}

pub(crate) struct RawClient {
    client: Client,
    number: u64,
    asked: u64,
    rng: Rng,
    judge: Rc<RefCell<Judge>>,
}

impl RawClient {
    pub(crate) fn new(
        plan: &Plan,
        client: Client,
        number: usize,
        judge: Rc<RefCell<Judge>>,
    ) -> RawClient {
        let number = number as u64;
        let rng = Rng::new(plan.seed, Purpose::Client, number, 1 << 32);
        RawClient { client, number, asked: 0, rng, judge }
    }

    pub(crate) async fn run(mut self, until: Duration) {
        while clock::elapsed() < until {
            let pause = Duration::from_millis(self.rng.spread(20, 900));
            tokio::time::sleep(pause).await;
            let api = self.client.clone();
            let api = api.api();
            match self.rng.below(5) {
                0 | 1 => self.lock(api).await,
                2 => self.session(api).await,
                3 => self.file(api).await,
                _ => self.simple(api).await,
            }
        }
    }

    /// A number that nobody else has.
    fn next(&mut self) -> u64 {
        self.asked += 1;
        self.number + CLIENTS_MAX * self.asked
    }

    fn ttl(&mut self) -> u64 {
        TTL_MS_LEAST + self.next()
    }

    fn owner(&mut self) -> String {
        format!("{OWNER}{}", self.next())
    }

    fn reason(&mut self) -> String {
        format!("operator {}", self.next())
    }

    /// Notes what was answered.
    fn told<T>(&self, done: Done, answer: Result<T, Error>) -> Option<T> {
        let happened = match &answer {
            Ok(_) => RequestOutcome::Applied,
            Err(error) => error.outcome(),
        };
        let mut judge = self.judge.borrow_mut();
        if let Err(error) = &answer {
            judge.say(format_args!("{done:?} {happened:?}: {error}"));
        }
        judge.told(done, happened);
        answer.ok()
    }

    async fn acquire(&mut self, api: Api<'_>, lock: &str) -> Option<(Grant, u64)> {
        let (owner_id, ttl) = (self.owner(), self.ttl());
        let request = AcquireRequest { owner_id, ttl_ms: Some(ttl), ..AcquireRequest::default() };
        let grant = self.told(Done::Ttl(ttl), api.acquire(lock, &request).await)?;
        Some((grant, ttl))
    }

    async fn lock(&mut self, api: Api<'_>) {
        let lock = format!("by-hand/{}", self.number);
        let Some((grant, opened_with)) = self.acquire(api, &lock).await else { return };
        if self.rng.percent(60) {
            let ttl = self.ttl();
            let Grant { owner_id, lease_id, fencing_token, .. } = grant.clone();
            let request = RenewRequest { owner_id, lease_id, fencing_token, ttl_ms: Some(ttl) };
            self.told(Done::Ttl(ttl), api.renew(&lock, &request).await);
        }
        if self.rng.percent(50) {
            let register = format!("register-{}", self.next());
            let accepted = api.accept_fence(&register, grant.fencing_token).await;
            self.told(Done::Accepted(register), accepted);
        }
        if self.rng.percent(30) {
            let reason = self.reason();
            let request = BreakRequest { reason: reason.clone(), fencing_token: None };
            match api.break_lock(&lock, &request).await {
                Ok(broken) if broken.broken == 0 => {}
                answer => _ = self.told(Done::Revoked(reason), answer),
            }
            return;
        }
        let Grant { owner_id, lease_id, fencing_token, .. } = grant;
        let request = ReleaseRequest { owner_id, lease_id, fencing_token };
        self.told(Done::Ended(opened_with), api.release(&lock, &request).await);
    }

    async fn session(&mut self, api: Api<'_>) {
        let (owner_id, ttl) = (self.owner(), self.ttl());
        let request = OpenRequest { owner_id, ttl_ms: ttl, ..OpenRequest::default() };
        let Some(opened) = self.told(Done::Ttl(ttl), api.open_session(&request).await) else {
            return;
        };
        if self.rng.percent(60) {
            let longer = self.ttl();
            let request = KeepAliveRequest { ttl_ms: Some(longer) };
            self.told(Done::Ttl(longer), api.keep_alive(&opened.session_id, &request).await);
        }
        if self.rng.percent(40) {
            let reason = self.reason();
            let request = BreakSessionRequest { reason: reason.clone() };
            let answer = api.break_session(opened.session, &request).await;
            self.told(Done::Revoked(reason), answer);
        } else {
            self.told(Done::Ended(ttl), api.close_session(&opened.session_id).await);
        }
    }

    async fn file(&mut self, api: Api<'_>) {
        let inode = self.next();
        if self.acquire(api, &format!("inode:{inode}@0..10")).await.is_none() {
            return;
        }
        match api.remove_inode(inode).await {
            Ok(removed) if removed.released == 0 => {}
            answer => _ = self.told(Done::FileRemoved(inode), answer),
        }
    }

    /// The simple lock, which is one for all.
    async fn simple(&mut self, api: Api<'_>) {
        let client = format!("{OWNER}simple-{}", self.number);
        let ttl = self.ttl();
        let path = format!("/lock?client={client}&ttl={ttl}ms");
        let taken = api.raw(Method::POST, &path, None).await;
        if self.told(Done::Ttl(ttl), taken).is_some() && self.rng.percent(70) {
            let path = format!("/lock?client={client}");
            // Its end is judged by the next who gets it.
            drop(api.raw(Method::DELETE, &path, None).await);
        }
    }
}
