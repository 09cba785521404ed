//! A server that cannot start says why in one line, and says it with its exit code too.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// Starts a server that must not start; returns the one line it says.
#[track_caller]
fn refused(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold")).args(args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(78), "{args:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    assert!(said.starts_with("leasehold: "), "{said}");
    said.trim_end().to_string()
}

fn path(folder: &TempDir, name: &str) -> String {
    folder.path().join(name).display().to_string()
}

fn write(folder: &TempDir, name: &str, text: &str) -> String {
    std::fs::write(folder.path().join(name), text).unwrap();
    path(folder, name)
}

#[test]
fn busy_port_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refused(&["serve", "--store", "memory", "--listen", &address]);
    assert!(said.contains(&format!("cannot listen on {address}")), "{said}");
}

#[test]
fn data_that_is_no_directory_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(&folder, "file", "");
    let said = refused(&["serve", "--listen", "127.0.0.1:0", "--data", &file]);
    assert!(said.contains(&file), "{said}");
    let below = format!("{file}/data");
    let said = refused(&["serve", "--listen", "127.0.0.1:0", "--data", &below]);
    assert!(said.contains(&below), "{said}");
}

#[test]
fn file_that_is_no_database_is_told_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(&folder, "locks.db", &"this is not a database ".repeat(100));
    let said = refused(&["serve", "--listen", "127.0.0.1:0", "--store", &format!("sqlite:{file}")]);
    assert!(said.contains("locks.db"), "{said}");
    assert!(std::fs::read_to_string(Path::new(&file)).unwrap().starts_with("this is not"));
}

#[test]
fn data_of_a_running_server_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let data = path(&folder, "data");
    let mut first = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data", &data])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(first.stderr.take().unwrap());
    log.lines()
        .find(|line| line.as_ref().unwrap().contains("serving"))
        .expect("it starts")
        .unwrap();
    let said = refused(&["serve", "--listen", "127.0.0.1:0", "--data", &data]);
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(said.contains("another"), "{said}");
}

#[test]
fn unknown_key_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(&folder, "leasehold.toml", "listen = \"127.0.0.1:0\"\n\nlisten_on = 3\n");
    let said = refused(&["serve", "--config", &file]);
    assert!(said.contains("leasehold.toml:3") || said.contains("line 3"), "{said}");
    assert!(said.contains("listen_on"), "{said}");
}

#[test]
fn configuration_that_cannot_be_read_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let missing = path(&folder, "missing.toml");
    assert!(refused(&["serve", "--config", &missing]).contains(&missing));
    let broken = write(&folder, "broken.toml", "listen = ");
    assert!(refused(&["serve", "--config", &broken]).contains("broken.toml"));
    let wrong = write(&folder, "wrong.toml", "listen = \"nowhere\"\n");
    assert!(
        refused(&["serve", "--check-config", "--config", &wrong]).contains("wrong.toml, line 1")
    );
}

#[test]
fn store_that_does_not_exist_is_told() {
    assert!(refused(&["serve", "--store", "floppy:a"]).contains("floppy"));
}

#[test]
fn address_that_others_can_reach_needs_to_be_asked_for() {
    let said = refused(&["serve", "--store", "memory", "--listen", "0.0.0.0:0"]);
    assert!(said.contains("--insecure"), "{said}");
}

#[test]
fn good_configuration_is_told_without_starting() {
    let output = Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["serve", "--check-config", "--store", "memory"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "the configuration can be used\n");
}
