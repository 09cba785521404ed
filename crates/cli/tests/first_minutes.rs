//! What somebody meets who tries it for the first time: on a terminal, in a cron job, in a script.
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{BINARY, Server, plain, send, text};

fn code(output: &Output) -> i32 {
    output.status.code().expect("it was not killed")
}

/// The command as on a terminal with so many columns; `script` makes one.
fn on_a_terminal(server: &Server, columns: u16, line: &str) -> String {
    let line = format!("stty cols {columns}; {BINARY} {line}");
    let mut script = Command::new("script");
    script
        .args(["-qec", &line, "/dev/null"])
        .env("LEASEHOLD_ADDR", &server.address)
        .env("NO_COLOR", "1");
    text(&script.stdin(Stdio::null()).output().unwrap().stdout)
}

#[test]
fn server_on_a_terminal_says_three_lines() {
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let line = format!("exec {BINARY} serve --listen localhost:{port} --data data");
    let mut script = Command::new("script");
    script.args(["-qefc", &line, "/dev/null"]).current_dir(folder.path());
    let mut script = script.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(script.stdout.take().unwrap()).lines().map(Result::unwrap);
    // A machine with few descriptors is warned about: that is the server's own log, and true.
    let lines =
        lines.filter(|line| !line.contains(" WARN ")).map(|line| line.trim_end().to_string());
    let said: Vec<String> = lines.take(3).collect();
    send(libc::SIGTERM, script.id());
    script.wait().unwrap();
    assert!(said[0].ends_with(&format!("http://127.0.0.1:{port}")), "{said:?}");
    assert_eq!(said[1..], ["Data: data/leasehold.db", "Press Ctrl-C to stop."], "{said:?}");
}

#[test]
fn cron_job_that_runs_elsewhere_is_silent() {
    let server = Server::start();
    assert_eq!(code(&server.run(&["acquire", "job", "--ttl", "1m", "--owner", "other"])), 0);
    let output = server.run(&["run", "-n", "-q", "job", "--", "true"]);
    assert_eq!((text(&output.stderr) + &text(&output.stdout), code(&output)), (String::new(), 75));
    let output = server.run(&["run", "-n", "job", "--", "true"]);
    assert!(
        text(&output.stderr)
            .starts_with("leasehold: could not acquire job: held by other (lease expires in ")
    );
    // A program reads the same, whichever verb it was.
    let keys = |args: &[&str]| -> Vec<String> {
        let said = text(&server.run(args).stdout);
        let problem: serde_json::Value = serde_json::from_str(&said).unwrap();
        problem.as_object().unwrap().keys().cloned().collect()
    };
    let run = keys(&["run", "-n", "job", "-o", "json", "--", "true"]);
    assert_eq!(run, keys(&["acquire", "job", "-o", "json"]));
    // A server that is away is another matter.
    let nowhere = [
        "run",
        "-n",
        "-q",
        "job",
        "--addr",
        "http://127.0.0.1:1",
        "--timeout",
        "300ms",
        "--",
        "true",
    ];
    assert!(!text(&plain(&nowhere).output().unwrap().stderr).is_empty());
}

#[test]
fn run_reads_as_flock_does() {
    let server = Server::start();
    let output = server.run(&["run", "-w", "0.5", "job", "printf", "%s.", "-n", "--ttl"]);
    assert_eq!(
        (text(&output.stdout).as_str(), code(&output)),
        ("-n.--ttl.", 0),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(code(&server.run(&["acquire", "job", "--ttl", "1m", "--owner", "other"])), 0);
    let since = Instant::now();
    assert_eq!(code(&server.run(&["run", "-w", "0.2", "job", "true"])), 75);
    assert_eq!(code(&server.run(&["run", "-w", "0.1s", "job", "true"])), 75);
    assert!(since.elapsed() < Duration::from_secs(30));
}

/// Under a set as under one lock, the environment says what is held, and no secret is on a command line.
#[test]
fn command_asks_about_its_own_locks() {
    let server = Server::start();
    for locks in [&["one"][..], &["b", "a"]] {
        let line = r#"set -e
            echo "$LEASEHOLD_LOCKS"
            "$0" check -q >&2; "$0" check "$LEASEHOLD_LOCK" -q >&2; "$0" renew >&2
            unset LEASEHOLD_LEASE_ID; printf '%s\n' "$ID" | "$0" renew >&2"#;
        let line = format!("ID=$LEASEHOLD_LEASE_ID; {line}");
        let args = [&["run"], locks, &["--", "sh", "-c", &line, BINARY]].concat();
        let output = server.run(&args);
        let expected = format!("[\"{}\"]\n", locks.join("\",\""));
        assert_eq!(
            (text(&output.stdout), code(&output)),
            (expected, 0),
            "{}",
            text(&output.stderr)
        );
    }
    let line = r#""$0" check --fencing-token 1"#;
    assert_eq!(code(&server.run(&["run", "b", "a", "--", "sh", "-c", line, BINARY])), 1);
}

#[test]
fn run_inside_a_run_of_the_same_lock_does_not_wait_for_itself() {
    let server = Server::start();
    let inner = r#""$0" run job true"#;
    let output = server.run(&["run", "job", "--", "sh", "-c", inner, BINARY]);
    assert_eq!(code(&output), 75);
    assert!(
        text(&output.stderr).contains("that this command runs under"),
        "{}",
        text(&output.stderr)
    );
    let other = r#""$0" run other true"#;
    assert_eq!(code(&server.run(&["run", "job", "--", "sh", "-c", other, BINARY])), 0);
}

#[test]
fn lock_that_was_broken_is_not_about_to_be_lost() {
    let server = Server::start();
    let run = server
        .command(&["run", "job", "-c", "echo ready; exec sleep 300"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut run = run.unwrap();
    std::io::Read::read_exact(run.stdout.as_mut().unwrap(), &mut [0; 6]).unwrap();
    assert_eq!(code(&server.run(&["break", "job", "--reason", "a test"])), 0);
    let output = run.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(code(&output), 76);
    assert!(said.contains("the lock is lost") && !said.contains("about to be lost"), "{said}");
}

#[test]
fn answers_are_plain_and_true() {
    let server = Server::start();
    let said = |args: &[&str]| {
        let output = server.run(args);
        text(&output.stdout) + &text(&output.stderr)
    };
    assert_eq!(said(&["list", "nothing/"]), "no lock is held whose name begins with nothing/\n");
    assert_eq!(said(&["break", "free", "--reason", "x"]), "free is not held\n");
    let metadata = r#"{"ticket":812}"#;
    let acquire = ["acquire", "job", "--ttl", "5m", "--owner", "me", "--metadata", metadata];
    assert_eq!(code(&server.run(&acquire)), 0);
    assert_eq!(
        said(&["break", "job", "--reason", "x", "--fencing-token", "1"]),
        "no holder of job has token 1\n"
    );
    let again = said(&acquire);
    assert!(again.contains("you hold it already") && again.contains("expires in 4 min"), "{again}");
    assert!(said(&["get", "job"]).contains(metadata));
    let mut nameless = server.command(&["acquire", "mine", "-o", "json"]);
    let nameless = nameless.env_remove("USER").env_remove("LOGNAME").output().unwrap();
    assert!(!text(&nameless.stdout).contains("someone@"), "{}", text(&nameless.stdout));
}

/// Something listens there, but it is no Leasehold: a page of a web server, or a port that says nothing.
#[test]
fn watch_of_something_else_ends() {
    for answer in ["HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi", ""]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for mut stream in listener.incoming().flatten() {
                let _ = std::io::Write::write_all(&mut stream, answer.as_bytes());
                open.push(stream);
            }
        });
        let watch = plain(&["watch", "--addr", &address, "--timeout", "500ms"]).output().unwrap();
        assert_eq!(code(&watch), 69, "{}", text(&watch.stderr));
    }
}

#[test]
fn tables_and_screens_fit_the_terminal() {
    let server = Server::start();
    let long = format!("job/{}", "n".repeat(150));
    assert_eq!(code(&server.run(&["acquire", &long, "--ttl", "1m", "--owner", "alice"])), 0);
    let opened = server.says(&["session", "open", "--owner", "alice", "-o", "json"]).0;
    let opened: serde_json::Value = serde_json::from_str(&opened).unwrap();
    let listed = on_a_terminal(&server, 60, "session list");
    assert!(listed.contains(&opened["session"].to_string()), "not cut: {listed}");
    for line in ["list", "top --once"] {
        let said = on_a_terminal(&server, 60, line);
        assert!(said.contains("alice") && said.contains("job/nnn"), "{line}: {said}");
        for line in said.lines() {
            assert!(line.trim_end().chars().count() <= 60, "{line}");
        }
    }
    assert!(server.says(&["list"]).0.contains(&long), "a pipe gets everything");
    let screen = server.says(&["top", "--once"]).0;
    assert!(screen.contains(&long), "{screen}");
    assert!(!screen.contains("q leave") && !screen.contains("\n\n\n"), "{screen}");
    assert!(screen.contains("1 lock held"), "{screen}");
}

#[test]
fn log_filter_for_one_target_silences_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let args = ["serve", "--listen", "127.0.0.1:0", "--data", &data, "--log", "bogus=1"];
    let mut server = plain(&args).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let serving = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("serving")));
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(serving.is_some());
}

#[test]
fn port_that_may_not_be_used_is_not_blamed_on_another_server() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (address, hint) in
        [(taken.as_str(), "another server"), ("192.0.2.1:8080", "of this machine")]
    {
        let args = ["serve", "--insecure", "--store", "memory", "--listen", address];
        let output = plain(&args).output().unwrap();
        assert_eq!(code(&output), 78);
        assert!(text(&output.stderr).contains(hint), "{}", text(&output.stderr));
    }
}
