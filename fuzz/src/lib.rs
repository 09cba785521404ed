//! A server in memory, whose connections are pipes and whose time passes only when nothing else is left to do.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::Timestamp;
use leasehold_engine::RuntimeClock;
use leasehold_server::{AccessLog, Config, Ground, Listener, Server};
use leasehold_store::MemoryJournal;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, mpsc};

const PIPE_BYTES: usize = 1 << 20;

/// Longer than any wait that can be asked for.
const PATIENCE: Duration = Duration::from_secs(3600);

/// A runtime whose clock stands still while anything can be done.
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime needs nothing")
}

/// Where pipes to the server are laid.
#[derive(Debug)]
pub struct Door(mpsc::UnboundedSender<DuplexStream>);

#[derive(Debug)]
struct Pipes(Mutex<mpsc::UnboundedReceiver<DuplexStream>>);

impl Listener for Pipes {
    type Stream = DuplexStream;

    async fn accept(&self) -> io::Result<(DuplexStream, SocketAddr)> {
        match self.0.lock().await.recv().await {
            Some(pipe) => Ok((pipe, SocketAddr::from((Ipv4Addr::LOCALHOST, 1)))),
            None => std::future::pending().await,
        }
    }
}

/// A server that has just started, with one lock taken.
pub async fn start() -> (Server, Door) {
    let (door, pipes) = mpsc::unbounded_channel();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8080));
    let config = Config { listen: address, access_log: AccessLog::Off, ..Config::default() };
    let clock = RuntimeClock::showing(Timestamp::from_millis(1_800_000_000_000));
    let ground = Ground {
        listener: Pipes(Mutex::new(pipes)),
        address,
        journals: vec![Arc::new(MemoryJournal::new())],
        clock: Arc::new(clock),
    };
    let server = Server::start_on(config, ground).await.expect("memory can always be taken over");
    (server, Door(door))
}

impl Door {
    pub fn connect(&self) -> DuplexStream {
        let (ours, theirs) = duplex(PIPE_BYTES);
        let _ = self.0.send(theirs);
        ours
    }

    /// Sends bytes over a connection of its own, and takes what comes back until it ends. A server that waits for more
    /// gives up when its time is over, which is at once.
    pub async fn exchange(&self, bytes: &[u8]) -> Vec<u8> {
        let mut pipe = self.connect();
        let mut answer = Vec::new();
        let talk = async {
            let _ = pipe.write_all(bytes).await;
            let _ = pipe.read_to_end(&mut answer).await;
        };
        let _ = tokio::time::timeout(PATIENCE, talk).await;
        answer
    }
}
