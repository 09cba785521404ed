//! The credential of a request: what it shows, and what of that is refused before anything is looked up.

use std::sync::Arc;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Uri};
use leasehold_access::{self as access, Snapshot, UnixSeconds};
use leasehold_api::Code;

use super::certificate::{Identity, PeerCertificate};
use super::cookie::Session;
use crate::convert;
use crate::service::problems::Failure;

/// The kind of a caller's credential.
#[derive(Clone, Debug)]
pub(crate) enum Credential {
    /// By nothing: authentication is off, or what is asked is open to everybody.
    None,
    Token(Arc<access::Credential>),
    /// By the cookie of the console, which stands for a token.
    Console(Arc<access::Credential>, Arc<Session>),
    /// By a certificate.
    Certificate(Arc<Identity>),
    /// By the user at the other end of a Unix socket.
    User(u32),
}

/// The client's identity by its connection, before any request.
#[derive(Clone, Debug)]
pub(crate) enum Shown {
    Nothing,
    Certificate(Arc<PeerCertificate>),
    User(u32),
    /// Another server is at its other end, and vouches for the client.
    Through {
        server: Option<Arc<PeerCertificate>>,
        /// The certificate that the client has shown there.
        client: Option<Arc<Identity>>,
    },
}

impl Shown {
    /// The certificate of the connection.
    pub(crate) fn certificate(&self) -> Option<&Arc<PeerCertificate>> {
        match self {
            Shown::Certificate(certificate) => Some(certificate),
            Shown::Through { server, .. } => server.as_ref(),
            Shown::Nothing | Shown::User(_) => None,
        }
    }

    /// Whether it can come to an end.
    pub(super) fn can_end(&self) -> bool {
        match self {
            Shown::Certificate(_) => true,
            Shown::Through { server, client } => server.is_some() || client.is_some(),
            Shown::Nothing | Shown::User(_) => false,
        }
    }

    /// Whether all of it is good now.
    pub(super) fn check(&self, snapshot: &Snapshot, now: UnixSeconds) -> Result<(), &'static str> {
        if let Some(certificate) = self.certificate() {
            certificate.check(snapshot, now)?;
        }
        match self {
            Shown::Through { client: Some(client), .. } => client.check(snapshot, now),
            Shown::Through { client: None, .. }
            | Shown::Certificate(_)
            | Shown::Nothing
            | Shown::User(_) => Ok(()),
        }
    }
}

impl Credential {
    /// The kind of credential, for people.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Credential::None => "none",
            Credential::Token(_) => "token",
            Credential::Certificate(_) => "certificate",
            Credential::User(_) => "user",
            Credential::Console(..) => "console",
        }
    }

    /// The token that it is, or stands for.
    pub(crate) const fn token(&self) -> Option<&Arc<access::Credential>> {
        match self {
            Credential::None | Credential::Certificate(_) | Credential::User(_) => None,
            Credential::Token(token) | Credential::Console(token, _) => Some(token),
        }
    }
}

/// One text for every failure: why a credential is not good is no business of whoever shows it.
pub(crate) fn unauthenticated() -> Failure {
    let said = "a valid credential is needed: send Authorization: Bearer with a token";
    Failure::new(Code::Unauthenticated, said)
}

/// The bearer token that a request shows; empty if it shows something that is none.
pub(super) fn shown<'a>(headers: &'a HeaderMap, uri: &Uri) -> Result<Option<&'a str>, Failure> {
    if uri.query().is_some_and(names_a_token) {
        let said = "a token in a URL ends up in logs: send it as Authorization: Bearer";
        return Err(Failure::new(Code::InvalidRequest, said));
    }
    let mut all = headers.get_all(AUTHORIZATION).iter();
    let Some(given) = all.next() else { return Ok(None) };
    if all.next().is_some() {
        let said = "there is more than one Authorization header";
        return Err(Failure::new(Code::InvalidRequest, said));
    }
    Ok(Some(given.to_str().ok().and_then(bearer).unwrap_or("")))
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_matches(' '))
}

fn names_a_token(query: &str) -> bool {
    query.split('&').any(|pair| {
        let name = pair.split('=').next().unwrap_or("");
        let name = convert::percent_decoded(name);
        name.is_some_and(|name| matches!(&*name, "token" | "access_token"))
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn of(values: &[&str], uri: &str) -> Result<Option<String>, Code> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let shown = shown(&headers, &uri.parse().unwrap());
        shown.map(|shown| shown.map(str::to_owned)).map_err(|failure| failure.code())
    }

    #[test]
    fn one_bearer_token_is_taken_from_the_header_alone() {
        assert_eq!(of(&[], "/v1/locks"), Ok(None));
        assert_eq!(of(&["Bearer lk_a"], "/"), Ok(Some("lk_a".into())));
        assert_eq!(of(&["bEARER  lk_a "], "/"), Ok(Some("lk_a".into())));
        for other in ["Basic YTpi", "lk_a", "", "Bearer", "Bearer \u{e9}"] {
            assert_eq!(
                of(&[other], "/").map(|shown| shown.is_some_and(|s| s.starts_with("lk_"))),
                Ok(false),
                "{other}"
            );
        }
        assert_eq!(of(&["Bearer a", "Bearer a"], "/"), Err(Code::InvalidRequest));
        for query in ["token=x", "a=1&access_token=x", "t%6fken=x", "token"] {
            assert_eq!(
                of(&[], &format!("/v1/locks?{query}")),
                Err(Code::InvalidRequest),
                "{query}"
            );
        }
        assert_eq!(of(&[], "/v1/locks?page_token=x"), Ok(None));
    }
}
