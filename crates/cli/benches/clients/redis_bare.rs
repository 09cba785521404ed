//! Redis with the least that a client can be: what our bare stream is compared with.
//!
//! One socket with all workers' requests in flight, written and read by hand. Answers come in the order of the requests.

use std::collections::VecDeque;
use std::io::Write as _;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::load::{Load, Meter};
use crate::process::{Folder, Server};
use crate::redis::{RELEASE, start};
use crate::{WORKERS, run};

#[derive(Clone, Copy)]
enum Asked {
    Acquire(usize),
    Release(usize),
}

pub(crate) async fn pairs(folder: &Folder, durable: bool) -> Result<Load, String> {
    let (server, port) = start(folder, durable).await?;
    drive(&server, port).await.map_err(|error| error.to_string())
}

async fn drive(server: &Server, port: u16) -> std::io::Result<Load> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let (mut out, mut input) = (Vec::new(), Vec::new());
    command(&mut out, &["SCRIPT", "LOAD", RELEASE]);
    stream.write_all(&out).await?;
    let mut buffer = vec![0; 64 * 1024];
    let sha = loop {
        let read = stream.read(&mut buffer).await?;
        input.extend_from_slice(&buffer[..read]);
        if let Some((_, text, used)) = reply(&input) {
            let sha = String::from_utf8_lossy(text).into_owned();
            input.drain(..used);
            break sha;
        }
    };
    let mut asked = VecDeque::new();
    out.clear();
    let mut turns = vec![(0, Instant::now()); WORKERS];
    for worker in 0..WORKERS {
        acquire(&mut out, worker, 0);
        asked.push_back(Asked::Acquire(worker));
    }
    let mut waits = Vec::new();
    stream.write_all(&out).await?;
    let mut meter = Meter::start(server.id());
    let (mut pairs, mut warm) = (0, false);
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Err(std::io::Error::other("redis closed the connection"));
        }
        input.extend_from_slice(&buffer[..read]);
        out.clear();
        let mut at = 0;
        while let Some((kind, text, used)) = reply(&input[at..]) {
            match asked.pop_front() {
                Some(Asked::Acquire(worker)) if kind == b'+' => {
                    let (turn, since) = turns[worker];
                    waits.push(since.elapsed());
                    release(&mut out, &sha, worker, turn);
                    asked.push_back(Asked::Release(worker));
                }
                Some(Asked::Release(worker)) if text == b"1" => {
                    pairs += 1;
                    turns[worker] = (turns[worker].0 + 1, Instant::now());
                    acquire(&mut out, worker, turns[worker].0);
                    asked.push_back(Asked::Acquire(worker));
                }
                Some(_) | None => {
                    let said = String::from_utf8_lossy(text).into_owned();
                    return Err(std::io::Error::other(format!("unexpected: {said}")));
                }
            }
            at += used;
        }
        input.drain(..at);
        stream.write_all(&out).await?;
        if !warm && meter.elapsed() > Duration::from_millis(500) {
            (meter, pairs, warm) = (Meter::start(server.id()), 0, true);
            waits.clear();
        }
        if warm && meter.elapsed() > run() {
            return Ok(meter.stop(pairs).with_waits(waits));
        }
    }
}

/// Each turn of a worker has a name that none had before.
fn names(worker: usize, turn: u64) -> (String, String) {
    (format!("bench/{worker}/{turn}"), format!("worker-{worker}"))
}

fn acquire(out: &mut Vec<u8>, worker: usize, turn: u64) {
    let (lock, owner) = names(worker, turn);
    command(out, &["SET", &lock, &owner, "NX", "PX", "30000"]);
}

fn release(out: &mut Vec<u8>, sha: &str, worker: usize, turn: u64) {
    let (lock, owner) = names(worker, turn);
    command(out, &["EVALSHA", sha, "1", &lock, &owner]);
}

fn command(out: &mut Vec<u8>, words: &[&str]) {
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n{word}\r\n", word.len());
    }
}

/// The first whole reply: its kind, its text, and how many bytes it takes.
fn reply(input: &[u8]) -> Option<(u8, &[u8], usize)> {
    let end = input.windows(2).position(|two| two == b"\r\n")?;
    let (kind, line) = (*input.first()?, &input[1..end]);
    if kind != b'$' || line == b"-1" {
        return Some((kind, line, end + 2));
    }
    let len: usize = std::str::from_utf8(line).ok()?.parse().ok()?;
    let text = input.get(end + 2..end + 2 + len)?;
    (input.len() >= end + 4 + len).then_some((kind, text, end + 4 + len))
}
