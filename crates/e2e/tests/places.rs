//! Whoever waits keeps its place in the queue when its connection breaks.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use leasehold_api::{AcquireRequest, Grant, Lock, ReleaseRequest};
use leasehold_e2e::client::Http;
use leasehold_e2e::proxy::{Network, Proxy};
use leasehold_e2e::server::{Server, binary};

const LOCK: &str = "/v1/locks/job";
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn commands_that_wait_keep_their_order_when_their_connections_are_cut() -> Result<()> {
    let server = Server::start().await?;
    let mut http = Http::new(server.address());
    let holder = acquire(&mut http).await?;
    let folder = tempfile::tempdir()?;
    let turns = folder.path().join("turns");
    let mut waiting = Vec::new();
    let names = ["first", "second", "third"];
    for (at, name) in names.into_iter().enumerate() {
        let proxy = Proxy::before(server.address()).await?;
        let child = match name {
            "third" => acquires(&proxy, name, &turns)?,
            _ => runs(&proxy, name, &turns)?,
        };
        waiting.push((name, proxy, child));
        until_line_is(&mut http, &names[..=at]).await?;
    }
    for (at, (name, proxy, _)) in waiting.iter().enumerate() {
        let others: Vec<&str> = names.into_iter().filter(|other| other != name).collect();
        proxy.set(Network::Resets);
        until_line_is(&mut http, &others).await?;
        proxy.set(Network::Works);
        until_line_is(&mut http, &names).await?;
        println!("{name} was back at place {}", at + 1);
    }
    let body = ReleaseRequest {
        owner_id: holder.owner_id,
        lease_id: holder.lease_id,
        fencing_token: holder.fencing_token,
    };
    http.post(&format!("{LOCK}/release"), &body).await?;
    for (name, _proxy, mut child) in waiting {
        let ended = child.ended().await?;
        ensure!(ended.success(), "{name} ended with {ended}");
    }
    let turns = std::fs::read_to_string(turns)?;
    ensure!(turns == "first\nsecond\nthird\n", "they came in the order {turns:?}");
    Ok(())
}

/// A command that waits. It is ended when this is dropped.
struct Waiting(Child);

impl Waiting {
    async fn ended(&mut self) -> Result<ExitStatus> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("it does not end")
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn acquire(http: &mut Http) -> Result<Grant> {
    let body = AcquireRequest {
        owner_id: "holder".into(),
        ttl_ms: Some(600_000),
        ..AcquireRequest::default()
    };
    http.post(&format!("{LOCK}/acquire"), &body).await?.json()
}

fn runs(proxy: &Proxy, name: &str, turns: &Path) -> Result<Waiting> {
    let line = format!("echo {name} >> {}", turns.display());
    leasehold(proxy, &["run", "--owner", name, "job", "-c", &line])
}

/// `acquire` runs nothing, so a shell notes when it had its turn.
fn acquires(proxy: &Proxy, name: &str, turns: &Path) -> Result<Waiting> {
    let line = format!(
        "{} acquire job --owner {name} --wait 60s && echo {name} >> {}",
        binary()?.display(),
        turns.display()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]);
    spawn(shell, proxy)
}

fn leasehold(proxy: &Proxy, args: &[&str]) -> Result<Waiting> {
    let mut command = Command::new(binary()?);
    command.args(args);
    spawn(command, proxy)
}

fn spawn(mut command: Command, proxy: &Proxy) -> Result<Waiting> {
    let child = command
        .env("LEASEHOLD_ADDR", format!("http://{}", proxy.address()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    Ok(Waiting(child))
}

async fn until_line_is(http: &mut Http, names: &[&str]) -> Result<()> {
    let began = Instant::now();
    loop {
        let lock: Lock = http.get(LOCK).await?.json()?;
        let line: Vec<&str> = lock.waiters.iter().map(|waiter| waiter.owner_id.as_str()).collect();
        if line == names {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            bail!("the line is {line:?}, not {names:?}");
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
