//! Runs the tests once for each bug that was planted. Tests that do not find a planted bug would not find a real one
//! either.

mod list;
mod suite;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::Chore;
use list::{Bug, Place};
use suite::{Suite, Verdict};

pub(crate) const CHORE: Chore = Chore {
    name: "planted",
    args: "[NAME…]",
    about: "Show that tests and simulation find each planted bug",
    help: "crates/core/planted.txt lists the bugs in the core, crates/sim/planted.txt those in engine, store and client,
one `name: sentence` a line. The test suites are built once with the feature `planted`. They must pass with
no bug active; then they run once for each bug, which the variable LEASEHOLD_PLANTED names. A bug counts as
found when a test fails within 60 s. Simulated worlds must find every bug, the core's own tests those in the core.

With NAMEs only those bugs are tried.",
    run: planted,
};

const BUG_TIME_MAX: Duration = Duration::from_secs(60);
/// Only there so that a test that hangs does not hang us.
const CLEAN_TIME_MAX: Duration = Duration::from_secs(600);

/// Those who look for bugs.
struct Searchers {
    core: Vec<Suite>,
    sim: Vec<Suite>,
}

/// How one bug fared with one of them.
struct Trial {
    verdict: Verdict,
    took: Duration,
}

impl Trial {
    fn is_found(&self) -> bool {
        matches!(self.verdict, Verdict::Failed(_))
    }
}

fn planted(root: &Path, names: &[String]) -> Result<()> {
    let bugs = list::choose(list::read(root)?, names)?;
    let searchers =
        Searchers { core: suite::build(root, suite::CORE)?, sim: suite::build(root, suite::SIM)? };
    without_a_bug(&searchers.core)?;
    without_a_bug(&searchers.sim)?;
    let width = bugs.iter().map(|bug| bug.name.len()).max().unwrap_or_default();
    println!("{:<width$}  {:>7}  {:>7}  found by", "bug", "tests s", "sim s");
    let mut missed = Vec::new();
    for bug in &bugs {
        let tests = match bug.place {
            Place::Core => Some(try_bug(&searchers.core, bug)?),
            Place::Around => None,
        };
        let sim = try_bug(&searchers.sim, bug)?;
        println!("{}", row(bug, tests.as_ref(), &sim, width));
        if !sim.is_found() || tests.is_some_and(|tests| !tests.is_found()) {
            missed.push(format!("{}: {}", bug.name, bug.sentence));
        }
    }
    if !missed.is_empty() {
        bail!("{} of {} bugs were not found:\n  {}", missed.len(), bugs.len(), missed.join("\n  "));
    }
    Ok(())
}

fn without_a_bug(suites: &[Suite]) -> Result<()> {
    eprintln!("{} test suites, no bug active", suites.len());
    match suite::run_all(suites, None, CLEAN_TIME_MAX)? {
        Verdict::Passed => Ok(()),
        Verdict::Failed(test) => bail!("with no bug active {test} fails"),
        Verdict::TimedOut => bail!("with no bug active the tests run for too long"),
    }
}

fn try_bug(suites: &[Suite], bug: &Bug) -> Result<Trial> {
    let start = Instant::now();
    let verdict = suite::run_all(suites, Some(&bug.name), BUG_TIME_MAX)?;
    Ok(Trial { verdict, took: start.elapsed() })
}

fn row(bug: &Bug, tests: Option<&Trial>, sim: &Trial, width: usize) -> String {
    let seconds = |trial: &Trial| format!("{:.1}", trial.took.as_secs_f64());
    let found_by = |trial: &Trial| match &trial.verdict {
        Verdict::Failed(test) => test.clone(),
        Verdict::Passed => "NOT FOUND".into(),
        Verdict::TimedOut => "NOT FOUND in time".into(),
    };
    let told: Vec<String> = tests.into_iter().chain([sim]).map(found_by).collect();
    let tests = tests.map(seconds).unwrap_or_default();
    format!("{:<width$}  {tests:>7}  {:>7}  {}", bug.name, seconds(sim), told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bug() -> Bug {
        Bug { name: "late".into(), sentence: "leases lapse late".into(), place: Place::Core }
    }

    fn trial(verdict: Verdict) -> Trial {
        Trial { verdict, took: Duration::from_millis(1234) }
    }

    #[test]
    fn only_a_failing_test_counts_as_found() {
        assert!(trial(Verdict::Failed("rules: lease".into())).is_found());
        assert!(!trial(Verdict::Passed).is_found());
        assert!(!trial(Verdict::TimedOut).is_found());
    }

    #[test]
    fn row_names_bug_times_and_tests() {
        let (tests, sim) =
            (trial(Verdict::Failed("rules: lease".into())), trial(Verdict::TimedOut));
        let row = row(&bug(), Some(&tests), &sim, 6);
        assert_eq!(row, "late        1.2      1.2  rules: lease; NOT FOUND in time");
    }
}
