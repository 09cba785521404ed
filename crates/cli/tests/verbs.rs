//! Every verb, one after the other: what it prints for programs, how it ends, and what it says to those who err.
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use common::{Server, plain, text, verbs};
use serde_json::Value;

/// Lines for one server, how each ends, and what its answer has with `-o json`. `{lease_id}` and the like are what an
/// earlier answer had under that name, `{folder}` is a folder of the test's own.
const STORY: &[(&str, i32, &[&str])] = &[
    ("version", 0, &["version", "api"]),
    ("cluster", 0, &["epoch", "groups"]),
    ("whoami", 0, &["principal", "verbs"]),
    ("token list", 0, &["tokens"]),
    ("policy list", 0, &["roles"]),
    ("acquire job --owner ann --ttl 1m", 0, &["lock", "lease_id", "fencing_token"]),
    ("acquire job --owner bob", 75, &["code", "outcome", "current_owner_id", "holders"]),
    ("acquire job --owner bob -w 50ms", 75, &["recommended_retry_ms", "waited_ms"]),
    ("acquire job --owner ann -w 1s", 75, &["code", "cycle"]),
    ("acquire a//b", 64, &["code", "detail"]),
    ("acquire free job --owner bob", 75, &["code"]),
    ("get job", 0, &["state", "holders", "waiters", "revision"]),
    ("test job --owner bob", 1, &["free", "conflict"]),
    ("test free -s", 0, &["free"]),
    ("check job --fencing-token {fencing_token}", 0, &["valid", "holder"]),
    ("check job --fencing-token 9000", 1, &["valid"]),
    ("renew job --owner ann --fencing-token {fencing_token} --ttl 2m", 0, &["ttl_ms"]),
    ("renew job --owner bob --fencing-token {fencing_token}", 76, &["code"]),
    ("list", 0, &["locks", "next_page_token"]),
    ("list jo --state held --owner ann --limit 1", 0, &["locks"]),
    ("list --state lost", 64, &["code", "errors"]),
    ("graph", 0, &["nodes", "edges", "cycles"]),
    ("top --once", 0, &["cluster", "locks", "graph"]),
    ("release job --owner ann --fencing-token {fencing_token}", 0, &["released"]),
    ("release job --owner ann --fencing-token {fencing_token}", 0, &["released", "replayed"]),
    ("release job --owner bob --fencing-token {fencing_token}", 76, &["code", "reason"]),
    ("check job --fencing-token {fencing_token}", 1, &["valid", "reason"]),
    ("get --fencing-token {fencing_token}", 0, &["state", "holders", "ended"]),
    ("get --fencing-token 9000", 1, &["code"]),
    ("acquire inode:7@0..10 --owner ann --ttl 1m", 0, &["lease_id", "fencing_token"]),
    ("unlock inode:7@0..5 --owner ann", 0, &["lock", "changed"]),
    ("unlock inode:7 --owner ann --session {lease_id}", 0, &["changed"]),
    ("unlock inode:7 --owner ann", 0, &["changed"]),
    ("unlock job --owner ann", 64, &["code", "errors"]),
    ("acquire a b --permits 2 --ttl 1m", 0, &["locks", "lease_id", "fencing_token"]),
    ("break a --reason test --fencing-token 9000", 1, &["broken"]),
    ("break a --reason test", 0, &["broken"]),
    ("fence get register", 1, &["code"]),
    ("fence accept register --fencing-token {fencing_token}", 0, &["accepted", "high_water"]),
    ("fence accept register --fencing-token 0", 1, &["code", "high_water"]),
    ("fence get register", 0, &["high_water"]),
    ("fence accept register --fencing-token 9007199254740991", 64, &["code", "errors"]),
    ("fence list", 0, &["fences"]),
    ("fence delete register --reason test", 0, &["deleted", "high_water"]),
    ("fence delete register --reason test", 1, &["code"]),
    ("session open --owner ann --disconnect-ttl 5s --adapter other", 0, &["session_id", "session"]),
    ("acquire under --owner ann --session {session_id}", 0, &["lease_id"]),
    ("session keepalive {session_id} --ttl 1m", 0, &["expires_in_ms"]),
    ("session list", 0, &["sessions"]),
    ("session close {session_id}", 0, &["closed", "released"]),
    ("session close {session_id}", 0, &["closed", "released", "replayed"]),
    ("session keepalive {session_id}", 76, &["code", "reason"]),
    ("session open --owner ann", 0, &["session_id", "session"]),
    ("session break {session} --reason test", 0, &["closed", "released"]),
    ("session break {session} --reason test", 76, &["code"]),
    ("run -n job -- true", 0, &[]),
    ("elect -n boss -- false", 1, &[]),
    ("load --clients 2 --duration 200ms --ttl 5s", 0, &["pairs_per_second", "broken"]),
    ("bench --clients 2 --duration 100ms", 0, &["store", "rounds"]),
    ("console", 0, &["url"]),
    ("doctor", 0, &[]),
    ("backup --data {folder}/data {folder}/copy.db", 0, &["file", "bytes"]),
    (
        "restore --dry-run --data {folder}/restored {folder}/copy.db",
        0,
        &["fencing_token", "epoch", "dry_run"],
    ),
    ("restore --data {folder}/restored {folder}/copy.db", 0, &["fencing_token", "epoch"]),
    ("backup --remote {folder}/remote.db", 0, &["file", "bytes"]),
    ("backup --store sqlite:{folder}/data/leasehold.db {folder}/again.db", 0, &["file", "bytes"]),
    ("restore --store sqlite:{folder}/other.db {folder}/again.db", 0, &["fencing_token", "epoch"]),
    ("migrate --from sqlite:{folder}/restored/leasehold.db --to sqlite:{folder}/moved.db", 0, &[]),
];

/// These look and change nothing, so they can be asked again in other ways.
const LOOKS: &[&str] = &[
    "version",
    "cluster",
    "get job",
    "list",
    "graph",
    "top --once",
    "session list",
    "doctor",
    "test x",
];

/// These print no data of ours, or never end by themselves.
const NOT_IN_THE_STORY: &[&str] =
    &["serve", "init", "login", "logout", "cert", "audit", "watch", "completions", "man"];

fn values(answer: &Value) -> impl Iterator<Item = (String, String)> {
    let fields = answer.as_object().into_iter().flatten();
    fields.filter_map(|(name, value)| match value {
        Value::String(text) => Some((name.clone(), text.clone())),
        Value::Number(number) => Some((name.clone(), number.to_string())),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    })
}

#[test]
fn load_deletes_its_fence_registers() {
    let server = Server::start();
    assert_eq!(
        server.run(&["fence", "accept", "kept", "--fencing-token", "1"]).status.code(),
        Some(0)
    );
    let load = ["load", "--clients", "4", "--hot", "2", "--duration", "300ms", "--ttl", "5s"];
    let output = server.run(&[&load[..], &["-o", "json"]].concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["register_writes"].as_u64().unwrap() > 0, "{report}");
    let listed = server.run(&["fence", "list", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed["fences"].as_array().unwrap().len(), 1, "{listed}");
}

#[test]
fn every_verb_answers_programs_in_json() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_on(&format!("sqlite:{}/data/leasehold.db", folder.path().display()));
    let mut known = BTreeMap::from([("folder".into(), folder.path().display().to_string())]);
    for (line, expected, has) in STORY {
        let line = known.iter().fold((*line).to_string(), |line, (name, value): (&String, _)| {
            line.replace(&format!("{{{name}}}"), value)
        });
        let words: Vec<&str> = ["-o", "json"].into_iter().chain(line.split(' ')).collect();
        let mut command = server.command(&words);
        if let Some(lease) = known.get("lease_id") {
            command.env("LEASEHOLD_LEASE_ID", lease);
        }
        let output = command.output().unwrap();
        let (said, talk) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(*expected), "{line}: {said}{talk}");
        assert_eq!(said.lines().count(), usize::from(!said.is_empty()), "{line}: {said}");
        let answer: Value = serde_json::from_str(&said).unwrap_or_default();
        for name in *has {
            assert!(answer.get(name).is_some(), "{line}: no {name} in {said}");
        }
        if *expected == 0 {
            known.extend(values(&answer));
        }
    }
    for line in LOOKS {
        let words: Vec<&str> = line.split(' ').chain(["-o", "jsonl"]).collect();
        let output = server.run(&words);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        for item in text(&output.stdout).lines() {
            assert!(serde_json::from_str::<Value>(item).is_ok(), "{line}: {item}");
        }
    }
    let mut watch = server.command(&["watch", "--after", "1", "-o", "jsonl"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let mut event = String::new();
    BufReader::new(watch.stdout.take().unwrap()).read_line(&mut event).unwrap();
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(serde_json::from_str::<Value>(&event).unwrap().get("revision").is_some(), "{event}");
}

#[test]
fn no_verb_is_missing_here() {
    let told: BTreeSet<&str> =
        STORY.iter().filter_map(|(line, ..)| line.split(' ').next()).collect();
    for verb in verbs(&text(&plain(&["--help"]).output().unwrap().stdout)) {
        assert!(
            told.contains(verb.as_str()) || NOT_IN_THE_STORY.contains(&verb.as_str()),
            "{verb}"
        );
    }
}

/// What those are told who ask for what cannot be, without any server.
#[test]
fn mistakes_are_told_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("unknown.toml"), "bogus = 1\n").unwrap();
    std::fs::write(at("text"), "not a database").unwrap();
    // Noted by a clock that is long ahead of this one: in 2100.
    std::fs::create_dir(at("ahead")).unwrap();
    std::fs::write(at("ahead/token-seed"), "4102444800000000 4102444800000000\n").unwrap();
    let ahead = at("ahead");
    let (unknown, there, nothing) = (at("unknown.toml"), at("text"), at("nothing"));
    let (new, half, store) = (at("new"), at("half"), format!("sqlite:{}", at("nothing")));
    for (words, code, hint) in [
        (vec!["acquire", "job", "--ttl", "-5s"], 64, "is negative"),
        (vec!["acquire", "job", "--ttl", "1e9"], 64, "not a duration"),
        (vec!["acquire", "job", "--ttl", "99999999999999999h"], 64, "too long"),
        (vec!["acquire", "job", "--permits", "-1"], 64, "is not in 0.."),
        (vec!["acquire", "job", "--metadata", "[1]"], 64, "JSON object"),
        (vec!["acquire"], 64, "LOCK"),
        (vec!["list", "--limit", "0"], 64, "is not in 1.."),
        (vec!["list", "-o", "yaml"], 64, "jsonl"),
        (vec!["list", "--timeout", "0"], 64, "longer than nothing"),
        (vec!["load", "--duration", "0"], 64, "longer than nothing"),
        (vec!["top"], 64, "--once"),
        (vec!["session"], 64, "keepalive"),
        (vec!["completions", "tcsh"], 64, "zsh"),
        (vec!["list", "--addr", ""], 78, "LEASEHOLD_ADDR"),
        (vec!["list", "--addr", "http://127.0.0.1:1/v1"], 78, "http://HOST:PORT"),
        (vec!["list", "--token-file", &nothing], 78, "a token file holds"),
        (vec!["list", "--cacert", &nothing], 78, "--cacert"),
        (vec!["list", "--addr", "http://127.0.0.1:1", "--timeout", "1ms"], 69, "doctor"),
        (vec!["serve", "--listen", "here"], 64, "expected IP:PORT, for example 127.0.0.1:8080"),
        (vec!["serve", "--listen", ":80"], 64, "expected IP:PORT"),
        (vec!["check", "job", "--fencing-token", "x"], 64, "not a fencing token"),
        (vec!["check", "--fencing-token", "1"], 64, "LEASEHOLD_LOCKS"),
        (vec!["renew", "job", "--fencing-token", "1"], 64, "LEASEHOLD_LEASE_ID"),
        (vec!["backup", "--store", "memory", &new], 64, "memory"),
        (vec!["backup", "--store", "postgres://locks@db.example/locks", &new], 64, "pg_dump"),
        (vec!["restore", "--store", "etcd://db.example", &nothing], 64, "etcdctl"),
        (vec!["backup", "--store", &store, &new], 74, "--store"),
        (vec!["serve", "--store", "mysql://x"], 78, "sqlite:PATH"),
        (vec!["serve", "--config", &unknown], 78, "line 1: unknown field `bogus`"),
        (vec!["serve", "--config", &nothing], 78, "cannot read"),
        (vec!["serve", "--listen", "0.0.0.0:1"], 78, "--insecure"),
        (vec!["serve", "--listen", "127.0.0.1:0", "--data", &there], 78, "--data or --store"),
        (
            vec!["serve", "--data", "x", "--store", "etcd://127.0.0.1:1"],
            78,
            "only the memory store",
        ),
        (
            vec!["serve", "--listen", "127.0.0.1:0", "--store", "memory", "--data", &ahead],
            78,
            "set the clock",
        ),
        (vec!["backup", "--data", &nothing, &new], 74, "--data"),
        (vec!["restore", "--data", &new, &nothing], 74, "leasehold backup"),
        (vec!["restore", "--data", &half, &there], 74, "not a database"),
        (vec!["migrate", "--from", &store, "--to", "memory"], 64, "keeps nothing"),
        (vec!["migrate", "--from", "mysql:x", "--to", &store], 64, "--from"),
        (vec!["man", "--dir", "/proc/nothing"], 74, "cannot write the manual"),
    ] {
        let output = plain(&words).output().unwrap();
        let (said, talk) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}{talk}");
        assert!(talk.contains(hint), "{words:?}: {talk}");
        assert_eq!(said, "", "{words:?}: stdout is for data");
    }
    assert!(
        !folder.path().join("new").exists(),
        "nothing was there to restore, so nothing was made"
    );
}

#[test]
fn data_that_is_there_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let server = Server::start_on(&format!("sqlite:{}/leasehold.db", at("data")));
    assert!(server.run(&["backup", "--data", &at("data"), &at("copy")]).status.success());
    for words in [
        ["backup", "--data", &at("data"), &at("copy")],
        ["restore", "--data", &at("data"), &at("copy")],
    ] {
        let output = server.run(&words);
        assert_eq!(output.status.code(), Some(74), "{words:?}");
        assert!(text(&output.stderr).contains("already"), "{words:?}: {}", text(&output.stderr));
    }
}

#[test]
fn backup_goes_to_stdout_and_a_dry_run_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let server = Server::start_on(&format!("sqlite:{}/leasehold.db", at("data")));
    assert!(server.run(&["acquire", "kept", "--owner", "a", "--ttl", "1h"]).status.success());
    let copied = server.run(&["backup", "--data", &at("data"), "-"]);
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    assert!(copied.stdout.starts_with(b"SQLite format 3\0"));
    std::fs::write(at("copy"), &copied.stdout).unwrap();
    std::fs::write(at("half"), &copied.stdout[..copied.stdout.len() / 2]).unwrap();
    let names = |folder: &str| {
        let entries = std::fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<BTreeSet<_>>()
    };
    let before = (names(&at(".")), names(&at("data")));
    let tried = server.run(&["restore", "--dry-run", "--data", &at("new"), &at("copy")]);
    assert!(tried.status.success(), "{}", text(&tried.stderr));
    assert!(text(&tried.stdout).contains("the backup can be restored"), "{}", text(&tried.stdout));
    let damaged = server.run(&["restore", "--dry-run", "--data", &at("new"), &at("half")]);
    assert_eq!(damaged.status.code(), Some(74), "{}", text(&damaged.stderr));
    assert_eq!((names(&at(".")), names(&at("data"))), before);
    assert!(server.run(&["restore", "--data", &at("new"), &at("copy")]).status.success());
}

/// A flag wins over a variable, also over the one that it excludes.
#[test]
fn flags_win_over_the_environment() {
    let check = |envs: &[(&str, &str)], args: &[&str]| {
        let words = [&["serve", "--check-config"], args].concat();
        plain(&words).envs(envs.iter().copied()).output().unwrap().status.code()
    };
    assert_eq!(check(&[("LEASEHOLD_STORE", "memory")], &["--data", "x"]), Some(0));
    assert_eq!(check(&[("LEASEHOLD_DATA", "x")], &["--store", "memory"]), Some(0));
    assert_eq!(check(&[("LEASEHOLD_DATA", "x"), ("LEASEHOLD_STORE", "memory")], &[]), Some(0));
    let both = [("LEASEHOLD_DATA", "x"), ("LEASEHOLD_STORE", "sqlite:y.db")];
    assert_eq!(check(&both, &[]), Some(78));
    assert_eq!(check(&[("LEASEHOLD_STORE", "mysql:x")], &[]), Some(78));
    assert_eq!(check(&[("LEASEHOLD_INSECURE", "1")], &["--listen", "0.0.0.0:1"]), Some(0));
    assert_eq!(check(&[("LEASEHOLD_INSECURE", "no")], &["--listen", "0.0.0.0:1"]), Some(78));
}

fn into(target: &str, words: &[&str]) -> Output {
    let file = std::fs::File::options().write(true).open(target).unwrap();
    plain(words).stdout(file).output().unwrap()
}

/// `| head -1` has what it wants; a full disk has not.
#[test]
fn reader_that_leaves_is_no_error_but_a_full_disk_is() {
    for verb in ["completions bash", "man", "version"] {
        let line = format!("{} {verb} | true; exit ${{PIPESTATUS[0]}}", common::BINARY);
        let output = Command::new("bash").args(["-c", &line]).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{verb}");
        let words: Vec<&str> = verb.split(' ').collect();
        let output = into("/dev/full", &words);
        assert_eq!(output.status.code(), Some(74), "{verb}: {}", text(&output.stderr));
    }
}

#[test]
fn load_that_cannot_be_says_so_and_ends_in_time() {
    let server = Server::start();
    for (flags, code, hint) in [
        (vec!["--ttl", "1ms"], 64, "it must be 100 to"),
        (vec!["--prefix", "//"], 64, "empty part"),
        // Told to stop, it does not go on holding.
        (
            vec!["--hold", "1h", "--wait", "1h", "--hot", "1", "--crash-rate", "50"],
            0,
            "all promises",
        ),
    ] {
        let load = ["load", "--clients", "3", "--duration", "500ms"];
        let output = server.run(&[&load, flags.as_slice()].concat());
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {said}");
        assert!(said.contains(hint), "{flags:?}: {said}");
    }
}
