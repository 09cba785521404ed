//! `leasehold watch --post`: events come to a receiver once it takes them, signed, and go on where they were.
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use common::polling::until;
use common::{Server, plain, send, text};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;

const SIGTERM: i32 = 15;
const TAKEN: u16 = 204;
const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// One request as it came.
#[derive(Clone, Debug)]
struct Came {
    delivery: String,
    signature: String,
    body: Vec<u8>,
    status: Option<u16>,
}

impl Came {
    /// The signature is over what came, by whoever knows the secret.
    fn is_signed(&self) -> bool {
        let (time, signature) = self.signature.split_once(",v1=").unwrap();
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
        mac.update(time.strip_prefix("t=").unwrap().as_bytes());
        mac.update(b".");
        mac.update(&self.body);
        let bytes = mac.finalize().into_bytes();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() == signature
    }
}

/// A receiver whose answers are known beforehand.
struct Receiver {
    url: String,
    came: Arc<Mutex<Vec<Came>>>,
}

impl Receiver {
    /// One that refuses the first few requests.
    fn start(refused: usize) -> Receiver {
        Receiver::with(move |before| Some(if before < refused { 503 } else { TAKEN }))
    }

    /// One that answers so, or not at all, after that many requests.
    fn with(answer: impl Fn(usize) -> Option<u16> + Send + 'static) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook?x=1", listener.local_addr().unwrap());
        let came = Arc::new(Mutex::new(Vec::new()));
        let taken = came.clone();
        std::thread::spawn(move || {
            let mut unanswered = Vec::new();
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let mut taken = taken.lock().unwrap();
                let status = answer(taken.len());
                taken.push(take(&mut connection, status));
                if status.is_none() {
                    unanswered.push(connection);
                }
            }
        });
        Receiver { url, came }
    }

    fn came(&self) -> Vec<Came> {
        self.came.lock().unwrap().clone()
    }

    /// The events that were taken, of one type.
    fn events(&self, kind: &str) -> Vec<Value> {
        let taken = self.came().into_iter().filter(|came| came.status == Some(TAKEN));
        let bodies = taken.map(|came| serde_json::from_slice::<Value>(&came.body).unwrap());
        let events = bodies.flat_map(|body| body["events"].as_array().unwrap().clone());
        events.filter(|event| event["type"] == kind).collect()
    }
}

fn take(connection: &mut TcpStream, status: Option<u16>) -> Came {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_string()),
        }
    }
    assert_eq!(lines[0], "POST /hook?x=1 HTTP/1.1");
    let header = |name: &str| {
        let found = lines.iter().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        found.unwrap_or_else(|| panic!("{name} in {lines:?}")).to_string()
    };
    let mut body = vec![0; header("content-length").parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    if let Some(status) = status {
        write!(connection, "HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n").unwrap();
    }
    let (delivery, signature) = (header("leasehold-delivery"), header("leasehold-signature"));
    Came { delivery, signature, body, status }
}

/// What it is told first is that events were missed: none is as old as the cursor.
fn sender(server: &Server, receiver: &Receiver, folder: &Path) -> Child {
    command(server, receiver, folder).spawn().unwrap()
}

fn command(server: &Server, receiver: &Receiver, folder: &Path) -> Command {
    let [secret, cursor] = ["secret", "cursor"].map(|name| folder.join(name));
    std::fs::write(&secret, SECRET).unwrap();
    let mut command = server.command(&["watch", "job/", "--post", &receiver.url, "--after", "0"]);
    command.arg("--secret-file").arg(secret).arg("--cursor-file").arg(cursor);
    command.stderr(Stdio::piped());
    command
}

fn granted_to(receiver: &Receiver) -> Vec<Value> {
    receiver.events("granted").iter().map(|event| event["owner_id"].clone()).collect()
}

#[test]
fn events_are_posted_until_they_are_taken_and_go_on_after_a_restart() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let receiver = Receiver::start(2);
    let mut first = sender(&server, &receiver, folder.path());
    until("it watches", || !receiver.came().is_empty());
    assert!(server.run(&["run", "job/a", "--owner", "ann", "--", "true"]).status.success());
    assert!(server.run(&["run", "other", "--owner", "eve", "--", "true"]).status.success());
    until("the release is told", || !receiver.events("ended").is_empty());
    let came = receiver.came();
    assert!(came.iter().all(Came::is_signed), "{came:?}");
    assert_eq!(came[0].delivery, came[2].delivery, "a try again is the same delivery");
    assert_eq!(came[0].body, came[2].body);
    assert_eq!(granted_to(&receiver), ["ann"]);

    // What was taken is in the file before the next is sent.
    let cursor = folder.path().join("cursor");
    until("the cursor is kept", || {
        let kept = std::fs::read_to_string(&cursor).unwrap_or_default();
        let last = receiver.events("ended").pop().unwrap();
        last["cursor"].as_str() == Some(kept.trim())
    });
    send(SIGTERM, first.id());
    let output = first.wait_with_output_of();
    assert_eq!(output.0, Some(0), "{}", output.1);
    assert!(output.1.contains("not delivered, tried again in"), "{}", output.1);

    assert!(server.run(&["run", "job/b", "--owner", "bob", "--", "true"]).status.success());
    let mut second = sender(&server, &receiver, folder.path());
    until("it goes on", || granted_to(&receiver).len() == 2);
    assert_eq!(granted_to(&receiver), ["ann", "bob"]);
    send(SIGTERM, second.id());
    assert_eq!(second.wait_with_output_of().0, Some(0));
}

/// How a child ended, and what it said on stderr.
trait Ended {
    fn wait_with_output_of(&mut self) -> (Option<i32>, String);
}

impl Ended for Child {
    fn wait_with_output_of(&mut self) -> (Option<i32>, String) {
        let mut said = Vec::new();
        self.stderr.take().unwrap().read_to_end(&mut said).unwrap();
        (self.wait().unwrap().code(), text(&said))
    }
}

#[test]
fn receiver_that_does_not_answer_is_asked_again() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let receiver = Receiver::with(|before| (before > 0).then_some(TAKEN));
    let mut sender = command(&server, &receiver, folder.path());
    let mut sender = sender.args(["--timeout", "1s"]).spawn().unwrap();
    until("it watches", || !receiver.came().is_empty());
    assert!(server.run(&["run", "job/a", "--owner", "ann", "--", "true"]).status.success());
    until("it is asked again", || !granted_to(&receiver).is_empty());
    let came = receiver.came();
    assert_eq!((&came[0].delivery, &came[0].body), (&came[1].delivery, &came[1].body));
    send(SIGTERM, sender.id());
    let (code, said) = sender.wait_with_output_of();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("no answer in time"), "{said}");
}

#[test]
fn sender_gives_up_where_it_is_told_to_and_begins_there_again() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let receiver = Receiver::start(usize::MAX);
    assert!(server.run(&["run", "job/a", "--owner", "ann", "--", "true"]).status.success());
    let mut sender = command(&server, &receiver, folder.path());
    let mut sender = sender.args(["--give-up", "1s"]).spawn().unwrap();
    let (code, said) = sender.wait_with_output_of();
    assert_eq!(code, Some(69), "{said}");
    assert!(
        said.contains("the receiver does not take the events: the receiver answers 503"),
        "{said}"
    );
    let tried = receiver.came().len();
    assert!((1..=3).contains(&tried), "{tried} tries in a second");
    assert!(!folder.path().join("cursor").exists(), "nothing was delivered");
}

#[test]
fn wrong_settings_are_told_before_anything_is_sent() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let short = folder.path().join("short");
    std::fs::write(&short, "abc").unwrap();
    let short = short.display().to_string();
    for (args, code) in [
        (vec!["watch", "--post", "ftp://127.0.0.1/x"], 64),
        (vec!["watch", "--post", "http://127.0.0.1:1/", "--secret-file", &short], 78),
        (vec!["watch", "--post", "http://127.0.0.1:1/", "--cursor-file", &short], 74),
        (vec!["watch", "--secret-file", &short], 64),
    ] {
        let output = server.run(&args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", text(&output.stderr));
    }
    assert_eq!(
        plain(&["watch", "--cursor-file", &short]).output().unwrap().status.code(),
        Some(64)
    );
}
