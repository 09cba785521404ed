//! Runs the core's tests once for each bug that was planted in it. Tests that do not find a planted bug would not
//! find a real one either.

mod list;
mod suite;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::Chore;
use list::Bug;
use suite::{Suite, Verdict};

pub(crate) const CHORE: Chore = Chore {
    name: "planted",
    args: "[NAME…]",
    about: "Show that the tests find each bug planted in the core",
    help: "crates/core/planted.txt lists the bugs, one `name: sentence` a line. The test suites of the core are
built once with the feature `planted`. They must pass with no bug active; then they run once for each
bug, which the variable LEASEHOLD_PLANTED names. A bug counts as found when a test fails within 60 s.

With NAMEs only those bugs are tried.",
    run: planted,
};

const BUG_TIME_MAX: Duration = Duration::from_secs(60);
/// Only there so that a test that hangs does not hang us.
const CLEAN_TIME_MAX: Duration = Duration::from_secs(600);

/// How one bug fared.
struct Trial<'a> {
    bug: &'a Bug,
    verdict: Verdict,
    took: Duration,
}

impl Trial<'_> {
    fn is_found(&self) -> bool {
        matches!(self.verdict, Verdict::Failed(_))
    }
}

fn planted(root: &Path, names: &[String]) -> Result<()> {
    let bugs = list::choose(list::read(root)?, names)?;
    let suites = suite::build(root)?;
    without_a_bug(&suites)?;
    let width = bugs.iter().map(|bug| bug.name.len()).max().unwrap_or_default();
    println!("{:<width$}  {:>7}  found by", "bug", "seconds");
    let mut missed = Vec::new();
    for bug in &bugs {
        let trial = try_bug(&suites, bug)?;
        println!("{}", row(&trial, width));
        if !trial.is_found() {
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

fn try_bug<'a>(suites: &[Suite], bug: &'a Bug) -> Result<Trial<'a>> {
    let start = Instant::now();
    let verdict = suite::run_all(suites, Some(&bug.name), BUG_TIME_MAX)?;
    Ok(Trial { bug, verdict, took: start.elapsed() })
}

fn row(trial: &Trial<'_>, width: usize) -> String {
    let found_by = match &trial.verdict {
        Verdict::Failed(test) => test.as_str(),
        Verdict::Passed => "NOT FOUND",
        Verdict::TimedOut => "NOT FOUND in time",
    };
    format!("{:<width$}  {:>7.1}  {found_by}", trial.bug.name, trial.took.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trial(bug: &Bug, verdict: Verdict) -> Trial<'_> {
        Trial { bug, verdict, took: Duration::from_millis(1234) }
    }

    #[test]
    fn only_a_failing_test_counts_as_found() {
        let bug = Bug { name: "late".into(), sentence: "leases lapse late".into() };
        assert!(trial(&bug, Verdict::Failed("rules: lease".into())).is_found());
        assert!(!trial(&bug, Verdict::Passed).is_found());
        assert!(!trial(&bug, Verdict::TimedOut).is_found());
    }

    #[test]
    fn row_names_bug_time_and_test() {
        let bug = Bug { name: "late".into(), sentence: "leases lapse late".into() };
        let row = row(&trial(&bug, Verdict::Failed("rules: lease".into())), 6);
        assert_eq!(row, "late        1.2  rules: lease");
    }
}
