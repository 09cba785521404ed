//! Everything that stands before a release, and its tag.

mod versions;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{cargo, run};
use crate::{Chore, bench, book, check, dist, fuzz, platforms};
use dist::VERSION;

pub(crate) const CHORE: Chore = Chore {
    name: "release",
    args: "--dry-run [STEP…]",
    about: "Do everything that stands before a release, and tag it",
    help: "The steps, which stop at the first that fails:
  versions    workspace, SDKs, action and manifests have one version, the changelog has a section for it, and its files are kept
  tree        everything is committed
  check       cargo xtask check, with licences and advisories of the dependencies
  fuzz        each target of the fuzzer for half a minute
  platforms   both compile for macOS and Windows: see `cargo xtask platforms --help`
  crates      leasehold-api and leasehold-client can be published: cargo publish --dry-run
  book        the documentation as a book, all links valid: see `cargo xtask book --help`
  dist        packages, image, bill of materials and checksums: see `cargo xtask dist --help`
  bench       the benchmark of clients, which writes the table of the documentation
  tag         the tag, of what is committed; it is pushed by hand, and so are packages and crates

With --dry-run the changelog may still say Unreleased, changes need not be committed, the benchmark is short and writes
nothing, and no tag is made. With STEPs only those are done.",
    run: release,
};

/// A step of a release.
struct Step {
    name: &'static str,
    run: fn(&Path, Mode) -> Result<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Dry,
    Real,
}

const STEPS: &[Step] = &[
    Step { name: "versions", run: versions::agree },
    Step { name: "tree", run: tree },
    Step { name: "check", run: |root, _| (check::CHORE.run)(root, &[]) },
    Step { name: "fuzz", run: |root, _| (fuzz::CHORE.run)(root, &[]) },
    Step { name: "platforms", run: |root, _| (platforms::CHORE.run)(root, &[]) },
    Step { name: "crates", run: crates },
    Step { name: "book", run: |root, _| (book::CHORE.run)(root, &[]) },
    Step { name: "dist", run: |root, _| (dist::CHORE.run)(root, &[]) },
    Step { name: "bench", run: bench },
    Step { name: "tag", run: tag },
];

fn release(root: &Path, args: &[String]) -> Result<()> {
    let (mode, steps) = wanted(args)?;
    for step in steps {
        eprintln!("== {}", step.name);
        (step.run)(root, mode).with_context(|| format!("step {} failed", step.name))?;
    }
    Ok(())
}

fn wanted(args: &[String]) -> Result<(Mode, Vec<&'static Step>)> {
    let is_dry = |arg: &&String| *arg == "--dry-run";
    let mode = if args.iter().any(|arg| is_dry(&arg)) { Mode::Dry } else { Mode::Real };
    let named: Vec<_> = args.iter().filter(|arg| !is_dry(arg)).collect();
    if named.is_empty() {
        return Ok((mode, STEPS.iter().collect()));
    }
    let found = named.into_iter().map(|name| {
        let step = STEPS.iter().find(|step| step.name == name);
        step.with_context(|| format!("there is no step {name:?}: see `cargo xtask release --help`"))
    });
    Ok((mode, found.collect::<Result<_>>()?))
}

fn tree(root: &Path, mode: Mode) -> Result<()> {
    let changed = git(root, &["status", "--porcelain"])?;
    if mode == Mode::Real {
        ensure!(changed.is_empty(), "not everything is committed:\n{changed}");
    }
    Ok(())
}

/// Both in one call: the second is built with the first as it is packed.
fn crates(root: &Path, mode: Mode) -> Result<()> {
    let packages = ["-p", "leasehold-api", "-p", "leasehold-client"];
    let mut publish = cargo(root, &["publish", "--dry-run", "--locked"]);
    if mode == Mode::Dry {
        publish.arg("--allow-dirty");
    }
    run(publish.args(packages))
}

fn bench(root: &Path, mode: Mode) -> Result<()> {
    if mode == Mode::Real {
        return (bench::CHORE.run)(root, &["--write".into()]);
    }
    let short = ["bench", "--package", "leasehold-cli", "--bench", "clients", "--", "sdk"];
    let mut command = cargo(root, &short);
    run(command.env("LEASEHOLD_BENCH_TURNS", "1").env("LEASEHOLD_BENCH_SECONDS", "1"))
}

fn tag(root: &Path, mode: Mode) -> Result<()> {
    let tag = format!("v{VERSION}");
    if !git(root, &["tag", "--list", &tag])?.is_empty() {
        bail!("{tag} is there already");
    }
    if mode == Mode::Dry {
        eprintln!("{tag} would be made");
        return Ok(());
    }
    tree(root, mode).context("the benchmark has new figures: commit them, and begin again")?;
    run(Command::new("git")
        .args(["tag", "--annotate", &tag, "--message", &tag])
        .current_dir(root))?;
    eprintln!(
        "to publish: git push origin {tag}; cargo publish -p leasehold-api -p leasehold-client"
    );
    Ok(())
}

fn git(root: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("git").args(args).current_dir(root).output()?;
    ensure!(output.status.success(), "git {} failed", args.join(" "));
    Ok(String::from_utf8(output.stdout)?.trim().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_in_the_help() {
        for step in STEPS {
            assert!(CHORE.help.contains(&format!("\n  {} ", step.name)), "{}", step.name);
        }
    }

    #[test]
    fn steps_can_be_chosen() {
        let args =
            |words: &[&str]| words.iter().map(|word| (*word).into()).collect::<Vec<String>>();
        let (mode, steps) = wanted(&args(&["--dry-run"])).unwrap();
        assert_eq!((mode, steps.len()), (Mode::Dry, STEPS.len()));
        let (mode, steps) = wanted(&args(&["book"])).unwrap();
        assert_eq!((mode, steps.len(), steps[0].name), (Mode::Real, 1, "book"));
        assert!(wanted(&args(&["ship"])).is_err());
    }
}
