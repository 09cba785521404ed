//! TLS for the connection, which PostgreSQL has to be asked for.

use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_postgres::Socket;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A connection begins in the clear, and with the question whether the server can do better.
const CAN_YOU: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const YES: u8 = b'S';

/// How connections are protected.
#[derive(Clone)]
pub(super) struct Protection {
    config: Arc<ClientConfig>,
}

impl Protection {
    pub(super) fn new(config: ClientConfig) -> Protection {
        Protection { config: Arc::new(config) }
    }

    /// Asks the server of that name for it.
    pub(super) async fn of(
        self,
        name: ServerName<'static>,
        mut socket: Socket,
    ) -> io::Result<TlsStream<Socket>> {
        socket.write_all(&CAN_YOU).await?;
        if socket.read_u8().await? != YES {
            return Err(io::Error::other("the server does not offer TLS"));
        }
        TlsConnector::from(self.config).connect(name, socket).await
    }
}
