//! The list of planted bugs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

const LIST: &str = "crates/core/planted.txt";

/// A bug that can be switched on, and what is wrong then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bug {
    pub(super) name: String,
    pub(super) sentence: String,
}

pub(super) fn read(root: &Path) -> Result<Vec<Bug>> {
    let text =
        fs::read_to_string(root.join(LIST)).with_context(|| format!("could not read {LIST}"))?;
    let bugs = parse(&text)?;
    if bugs.is_empty() {
        bail!("{LIST} lists no bugs");
    }
    Ok(bugs)
}

/// A bug a line; empty lines and those that start with `#` say nothing.
fn parse(text: &str) -> Result<Vec<Bug>> {
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let bugs: Vec<Bug> = lines.map(parse_line).collect::<Result<_>>()?;
    for (at, bug) in bugs.iter().enumerate() {
        if bugs[..at].iter().any(|other| other.name == bug.name) {
            bail!("{LIST} lists {} twice", bug.name);
        }
    }
    Ok(bugs)
}

fn parse_line(line: &str) -> Result<Bug> {
    match line.split_once(": ") {
        Some((name, sentence)) if !name.contains(' ') => {
            Ok(Bug { name: name.into(), sentence: sentence.trim().into() })
        }
        Some(_) | None => bail!("{LIST}: {line:?} is not `name: sentence`"),
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
    use super::*;

    const TEXT: &str =
        "# Bugs.\n\nlate-lapse: a lease lapses late\nstale-fence: a token is reused\n";

    fn names(bugs: &[Bug]) -> Vec<&str> {
        bugs.iter().map(|bug| bug.name.as_str()).collect()
    }

    #[test]
    fn lines_name_bugs() {
        let bugs = parse(TEXT).unwrap();
        assert_eq!(names(&bugs), ["late-lapse", "stale-fence"]);
        assert_eq!(bugs[0].sentence, "a lease lapses late");
    }

    #[test]
    fn other_lines_are_faults() {
        for text in ["late-lapse", "a lease: lapses late", "a: one\na: two"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn named_bugs_are_chosen() {
        let chosen = choose(parse(TEXT).unwrap(), &["stale-fence".to_string()]).unwrap();
        assert_eq!(names(&chosen), ["stale-fence"]);
        assert_eq!(choose(parse(TEXT).unwrap(), &[]).unwrap().len(), 2);
    }

    #[test]
    fn unknown_bug_is_refused_with_the_known_ones() {
        let fault = choose(parse(TEXT).unwrap(), &["late".to_string()]).unwrap_err();
        let expected = "there is no planted bug \"late\"; there are: late-lapse, stale-fence";
        assert_eq!(fault.to_string(), expected);
    }
}
