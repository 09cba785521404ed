//! Redis as programs use it for locks: through its library for Rust, `SET NX PX` to take one, and a script that compares and
//! deletes to give it back.
//!
//! Each worker is a task with a clone of one multiplexed connection, as each of ours has a clone of one client.

use std::process::Command as Program;
use std::rc::Rc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, Script};
use tokio::task::LocalSet;

use crate::load::Load;
use crate::process::{Folder, Server, free_port, is_installed};
use crate::sdk::Count;

pub(crate) const RELEASE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
/// The library's own is half a second, which a slow disk may exceed. Every request has a timer either way.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server with nothing but locks; every change is on its disk before the answer, or nothing ever is.
pub(crate) async fn start(folder: &Folder, durable: bool) -> Result<(Server, u16), String> {
    if !is_installed("redis-server") {
        return Err("redis-server is not installed (Debian package redis-server)".into());
    }
    let port = free_port();
    let mut program = Program::new("redis-server");
    program.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
    program.arg("--dir").arg(folder.fresh("redis"));
    program.args(match durable {
        true => ["--appendonly", "yes", "--appendfsync", "always"],
        false => ["--appendonly", "no", "--appendfsync", "no"],
    });
    Ok((Server::start(&mut program, port).await?, port))
}

/// Each worker acquires and releases a lock that nobody has had before, over and over.
pub(crate) async fn pairs(folder: &Folder, durable: bool, workers: usize) -> Result<Load, String> {
    let (server, port) = start(folder, durable).await?;
    let connection = connect(port).await.map_err(|error| error.to_string())?;
    let (count, tasks) = (Count::default(), LocalSet::new());
    let script = Rc::new(Script::new(RELEASE));
    let work = |worker| work(connection.clone(), script.clone(), worker, count.clone());
    let running = (0..workers).map(|worker| tasks.spawn_local(work(worker))).collect();
    count.measure(server.id(), &tasks, running).await
}

async fn connect(port: u16) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    let client = Client::open(("127.0.0.1", port))?;
    client.get_multiplexed_async_connection_with_config(&config).await
}

async fn work(
    mut connection: MultiplexedConnection,
    script: Rc<Script>,
    worker: usize,
    count: Count,
) -> Result<(), String> {
    let owner = format!("worker-{worker}");
    let mut turn = 0;
    while !count.is_over() {
        turn += 1;
        let lock = format!("bench/{worker}/{turn}");
        let since = Instant::now();
        let mut take = redis::cmd("SET");
        take.arg(&lock).arg(&owner).arg("NX").arg("PX").arg(30_000);
        let taken: Option<String> =
            take.query_async(&mut connection).await.map_err(|error| error.to_string())?;
        count.waited(since);
        let given_back: u64 = script
            .key(&lock)
            .arg(&owner)
            .invoke_async(&mut connection)
            .await
            .map_err(|error| error.to_string())?;
        if taken.is_none() || given_back != 1 {
            return Err(format!("{lock} was not free, or no longer held"));
        }
        count.done();
    }
    Ok(())
}
