//! Workers that are stopped with a signal for longer than their ttl, again and again.
//!
//! Two things are shown. A worker that can look at its clock never believes in a lease that is another's. And one that
//! was stopped between its look and its write cannot know better: only the fence stops that write, and without it
//! data is overwritten.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use leasehold_client::{Clock as _, SystemClock, sql};
use leasehold_e2e::random::Random;
use leasehold_e2e::seed;
use leasehold_e2e::server::Server;
use rusqlite::Connection;

const PATIENCE: Duration = Duration::from_secs(30);

/// A worker process, and what it has said so far. It is killed when this is dropped.
struct Worker {
    child: Child,
    said: Arc<Mutex<Vec<Said>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Said {
    /// Nanoseconds on the clock of the machine.
    at: u64,
    what: What,
    token: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Granted,
    Believes,
    Wrote,
    Refused,
    Lost,
}

fn read(line: &str) -> Option<Said> {
    let mut words = line.split(' ');
    let at = words.next()?.parse().ok()?;
    let what = match words.next()? {
        "granted" => What::Granted,
        "believes" => What::Believes,
        "wrote" => What::Wrote,
        "refused" => What::Refused,
        "lost" => What::Lost,
        _ => return None,
    };
    Some(Said { at, what, token: words.next()?.parse().ok()? })
}

impl Worker {
    fn start(server: SocketAddr, trial: &Trial, owner: &str, document: &Path) -> Result<Worker> {
        let command = Command::new(env!("CARGO_BIN_EXE_worker"));
        Worker::start_by(command, server, trial, owner, document)
    }

    /// A worker for which the machine has been up for longer than it says itself: as if it had slept for that long.
    fn start_after_sleep(
        slept: Duration,
        server: SocketAddr,
        trial: &Trial,
        document: &Path,
    ) -> Result<Worker> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--fork", "--kill-child=KILL", "--time", "--boottime"]);
        unshare.arg(slept.as_secs().to_string()).arg(env!("CARGO_BIN_EXE_worker"));
        Worker::start_by(unshare, server, trial, "sleeper", document)
    }

    fn start_by(
        mut command: Command,
        server: SocketAddr,
        trial: &Trial,
        owner: &str,
        document: &Path,
    ) -> Result<Worker> {
        let mut child = command
            .arg(format!("http://{server}"))
            .arg(format!("fail-fast/{}", trial.number))
            .arg(format!("{owner}-{}", trial.number))
            .arg(trial.ttl.as_millis().to_string())
            .arg(document)
            .arg(if trial.is_fenced { "fenced" } else { "unfenced" })
            .arg(if trial.number.is_multiple_of(2) { "stream" } else { "http" })
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a worker")?;
        let out = child.stdout.take().context("it has a standard output")?;
        let said = Arc::new(Mutex::new(Vec::new()));
        let heard = said.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Some(one) = read(&line) {
                    heard.lock().expect("no thread panics with it").push(one);
                }
            }
        });
        Ok(Worker { child, said })
    }

    fn said(&self) -> Vec<Said> {
        self.said.lock().expect("no thread panics with it").clone()
    }

    /// The worker itself, if another program was needed to start it.
    fn own_pid(&self) -> Result<u32> {
        let pid = self.child.id();
        let below = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        Ok(below.split_whitespace().next().map_or(Ok(pid), str::parse)?)
    }

    fn signal(&self, signal: i32) -> Result<()> {
        let pid = libc::pid_t::try_from(self.own_pid()?).context("a process id is small")?;
        // SAFETY: the process is a child of ours that has not been waited for, or of one, so the id is still its own.
        #[allow(unsafe_code, reason = "the standard library can only kill")]
        let sent = unsafe { libc::kill(pid, signal) };
        if sent != 0 {
            bail!("cannot send a signal: {}", std::io::Error::last_os_error());
        }
        Ok(())
    }

    async fn until(&self, what: What, after: usize) -> Result<usize> {
        let since = std::time::Instant::now();
        while since.elapsed() < PATIENCE {
            let said = self.said();
            if let Some(at) = said.iter().skip(after).position(|said| said.what == what) {
                return Ok(after + at);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bail!("{what:?} was not said in {PATIENCE:?}: {:?}", self.said())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    number: u32,
    ttl: Duration,
    is_fenced: bool,
}

/// What a trial showed.
#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    /// Writes with a token lower than one that was written before.
    overwritten: usize,
    refused: usize,
}

impl Trial {
    fn new(number: u32, is_fenced: bool) -> Trial {
        let ttl = Duration::from_millis(1000 + u64::from(number % 5) * 250);
        Trial { number, ttl, is_fenced }
    }

    async fn run(self, server: SocketAddr) -> Result<Shown> {
        let folder = tempfile::tempdir()?;
        let document = folder.path().join("document");
        let writes = Connection::open(&document)?;
        writes.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
             CREATE TABLE writes (number INTEGER PRIMARY KEY, token INTEGER NOT NULL);",
        )?;
        writes.execute_batch(sql::SQLITE)?;
        let first = Worker::start(server, &self, "first", &document)?;
        let held = first.until(What::Believes, 0).await?;
        let second = Worker::start(server, &self, "second", &document)?;
        // Anywhere in its work; mostly between a look and a write, since that is what it does most of the time.
        let mut random = Random::new(seed(u64::from(self.number) + 77));
        tokio::time::sleep(Duration::from_millis(random.below(200))).await;
        first.signal(libc::SIGSTOP)?;
        second.until(What::Granted, 0).await?;
        // The first is long past its ttl, and the second works for a while.
        tokio::time::sleep(self.ttl / 3).await;
        let written = second.said().len();
        first.signal(libc::SIGCONT)?;
        first.until(What::Lost, held).await?;
        second.until(What::Wrote, written).await?;
        let (first, second) = (first.said(), second.said());
        check_beliefs(&first, &second)?;
        let refused = [&first, &second].into_iter().flatten();
        Ok(Shown {
            overwritten: overwritten(&writes)?,
            refused: refused.filter(|said| said.what == What::Refused).count(),
        })
    }
}

/// Whether the process has an alarm on a clock that goes on while the machine sleeps.
fn has_alarm_that_counts_sleep(pid: u32) -> Result<bool> {
    for open in std::fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        let about = std::fs::read_to_string(open?.path()).unwrap_or_default();
        if about.lines().any(|line| line == format!("clockid: {}", libc::CLOCK_BOOTTIME)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whoever believed in a lower token did so before anybody believed in a higher one.
fn check_beliefs(first: &[Said], second: &[Said]) -> Result<()> {
    let mut beliefs: Vec<&Said> =
        first.iter().chain(second).filter(|said| said.what == What::Believes).collect();
    beliefs.sort_by_key(|said| said.at);
    for pair in beliefs.windows(2) {
        if pair[0].token > pair[1].token {
            bail!("two believed at once: {:?} and later {:?}", pair[0], pair[1]);
        }
    }
    Ok(())
}

fn overwritten(writes: &Connection) -> Result<usize> {
    let mut rows = writes.prepare("SELECT token FROM writes ORDER BY number")?;
    let tokens: Vec<i64> = rows.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut highest = i64::MIN;
    let mut stale = 0;
    for token in tokens {
        stale += usize::from(token < highest);
        highest = highest.max(token);
    }
    Ok(stale)
}

async fn run_all(numbers: std::ops::Range<u32>, is_fenced: bool) -> Result<Shown> {
    let server = Server::start().await?;
    let address = server.address();
    let mut shown = Shown::default();
    let numbers: Vec<u32> = numbers.collect();
    // As many at once as two cores carry.
    for group in numbers.chunks(17) {
        let trials: Vec<_> = group
            .iter()
            .map(|&number| tokio::spawn(Trial::new(number, is_fenced).run(address)))
            .collect();
        for trial in trials {
            let one = trial.await??;
            shown.overwritten += one.overwritten;
            shown.refused += one.refused;
        }
    }
    Ok(shown)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_worker_never_believes_with_another_and_its_stale_writes_are_refused()
-> Result<()> {
    let shown = run_all(0..50, true).await?;
    println!("50 workers stopped for longer than their ttl: {shown:?}");
    assert_eq!(shown.overwritten, 0, "{shown:?}");
    assert!(shown.refused > 0, "no write was stale: the fence was not tested: {shown:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_fence_a_stopped_worker_overwrites_data() -> Result<()> {
    let shown = run_all(100..112, false).await?;
    println!("12 workers stopped without a fence: {shown:?}");
    assert!(shown.overwritten > 0, "the test without a fence must show what the fence is for");
    Ok(())
}

/// No process can be put to sleep without the machine, and none with a thread can be moved to another time. But one can
/// begin where the machine has slept for ten days: there its clocks differ, as they do after a sleep, and whatever counts
/// on the wrong one is off by ten days.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_machine_has_slept_counts_by_the_clock_that_went_on() -> Result<()> {
    const SLEPT: Duration = Duration::from_secs(10 * 24 * 3600);
    let may =
        Command::new("unshare").args(["--fork", "--time", "--boottime", "1", "true"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("skipped: no time of its own can be made for a process here");
        return Ok(());
    }
    let server = Server::start().await?;
    let folder = tempfile::tempdir()?;
    for number in [200, 201] {
        let trial = Trial { number, ttl: Duration::from_secs(1), is_fenced: true };
        let document = folder.path().join(format!("document-{number}"));
        let writes = Connection::open(&document)?;
        writes.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
             CREATE TABLE writes (number INTEGER PRIMARY KEY, token INTEGER NOT NULL);",
        )?;
        writes.execute_batch(sql::SQLITE)?;
        let before = SystemClock.now();
        let sleeper = Worker::start_after_sleep(SLEPT, server.address(), &trial, &document)?;
        sleeper.until(What::Believes, 0).await?;
        // Long enough for several heartbeats: an alarm on another clock than the count would ring in ten days.
        tokio::time::sleep(trial.ttl * 2).await;
        let said = sleeper.said();
        assert!(said.iter().all(|said| said.what != What::Lost), "{said:?}");
        assert!(said.iter().all(|said| said.at > before.plus(SLEPT).as_nanos()), "{said:?}");
        assert!(has_alarm_that_counts_sleep(sleeper.own_pid()?)?);
        // Away for longer than its ttl, it knows that at once, and what it had begun to write is refused.
        let second = Worker::start(server.address(), &trial, "second", &document)?;
        sleeper.signal(libc::SIGSTOP)?;
        second.until(What::Granted, 0).await?;
        let written = second.until(What::Wrote, 0).await?;
        let heard = sleeper.said().len();
        sleeper.signal(libc::SIGCONT)?;
        sleeper.until(What::Lost, heard).await?;
        second.until(What::Wrote, written + 1).await?;
        let after: Vec<What> = sleeper.said()[heard..].iter().map(|said| said.what).collect();
        assert!(!after.contains(&What::Wrote), "{after:?}");
        assert_eq!(overwritten(&writes)?, 0);
    }
    Ok(())
}
