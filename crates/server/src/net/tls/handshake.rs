//! One handshake: it begins as one, it ends in time, and it leaves room for others.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::keeper::Tls;

/// The first byte of TLS, and of nothing that HTTP begins with.
const TLS_HANDSHAKE: u8 = 0x16;
/// From the first byte to the last, the wait for a place included.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The same while others wait for a place: a peer that answers takes two turns of the network.
const TIMEOUT_IN_A_CROWD: Duration = Duration::from_millis(400);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The answer to a client that does not speak TLS.
const PORT_SPEAKS_TLS: &str = "this port speaks TLS: write https://";
/// So long such a client may take to read it.
const FAREWELL_MAX: Duration = Duration::from_secs(1);
const UNREAD_MAX: usize = 64 * 1024;

/// A stream of which the first byte was looked at.
#[derive(Debug)]
pub(crate) struct Rewound<S> {
    first: Option<u8>,
    stream: S,
}

/// The result of a handshake.
#[derive(Debug)]
pub(crate) struct Handshake<S> {
    pub(crate) stream: Box<TlsStream<Rewound<S>>>,
    /// The client's certificates; empty if it has shown none.
    pub(crate) certificates: Vec<CertificateDer<'static>>,
}

impl Tls {
    /// Speaks TLS with a peer; `None` if that came to nothing.
    pub(crate) async fn handshake<S>(&self, mut stream: S, peer: IpAddr) -> Option<Handshake<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let deadline = Instant::now() + TIMEOUT;
        match tokio::time::timeout_at(deadline, stream.read_u8()).await {
            Ok(Ok(TLS_HANDSHAKE)) => {}
            Ok(Ok(_)) => {
                let _ = tokio::time::timeout(FAREWELL_MAX, tell_to_speak_tls(stream)).await;
                return None;
            }
            Ok(Err(_)) | Err(_) => return None,
        }
        let slot = tokio::time::timeout_at(deadline, self.slots().enter(peer)).await.ok()?;
        let begun = Instant::now();
        let rewound = Rewound { first: Some(TLS_HANDSHAKE), stream };
        let mut accepting = Box::pin(TlsAcceptor::from(self.server()).accept(rewound));
        let accepted = loop {
            let end = if self.slots().is_crowded() { begun + TIMEOUT_IN_A_CROWD } else { deadline };
            let look = (Instant::now() + LOOK_EVERY).min(end);
            match tokio::time::timeout_at(look, accepting.as_mut()).await {
                Ok(accepted) => break accepted,
                Err(_) if look == end => {
                    tracing::debug!(%peer, "a TLS handshake took too long");
                    return None;
                }
                Err(_) => {}
            }
        };
        drop(slot);
        match accepted {
            Ok(stream) => {
                let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
                let certificates = shown.iter().map(|one| one.clone().into_owned()).collect();
                Some(Handshake { stream: Box::new(stream), certificates })
            }
            Err(error) => {
                tracing::debug!(%peer, %error, "a TLS handshake failed");
                None
            }
        }
    }
}

async fn tell_to_speak_tls(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let said = format!(
        "HTTP/1.1 400 {PORT_SPEAKS_TLS}\r\ncontent-type: text/plain\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{PORT_SPEAKS_TLS}\n",
        PORT_SPEAKS_TLS.len() + 1
    );
    stream.write_all(said.as_bytes()).await?;
    stream.shutdown().await?;
    // A socket that is closed before all is read takes back what it said.
    tokio::io::copy(&mut stream.take(UNREAD_MAX as u64), &mut tokio::io::sink()).await?;
    Ok(())
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.first.take_if(|_| buf.remaining() > 0) {
            Some(first) => {
                buf.put_slice(&[first]);
                Poll::Ready(Ok(()))
            }
            None => Pin::new(&mut this.stream).poll_read(cx, buf),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
