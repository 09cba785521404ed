//! The network a client speaks over and the thread it runs in, as far as a simulation has to replace them.

use std::fmt;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// The bytes of one connection.
pub trait Bytes: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin + fmt::Debug> Bytes for T {}

/// A connection to come.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Bytes>>> + Send>>;
/// The loop of a client, from its first moment to its last.
pub type Driving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A network and a place to run in. Programs use the system's; simulations bring their own.
pub trait Surroundings: Send + Sync + fmt::Debug {
    /// Connects to `host:port`.
    fn connect(&self, authority: &str) -> Connecting;

    /// Runs the loop of a client beside everything else.
    fn run(&self, driving: Driving) -> io::Result<()>;
}

/// The system's network, and a thread of its own for each client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct System;

impl Surroundings for System {
    fn connect(&self, authority: &str) -> Connecting {
        let authority = authority.to_owned();
        Box::pin(async move {
            let tcp = TcpStream::connect(authority).await?;
            tcp.set_nodelay(true)?;
            Ok(Box::new(tcp) as Box<dyn Bytes>)
        })
    }

    fn run(&self, driving: Driving) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("leasehold".into());
        thread.spawn(move || runtime.block_on(driving)).map(drop)
    }
}
