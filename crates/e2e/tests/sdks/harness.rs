//! The stage of one scenario: a server, an SDK to drive, and another client that looks on.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_client::{Client, Transport};
use leasehold_e2e::driver::Driver;
use leasehold_e2e::proxy::Proxy;
use leasehold_e2e::server::Server;
use leasehold_e2e::tools::python_tool;
use serde_json::{Value, json};

use super::building;

/// Longer than any scenario takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// The work is told to stop at half of the ttl, and so late at most.
pub(crate) const LATE_MAX: Duration = Duration::from_millis(100);

/// An SDK, and the way it is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sdk {
    Rust,
    RustHttp,
    PythonAsyncio,
    PythonSync,
    Go,
    TypeScript,
}

impl Sdk {
    /// Its folder in `sdk`, if it has one there.
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Sdk::Rust | Sdk::RustHttp => "",
            Sdk::PythonAsyncio | Sdk::PythonSync => "python",
            Sdk::Go => "go",
            Sdk::TypeScript => "typescript",
        }
    }

    pub(crate) fn is_compiled(self) -> bool {
        matches!(self, Sdk::Go | Sdk::TypeScript)
    }
}

/// Everything that a scenario needs.
#[derive(Debug)]
pub(crate) struct Stage {
    sdk: Sdk,
    /// A patched copy of the SDK, in place of the real one.
    copy: Option<PathBuf>,
    pub(crate) server: Server,
    pub(crate) driver: Driver,
    /// Another client, by the SDK that is trusted.
    pub(crate) other: Client,
}

/// Where the server keeps its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Memory,
    Sqlite,
}

impl Stage {
    pub(crate) async fn of(sdk: Sdk, store: Store) -> Result<Stage> {
        Stage::of_copy(sdk, store, None).await
    }

    /// The same with an SDK that lies elsewhere.
    pub(crate) async fn of_copy(sdk: Sdk, store: Store, copy: Option<&Path>) -> Result<Stage> {
        let server = match store {
            Store::Memory => Server::start_with(&["--store", "memory"]).await?,
            Store::Sqlite => Server::start().await?,
        };
        let driver = Driver::start(&mut command(sdk, copy)?).await?;
        let url = format!("http://{}", server.address());
        let other = Client::builder(&url).transport(Transport::Http).connect().await?;
        Ok(Stage { sdk, copy: copy.map(Path::to_path_buf), server, driver, other })
    }

    /// Whether each heartbeat is a request of its own, which shows its own token.
    pub(crate) fn is_over_http(&self) -> bool {
        self.sdk != Sdk::Rust
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// Connects the driver to the server, with an owner that its requests come from.
    pub(crate) async fn connect(&self) -> Result<()> {
        self.connect_to(&self.url()).await
    }

    pub(crate) async fn connect_to(&self, servers: &str) -> Result<()> {
        let line = json!({"op": "connect", "servers": servers, "patience_ms": 5000});
        self.driver.ask(line).await.map(drop)
    }

    /// Connects the driver through a network that can be broken.
    pub(crate) async fn connect_by_proxy(&self) -> Result<Proxy> {
        let proxy = Proxy::before(self.server.address()).await?;
        self.connect_to(&format!("http://{}", proxy.address())).await?;
        Ok(proxy)
    }

    /// A second process with the same SDK, connected to the same server.
    pub(crate) async fn second(&self) -> Result<Driver> {
        self.second_to(&self.url(), 5000).await
    }

    pub(crate) async fn second_to(&self, servers: &str, patience_ms: u64) -> Result<Driver> {
        let driver = Driver::start(&mut command(self.sdk, self.copy.as_deref())?).await?;
        let line = json!({"op": "connect", "servers": servers, "patience_ms": patience_ms});
        driver.ask(line).await?;
        Ok(driver)
    }

    /// Takes a lock, and says by which name the driver knows it.
    pub(crate) async fn acquire(&self, line: Value) -> Result<String> {
        let mut line = line;
        line["op"] = "acquire".into();
        let held = self.driver.ask(line).await?;
        Ok(held["lease"].as_str().context("a lease has a name")?.into())
    }

    pub(crate) async fn state_of(&self, lease: &str) -> Result<Value> {
        self.driver.ask(json!({"op": "state", "lease": lease})).await
    }

    /// Whether somebody else could have the lock now.
    pub(crate) async fn is_free(&self, lock: &str) -> Result<bool> {
        Ok(self.other.api().get(lock).await?.holders.is_empty())
    }

    pub(crate) async fn until_free(&self, lock: &str, within: Duration) -> Result<()> {
        self.until(within, &format!("{lock} is free"), async || self.is_free(lock).await).await
    }

    pub(crate) async fn until_waiters(&self, lock: &str, count: u64) -> Result<()> {
        let what = format!("{count} wait for {lock}");
        let enough = async || Ok(self.other.api().get(lock).await?.waiters_total == count);
        self.until(LONG, &what, enough).await
    }

    /// Runs an example of the SDK, which must say this.
    pub(crate) async fn run_example(&self, name: &str, says: &str) -> Result<()> {
        let sdk = building::built(self.sdk)?;
        let examples = sdk.join("examples").join(name);
        let mut example = match self.sdk {
            Sdk::Go => Command::new(sdk.join("built").join(name)),
            Sdk::TypeScript => run_by(python_tool("node")?, examples.with_extension("js")),
            Sdk::Rust | Sdk::RustHttp | Sdk::PythonAsyncio | Sdk::PythonSync => {
                run_by(python_tool("python")?, examples.with_extension("py"))
            }
        };
        example.env("PYTHONPATH", sdk.join("src")).env("PYTHONDONTWRITEBYTECODE", "1");
        example.env("LEASEHOLD_ADDR", self.url());
        let done = tokio::task::spawn_blocking(move || example.output()).await??;
        let said = String::from_utf8_lossy(&done.stdout);
        let complained = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success() && said.contains(says), "{name}: {said}{complained}");
        Ok(())
    }

    pub(crate) async fn until(
        &self,
        within: Duration,
        what: &str,
        holds: impl AsyncFn() -> Result<bool>,
    ) -> Result<()> {
        let since = Instant::now();
        while !holds().await? {
            ensure!(since.elapsed() < within, "not in {within:?}: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}

/// How the driver of an SDK is started.
fn command(sdk: Sdk, copy: Option<&Path>) -> Result<Command> {
    let lies = match copy {
        Some(copy) => copy.to_path_buf(),
        None => building::built(sdk)?,
    };
    let driver = lies.join("conformance/driver");
    let mut command = match sdk {
        Sdk::Rust | Sdk::RustHttp => Command::new(env!("CARGO_BIN_EXE_sdk-driver")),
        Sdk::PythonAsyncio | Sdk::PythonSync => run_by(python_tool("python")?, driver),
        Sdk::Go => Command::new(lies.join("built/driver")),
        Sdk::TypeScript => run_by(python_tool("node")?, driver.with_file_name("driving.js")),
    };
    match sdk {
        Sdk::RustHttp => _ = command.arg("--http"),
        Sdk::PythonSync => _ = command.arg("--sync"),
        Sdk::Rust | Sdk::PythonAsyncio | Sdk::Go | Sdk::TypeScript => {}
    }
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(command)
}

fn run_by(interpreter: PathBuf, file: PathBuf) -> Command {
    let mut command = Command::new(interpreter);
    command.arg(file);
    command
}

/// How late this machine wakes those who sleep, just now: what no SDK can be faster than.
#[derive(Debug)]
pub(crate) struct Noise {
    worst: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Noise {
    pub(crate) fn listen() -> Noise {
        let (worst, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (noted, ends) = (worst.clone(), is_over.clone());
        std::thread::spawn(move || {
            let step = Duration::from_millis(5);
            while !ends.load(Ordering::Relaxed) {
                let before = Instant::now();
                std::thread::sleep(step);
                let late = before.elapsed().saturating_sub(step).as_nanos();
                noted.fetch_max(u64::try_from(late).unwrap_or(u64::MAX), Ordering::Relaxed);
            }
        });
        Noise { worst, is_over }
    }

    /// What to allow for: several threads in a row may each be that late.
    pub(crate) fn allowance(&self) -> Duration {
        Duration::from_nanos(self.worst.load(Ordering::Relaxed)) * 4
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn millis(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}
