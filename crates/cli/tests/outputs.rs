//! What the verbs print, for people and for programs.
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use std::process::Stdio;

use common::{Server, plain, text};
use expect_test::{Expect, expect};

/// Names and times of this very run, made the same for every run.
fn stable(said: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in said.chars().chain(['\0']) {
        if c.is_ascii_alphanumeric() || "._:-".contains(c) {
            word.push(c);
            continue;
        }
        let bare = word.trim_start_matches(':');
        out += &":".repeat(word.len() - bare.len());
        out += stable_word(bare);
        word.clear();
        if c != '\0' {
            out.push(c);
        }
    }
    // Columns are as wide as what was in them.
    let line =
        |line: &str| line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    out.lines().map(line).collect::<Vec<_>>().join("\n") + "\n"
}

fn stable_word(word: &str) -> &str {
    let is = |test: fn(char) -> bool| word.chars().all(test);
    let begins_with_digit = word.starts_with(|c: char| c.is_ascii_digit());
    match word.len() {
        32 if is(|c| c.is_ascii_hexdigit()) => "SECRET",
        // The id of a request, or a token that began with the clock.
        16 if is(|c| c.is_ascii_hexdigit()) => "NUMBER",
        // A revision of a store that forgets begins with the clock too.
        18 if word.starts_with("1-") && is(|c| c.is_ascii_digit() || c == '-') => "CURSOR",
        // Without the zeros at its end.
        20..=24 if word.ends_with('Z') && begins_with_digit => "TIME",
        2.. if is(|c| c.is_ascii_digit()) && word != "409" => "NUMBER",
        2..10 if begins_with_digit && is(|c| c.is_ascii_digit() || ".ms".contains(c)) => "LENGTH",
        _ => word,
    }
}

fn check(server: &Server, line: &str, expected: &Expect) {
    let args: Vec<&str> = line.split(' ').collect();
    let output = server.run(&args);
    let code = output.status.code().unwrap_or(-1);
    let said = format!("{}{}exit:{code}:", text(&output.stdout), text(&output.stderr));
    expected.assert_eq(&stable(&said));
}

#[test]
fn people_are_told_in_tables() {
    let server = Server::start();
    check(
        &server,
        "list",
        &expect![[r#"
            no lock is held
            exit:0:
        "#]],
    );
    check(
        &server,
        "acquire job/nightly --ttl 1m --owner alice",
        &expect![[r#"
            lock job/nightly
            owner alice
            lease SECRET
            token NUMBER
            for LENGTH
            exit:0:
        "#]],
    );
    check(
        &server,
        "acquire job/nightly --owner bob",
        &expect![[r#"
            leasehold: could not acquire job/nightly: held by alice (lease expires in NUMBER s unless renewed)
            try again in NUMBER ms, or wait in the queue with -w
            exit:75:
        "#]],
    );
    check(
        &server,
        "acquire docs -s --ttl 1m --owner bob",
        &expect![[r#"
            lock docs
            owner bob
            lease SECRET
            token NUMBER
            for LENGTH
            exit:0:
        "#]],
    );
    check(
        &server,
        "list",
        &expect![[r#"
            LOCK STATE OWNER MODE TOKEN LEFT WAITERS
            docs held bob shared NUMBER LENGTH 0
            job/nightly held alice exclusive NUMBER LENGTH 0
            exit:0:
        "#]],
    );
    check(
        &server,
        "get job/nightly",
        &expect![[r#"
            job/nightly is held

            HELD OWNER MODE TOKEN SINCE LEFT
            job/nightly alice exclusive NUMBER TIME LENGTH
            exit:0:
        "#]],
    );
    check(
        &server,
        "get nothing",
        &expect![[r#"
            nothing is free
            exit:0:
        "#]],
    );
    check(
        &server,
        "test job/nightly --owner bob",
        &expect![[r#"
            job/nightly is not free: alice holds job/nightly for another LENGTH
            exit:1:
        "#]],
    );
    check(
        &server,
        "check docs --fencing-token 1",
        &expect![[r#"
            token 1 does not hold docs: the lock has been granted with a later token
            exit:1:
        "#]],
    );
    check(
        &server,
        "break job/nightly --reason stuck",
        &expect![[r#"
            job/nightly is broken
            exit:0:
        "#]],
    );
    check(
        &server,
        "fence accept reports --fencing-token 7",
        &expect![[r#"
            accepted; the mark is at 7
            exit:0:
        "#]],
    );
    check(
        &server,
        "fence accept reports --fencing-token 6",
        &expect![[r#"
            leasehold: fencing token 6 is lower than 7
            exit:1:
        "#]],
    );
    check(
        &server,
        "fence accept reports --fencing-token 9007199254740991",
        &expect![[r#"
            leasehold: fencing token NUMBER was never issued: the last one is NUMBER
            exit:64:
        "#]],
    );
    check(
        &server,
        "fence list",
        &expect![[r#"
            REGISTER HIGH WATER
            reports 7
            exit:0:
        "#]],
    );
    check(
        &server,
        "fence delete reports --reason moved",
        &expect![[r#"
            reports is deleted; it had seen 7
            exit:0:
        "#]],
    );
    check(
        &server,
        "fence list",
        &expect![[r#"
            no fence registers
            exit:0:
        "#]],
    );
    check(
        &server,
        "graph",
        &expect![[r#"
            no waiters
            exit:0:
        "#]],
    );
    check(
        &server,
        "session list",
        &expect![[r#"
            no session is open
            exit:0:
        "#]],
    );
    check(
        &server,
        "get a//b",
        &expect![[r#"
            leasehold: name "a//b" has an empty part: names are parts joined by '/'
            exit:64:
        "#]],
    );
}

#[test]
fn programs_are_told_in_json() {
    let server = Server::start();
    check(
        &server,
        "acquire job --ttl 1m --owner alice -o json",
        &expect![[r#"
            {"lock":"job","owner_id":"alice","lease_id":"SECRET","fencing_token":NUMBER,"mode":"exclusive","ttl_ms":NUMBER,"lease_expiry_ms":NUMBER,"expires_in_ms":NUMBER,"expires_at":"TIME","acquired_at":"TIME","waited_ms":0,"replayed":false,"epoch":1}
            exit:0:
        "#]],
    );
    check(
        &server,
        "acquire job --owner bob -o json",
        &expect![[r#"
            {"type":"urn:leasehold:problem:lock_held","title":"the lock is held","status":LENGTH,"code":"lock_held","detail":"job is held by alice (lease expires in NUMBER s unless renewed)","request_id":"NUMBER","outcome":"not_applied","current_owner_id":"alice","recommended_retry_ms":NUMBER,"holders":[{"lock":"job","owner_id":"alice","mode":"exclusive","state":"held","fencing_token":NUMBER,"acquired_at":"TIME","ttl_ms":NUMBER,"expires_at":"TIME","expires_in_ms":NUMBER,"metadata":{}}],"waiters":0,"waited_ms":0}
            leasehold: could not acquire job: held by alice (lease expires in NUMBER s unless renewed)
            try again in NUMBER ms, or wait in the queue with -w
            exit:75:
        "#]],
    );
    check(
        &server,
        "list -o json",
        &expect![[r#"
            {"locks":[{"lock":"job","state":"held","holders":[{"lock":"job","owner_id":"alice","mode":"exclusive","state":"held","fencing_token":NUMBER,"acquired_at":"TIME","ttl_ms":NUMBER,"expires_at":"TIME","expires_in_ms":NUMBER,"metadata":{}}],"holders_total":1,"waiters_total":0}],"next_page_token":null,"revision":NUMBER,"cursor":"CURSOR"}
            exit:0:
        "#]],
    );
    check(
        &server,
        "list -o jsonl",
        &expect![[r#"
            {"lock":"job","state":"held","holders":[{"lock":"job","owner_id":"alice","mode":"exclusive","state":"held","fencing_token":NUMBER,"acquired_at":"TIME","ttl_ms":NUMBER,"expires_at":"TIME","expires_in_ms":NUMBER,"metadata":{}}],"holders_total":1,"waiters_total":0}
            exit:0:
        "#]],
    );
    check(
        &server,
        "test job --owner bob -o json",
        &expect![[r#"
            {"lock":"job","free":false,"conflict":{"lock":"job","owner_id":"alice","mode":"exclusive","state":"held","fencing_token":NUMBER,"acquired_at":"TIME","ttl_ms":NUMBER,"expires_at":"TIME","expires_in_ms":NUMBER,"metadata":{}}}
            exit:1:
        "#]],
    );
    check(
        &server,
        "session list -o json",
        &expect![[r#"
            {"sessions":[],"next_page_token":null}
            exit:0:
        "#]],
    );
}

#[test]
fn lists_longer_than_a_page_are_whole() {
    let server = Server::start();
    let names: Vec<String> = (0..40).map(|number| format!("many/{number}")).collect();
    for pack in names.chunks(20) {
        let args: Vec<&str> =
            ["acquire", "--ttl", "1m"].into_iter().chain(pack.iter().map(String::as_str)).collect();
        assert!(server.run(&args).status.success());
    }
    let lines = server.says(&["list", "many/", "-o", "jsonl"]).0;
    assert_eq!(lines.lines().count(), 40);
    assert_eq!(server.says(&["list", "many/", "-o", "jsonl", "--limit", "7"]).0.lines().count(), 7);
}

#[test]
fn waiters_are_drawn() {
    let server = Server::start();
    assert!(server.run(&["acquire", "job", "--ttl", "1m", "--owner", "alice"]).status.success());
    let mut waiter =
        server.command(&["acquire", "job", "-w", "1m", "--owner", "bob"]).spawn().unwrap();
    server.wait_for_waiters("job", 1);
    check(
        &server,
        "graph",
        &expect![[r#"
            job
            |- held by alice (exclusive, for LENGTH)
            `- bob waits (exclusive, for LENGTH) behind alice
            exit:0:
        "#]],
    );
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
    let list = server.says(&["list", "-o", "json"]).0;
    let cursor = list
        .rsplit(':')
        .next()
        .unwrap()
        .trim_end()
        .trim_end_matches('}')
        .trim_matches('"')
        .to_string();
    let mut watch = server
        .command(&["watch", "job", "--after", &cursor])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
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
    for check in ["server", "version", "ready", "leader", "write", "clock", "limits", "descriptors"]
    {
        assert!(
            said.contains(&format!("ok    {check}:")) || said.contains(&format!("warn  {check}:")),
            "{check}: {said}"
        );
    }
    let output =
        plain(&["doctor", "--addr", "http://127.0.0.1:1", "--timeout", "300ms"]).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("BAD   server:") && said.contains("leasehold serve"), "{said}");
}

#[test]
fn load_is_judged() {
    let server = Server::start();
    let load = [
        "load",
        "--clients",
        "12",
        "--hot",
        "3",
        "--duration",
        "3s",
        "--ttl",
        "400ms",
        "--transport",
        "http",
    ];
    let (said, code) = server.says(&[&load, ["--crash-rate", "5"].as_slice()].concat());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("all promises held"), "{said}");
    // However it is run, stale writes are tried.
    let short = ["load", "--clients", "2", "--hot", "1", "--duration", "500ms", "-o", "json"];
    let (said, code) = server.says(&short);
    let report: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(report["stale_writes_tried"].as_u64() > Some(0), "{said}");
    assert!(report["stale_writes_refused"].as_u64() >= report["stale_writes_tried"].as_u64());
    assert_eq!(code, 0, "{said}");
    let (said, code) = server.says(&[&short, ["--plant", "stale-write"].as_slice()].concat());
    assert_eq!(code, 1, "{said}");
    for (fault, expected) in [
        ("two-believers", "still believed"),
        ("token-repeated", "came after"),
        ("stale-write", "was accepted after"),
    ] {
        let plant = ["--crash-rate", "10", "--plant", fault];
        let (said, code) = server.says(&[&load, plant.as_slice()].concat());
        assert_eq!(code, 1, "{fault}: {said}");
        assert!(said.contains(expected), "{fault}: {said}");
    }
}
