//! What a connection is spoken through, in the clear or protected.
//!
//! The library would keep it for itself. It gives it away once, to be protected: there we keep hold of it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

use super::tls::Protection;

pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// For the library, which calls everything TLS that comes between it and a socket.
#[derive(Clone)]
pub(super) struct Splice {
    protection: Option<Protection>,
    line: Slot,
}

/// Where the line is put when there is one.
type Slot = Arc<Mutex<Option<Line>>>;

/// The same for one host.
pub(super) struct Splicing {
    protection: Option<(Protection, ServerName<'static>)>,
    line: Slot,
}

impl Splice {
    pub(super) fn new(protection: Option<Protection>) -> Splice {
        Splice { protection, line: Slot::default() }
    }

    /// What the library spoke through, if it has let go of it.
    pub(super) fn take(&self) -> Option<Box<dyn Duplex>> {
        let line = self.line.lock().unwrap_or_else(PoisonError::into_inner).take();
        Arc::into_inner(line?.0)?.into_inner().ok()
    }
}

impl MakeTlsConnect<Socket> for Splice {
    type Stream = Line;
    type TlsConnect = Splicing;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Splicing, Self::Error> {
        let protection = match self.protection.clone() {
            Some(protection) => Some((protection, ServerName::try_from(host)?.to_owned())),
            None => None,
        };
        Ok(Splicing { protection, line: self.line.clone() })
    }
}

impl TlsConnect<Socket> for Splicing {
    type Stream = Line;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Line>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let duplex: Box<dyn Duplex> = match self.protection {
                Some((protection, name)) => Box::new(protection.of(name, socket).await?),
                None => Box::new(socket),
            };
            let line = Line(Arc::new(Mutex::new(duplex)));
            *self.line.lock().unwrap_or_else(PoisonError::into_inner) = Some(line.clone());
            Ok(line)
        })
    }
}

/// One of two who could speak; only one ever does.
#[derive(Clone)]
pub(super) struct Line(Arc<Mutex<Box<dyn Duplex>>>);

impl Line {
    fn with<T>(&self, act: impl FnOnce(Pin<&mut Box<dyn Duplex>>) -> T) -> T {
        act(Pin::new(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl TlsStream for Line {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.with(|duplex| duplex.poll_read(context, buffer))
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.with(|duplex| duplex.poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|duplex| duplex.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|duplex| duplex.poll_shutdown(context))
    }
}
