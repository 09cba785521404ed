//! Files that releases have written: every later build loads them, with all that is in them.
//!
//! Each release has a folder below `releases`: the database with all kinds of locks, roles and tokens, the access file, the audit
//! log with its key, and what the server said of it all. It is written once, by command, and never changed after that:
//! ```text
//! cargo test -p leasehold-cli --test files -- --ignored
//! ```
//! PostgreSQL and etcd keep the same records in other tables: see `crates/store/src/record`.
#![allow(clippy::unwrap_used, reason = "in a test the panic is the report")]

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::{Server, fed, plain, text};
use serde_json::{Value, json};
use tempfile::TempDir;

const DATABASE: &str = "leasehold.db";
const ACCESS: &str = "access.toml";
const AUDIT: &str = "audit.jsonl";
const AUDIT_KEY: &str = "audit.key";
/// The token of whoever asks.
const ROOT: &str = "root.token";
const TOLD: &str = "told.json";
const KEPT: [&str; 5] = [DATABASE, ACCESS, AUDIT, AUDIT_KEY, ROOT];

/// Answers to these look the same from any server on the same files.
const QUESTIONS: [&[&str]; 6] = [
    &["list"],
    &["list", "--namespace", "team-b"],
    &["session", "list"],
    &["fence", "list"],
    &["token", "list"],
    &["policy", "show", "auditor"],
];
/// What is held is recovering after a start, and times go on.
const OTHER_EACH_TIME: [&str; 8] = [
    "state",
    "recovering",
    "expires_at",
    "expires_in_ms",
    "lease_expiry_ms",
    "revision",
    "cursor",
    "epoch",
];

fn releases() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder_of_releases()).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn folder_of_releases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/releases")
}

/// Files of a server, in a folder of their own.
struct Files(TempDir);

impl Files {
    /// Those of a release, to be worked on.
    fn of(release: &Path) -> Files {
        let files = Files(tempfile::tempdir().unwrap());
        for name in KEPT {
            fs::copy(release.join(name), files.at(name)).unwrap();
            fs::set_permissions(files.at(name), Permissions::from_mode(0o600)).unwrap();
        }
        files
    }

    /// An access file and the token that it knows, before there is anything else.
    fn new() -> Files {
        let files = Files(tempfile::tempdir().unwrap());
        let token = text(&plain(&["token", "new", "--offline"]).output().unwrap().stdout);
        let hash = ["token", "hash", "--principal", "root", "--role", "admin"];
        let known = fed(plain(&hash), &token).stdout;
        for (name, bytes) in [(ROOT, token.as_bytes()), (ACCESS, &known)] {
            fs::write(files.at(name), bytes).unwrap();
            fs::set_permissions(files.at(name), Permissions::from_mode(0o600)).unwrap();
        }
        files
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn store(&self) -> String {
        format!("sqlite:{}", self.at(DATABASE).display())
    }

    fn serve(&self) -> Asked<'_> {
        let [audit, access, config] = [AUDIT, ACCESS, "leasehold.toml"].map(|name| self.at(name));
        let settings = format!(
            "snapshot_bytes = 4096\naudit = {audit:?}\n[auth]\nenabled = true\naccess_file = {access:?}\n"
        );
        fs::write(&config, settings).unwrap();
        let flags = ["--config", config.to_str().unwrap(), "--store", &self.store()];
        Asked { server: Server::start_with(&flags), files: self }
    }

    fn audit_holds(&self) {
        let verified = plain(&["audit", "verify"]).arg(self.at(AUDIT)).output().unwrap();
        assert!(verified.status.success(), "{}", text(&verified.stderr));
    }
}

/// A server on these files, and whoever asks it.
struct Asked<'a> {
    server: Server,
    files: &'a Files,
}

impl Asked<'_> {
    fn run(&self, args: &[&str]) -> Output {
        let mut command = self.server.command(args);
        command.env("LEASEHOLD_TOKEN_FILE", self.files.at(ROOT)).output().unwrap()
    }

    #[track_caller]
    fn says(&self, args: &[&str]) -> Value {
        let output = self.run(&[args, &["-o", "json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// All that the server says about what it holds.
    fn told(&self) -> Value {
        let answers = QUESTIONS.map(|question| (question.join(" "), stable(&self.says(question))));
        answers.into_iter().collect()
    }
}

fn stable(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !OTHER_EACH_TIME.contains(&name.as_str()));
            kept.map(|(name, value)| (name.clone(), stable(value))).collect()
        }
        Value::Array(items) => items.iter().map(stable).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Whether all that was known is still told; later builds may tell more of it.
fn is_in(known: &Value, told: &Value) -> bool {
    match (known, told) {
        (Value::Object(known), Value::Object(told)) => {
            known.iter().all(|(name, known)| told.get(name).is_some_and(|told| is_in(known, told)))
        }
        (Value::Array(known), Value::Array(told)) => {
            known.len() == told.len() && known.iter().zip(told).all(|(a, b)| is_in(a, b))
        }
        (known, told) => known == told,
    }
}

#[test]
fn files_of_every_release_are_loaded() {
    assert!(!releases().is_empty());
    for release in releases() {
        let (name, files) = (release.display(), Files::of(&release));
        let known: Value = serde_json::from_slice(&fs::read(release.join(TOLD)).unwrap()).unwrap();
        files.audit_holds();
        let asked = files.serve();
        let told = asked.told();
        assert!(is_in(&known["answers"], &told), "{name}: {:#}\nnow: {told:#}", known["answers"]);
        // Holders of before can go on.
        let (lease, token) = (known["lease"].as_str().unwrap(), known["token"].to_string());
        let renew = ["renew", "job/nightly", "--owner", "ann", "--fencing-token", &token];
        let mut renew = asked.server.command(&renew);
        renew.env("LEASEHOLD_LEASE_ID", lease).env("LEASEHOLD_TOKEN_FILE", files.at(ROOT));
        let output = renew.output().unwrap();
        assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        // Tokens go on rising.
        let new = asked.says(&["acquire", "new"]);
        assert!(new["fencing_token"].as_u64() > known["token_max"].as_u64(), "{name}: {new}");
        // Who had a token has it still, with the same rights.
        let mut whoami = asked.server.command(&["whoami", "-o", "json"]);
        whoami.env("LEASEHOLD_TOKEN", known["token_of_ann"].as_str().unwrap());
        let who: Value = serde_json::from_slice(&whoami.output().unwrap().stdout).unwrap();
        assert_eq!((&who["principal"], &who["verbs"]), (&json!("ann"), &known["verbs_of_ann"]));
        drop(asked);
        files.audit_holds();
    }
}

#[test]
fn files_of_every_release_can_be_restored() {
    for release in releases() {
        let folder = tempfile::tempdir().unwrap();
        let to = format!("sqlite:{}", folder.path().join("new.db").display());
        let backup = folder.path().join("backup.db");
        fs::copy(release.join(DATABASE), &backup).unwrap();
        let restore = ["restore", "--tokens", "keep", "--store", &to];
        let output = plain(&restore).arg(&backup).output().unwrap();
        assert!(output.status.success(), "{}: {}", release.display(), text(&output.stderr));
    }
}

/// All kinds of locks, a role and a token, and enough changes for a snapshot with records behind it.
fn fill(asked: &Asked<'_>) -> Value {
    let rules = asked.files.at("rules.json");
    let rule = json!({ "verbs": ["read", "watch"], "namespace": "team-b", "names": "jobs/" });
    fs::write(&rules, json!({ "rules": [rule] }).to_string()).unwrap();
    assert!(asked.run(&["policy", "put", "auditor", rules.to_str().unwrap()]).status.success());
    let token_of_ann = asked.says(&[
        "token",
        "create",
        "--principal",
        "ann",
        "--role",
        "auditor",
        "--ttl",
        "never",
    ]);
    let metadata = ["--metadata", "{\"host\":\"a\"}"];
    let first = ["acquire", "job/nightly", "--owner", "ann", "--ttl", "24h"];
    let first = asked.says(&[&first[..], &metadata].concat());
    for owner in ["bob", "cara"] {
        asked.says(&["acquire", "gate", "--owner", owner, "--shared", "--ttl", "24h"]);
        asked.says(&["acquire", "pool", "--owner", owner, "--permits", "3", "--ttl", "24h"]);
    }
    asked.says(&["acquire", "path:/srv/a", "path:/srv/b/**", "--owner", "dan", "--ttl", "24h"]);
    let session = ["session", "open", "--owner", "eve", "--ttl", "24h", "--adapter", "nfs"];
    let session = asked.says(&session);
    let session = session["session_id"].as_str().unwrap();
    let under = ["--owner", "eve", "--session", session];
    for range in ["inode:42@0..100", "inode:42@50..60", "inode:42@200.."] {
        asked.says(&[&["acquire", range], &under[..]].concat());
    }
    asked.says(&[&["acquire", "inode:42@10..20", "--shared"], &under[..]].concat());
    for round in 0..30 {
        let lock = format!("jobs/{round}");
        let run = ["run", &lock, "--namespace", "team-b", "--", "true"];
        assert!(asked.run(&run).status.success());
    }
    let last = ["acquire", "jobs/last", "--owner", "fay", "--ttl", "24h", "--namespace", "team-b"];
    let last = asked.says(&last);
    let token = last["fencing_token"].to_string();
    asked.says(&["fence", "accept", "storage", "--fencing-token", &token]);
    json!({
        "lease": first["lease_id"],
        "token": first["fencing_token"],
        "token_max": last["fencing_token"],
        "token_of_ann": token_of_ann["token"],
        "verbs_of_ann": ["read", "watch"],
    })
}

#[test]
#[ignore = "writes the files of a release, by command"]
fn files_of_this_release_are_written() {
    let release = folder_of_releases().join(env!("CARGO_PKG_VERSION"));
    assert!(!release.exists(), "{} is there already, and must stay as it is", release.display());
    let files = Files::new();
    let mut asked = files.serve();
    let mut known = fill(&asked);
    known["answers"] = asked.told();
    let copy = files.at("copy.db");
    let output = plain(&["backup", "--store", &files.store()]).arg(&copy).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    asked.server.kill();
    fs::create_dir_all(&release).unwrap();
    fs::copy(copy, release.join(DATABASE)).unwrap();
    for name in [ACCESS, AUDIT, AUDIT_KEY, ROOT] {
        fs::copy(files.at(name), release.join(name)).unwrap();
    }
    let text = serde_json::to_string_pretty(&known).unwrap();
    fs::write(release.join(TOLD), text + "\n").unwrap();
}
