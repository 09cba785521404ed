//! Words that stand neither in the documentation nor in doc comments nor in what users see, because the glossary has another for the same thing.
//!
//! The list only becomes longer: a word is entered when the last place that had it has changed.

use super::files::File;
use super::{Found, numbered};

/// What is read by people who do not read the code. Decisions stay as they were written.
const PAGES: &[&str] = &["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/"];
const DECISIONS: &str = "docs/adr/";
/// Crates whose doc comments are held to the words of the pages.
const DOCUMENTED: &[&str] = &[
    "crates/access/src/",
    "crates/api/src/",
    "crates/client/src/",
    "crates/core/src/",
    "crates/judge/src/",
    "crates/sim/src/",
    "crates/store/src/",
];
/// The help of the command, the descriptions of the interface, and the console.
const SHOWN: &[&str] =
    &["crates/cli/src/args/", "crates/cli/tests/golden/", "crates/api/src/code.rs", "console/"];

/// The word, and the one to take.
type Word = (&'static str, &'static str);

const ON_PAGES: &[Word] = &[
    ("somebody", "another owner, a client"),
    ("anybody", "any client"),
    ("everybody", "every client"),
    ("in a circle", "a cycle"),
    ("the circle", "the cycle"),
    ("slow minutes", "min and max"),
    ("slow hour", "min and max"),
    ("first come, first served", "FIFO"),
];

const ANYWHERE: &[Word] = &[
    ("not got", "could not be acquired"),
    ("length of time", "duration"),
    ("there is no such", "not found"),
    ("grace is on", "recovery grace active"),
    ("cannot be had", "cannot be acquired"),
    ("could be had", "could be acquired"),
    ("keeps what it is given", "writable"),
    ("the table is loaded", "state recovered"),
];

pub(super) fn faults(file: &File) -> Vec<Found> {
    let is_below = |folders: &[&str]| folders.iter().any(|folder| file.path.starts_with(folder));
    let is_page = is_below(PAGES) && !file.path.starts_with(DECISIONS);
    let (is_shown, is_documented) = (is_below(SHOWN), is_below(DOCUMENTED));
    if !is_page && !is_shown && !is_documented {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (number, line) in numbered(&file.text) {
        let is_doc = is_documented && is_doc_comment(line);
        if !is_page && !is_shown && !is_doc {
            continue;
        }
        let words = ANYWHERE.iter().chain(ON_PAGES.iter().filter(|_| is_page || is_doc));
        let line = line.to_lowercase();
        let here = words.filter(|(word, _)| line.contains(word));
        found.extend(here.map(|(word, better)| {
            Found::new(number, format!("\"{word}\" is not a word of the glossary: write {better}"))
        }));
    }
    found
}

fn is_doc_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("///") || line.starts_with("//!")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        faults(&File::new(path, text)).into_iter().map(|found| found.line).collect()
    }

    #[test]
    fn word_of_the_list_is_found_on_pages() {
        assert_eq!(found("README.md", "# Page\nSomebody holds it.\n"), [2]);
        assert_eq!(found("docs/guide/cli.md", "the lock was not got\n"), [1]);
        assert_eq!(found("docs/guide/cli.md", "no owner holds it\n"), [0; 0]);
    }

    #[test]
    fn word_of_the_list_is_found_in_what_is_shown() {
        assert_eq!(found("crates/cli/tests/golden/help.txt", "75 not got\n"), [1]);
        assert_eq!(found("console/pages/a.js", "// Somebody sees this.\n"), [0; 0]);
    }

    #[test]
    fn word_of_the_list_is_found_in_doc_comments() {
        let text = "//! Somebody.\nlet somebody = 1;\n    /// The circle.\n// Anybody.\n";
        assert_eq!(found("crates/core/src/lib.rs", text), [1, 3]);
        assert_eq!(found("crates/core/tests/a.rs", text), [0; 0]);
    }

    #[test]
    fn code_and_decisions_may_have_any_word() {
        assert_eq!(found("crates/core/src/lib.rs", "let x = \"somebody\";\n"), [0; 0]);
        assert_eq!(found("docs/adr/0001-a.md", "Somebody.\n"), [0; 0]);
    }
}
