//! The simulated network, on both sides.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use leasehold_client::{Bytes, Connecting, Driving, Surroundings};
use leasehold_server::Listener;
use turmoil::net::{TcpListener, TcpStream};

/// Where a simulated server takes connections in.
pub(crate) struct SimulatedListener(TcpListener);

impl fmt::Debug for SimulatedListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulatedListener")
    }
}

impl SimulatedListener {
    pub(crate) async fn bind(address: SocketAddr) -> io::Result<SimulatedListener> {
        TcpListener::bind(address).await.map(SimulatedListener)
    }
}

impl Listener for SimulatedListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await
    }
}

/// What a client stands on inside the world. Its loop is a task of its host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Simulated;

impl Surroundings for Simulated {
    fn connect(&self, authority: &str) -> Connecting {
        let authority = authority.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect(authority).await?;
            Ok(Box::new(stream) as Box<dyn Bytes>)
        })
    }

    fn run(&self, driving: Driving) -> io::Result<()> {
        drop(tokio::spawn(driving));
        Ok(())
    }
}
