//! Lets the harness of all SDKs drive the one for Rust: JSON lines in, JSON lines out. See `sdk/README.md`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use leasehold_client::machine::Moment;
use leasehold_client::wire::{Claim, Code, Cursor, News, RequestOutcome};
use leasehold_client::{
    Change, Client, Clock, Error, HeartbeatInterval, Lease, LeaseHandle, LockRequest, LostBy,
    Method, Retry, Session, Sleep, State, SystemClock, Transport,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::AbortHandle;

/// The clock of the system, which a test can set forward.
#[derive(Clone, Debug, Default)]
struct TestClock {
    ahead: Arc<AtomicU64>,
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        SystemClock.now().plus(Duration::from_nanos(self.ahead.load(Ordering::Relaxed)))
    }

    fn sleep_until(&self, at: Moment) -> Sleep {
        let clock = self.clone();
        Box::pin(async move {
            // In steps, since it may be set forward meanwhile.
            while clock.now() < at {
                let step = Duration::from_millis(50);
                tokio::time::sleep(at.since(clock.now()).min(step)).await;
            }
        })
    }
}

enum Thing {
    Lease(Lease),
    Session(Session),
}

impl Thing {
    fn handle(&self) -> &LeaseHandle {
        match self {
            Thing::Lease(lease) => lease,
            Thing::Session(session) => session,
        }
    }
}

#[derive(Default)]
struct Driver {
    clock: Arc<TestClock>,
    client: Mutex<Option<Client>>,
    things: Mutex<HashMap<String, Thing>>,
    handles: Mutex<HashMap<String, LeaseHandle>>,
    number: AtomicU64,
    transport: Transport,
    /// What follows events.
    followers: Mutex<Vec<AbortHandle>>,
    is_closed: AtomicBool,
}

/// What the harness is told, or why not.
type Answer = Result<Value, Fault>;

enum Fault {
    Sdk(Error),
    Bug(anyhow::Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Sdk(error)
    }
}

impl From<anyhow::Error> for Fault {
    fn from(error: anyhow::Error) -> Fault {
        Fault::Bug(error)
    }
}

fn main() -> Result<()> {
    let is_http = std::env::args().any(|arg| arg == "--http");
    let transport = if is_http { Transport::Http } else { Transport::Stream };
    let driver = Arc::new(Driver { transport, ..Driver::default() });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(serve(driver))
}

async fn serve(driver: Arc<Driver>) -> Result<()> {
    let (lines, mut line) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            if line.is_err() || lines.send(line.unwrap_or_default()).is_err() {
                return;
            }
        }
    });
    let mut under_way: HashMap<u64, AbortHandle> = HashMap::new();
    while let Some(text) = line.recv().await {
        let line: Value = serde_json::from_str(&text)?;
        let id = line["id"].as_u64().context("a request has an id")?;
        if line["op"] == "cancel" {
            let of = line["of"].as_u64().unwrap_or_default();
            if let Some(task) = under_way.remove(&of) {
                task.abort();
                say(&json!({"id": of, "err": {"kind": "cancelled"}}));
            }
            say(&json!({"id": id, "ok": {}}));
            continue;
        }
        let driver = driver.clone();
        let task = tokio::spawn(async move {
            let said = match driver.answer(&line, id).await {
                Ok(ok) => json!({"id": id, "ok": ok}),
                Err(Fault::Sdk(error)) => json!({"id": id, "err": said(&error)}),
                Err(Fault::Bug(error)) => {
                    json!({"id": id, "err": {"kind": "bug", "detail": format!("{error:#}")}})
                }
            };
            say(&said);
        });
        under_way.insert(id, task.abort_handle());
    }
    Ok(())
}

fn say(line: &Value) {
    println!("{line}");
}

fn said(error: &Error) -> Value {
    let kind = match error {
        Error::LeaseLost { .. } => "lease_lost",
        Error::Unreachable { .. } => "unreachable",
        Error::Address(_) | Error::Settings(_) => "usage",
        Error::Closed => "closed",
        Error::Refused(_) => match error.code() {
            Some(Code::LockHeld | Code::ReclaimWindow) => "held",
            Some(Code::Deadlock) => "deadlock",
            Some(Code::StaleFence) => "stale_fence",
            _ => "refused",
        },
    };
    let by = if let Error::LeaseLost { by, .. } = error { Some(lost_by(by)) } else { None };
    let problem = error.problem();
    let holders = problem.and_then(|problem| problem.holders.as_ref());
    let holders = holders.map(|all| all.iter().map(|one| one.owner_id.clone()).collect::<Vec<_>>());
    let cycle = problem.and_then(|problem| problem.cycle.as_ref());
    let cycle = cycle.map(|edges| {
        let edge = |edge: &leasehold_client::wire::WaitEdge| {
            json!([edge.waiter.clone(), edge.lock.clone(), edge.blocker.clone()])
        };
        edges.iter().map(edge).collect::<Vec<_>>()
    });
    json!({
        "kind": kind, "code": error.code(), "outcome": error.outcome(), "by": by, "holders": holders, "cycle": cycle,
        "retry_after_ms": error.recommended_retry().map(|pause| pause.as_secs_f64() * 1000.0),
        "detail": error.to_string(),
    })
}

fn lost_by(by: &LostBy) -> &'static str {
    match by {
        LostBy::Lapse => "lapse",
        LostBy::Server { .. } => "server",
        LostBy::SessionClosed => "session",
        LostBy::Released => "released",
        LostBy::Jeopardy => "jeopardy",
    }
}

fn given_back() -> Error {
    Error::LeaseLost { by: LostBy::Released, outcome: RequestOutcome::NotApplied }
}

fn text<'a>(line: &'a Value, name: &str) -> Result<&'a str> {
    line[name].as_str().with_context(|| format!("{name} is missing"))
}

fn length(line: &Value, name: &str) -> Result<Duration> {
    Ok(Duration::from_millis(line[name].as_u64().with_context(|| format!("{name} is missing"))?))
}

impl Driver {
    fn client(&self) -> Result<Client> {
        self.client.lock().clone().context("connect comes first")
    }

    /// Drops all that it holds: a client ends with the last of its handles.
    async fn close(&self) {
        let client = self.client.lock().take();
        self.is_closed.store(true, Ordering::Relaxed);
        if let Some(client) = client {
            client.close().await;
        }
        for follower in self.followers.lock().drain(..) {
            follower.abort();
        }
        self.things.lock().clear();
        self.handles.lock().clear();
    }

    fn handle(&self, line: &Value) -> Result<LeaseHandle> {
        let name = text(line, "lease")?;
        self.handles.lock().get(name).cloned().with_context(|| format!("there is no lease {name}"))
    }

    fn take(&self, line: &Value) -> Result<Option<Thing>> {
        Ok(self.things.lock().remove(text(line, "lease")?))
    }

    fn held(&self, thing: Thing) -> Value {
        let name = format!("h{}", self.number.fetch_add(1, Ordering::Relaxed) + 1);
        let handle = thing.handle().clone();
        let number = match &thing {
            Thing::Session(session) => Some(session.number()),
            Thing::Lease(_) => None,
        };
        self.things.lock().insert(name.clone(), thing);
        self.handles.lock().insert(name.clone(), handle.clone());
        tokio::spawn(tell_changes(name.clone(), handle.clone()));
        json!({
            "lease": name, "token": handle.fencing_token(), "name": handle.lock(), "number": number,
            "waited_ms": handle.waited().as_secs_f64() * 1000.0, "replayed": handle.is_replayed(),
        })
    }

    fn request(&self, line: &Value) -> Result<LockRequest> {
        let mut request = if let Some(session) = line["session"].as_str() {
            let things = self.things.lock();
            let Some(Thing::Session(session)) = things.get(session) else {
                return Err(anyhow!("there is no session {session}"));
            };
            match line["locks"].as_array() {
                Some(locks) => session.claims(claims(locks)?),
                None => session.lock(text(line, "lock")?),
            }
        } else {
            let client = self.client()?;
            match line["locks"].as_array() {
                Some(locks) => client.claims(claims(locks)?),
                None => client.lock(text(line, "lock")?),
            }
        };
        if let Some(owner) = line["owner"].as_str() {
            request = request.owner(owner);
        }
        if line["ttl_ms"].is_u64() {
            request = request.ttl(length(line, "ttl_ms")?);
        }
        request = match line.get("wait_ms") {
            None => request,
            Some(Value::Null) => request.wait_forever(),
            Some(_) => request.wait(length(line, "wait_ms")?),
        };
        if line["shared"] == true {
            request = request.shared();
        }
        if let Some(permits) = line["permits"].as_u64() {
            request = request.permits(u32::try_from(permits)?);
        }
        if line["heartbeat"] == false {
            request = request.manual_heartbeat();
        }
        Ok(request)
    }

    #[expect(clippy::too_many_lines, reason = "a long flat match")]
    async fn answer(&self, line: &Value, id: u64) -> Answer {
        let op = text(line, "op")?;
        if op == "acquire" && self.is_closed.load(Ordering::Relaxed) {
            return Err(Error::Closed.into());
        }
        match op {
            "features" => {
                let features = ["advance_clock", "keeps_while_blocked", "cancel", "cancels_work"];
                return Ok(json!({"sdk": "rust", "features": features}));
            }
            "connect" => {
                let mut builder = Client::builder(text(line, "servers")?).clock(self.clock.clone());
                builder = builder.transport(self.transport);
                if line["heartbeat"] == "ttl/6" {
                    builder = builder.heartbeat(HeartbeatInterval::Sixth);
                }
                if line["patience_ms"].is_u64() {
                    builder = builder.patience(length(line, "patience_ms")?);
                }
                if let Some(namespace) = line["namespace"].as_str() {
                    builder = builder.namespace(namespace);
                }
                if let Some(token) = line["token"].as_str() {
                    builder = builder.token(token);
                }
                if let Some(file) = line["cacert"].as_str() {
                    let pem = std::fs::read(file).map_err(anyhow::Error::from)?;
                    builder = builder.authorities(&pem);
                }
                *self.client.lock() = Some(builder.start()?);
                self.is_closed.store(false, Ordering::Relaxed);
            }
            "acquire" => {
                let request = self.request(line)?;
                let lease = match line["attempts"].as_u64() {
                    Some(attempts) => {
                        let retry = Retry {
                            attempts: u32::try_from(attempts).map_err(anyhow::Error::from)?,
                            pause: Duration::from_millis(20),
                            pause_max: Duration::from_millis(100),
                        };
                        request.acquire_with_retry(retry).await?
                    }
                    None => request.acquire().await?,
                };
                return Ok(self.held(Thing::Lease(lease)));
            }
            "try" => {
                return Ok(match self.request(line)?.try_acquire().await? {
                    Some(lease) => self.held(Thing::Lease(lease)),
                    None => json!({"lease": null}),
                });
            }
            "session" => {
                let mut request = self.client()?.session().ttl(length(line, "ttl_ms")?);
                if let Some(owner) = line["owner"].as_str() {
                    request = request.owner(owner);
                }
                let session = request.open().await?;
                return Ok(self.held(Thing::Session(session)));
            }
            "release" => match self.take(line)? {
                Some(Thing::Lease(lease)) => lease.release().await?,
                Some(Thing::Session(session)) => session.close().await?,
                None => return Err(given_back().into()),
            },
            "release_once" => {
                if let Some(Thing::Lease(mut lease)) = self.take(line)? {
                    lease.release_once().await?;
                }
            }
            "drop" => drop(self.take(line)?),
            "check" => self.handle(line)?.check()?,
            "state" => {
                let handle = self.handle(line)?;
                let state = match handle.state() {
                    State::Valid => "valid",
                    State::Jeopardy => "jeopardy",
                    State::Lost => "lost",
                };
                let left = handle.time_left().as_secs_f64() * 1000.0;
                let work = handle.time_to_work().as_secs_f64() * 1000.0;
                return Ok(json!({"state": state, "time_left_ms": left, "time_to_work_ms": work}));
            }
            "verify" => {
                let handle = self.handle(line)?;
                let request = leasehold_client::wire::CheckRequest {
                    fencing_token: handle.fencing_token(),
                    lease_id: Some(handle.lease_id().into()),
                };
                let checked = self.client()?.api().check(handle.lock(), &request).await?;
                return Ok(json!({"valid": checked.valid}));
            }
            "renew" => self.handle(line)?.renew(),
            "wanted" => self.handle(line)?.wanted().await,
            "start_heartbeat" => self.handle(line)?.start_heartbeat(),
            "run" => {
                let sleep = length(line, "sleep_ms")?;
                let began = Instant::now();
                let work = |lease: LeaseHandle| async move {
                    say(&json!({"event": "running", "id": id, "token": lease.fencing_token()}));
                    let _stopped = Stopped(id);
                    tokio::time::sleep(sleep).await;
                };
                self.request(line)?.run(work).await?;
                return Ok(json!({"took_ms": began.elapsed().as_secs_f64() * 1000.0}));
            }
            "campaign" => {
                // The SDK's election has no way to its lease; it is a lock with a value.
                let mut metadata = leasehold_client::wire::Metadata::new();
                metadata.insert("value".into(), text(line, "value")?.into());
                let mut request = self.client()?.lock(text(line, "lock")?).metadata(metadata);
                if let Some(owner) = line["owner"].as_str() {
                    request = request.owner(owner);
                }
                let lease = request.wait_forever().acquire().await?;
                return Ok(self.held(Thing::Lease(lease)));
            }
            "observe" => {
                let mut leaders = self.client()?.election(text(line, "lock")?).observe().await?;
                let name = format!("o{}", self.number.fetch_add(1, Ordering::Relaxed) + 1);
                let observer = name.clone();
                let follower = tokio::spawn(async move {
                    while let Ok(leader) = leaders.next().await {
                        let (owner, value) = leader.map(|one| (one.owner, one.value)).unzip();
                        say(&json!({
                            "event": "leader", "observer": observer, "owner": owner, "value": value,
                        }));
                    }
                });
                self.followers.lock().push(follower.abort_handle());
                return Ok(json!({"observer": name}));
            }
            "fence" => {
                let register = self.client()?.fence(text(line, "fence")?);
                let token = line["token"].as_u64().context("token is missing")?;
                return Ok(json!({"high_water": register.accept(token).await?}));
            }
            "watch" => {
                let after = line["after"].as_str().map(str::parse::<Cursor>).transpose();
                let after = after.map_err(anyhow::Error::from)?;
                let mut watch = self.client()?.watch(text(line, "prefix")?, after).await?;
                let name = format!("w{}", self.number.fetch_add(1, Ordering::Relaxed) + 1);
                let watcher = name.clone();
                let follower = tokio::spawn(async move {
                    while let Some(Ok(event)) = watch.next().await {
                        let lock = if let News::Granted { lock, .. } | News::Ended { lock, .. } =
                            &event.news
                        {
                            Some(lock)
                        } else {
                            None
                        };
                        say(&json!({
                            "event": "news", "watch": watcher, "type": event.news.kind(), "lock": lock,
                            "cursor": event.cursor,
                        }));
                    }
                });
                self.followers.lock().push(follower.abort_handle());
                return Ok(json!({"watch": name}));
            }
            "api" => {
                let method =
                    text(line, "method")?.parse::<Method>().map_err(anyhow::Error::from)?;
                let body = line.get("body").map(Value::to_string);
                let body = body.as_deref().map(str::as_bytes);
                let answer = self.client()?.api().raw(method, text(line, "path")?, body).await?;
                let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
                return Ok(json!({"body": answer}));
            }
            "advance_clock" => {
                let ahead = u64::try_from(length(line, "ms")?.as_nanos()).unwrap_or(u64::MAX);
                self.clock.ahead.fetch_add(ahead, Ordering::Relaxed);
            }
            "block" => std::thread::sleep(length(line, "ms")?),
            "close" => {
                self.close().await;
            }
            _ => return Err(anyhow!("there is no op {op}").into()),
        }
        Ok(json!({}))
    }
}

/// Says that the work has ended, however it did.
struct Stopped(u64);

impl Drop for Stopped {
    fn drop(&mut self) {
        say(&json!({"event": "stopped", "id": self.0}));
    }
}

fn claims(locks: &[Value]) -> Result<Vec<Claim>> {
    let claim = |one: &Value| Ok(serde_json::from_value::<Claim>(one.clone())?);
    locks.iter().map(claim).collect()
}

async fn tell_changes(name: String, handle: LeaseHandle) {
    let mut changes = handle.changes();
    loop {
        match changes.next().await {
            Change::Renewed(_) => {}
            Change::Jeopardy => say(&json!({"event": "jeopardy", "lease": name})),
            Change::Lost(LostBy::Released) => return,
            Change::Lost(by) => {
                say(&json!({"event": "lost", "lease": name, "by": lost_by(&by)}));
                return;
            }
        }
    }
}
