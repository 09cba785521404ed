//! The cookie of the console: which token its bearer has shown, signed by the key of the servers.
//!
//! ```text
//!  v1.<base64url {token, principal, csrf, issued, used}>.<base64url HMAC-SHA256>
//! ```
//!
//! It is good at every server of a cluster, and dead with its token. It counts only in requests of the console's own pages; one
//! that changes something has to show that it could read the cookie's answer.

use std::sync::Arc;

use axum::http::header::{CONTENT_TYPE, COOKIE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use leasehold_access::{TokenId, UnixSeconds};
use leasehold_api::Code;
use leasehold_core::Principal;
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

use super::keys::ClusterKeys;
use crate::mac::{hex, is_mac_of, mac};
use crate::service::problems::Failure;
use crate::service::random;

const PLAIN: &str = "leasehold";
const SECURE: &str = "__Host-leasehold";
const VERSION: &str = "v1";
const COOKIE_LEN_MAX: usize = 2048;
/// It is good for so long, and for so long without being used.
const LIFE: UnixSeconds = 12 * 60 * 60;
const IDLE: UnixSeconds = 2 * 60 * 60;
/// A cookie that was issued so long ago is issued anew when it is used.
const RENEWED_AFTER: UnixSeconds = 10 * 60;

pub(crate) const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const CSRF: HeaderName = HeaderName::from_static("x-leasehold-csrf");

/// The contents of a cookie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Session {
    token: String,
    principal: String,
    pub(crate) csrf: String,
    issued: UnixSeconds,
    used: UnixSeconds,
}

/// A cookie as it came: its value, and whether it came under the name for HTTPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown<'a> {
    pub(crate) value: &'a str,
    pub(crate) is_secure: bool,
}

impl Session {
    pub(crate) fn new(token: TokenId, principal: &Principal, now: UnixSeconds) -> Session {
        Session {
            token: token.to_string(),
            principal: principal.to_string(),
            csrf: hex(&random::bytes::<16>()),
            issued: now,
            used: now,
        }
    }

    /// The session of a cookie that was made by one of these servers and is not over.
    pub(crate) fn parse(value: &str, keys: &ClusterKeys, now: UnixSeconds) -> Option<Arc<Session>> {
        let (signed, mac) = value.rsplit_once('.').filter(|_| value.len() <= COOKIE_LEN_MAX)?;
        let mac = BASE64.decode(mac).ok()?;
        keys.good(now).find(|key| is_mac_of(key, &to_sign(signed), &mac))?;
        let payload = signed.strip_prefix(VERSION)?.strip_prefix('.')?;
        let session: Session = serde_json::from_slice(&BASE64.decode(payload).ok()?).ok()?;
        session.is_good(now).then(|| Arc::new(session))
    }

    pub(crate) fn token(&self) -> Option<TokenId> {
        TokenId::parse(&self.token)
    }

    pub(crate) fn is_of(&self, principal: &Principal) -> bool {
        self.principal == principal.as_str()
    }

    pub(crate) fn is_good(&self, now: UnixSeconds) -> bool {
        now < self.issued.saturating_add(LIFE) && now < self.used.saturating_add(IDLE)
    }

    /// The same, used now, if it is time to tell the browser.
    pub(crate) fn used_now(&self, now: UnixSeconds) -> Option<Session> {
        let is_due = now >= self.used.saturating_add(RENEWED_AFTER);
        is_due.then(|| Session { used: now, ..self.clone() })
    }

    /// The header that gives it to a browser.
    pub(crate) fn set(&self, key: &[u8], is_secure: bool) -> HeaderValue {
        let payload = BASE64.encode(serde_json::to_vec(self).expect("it is plain data"));
        let signed = format!("{VERSION}.{payload}");
        let mac = BASE64.encode(mac(key, &to_sign(&signed)));
        header(&format!("{signed}.{mac}"), LIFE, is_secure)
    }
}

/// The header that takes a session from a browser.
pub(crate) fn removed(is_secure: bool) -> HeaderValue {
    header("", 0, is_secure)
}

fn header(value: &str, age: UnixSeconds, is_secure: bool) -> HeaderValue {
    let (name, secure) = if is_secure { (SECURE, "; Secure") } else { (PLAIN, "") };
    let text = format!("{name}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::try_from(text).expect("base64 is visible ASCII")
}

/// The key signs other things too.
fn to_sign(signed: &str) -> Vec<u8> {
    format!("console {signed}").into_bytes()
}

/// The console's cookie among those of a request.
pub(crate) fn shown(headers: &HeaderMap) -> Option<Shown<'_>> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut found = None;
    for (name, value) in all.flat_map(|all| all.split(';')).filter_map(|one| one.split_once('=')) {
        match name.trim() {
            SECURE => return Some(Shown { value: value.trim(), is_secure: true }),
            PLAIN => found = Some(Shown { value: value.trim(), is_secure: false }),
            _ => {}
        }
    }
    found
}

/// Whether the browser says that one of the console's own pages asks; an old browser says so by its `Origin` alone.
pub(crate) fn is_of_own_page<B>(request: &Request<B>) -> bool {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    match request.headers().contains_key(SEC_FETCH_SITE) {
        true => header(SEC_FETCH_SITE) == Some("same-origin"),
        false => {
            let own = request.uri().authority().map(|own| own.as_str()).or_else(|| header(HOST));
            let origin = header(ORIGIN).and_then(authority_of);
            origin.zip(own).is_some_and(|(origin, own)| origin.eq_ignore_ascii_case(own))
        }
    }
}

/// Host and port of an origin.
pub(crate) fn authority_of(origin: &str) -> Option<&str> {
    origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))
}

/// Refuses to change anything for a page that cannot show the session's number, or that sends anything but JSON.
pub(crate) fn check_page<B>(request: &Request<B>, session: &Session) -> Result<(), Failure> {
    if request.method().is_safe() {
        return Ok(());
    }
    let given = request.headers().get(CSRF).map_or(&b""[..], HeaderValue::as_bytes);
    if !bool::from(given.ct_eq(session.csrf.as_bytes())) {
        let said = "the header x-leasehold-csrf is missing, or is not that of the session";
        return Err(Failure::new(Code::PermissionDenied, said));
    }
    let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or(""));
    let is_json = kind.is_some_and(|kind| {
        kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json")
    });
    if is_json || (kind.is_none() && request.method() == Method::DELETE) {
        return Ok(());
    }
    Err(Failure::new(Code::UnsupportedMediaType, "the body must be application/json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = 1_800_000_000;

    fn value(set: &HeaderValue) -> String {
        let text = set.to_str().unwrap();
        text.split_once('=').unwrap().1.split(';').next().unwrap().to_owned()
    }

    #[test]
    fn cookie_is_good_for_its_time_and_unchanged() {
        let keys = ClusterKeys::new(NOW);
        let principal = Principal::new("alice").unwrap();
        let session = Session::new(TokenId::parse("7k2m9q4wx3ta").unwrap(), &principal, NOW);
        let cookie = value(&session.set(keys.signing(NOW), true));
        let read = |cookie: &str, now| Session::parse(cookie, &keys, now);
        assert_eq!(read(&cookie, NOW).as_deref(), Some(&session));
        assert!(session.is_of(&principal) && session.token().is_some());
        assert_eq!(read(&cookie, NOW + IDLE), None);
        let used = session.used_now(NOW + IDLE - 1).unwrap();
        let cookie = value(&used.set(keys.signing(NOW), true));
        assert!(read(&cookie, NOW + IDLE + 10).is_some());
        assert_eq!(session.used_now(NOW + 60), None);
        let last = Session { used: NOW + LIFE - 1, ..session };
        let cookie = value(&last.set(keys.signing(NOW), false));
        assert_eq!(
            (read(&cookie, NOW + LIFE - 1).is_some(), read(&cookie, NOW + LIFE)),
            (true, None)
        );
        for at in [0, 3, cookie.len() / 2, cookie.len() - 2] {
            let other = if cookie.as_bytes()[at] == b'A' { "B" } else { "A" };
            let mut changed = cookie.clone();
            changed.replace_range(at..=at, other);
            assert_eq!(read(&changed, NOW + LIFE - 1), None, "{at}");
        }
        // What was signed for another purpose is no cookie.
        let (signed, _) = cookie.rsplit_once('.').unwrap();
        let mac = BASE64.encode(mac(keys.signing(NOW), signed.as_bytes()));
        assert_eq!(read(&format!("{signed}.{mac}"), NOW + LIFE - 1), None);
    }

    #[test]
    fn header_says_all_that_protects_it() {
        let keys = ClusterKeys::new(NOW);
        let principal = Principal::new("alice").unwrap();
        let session = Session::new(TokenId::parse("7k2m9q4wx3ta").unwrap(), &principal, NOW);
        let secure = session.set(keys.signing(NOW), true);
        let text = secure.to_str().unwrap();
        assert!(text.starts_with("__Host-leasehold=v1."), "{text}");
        for part in ["; Path=/", "; HttpOnly", "; SameSite=Strict", "; Secure"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!session.set(keys.signing(NOW), false).to_str().unwrap().contains("Secure"));
        assert_eq!(
            removed(false).to_str().unwrap(),
            "leasehold=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
        );
    }

    #[test]
    fn cookie_is_found_among_others_and_the_better_name_wins() {
        let mut headers = HeaderMap::new();
        assert_eq!(shown(&headers), None);
        headers.append(COOKIE, HeaderValue::from_static("a=b; leasehold=one; c=d"));
        assert_eq!(shown(&headers), Some(Shown { value: "one", is_secure: false }));
        headers.append(COOKIE, HeaderValue::from_static("__Host-leasehold=two"));
        assert_eq!(shown(&headers), Some(Shown { value: "two", is_secure: true }));
    }
}
