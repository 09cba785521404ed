//! How servers are reached: over which connection, whom we trust, and as whom we come.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::header::HeaderValue;
use hyper_util::client::legacy::connect::{Connected, Connection};
use leasehold_api::Problem;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;

use crate::address::{authority, is_protected};
use crate::error::Error;
use crate::surroundings::{Bytes, Place, Surroundings, System, Task};
#[cfg(feature = "tls")]
use crate::tls::{Protected, Tls};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// What every connection of a client has in common.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    surroundings: Arc<dyn Surroundings>,
    /// The place of everything that is spawned for a connection.
    place: Place,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    token: Option<HeaderValue>,
}

/// What a client was told about trust, before anything of it is looked at.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) token: Option<String>,
    /// Certificates of authorities; those of the system if there are none.
    #[cfg(feature = "tls")]
    pub(crate) authorities: Option<Vec<u8>>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "secret");
        f.debug_struct("Credentials").field("token", &token).finish_non_exhaustive()
    }
}

/// What is spoken over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// Why there is no connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Complaint {
    pub(crate) said: String,
    /// It will not get better by trying again.
    pub(crate) is_lasting: bool,
    /// The server does not let us in.
    pub(crate) denied: Option<Box<Problem>>,
}

impl Complaint {
    pub(crate) fn passing(said: impl Into<String>) -> Complaint {
        Complaint { said: said.into(), is_lasting: false, denied: None }
    }

    pub(crate) fn lasting(said: impl Into<String>) -> Complaint {
        Complaint { said: said.into(), is_lasting: true, denied: None }
    }

    pub(crate) fn denied(said: impl Into<String>, problem: Problem) -> Complaint {
        Complaint { said: said.into(), is_lasting: true, denied: Some(Box::new(problem)) }
    }

    /// As an error of something that was never sent.
    pub(crate) fn as_error(&self) -> Error {
        match &self.denied {
            Some(problem) => Error::Refused(problem.clone()),
            None => Error::unsent(self.said.clone()),
        }
    }
}

impl Access {
    pub(crate) fn new(servers: &[String], credentials: &Credentials) -> Result<Access, Error> {
        let token = credentials.token.as_deref().map(bearer).transpose()?;
        #[cfg(feature = "tls")]
        {
            let authorities = credentials.authorities.as_deref();
            let is_needed = authorities.is_some() || servers.iter().any(|one| is_protected(one));
            let tls = is_needed.then(|| Tls::new(authorities)).transpose()?;
            Ok(Access { surroundings: Arc::new(System), place: Place::Guard, tls, token })
        }
        #[cfg(not(feature = "tls"))]
        match servers.iter().find(|server| is_protected(server)) {
            Some(server) => {
                Err(Error::Address(format!("{server}: this build of the client has no TLS")))
            }
            None => Ok(Access { surroundings: Arc::new(System), place: Place::Guard, token }),
        }
    }

    /// The same in other surroundings.
    pub(crate) fn within(self, surroundings: Arc<dyn Surroundings>) -> Access {
        Access { surroundings, ..self }
    }

    /// The same for connections of that place. A connection works only while the runtime runs on which it was made.
    pub(crate) fn at(&self, place: Place) -> Access {
        Access { place, ..self.clone() }
    }

    /// Spawns a task of this place. Only called from there.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let task: Task = Box::pin(task);
        self.surroundings.spawn(self.place, task)
    }

    /// What a request shows to be let in.
    pub(crate) fn token(&self) -> Option<&HeaderValue> {
        self.token.as_ref()
    }

    /// Makes a connection that is ready to be spoken over.
    pub(crate) async fn connect(&self, server: &str, protocol: Protocol) -> Result<Io, Complaint> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.dial(server, protocol)).await {
            Ok(connected) => connected,
            Err(_) => {
                Err(Complaint::passing(format!("{server}: no answer in {CONNECT_TIMEOUT:?}")))
            }
        }
    }

    async fn dial(&self, server: &str, protocol: Protocol) -> Result<Io, Complaint> {
        let passing = |error: io::Error| Complaint::passing(format!("{server}: {error}"));
        let tcp = self.surroundings.connect(authority(server)).await.map_err(passing)?;
        if !is_protected(server) {
            return Ok(Io::Plain(tcp));
        }
        self.protect(server, tcp, protocol).await
    }

    #[cfg(feature = "tls")]
    async fn protect(
        &self,
        server: &str,
        tcp: Box<dyn Bytes>,
        protocol: Protocol,
    ) -> Result<Io, Complaint> {
        let Some(tls) = &self.tls else {
            // A server that is spoken to in the clear names one that is not.
            return Err(Complaint::lasting(format!(
                "{server}: no certificate authorities are configured for it"
            )));
        };
        Ok(Io::Protected(tls.protect(server, tcp, protocol).await?))
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_async, reason = "with TLS it waits")]
    async fn protect(&self, server: &str, _: Box<dyn Bytes>, _: Protocol) -> Result<Io, Complaint> {
        Err(Complaint::lasting(format!("{server}: this build of the client has no TLS")))
    }
}

impl<F> hyper::rt::Executor<F> for Access
where
    F: Future + Send + 'static,
{
    fn execute(&self, connection: F) {
        drop(self.spawn(async move { drop(connection.await) }));
    }
}

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(pub(crate) AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let wrong = |why: &str| Err(Error::Settings(format!("the token cannot be used: {why}")));
    if token.is_empty() {
        return wrong("it is empty");
    }
    match HeaderValue::from_str(&format!("Bearer {token}")) {
        Ok(mut value) => {
            value.set_sensitive(true);
            Ok(value)
        }
        Err(_) => wrong("it has a character that an HTTP header cannot have"),
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Io {
    Plain(Box<dyn Bytes>),
    #[cfg(feature = "tls")]
    Protected(Protected),
}

macro_rules! of_either {
    ($io:expr, $method:ident($($arg:expr),*)) => {
        match $io.get_mut() {
            Io::Plain(tcp) => Pin::new(tcp).$method($($arg),*),
            #[cfg(feature = "tls")]
            Io::Protected(tls) => Pin::new(tls).$method($($arg),*),
        }
    };
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        of_either!(self, poll_read(cx, buffer))
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        of_either!(self, poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        of_either!(self, poll_write_vectored(cx, parts))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Io::Plain(tcp) => tcp.is_write_vectored(),
            #[cfg(feature = "tls")]
            Io::Protected(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_either!(self, poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        of_either!(self, poll_shutdown(cx))
    }
}

impl Connection for Io {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_shown_to_servers_alone() {
        let credentials =
            Credentials { token: Some("lk_1_geheim".into()), ..Credentials::default() };
        let access = Access::new(&["http://a:1".into()], &credentials).unwrap();
        assert_eq!(access.token().unwrap().to_str().unwrap(), "Bearer lk_1_geheim");
        for shown in [format!("{credentials:?}"), format!("{access:?}")] {
            assert!(!shown.contains("geheim"), "{shown}");
        }
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused_without_showing_it() {
        for token in ["", "ge\nheim", "geheim\u{7f}"] {
            let credentials = Credentials { token: Some(token.into()), ..Credentials::default() };
            let error = Access::new(&[], &credentials).unwrap_err();
            assert!(matches!(error, Error::Settings(_)));
            assert!(!error.to_string().contains("heim"), "{error}");
        }
    }
}
