//! The cancellation token of a lease: work that was given one stops in time. On paused time, with a server made of a few lines.
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes as Body, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use leasehold_client::machine::Moment;
use leasehold_client::wire::{Code, Problem};
use leasehold_client::{
    Bytes, Client, Clock, Connecting, Driving, Lease, Sleep, State, Surroundings, Transport,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

const TTL: Duration = Duration::from_secs(30);

const ANSWERS: u8 = 0;
/// It takes requests and never answers.
const SILENT: u8 = 1;
/// It knows no lease.
const FORGETFUL: u8 = 2;

/// A server that grants whatever it is asked for, at the other end of a pipe.
#[derive(Clone, Debug)]
struct Server {
    mood: Arc<AtomicU8>,
    started: Instant,
}

impl Server {
    fn start() -> Server {
        Server { mood: Arc::default(), started: Instant::now() }
    }

    fn is_now(&self, mood: u8) {
        self.mood.store(mood, Ordering::Relaxed);
    }

    async fn client(&self) -> Client {
        Client::builder("http://paused:1")
            .transport(Transport::Http)
            .clock(Arc::new(self.clone()))
            .surroundings(Arc::new(self.clone()))
            .connect()
            .await
            .unwrap()
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Body>>, Infallible> {
        let path = request.uri().path().to_string();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (status, said) = match self.mood.load(Ordering::Relaxed) {
            ANSWERS => (200, granted(&path, &asked)),
            SILENT => std::future::pending().await,
            _ => (409, json!(Problem::new(Code::LeaseLost, "no such lease"))),
        };
        let response = Response::builder().status(status).body(said.to_string().into());
        Ok(response.unwrap())
    }
}

/// Everything that an acquire, a renewal, a session or a release may be answered with.
fn granted(path: &str, asked: &Value) -> Value {
    let ttl = u64::try_from(TTL.as_millis()).unwrap();
    json!({
        "lock": path, "owner_id": asked["owner_id"], "lease_id": "lease", "session_id": "lease",
        "session": 1, "adapter": "http", "fencing_token": 7, "mode": "exclusive", "ttl_ms": ttl,
        "expires_in_ms": ttl, "lease_expiry_ms": ttl, "expires_at": "", "acquired_at": "",
        "waited_ms": 0, "replayed": false, "released": true, "epoch": 1,
    })
}

impl Clock for Server {
    fn now(&self) -> Moment {
        Moment::ZERO.plus(self.started.elapsed())
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        Box::pin(sleep(at.since(self.now())))
    }
}

impl Surroundings for Server {
    fn connect(&self, _: &str) -> Connecting {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let server = self.clone();
        let service = hyper::service::service_fn(move |asked| server.clone().answer(asked));
        let serving = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(ours), service);
        drop(tokio::spawn(serving));
        Box::pin(async move { Ok(Box::new(theirs) as Box<dyn Bytes>) })
    }

    fn run(&self, driving: Driving) -> io::Result<()> {
        drop(tokio::spawn(driving));
        Ok(())
    }
}

async fn held(client: &Client, lock: &str) -> Lease {
    client.lock(lock).ttl(TTL).acquire().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn it_fires_half_of_a_ttl_after_the_last_renewal_that_was_confirmed() {
    let server = Server::start();
    let lease = held(&server.client().await, "a").await;
    let stop = lease.cancellation_token();
    sleep(TTL * 10).await;
    assert!(!stop.is_cancelled(), "the heartbeats keep it");
    server.is_now(SILENT);
    let since = lease.standing().since();
    stop.cancelled().await;
    assert_eq!(lease.state(), State::Jeopardy);
    let after = server.now().since(since);
    let late = after.checked_sub(TTL / 2).expect("the work is not stopped too early");
    assert!(late <= Duration::from_millis(2), "{late:?} too late");
}

#[tokio::test(start_paused = true)]
async fn it_fires_for_everything_under_a_session() {
    let server = Server::start();
    let client = server.client().await;
    let session = client.session().ttl(TTL).open().await.unwrap();
    let (one, two) = (session.lock("a").acquire().await.unwrap(), session.lock("b").acquire());
    let two = two.await.unwrap();
    let tokens = [session.cancellation_token(), one.cancellation_token(), two.cancellation_token()];
    server.is_now(SILENT);
    tokens[0].cancelled().await;
    let limit = Duration::from_millis(1);
    for token in tokens {
        timeout(limit, token.cancelled()).await.expect("it stands under the session");
    }
}

#[tokio::test(start_paused = true)]
async fn it_fires_at_once_when_the_server_says_that_the_lease_is_over() {
    let server = Server::start();
    let lease = held(&server.client().await, "a").await;
    let stop = lease.cancellation_token();
    server.is_now(FORGETFUL);
    let before = Instant::now();
    stop.cancelled().await;
    assert_eq!(lease.state(), State::Lost);
    assert!(before.elapsed() <= TTL / 3 + Duration::from_millis(2), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn it_fires_when_the_lease_is_given_back() {
    let server = Server::start();
    let client = server.client().await;
    let lease = held(&client, "a").await;
    let stop = lease.cancellation_token();
    lease.release().await.unwrap();
    assert!(stop.is_cancelled());
    let dropped = held(&client, "b").await;
    let stop = dropped.cancellation_token();
    assert!(!stop.is_cancelled());
    drop(dropped);
    assert!(stop.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn one_that_is_asked_for_too_late_has_fired() {
    let server = Server::start();
    let lease = held(&server.client().await, "a").await;
    server.is_now(SILENT);
    lease.jeopardy().await;
    assert!(lease.cancellation_token().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn cancelling_it_stops_nobody_else() {
    let server = Server::start();
    let lease = held(&server.client().await, "a").await;
    let (mine, theirs) = (lease.cancellation_token(), lease.cancellation_token());
    mine.cancel();
    assert!(mine.is_cancelled() && !theirs.is_cancelled() && lease.is_valid());
    server.is_now(SILENT);
    theirs.cancelled().await;
}
