//! The rules of the repository itself: those that no compiler and no linter knows.
//!
//! Each rule is a function from a file's text to its faults, so that each can be seen to fail in a test.

mod arrows;
mod files;
mod layers;
mod links;
mod manifest;
mod names;
mod purity;
mod sleeps;
mod text;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};

use crate::Chore;
use files::File;

pub(crate) const CHORE: Chore = Chore {
    name: "tidy",
    args: "",
    about: "Check the rules of the repository itself",
    help:
        "Every Rust file opens with `//!`. No file has a marker of unfinished work or a path of one
developer's machine. Versions of dependencies stand in the workspace's Cargo.toml only, and none
comes from git. Crates use each other only along the arrows in ARCHITECTURE.md. The core reads no
clock, touches no disk or network, and has nothing whose order differs from run to run. Inside the
server transports do not know each other, and the service knows no transport. Tests do not
sleep, but for those of the real binary and what polls in files named `polling.rs`. Relative links
between pages lead to files and headings that are there. Pages, help and doc comments have none of
the words that the glossary replaces, and the types of the glossary are defined once.",
    run: |root, _| tidy(root),
};

pub(crate) fn tidy(root: &Path) -> Result<()> {
    let files = files::read(root)?;
    let mut faults = faults(&files);
    faults.extend(links::faults(&files, root));
    for fault in &faults {
        eprintln!("{fault}");
    }
    match faults.len() {
        0 => {
            eprintln!("tidy: {} files are in order", files.len());
            Ok(())
        }
        1 => bail!("tidy found a fault"),
        many => bail!("tidy found {many} faults"),
    }
}

fn faults(files: &[File]) -> Vec<Fault> {
    let mut faults: Vec<Fault> = files.iter().flat_map(faults_in).collect();
    faults.extend(arrows::faults(files));
    faults.extend(names::faults(files));
    faults
}

fn faults_in(file: &File) -> Vec<Fault> {
    let found = match file.path.rsplit_once('.') {
        Some((_, "rs")) => [
            text::rust(&file.text),
            purity::faults(file),
            sleeps::faults(file),
            layers::faults(file),
        ]
        .concat(),
        _ if file.name() == "Cargo.toml" => manifest::faults(&file.text),
        _ => Vec::new(),
    };
    let found = found.into_iter().chain(text::any(&file.text)).chain(words::faults(file));
    found.map(|found| Fault { path: file.path.clone(), found }).collect()
}

/// Something that a rule found in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Found {
    line: usize,
    what: String,
}

impl Found {
    fn new(line: usize, what: impl Into<String>) -> Found {
        Found { line, what: what.into() }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Fault {
    path: String,
    found: Found,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.found.line, self.found.what)
    }
}

/// The lines of a text with their numbers as editors count them.
fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(text.lines())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(path: &str, text: &str) -> Vec<String> {
        faults_in(&File::new(path, text)).iter().map(Fault::to_string).collect()
    }

    #[test]
    fn fault_says_where_it_is() {
        let found = faults_of("crates/store/src/lib.rs", "mod memory;\n");
        assert_eq!(found, ["crates/store/src/lib.rs:1: a Rust file opens with `//!`"]);
    }

    #[test]
    fn purity_is_asked_of_the_core_alone() {
        let text = "//! Text.\nuse std::collections::HashMap;\n";
        assert_eq!(faults_of("crates/engine/src/lib.rs", text).len(), 0);
        assert_eq!(faults_of("crates/core/src/lib.rs", text).len(), 1);
    }

    #[test]
    fn manifests_are_read_wherever_they_lie() {
        let text = "[dependencies]\nlibc = \"0.2\"\n";
        assert_eq!(faults_of("xtask/Cargo.toml", text).len(), 1);
        assert_eq!(faults_of("crates/store/Cargo.toml", text).len(), 1);
    }
}
