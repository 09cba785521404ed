//! The sockets of the system: TCP, and one in the file system, which tells the user at its other end.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_util::either::Either;

use crate::listen::Listen;
use crate::net::accept::{Listener, Remote};

/// The stand-in for the address of a client on a Unix socket, which has none.
const NEAR: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A socket that connections come in by.
#[derive(Debug)]
pub(crate) enum SystemListener {
    Tcp(TcpListener),
    Unix {
        listener: UnixListener,
        #[expect(dead_code, reason = "held, never read")]
        file: SocketFile,
    },
}

/// A socket in the file system, removed when the server ends.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl SystemListener {
    /// With `is_for_all` every local user can connect, because each is known; otherwise owner and group alone.
    pub(crate) async fn bind(listen: &Listen, is_for_all: bool) -> io::Result<SystemListener> {
        match listen {
            Listen::Tcp(address) => TcpListener::bind(address).await.map(SystemListener::Tcp),
            Listen::Unix(path) => {
                remove_left_over(path)?;
                let listener = UnixListener::bind(path)?;
                let file = SocketFile(path.clone());
                let mode = if is_for_all { 0o666 } else { 0o660 };
                std::fs::set_permissions(path, PermissionsExt::from_mode(mode))?;
                Ok(SystemListener::Unix { listener, file })
            }
        }
    }

    /// The address it is bound to; on a Unix socket what stands for one.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            SystemListener::Tcp(listener) => listener.local_addr(),
            SystemListener::Unix { .. } => Ok(NEAR),
        }
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Remote)> {
        let (stream, address) = TcpListener::accept(self).await?;
        // An answer is one small packet: waiting to fill a larger one only costs time.
        let _ = stream.set_nodelay(true);
        Ok((stream, address.into()))
    }
}

impl Listener for SystemListener {
    type Stream = Either<TcpStream, UnixStream>;

    async fn accept(&self) -> io::Result<(Either<TcpStream, UnixStream>, Remote)> {
        match self {
            SystemListener::Tcp(listener) => {
                let (stream, remote) = Listener::accept(listener).await?;
                Ok((Either::Left(stream), remote))
            }
            SystemListener::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                // A user that the system does not tell is nobody.
                let uid = stream.peer_cred().ok().map(|user| user.uid());
                Ok((Either::Right(stream), Remote { address: NEAR, uid }))
            }
        }
    }
}

/// Removes the socket of a server that was killed; one that somebody listens on stays, and so does any other file.
fn remove_left_over(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let is_left_over = || {
        BlockingStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    if is_socket && is_left_over() { std::fs::remove_file(path) } else { Ok(()) }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
