//! What the core may not touch: clocks, disks, networks, runtimes, chance, and order that differs from run to run.
//!
//! Clippy knows some of this by type. This rule reads the text, so that a renamed import or an allowed lint is seen too.

use super::files::File;
use super::{Found, numbered};

const CORE: &str = "crates/core/src/";

/// What may not be named, and why.
const IMPURE: &[(&str, &str)] = &[
    ("Instant::now", "the time comes in as an argument"),
    ("SystemTime::now", "the time comes in as an argument"),
    ("std::fs", "what lasts is the store's business"),
    ("std::net", "the network is the server's business"),
    ("tokio", "the rules never wait"),
    ("rand", "chance comes in as an argument"),
    ("HashMap", "its order differs from run to run"),
    ("HashSet", "its order differs from run to run"),
];

pub(super) fn faults(file: &File) -> Vec<Found> {
    if file.path.starts_with(CORE) { impurities(&file.text) } else { Vec::new() }
}

fn impurities(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for (number, line) in numbered(text) {
        let code = ungrouped(without_comment(line));
        for (name, why) in IMPURE.iter().filter(|(name, _)| names(&code, name)) {
            found.push(Found::new(number, format!("`{name}` in the core: {why}")));
        }
    }
    found
}

/// `use std::{fs, io}` names `std::fs` as well.
fn ungrouped(code: &str) -> String {
    let Some((before, group)) = code.split_once("std::{") else {
        return code.into();
    };
    let members: Vec<String> =
        group.split(',').map(|name| format!("std::{}", name.trim())).collect();
    format!("{before}{}", members.join(", "))
}

/// Whether the code has this name, and not just one that begins or ends alike.
fn names(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        !before.ends_with(is_part_of_a_name) && !after.starts_with(is_part_of_a_name)
    })
}

fn is_part_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The line up to its comment; two slashes inside a text are none.
fn without_comment(line: &str) -> &str {
    let starts = line.match_indices("//").map(|(at, _)| at);
    let mut starts = starts.filter(|&at| line[..at].matches('"').count().is_multiple_of(2));
    starts.next().map_or(line, |at| &line[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_impure_name_is_found() {
        for (name, why) in IMPURE {
            let found = impurities(&format!("//! Text.\n    let x = {name}::<u8>();\n"));
            assert_eq!(found, [Found::new(2, format!("`{name}` in the core: {why}"))]);
        }
    }

    #[test]
    fn names_that_only_look_alike_are_none() {
        let text = "use std::collections::BTreeMap;\nlet random = operand;\nuse std::fmt;\n";
        assert_eq!(impurities(text), []);
    }

    #[test]
    fn name_in_a_group_is_found() {
        assert_eq!(impurities("use std::{fmt, fs};").len(), 1);
        assert_eq!(impurities("use std::{fmt, io};").len(), 0);
    }

    #[test]
    fn comments_may_speak_of_anything() {
        assert_eq!(impurities("/// No HashMap here.\nlet a = 1; // nor tokio\n"), []);
    }

    #[test]
    fn two_slashes_in_a_text_hide_nothing() {
        assert_eq!(impurities("let a = (\"a//b\", HashMap::new());").len(), 1);
    }

    #[test]
    fn other_crates_may_do_all_that() {
        assert_eq!(faults(&File::new("crates/engine/src/runner/clock.rs", "Instant::now()")), []);
    }
}
