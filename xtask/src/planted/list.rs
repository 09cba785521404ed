//! The list of planted bugs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Bugs in the core, in what lies around it, and in the server.
const LISTS: [(&str, Place); 3] = [
    ("crates/core/planted.txt", Place::Core),
    ("crates/sim/planted.txt", Place::Around),
    ("crates/server/planted.txt", Place::Server),
];

/// Where a bug was planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Core,
    /// In the engine, a store or the client: only simulated worlds have them all.
    Around,
    /// In the server, where the simulator does not come: its own tests look.
    Server,
}

/// A bug that can be switched on, and what is wrong then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bug {
    pub(super) name: String,
    pub(super) sentence: String,
    pub(super) place: Place,
}

pub(super) fn read(root: &Path) -> Result<Vec<Bug>> {
    let mut all = Vec::new();
    for (list, place) in LISTS {
        let text = fs::read_to_string(root.join(list));
        let text = text.with_context(|| format!("could not read {list}"))?;
        let bugs = parse(&text, place).with_context(|| format!("{list} is not as it should be"))?;
        if bugs.is_empty() {
            bail!("{list} lists no bugs");
        }
        all.extend(bugs);
    }
    Ok(all)
}

/// A bug a line; empty lines and those that start with `#` say nothing.
fn parse(text: &str, place: Place) -> Result<Vec<Bug>> {
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let bugs: Vec<Bug> = lines.map(|line| parse_line(line, place)).collect::<Result<_>>()?;
    for (at, bug) in bugs.iter().enumerate() {
        if bugs[..at].iter().any(|other| other.name == bug.name) {
            bail!("{} is there twice", bug.name);
        }
    }
    Ok(bugs)
}

fn parse_line(line: &str, place: Place) -> Result<Bug> {
    match line.split_once(": ") {
        Some((name, sentence)) if !name.contains(' ') => {
            Ok(Bug { name: name.into(), sentence: sentence.trim().into(), place })
        }
        Some(_) | None => bail!("{line:?} is not `name: sentence`"),
    }
}

/// Those that are named; all if none is.
pub(super) fn choose(bugs: Vec<Bug>, names: &[String]) -> Result<Vec<Bug>> {
    if names.is_empty() {
        return Ok(bugs);
    }
    names.iter().map(|name| find(&bugs, name)).collect()
}

fn find(bugs: &[Bug], name: &str) -> Result<Bug> {
    match bugs.iter().find(|bug| bug.name == name) {
        Some(bug) => Ok(bug.clone()),
        None => {
            let known: Vec<&str> = bugs.iter().map(|bug| bug.name.as_str()).collect();
            bail!("there is no planted bug {name:?}; there are: {}", known.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const TEXT: &str =
        "# Bugs.\n\nlate-lapse: a lease lapses late\nstale-fence: a token is reused\n";

    fn names(bugs: &[Bug]) -> Vec<&str> {
        bugs.iter().map(|bug| bug.name.as_str()).collect()
    }

    /// The names in the hooks of all sources below a folder.
    fn hooks(folder: &Path, place: Place, names: &mut BTreeSet<(String, Place)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                hooks(&path, place, names);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = fs::read_to_string(&path).unwrap();
                let hooks = source.split("planted!(").skip(1);
                let named = hooks.filter_map(|rest| rest.trim_start().strip_prefix('"'));
                let named = named.filter_map(|rest| rest.split_once('"'));
                names.extend(named.map(|(name, _)| (name.to_owned(), place)));
            }
        }
    }

    #[test]
    fn every_hook_is_described_and_every_description_has_its_hook() {
        let root = crate::workspace::root();
        let described: BTreeSet<_> =
            read(&root).unwrap().into_iter().map(|bug| (bug.name, bug.place)).collect();
        let mut hooked = BTreeSet::new();
        for part in fs::read_dir(root.join("crates")).unwrap() {
            let part = part.unwrap().path();
            let place = match part.file_name().unwrap().to_str().unwrap() {
                "core" => Place::Core,
                "server" | "access" => Place::Server,
                _ => Place::Around,
            };
            hooks(&part.join("src"), place, &mut hooked);
        }
        assert_eq!(hooked, described);
    }

    #[test]
    fn lines_name_bugs() {
        let bugs = parse(TEXT, Place::Core).unwrap();
        assert_eq!(names(&bugs), ["late-lapse", "stale-fence"]);
        assert_eq!(bugs[0].sentence, "a lease lapses late");
    }

    #[test]
    fn other_lines_are_faults() {
        for text in ["late-lapse", "a lease: lapses late", "a: one\na: two"] {
            assert!(parse(text, Place::Core).is_err(), "{text}");
        }
    }

    #[test]
    fn named_bugs_are_chosen() {
        let chosen =
            choose(parse(TEXT, Place::Core).unwrap(), &["stale-fence".to_string()]).unwrap();
        assert_eq!(names(&chosen), ["stale-fence"]);
        assert_eq!(choose(parse(TEXT, Place::Core).unwrap(), &[]).unwrap().len(), 2);
    }

    #[test]
    fn unknown_bug_is_refused_with_the_known_ones() {
        let fault = choose(parse(TEXT, Place::Core).unwrap(), &["late".to_string()]).unwrap_err();
        let expected = "there is no planted bug \"late\"; there are: late-lapse, stale-fence";
        assert_eq!(fault.to_string(), expected);
    }
}
