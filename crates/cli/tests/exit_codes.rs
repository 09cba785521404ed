//! What scripts rely on: how each command ends.
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Server, plain, send, text};

fn code(output: &std::process::Output) -> i32 {
    output.status.code().expect("it was not killed")
}

#[test]
fn run_ends_as_its_command_does() {
    let server = Server::start();
    for (line, expected) in
        [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
    {
        let output = server.run(&["run", "job", "-c", line]);
        assert_eq!(code(&output), expected, "{line}: {}", text(&output.stderr));
    }
    let output = server.run(&["run", "job", "--", "sh", "-c", "exit 9"]);
    assert_eq!(code(&output), 9);
}

#[test]
fn run_tells_what_cannot_be_run_from_what_is_not_there() {
    let server = Server::start();
    assert_eq!(code(&server.run(&["run", "job", "--", "/no/such/command"])), 127);
    assert_eq!(code(&server.run(&["run", "job", "--", "no-such-command"])), 127);
    assert_eq!(code(&server.run(&["run", "job", "--", "/"])), 126);
    // Given back each time.
    assert_eq!(code(&server.run(&["test", "job"])), 0);
}

#[test]
fn run_that_does_not_get_the_lock_ends_with_75_or_as_asked() {
    let server = Server::start();
    assert_eq!(code(&server.run(&["acquire", "job", "--ttl", "1m", "--owner", "other"])), 0);
    assert_eq!(code(&server.run(&["run", "-n", "job", "--", "true"])), 75);
    assert_eq!(code(&server.run(&["run", "-w", "100ms", "job", "--", "true"])), 75);
    assert_eq!(code(&server.run(&["run", "-n", "-E", "5", "job", "--", "true"])), 5);
    assert_eq!(code(&server.run(&["run", "-n", "free", "job", "--", "true"])), 75);
    // A second exclusive hold by the same owner is the shortest deadlock.
    assert_eq!(code(&server.run(&["run", "--owner", "other", "job", "--", "true"])), 75);
}

#[test]
fn server_that_cannot_be_reached_is_69() {
    let nowhere = ["--addr", "http://127.0.0.1:1", "--timeout", "300ms"];
    for verb in [
        vec!["run", "job", "--", "true"],
        vec!["acquire", "job"],
        vec!["get", "job"],
        vec!["list"],
        vec!["cluster"],
        vec!["doctor"],
    ] {
        let output = plain(&[&nowhere, verb.as_slice()].concat()).output().unwrap();
        assert_eq!(code(&output), 69, "{verb:?}: {}", text(&output.stderr));
    }
}

#[test]
fn command_line_that_cannot_be_is_64() {
    for line in [
        vec!["nonsense"],
        vec!["run", "job"],
        vec!["run", "job", "--ttl", "soon", "--", "true"],
        vec!["run", "-s", "-x", "job", "--", "true"],
        vec!["run", "-n", "-w", "1s", "job", "--", "true"],
        vec!["release", "job"],
        vec!["break", "job"],
    ] {
        assert_eq!(code(&plain(&line).output().unwrap()), 64, "{line:?}");
    }
    let server = Server::start();
    assert_eq!(code(&server.run(&["get", "a//b"])), 64);
    assert_eq!(code(&server.run(&["acquire", "job", "--ttl", "1ms"])), 64);
    assert_eq!(code(&server.run(&["run", "a//b", "--", "true"])), 64);
}

#[test]
fn address_that_cannot_be_is_78() {
    let output = plain(&["list", "--addr", "ftp://somewhere"]).output().unwrap();
    assert_eq!(code(&output), 78, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("LEASEHOLD_ADDR"));
}

#[test]
fn restore_that_leaves_no_tokens_is_64() {
    let folder = tempfile::tempdir().unwrap();
    let (data, backup) = (folder.path().join("data"), folder.path().join("backup.db"));
    for token in ["9007199254740991", "9007194959773697"] {
        let words = ["restore", "--fence-above", token, "--data"];
        let output = plain(&words).arg(&data).arg(&backup).output().unwrap();
        assert_eq!(code(&output), 64, "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("9007194959773696 at most"));
        assert!(!data.exists());
    }
}

#[test]
fn answer_that_is_no_is_1() {
    let server = Server::start();
    assert_eq!(code(&server.run(&["test", "job"])), 0);
    assert_eq!(code(&server.run(&["acquire", "job", "--owner", "other"])), 0);
    assert_eq!(code(&server.run(&["test", "job"])), 1);
    assert_eq!(code(&server.run(&["check", "job", "--fencing-token", "1"])), 1);
    assert_eq!(code(&server.run(&["fence", "get", "register"])), 1);
    assert_eq!(code(&server.run(&["fence", "accept", "register", "--fencing-token", "5"])), 0);
    assert_eq!(code(&server.run(&["fence", "accept", "register", "--fencing-token", "4"])), 1);
    let unissued = ["fence", "accept", "register", "--fencing-token", "9007199254740991"];
    assert_eq!(code(&server.run(&unissued)), 64);
    assert_eq!(code(&server.run(&["fence", "delete", "register", "--reason", "test"])), 0);
    assert_eq!(code(&server.run(&["fence", "delete", "register", "--reason", "test"])), 1);
    assert_eq!(code(&server.run(&["break", "job", "--reason", "test"])), 0);
    assert_eq!(code(&server.run(&["break", "job", "--reason", "test"])), 1);
}

#[test]
fn lease_that_is_over_is_76() {
    let server = Server::start();
    let held = ["--owner", "me", "--fencing-token", "1"];
    for verb in ["renew", "release"] {
        let mut command = server.command(&[&[verb, "job"], held.as_slice()].concat());
        let lease = "0123456789abcdef0123456789abcdef";
        let output = command.env("LEASEHOLD_LEASE_ID", lease).output().unwrap();
        assert_eq!(code(&output), 76, "{}", text(&output.stderr));
    }
    assert_eq!(code(&server.run(&["session", "close", "0123456789abcdef0123456789abcdef"])), 76);
}

#[test]
fn signals_are_handed_on() {
    let server = Server::start();
    for (signal, name) in [(libc::SIGTERM, "TERM"), (libc::SIGUSR1, "USR1"), (libc::SIGHUP, "HUP")]
    {
        let line = format!("trap 'kill $!; exit 42' {name}; echo ready; sleep 60 & wait");
        let mut wrapper =
            server.command(&["run", "job", "-c", &line]).stdout(Stdio::piped()).spawn().unwrap();
        let mut ready = [0; 6];
        std::io::Read::read_exact(wrapper.stdout.as_mut().unwrap(), &mut ready).unwrap();
        send(signal, wrapper.id());
        assert_eq!(wrapper.wait().unwrap().code(), Some(42), "{name}");
    }
}

#[test]
fn signal_while_waiting_ends_the_wait() {
    let server = Server::start();
    assert_eq!(code(&server.run(&["acquire", "job", "--ttl", "1m", "--owner", "other"])), 0);
    let mut wrapper = server.command(&["run", "job", "--", "true"]).spawn().unwrap();
    server.wait_for_waiters("job", 1);
    send(libc::SIGTERM, wrapper.id());
    assert_eq!(wrapper.wait().unwrap().code(), Some(143));
    server.wait_for_waiters("job", 0);
}

/// What a command leaves in the background would go on without the lock.
#[test]
fn what_a_command_leaves_behind_ends_with_it() {
    let server = Server::start();
    let since = Instant::now();
    let line = "setsid -f sleep 300; sleep 300 & exit 3";
    let output = server.run(&["run", "job", "--grace", "500ms", "-c", line]);
    assert_eq!(code(&output), 3);
    assert!(since.elapsed() < Duration::from_secs(60));
    assert_eq!(code(&server.run(&["test", "job"])), 0);
}

#[test]
fn set_is_one_lease_and_the_command_knows_it() {
    let server = Server::start();
    let line = r#"echo "$LEASEHOLD_LOCK"; leasehold=$0
        for lock in $LEASEHOLD_LOCK; do "$1" check "$lock" --fencing-token "$LEASEHOLD_FENCING_TOKEN" -q >&2 || exit 1; done"#;
    let args = ["run", "b", "a", "--", "sh", "-c", line, "sh", common::BINARY];
    let output = server.run(&args);
    assert_eq!(
        (text(&output.stdout).as_str(), code(&output)),
        ("b a\n", 0),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn stdin_reaches_the_command() {
    let server = Server::start();
    let mut wrapper = server
        .command(&["run", "job", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut wrapper.stdin.take().unwrap(), b"through\n").unwrap();
    let output = wrapper.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout).as_str(), code(&output)), ("through\n", 0));
}

#[test]
fn elected_command_is_followed_by_the_next() {
    let server = Server::start();
    let mut first = server.command(&[
        "elect",
        "boss",
        "-q",
        "--advertise",
        "one",
        "-c",
        "echo one; exec sleep 300",
    ]);
    let mut first = first.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 4];
    std::io::Read::read_exact(first.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert!(
        server.says(&["get", "boss", "-o", "json"]).0.contains(r#""metadata":{"value":"one"}"#)
    );
    let second = server.command(&["elect", "boss", "-q", "-c", "echo two; exit 4"]);
    let second = { second }.stdout(Stdio::piped()).spawn().unwrap();
    send(libc::SIGTERM, first.id());
    assert_eq!(first.wait().unwrap().code(), Some(143));
    let output = second.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout).as_str(), code(&output)), ("two\n", 4));
}

/// The command as on a terminal; `script` makes one.
fn on_a_terminal(server: &Server, line: &str) -> std::process::Output {
    let line = format!("{} {line}", common::BINARY);
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).env("LEASEHOLD_ADDR", &server.address);
    script.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn terminal_is_the_commands_own() {
    let server = Server::start();
    let output = on_a_terminal(&server, "run job -c 'test -t 1 && ps -o stat= -p $$ && exit 6'");
    assert_eq!(code(&output), 6, "{}", text(&output.stdout));
    // In the group that the terminal listens to.
    assert!(text(&output.stdout).contains('+'), "{}", text(&output.stdout));
}

#[test]
fn wait_on_a_terminal_is_one_line_that_goes_away() {
    let server = Server::start();
    assert_eq!(code(&server.run(&["acquire", "job", "--ttl", "1m", "--owner", "other"])), 0);
    let output = on_a_terminal(&server, "run -w 2s job -- true");
    let said = text(&output.stdout);
    assert_eq!(code(&output), 75, "{said}");
    assert!(said.contains("held by other, token"), "{said}");
    assert!(said.contains("place 1 of 1 in the queue\r\u{1b}[K"), "{said}");
}
