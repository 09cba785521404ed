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
crates/server/planted.txt those in the server, one `name: sentence` a line. The test suites are built once with the feature `planted`. They must pass with
no bug active; then they run once for each bug, which the variable LEASEHOLD_PLANTED names. A bug counts as
found when a test fails within 60 s. Simulated worlds must find every bug but those in the server, which its own tests
must find; the core's own tests must find those in the core.

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
    server: Vec<Suite>,
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
    // Only those that are needed are built.
    let build = |tests, is_needed: bool| match is_needed {
        true => suite::build(root, tests),
        false => Ok(Vec::new()),
    };
    let has = |place| bugs.iter().any(|bug: &Bug| bug.place == place);
    let searchers = Searchers {
        core: build(suite::CORE, has(Place::Core))?,
        sim: build(suite::SIM, has(Place::Core) || has(Place::Around))?,
        server: build(suite::SERVER, has(Place::Server))?,
    };
    for suites in [&searchers.core, &searchers.sim, &searchers.server] {
        without_a_bug(suites)?;
    }
    let width = bugs.iter().map(|bug| bug.name.len()).max().unwrap_or_default();
    println!("{:<width$}  {:>7}  {:>7}  found by", "bug", "tests s", "sim s");
    let mut missed = Vec::new();
    for bug in &bugs {
        let tests = match bug.place {
            Place::Core => Some(try_bug(&searchers.core, bug)?),
            Place::Server => Some(try_bug(&searchers.server, bug)?),
            Place::Around => None,
        };
        let sim = match bug.place {
            Place::Core | Place::Around => Some(try_bug(&searchers.sim, bug)?),
            Place::Server => None,
        };
        println!("{}", row(bug, tests.as_ref(), sim.as_ref(), width));
        let trials = [tests, sim];
        if !trials.iter().flatten().all(Trial::is_found) {
            missed.push(format!("{}: {}", bug.name, bug.sentence));
        }
    }
    if !missed.is_empty() {
        bail!("{} of {} bugs were not found:\n  {}", missed.len(), bugs.len(), missed.join("\n  "));
    }
    Ok(())
}

fn without_a_bug(suites: &[Suite]) -> Result<()> {
    if suites.is_empty() {
        return Ok(());
    }
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

fn row(bug: &Bug, tests: Option<&Trial>, sim: Option<&Trial>, width: usize) -> String {
    let seconds = |trial: &Trial| format!("{:.1}", trial.took.as_secs_f64());
    let found_by = |trial: &Trial| match &trial.verdict {
        Verdict::Failed(test) => test.clone(),
        Verdict::Passed => "NOT FOUND".into(),
        Verdict::TimedOut => "NOT FOUND in time".into(),
    };
    let told: Vec<String> = tests.into_iter().chain(sim).map(found_by).collect();
    let (tests, sim) = (tests.map(seconds), sim.map(seconds));
    let (tests, sim) = (tests.unwrap_or_default(), sim.unwrap_or_default());
    format!("{:<width$}  {tests:>7}  {sim:>7}  {}", bug.name, told.join("; "))
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
        let row = row(&bug(), Some(&tests), Some(&sim), 6);
        assert_eq!(row, "late        1.2      1.2  rules: lease; NOT FOUND in time");
    }
}
