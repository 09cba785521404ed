//! Connections to servers: network, TLS, credentials.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use leasehold_api::Problem;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;

use crate::address::{authority, is_loopback, is_protected, parse_server};
use crate::error::Error;
use crate::surroundings::{Bytes, Place, Surroundings, System, Task};
#[cfg(feature = "tls")]
use crate::tls::{Protected, Tls, TlsSettings};
use crate::token::{TokenSource, Tokens};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Settings that all connections of a client share.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    surroundings: Arc<dyn Surroundings>,
    /// The place of everything that is spawned for a connection.
    place: Place,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    tokens: Option<Arc<Tokens>>,
    /// The servers that were configured.
    servers: Arc<[String]>,
    /// True if the authorities were configured, and are not those of the system.
    is_pinned: bool,
}

/// Credentials as they were configured, not yet checked.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) token: Option<TokenSource>,
    /// True if the token may be sent unencrypted to other machines.
    pub(crate) allows_cleartext_token: bool,
    #[cfg(feature = "tls")]
    pub(crate) tls: TlsSettings,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("token", &self.token).finish_non_exhaustive()
    }
}

/// Protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// The reason why there is no connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectError {
    pub(crate) said: String,
    /// It will not get better by trying again.
    pub(crate) is_lasting: bool,
    /// The server does not let us in.
    pub(crate) denied: Option<Box<Problem>>,
}

impl ConnectError {
    pub(crate) fn passing(said: impl Into<String>) -> ConnectError {
        ConnectError { said: said.into(), is_lasting: false, denied: None }
    }

    pub(crate) fn lasting(said: impl Into<String>) -> ConnectError {
        ConnectError { said: said.into(), is_lasting: true, denied: None }
    }

    pub(crate) fn denied(said: impl Into<String>, problem: Problem) -> ConnectError {
        ConnectError { said: said.into(), is_lasting: true, denied: Some(Box::new(problem)) }
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
        let tokens = credentials.token.clone().map(Tokens::new).transpose()?.map(Arc::new);
        let is_exposed = |server: &&String| !is_protected(server) && !is_loopback(server);
        if tokens.is_some()
            && !credentials.allows_cleartext_token
            && let Some(server) = servers.iter().find(is_exposed)
        {
            let said = format!("{server}: the token would be sent unencrypted; use https://");
            return Err(Error::Settings(said));
        }
        let (surroundings, place) = (Arc::new(System), Place::Guard);
        #[cfg(feature = "tls")]
        {
            let is_pinned = credentials.tls.is_pinned();
            let is_needed = is_pinned || servers.iter().any(|one| is_protected(one));
            let tls = is_needed.then(|| Tls::new(&credentials.tls)).transpose()?;
            Ok(Access { surroundings, place, tls, tokens, servers: servers.into(), is_pinned })
        }
        #[cfg(not(feature = "tls"))]
        match servers.iter().find(|server| is_protected(server)) {
            Some(server) => {
                Err(Error::Address(format!("{server}: this build of the client has no TLS")))
            }
            None => {
                let servers = servers.into();
                Ok(Access { surroundings, place, tokens, servers, is_pinned: false })
            }
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

    /// The address of the leader that the server in use names, if it may be followed there: to a configured server, or over TLS to one
    /// that a configured authority has signed. It never leads from https to http.
    pub(crate) fn leader(&self, current: &str, hint: &str) -> Option<String> {
        let hint = match current.split_once("://") {
            Some((scheme, _)) if !hint.contains("://") => format!("{scheme}://{hint}"),
            Some(_) | None => hint.to_owned(),
        };
        let server = parse_server(&hint).ok()?;
        if is_protected(current) && !is_protected(&server) {
            return None;
        }
        let is_vouched_for = self.is_pinned && is_protected(current);
        (is_vouched_for || self.servers.contains(&server)).then_some(server)
    }

    /// The tokens to show, if there are any.
    pub(crate) fn tokens(&self) -> Option<&Arc<Tokens>> {
        self.tokens.as_ref()
    }

    /// Makes a connection that is ready to be spoken over.
    pub(crate) async fn connect(
        &self,
        server: &str,
        protocol: Protocol,
    ) -> Result<Io, ConnectError> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.dial(server, protocol)).await {
            Ok(connected) => connected,
            Err(_) => {
                Err(ConnectError::passing(format!("{server}: no answer in {CONNECT_TIMEOUT:?}")))
            }
        }
    }

    async fn dial(&self, server: &str, protocol: Protocol) -> Result<Io, ConnectError> {
        let passing = |error: io::Error| ConnectError::passing(format!("{server}: {error}"));
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
    ) -> Result<Io, ConnectError> {
        let Some(tls) = &self.tls else {
            // A server that is spoken to in the clear names one that is not.
            return Err(ConnectError::lasting(format!(
                "{server}: no certificate authorities are configured for it"
            )));
        };
        Ok(Io::Protected(tls.protect(server, tcp, protocol).await?))
    }

    #[cfg(not(feature = "tls"))]
    #[expect(clippy::unused_async, reason = "with TLS it waits")]
    async fn protect(
        &self,
        server: &str,
        _: Box<dyn Bytes>,
        _: Protocol,
    ) -> Result<Io, ConnectError> {
        Err(ConnectError::lasting(format!("{server}: this build of the client has no TLS")))
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

    fn fixed(token: &str) -> TokenSource {
        TokenSource::Fixed(token.into())
    }

    #[test]
    fn a_token_is_shown_to_servers_alone() {
        let credentials =
            Credentials { token: Some(fixed("lk_1_geheim")), ..Credentials::default() };
        let access = Access::new(&["http://127.0.0.1:1".into()], &credentials).unwrap();
        let shown = access.tokens().unwrap().current();
        assert_eq!(shown.to_str().unwrap(), "Bearer lk_1_geheim");
        for shown in [format!("{credentials:?}"), format!("{access:?}")] {
            assert!(!shown.contains("geheim"), "{shown}");
        }
    }

    #[test]
    fn a_token_goes_unencrypted_to_this_machine_alone() {
        let token = Some(fixed("lk_1_geheim"));
        let access = |server: &str, allows_cleartext_token| {
            let token = token.clone();
            let credentials =
                Credentials { token, allows_cleartext_token, ..Credentials::default() };
            Access::new(&["http://127.0.0.1:1".into(), server.into()], &credentials)
        };
        assert!(access("http://localhost:2", false).is_ok());
        let error = access("http://10.0.0.2:1", false).unwrap_err();
        assert!(matches!(error, Error::Settings(_)));
        let said = error.to_string();
        assert!(said.contains("http://10.0.0.2:1") && !said.contains("geheim"), "{said}");
        assert!(access("http://10.0.0.2:1", true).is_ok());
        let without = Access::new(&["http://10.0.0.2:1".into()], &Credentials::default());
        assert!(without.is_ok());
    }

    fn of(servers: &[&str], is_pinned: bool) -> Access {
        let access = Access::new(&["http://a:1".into()], &Credentials::default()).unwrap();
        Access {
            servers: servers.iter().map(|server| (*server).into()).collect(),
            is_pinned,
            ..access
        }
    }

    #[test]
    fn a_leader_is_followed_to_a_configured_server_alone() {
        let access = of(&["http://a:1", "http://b:1"], false);
        assert_eq!(access.leader("http://a:1", "http://b:1/").as_deref(), Some("http://b:1"));
        assert_eq!(access.leader("http://a:1", "b:1").as_deref(), Some("http://b:1"));
        for elsewhere in ["http://c:1", "c:1", "https://b:1", "", "http://b:1@c:1", "b:1/x"] {
            assert_eq!(access.leader("http://a:1", elsewhere), None, "{elsewhere}");
        }
    }

    #[test]
    fn a_leader_that_is_not_configured_is_followed_if_a_pinned_authority_has_signed_it() {
        let pinned = of(&["https://a:1"], true);
        assert_eq!(pinned.leader("https://a:1", "https://c:1").as_deref(), Some("https://c:1"));
        assert_eq!(pinned.leader("https://a:1", "c:1").as_deref(), Some("https://c:1"));
        assert_eq!(of(&["https://a:1"], false).leader("https://a:1", "https://c:1"), None);
        assert_eq!(of(&["http://a:1"], true).leader("http://a:1", "https://c:1"), None);
    }

    #[test]
    fn no_leader_leads_from_https_to_http() {
        let both = of(&["https://a:1", "http://b:1"], true);
        assert_eq!(both.leader("https://a:1", "http://b:1"), None);
        assert_eq!(both.leader("http://b:1", "https://a:1").as_deref(), Some("https://a:1"));
    }

    #[test]
    fn a_token_that_no_header_can_carry_is_refused_without_showing_it() {
        for token in ["", "ge\nheim", "geheim\u{7f}"] {
            let credentials = Credentials { token: Some(fixed(token)), ..Credentials::default() };
            let error = Access::new(&[], &credentials).unwrap_err();
            assert!(matches!(error, Error::Settings(_)));
            assert!(!error.to_string().contains("heim"), "{error}");
        }
    }
}
