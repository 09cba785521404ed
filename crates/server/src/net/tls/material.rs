//! The material of TLS: certificate, key and authorities, read and fitted together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_access::UnixSeconds;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ProducesTickets, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, InconsistentKeys, RootCertStore, ServerConfig, SupportedProtocolVersion,
};
use serde::Deserialize;

use super::der::{self, Validity};
use super::files::{self, TlsError};

/// The files and rules of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// The server's certificate, and those between it and its authority.
    pub cert: PathBuf,
    pub key: PathBuf,
    /// The authorities that may sign certificates of clients.
    pub client_ca: Option<PathBuf>,
    pub client_auth: ClientAuth,
    /// Certificates of clients that are revoked, as the authority tells.
    pub crl: Option<PathBuf>,
    pub min_version: MinVersion,
}

/// Whether clients show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// They are not asked for one.
    #[default]
    Off,
    /// One that is shown has to be good; none has to be shown.
    Optional,
    Required,
}

/// The oldest TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum MinVersion {
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

impl TlsConfig {
    /// The files, with the settings that name them.
    pub(super) fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let named = [("cert", &self.cert), ("key", &self.key)];
        let client_ca = self.client_ca.iter().map(|path| ("client_ca", path));
        let crl = self.crl.iter().map(|path| ("crl", path));
        named.into_iter().chain(client_ca).chain(crl).map(|(setting, path)| (setting, &**path))
    }
}

/// The files' contents, fitted together.
#[derive(Debug)]
pub(crate) struct Material {
    pub(super) server: Arc<ServerConfig>,
    pub(super) validity: Validity,
    /// The DNS names that the certificate is for, in small letters.
    pub(super) names: Vec<String>,
    /// The verifier of clients' certificates, if they are asked for one.
    pub(super) verifier: Option<Arc<dyn ClientCertVerifier>>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// The version of the rules for clients' certificates: when it changes, all are judged anew.
    trust: Trust,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Trust {
    authorities: Vec<CertificateDer<'static>>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
}

impl Material {
    /// Reads all files. `before` is what was in force, if anything was: sessions can be resumed as long as the same clients
    /// are trusted.
    pub(super) fn read(
        config: &TlsConfig,
        now: UnixSeconds,
        before: Option<&Material>,
    ) -> Result<Material, TlsError> {
        let chain = files::certificates("cert", &config.cert)?;
        let key = files::key(&config.key)?;
        let validity = der::validity(&chain[0])
            .ok_or_else(|| TlsError::fault("cert", &config.cert, "it is not a certificate"))?;
        let names = webpki::EndEntityCert::try_from(&chain[0])
            .map_err(|error| TlsError::fault("cert", &config.cert, error))?
            .valid_dns_names()
            .map(str::to_ascii_lowercase)
            .collect();
        if validity.not_after <= now {
            return Err(TlsError::fault("cert", &config.cert, "the certificate has expired"));
        }
        let is_asked = config.client_auth != ClientAuth::Off;
        let trust = match config.client_ca.as_deref().filter(|_| is_asked) {
            None => Trust::default(),
            Some(authorities) => Trust {
                authorities: files::certificates("client_ca", authorities)?,
                revoked: config
                    .crl
                    .as_deref()
                    .map(files::revocations)
                    .transpose()?
                    .unwrap_or_default(),
            },
        };
        let verifier = verifier(config, &trust)?;
        let ticketer = match before.filter(|before| before.trust == trust) {
            Some(before) => before.server.ticketer.clone(),
            None => ticketer(&config.key)?,
        };
        let server = server(config, verifier.clone(), &chain, &key, ticketer)?;
        Ok(Material { server, validity, names, verifier, chain, key, trust })
    }

    /// Whether certificates of clients are judged as before.
    pub(super) fn trusts_as(&self, before: &Material) -> bool {
        self.trust == before.trust
    }

    /// TLS for connections to servers that one of these authorities has signed for; with the server's own certificate, so
    /// that they know who asks.
    pub(super) fn client(&self, authorities: &Path) -> Result<ClientConfig, TlsError> {
        let roots = files::authorities("ca", authorities)?;
        let fault = |error: rustls::Error| TlsError::fault("ca", authorities, error);
        ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(fault)?
            .with_root_certificates(roots)
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(fault)
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Tickets of sessions, with keys that rustls makes anew every six hours.
fn ticketer(key: &Path) -> Result<Arc<dyn ProducesTickets>, TlsError> {
    rustls::crypto::ring::Ticketer::new().map_err(|error| TlsError::fault("key", key, error))
}

fn verifier(
    config: &TlsConfig,
    trust: &Trust,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let Some(path) = config.client_ca.as_deref().filter(|_| !trust.authorities.is_empty()) else {
        return Ok(None);
    };
    let mut roots = RootCertStore::empty();
    for authority in &trust.authorities {
        let added = roots.add(authority.clone());
        added.map_err(|error| TlsError::fault("client_ca", path, error))?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .with_crls(trust.revoked.iter().cloned());
    if !trust.revoked.is_empty() {
        // A list is of one authority; certificates of others are on none.
        builder = builder.only_check_end_entity_revocation().allow_unknown_revocation_status();
    }
    if config.client_auth == ClientAuth::Optional {
        builder = builder.allow_unauthenticated();
    }
    let of_list = config.crl.as_deref().unwrap_or(path);
    builder.build().map(Some).map_err(|error| TlsError::fault("crl", of_list, error))
}

fn server(
    config: &TlsConfig,
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
    ticketer: Arc<dyn ProducesTickets>,
) -> Result<Arc<ServerConfig>, TlsError> {
    let versions: &[&SupportedProtocolVersion] = match config.min_version {
        MinVersion::Tls12 => &[&TLS13, &TLS12],
        MinVersion::Tls13 => &[&TLS13],
    };
    let verifier = verifier.unwrap_or_else(WebPkiClientVerifier::no_client_auth);
    let mut server = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .map_err(|error| TlsError::fault("cert", &config.cert, error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.to_vec(), key.clone_key())
        .map_err(|error| {
            if error == rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) {
                TlsError::OtherKey { key: config.key.clone(), certificate: config.cert.clone() }
            } else {
                TlsError::fault("key", &config.key, error)
            }
        })?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    server.ticketer = ticketer;
    // What was sent with the first bytes could be sent again by others.
    server.max_early_data_size = 0;
    Ok(Arc::new(server))
}
