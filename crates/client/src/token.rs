//! Bearer tokens: given as they are, read from a file, or asked of the program that uses the client.

use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use hyper::header::HeaderValue;

use crate::error::Error;

/// No token is nearly as long.
const BYTES_MAX: u64 = 64 * 1024;

/// A function that gives the token to show now.
pub type TokenProvider = dyn Fn() -> io::Result<String> + Send + Sync;

/// The source of tokens.
#[derive(Clone)]
pub(crate) enum TokenSource {
    Fixed(String),
    File(PathBuf),
    Provider(Arc<TokenProvider>),
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenSource::Fixed(_) => f.write_str("secret"),
            TokenSource::File(path) => write!(f, "{}", path.display()),
            TokenSource::Provider(_) => f.write_str("provider"),
        }
    }
}

/// The version of a file, told from the next without reading it.
type Stamp = (u64, u64, i64, i64, u64);

/// The token that is shown, and where the next one comes from.
pub(crate) struct Tokens {
    source: TokenSource,
    shown: Mutex<(HeaderValue, Option<Stamp>)>,
}

/// Without the token: it is a secret.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({:?})", self.source)
    }
}

impl Tokens {
    /// Fetches the first one, which has to be a token.
    pub(crate) fn new(source: TokenSource) -> Result<Tokens, Error> {
        let stamp = stamp(&source);
        let token = fetched(&source).map_err(|error| {
            Error::Settings(match &source {
                TokenSource::File(path) => format!("no token in {}: {error}", path.display()),
                TokenSource::Fixed(_) | TokenSource::Provider(_) => format!("no token: {error}"),
            })
        })?;
        Ok(Tokens { source, shown: Mutex::new((bearer(&token)?, stamp)) })
    }

    /// Value of the header `authorization`. A file that is another one by now is read again.
    pub(crate) fn current(&self) -> HeaderValue {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = stamp(&self.source);
        if stamp.is_some() && stamp != shown.1 {
            self.renew(&mut shown);
        }
        shown.0.clone()
    }

    /// Another token than the one that a server did not take, if there is one by now.
    pub(crate) fn newer_than(&self, refused: &HeaderValue) -> Option<HeaderValue> {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.0 == *refused {
            self.renew(&mut shown);
        }
        (shown.0 != *refused).then(|| shown.0.clone())
    }

    /// A file that is just being replaced, or a provider that fails, changes nothing.
    fn renew(&self, shown: &mut (HeaderValue, Option<Stamp>)) {
        let stamp = stamp(&self.source);
        if let Ok(token) = fetched(&self.source)
            && let Ok(value) = bearer(&token)
        {
            *shown = (value, stamp);
        }
    }
}

fn fetched(source: &TokenSource) -> io::Result<String> {
    match source {
        TokenSource::Fixed(token) => Ok(token.clone()),
        TokenSource::File(path) => read(path),
        TokenSource::Provider(provider) => provider(),
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    fs::File::open(path)?.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

fn stamp(source: &TokenSource) -> Option<Stamp> {
    let TokenSource::File(path) = source else { return None };
    let about = fs::metadata(path).ok()?;
    Some((about.dev(), about.ino(), about.mtime(), about.mtime_nsec(), about.size()))
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    fn text(value: &HeaderValue) -> &str {
        value.to_str().unwrap().strip_prefix("Bearer ").unwrap()
    }

    #[test]
    fn a_file_that_was_replaced_is_read_again() {
        let folder = std::env::temp_dir().join(format!("leasehold-token-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("token");
        fs::write(&path, "first\n").unwrap();
        let tokens = Tokens::new(TokenSource::File(path.clone())).unwrap();
        let first = tokens.current();
        assert_eq!(text(&first), "first");
        assert!(tokens.newer_than(&first).is_none());
        let next = folder.join("next");
        fs::write(&next, "second\n").unwrap();
        fs::rename(&next, &path).unwrap();
        assert_eq!(text(&tokens.newer_than(&first).unwrap()), "second");
        assert_eq!(text(&tokens.current()), "second");
        fs::write(&path, "").unwrap();
        assert_eq!(text(&tokens.current()), "second", "an empty file is none yet");
        fs::remove_dir_all(&folder).unwrap();
        let said = Tokens::new(TokenSource::File(path)).unwrap_err().to_string();
        assert!(said.contains("no token in"), "{said}");
    }

    #[test]
    fn a_provider_is_asked_again_only_when_its_token_was_refused() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let provider = move || Ok(format!("t{}", count.fetch_add(1, Relaxed)));
        let tokens = Tokens::new(TokenSource::Provider(Arc::new(provider))).unwrap();
        let first = tokens.current();
        assert_eq!((text(&first), text(&tokens.current())), ("t0", "t0"));
        assert_eq!(text(&tokens.newer_than(&first).unwrap()), "t1");
        assert_eq!(text(&tokens.newer_than(&first).unwrap()), "t1");
        assert_eq!(asked.load(Relaxed), 2);
        assert!(!format!("{tokens:?}").contains("t1"));
    }
}
