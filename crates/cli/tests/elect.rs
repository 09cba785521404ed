//! `leasehold elect` beside another process: who leads over HTTP, and lines that are run when that changes.
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use common::polling::until;
use common::{Server, plain, send, text};

fn code(output: &std::process::Output) -> i32 {
    output.status.code().expect("it was not killed")
}

/// A server whose first token is 1, and the folder of its file.
fn server() -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("leasehold.db").display());
    (Server::start_on(&store), folder)
}

/// An `elect` that ends with the test.
struct Candidate {
    child: Child,
    address: String,
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Candidate {
    fn start(server: &Server, name: &str, ttl: &str) -> Candidate {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        let args = ["elect", "boss", "-q", "--ttl", ttl, "--advertise", name, "--serve", &address];
        let child = server.command(&args).stdin(Stdio::null()).spawn().unwrap();
        let candidate = Candidate { child, address };
        until("it answers", || candidate.get("/").is_some());
        candidate
    }

    /// Status and body.
    fn get(&self, path: &str) -> Option<(String, String)> {
        let mut connection = TcpStream::connect(&self.address).ok()?;
        write!(connection, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.to_string(), body.to_string()))
    }

    fn says(&self, path: &str, status: &str, body: &str) -> bool {
        self.get(path) == Some((status.to_string(), format!("{body}\n")))
    }
}

#[test]
fn who_leads_is_told_over_http() {
    let (server, _folder) = server();
    let mut one = Candidate::start(&server, "pod-1", "30s");
    let leads = r#"{"name":"pod-1","is_leader":true,"fencing_token":1}"#;
    until("pod-1 leads", || one.says("/", "200", leads));
    assert!(one.says("/leader", "200", leads));
    let mut two = Candidate::start(&server, "pod-2", "30s");
    let follows = r#"{"name":"pod-1","is_leader":false,"fencing_token":1}"#;
    assert!(two.says("/", "200", follows) && two.says("/leader", "503", follows));
    server.wait_for_waiters("boss", 1);
    send(libc::SIGTERM, one.child.id());
    assert_eq!(one.child.wait().unwrap().code(), Some(143));
    let leads = r#"{"name":"pod-2","is_leader":true,"fencing_token":2}"#;
    until("pod-2 leads", || two.says("/leader", "200", leads));
    assert_eq!(code(&server.run(&["break", "boss", "--reason", "a test"])), 0);
    assert_eq!(two.child.wait().unwrap().code(), Some(76));
}

#[test]
fn without_a_server_nobody_is_said_to_lead() {
    let mut server = Server::start();
    let _leader = Candidate::start(&server, "pod-1", "1m");
    server.wait_for_holder("boss");
    let two = Candidate::start(&server, "pod-2", "1m");
    server.kill();
    until("it says so", || {
        let said = two.get("/");
        said.is_some_and(|(status, body)| {
            let nobody = r#"{"name":null,"is_leader":false,"fencing_token":null,"error":""#;
            status == "503" && body.starts_with(nobody)
        })
    });
}

#[test]
fn lines_are_run_when_it_begins_and_when_it_ends() {
    let (server, folder) = server();
    let ran = |args: &[&str]| {
        let output = server.command(args).current_dir(folder.path()).output().unwrap();
        let notes = std::fs::read_to_string(folder.path().join("notes")).unwrap_or_default();
        let _ = std::fs::remove_file(folder.path().join("notes"));
        (code(&output), notes, text(&output.stderr))
    };
    let hooks = |gain| vec!["elect", "boss", "--on-gain", gain, "--on-loss", "echo over >> notes"];
    let work = ["-c", "echo work >> notes; exit 3"];
    let gain = "echo elected $LEASEHOLD_FENCING_TOKEN >> notes";
    let (exit, notes, said) = ran(&[hooks(gain).as_slice(), &work].concat());
    assert_eq!((exit, notes.as_str()), (3, "elected 1\nwork\nover\n"), "{said}");
    let (exit, notes, said) = ran(&[hooks("exit 9").as_slice(), &work].concat());
    assert_eq!((exit, notes.as_str()), (9, "over\n"), "{said}");
    let long = ["elect", "boss", "--grace", "100ms", "--on-loss", "sleep 300", "--", "true"];
    let (exit, _, said) = ran(&long);
    assert_eq!(exit, 0, "{said}");
    assert!(said.contains("longer than --grace"), "{said}");
    assert_eq!(server.says(&["test", "boss"]).1, 0, "it was released each time");
}

#[test]
fn loss_of_the_lease_runs_its_line_and_ends_it() {
    let mut server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    let line = format!("echo over > {}", notes.display());
    let args = ["elect", "boss", "--ttl", "1s", "--on-loss", &line];
    let child = server.command(&args).stderr(Stdio::piped()).spawn().unwrap();
    server.wait_for_holder("boss");
    server.kill();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 76, "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(notes).unwrap(), "over\n");
}

#[test]
fn something_to_do_is_wanted() {
    let output = plain(&["elect", "boss"]).output().unwrap();
    assert_eq!(code(&output), 64);
}
