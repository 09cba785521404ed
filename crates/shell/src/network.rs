//! The simulated network, on both sides.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use leasehold_client::{Bytes, Connecting, Place, Stall, Surroundings, Task};
use leasehold_server::{Listener, Remote};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
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

    async fn accept(&self) -> io::Result<(TcpStream, Remote)> {
        self.0.accept().await.map(|(stream, address)| (stream, address.into()))
    }
}

/// What a client stands on inside the world: its driver, its guard and their tasks are tasks of its host.
#[derive(Clone, Debug)]
pub(crate) struct Simulated {
    /// Stops what would run on the caller's runtime.
    pub(crate) stall: Stall,
}

impl Surroundings for Simulated {
    fn connect(&self, authority: &str) -> Connecting {
        let authority = authority.to_owned();
        Box::pin(async move {
            let stream = TcpStream::connect(authority).await?;
            Ok(Box::new(stream) as Box<dyn Bytes>)
        })
    }

    fn run(&self, guard: Task) -> io::Result<Handle> {
        drop(tokio::spawn(guard));
        Ok(Handle::current())
    }

    fn spawn(&self, place: Place, task: Task) -> AbortHandle {
        let task = match place {
            Place::Caller => tokio::spawn(self.stall.clone().stop(task)),
            Place::Guard => tokio::spawn(task),
        };
        task.abort_handle()
    }
}
