//! The material of TLS: certificate, key and authorities, read and fitted together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use leasehold_access::UnixSeconds;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ProducesTickets, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig, SupportedProtocolVersion};
use serde::Deserialize;

use super::der::{self, Validity};
use super::files::{self, TlsError};
use super::servers::Servers;

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
    /// The files.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        let named = [&self.cert, &self.key];
        named.into_iter().chain(&self.client_ca).chain(&self.crl).map(|path| &**path)
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
    /// The means by which servers of a cluster know each other, if they do.
    pub(super) servers: Option<Servers>,
    /// The version of the rules for clients' certificates: when it changes, all are judged anew.
    trust: Trust,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Trust {
    authorities: Vec<CertificateDer<'static>>,
    revoked: Vec<CertificateRevocationListDer<'static>>,
    /// Those of servers.
    of_servers: Vec<CertificateDer<'static>>,
}

impl Material {
    /// Reads all files; `cluster_ca` is that of the authorities of servers. `before` is what was in force, if anything was:
    /// sessions can be resumed as long as the same clients are trusted.
    pub(super) fn read(
        config: &TlsConfig,
        cluster_ca: Option<&Path>,
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
        let mut trust = Trust::default();
        if let Some(path) = config.client_ca.as_deref().filter(|_| is_asked) {
            trust.authorities = files::certificates("client_ca", path)?;
            let revoked = config.crl.as_deref().map(files::revocations).transpose()?;
            trust.revoked = revoked.unwrap_or_default();
        }
        if let Some(path) = cluster_ca {
            trust.of_servers = files::certificates("cluster_ca", path)?;
        }
        let verifier = verifier(config, &trust)?;
        let at_handshake = match cluster_ca {
            Some(path) => Some(at_handshake(config, path, &trust)?),
            None => verifier.clone(),
        };
        let ticketer = match before.filter(|before| before.trust == trust) {
            Some(before) => before.server.ticketer.clone(),
            None => ticketer(&config.key)?,
        };
        let server = server(config, at_handshake, &chain, &key, ticketer)?;
        let servers = cluster_ca.map(|path| Servers::new(path, &trust.of_servers, &chain, &key));
        let servers = servers.transpose()?;
        Ok(Material { server, validity, names, verifier, servers, trust })
    }

    /// Whether certificates of clients are judged as before.
    pub(super) fn trusts_as(&self, before: &Material) -> bool {
        self.trust == before.trust
    }
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Tickets of sessions, with keys that rustls makes anew every six hours.
fn ticketer(key: &Path) -> Result<Arc<dyn ProducesTickets>, TlsError> {
    rustls::crypto::ring::Ticketer::new().map_err(|error| TlsError::fault("key", key, error))
}

/// The verifier of clients' certificates.
fn verifier(
    config: &TlsConfig,
    trust: &Trust,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsError> {
    let Some(path) = config.client_ca.as_deref().filter(|_| !trust.authorities.is_empty()) else {
        return Ok(None);
    };
    let roots = files::roots("client_ca", path, &trust.authorities)?;
    let is_needed = config.client_auth == ClientAuth::Required;
    let of_list = config.crl.as_deref().unwrap_or(path);
    verifier_of(roots, &trust.revoked, is_needed, of_list).map(Some)
}

/// The verifier where clients and servers come to the same port. Which of them it is, is judged afterwards.
fn at_handshake(
    config: &TlsConfig,
    cluster_ca: &Path,
    trust: &Trust,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = files::roots("cluster_ca", cluster_ca, &trust.of_servers)?;
    if let Some(path) = &config.client_ca {
        roots.extend(files::roots("client_ca", path, &trust.authorities)?.roots);
    }
    let is_needed = config.client_auth == ClientAuth::Required;
    let of_list = config.crl.as_deref().unwrap_or(cluster_ca);
    verifier_of(roots, &trust.revoked, is_needed, of_list)
}

fn verifier_of(
    roots: RootCertStore,
    revoked: &[CertificateRevocationListDer<'static>],
    is_needed: bool,
    of_list: &Path,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .with_crls(revoked.iter().cloned());
    if !revoked.is_empty() {
        // A list is of one authority; certificates of others are on none.
        builder = builder.only_check_end_entity_revocation().allow_unknown_revocation_status();
    }
    if !is_needed {
        builder = builder.allow_unauthenticated();
    }
    builder.build().map_err(|error| TlsError::fault("crl", of_list, error))
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
