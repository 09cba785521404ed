//! A client that remembers everything it did.
//!
//! It never repeats a request: what came of one without an answer is not known, and that is what the history then says.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, anyhow};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request, header};
use hyper_util::rt::TokioIo;
use leasehold_api::{
    AcquireRequest, Code, Grant, Lock, Problem, ReleaseRequest, Released, RenewRequest,
    RequestOutcome,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;

use crate::history::{Acquired, Event, Kept, LockIndex, Mode, Moment, Operation, Recorder, Token};

/// Longer than any request of ours may take beyond its wait.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One connection, opened when it is needed.
#[derive(Debug)]
pub struct Http {
    address: SocketAddr,
    accept: Option<&'static str>,
    asks_itself: bool,
    connection: Option<SendRequest<Full<Bytes>>>,
    answer_timeout: Duration,
}

#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Bytes,
}

/// No answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    #[error("the request was not sent")]
    Unsent,
    #[error("nobody knows whether the request was carried out")]
    Unknown,
}

impl Answer {
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.body)
            .map_err(|error| anyhow!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }
}

impl Http {
    pub fn new(address: SocketAddr) -> Http {
        Http {
            address,
            accept: None,
            asks_itself: false,
            connection: None,
            answer_timeout: ANSWER_TIMEOUT,
        }
    }

    /// Gives up sooner: for servers that stand still now and then.
    #[must_use]
    pub fn impatient(self, answer_timeout: Duration) -> Http {
        Http { answer_timeout, ..self }
    }

    /// Asks that server and no other: what it cannot answer itself it does not forward.
    #[must_use]
    pub fn asking_itself(self) -> Http {
        Http { asks_itself: true, ..self }
    }

    /// Asks for answers of this type.
    #[must_use]
    pub fn accepting(self, accept: &'static str) -> Http {
        Http { accept: Some(accept), ..self }
    }

    pub async fn get(&mut self, path: &str) -> Result<Answer, NoAnswer> {
        self.connect().await?;
        self.send(Method::GET, path, Bytes::new(), Duration::ZERO).await
    }

    pub async fn post(&mut self, path: &str, body: &impl Serialize) -> Result<Answer, NoAnswer> {
        self.connect().await?;
        self.send(Method::POST, path, json(body), Duration::ZERO).await
    }

    /// A request without a body.
    pub async fn ask(&mut self, method: Method, path: &str) -> Result<Answer, NoAnswer> {
        self.connect().await?;
        self.send(method, path, Bytes::new(), Duration::ZERO).await
    }

    /// Makes sure that there is a connection.
    pub async fn connect(&mut self) -> Result<(), NoAnswer> {
        if self.connection.as_ref().is_some_and(|connection| !connection.is_closed()) {
            return Ok(());
        }
        self.connection = None;
        let connecting = TcpStream::connect(self.address);
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        let stream = connected.map_err(|_| NoAnswer::Unsent)?.map_err(|_| NoAnswer::Unsent)?;
        let _ = stream.set_nodelay(true);
        let shaken = handshake(TokioIo::new(stream)).await;
        let (sender, connection) = shaken.map_err(|_| NoAnswer::Unsent)?;
        tokio::spawn(connection);
        self.connection = Some(sender);
        Ok(())
    }

    /// Sends on the connection there is, and waits for the answer.
    async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
        wait: Duration,
    ) -> Result<Answer, NoAnswer> {
        let Some(connection) = &mut self.connection else { return Err(NoAnswer::Unsent) };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.address.to_string());
        if let Some(accept) = self.accept {
            request = request.header(header::ACCEPT, accept);
        }
        if self.asks_itself {
            request = request.header("leasehold-forwarded", "1");
        }
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body)).map_err(|_| NoAnswer::Unsent)?;
        let answer = async {
            connection.ready().await?;
            let answer = connection.send_request(request).await?;
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await?.to_bytes();
            Ok::<Answer, hyper::Error>(Answer { status, body })
        };
        match tokio::time::timeout(wait + self.answer_timeout, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) | Err(_) => {
                self.connection = None;
                Err(NoAnswer::Unknown)
            }
        }
    }
}

/// What came of a request.
#[derive(Clone, Debug)]
pub enum Outcome<T> {
    Done(T),
    /// The server said no.
    Refused(Box<Problem>),
    NoAnswer(NoAnswer),
}

impl<T> Outcome<T> {
    /// What was asked for; anything else is an error that says what came instead.
    pub fn done(self) -> Result<T> {
        match self {
            Outcome::Done(done) => Ok(done),
            Outcome::Refused(problem) => {
                Err(anyhow!("refused: {}: {}", problem.code, problem.detail))
            }
            Outcome::NoAnswer(reason) => Err(anyhow!("{reason}")),
        }
    }

    /// The code of the refusal; anything else is an error.
    pub fn refused(self) -> Result<Code> {
        match self {
            Outcome::Done(_) => Err(anyhow!("it was done")),
            Outcome::Refused(problem) => Ok(problem.code),
            Outcome::NoAnswer(reason) => Err(anyhow!("{reason}")),
        }
    }
}

/// A grant of ours.
#[derive(Clone, Debug)]
pub struct Lease {
    pub lock: LockIndex,
    pub token: Token,
    pub lease_id: String,
    pub ttl: Duration,
    /// It cannot end before this: counted from before it was asked for.
    pub stands_until: Moment,
}

/// How a lock is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    pub mode: Mode,
    pub ttl: Duration,
    pub wait: Duration,
}

impl Ask {
    pub fn exclusive(ttl: Duration) -> Ask {
        Ask { mode: Mode::Exclusive, ttl, wait: Duration::ZERO }
    }

    #[must_use]
    pub fn waiting(self, wait: Duration) -> Ask {
        Ask { wait, ..self }
    }
}

/// One owner with a connection of its own.
#[derive(Debug)]
pub struct Client {
    id: u32,
    owner: String,
    http: Http,
    recorder: Recorder,
}

impl Client {
    pub fn new(address: SocketAddr, id: u32, recorder: &Recorder) -> Client {
        let owner = format!("client-{id}");
        Client { id, owner, http: Http::new(address), recorder: recorder.clone() }
    }

    /// Goes to another server from now on.
    pub fn turn_to(&mut self, address: SocketAddr) {
        let answer_timeout = self.http.answer_timeout;
        self.http = Http::new(address).impatient(answer_timeout);
    }

    /// Gives up sooner: for servers that stand still now and then.
    #[must_use]
    pub fn impatient(self, answer_timeout: Duration) -> Client {
        Client { http: self.http.impatient(answer_timeout), ..self }
    }

    /// Asks its server and no other.
    #[must_use]
    pub fn asking_itself(self) -> Client {
        Client { http: self.http.asking_itself(), ..self }
    }

    pub fn id(&self) -> u32 {
        self.id
    }

    pub async fn acquire(&mut self, lock: LockIndex, ask: Ask) -> Outcome<Lease> {
        let body = AcquireRequest {
            owner_id: self.owner.clone(),
            ttl_ms: Some(millis(ask.ttl)),
            wait_ms: millis(ask.wait),
            mode: Some(match ask.mode {
                Mode::Exclusive => leasehold_api::Mode::Exclusive,
                Mode::Shared => leasehold_api::Mode::Shared,
            }),
            ..AcquireRequest::default()
        };
        let (invoked, outcome) = self.call::<Grant>(lock, "acquire", &body, ask.wait).await;
        let acquired = match &outcome {
            Outcome::Done(grant) => Some(Acquired::Granted(grant.fencing_token)),
            Outcome::Refused(problem) if is_in_the_way(problem.code) => Some(Acquired::Refused),
            Outcome::Refused(problem) => is_unknown(problem).then_some(Acquired::Unknown),
            Outcome::NoAnswer(reason) => {
                (*reason == NoAnswer::Unknown).then_some(Acquired::Unknown)
            }
        };
        let (mode, ttl, waited) = (ask.mode, ask.ttl, !ask.wait.is_zero());
        if let Some(outcome) = acquired {
            let is_known = outcome != Acquired::Unknown;
            self.record(lock, invoked, is_known, Event::Acquire { mode, ttl, waited, outcome });
        } else if waited && matches!(outcome, Outcome::Refused(_)) {
            // The server could not serve it in the end, but until then it may have stood in line, and in others' way.
            let (ttl, outcome) = (Duration::ZERO, Acquired::Unknown);
            self.record(lock, invoked, true, Event::Acquire { mode, ttl, waited, outcome });
        }
        outcome.map(|grant| Lease {
            lock,
            token: grant.fencing_token,
            lease_id: grant.lease_id,
            ttl: ask.ttl,
            stands_until: invoked + ask.ttl,
        })
    }

    /// Renews; a lease that was renewed stands longer.
    pub async fn renew(&mut self, lease: &mut Lease) -> Outcome<()> {
        let body = RenewRequest {
            owner_id: self.owner.clone(),
            lease_id: lease.lease_id.clone(),
            fencing_token: lease.token,
            ttl_ms: None,
        };
        let (invoked, outcome) =
            self.call::<serde::de::IgnoredAny>(lease.lock, "renew", &body, Duration::ZERO).await;
        if let Some(outcome) = kept(&outcome) {
            let event = Event::Renew { token: lease.token, ttl: lease.ttl, outcome };
            self.record(lease.lock, invoked, outcome != Kept::Unknown, event);
        }
        if matches!(outcome, Outcome::Done(_)) {
            lease.stands_until = invoked + lease.ttl;
        }
        outcome.map(|_| ())
    }

    pub async fn release(&mut self, lease: &Lease) -> Outcome<()> {
        let body = ReleaseRequest {
            owner_id: self.owner.clone(),
            lease_id: lease.lease_id.clone(),
            fencing_token: lease.token,
        };
        let (invoked, outcome) =
            self.call::<Released>(lease.lock, "release", &body, Duration::ZERO).await;
        // An answer to an earlier release that had none says nothing of this moment.
        let is_replayed = matches!(&outcome, Outcome::Done(released) if released.replayed);
        let kept = if is_replayed { Some(Kept::Unknown) } else { kept(&outcome) };
        if let Some(outcome) = kept {
            let event = Event::Release { token: lease.token, outcome };
            self.record(lease.lock, invoked, outcome != Kept::Unknown, event);
        }
        outcome.map(|_| ())
    }

    /// The lock as the server shows it.
    pub async fn look(&mut self, lock: LockIndex) -> Result<Lock> {
        let answer = self.http.get(&format!("/v1/locks/{}", lock_name(lock))).await?;
        answer.json()
    }

    /// When the request was sent, and what came of it.
    async fn call<T: DeserializeOwned>(
        &mut self,
        lock: LockIndex,
        verb: &str,
        body: &impl Serialize,
        wait: Duration,
    ) -> (Moment, Outcome<T>) {
        let path = format!("/v1/locks/{}/{verb}", lock_name(lock));
        let connected = self.http.connect().await;
        let invoked = self.recorder.now();
        if let Err(reason) = connected {
            return (invoked, Outcome::NoAnswer(reason));
        }
        let outcome = match self.http.send(Method::POST, &path, json(body), wait).await {
            Err(reason) => Outcome::NoAnswer(reason),
            Ok(answer) if answer.status == 200 => {
                Outcome::Done(answer.json().expect("an answer is as the contract says"))
            }
            Ok(answer) => Outcome::Refused(Box::new(
                answer.json().expect("a refusal is a problem as the contract says"),
            )),
        };
        (invoked, outcome)
    }

    fn record(&self, lock: LockIndex, invoked: Moment, is_known: bool, event: Event) {
        let returned = if is_known { self.recorder.now() } else { Moment::NEVER };
        self.recorder.record(Operation { client: self.id, lock, invoked, returned, event });
    }
}

impl<T> Outcome<T> {
    fn map<U>(self, map: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Outcome::Done(done) => Outcome::Done(map(done)),
            Outcome::Refused(problem) => Outcome::Refused(problem),
            Outcome::NoAnswer(reason) => Outcome::NoAnswer(reason),
        }
    }
}

pub fn lock_name(lock: LockIndex) -> String {
    format!("e2e/lock-{lock}")
}

/// What nobody got an answer to before the server went down did not happen after that.
pub fn bound_unknown(history: &mut [Operation]) {
    let mut downs: Vec<Moment> = history
        .iter()
        .filter_map(|operation| match operation.event {
            Event::Restart { down } => Some(down),
            Event::Acquire { .. } | Event::Renew { .. } | Event::Release { .. } => None,
        })
        .collect();
    downs.sort_unstable();
    for operation in history.iter_mut().filter(|operation| operation.returned == Moment::NEVER) {
        let next = downs.partition_point(|&down| down < operation.invoked);
        operation.returned = downs.get(next).copied().unwrap_or(Moment::NEVER);
    }
}

/// What nobody got an answer to within `length` did not happen later: by then no server can have it any more.
pub fn bound_unknown_to(history: &mut [Operation], length: Duration) {
    for operation in history.iter_mut().filter(|operation| operation.returned == Moment::NEVER) {
        operation.returned = operation.invoked + length;
    }
}

fn kept<T>(outcome: &Outcome<T>) -> Option<Kept> {
    match outcome {
        Outcome::Done(_) => Some(Kept::Done),
        Outcome::Refused(problem) if is_lost(problem.code) => Some(Kept::Lost),
        Outcome::Refused(problem) => is_unknown(problem).then_some(Kept::Unknown),
        Outcome::NoAnswer(reason) => (*reason == NoAnswer::Unknown).then_some(Kept::Unknown),
    }
}

/// Another holder or waiter; after a restart also one of before it.
fn is_in_the_way(code: Code) -> bool {
    matches!(code, Code::LockHeld | Code::ReclaimWindow | Code::GracePeriod)
}

fn is_lost(code: Code) -> bool {
    matches!(code, Code::LeaseLost | Code::NotHolder)
}

fn is_unknown(problem: &Problem) -> bool {
    problem.outcome == RequestOutcome::Unknown
}

fn json(body: &impl Serialize) -> Bytes {
    serde_json::to_vec(body).expect("a request has no keys that are not text").into()
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}
