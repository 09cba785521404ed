//! The action of `contrib/action`, run as a runner would: a shell is the runner, and the steps are its children.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_e2e::client::Http;
use leasehold_e2e::server::Server;
use leasehold_e2e::tools::python_tool;
use serde_json::Value;
use tempfile::TempDir;

use super::building;
use super::harness::Sdk;

const PATIENCE: Duration = Duration::from_secs(30);

/// A job of one step between the two ends of the action. It says how each of them ended.
const JOB: &str = "env \"INPUT_FAIL-FAST=$FAIL_FAST\" \"$NODE\" action/main.js; echo main=$?
sh -c \"$STEP\"; echo step=$?
[ -s state ] && export STATE_channel=$(sed -n 2p state)
\"$NODE\" action/post.js; echo post=$?";

/// A folder with the action, and the SDK where it looks for it.
struct Runner {
    folder: TempDir,
    server: Server,
}

impl Runner {
    async fn start() -> Result<Runner> {
        let folder = tempfile::tempdir()?;
        let action = folder.path().join("action");
        building::copied(&repository().join("contrib/action"), &action)?;
        fs::create_dir(action.join("node_modules"))?;
        symlink(building::built(Sdk::TypeScript)?, action.join("node_modules/leasehold"))?;
        Ok(Runner { folder, server: Server::start().await? })
    }

    /// A job with this step and these inputs.
    fn job(&self, id: &str, step: &str, inputs: &[(&str, &str)]) -> Result<Child> {
        let here = self.folder.path().join(id);
        fs::create_dir(&here)?;
        symlink(self.folder.path().join("action"), here.join("action"))?;
        let mut job = Command::new("sh");
        job.args(["-c", JOB]).current_dir(&here).env_clear();
        job.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        job.env("NODE", python_tool("node")?).env("STEP", step);
        job.env("GITHUB_STATE", here.join("state")).env("GITHUB_OUTPUT", here.join("output"));
        job.env("RUNNER_TEMP", &here).env("GITHUB_REPOSITORY", "o/r").env("GITHUB_RUN_ID", id);
        job.env("GITHUB_SERVER_URL", "https://forge.test").env("GITHUB_JOB", "build");
        job.env("INPUT_ADDR", format!("http://{}", self.server.address()));
        job.env("INPUT_LOCK", "deploy");
        for (name, value) in inputs {
            // No shell hands on a variable of such a name.
            let variable =
                if *name == "FAIL-FAST" { "FAIL_FAST" } else { &format!("INPUT_{name}") };
            job.env(variable, value);
        }
        Ok(job.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    async fn lock(&self) -> Result<Value> {
        Http::new(self.server.address()).get("/v1/locks/deploy").await?.json()
    }

    async fn wait_until(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<Value> {
        let since = Instant::now();
        loop {
            let lock = self.lock().await?;
            if is_so(&lock) {
                return Ok(lock);
            }
            ensure!(since.elapsed() < PATIENCE, "never {what}: {lock}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn is_held_by(&self, owner: &str) -> Result<Value> {
        let wanted = |lock: &Value| lock["holders"][0]["owner_id"] == owner;
        self.wait_until(&format!("held by {owner}"), wanted).await
    }

    async fn is_free(&self) -> Result<Value> {
        let is_free = |lock: &Value| lock["holders"].as_array().is_none_or(Vec::is_empty);
        self.wait_until("free", is_free).await
    }
}

fn said(job: Child) -> Result<String> {
    let Output { stdout, stderr, .. } = job.wait_with_output()?;
    Ok(String::from_utf8([stdout, stderr].concat())?)
}

#[tokio::test]
async fn a_job_holds_its_lock_between_its_ends() -> Result<()> {
    let runner = Runner::start().await?;
    let look = "until [ -e ../go ]; do sleep 0.02; done";
    let first = runner.job("1", look, &[("TTL", "1s")])?;
    let lock = runner.is_held_by("o/r/1/build").await?;
    let run = &lock["holders"][0]["metadata"]["run"];
    ensure!(run == "https://forge.test/o/r/actions/runs/1", "{lock}");
    // Longer than its ttl: it is renewed, though the process that asked for it is gone.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let refused = said(runner.job("2", "true", &[("WAIT", "0")])?)?;
    ensure!(refused.contains("::error::could not be acquired: held by o/r/1/build"), "{refused}");
    ensure!(refused.contains("main=1\n") && refused.contains("no lock was acquired"), "{refused}");
    let next = runner.job("3", "true", &[])?;
    runner.wait_until("waited for", |lock| lock["waiters_total"] == 1).await?;
    fs::write(runner.folder.path().join("go"), "")?;
    for (job, token) in [(first, 1), (next, 2)] {
        let said = said(job)?;
        ensure!(said.contains(&format!("acquired, fencing token {token}, after ")), "{said}");
        ensure!(said.contains("main=0\nstep=0\nreleased\npost=0\n"), "{said}");
    }
    runner.is_free().await?;
    let outputs = fs::read_to_string(runner.folder.path().join("3/output"))?;
    let lines: Vec<_> = outputs.lines().collect();
    ensure!(lines[0].starts_with("fencing-token<<") && lines[1] == "2", "{outputs}");
    ensure!(lines[3].starts_with("waited-ms<<") && lines[4].parse::<u64>()? > 0, "{outputs}");
    Ok(())
}

#[tokio::test]
async fn a_step_is_stopped_before_its_lock_can_pass_on() -> Result<()> {
    let mut runner = Runner::start().await?;
    let job = runner.job("1", "trap '' TERM; sleep 300 & wait; sleep 300", &[("TTL", "2s")])?;
    runner.is_held_by("o/r/1/build").await?;
    wait_for_step(&runner, "1").await?;
    let since = Instant::now();
    runner.server.kill()?;
    let said = said(job)?;
    ensure!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    ensure!(said.contains("main=0\nstep=137\n"), "{said}");
    ensure!(said.contains("::error::the lease could not be renewed in time"), "{said}");
    ensure!(said.contains("post=1\n"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_step_may_be_let_go_on_and_the_job_fails_at_its_end() -> Result<()> {
    let runner = Runner::start().await?;
    let look = "until [ -e ../go ]; do sleep 0.02; done";
    let inputs = [("TTL", "1s"), ("FAIL-FAST", "false")];
    let job = runner.job("1", look, &inputs)?;
    runner.is_held_by("o/r/1/build").await?;
    wait_for_step(&runner, "1").await?;
    let broken = serde_json::json!({"reason": "a test"});
    let mut http = Http::new(runner.server.address());
    let answer = http.post("/v1/locks/deploy/break", &broken).await?;
    ensure!(answer.status == 200, "{answer:?}");
    // A heartbeat later the keeper knows.
    tokio::time::sleep(Duration::from_secs(1)).await;
    fs::write(runner.folder.path().join("go"), "")?;
    let said = said(job)?;
    ensure!(
        said.contains("main=0\nstep=0\n::error::the lock was lost while the job ran"),
        "{said}"
    );
    ensure!(said.contains("post=1\n"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_step_that_is_cancelled_while_it_waits_leaves_nothing_behind() -> Result<()> {
    let runner = Runner::start().await?;
    let held = serde_json::json!({"owner_id": "other", "ttl_ms": 600_000});
    let mut http = Http::new(runner.server.address());
    ensure!(http.post("/v1/locks/deploy/acquire", &held).await?.status == 200);
    let job = runner.job("1", "true", &[])?;
    runner.wait_until("waited for", |lock| lock["waiters_total"] == 1).await?;
    let main = child_of(job.id())?;
    ensure!(Command::new("kill").args(["-INT", &main.to_string()]).status()?.success());
    runner.wait_until("left alone", |lock| lock["waiters_total"] == 0).await?;
    let said = said(job)?;
    ensure!(said.contains("main=130\n") && said.contains("no lock was acquired\npost=0"), "{said}");
    Ok(())
}

#[tokio::test]
async fn wrong_inputs_are_told() -> Result<()> {
    let runner = Runner::start().await?;
    for (id, input, told) in [
        ("1", ("LOCK", " "), "::error::lock: the name of a lock is missing"),
        ("2", ("MODE", "odd"), "::error::mode: odd is neither exclusive nor shared"),
        ("3", ("PERMITS", "0"), "::error::permits: 0 is not a whole number"),
        ("4", ("TTL", "soon"), "::error::"),
    ] {
        let said = said(runner.job(id, "true", &[input])?)?;
        ensure!(said.contains(told) && said.contains("main=1\n"), "{id}: {said}");
    }
    Ok(())
}

#[test]
fn every_input_is_described_and_read() -> Result<()> {
    let folder = repository().join("contrib/action");
    let description = fs::read_to_string(folder.join("action.yml"))?;
    let (inputs, rest) = description.split_once("outputs:\n").context("outputs")?;
    let main = fs::read_to_string(folder.join("main.js"))?;
    let named = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix("  "));
        let names = lines.filter(|line| !line.starts_with(' ')).filter_map(|l| l.strip_suffix(':'));
        names.map(str::to_string).collect()
    };
    let (inputs, outputs) = (named(inputs), named(rest.split("runs:").next().unwrap_or_default()));
    ensure!(inputs.len() == 10 && outputs.len() == 2, "{inputs:?} {outputs:?}");
    for name in inputs {
        ensure!(main.contains(&format!("input(\"{name}\")")), "{name} is read nowhere");
    }
    for name in outputs {
        ensure!(main.contains(&format!("output(\"{name}\"")), "{name} is written nowhere");
    }
    Ok(())
}

/// Until the step itself runs.
async fn wait_for_step(runner: &Runner, id: &str) -> Result<()> {
    let state = runner.folder.path().join(id).join("state");
    let since = Instant::now();
    while !state.exists() {
        ensure!(since.elapsed() < PATIENCE, "the action did not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    Ok(())
}

fn child_of(pid: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    Ok(children.split_whitespace().next().context("it has a child")?.parse()?)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
