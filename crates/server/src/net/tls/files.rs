//! The files of TLS, read with their stamps: what they hold, and whether others may read the key.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

/// More than that is not read: a list of revoked certificates may be long.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The reason why TLS cannot be done with the files as they are.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}: {source}", path.display())]
    Read { setting: &'static str, path: PathBuf, source: io::Error },
    #[error("{} can be read by others than its owner (mode {mode:03o}): run chmod 600", path.display())]
    KeyForOthers { path: PathBuf, mode: u32 },
    #[error("{}: {fault}", path.display())]
    Fault { setting: &'static str, path: PathBuf, fault: String },
    #[error("{} is not the key of the certificate in {}", key.display(), certificate.display())]
    OtherKey { key: PathBuf, certificate: PathBuf },
}

impl TlsError {
    pub(super) fn fault(
        setting: &'static str,
        path: &Path,
        fault: impl std::fmt::Display,
    ) -> TlsError {
        TlsError::Fault { setting, path: path.into(), fault: fault.to_string() }
    }

    /// The setting that names the file: a label of metrics.
    pub(super) fn setting(&self) -> &'static str {
        match self {
            TlsError::Read { setting, .. } | TlsError::Fault { setting, .. } => setting,
            TlsError::KeyForOthers { .. } | TlsError::OtherKey { .. } => "key",
        }
    }
}

/// The certificates of a file, which has at least one.
pub(super) fn certificates(
    setting: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    all(setting, path, "certificate")
}

/// Those who are trusted to sign for others, from the file that they were read from.
pub(super) fn roots(
    setting: &'static str,
    path: &Path,
    authorities: &[CertificateDer<'static>],
) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        let added = roots.add(authority.clone());
        added.map_err(|error| TlsError::fault(setting, path, error))?;
    }
    Ok(roots)
}

pub(super) fn revocations(
    path: &Path,
) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    all("crl", path, "list of revoked certificates (X509 CRL)")
}

/// A key, which only its owner may read, or the owner's group.
pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let (mode, bytes) = read("key", path)?;
    if mode & 0o027 != 0 {
        return Err(TlsError::KeyForOthers { path: path.into(), mode });
    }
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| unreadable("key", path, &error, "key"))
}

fn all<T: PemObject>(
    setting: &'static str,
    path: &Path,
    what: &'static str,
) -> Result<Vec<T>, TlsError> {
    let (_, bytes) = read(setting, path)?;
    let items: Result<Vec<T>, pem::Error> = T::pem_slice_iter(&bytes).collect();
    let items = items.map_err(|error| unreadable(setting, path, &error, what))?;
    if items.is_empty() {
        return Err(TlsError::fault(setting, path, format!("there is no {what} in PEM in it")));
    }
    Ok(items)
}

/// Says what is wrong, without a byte of the file: it may be a key.
fn unreadable(
    setting: &'static str,
    path: &Path,
    error: &pem::Error,
    what: &'static str,
) -> TlsError {
    let is_empty = matches!(error, pem::Error::NoItemsFound);
    let is_cut = matches!(error, pem::Error::MissingSectionEnd { .. });
    let fault = match (is_empty, is_cut) {
        (true, _) => format!("there is no {what} in PEM in it"),
        (_, true) => "it is cut short: an END line is missing".into(),
        (false, false) => format!("what is in it is not a {what} in PEM"),
    };
    TlsError::fault(setting, path, fault)
}

fn read(setting: &'static str, path: &Path) -> Result<(u32, Vec<u8>), TlsError> {
    let failed = |source| TlsError::Read { setting, path: path.into(), source };
    let file = File::open(path).map_err(failed)?;
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    let mut bytes = Vec::new();
    let len = file.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
    if len as u64 > BYTES_MAX {
        return Err(TlsError::fault(setting, path, "it is larger than 16 MiB"));
    }
    Ok((mode, bytes))
}
