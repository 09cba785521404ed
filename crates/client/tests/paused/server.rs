//! A server made of a few lines at the other end of a pipe, for tests on paused time.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes as Body, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use leasehold_client::machine::Moment;
use leasehold_client::wire::{Code, Problem};
use leasehold_client::{
    Bytes, Client, Clock, Connecting, Lease, Place, Sleep, Stall, Surroundings, Task, Transport,
};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

pub(crate) const TTL: Duration = Duration::from_secs(30);

pub(crate) const ANSWERS: u8 = 0;
/// The one lease id that is ever given out.
pub(crate) const LEASE_ID: &str = "0123-geheim";

/// It takes requests and never answers.
pub(crate) const SILENT: u8 = 1;
/// It knows no lease.
pub(crate) const FORGETFUL: u8 = 2;

/// A server that grants whatever it is asked for, at the other end of a pipe.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    mood: Arc<AtomicU8>,
    started: Instant,
    /// Stops what runs on the caller's runtime.
    pub(crate) stall: Stall,
    /// What runs there.
    tasks: Arc<Mutex<Vec<AbortHandle>>>,
    connections: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn start() -> Server {
        Server {
            mood: Arc::default(),
            started: Instant::now(),
            stall: Stall::default(),
            tasks: Arc::default(),
            connections: Arc::default(),
            asked: Arc::default(),
        }
    }

    /// How many connections were made.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// How many requests came whose path ends like that.
    pub(crate) fn asked(&self, end: &str) -> usize {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().filter(|path| path.ends_with(end)).count()
    }

    /// Drops the caller's runtime, as far as the client can see.
    pub(crate) fn drop_runtime(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.drain(..).for_each(|task| task.abort());
    }

    /// How many parts of clients are still there, beside those of the test.
    pub(crate) fn users(&self) -> usize {
        Arc::strong_count(&self.mood) - 1
    }

    pub(crate) fn is_now(&self, mood: u8) {
        self.mood.store(mood, Ordering::Relaxed);
    }

    pub(crate) async fn client(&self) -> Client {
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
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
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
        "lock": path, "owner_id": asked["owner_id"], "lease_id": LEASE_ID, "session_id": LEASE_ID,
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
        Box::pin(sleep_until(self.started + at.since(Moment::ZERO)))
    }
}

impl Surroundings for Server {
    fn connect(&self, _: &str) -> Connecting {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        self.connections.fetch_add(1, Ordering::Relaxed);
        let server = self.clone();
        let service = hyper::service::service_fn(move |asked| server.clone().answer(asked));
        let serving = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(ours), service);
        drop(tokio::spawn(serving));
        Box::pin(async move { Ok(Box::new(theirs) as Box<dyn Bytes>) })
    }

    fn run(&self, guard: Task) -> io::Result<Handle> {
        drop(tokio::spawn(guard));
        Ok(Handle::current())
    }

    fn spawn(&self, place: Place, task: Task) -> AbortHandle {
        if place == Place::Guard {
            return tokio::spawn(task).abort_handle();
        }
        let task = tokio::spawn(self.stall.clone().stop(task)).abort_handle();
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push(task.clone());
        task
    }
}

pub(crate) async fn held(client: &Client, lock: &str) -> Lease {
    client.lock(lock).ttl(TTL).acquire().await.unwrap()
}
