//! The test suites that look for planted bugs: built once, run many times.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cargo::cargo;

/// Whose tests look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tests {
    package: &'static str,
    folder: &'static str,
    /// Only these suites; all if none is named.
    only: Option<&'static str>,
    /// The one that searches for long: it comes when the others have found nothing.
    last: Option<&'static str>,
}

/// The core's own tests.
pub(super) const CORE: Tests = Tests {
    package: "leasehold-core",
    folder: "crates/core",
    only: None,
    last: Some("exhaustive"),
};
/// The simulated worlds.
pub(super) const SIM: Tests =
    Tests { package: "leasehold-sim", folder: "crates/sim", only: Some("worlds"), last: None };

/// The server's own tests, over HTTP.
pub(super) const SERVER: Tests =
    Tests { package: "leasehold-server", folder: "crates/server", only: Some("http"), last: None };

const BUG_VARIABLE: &str = "LEASEHOLD_PLANTED";
/// A failure under a planted bug is no regression to remember: proptest must not write it down.
const NO_REGRESSIONS: (&str, &str) = ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1");

/// One built test binary.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Suite {
    name: String,
    binary: PathBuf,
    /// Where cargo would run it.
    folder: PathBuf,
}

/// What came of a run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    /// The first test that failed.
    Failed(String),
    TimedOut,
}

/// Builds the suites; what the compiler has to say is shown.
pub(super) fn build(root: &Path, tests: Tests) -> Result<Vec<Suite>> {
    let Tests { package, folder, only, last } = tests;
    let args = ["test", "--package", package, "--features", "planted", "--no-run"];
    let mut command = cargo(root, &args);
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = command.output().context("could not start cargo")?;
    if !output.status.success() {
        bail!("the tests of {package} do not build with the feature `planted`");
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let binaries = messages.lines().filter_map(test_binary);
    let mut suites: Vec<Suite> = binaries.map(|binary| suite(&root.join(folder), binary)).collect();
    suites.retain(|suite| only.is_none_or(|only| suite.name == only));
    suites.sort_by_key(|suite| last.is_some_and(|last| suite.name == last));
    if suites.is_empty() {
        bail!("{package} has no test suites");
    }
    Ok(suites)
}

fn suite(folder: &Path, binary: &str) -> Suite {
    let binary = PathBuf::from(binary);
    let stem = binary.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    // Cargo ends the name with a hash.
    let name = stem.rsplit_once('-').map_or(stem.as_str(), |(name, _)| name).to_string();
    Suite { name, binary, folder: folder.into() }
}

/// The test binary that a message of cargo tells of. Cargo writes one JSON object a line, without spaces.
fn test_binary(message: &str) -> Option<&str> {
    let is_test =
        message.contains(r#""reason":"compiler-artifact""#) && message.contains(r#""test":true"#);
    let (_, rest) = message.split_once(r#""executable":""#)?;
    let (binary, _) = rest.split_once('"')?;
    is_test.then_some(binary)
}

/// Runs one suite after the other with the bug active, until a test fails or the time is over.
pub(super) fn run_all(suites: &[Suite], bug: Option<&str>, time_max: Duration) -> Result<Verdict> {
    let end = Instant::now() + time_max;
    for suite in suites {
        match run(suite, bug, end)? {
            Verdict::Passed => {}
            verdict @ (Verdict::Failed(_) | Verdict::TimedOut) => return Ok(verdict),
        }
    }
    Ok(Verdict::Passed)
}

fn run(suite: &Suite, bug: Option<&str>, end: Instant) -> Result<Verdict> {
    let mut child = start(suite, bug)?;
    let lines = lines_of(&mut child);
    let verdict = match watch(&lines, end) {
        Watched::Failed(test) => Verdict::Failed(format!("{}: {test}", suite.name)),
        Watched::TimedOut => Verdict::TimedOut,
        Watched::Ended if child.wait()?.success() => Verdict::Passed,
        Watched::Ended => Verdict::Failed(format!("{}: ended by a crash", suite.name)),
    };
    // What still runs can no longer change the verdict. One that has ended by itself cannot be killed, which is as well.
    let _ = child.kill();
    child.wait()?;
    Ok(verdict)
}

fn start(suite: &Suite, bug: Option<&str>) -> Result<Child> {
    let mut command = Command::new(&suite.binary);
    command.current_dir(&suite.folder).env("CARGO_MANIFEST_DIR", &suite.folder);
    command.env(NO_REGRESSIONS.0, NO_REGRESSIONS.1).env_remove(BUG_VARIABLE);
    command.envs(bug.map(|name| (BUG_VARIABLE, name)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("could not start {}", suite.binary.display()))
}

/// The lines that the suite prints, as they come.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let output = child.stdout.take().expect("its output is piped");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

#[derive(Debug, PartialEq, Eq)]
enum Watched {
    Failed(String),
    TimedOut,
    /// Nothing more will be printed.
    Ended,
}

fn watch(lines: &Receiver<String>, end: Instant) -> Watched {
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(test) = failed_test(&line) {
                    return Watched::Failed(test.into());
                }
            }
            Err(RecvTimeoutError::Timeout) => return Watched::TimedOut,
            Err(RecvTimeoutError::Disconnected) => return Watched::Ended,
        }
    }
}

/// The test that this line says has failed.
fn failed_test(line: &str) -> Option<&str> {
    let test = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(test.trim_end_matches(" - should panic"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binaries_of_tests_are_told_from_other_artifacts() {
        let test = r#"{"reason":"compiler-artifact","profile":{"test":true},"executable":"/t/rules-0a1b"}"#;
        let library =
            r#"{"reason":"compiler-artifact","profile":{"test":false},"executable":null}"#;
        let program =
            r#"{"reason":"compiler-artifact","profile":{"test":false},"executable":"/t/tool"}"#;
        assert_eq!(test_binary(test), Some("/t/rules-0a1b"));
        assert_eq!(test_binary(library), None);
        assert_eq!(test_binary(program), None);
        assert_eq!(test_binary(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn suite_is_named_without_the_hash() {
        assert_eq!(suite(Path::new("."), "/t/deps/state_machine-0a1b").name, "state_machine");
    }

    #[test]
    fn failed_tests_are_told_from_other_lines() {
        assert_eq!(failed_test("test queue::tests::fifo ... FAILED"), Some("queue::tests::fifo"));
        assert_eq!(
            failed_test("test queue::tests::fifo - should panic ... FAILED"),
            Some("queue::tests::fifo")
        );
        assert_eq!(failed_test("test queue::tests::fifo ... ok"), None);
        assert_eq!(failed_test("test result: FAILED. 1 passed; 1 failed"), None);
    }

    #[test]
    fn first_failure_ends_the_watch() {
        let (sender, lines) = channel();
        for line in ["running 2 tests", "test a ... ok", "test b ... FAILED", "test c ... FAILED"] {
            sender.send(line.to_string()).unwrap();
        }
        assert_eq!(
            watch(&lines, Instant::now() + Duration::from_secs(60)),
            Watched::Failed("b".into())
        );
    }

    #[test]
    fn silence_past_the_end_is_a_timeout() {
        let (sender, lines) = channel();
        assert_eq!(watch(&lines, Instant::now()), Watched::TimedOut);
        drop(sender);
        assert_eq!(watch(&lines, Instant::now()), Watched::Ended);
    }

    #[cfg(unix)]
    #[test]
    fn suite_that_crashes_without_a_word_has_failed() {
        let crash = Suite { name: "crash".into(), binary: "false".into(), folder: ".".into() };
        let verdict = run_all(&[crash], None, Duration::from_secs(60)).unwrap();
        assert_eq!(verdict, Verdict::Failed("crash: ended by a crash".into()));
    }

    #[cfg(unix)]
    #[test]
    fn suite_that_ends_well_has_passed() {
        let calm = Suite { name: "calm".into(), binary: "true".into(), folder: ".".into() };
        assert_eq!(
            run_all(&[calm], Some("late"), Duration::from_secs(60)).unwrap(),
            Verdict::Passed
        );
    }
}
