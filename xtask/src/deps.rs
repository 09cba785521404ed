//! What the workspace depends on: licences, sources, and advisories about weaknesses.
//!
//! The rules for licences and sources are those of deny.toml, in the form that cargo-deny reads too. The advisories are a snapshot:
//! nothing is fetched, so the same commit has the same answer every day, and its age is told.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use semver::{Version, VersionReq};
use serde_json::Value;

use crate::Chore;
use crate::cargo::cargo;

pub(crate) const CHORE: Chore = Chore {
    name: "deps",
    args: "",
    about: "Licences, sources and known weaknesses of the dependencies",
    help: "Licences and sources are compared with deny.toml, and no dependency may be open to every version. The
packages of Cargo.lock are compared with xtask/advisories.json, facts of the RustSec database as of the day
that it names: a package with a weakness is a fault, one that is only unmaintained is told. The age of the
snapshot is told too.",
    run: |root, _| check(root),
};

const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// What is built and given out is for Linux; crates for other systems are in the lock file alone.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

pub(crate) fn check(root: &Path) -> Result<()> {
    let rules = std::fs::read_to_string(root.join("deny.toml"))?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock"))?;
    let snapshot = std::fs::read_to_string(root.join("xtask/advisories.json"))?;
    let metadata = metadata(root)?;
    let mut faults = of_packages(&metadata, &allowed(&rules)?)?;
    let known = Advisories::parse(&snapshot)?;
    let locked = locked(&lock)?;
    for (advisory, package) in known.about(&locked) {
        match advisory.kind.as_str() {
            "unmaintained" | "notice" => {
                eprintln!("{}: {package} is {}", advisory.id, advisory.kind)
            }
            kind => faults
                .push(format!("{}: {package} {kind}; patched: {}", advisory.id, advisory.patched)),
        }
    }
    eprintln!(
        "{} packages against {} advisories of {}, which is {} days ago",
        locked.len(),
        known.all.len(),
        known.as_of,
        days_since(&known.as_of)?
    );
    if faults.is_empty() {
        return Ok(());
    }
    bail!("dependencies:\n  {}", faults.join("\n  "))
}

fn metadata(root: &Path) -> Result<Value> {
    let args = ["metadata", "--format-version", "1", "--locked", "--all-features"];
    let output = cargo(root, &[&args[..], &["--filter-platform", PLATFORM]].concat()).output()?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

/// The list `allow` of the section `licenses`.
fn allowed(rules: &str) -> Result<BTreeSet<String>> {
    let (_, section) = rules.split_once("[licenses]").context("deny.toml has no [licenses]")?;
    let (_, list) = section.split_once("allow = [").context("[licenses] has no list `allow`")?;
    let (list, _) = list.split_once("\n]").context("the list `allow` has no end")?;
    let words = list.lines().filter_map(|line| line.trim().strip_prefix('"')?.split_once('"'));
    Ok(words.map(|(word, _)| word.to_owned()).collect())
}

/// Packages that are used, and are not as the rules say.
fn of_packages(metadata: &Value, allowed: &BTreeSet<String>) -> Result<Vec<String>> {
    let nodes = metadata["resolve"]["nodes"].as_array().context("no packages are resolved")?;
    let used: BTreeSet<&str> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().context("there are no packages")? {
        let name = package["name"].as_str().unwrap_or_default();
        if !package["id"].as_str().is_some_and(|id| used.contains(id)) {
            continue;
        }
        match package["license"].as_str() {
            None => faults.push(format!("{name} names no licence")),
            Some(text) if !is_allowed(text, allowed) => {
                faults.push(format!("{name}: licence {text} is not allowed by deny.toml"));
            }
            Some(_) => {}
        }
        match package["source"].as_str() {
            Some(CRATES_IO) => continue,
            Some(source) => faults.push(format!("{name} comes from {source}")),
            None => {}
        }
        let all = package["dependencies"].as_array();
        let open = all
            .into_iter()
            .flatten()
            .filter(|dependency| dependency["req"] == "*" && dependency["path"].is_null());
        faults.extend(open.map(|of| format!("{name}: any version of {} would do", of["name"])));
    }
    Ok(faults)
}

/// Whether an expression of SPDX can be met with what is allowed. The slash is an older `OR`.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    any(&mut rest, allowed) && rest.is_empty()
}

fn any(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut is_met = all(rest, allowed);
    while let ["OR", tail @ ..] = *rest {
        *rest = tail;
        is_met |= all(rest, allowed);
    }
    is_met
}

fn all(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    let mut is_met = one(rest, allowed);
    while let ["AND", tail @ ..] = *rest {
        *rest = tail;
        is_met &= one(rest, allowed);
    }
    is_met
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<String>) -> bool {
    match *rest {
        ["(", tail @ ..] => {
            *rest = tail;
            let is_met = any(rest, allowed);
            let is_closed = rest.first() == Some(&")");
            *rest = rest.get(1..).unwrap_or_default();
            is_met && is_closed
        }
        [licence, "WITH", exception, tail @ ..] => {
            *rest = tail;
            allowed.contains(&format!("{licence} WITH {exception}"))
        }
        [licence, tail @ ..] => {
            *rest = tail;
            allowed.contains(*licence)
        }
        [] => false,
    }
}

struct Advisory {
    id: String,
    package: String,
    kind: String,
    patched: String,
    /// Versions that it is not about.
    good: Vec<VersionReq>,
}

struct Advisories {
    as_of: String,
    all: Vec<Advisory>,
}

impl Advisories {
    fn parse(text: &str) -> Result<Advisories> {
        let value: Value = serde_json::from_str(text).context("xtask/advisories.json")?;
        let all = value["advisories"].as_array().context("it has no advisories")?;
        let all = all.iter().map(|one| {
            let text = |field: &str| one[field].as_str().map(str::to_owned);
            let list = |field: &str| one[field].as_array().cloned().unwrap_or_default();
            let good = list("patched").into_iter().chain(list("unaffected"));
            let good = good.map(|req| Ok(VersionReq::parse(req.as_str().unwrap_or_default())?));
            let id = text("id").context("an advisory without an id")?;
            Ok(Advisory {
                good: good.collect::<Result<_>>().with_context(|| id.clone())?,
                id,
                package: text("package").context("an advisory about no package")?,
                kind: text("informational").unwrap_or_else(|| "has a weakness".into()),
                patched: list("patched")
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(", "),
            })
        });
        let as_of = value["as_of"].as_str().context("it does not say as of when")?;
        Ok(Advisories { as_of: as_of.into(), all: all.collect::<Result<_>>()? })
    }

    fn about<'a>(
        &'a self,
        locked: &'a [(String, Version)],
    ) -> impl Iterator<Item = (&'a Advisory, String)> {
        self.all.iter().flat_map(|advisory| {
            let of_it = locked.iter().filter(|(name, _)| *name == advisory.package);
            let bad =
                of_it.filter(|(_, version)| !advisory.good.iter().any(|req| req.matches(version)));
            bad.map(move |(name, version)| (advisory, format!("{name} {version}")))
        })
    }
}

/// Names and versions in a lock file.
fn locked(lock: &str) -> Result<Vec<(String, Version)>> {
    let field = |package: &str, field: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(" = \""));
        line.and_then(|value| value.strip_suffix('"')).map(str::to_owned)
    };
    let packages = lock.split("[[package]]").skip(1);
    let read = packages.map(|package| {
        let name = field(package, "name").context("a package without a name")?;
        let version = field(package, "version").context("a package without a version")?;
        Ok((name, Version::parse(&version)?))
    });
    read.collect()
}

fn days_since(day: &str) -> Result<u64> {
    let parts: Vec<u64> =
        day.split('-').map(str::parse).collect::<Result<_, _>>().context("as_of")?;
    let [year, month, day] = parts[..] else { bail!("as_of is not a day: {day}") };
    // Days since the first of March of the year 0: leap days come last, so months need no table.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * years + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day - 1;
    let today = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() / 86_400;
    Ok((today + 719_468).saturating_sub(days))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_met_as_their_expression_says() {
        let rules = "[licenses]\nallow = [\n  \"MIT\", # short\n  \"ISC\",\n  \"A WITH B\",\n]\n";
        let allowed = allowed(rules).unwrap();
        for met in
            ["MIT", "GPL-3.0 OR MIT", "MIT/X", "(X OR MIT) AND ISC", "A WITH B", "A WITH C OR ISC"]
        {
            assert!(is_allowed(met, &allowed), "{met}");
        }
        for not in ["", "GPL-3.0", "MIT AND X", "A", "(MIT", "MIT MIT", "X OR (MIT AND Y)"] {
            assert!(!is_allowed(not, &allowed), "{not}");
        }
    }

    #[test]
    fn package_is_found_only_in_versions_that_an_advisory_is_about() {
        let known = Advisories::parse(
            "{\"as_of\":\"2026-01-01\",\"advisories\":[{\"id\":\"R-1\",\"package\":\"a\",\"patched\":[\">= 1.2.3\",\"^0.9.5\"],\
             \"unaffected\":[\"< 0.5.0\"]},{\"id\":\"R-2\",\"package\":\"b\",\"patched\":[],\"informational\":\"unmaintained\"}]}",
        )
        .unwrap();
        let about = |version: &str| {
            let lock =
                format!("version = 4\n\n[[package]]\nname = \"a\"\nversion = \"{version}\"\n");
            known
                .about(&locked(&lock).unwrap())
                .map(|(advisory, _)| advisory.id.clone())
                .collect::<Vec<_>>()
        };
        for bad in ["1.2.2", "0.5.0", "0.9.4", "1.0.0"] {
            assert_eq!(about(bad), ["R-1"], "{bad}");
        }
        for good in ["1.2.3", "2.0.0", "0.4.9", "0.9.5"] {
            assert!(about(good).is_empty(), "{good}");
        }
    }

    #[test]
    fn days_are_counted() {
        let (one, other) = (days_since("2024-02-28").unwrap(), days_since("2024-03-01").unwrap());
        assert_eq!(one - other, 2);
        assert!(days_since("soon").is_err());
    }
}
