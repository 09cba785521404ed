//! Faults of the disk, injected into the system calls of a running server with strace.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::NamedTempFile;

const ATTACH_TIMEOUT: Duration = Duration::from_secs(10);

/// A fault that lasts until this is dropped.
#[derive(Debug)]
pub struct Injected {
    strace: Child,
    pid: u32,
    calls: NamedTempFile,
}

impl Injected {
    /// Injects into all threads of the process. `what` is what strace takes after `inject=`.
    pub fn into_process(pid: u32, what: &[&str]) -> Result<Injected> {
        let mut command = Command::new("strace");
        let calls = NamedTempFile::new()?;
        command.args(["-f", "-q", "-o"]).arg(calls.path()).args(["-p", &pid.to_string()]);
        for what in what {
            let (calls, _) =
                what.split_once(':').context("an injection names calls and a fault")?;
            command.args(["-e", &format!("trace={calls}"), "-e", &format!("inject={what}")]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let strace = command.spawn().context("cannot start strace")?;
        let mut injected = Injected { strace, pid, calls };
        injected.wait_until_attached()?;
        Ok(injected)
    }

    /// Ends the fault. Returns how many calls it hit.
    pub fn end(mut self) -> Result<usize> {
        self.let_go();
        let calls = std::fs::read_to_string(self.calls.path())?;
        Ok(calls
            .lines()
            .filter(|line| line.contains("INJECTED") || line.contains("DELAYED"))
            .count())
    }

    /// Asked to end, strace lets the process go as it was. Killed, it might leave it stopped.
    fn let_go(&mut self) {
        if let (Ok(None), Ok(pid)) =
            (self.strace.try_wait(), libc::pid_t::try_from(self.strace.id()))
        {
            // SAFETY: the process is a child of ours that has not been waited for, so the id is still its own.
            #[allow(unsafe_code, reason = "the standard library can only kill")]
            unsafe {
                libc::kill(pid, libc::SIGTERM);
            }
        }
        let _ = self.strace.wait();
    }

    fn wait_until_attached(&mut self) -> Result<()> {
        let since = Instant::now();
        while since.elapsed() < ATTACH_TIMEOUT {
            if self.strace.try_wait()?.is_some() {
                let mut said = String::new();
                if let Some(stderr) = &mut self.strace.stderr {
                    std::io::Read::read_to_string(stderr, &mut said)?;
                }
                bail!("strace ended: {said}");
            }
            if is_traced(self.pid)? {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("strace did not attach in {ATTACH_TIMEOUT:?}")
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// Whether every thread of the process has a tracer.
fn is_traced(pid: u32) -> Result<bool> {
    for task in std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task"))? {
        let status = std::fs::read_to_string(task?.path().join("status"))?;
        if status.lines().any(|line| line == "TracerPid:\t0") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether strace can be used; if not, a line on stderr says what is missing.
pub fn can_inject() -> bool {
    let is_there = || Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_ok();
    if is_there() {
        return true;
    }
    // SAFETY: the call only returns a number.
    #[allow(unsafe_code, reason = "the standard library does not tell who we are")]
    let is_root = unsafe { libc::geteuid() } == 0;
    if is_root {
        let _ = Command::new("apt-get").args(["install", "--yes", "strace"]).status();
    }
    if is_there() {
        return true;
    }
    eprintln!("SKIPPED: faults of the disk need the package strace; install it and run again");
    false
}
