//! Words that stand neither in the documentation nor in doc comments nor in what users see, because the glossary has another for the same thing.
//!
//! The list only becomes longer: a word is entered when the last place that had it has changed.

use super::files::File;
use super::{Found, numbered};

/// What is read by people who do not read the code. Decisions stay as they were written.
const PAGES: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/",
    "sdk/README.md",
    "sdk/go/README.md",
    "sdk/python/README.md",
    "sdk/typescript/README.md",
];
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
/// Crates whose doc comments name the thing they stand on, and the parts of them that may still do otherwise.
const NAMED: &[&str] = &[
    "crates/access/src/",
    "crates/api/src/",
    "crates/cli/src/",
    "crates/client/src/",
    "crates/core/src/",
    "crates/engine/src/",
    "crates/judge/src/",
    "crates/server/src/",
    "crates/store/src/",
];
const NOT_NAMED: &[&str] = &[
    // The help of the command, which asks as its user does: "How long to wait".
    "crates/cli/src/args/",
    "crates/server/src/cluster/",
];
/// A doc comment begins with a noun phrase or a verb: with none of these.
const BEGINNINGS: &[&str] =
    &["What ", "Who ", "How ", "Whose ", "Whom ", "Whoever ", "Somebody ", "Anybody ", "Nobody "];
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
    ("stand in line", "wait in the queue"),
    ("stands in line", "waits in the queue"),
    ("wait in line", "wait in the queue"),
    ("waits in line", "waits in the queue"),
    ("mailbox", "reply queue"),
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
    let is_named = is_below(NAMED) && !is_below(NOT_NAMED);
    if !is_page && !is_shown && !is_documented && !is_named {
        return Vec::new();
    }
    let mut found = if is_named { beginnings(&file.text) } else { Vec::new() };
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

/// The paragraphs of doc comments that begin with a question word.
fn beginnings(text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    let mut is_inside = false;
    for (number, line) in numbered(text) {
        let said = doc_comment(line);
        let asks = BEGINNINGS.iter().find(|word| said.is_some_and(|said| said.starts_with(**word)));
        if let Some(word) = asks.filter(|_| !is_inside) {
            let what = format!("begin with a noun phrase or a verb, not with \"{}\"", word.trim());
            found.push(Found::new(number, what));
        }
        is_inside = said.is_some_and(|said| !said.is_empty());
    }
    found
}

fn is_doc_comment(line: &str) -> bool {
    doc_comment(line).is_some()
}

fn doc_comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let said = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    Some(said.trim())
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
    fn question_word_at_the_beginning_is_found() {
        let text =
            "//! What it is.\n\n/// The lock.\n/// What holds it.\n///\n/// Who waits.\nfn f();\n";
        assert_eq!(found("crates/core/src/lib.rs", text), [1, 6]);
        assert_eq!(found("crates/cli/src/main.rs", text), [1, 6]);
        assert_eq!(found("crates/cli/src/args/run.rs", text), [0; 0]);
        assert_eq!(found("crates/core/src/lib.rs", "/// Whatever ends.\n// What for?\n"), [0; 0]);
    }

    #[test]
    fn code_and_decisions_may_have_any_word() {
        assert_eq!(found("crates/core/src/lib.rs", "let x = \"somebody\";\n"), [0; 0]);
        assert_eq!(found("docs/adr/0001-a.md", "Somebody.\n"), [0; 0]);
    }
}
