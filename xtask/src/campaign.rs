//! Campaigns: the long forms of what the tests do shortly, for as long as one has, added up on a page.

mod page;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{cargo, run};
use crate::fuzz::seconds;
use crate::{Chore, needs, test};
use page::{Page, Row};

pub(crate) const CHORE: Chore = Chore {
    name: "campaign",
    args: "KIND [--for 20m]",
    about: "Search for faults for as long as one has, and add it up in docs/assurance.md",
    help: "KIND is one of
  worlds      simulated worlds, each with a seed that no campaign has lived through yet
  shell       worlds with the real server and SDK on a simulated network
  kills       a server that is killed again and again while clients are at work
  power       power cuts, with two planted controls that must be noticed; takes root
  pauses      holders that are stopped for longer than their ttl
  trials      commands under `leasehold run` whose wrapper, guard or server is killed or stopped
  operations  histories of all transports and SDKs, judged
  storms      three servers on PostgreSQL and on etcd, with faults in all of them

A round is a run of the test in question, with random numbers of its own; the next round begins until the time is over
(s, m or h; 20 minutes without --for). After each the page has a new sum for the commit, so a campaign can be ended at any
time and goes on where it was. The output of a round that failed is kept in target/campaign; the third one that fails ends
the campaign. What is not committed makes a commit of its own, with a plus sign.",
    run: |root, args| {
        let (kind, length) = wanted(args)?;
        campaign(root, kind, length)
    },
};

/// One kind of campaign.
struct Kind {
    name: &'static str,
    /// What cargo is asked for; `@FIRST` and `@END` stand for the seeds of a round.
    round: &'static [&'static str],
    /// How many seeds a round uses up.
    seeds: u64,
    /// What is counted: the text that follows a number in the output, and what the page calls it.
    counts: &'static [(&'static str, &'static str)],
}

const E2E: [&str; 6] = ["test", "--locked", "-p", "leasehold-cli", "-p", "leasehold-e2e"];
const WORLDS: [&str; 5] = ["run", "--locked", "--quiet", "-p", "leasehold-sim"];
const SHELL: [&str; 4] = ["test", "--locked", "-p", "leasehold-shell"];

const KINDS: &[Kind] = &[
    Kind {
        name: "worlds",
        round: &["--", "--seeds", "@FIRST..@END"],
        seeds: 200,
        counts: &[(" seeds, ", "worlds"), (" simulated hours", "simulated hours")],
    },
    Kind {
        name: "shell",
        round: &["--test", "worlds", "many_worlds", "--", "--nocapture"],
        seeds: 240,
        counts: &[(" worlds: ", "worlds")],
    },
    Kind {
        name: "kills",
        round: &["--test", "kill", "killed_server", "--", "--nocapture"],
        seeds: 1,
        counts: &[(" kills, ", "kills")],
    },
    Kind {
        name: "power",
        round: &["--test", "powercut", "--", "--ignored", "--nocapture", "--test-threads", "1"],
        seeds: 1,
        counts: &[(" cuts: ", "cuts"), (" cuts with ", "cuts with a planted fault, noticed")],
    },
    Kind {
        name: "pauses",
        round: &["--test", "fail_fast", "--", "--nocapture"],
        seeds: 1,
        counts: &[(" workers stopped ", "pauses")],
    },
    Kind {
        name: "trials",
        round: &["--test", "zombies", "--", "--nocapture"],
        seeds: 1,
        counts: &[(" trials; ", "trials")],
    },
    Kind {
        name: "operations",
        round: &["--test", "history", "--test", "sdks", "histor", "--", "--nocapture"],
        seeds: 1,
        counts: &[(" operations in ", "operations judged")],
    },
    Kind {
        name: "storms",
        round: &[
            "--test",
            "cluster",
            "live_through_a_storm",
            "--",
            "--nocapture",
            "--test-threads",
            "1",
        ],
        seeds: 1,
        counts: &[(" faults in ", "faults"), (" operations to judge", "operations judged")],
    },
];

const FAILED_MAX: u64 = 3;

fn wanted(args: &[String]) -> Result<(&'static Kind, Duration)> {
    let (name, rest) =
        args.split_first().context("name a kind: see `cargo xtask campaign --help`")?;
    let kind = KINDS.iter().find(|kind| kind.name == name);
    let kind = kind.with_context(|| format!("there is no campaign {name:?}"))?;
    let length = match rest {
        [] => 20 * 60,
        [flag, length] if flag == "--for" => seconds(length)?,
        _ => bail!("only --for LENGTH may follow the kind"),
    };
    Ok((kind, Duration::from_secs(length)))
}

fn campaign(root: &Path, kind: &Kind, length: Duration) -> Result<()> {
    kind.prepare(root)?;
    let began = Instant::now();
    let commit = commit(root)?;
    let mut failed = 0;
    loop {
        let mut page = Page::read(root)?;
        let first = page.rounds(kind.name) * kind.seeds;
        let started = Instant::now();
        let round = kind.run_round(root, first)?;
        let (is_success, output) = (round.status.success(), String::from_utf8_lossy(&round.stdout));
        let row = Row {
            kind: kind.name.into(),
            commit: commit.clone(),
            seconds: started.elapsed().as_secs(),
            rounds: 1,
            failed: u64::from(!is_success),
            counts: kind.counted(&output),
        };
        if !is_success {
            failed += 1;
            keep(&format!("{}-{commit}-{first}.txt", kind.name), &round)?;
        }
        eprintln!(
            "{}: {} min of {}, {}",
            kind.name,
            began.elapsed().as_secs() / 60,
            length.as_secs() / 60,
            row.summary()
        );
        page.add(row);
        page.write(root)?;
        if began.elapsed() >= length || failed == FAILED_MAX {
            break;
        }
    }
    ensure!(failed == 0, "{failed} rounds failed: their output is in target/campaign");
    Ok(())
}

impl Kind {
    /// The call of cargo that all rounds share; another choice of packages would be another build.
    fn call(&self) -> &'static [&'static str] {
        match self.name {
            "worlds" => &WORLDS,
            "shell" => &SHELL,
            _ => &E2E,
        }
    }

    fn is_of_processes(&self) -> bool {
        !matches!(self.name, "worlds" | "shell")
    }

    /// Builds it first: what does not compile is no fault that was found.
    fn prepare(&self, root: &Path) -> Result<()> {
        if self.is_of_processes() {
            needs::install()?;
        }
        let mut build = cargo(root, self.call());
        match self.call()[0] {
            "test" => run(build.arg("--no-run")),
            _ => run(build.args(["--", "--seeds", "0..0"]).stdout(Stdio::null())),
        }
    }

    fn run_round(&self, root: &Path, first: u64) -> Result<Output> {
        let mut command = cargo(root, self.call());
        for word in self.round {
            let word = word.replace("@FIRST", &first.to_string());
            command.arg(word.replace("@END", &(first + self.seeds).to_string()));
        }
        command.env("LEASEHOLD_SEED", first.to_string());
        if self.is_of_processes() {
            command.env("LEASEHOLD_BIN", test::server(root));
        }
        command.output().context("could not start cargo")
    }

    /// What the output tells, in the order of `counts`; a part that is never told of is zero.
    fn counted(&self, output: &str) -> Vec<(String, u64)> {
        let sum = |after: &str| numbers_before(output, after).sum();
        self.counts.iter().map(|(after, name)| ((*name).to_string(), sum(after))).collect()
    }
}

/// The whole part of each number that stands right before `after`.
fn numbers_before<'a>(text: &'a str, after: &'a str) -> impl Iterator<Item = u64> + 'a {
    text.match_indices(after).filter_map(|(at, _)| {
        let before = &text[..at];
        let digits = before.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |at| at + 1);
        before.get(digits..)?.split('.').next()?.parse().ok()
    })
}

/// The commit that is looked at.
fn commit(root: &Path) -> Result<String> {
    let git = |args: &[&str]| -> Result<String> {
        let output = Command::new("git").args(args).current_dir(root).output()?;
        ensure!(output.status.success(), "git does not tell the commit");
        Ok(String::from_utf8(output.stdout)?.trim().into())
    };
    let changed = git(&["status", "--porcelain", "--", ".", ":!docs/assurance.md"])?;
    let plus = if changed.is_empty() { "" } else { "+" };
    Ok(git(&["rev-parse", "--short=10", "HEAD"])? + plus)
}

fn keep(name: &str, round: &Output) -> Result<()> {
    let folder = needs::tools_folder()?.with_file_name("campaign");
    fs::create_dir_all(&folder)?;
    let path = folder.join(name);
    eprintln!("failed: {}", path.display());
    let mut file = fs::File::create(path)?;
    file.write_all(&round.stdout)?;
    Ok(file.write_all(&round.stderr)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_what_the_tests_print() {
        let output = "50 cuts: 812 acknowledged, 0 lost\n10 cuts with synchronous = NORMAL: 9 acknowledged\n\
            5 cuts with syncs that lie: 4 acknowledged\n";
        let power = KINDS.iter().find(|kind| kind.name == "power").unwrap();
        let counts: Vec<u64> = power.counted(output).into_iter().map(|(_, count)| count).collect();
        assert_eq!(counts, [50, 15]);
        let worlds = "200 seeds, 83.7 simulated hours in 4.1 s";
        assert_eq!(numbers_before(worlds, " simulated hours").sum::<u64>(), 83);
        assert_eq!(numbers_before("no kills, ", " kills, ").count(), 0);
    }

    #[test]
    fn every_kind_is_in_the_help_and_counts_something() {
        for kind in KINDS {
            assert!(CHORE.help.contains(&format!("\n  {} ", kind.name)), "{}", kind.name);
            assert!(!kind.counts.is_empty() && kind.seeds > 0, "{}", kind.name);
        }
    }

    #[test]
    fn a_length_may_follow_the_kind() {
        let args =
            |words: &[&str]| words.iter().map(|word| (*word).into()).collect::<Vec<String>>();
        let (kind, length) = wanted(&args(&["storms", "--for", "2h"])).unwrap();
        assert_eq!((kind.name, length.as_secs()), ("storms", 7200));
        assert_eq!(wanted(&args(&["kills"])).unwrap().1.as_secs(), 1200);
        for wrong in [&["cuts"][..], &["kills", "2h"], &[]] {
            assert!(wanted(&args(wrong)).is_err(), "{wrong:?}");
        }
    }
}
