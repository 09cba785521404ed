//! What `--help` says, word for word: `UPDATE_EXPECT=1` writes it anew.
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use common::{plain, text, verbs};
use expect_test::expect_file;

fn help(words: &[&str]) -> String {
    let output = plain(&[words, &["--help"]].concat()).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn help_of_every_verb_is_as_it_was() {
    let top = help(&[]);
    let mut all = format!("$ leasehold --help\n{top}");
    for verb in verbs(&top) {
        let said = help(&[&verb]);
        all += &format!("\n$ leasehold {verb} --help\n{said}");
        for below in verbs(&said) {
            all += &format!("\n$ leasehold {verb} {below} --help\n{}", help(&[&verb, &below]));
        }
    }
    expect_file!["golden/help.txt"].assert_eq(&all);
}

#[test]
fn every_verb_has_an_example() {
    for verb in verbs(&help(&[])) {
        let said = help(&[&verb]);
        assert!(said.contains("Example"), "{verb}");
        for below in verbs(&said) {
            assert!(help(&[&verb, &below]).contains("Example"), "{verb} {below}");
        }
    }
}

#[test]
fn completions_and_manual_know_every_verb() {
    let bash = text(&plain(&["completions", "bash"]).output().unwrap().stdout);
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    assert!(plain(&["man", "--dir", dir]).status().unwrap().success());
    let page = text(&plain(&["man"]).output().unwrap().stdout);
    for verb in verbs(&help(&[])) {
        assert!(bash.contains(&format!("leasehold__{verb}")) || bash.contains(&verb), "{verb}");
        assert!(page.contains(&verb), "{verb}");
        assert!(folder.path().join(format!("leasehold-{verb}.1")).exists(), "{verb}");
    }
    assert!(!bash.contains("run-guard"));
}
