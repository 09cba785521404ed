//! Our own server over its stream.

use std::ffi::OsStr;
use std::process::Command as Program;
use std::time::{Duration, Instant};

use leasehold_api::grpc::{Command, StreamRenew, attach, command::Ask, reply::Answer};

use crate::doors;
use crate::link::{Link, Wishes, acquire, locks_of_session, own_locks, release, session};
use crate::load::{Load, Meter};
use crate::process::{Folder, Server, free_port, written_bytes};
use crate::{WORKERS, run};

async fn start(folder: &Folder, store: &str) -> Result<(Server, Link), String> {
    start_with(folder, store, None).await
}

async fn start_with(
    folder: &Folder,
    store: &str,
    session: Option<attach::Session>,
) -> Result<(Server, Link), String> {
    let (server, port) = serve(folder, store).await?;
    let link = Link::open(port, session).await?;
    Ok((server, link))
}

/// The real server, in a process of its own.
pub(crate) async fn serve(folder: &Folder, store: &str) -> Result<(Server, u16), String> {
    serve_with(folder, store, &[]).await
}

/// The same with more arguments.
pub(crate) async fn serve_with(
    folder: &Folder,
    store: &str,
    more: &[&OsStr],
) -> Result<(Server, u16), String> {
    let port = free_port();
    let store = match store {
        "sqlite" => format!("sqlite:{}", folder.fresh("sqlite").join("locks.db").display()),
        other => other.to_owned(),
    };
    let mut program = Program::new(env!("CARGO_BIN_EXE_leasehold"));
    program.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--store", &store]);
    program.args(more);
    program.env("LEASEHOLD_LOG", "error");
    Ok((Server::start(&mut program, port).await?, port))
}

/// Each worker takes and gives back a lock of its own.
pub(crate) async fn pairs(folder: &Folder, store: &str) -> Result<Load, String> {
    let (server, mut link) = start(folder, store).await?;
    own_locks(server.id(), &mut link).await
}

/// The same with a token.
pub(crate) async fn pairs_behind_doors(folder: &Folder) -> Result<Load, String> {
    let (server, door) = doors::serve(folder, false).await?;
    let mut link = Link::open_as(door.port, door.token.as_deref(), None).await?;
    own_locks(server.id(), &mut link).await
}

/// The same under one session: what a client with one heartbeat for all does.
pub(crate) async fn session_pairs(folder: &Folder) -> Result<Load, String> {
    let (server, mut link) = start_with(folder, "sqlite", Some(session())).await?;
    locks_of_session(server.id(), &mut link).await
}

/// All workers want the same lock and wait for it: how often it changes hands.
pub(crate) async fn hot(folder: &Folder) -> Result<Load, String> {
    let (server, mut link) = start(folder, "sqlite").await?;
    let wishes = Wishes::new(|_| "bench/hot".to_owned());
    let ask = |worker| acquire(worker, wishes.of(worker), true);
    link.say((0..WORKERS as u64).map(ask).collect());
    let meter = Meter::start(server.id());
    let mut released: Option<Instant> = None;
    let mut lengths = Vec::new();
    while meter.elapsed() < run() {
        let heard = link.hear().await?;
        let mut next = Vec::new();
        for reply in heard.replies {
            match reply.answer {
                Some(Answer::Granted(grant)) => {
                    lengths.extend(released.take().map(|at| at.elapsed()));
                    let wish = wishes.of(reply.id);
                    next.push(release(reply.id, wish, grant.lease_id, grant.fencing_token));
                    released = Some(Instant::now());
                }
                Some(Answer::Released(_)) => next.push(ask(reply.id)),
                other => return Err(format!("unexpected: {other:?}")),
            }
        }
        link.say(next);
    }
    Ok(meter.stop(lengths.len() as u64).with_waits(lengths))
}

/// Each worker renews its lock over and over.
pub(crate) async fn renewals(folder: &Folder) -> Result<(Load, u64), String> {
    let (server, mut link) = start(folder, "sqlite").await?;
    let wishes = Wishes::new(|worker| format!("bench/lock-{worker}"));
    let ask = |worker| acquire(worker, wishes.of(worker), false);
    link.say((0..WORKERS as u64).map(ask).collect());
    let mut held: Vec<StreamRenew> = vec![StreamRenew::default(); WORKERS];
    let mut missing = WORKERS;
    while missing > 0 {
        for reply in link.hear().await?.replies {
            let Some(Answer::Granted(grant)) = reply.answer else {
                return Err("it was not granted".into());
            };
            let worker = usize::try_from(reply.id).unwrap_or(0);
            held[worker] = StreamRenew {
                lock: wishes.of(reply.id).lock.clone(),
                owner_id: wishes.of(reply.id).owner.clone(),
                lease_id: grant.lease_id,
                fencing_token: grant.fencing_token,
                ttl: None,
            };
            missing -= 1;
        }
    }
    // What the grants had written is on the disk by now.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let renew = |worker: u64| {
        let held = held[usize::try_from(worker).unwrap_or(0)].clone();
        Command { id: worker, ask: Some(Ask::Renew(held)) }
    };
    let written = written_bytes(server.id());
    let meter = Meter::start(server.id());
    let mut done = 0;
    link.say((0..WORKERS as u64).map(renew).collect());
    while meter.elapsed() < run() {
        let heard = link.hear().await?;
        done += heard.replies.len() as u64;
        link.say(heard.replies.into_iter().map(|reply| renew(reply.id)).collect());
    }
    let load = meter.stop(done);
    Ok((load, written_bytes(server.id()) - written))
}
