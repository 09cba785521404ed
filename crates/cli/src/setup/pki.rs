//! A certificate authority of one's own, and the certificates that it signs: ECDSA P-256.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold_client::AuthorityHash;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use serde::{Deserialize, Serialize};

use super::private::{self, PUBLIC, SECRET};
use crate::failure::{EXIT_CONFIG, EXIT_FAULT, EXIT_USAGE, Failure};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const AUTHORITY_DAYS: u32 = 3650;
/// Clocks differ.
const BACKDATED: Duration = Duration::from_secs(60 * 60);

fn failed(error: &rcgen::Error) -> Failure {
    Failure::new(EXIT_FAULT, format!("no certificate could be made: {error}"))
}

/// An authority: its key, and with it everything it signs.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) hash: AuthorityHash,
    pem: String,
}

impl Authority {
    pub(crate) fn files(directory: &Path) -> (PathBuf, PathBuf) {
        (directory.join("pki/ca.pem"), directory.join("pki/ca.key"))
    }

    /// The authority of a directory, which is made if there is none.
    pub(crate) fn made(directory: &Path) -> Result<Authority, Failure> {
        let (certificate, key) = Authority::files(directory);
        if private::is_there(&certificate) {
            return Authority::read(directory);
        }
        private::directory(&directory.join("pki"))?;
        let pair = KeyPair::generate().map_err(|error| failed(&error))?;
        let made = Authority::of(pair, SystemTime::now())?;
        private::write(&key, &made.issuer.key().serialize_pem(), SECRET)?;
        private::write(&certificate, &made.pem, PUBLIC)?;
        Ok(made)
    }

    /// The authority of a directory. Its key has to be there.
    pub(crate) fn read(directory: &Path) -> Result<Authority, Failure> {
        let (certificate, key) = Authority::files(directory);
        let pem = private::read(&certificate)?;
        let pair = KeyPair::from_pem(&private::read(&key).map_err(|failure| {
            failure.next("the key of the authority is needed here: was it put away?")
        })?)
        .map_err(|error| Failure::new(EXIT_CONFIG, format!("{}: {error}", key.display())))?;
        let hash = AuthorityHash::of_key(&pair.subject_public_key_info());
        if AuthorityHash::of_pem(pem.as_bytes()) != Ok(hash) {
            let said = format!("{} is not the key of {}", key.display(), certificate.display());
            return Err(Failure::new(EXIT_CONFIG, said));
        }
        let issuer = Issuer::new(Authority::params(&pair), pair);
        Ok(Authority { issuer, hash, pem })
    }

    fn of(pair: KeyPair, now: SystemTime) -> Result<Authority, Failure> {
        let mut params = Authority::params(&pair);
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + DAY * AUTHORITY_DAYS).into();
        let pem = params.self_signed(&pair).map_err(|error| failed(&error))?.pem();
        let hash = AuthorityHash::of_key(&pair.subject_public_key_info());
        Ok(Authority { issuer: Issuer::new(params, pair), hash, pem })
    }

    /// Its name follows from its key, so that the key is enough to sign with.
    fn params(pair: &KeyPair) -> CertificateParams {
        let mut params = CertificateParams::default();
        let id = params.key_identifier(pair);
        let name: String = id.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        params.distinguished_name = common_name(&format!("Leasehold CA {name}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    /// Signs a certificate, and writes it with its key and what it is for. Files that are there are replaced.
    pub(crate) fn sign(&self, paths: &Paths, request: &Request) -> Result<Record, Failure> {
        let now = SystemTime::now();
        let mut serial = [0; 16];
        getrandom::fill(&mut serial)
            .map_err(|_| Failure::new(EXIT_FAULT, "the operating system has no randomness"))?;
        // Positive, and as long as it is written.
        serial[0] = serial[0] & 0x7f | 0x40;
        let pair = KeyPair::generate().map_err(|error| failed(&error))?;
        let mut params = request.params()?;
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + DAY * request.days).into();
        let signed = params.signed_by(&pair, &self.issuer).map_err(|error| failed(&error))?;
        let record = Record {
            request: request.clone(),
            serial: serial.iter().map(|byte| format!("{byte:02x}")).collect(),
            issued_at: now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        };
        let json = serde_json::to_string_pretty(&record)
            .map_err(|error| Failure::new(EXIT_FAULT, error.to_string()))?;
        // The key first: a server that looks meanwhile finds that they do not fit, and looks again.
        private::write(&paths.key, &pair.serialize_pem(), SECRET)?;
        // With the authority, which clients that know its hash alone want to see.
        private::write(&paths.certificate, &(signed.pem() + &self.pem), PUBLIC)?;
        private::write(&paths.record, &(json + "\n"), PUBLIC)?;
        Ok(record)
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

/// The files of one certificate: NAME.pem, NAME.key and NAME.json.
pub(crate) struct Paths {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) record: PathBuf,
}

impl Paths {
    pub(crate) fn of(certificate: &Path) -> Paths {
        Paths {
            certificate: certificate.into(),
            key: certificate.with_extension("key"),
            record: certificate.with_extension("json"),
        }
    }
}

/// The request for a certificate: its subject, and how long it is valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    #[serde(flatten)]
    pub(crate) subject: Subject,
    pub(crate) days: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Subject {
    /// A server by its name, and the names and addresses that clients use.
    Server { name: String, hosts: Vec<String> },
    /// A client that is this principal.
    Principal(String),
}

impl Request {
    fn params(&self) -> Result<CertificateParams, Failure> {
        let text = |text: &str| {
            text.try_into().map_err(|_| {
                Failure::new(EXIT_USAGE, format!("{text} cannot stand in a certificate"))
            })
        };
        let mut params = CertificateParams::default();
        params.use_authority_key_identifier_extension = true;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let client = ExtendedKeyUsagePurpose::ClientAuth;
        match &self.subject {
            Subject::Server { name, hosts } => {
                params.distinguished_name = common_name(name);
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, client];
                for host in hosts {
                    params.subject_alt_names.push(match host.parse::<IpAddr>() {
                        Ok(address) => SanType::IpAddress(address),
                        Err(_) => SanType::DnsName(text(host)?),
                    });
                }
                let uri = text(&format!("leasehold://server/{name}"))?;
                params.subject_alt_names.push(SanType::URI(uri));
            }
            Subject::Principal(name) => {
                params.distinguished_name = common_name(name);
                params.extended_key_usages = vec![client];
                let uri = text(&format!("leasehold://principal/{name}"))?;
                params.subject_alt_names.push(SanType::URI(uri));
            }
        }
        Ok(params)
    }
}

/// A certificate that was signed, as it is noted beside it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) request: Request,
    pub(crate) serial: String,
    /// In seconds since 1970.
    pub(crate) issued_at: u64,
}

impl Record {
    pub(crate) fn read(paths: &Paths) -> Result<Record, Failure> {
        let wrong = "only certificates that `leasehold init` or `cert issue` made can be renewed";
        let text = private::read(&paths.record).map_err(|failure| failure.next(wrong))?;
        serde_json::from_str(&text).map_err(|error| {
            let said = format!("{}: {error}", paths.record.display());
            Failure::new(EXIT_CONFIG, said).next(wrong)
        })
    }

    /// True in the last third of its life.
    pub(crate) fn is_due(&self, now: SystemTime) -> bool {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let life = DAY.as_secs() * u64::from(self.request.days);
        now >= self.issued_at + life / 3 * 2
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn authority_is_made_once_and_signs_again_after_it_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let hash = Authority::made(folder.path()).unwrap().hash;
        let again = Authority::made(folder.path()).unwrap();
        assert_eq!(again.hash, hash);
        assert_eq!(AuthorityHash::of_pem(again.pem().as_bytes()), Ok(hash));
        let paths = Paths::of(&folder.path().join("worker.pem"));
        let subject = Subject::Principal("k8s/prod/worker".into());
        let request = Request { subject, days: 30 };
        let first = again.sign(&paths, &request).unwrap();
        assert_eq!(std::fs::metadata(&paths.key).unwrap().mode() & 0o777, 0o600);
        let record = Record::read(&paths).unwrap();
        assert_eq!((&record.request, &record.serial), (&request, &first.serial));
        assert!(!record.is_due(SystemTime::now() + DAY * 19));
        assert!(record.is_due(SystemTime::now() + DAY * 20));
        assert_ne!(again.sign(&paths, &request).unwrap().serial, first.serial);
    }

    #[test]
    fn key_of_another_authority_is_refused() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Authority::made(one.path()).unwrap();
        Authority::made(other.path()).unwrap();
        std::fs::copy(Authority::files(other.path()).1, Authority::files(one.path()).1).unwrap();
        assert!(
            Authority::read(one.path())
                .is_err_and(|failure| failure.said.contains("is not the key"))
        );
    }
}
