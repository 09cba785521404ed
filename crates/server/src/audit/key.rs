//! The key under which secrets are named: whoever has the key can tell whether a line is about a secret, and nobody else can.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::mac::{hex, mac};
use crate::service::random;

const KEY_LEN_MAX: u64 = 4096;
const KEY_LEN_MIN: usize = 16;
/// So much of a hash is written: nobody finds another secret with the same.
const SHOWN_BYTES: usize = 16;

/// The key of an audit log. `Debug` does not show it.
pub struct SecretKey(Vec<u8>);

/// The reason why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("cannot use the key {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} can be read by others than its owner (mode {mode:03o}): run chmod 600", path.display())]
    Open { path: PathBuf, mode: u32 },
    #[error("{} is no key: it has fewer than 16 bytes", path.display())]
    TooShort { path: PathBuf },
}

impl SecretKey {
    /// Reads the key; makes one if there is none.
    pub fn open(path: &Path) -> Result<SecretKey, KeyError> {
        let failed = |source| KeyError::Io { path: path.into(), source };
        let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        match new {
            Ok(mut file) => {
                let text = hex(&random::bytes::<32>());
                file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed(error)),
        }
        SecretKey::read(path)
    }

    /// Reads a key that is there.
    pub fn read(path: &Path) -> Result<SecretKey, KeyError> {
        let failed = |source| KeyError::Io { path: path.into(), source };
        let file = std::fs::File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Open { path: path.into(), mode });
        }
        let mut key = Vec::new();
        file.take(KEY_LEN_MAX).read_to_end(&mut key).map_err(failed)?;
        let end = key.trim_ascii_end().len();
        key.truncate(end);
        if key.len() < KEY_LEN_MIN {
            return Err(KeyError::TooShort { path: path.into() });
        }
        Ok(SecretKey(key))
    }

    /// A secret as it stands in the log.
    pub fn hash(&self, secret: &str) -> String {
        format!("hmac:{}", hex(&mac(&self.0, secret.as_bytes())[..SHOWN_BYTES]))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn key_is_made_once_and_is_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.key");
        let hash = SecretKey::open(&path).unwrap().hash("a-lease");
        assert_eq!(SecretKey::open(&path).unwrap().hash("a-lease"), hash);
        assert_ne!(SecretKey::read(&path).unwrap().hash("b-lease"), hash);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(SecretKey::open(&path), Err(KeyError::Open { .. })));
        let short = folder.path().join("short.key");
        std::fs::write(&short, "secret\n").unwrap();
        std::fs::set_permissions(&short, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(SecretKey::open(&short), Err(KeyError::TooShort { .. })));
    }
}
