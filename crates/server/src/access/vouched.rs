//! A request that another server has taken in: who asks, in the words of that server, and the proof that it is one.
//!
//! ```text
//!  leasehold-forwarded: 1.<base64url payload>.<base64url HMAC-SHA256 by the cluster key>
//! ```
//!
//! The payload names the principal and its credential, and is bound to the method, the path, the query and to ten seconds; each
//! is taken once. What the principal may do the receiving server finds out for itself.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use leasehold_access::{Certified, RoleRef, TokenId, UnixSeconds};
use leasehold_core::{Principal, planted};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::certificate::{Ends, Identity};
use super::keys::ClusterKeys;
use crate::mac::{is_mac_of, mac, sha256};
use crate::service::random;

/// Set on what was forwarded.
pub(crate) const FORWARDED: HeaderName = HeaderName::from_static("leasehold-forwarded");
const VERSION: &str = "1";
const GOOD_FOR_MS: u64 = 10_000;
/// The clocks of two servers may differ by so much.
const CLOCKS_DIFFER_MS: u64 = 5_000;
const HEADER_LEN_MAX: usize = 8192;
/// So many are remembered, to take each once; then the older half is forgotten.
const SEEN_LEN_MAX: usize = 500_000;

/// The caller's identity, as one server vouches for it to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vouched {
    pub(crate) request_id: String,
    pub(crate) principal: String,
    /// The kind of credential: `token`, `console`, `certificate`, `user`.
    pub(crate) via: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    /// The certificate that the client has shown, whatever it is known by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate: Option<VouchedCertificate>,
    pub(crate) peer: SocketAddr,
    pub(crate) server: String,
    /// The version of roles and tokens that it was let in by.
    pub(crate) version: u64,
    /// SHA-256 of method, path and query.
    request: String,
    expires_ms: u64,
    nonce: u64,
}

/// A certificate, as another server names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VouchedCertificate {
    serial: String,
    not_after: UnixSeconds,
    /// Those of its mapping.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    roles: Vec<String>,
}

/// The caller, as the server that took the request in names it.
#[derive(Clone, Debug)]
pub(crate) struct Asking<'a> {
    pub(crate) request_id: &'a str,
    pub(crate) principal: &'a Principal,
    pub(crate) via: &'static str,
    pub(crate) token: Option<TokenId>,
    pub(crate) certificate: Option<&'a Identity>,
    pub(crate) peer: SocketAddr,
    pub(crate) server: &'a str,
    pub(crate) version: u64,
}

/// The reason why a header is not believed: for the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotVouched {
    /// The connection did not show the certificate of a server.
    NotAServer,
    Malformed,
    Signature,
    Expired,
    OtherRequest,
    Replayed,
}

impl NotVouched {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            NotVouched::NotAServer => "not_a_server",
            NotVouched::Malformed => "malformed",
            NotVouched::Signature => "signature",
            NotVouched::Expired => "expired",
            NotVouched::OtherRequest => "other_request",
            NotVouched::Replayed => "replayed",
        }
    }
}

/// The headers that were taken lately.
#[derive(Debug, Default)]
pub(crate) struct Seen(Mutex<Halves>);

#[derive(Debug, Default)]
struct Halves {
    new: HashSet<u128>,
    old: HashSet<u128>,
    since_ms: u64,
}

impl Asking<'_> {
    /// The header for a request.
    pub(crate) fn header(
        &self,
        key: &[u8],
        now_ms: u64,
        method: &Method,
        uri: &Uri,
    ) -> HeaderValue {
        let vouched = Vouched {
            request_id: self.request_id.into(),
            principal: self.principal.to_string(),
            via: self.via.into(),
            token: self.token.map(|id| id.to_string()),
            certificate: self.certificate.map(VouchedCertificate::of),
            peer: self.peer,
            server: self.server.into(),
            version: self.version,
            request: BASE64.encode(hash_of(method, uri)),
            expires_ms: now_ms.saturating_add(GOOD_FOR_MS),
            nonce: random::secret(),
        };
        let payload = BASE64.encode(serde_json::to_vec(&vouched).expect("it is plain data"));
        let signed = format!("{VERSION}.{payload}");
        let mac = BASE64.encode(mac(key, signed.as_bytes()));
        HeaderValue::try_from(format!("{signed}.{mac}")).expect("base64 is visible ASCII")
    }
}

impl VouchedCertificate {
    fn of(identity: &Identity) -> VouchedCertificate {
        let roles = identity.who().map_or(&[][..], |who| &who.roles);
        VouchedCertificate {
            serial: identity.serial().into(),
            not_after: identity.not_after(),
            roles: roles.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Whether the header is there at all.
pub(crate) fn is_there(headers: &HeaderMap) -> bool {
    headers.contains_key(FORWARDED)
}

impl Vouched {
    /// The identity in the header of a request, if it can be believed.
    pub(crate) fn of(
        headers: &HeaderMap,
        (method, uri): (&Method, &Uri),
        keys: &ClusterKeys,
        now: Duration,
        seen: &Seen,
    ) -> Result<Arc<Vouched>, NotVouched> {
        let mut all = headers.get_all(FORWARDED).iter();
        let (Some(given), None) = (all.next(), all.next()) else {
            return Err(NotVouched::Malformed);
        };
        let given = given.to_str().ok().filter(|given| given.len() <= HEADER_LEN_MAX);
        let (signed, mac) =
            given.and_then(|given| given.rsplit_once('.')).ok_or(NotVouched::Malformed)?;
        let mac = BASE64.decode(mac).map_err(|_| NotVouched::Malformed)?;
        let is_signed = keys.good(now.as_secs()).any(|key| is_mac_of(key, signed.as_bytes(), &mac));
        if !is_signed && !planted!("forwarded-without-hmac") {
            return Err(NotVouched::Signature);
        }
        let payload = signed.strip_prefix(VERSION).and_then(|rest| rest.strip_prefix('.'));
        let vouched: Option<Vouched> = payload
            .and_then(|payload| BASE64.decode(payload).ok())
            .and_then(|payload| serde_json::from_slice(&payload).ok());
        let vouched = vouched.ok_or(NotVouched::Malformed)?;
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let end = now_ms.saturating_add(GOOD_FOR_MS + CLOCKS_DIFFER_MS);
        if now_ms > vouched.expires_ms || vouched.expires_ms > end {
            return Err(NotVouched::Expired);
        }
        if vouched.request != BASE64.encode(hash_of(method, uri)) {
            return Err(NotVouched::OtherRequest);
        }
        if !seen.is_first(&mac, now_ms) {
            return Err(NotVouched::Replayed);
        }
        Ok(Arc::new(vouched))
    }

    /// The certificate that the client has shown to the other server. What that one knows it by is the principal here too.
    pub(super) fn certificate(&self, ends: &Arc<Ends>) -> Option<Identity> {
        let shown = self.certificate.as_ref()?;
        let roles = shown.roles.iter().map(|role| RoleRef::parse(role)).collect::<Result<_, _>>();
        let who = match (Principal::new(&self.principal), roles) {
            (Ok(principal), Ok(roles)) => Ok(Certified { principal, roles }),
            (Err(_), _) | (_, Err(_)) => Err("what another server says of it is no principal"),
        };
        Some(Identity::new(shown.serial.clone(), shown.not_after, who, ends.clone()))
    }
}

impl Seen {
    /// Notes a header, by its signature. What is older than a header may be need not be known.
    fn is_first(&self, mac: &[u8], now_ms: u64) -> bool {
        let mut start = [0; 16];
        start.iter_mut().zip(mac).for_each(|(to, from)| *to = *from);
        let mac = u128::from_le_bytes(start);
        let mut halves = self.0.lock();
        let is_old = now_ms.saturating_sub(halves.since_ms) > GOOD_FOR_MS + CLOCKS_DIFFER_MS;
        if is_old || halves.new.len() >= SEEN_LEN_MAX {
            halves.old = std::mem::take(&mut halves.new);
            halves.since_ms = now_ms;
        }
        !halves.old.contains(&mac) && halves.new.insert(mac)
    }
}

fn hash_of(method: &Method, uri: &Uri) -> [u8; 32] {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    sha256(format!("{method} {path}").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);

    fn header(keys: &ClusterKeys, uri: &str) -> HeaderValue {
        let principal = Principal::new("billing").unwrap();
        let asking = Asking {
            request_id: "5f2c",
            principal: &principal,
            via: "token",
            token: None,
            certificate: None,
            peer: "10.1.2.3:4567".parse().unwrap(),
            server: "locks-1",
            version: 7,
        };
        let now_ms = u64::try_from(NOW.as_millis()).unwrap();
        asking.header(keys.signing(NOW.as_secs()), now_ms, &Method::POST, &uri.parse().unwrap())
    }

    /// Attack 42.
    #[test]
    fn header_is_believed_once_for_its_request_and_its_time() {
        let keys = ClusterKeys::new(NOW.as_secs());
        let seen = Seen::default();
        let read = |value: &HeaderValue, uri: &str, now: Duration, keys: &ClusterKeys| {
            let mut headers = HeaderMap::new();
            headers.insert(FORWARDED, value.clone());
            let uri: Uri = uri.parse().unwrap();
            Vouched::of(&headers, (&Method::POST, &uri), keys, now, &seen)
        };
        let good = header(&keys, "/v1/locks/a/acquire?namespace=b");
        let path = "/v1/locks/a/acquire?namespace=b";
        assert_eq!(
            read(&good, "/v1/locks/a/acquire", NOW, &keys).unwrap_err(),
            NotVouched::OtherRequest
        );
        let late = NOW + Duration::from_millis(GOOD_FOR_MS + 1);
        assert_eq!(read(&good, path, late, &keys).unwrap_err(), NotVouched::Expired);
        let early = NOW - Duration::from_millis(CLOCKS_DIFFER_MS + 1);
        assert_eq!(read(&good, path, early, &keys).unwrap_err(), NotVouched::Expired);
        let other = ClusterKeys::new(NOW.as_secs());
        assert_eq!(read(&good, path, NOW, &other).unwrap_err(), NotVouched::Signature);
        let vouched = read(&good, path, NOW, &keys).unwrap();
        assert_eq!((&*vouched.principal, &*vouched.server), ("billing", "locks-1"));
        assert_eq!(read(&good, path, NOW, &keys).unwrap_err(), NotVouched::Replayed);
        // The key before is good too.
        let rotated = keys.rotated(NOW.as_secs());
        assert!(read(&header(&keys, path), path, NOW, &rotated).is_ok());
        for forged in ["1", "", "1.e30.", "1..", "2.e30.e30"] {
            let forged = HeaderValue::from_str(forged).unwrap();
            assert!(read(&forged, path, NOW, &keys).is_err());
        }
        let text = header(&keys, path).to_str().unwrap().to_owned();
        for at in [2, text.len() / 2, text.len() - 2] {
            let other = if text.as_bytes()[at] == b'A' { "B" } else { "A" };
            let mut changed = text.clone();
            changed.replace_range(at..=at, other);
            assert!(read(&HeaderValue::from_str(&changed).unwrap(), path, NOW, &keys).is_err());
        }
    }

    #[test]
    fn what_was_seen_is_bounded() {
        let seen = Seen::default();
        for number in 0..SEEN_LEN_MAX as u128 + 10 {
            assert!(seen.is_first(&number.to_le_bytes(), 0));
        }
        assert!(!seen.is_first(&5u128.to_le_bytes(), 0), "the older half is still known");
        let halves = seen.0.lock();
        assert!(halves.new.len() <= 20 && halves.old.len() == SEEN_LEN_MAX);
    }
}
