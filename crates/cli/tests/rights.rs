//! A server that wants tokens: what the command does with them, and what it says when one is not good.
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use common::{Server, at_home, fed, plain, text};

/// A server with a token of `root` and one of `billing`, and a home directory for whoever asks it.
struct Stage {
    folder: tempfile::TempDir,
    server: Server,
}

impl Stage {
    fn new() -> Stage {
        Stage::on("memory")
    }

    fn on(store: &str) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let access = folder.path().join("access.toml");
        let mut lines = String::new();
        for (principal, role) in [("root", "admin"), ("billing", "client:default")] {
            let token = text(&plain(&["token", "new", "--offline"]).output().unwrap().stdout);
            fs::write(folder.path().join(principal), &token).unwrap();
            let hash = ["token", "hash", "--principal", principal, "--role", role];
            lines += &text(&fed(plain(&hash), &token).stdout);
        }
        fs::write(&access, lines).unwrap();
        fs::set_permissions(&access, fs::Permissions::from_mode(0o600)).unwrap();
        let config = folder.path().join("leasehold.toml");
        let text = format!("[auth]\nenabled = true\naccess_file = {access:?}\n");
        fs::write(&config, text).unwrap();
        let server = Stage::serve(folder.path(), store);
        Stage { folder, server }
    }

    fn serve(folder: &Path, store: &str) -> Server {
        let config = folder.join("leasehold.toml");
        Server::start_with(&["--config", config.to_str().unwrap(), "--store", store])
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.server.command(args);
        at_home(&mut command, self.folder.path());
        command
    }

    fn run_as(&self, principal: &str, args: &[&str]) -> Output {
        self.command(args).env("LEASEHOLD_TOKEN_FILE", self.path(principal)).output().unwrap()
    }
}

#[test]
fn login_keeps_a_token_that_is_good_and_each_refusal_says_what_to_do() {
    let stage = Stage::new();
    let refused = stage.command(&["list"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(77));
    assert!(text(&refused.stderr).contains("`leasehold login`"), "{}", text(&refused.stderr));
    let address = stage.server.address.clone();
    let login = |input: &str| {
        let mut command = plain(&["login", &address]);
        at_home(&mut command, stage.folder.path());
        fed(command, input)
    };
    let wrong = text(&plain(&["token", "new", "--offline"]).output().unwrap().stdout);
    let refused = login(&wrong);
    assert_eq!(refused.status.code(), Some(77), "{}", text(&refused.stderr));
    assert!(!text(&refused.stderr).contains(wrong.trim()));
    assert!(!Path::new(&stage.path(".config")).exists(), "nothing is kept of what is not good");
    assert_eq!(login("").status.code(), Some(64));

    let token = fs::read_to_string(stage.path("billing")).unwrap();
    let done = login(&token);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("billing"), "{}", text(&done.stdout));
    let kept = fs::metadata(stage.path(".local/state/leasehold/tokens/default")).unwrap();
    assert_eq!(kept.permissions().mode() & 0o777, 0o600);
    let mut command = plain(&["whoami", "-o", "json"]);
    at_home(&mut command, stage.folder.path());
    let who = text(&command.output().unwrap().stdout);
    assert!(who.contains("\"principal\":\"billing\""), "{who}");
    let refused = stage.command(&["token", "list"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(77));
    assert!(text(&refused.stderr).contains("`leasehold whoami`"), "{}", text(&refused.stderr));
    // The token of a profile is for its own server alone.
    let elsewhere = ["--addr", "http://127.0.0.1:1", "--timeout", "300ms", "list", "-v"];
    let mut command = plain(&elsewhere);
    at_home(&mut command, stage.folder.path());
    assert_eq!(command.output().unwrap().status.code(), Some(69));
    let mut command = plain(&["logout"]);
    at_home(&mut command, stage.folder.path());
    assert!(command.status().unwrap().success());
    assert_eq!(stage.command(&["list"]).output().unwrap().status.code(), Some(77));
    let unknown = stage.command(&["--profile", "prod", "list"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(78));
    assert!(text(&unknown.stderr).contains("leasehold login --profile prod"));
}

#[test]
fn command_of_run_gets_a_token_that_may_only_look_at_its_lock() {
    let stage = Stage::new();
    let line = "env; leasehold_ check job && leasehold_ get other; echo get=$?; leasehold_ acquire more; echo acquire=$?; \
                leasehold_ whoami -o json"
        .replace("leasehold_", common::BINARY);
    let output = stage.run_as("billing", &["run", "job", "-c", &line]);
    let (said, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}{error}");
    let secret = fs::read_to_string(stage.path("billing")).unwrap();
    assert!(!said.contains(secret.trim()) && !said.contains("LEASEHOLD_TOKEN_FILE"), "{said}");
    let own = said.lines().find_map(|line| line.strip_prefix("LEASEHOLD_TOKEN=")).unwrap();
    assert!(said.contains("get=77") && said.contains("acquire=77"), "{said}{error}");
    assert!(said.contains("\"principal\":\"billing\""), "{said}");
    // It is good for nothing when the command has ended.
    let after = stage.command(&["whoami"]).env("LEASEHOLD_TOKEN", own).output().unwrap();
    assert_eq!(after.status.code(), Some(77));
    let tokens = text(&stage.run_as("root", &["token", "list"]).stdout);
    assert!(!tokens.contains("leasehold run"), "{tokens}");

    let passed = stage.run_as("billing", &["run", "--pass-token", "job", "-c", "env"]);
    assert!(text(&passed.stdout).contains("LEASEHOLD_TOKEN_FILE"), "{}", text(&passed.stdout));
}

#[test]
fn token_of_others_is_revoked_by_an_administrator_alone() {
    let stage = Stage::new();
    let create = ["token", "create", "-o", "json", "--narrow", "verbs=read,namespace=default"];
    let made = stage.run_as("billing", &create);
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    let (id, token) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    let acquire = stage.command(&["acquire", "job"]).env("LEASEHOLD_TOKEN", token).output();
    assert_eq!(acquire.unwrap().status.code(), Some(77));
    let list = stage.command(&["list"]).env("LEASEHOLD_TOKEN", token).output();
    assert_eq!(list.unwrap().status.code(), Some(0));
    let of_root = stage.run_as(
        "root",
        &["token", "create", "--principal", "ann", "--role", "reader", "-o", "json"],
    );
    let of_root: serde_json::Value = serde_json::from_slice(&of_root.stdout).unwrap();
    let other = of_root["id"].as_str().unwrap();
    for id in [other, "000000000000"] {
        let refused = stage.run_as("billing", &["token", "revoke", id]);
        assert_eq!(refused.status.code(), Some(77), "{id}: {}", text(&refused.stderr));
    }
    for (who, id) in [("billing", id), ("root", other)] {
        assert_eq!(stage.run_as(who, &["token", "revoke", id]).status.code(), Some(0));
    }
    let after = stage.command(&["list"]).env("LEASEHOLD_TOKEN", token).output().unwrap();
    assert_eq!(after.status.code(), Some(77));
}

#[test]
fn backup_comes_over_the_network_to_who_administers() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let stage = Stage::on(&format!("sqlite:{}/leasehold.db", at("data")));
    assert!(stage.run_as("billing", &["acquire", "kept", "--ttl", "1h"]).status.success());
    let copy = at("copy.db");
    let denied = stage.run_as("billing", &["backup", "--remote", &copy]);
    assert_eq!(denied.status.code(), Some(77), "{}", text(&denied.stderr));
    assert!(!Path::new(&copy).exists());
    let copied = stage.run_as("root", &["backup", "--remote", &copy]);
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let again = stage.run_as("root", &["backup", "--remote", &copy]);
    assert_eq!(again.status.code(), Some(74), "{}", text(&again.stderr));
    let streamed = stage.run_as("root", &["backup", "--remote", "-"]);
    assert!(streamed.stdout.starts_with(b"SQLite format 3\0"), "{}", text(&streamed.stderr));
    let both = stage.run_as("root", &["backup", "--remote", "--data", &at("data"), &at("x")]);
    assert_eq!(both.status.code(), Some(64));
    let restored = at("restored");
    let restore = plain(&["restore", "--tokens", "keep", "--data", &restored, &copy]).output();
    assert!(restore.unwrap().status.success());
    let names = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, 3, "the data, the copy and what was restored");
}

#[test]
fn tokens_of_a_backup_are_good_again_only_if_somebody_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let stage = Stage::on(&format!("sqlite:{}/leasehold.db", at("data")));
    let create = ["token", "create", "--principal", "ann", "--role", "reader"];
    let token = text(&stage.run_as("root", &create).stdout);
    let mode = fs::metadata(at("data")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "nobody else has a look at it");
    let copy = at("copy");
    assert!(plain(&["backup", "--data", &at("data"), &copy]).status().unwrap().success());
    let restore = |to: &str, tokens: &[&str]| {
        let to = at(to);
        let words = [&["restore", "--data", &to], tokens, &[&copy]].concat();
        plain(&words).output().unwrap()
    };
    let asked = restore("unsaid", &[]);
    assert_eq!(asked.status.code(), Some(64));
    assert!(text(&asked.stderr).contains("--tokens keep"), "{}", text(&asked.stderr));
    assert!(!Path::new(&at("unsaid")).exists());
    for (how, code) in [("keep", 0), ("revoke", 77)] {
        let done = restore(how, &["--tokens", how]);
        assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
        let store = format!("sqlite:{}/leasehold.db", at(how));
        let server = Stage::serve(stage.folder.path(), &store);
        let who = server.command(&["whoami"]).env("LEASEHOLD_TOKEN", token.trim()).output();
        assert_eq!(who.unwrap().status.code(), Some(code), "{how}");
    }
    // The other way out of a store takes them along.
    let to = format!("sqlite:{}", at("moved.db"));
    let from = format!("sqlite:{}/leasehold.db", at("keep"));
    let moved = plain(&["migrate", "--from", &from, "--to", &to]).output().unwrap();
    assert_eq!(moved.status.code(), Some(0), "{}", text(&moved.stderr));
    let server = Stage::serve(stage.folder.path(), &to);
    let who = server.command(&["whoami"]).env("LEASEHOLD_TOKEN", token.trim()).output();
    assert_eq!(who.unwrap().status.code(), Some(0));
}
