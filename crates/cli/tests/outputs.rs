//! What the verbs print, for people and for programs.

mod common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Server, plain, text};
use expect_test::{Expect, expect};

/// Names and times of this very run, made the same for every run.
fn stable(said: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in said.chars().chain(['\0']) {
        if c.is_ascii_alphanumeric() || ".:-".contains(c) {
            word.push(c);
            continue;
        }
        out += &stable_word(&word);
        word.clear();
        if c != '\0' {
            out.push(c);
        }
    }
    // Columns are as wide as what was in them.
    let line = |line: &str| line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    out.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

fn stable_word(word: &str) -> String {
    let is = |test: fn(char) -> bool| word.chars().all(test);
    match word.len() {
        32 if is(|c| c.is_ascii_hexdigit()) => "SECRET".into(),
        24 if word.ends_with('Z') => "TIME".into(),
        6.. if is(|c| c.is_ascii_digit()) => "NUMBER".into(),
        2..6 if word.ends_with('s') && is(|c| c.is_ascii_digit() || ".ms".contains(c)) => "LENGTH".into(),
        _ => word.into(),
    }
}

fn check(server: &Server, line: &str, expected: &Expect) {
    let args: Vec<&str> = line.split(' ').collect();
    let output = server.run(&args);
    let code = output.status.code().unwrap_or(-1);
    let said = format!("{}{}exit {code}", text(&output.stdout), text(&output.stderr));
    expected.assert_eq(&stable(&said));
}

#[test]
fn people_are_told_in_tables() {
    let server = Server::start();
    check(&server, "list", &expect![[""]]);
    check(&server, "acquire job/nightly --ttl 1m --owner alice", &expect![[""]]);
    check(&server, "acquire job/nightly --owner bob", &expect![[""]]);
    check(&server, "acquire docs -s --ttl 1m --owner bob", &expect![[""]]);
    check(&server, "list", &expect![[""]]);
    check(&server, "get job/nightly", &expect![[""]]);
    check(&server, "get nothing", &expect![[""]]);
    check(&server, "test job/nightly --owner bob", &expect![[""]]);
    check(&server, "check docs --token 1", &expect![[""]]);
    check(&server, "break job/nightly --reason stuck", &expect![[""]]);
    check(&server, "fence accept reports --token 7", &expect![[""]]);
    check(&server, "fence accept reports --token 6", &expect![[""]]);
    check(&server, "graph", &expect![[""]]);
    check(&server, "session list", &expect![[""]]);
    check(&server, "get a//b", &expect![[""]]);
}

#[test]
fn programs_are_told_in_json() {
    let server = Server::start();
    check(&server, "acquire job --ttl 1m --owner alice -o json", &expect![[""]]);
    check(&server, "acquire job --owner bob -o json", &expect![[""]]);
    check(&server, "list -o json", &expect![[""]]);
    check(&server, "list -o jsonl", &expect![[""]]);
    check(&server, "test job --owner bob -o json", &expect![[""]]);
    check(&server, "session list -o json", &expect![[""]]);
}

#[test]
fn lists_longer_than_a_page_are_whole() {
    let server = Server::start();
    let names: Vec<String> = (0..40).map(|number| format!("many/{number}")).collect();
    for pack in names.chunks(20) {
        let args: Vec<&str> = ["acquire", "--ttl", "1m"].into_iter().chain(pack.iter().map(String::as_str)).collect();
        assert!(server.run(&args).status.success());
    }
    let lines = server.says(&["list", "many/", "-o", "jsonl"]).0;
    assert_eq!(lines.lines().count(), 40);
    assert_eq!(server.says(&["list", "many/", "-o", "jsonl", "--limit", "7"]).0.lines().count(), 7);
}

/// Waits until somebody stands in line for the lock.
fn wait_for_waiter(server: &Server, lock: &str) {
    let since = Instant::now();
    while !server.says(&["get", lock, "-o", "json"]).0.contains("\"waiters_total\":1") {
        assert!(since.elapsed() < Duration::from_secs(30), "nobody stands in line");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn waiters_are_drawn() {
    let server = Server::start();
    assert!(server.run(&["acquire", "job", "--ttl", "1m", "--owner", "alice"]).status.success());
    let mut waiter = server.command(&["acquire", "job", "-w", "1m", "--owner", "bob"]).spawn().unwrap();
    wait_for_waiter(&server, "job");
    check(&server, "graph", &expect![[""]]);
    let dot = server.says(&["graph", "--dot"]).0;
    assert!(dot.starts_with("digraph") && dot.contains("\"owner:bob\" -> \"lock:job\""), "{dot}");
    let screen = server.says(&["top", "--once"]).0;
    for part in ["job", "alice", "bob waits", "behind alice"] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    waiter.kill().unwrap();
    waiter.wait().unwrap();
}

#[test]
fn wait_is_told_when_asked_for() {
    let server = Server::start();
    assert!(server.run(&["acquire", "job", "--ttl", "1m", "--owner", "alice"]).status.success());
    let output = server.run(&["run", "-v", "-w", "2s", "job", "--", "true"]);
    let said = text(&output.stderr);
    assert!(said.contains("waiting for job") && said.contains("held by alice"), "{said}");
    let output = server.run(&["run", "-w", "600ms", "job", "--", "true"]);
    assert!(!text(&output.stderr).contains("waiting"), "nobody reads it");
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn events_are_told_as_they_happen() {
    let server = Server::start();
    let mut watch = server.command(&["watch", "job", "--after", "0"]).stdout(Stdio::piped()).spawn().unwrap();
    assert!(server.run(&["run", "job/a", "--owner", "alice", "--", "true"]).status.success());
    let lines = std::io::BufRead::lines(std::io::BufReader::new(watch.stdout.take().unwrap()));
    let mut said = Vec::new();
    for line in lines {
        said.push(line.unwrap());
        if said.last().is_some_and(|line| line.contains("ended")) {
            break;
        }
    }
    watch.kill().unwrap();
    watch.wait().unwrap();
    let said = said.join("\n");
    assert!(said.contains("job/a granted to alice, exclusive, token"), "{said}");
    assert!(said.contains("ended: released") || said.contains("ended: explicit"), "{said}");
}

#[test]
fn colours_are_for_terminals_or_when_asked_for() {
    let server = Server::start();
    assert!(server.run(&["acquire", "job", "--ttl", "1m"]).status.success());
    assert!(!server.says(&["list"]).0.contains('\u{1b}'));
    assert!(server.says(&["list", "--color", "always"]).0.contains('\u{1b}'));
}

#[test]
fn doctor_finds_all_well_and_says_what_is_not() {
    let server = Server::start();
    let (said, code) = server.says(&["doctor"]);
    assert_eq!(code, 0, "{said}");
    for check in ["server", "version", "ready", "leader", "write", "clock", "limits"] {
        assert!(said.contains(&format!("ok    {check}:")) || said.contains(&format!("warn  {check}:")), "{check}: {said}");
    }
    let output = plain(&["doctor", "--addr", "http://127.0.0.1:1", "--timeout", "300ms"]).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("BAD   server:") && said.contains("leasehold serve"), "{said}");
}

#[test]
fn load_is_judged() {
    let server = Server::start();
    let load = ["load", "--clients", "12", "--hot", "3", "--duration", "2s", "--ttl", "500ms", "--transport", "http"];
    let (said, code) = server.says(&[&load, ["--crash-rate", "5"].as_slice()].concat());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("all promises held"), "{said}");
    for (fault, expected) in [
        ("two-believers", "still believed"),
        ("token-repeated", "came after"),
        ("stale-write", "was accepted after"),
    ] {
        let plant = ["--crash-rate", "20", "--plant", fault];
        let (said, code) = server.says(&[&load, plant.as_slice()].concat());
        assert_eq!(code, 1, "{fault}: {said}");
        assert!(said.contains(expected), "{fault}: {said}");
    }
}
