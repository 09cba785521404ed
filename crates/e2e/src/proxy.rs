//! A network that misbehaves on purpose: a proxy between a client and a server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the network does to all connections, those that stand and those that come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Works,
    /// Nothing goes through any more, and nobody is told.
    Stalls,
    /// Connections are cut with a reset, also those that come.
    Resets,
    /// The server's side says that it will send nothing more.
    HalfCloses,
    /// What the client says arrives; what the server says does not.
    DeafensClient,
}

/// A proxy that lives until this is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    network: watch::Sender<Network>,
    open: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Proxy {
    pub async fn before(server: SocketAddr) -> Result<Proxy> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (network, state) = watch::channel(Network::Works);
        let open = Arc::new(AtomicUsize::new(0));
        let count = open.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (state, count) = (state.clone(), count.clone());
                count.fetch_add(1, Ordering::Relaxed);
                drop(tokio::spawn(async move {
                    carry(client, server, state).await;
                    count.fetch_sub(1, Ordering::Relaxed);
                }));
            }
        });
        Ok(Proxy { address, network, open, accepting })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections stand.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub fn set(&self, network: Network) {
        self.network.send_replace(network);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn carry(client: TcpStream, server: SocketAddr, mut network: watch::Receiver<Network>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    // A socket that does not linger resets its peer when it is closed.
    let _ = (client.set_zero_linger(), server.set_zero_linger());
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let up = pump(from_client, to_server, network.clone(), Direction::Up);
    let down = pump(from_server, to_client, network.clone(), Direction::Down);
    tokio::select! {
        ((), ()) = async { tokio::join!(up, down) } => {}
        _ = network.wait_for(|network| *network == Network::Resets) => {}
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Up,
    Down,
}

/// Carries bytes one way, as the network allows.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut network: watch::Receiver<Network>,
    direction: Direction,
) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        let state = *network.borrow_and_update();
        match (state, direction) {
            (Network::Stalls, _) => {
                if network.changed().await.is_err() {
                    return;
                }
                continue;
            }
            (Network::Resets, _) => return,
            (Network::HalfCloses, Direction::Down) => {
                let _ = to.shutdown().await;
                drain(&mut from, &mut network).await;
                return;
            }
            (Network::Works | Network::HalfCloses | Network::DeafensClient, _) => {}
        }
        let read = tokio::select! {
            read = from.read(&mut bytes) => read,
            _ = network.changed() => continue,
        };
        let Ok(len @ 1..) = read else {
            let _ = to.shutdown().await;
            return;
        };
        let is_swallowed =
            (*network.borrow(), direction) == (Network::DeafensClient, Direction::Down);
        if !is_swallowed && to.write_all(&bytes[..len]).await.is_err() {
            return;
        }
    }
}

async fn drain(from: &mut OwnedReadHalf, network: &mut watch::Receiver<Network>) {
    let mut bytes = vec![0; 16 * 1024];
    loop {
        tokio::select! {
            read = from.read(&mut bytes) => if !matches!(read, Ok(1..)) { return },
            _ = network.changed() => {}
            () = tokio::time::sleep(Duration::from_secs(60)) => return,
        }
    }
}
