//! An SDK in a process of its own, driven by JSON lines: what `sdk/README.md` calls a driver.
//!
//! A request has an `id` and an `op`; its answer has the same `id` with `ok` or `err`. Events come unasked, and are noted
//! with the moment they arrived at.

use std::collections::HashMap;
use std::io::{BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

/// No request of a scenario takes longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// What came of a request: what was asked for, or the error.
pub type Came = Result<Value, Value>;

/// A driver process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Driver {
    child: Child,
    stdin: Mutex<ChildStdin>,
    next: AtomicU64,
    heard: Arc<Heard>,
    features: Vec<String>,
}

#[derive(Debug, Default)]
struct Heard {
    waiting: Mutex<HashMap<u64, oneshot::Sender<Came>>>,
    events: Mutex<Vec<(Instant, Value)>>,
    changed: Notify,
}

/// A request that was sent; its answer is still to come.
#[derive(Debug)]
pub struct Pending {
    pub id: u64,
    answer: oneshot::Receiver<Came>,
}

impl Pending {
    /// Waits for the answer.
    pub async fn came(self) -> Result<Came> {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.answer).await;
        answer.context("the driver does not answer")?.context("the driver has ended")
    }

    /// Waits for what was asked for.
    pub async fn ok(self) -> Result<Value> {
        match self.came().await? {
            Ok(ok) => Ok(ok),
            Err(error) => bail!("the SDK says {error}"),
        }
    }

    /// Waits for an error.
    pub async fn err(self) -> Result<Value> {
        match self.came().await? {
            Ok(ok) => bail!("the SDK says {ok} in place of an error"),
            Err(error) => Ok(error),
        }
    }
}

impl Driver {
    /// Starts the driver, and asks what it can do.
    pub async fn start(command: &mut Command) -> Result<Driver> {
        let line = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {line}"))?;
        let stdin = Mutex::new(child.stdin.take().context("it was piped")?);
        let stdout = BufReader::new(child.stdout.take().context("it was piped")?);
        let heard = Arc::new(Heard::default());
        let hears = heard.clone();
        std::thread::spawn(move || hears.listen(stdout));
        let next = AtomicU64::new(1);
        let mut driver = Driver { child, stdin, next, heard, features: Vec::new() };
        let features = driver.ask(json!({"op": "features"})).await?;
        let features = features["features"].as_array().context("features are a list")?;
        driver.features = features.iter().filter_map(Value::as_str).map(String::from).collect();
        Ok(driver)
    }

    /// Whether the SDK can do what not every language can.
    pub fn can(&self, feature: &str) -> bool {
        self.features.iter().any(|own| own == feature)
    }

    /// Sends a request.
    pub fn send(&self, mut request: Value) -> Result<Pending> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        request["id"] = id.into();
        let (sender, answer) = oneshot::channel();
        self.heard.waiting.lock().insert(id, sender);
        let mut stdin = self.stdin.lock();
        writeln!(stdin, "{request}").context("the driver has ended")?;
        stdin.flush()?;
        Ok(Pending { id, answer })
    }

    /// Asks, and waits for what was asked for.
    pub async fn ask(&self, request: Value) -> Result<Value> {
        let shown = request.to_string();
        self.send(request)?.ok().await.context(shown)
    }

    /// Asks, and waits for the error that must come.
    pub async fn refused(&self, request: Value) -> Result<Value> {
        let shown = request.to_string();
        self.send(request)?.err().await.context(shown)
    }

    /// Waits for the first event, also one that came before, in which all of this is said; and takes it.
    pub async fn event(&self, wanted: Value, within: Duration) -> Result<(Instant, Value)> {
        let until = Instant::now() + within;
        loop {
            let changed = self.heard.changed.notified();
            if let Some(found) = self.take(&wanted) {
                return Ok(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!("no event {wanted} in {within:?}; there were {:?}", self.heard.events.lock());
            }
            let _ = tokio::time::timeout(left.min(Duration::from_millis(50)), changed).await;
        }
    }

    /// An event in which all of this is said, if it has come.
    pub fn take(&self, wanted: &Value) -> Option<(Instant, Value)> {
        let mut events = self.heard.events.lock();
        let is_it = |event: &Value| {
            let wanted = wanted.as_object().into_iter().flatten();
            wanted.into_iter().all(|(name, value)| event.get(name) == Some(value))
        };
        let at = events.iter().position(|(_, event)| is_it(event))?;
        Some(events.remove(at))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the process stand still (SIGSTOP), as if it slept.
    pub fn pause(&self) -> Result<()> {
        self.signal(libc::SIGSTOP)
    }

    pub fn go_on(&self) -> Result<()> {
        self.signal(libc::SIGCONT)
    }

    /// Ends the process at once (SIGKILL).
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    fn signal(&self, signal: libc::c_int) -> Result<()> {
        let pid = libc::pid_t::try_from(self.pid()).context("a process id is small")?;
        // SAFETY: the process is a child of ours that has not been waited for, so the id is still its own.
        #[allow(unsafe_code, reason = "the standard library can only kill")]
        let sent = unsafe { libc::kill(pid, signal) };
        if sent != 0 {
            bail!("cannot send a signal: {}", std::io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

impl Heard {
    fn listen(&self, lines: impl std::io::BufRead) {
        for line in lines.lines() {
            let at = Instant::now();
            let Ok(line) = line else { break };
            let Ok(mut said) = serde_json::from_str::<Value>(&line) else {
                eprintln!("a driver says {line}");
                continue;
            };
            match said["id"].as_u64() {
                Some(id) if said.get("event").is_none() => {
                    let came = match said.get_mut("err").map(Value::take) {
                        Some(error) => Err(error),
                        None => Ok(said["ok"].take()),
                    };
                    if let Some(waiting) = self.waiting.lock().remove(&id) {
                        let _ = waiting.send(came);
                    }
                }
                _ => self.events.lock().push((at, said)),
            }
            self.changed.notify_waiters();
        }
        self.waiting.lock().clear();
        self.changed.notify_waiters();
    }
}
