//! The documents that are no rights: the key that servers of a cluster share, and codes to log in with.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use leasehold_access::{SecretHash, Token, TokenId, UnixSeconds};
use leasehold_store::Document;
use serde_json::{Value, json};

use crate::service::random;

/// The document of the key.
pub(crate) const CLUSTER_KEY: &str = "cluster-key";
const LOGIN: &str = "login/";
/// The time for which the previous key is valid, once there is a new one.
pub(crate) const PREVIOUS_KEPT: UnixSeconds = 60 * 60;
/// Only when every server knows a new key is anything signed with it.
const UNKNOWN_YET: UnixSeconds = 3;
/// The time for which a code is valid.
pub(crate) const LOGIN_TTL: UnixSeconds = 60;
const CODE_PREFIX: &str = "lkc_";
const TOKEN_PREFIX: &str = "lk_";

/// The documents' contents beside rights.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extras {
    /// The version of the documents.
    pub(crate) version: u64,
    pub(crate) keys: Option<ClusterKeys>,
    pub(crate) logins: BTreeMap<TokenId, Login>,
}

/// The key of the servers around one store, and the one before it. `Debug` does not show them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClusterKeys {
    current: [u8; 32],
    since: UnixSeconds,
    previous: Option<([u8; 32], UnixSeconds)>,
}

/// A code with which a page logs in as the bearer of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Login {
    hash: SecretHash,
    pub(crate) token: TokenId,
    pub(crate) expires: UnixSeconds,
}

impl Extras {
    pub(crate) fn of<'a>(version: u64, documents: impl Iterator<Item = &'a Document>) -> Extras {
        let mut extras = Extras { version, ..Extras::default() };
        for document in documents {
            let (id, body) = (document.id().as_str(), document.body());
            if id == CLUSTER_KEY {
                extras.keys = ClusterKeys::parse(body);
                if extras.keys.is_none() {
                    tracing::error!("the cluster key cannot be read: nothing is signed with it");
                }
            } else if let Some((id, login)) = id
                .strip_prefix(LOGIN)
                .and_then(|id| Some((TokenId::parse(id)?, Login::parse(body)?)))
            {
                extras.logins.insert(id, login);
            }
        }
        extras
    }
}

impl ClusterKeys {
    pub(crate) fn new(now: UnixSeconds) -> ClusterKeys {
        ClusterKeys { current: random::bytes(), since: now, previous: None }
    }

    /// A new key; the one that was current stays good for an hour.
    pub(crate) fn rotated(&self, now: UnixSeconds) -> ClusterKeys {
        let previous = Some((self.current, now.saturating_add(PREVIOUS_KEPT)));
        ClusterKeys { previous, ..ClusterKeys::new(now) }
    }

    /// The key to sign with now.
    pub(crate) fn signing(&self, now: UnixSeconds) -> &[u8] {
        match &self.previous {
            Some((previous, _)) if now < self.since.saturating_add(UNKNOWN_YET) => previous,
            Some(_) | None => &self.current,
        }
    }

    /// The keys that a signature may have been made with.
    pub(crate) fn good(&self, now: UnixSeconds) -> impl Iterator<Item = &[u8]> {
        let previous = self.previous.iter().filter(move |(_, until)| now < *until);
        std::iter::once(&self.current[..]).chain(previous.map(|(key, _)| &key[..]))
    }

    pub(crate) fn body(&self) -> String {
        let previous = self
            .previous
            .as_ref()
            .map(|(key, until)| json!({ "key": BASE64.encode(key), "until": until }));
        let current = json!({ "key": BASE64.encode(self.current), "since": self.since });
        json!({ "v": 1, "current": current, "previous": previous }).to_string()
    }

    fn parse(body: &str) -> Option<ClusterKeys> {
        let body: Value = serde_json::from_str(body).ok().filter(|body: &Value| body["v"] == 1)?;
        let key = |value: &Value| -> Option<[u8; 32]> {
            BASE64.decode(value["key"].as_str()?).ok()?.try_into().ok()
        };
        let previous = &body["previous"];
        let previous = match previous.is_null() {
            true => None,
            false => Some((key(previous)?, previous["until"].as_u64()?)),
        };
        let current = &body["current"];
        Some(ClusterKeys { current: key(current)?, since: current["since"].as_u64()?, previous })
    }
}

impl fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKeys(since {})", self.since)
    }
}

/// A code as a page has it: `lkc_` and what else a token is made of.
pub(crate) fn code_of(token: &Token) -> String {
    format!("{CODE_PREFIX}{}", &token.reveal()[TOKEN_PREFIX.len()..])
}

/// The secret in a code.
pub(crate) fn parse_code(code: &str) -> Option<Token> {
    format!("{TOKEN_PREFIX}{}", code.strip_prefix(CODE_PREFIX)?).parse().ok()
}

/// The id of the document of a code.
pub(crate) fn login_id(id: TokenId) -> String {
    format!("{LOGIN}{id}")
}

impl Login {
    pub(crate) fn new(code: &Token, token: TokenId, now: UnixSeconds) -> Login {
        Login { hash: code.hash(), token, expires: now.saturating_add(LOGIN_TTL) }
    }

    /// Whether a code is this one, and good.
    pub(crate) fn is(&self, code: &Token, now: UnixSeconds) -> bool {
        self.hash.is_of(code) && now < self.expires
    }

    pub(crate) fn body(&self) -> String {
        let (hash, token) = (self.hash.to_string(), self.token.as_str());
        json!({ "v": 1, "sha256": hash, "token": token, "expires": self.expires }).to_string()
    }

    fn parse(body: &str) -> Option<Login> {
        let body: Value = serde_json::from_str(body).ok().filter(|body: &Value| body["v"] == 1)?;
        Some(Login {
            hash: SecretHash::parse(body["sha256"].as_str()?)?,
            token: TokenId::parse(body["token"].as_str()?)?,
            expires: body["expires"].as_u64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_store::DocumentId;

    use super::*;

    fn document(id: &str, body: &str) -> Document {
        Document::new(DocumentId::new(id).unwrap(), body).unwrap()
    }

    #[test]
    fn key_that_was_replaced_is_good_for_an_hour() {
        let old = ClusterKeys::new(1000);
        let new = old.rotated(2000);
        assert_eq!(new.signing(2000), &old.current, "not every server knows the new one yet");
        assert_eq!(new.signing(2003), &new.current);
        assert_eq!(new.good(2000 + PREVIOUS_KEPT - 1).count(), 2);
        assert_eq!(new.good(2000 + PREVIOUS_KEPT).collect::<Vec<_>>(), [&new.current[..]]);
        let read = Extras::of(1, [document(CLUSTER_KEY, &new.body())].iter());
        assert_eq!(read.keys.as_ref(), Some(&new));
        let read = Extras::of(1, [document(CLUSTER_KEY, &old.body())].iter());
        assert_eq!(read.keys.as_ref(), Some(&old));
        assert!(!format!("{new:?}").contains(&BASE64.encode(new.current)));
        assert_eq!(Extras::of(1, [document(CLUSTER_KEY, "{\"v\":2}")].iter()).keys, None);
    }

    #[test]
    fn code_is_good_for_a_minute_and_no_token() {
        let secret = Token::mint(&[7; Token::RANDOM_BYTES]);
        let other = Token::mint(&[8; Token::RANDOM_BYTES]);
        let login = Login::new(&secret, other.id(), 1000);
        let code = code_of(&secret);
        assert!(code.parse::<Token>().is_err());
        assert_eq!(parse_code(&code), Some(secret.clone()));
        assert_eq!(parse_code(secret.reveal()), None);
        assert!(login.is(&secret, 1059) && !login.is(&secret, 1060) && !login.is(&other, 1000));
        let documents = [document(&login_id(secret.id()), &login.body())];
        assert_eq!(Extras::of(1, documents.iter()).logins[&secret.id()], login);
    }
}
