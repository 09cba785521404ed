//! Tests do not sleep: a test that waits for a length of time is slow, or fails on a slow machine, or both.
//!
//! Time is a clock that the test moves, or the runtime's with `start_paused`, or else the event itself is waited for. Where
//! nobody tells of the event, as with a process that gets ready, it is polled, in files named `polling.rs` and nowhere else.
//! The real binary lives in real time, so `crates/e2e` may sleep.

use super::files::File;
use super::{Found, numbered};

/// They may sleep.
const FREE: &str = "crates/e2e/";
const POLLING: &str = "polling.rs";

pub(super) fn faults(file: &File) -> Vec<Found> {
    if file.path.starts_with(FREE) || file.name() == POLLING || is_on_paused_time(&file.text) {
        return Vec::new();
    }
    test_lines(file)
        .filter(|(_, line)| sleeps(line))
        .map(|(number, _)| Found::new(number, "a test sleeps: wait for the event itself"))
        .collect()
}

/// All lines of a file of tests; of others those of their tests, which stand last.
fn test_lines(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let is_all = ["/tests/", "/conformance/"].iter().any(|part| file.path.contains(part));
    let is_before = move |line: &str| !is_all && line.trim() != "#[cfg(test)]";
    numbered(&file.text).skip_while(move |(_, line)| is_before(line))
}

/// Every test in it runs on the clock of a runtime that was paused.
fn is_on_paused_time(text: &str) -> bool {
    let mut tests = text.lines().filter(|line| line.trim().starts_with("#[tokio::test")).peekable();
    tests.peek().is_some() && tests.all(|line| line.contains("start_paused = true"))
}

fn sleeps(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices("sleep(")
        .any(|(at, _)| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Cut in two, or this file would break its own rule.
    const SLEEP: &str = concat!("    std::thread::sle", "ep(TIME);\n");

    fn found(path: &str, text: &str) -> Vec<usize> {
        faults(&File::new(path, text)).into_iter().map(|found| found.line).collect()
    }

    #[test]
    fn sleeping_test_is_found() {
        assert_eq!(found("crates/core/tests/a.rs", &format!("fn a() {{\n{SLEEP}}}\n")), [2]);
        let inside = format!("{SLEEP}\n#[cfg(test)]\nmod tests {{\n{SLEEP}}}\n");
        assert_eq!(found("crates/core/src/a.rs", &inside), [5]);
        assert_eq!(found("crates/store/src/conformance/a.rs", SLEEP), [1]);
        let bare = SLEEP.replace("std::thread::", "");
        assert_eq!(found("crates/core/tests/a.rs", &bare), [1]);
    }

    #[test]
    fn what_is_no_sleep_of_a_test_is_not_found() {
        assert_eq!(found("crates/core/src/a.rs", SLEEP), [0; 0]);
        assert_eq!(found("crates/core/benches/a.rs", SLEEP), [0; 0]);
        let no_call = SLEEP.replace("std::thread::", "fn does_not_");
        assert_eq!(found("crates/core/tests/a.rs", &no_call), [0; 0]);
        assert_eq!(found("crates/core/tests/a.rs", &format!("    // {SLEEP}")), [0; 0]);
    }

    #[test]
    fn polling_and_the_real_binary_may_sleep() {
        assert_eq!(found("crates/e2e/tests/a.rs", SLEEP), [0; 0]);
        assert_eq!(found("crates/store/tests/common/polling.rs", SLEEP), [0; 0]);
    }

    #[test]
    fn time_that_is_paused_is_no_time() {
        let paused = format!("#[tokio::test(start_paused = true)]\nasync fn a() {{\n{SLEEP}}}\n");
        assert_eq!(found("crates/core/tests/a.rs", &paused), [0; 0]);
        let mixed = format!("{paused}#[tokio::test]\nasync fn b() {{}}\n");
        assert_eq!(found("crates/core/tests/a.rs", &mixed), [3]);
    }
}
