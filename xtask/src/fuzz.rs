//! Lets a fuzzer look for input that makes something panic.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::Chore;
use crate::cargo::{cargo, run};

pub(crate) const CHORE: Chore = Chore {
    name: "fuzz",
    args: "[TARGET] [--for 30s]",
    about: "Look for input that makes something panic",
    help: "Runs one target of `fuzz/fuzz_targets`, or each of them in turn, for half a minute or as long as `--for` says
(s, m or h). It is not part of `check`. cargo-fuzz is installed with `cargo install` if it is missing.

What was found lies in `fuzz/artifacts/TARGET`. To see it happen again:
  RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none TARGET fuzz/artifacts/TARGET/crash-…

The corpus in the tree is small and written by hand. What a run adds to it is not kept: remove it, or keep the few
inputs that show something new.",
    run: fuzz,
};

fn fuzz(root: &Path, args: &[String]) -> Result<()> {
    let Wanted { target, seconds } = wanted(args)?;
    let targets = match target {
        Some(target) => vec![target],
        None => targets(root)?,
    };
    install(root)?;
    for target in targets {
        let time = format!("-max_total_time={seconds}");
        let args =
            ["fuzz", "run", "--sanitizer", "none", &target, "--", &time, "-rss_limit_mb=2048"];
        // The flags of the instrumentation are not stable ones.
        run(cargo(root, &args).env("RUSTC_BOOTSTRAP", "1"))
            .with_context(|| format!("{target}: what was found is in fuzz/artifacts/{target}"))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    target: Option<String>,
    seconds: u64,
}

fn wanted(args: &[String]) -> Result<Wanted> {
    let mut wanted = Wanted { target: None, seconds: 30 };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--for" => wanted.seconds = seconds(args.next().context("--for takes a length")?)?,
            name if !name.starts_with('-') && wanted.target.is_none() => {
                wanted.target = Some(name.into());
            }
            other => bail!("{other} is not known: see `cargo xtask fuzz --help`"),
        }
    }
    Ok(wanted)
}

pub(crate) fn seconds(text: &str) -> Result<u64> {
    let (number, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        other => bail!("{other:?} is no unit: s, m or h"),
    };
    let number: u64 = number.parse().with_context(|| format!("{text:?} is no length of time"))?;
    Ok(number.saturating_mul(factor))
}

/// All of them, by the names of their files.
fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

fn install(root: &Path) -> Result<()> {
    let mut probe = cargo(root, &["fuzz", "--version"]);
    let found = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_ok_and(|status| status.success()) {
        return Ok(());
    }
    eprintln!("cargo-fuzz is not installed: it is installed now");
    run(&mut cargo(root, &["install", "--locked", "cargo-fuzz"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(args: &[&str]) -> Result<Wanted> {
        wanted(&args.iter().map(|&arg| arg.into()).collect::<Vec<String>>())
    }

    #[test]
    fn all_targets_for_half_a_minute_unless_told_otherwise() {
        assert_eq!(asked(&[]).unwrap(), Wanted { target: None, seconds: 30 });
        let one = Wanted { target: Some("names".into()), seconds: 120 };
        assert_eq!(asked(&["names", "--for", "2m"]).unwrap(), one);
    }

    #[test]
    fn what_cannot_be_understood_is_refused() {
        for args in [&["--for"][..], &["--for", "soon"], &["--for", "2d"], &["--fast"], &["a", "b"]]
        {
            assert!(asked(args).is_err(), "{args:?}");
        }
    }

    #[test]
    fn every_target_is_built_and_has_a_corpus() {
        let root = crate::workspace::root();
        let manifest = std::fs::read_to_string(root.join("fuzz/Cargo.toml")).unwrap();
        let targets = targets(&root).unwrap();
        assert!(!targets.is_empty());
        for target in targets {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target}");
            let corpus = root.join("fuzz/corpus").join(&target);
            assert!(corpus.read_dir().is_ok_and(|mut files| files.next().is_some()), "{target}");
        }
    }
}
