//! Join strings: where a server is, how to know it, and a token, in one word.

use std::fmt;
use std::str::FromStr;

use leasehold_client::AuthorityHash;

const PREFIX: &str = "lkj1.";

/// `lkj1.AUTHORITY.TOKEN@https://host:port`; without a token `lkj1.AUTHORITY@…`, and without both a URL.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Join {
    pub(crate) authority: Option<AuthorityHash>,
    pub(crate) token: Option<String>,
    pub(crate) url: String,
}

/// Without the token.
impl fmt::Debug for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join")
            .field("authority", &self.authority)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

/// The whole of it, with the secret.
impl fmt::Display for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.authority, &self.token) {
            (None, _) => f.write_str(&self.url),
            (Some(hash), None) => write!(f, "{PREFIX}{hash}@{}", self.url),
            (Some(hash), Some(token)) => write!(f, "{PREFIX}{hash}.{token}@{}", self.url),
        }
    }
}

impl FromStr for Join {
    /// It never repeats what it read: a token may be in it.
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Join, &'static str> {
        let Some(rest) = text.strip_prefix(PREFIX) else {
            return if text.contains('@') {
                Err(
                    "expected https://HOST:PORT, or a join string: lkj1.AUTHORITY.TOKEN@https://HOST:PORT",
                )
            } else {
                Ok(Join { authority: None, token: None, url: text.into() })
            };
        };
        let (before, url) =
            rest.split_once('@').ok_or("the join string has no @ and no address")?;
        if !url.starts_with("https://") {
            return Err("what follows the @ of a join string begins with https://");
        }
        let (hash, token) = match before.split_once('.') {
            Some((hash, token)) => (hash, Some(token.to_owned()).filter(|token| !token.is_empty())),
            None => (before, None),
        };
        let authority = hash
            .parse()
            .map_err(|_| "the join string was cut or changed: its authority cannot be read")?;
        if token.as_deref().is_some_and(|token| token.parse::<leasehold_access::Token>().is_err()) {
            return Err("the join string was cut or changed: its token cannot be read");
        }
        Ok(Join { authority: Some(authority), token, url: url.into() })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_access::Token;

    use super::*;

    #[test]
    fn join_string_is_read_as_it_is_written() {
        let token = Token::mint(&[7; Token::RANDOM_BYTES]).reveal().to_owned();
        let hash = AuthorityHash::of_key(b"key");
        let authority = Some(hash);
        for token in [None, Some(token.clone())] {
            let join = Join { authority, token, url: "https://locks.example:8080".into() };
            let text = join.to_string();
            assert_eq!(text.parse::<Join>(), Ok(join.clone()));
            assert!(!format!("{join:?}").contains("lk_"));
            for cut in [text.replace("https", "http"), text.replacen("lkj1.", "lkj1.A", 1)] {
                assert!(cut.parse::<Join>().is_err(), "{cut}");
            }
        }
        let wrong = format!("lkj1.{hash}.{}@https://a:1", &token[..64]);
        assert!(!wrong.parse::<Join>().unwrap_err().contains("lk_"));
        assert_eq!("https://a:1".parse::<Join>().unwrap().url, "https://a:1");
        assert!("token@https://a:1".parse::<Join>().is_err());
    }
}
