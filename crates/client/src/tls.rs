//! TLS for the connections to a server, by rustls.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::access::{ConnectError, Protocol};
use crate::address::host;
use crate::error::Error;
use crate::pin::{AuthorityHash, PinnedAuthority};
use crate::surroundings::Bytes;

pub(crate) type Protected = Box<TlsStream<Box<dyn Bytes>>>;

/// The trusted authorities, for each protocol that may be spoken.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

/// The trusted authorities and the client's own certificate, as configured.
#[derive(Clone, Default)]
pub(crate) struct TlsSettings {
    /// Certificates of authorities in PEM; those of the system if there are none.
    pub(crate) authorities: Option<Vec<u8>>,
    /// The one authority that is trusted, by its key.
    pub(crate) authority: Option<AuthorityHash>,
    /// A certificate with what stands above it, and its key, in PEM.
    pub(crate) identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Without the key.
impl fmt::Debug for TlsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSettings").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl TlsSettings {
    /// True if the authorities were configured, and are not those of the system.
    pub(crate) fn is_pinned(&self) -> bool {
        self.authorities.is_some() || self.authority.is_some()
    }

    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, Error> {
        if let Some(hash) = self.authority {
            return Ok(Arc::new(PinnedAuthority::new(hash, provider.clone())));
        }
        let roots = Arc::new(roots(self.authorities.as_deref())?);
        WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map(|verifier| verifier as Arc<dyn ServerCertVerifier>)
            .map_err(|error| Error::Settings(format!("TLS cannot be set up: {error}")))
    }
}

impl Tls {
    pub(crate) fn new(settings: &TlsSettings) -> Result<Tls, Error> {
        let wrong = |what: &str, why: &dyn fmt::Display| Error::Settings(format!("{what}: {why}"));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong("TLS cannot be set up", &error))?
            .dangerous()
            .with_custom_certificate_verifier(settings.verifier(&provider)?);
        let config = match &settings.identity {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let said = "the certificate of the client cannot be used";
                let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
                let chain = chain.map_err(|error| wrong(said, &error))?;
                let key =
                    PrivateKeyDer::from_pem_slice(key).map_err(|error| wrong(said, &error))?;
                config.with_client_auth_cert(chain, key).map_err(|error| wrong(said, &error))?
            }
        };
        let speaking = |protocol: &[u8]| {
            let mut config = config.clone();
            config.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(config)
        };
        Ok(Tls { http1: speaking(b"http/1.1"), http2: speaking(b"h2") })
    }

    pub(crate) async fn protect(
        &self,
        server: &str,
        tcp: Box<dyn Bytes>,
        protocol: Protocol,
    ) -> Result<Protected, ConnectError> {
        let config = match protocol {
            Protocol::Http1 => &self.http1,
            Protocol::Http2 => &self.http2,
        };
        let name = ServerName::try_from(host(server)).map_err(|_| {
            ConnectError::lasting(format!("{server}: not a name that a certificate can be for"))
        })?;
        let connected = TlsConnector::from(config.clone()).connect(name.to_owned(), tcp).await;
        connected.map(Box::new).map_err(|error| connect_error(server, &error))
    }
}

fn roots(authorities: Option<&[u8]>) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    let found = match authorities {
        Some(pem) => {
            let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
            found.map_err(|error| {
                Error::Settings(format!("the certificates of authorities cannot be read: {error}"))
            })?
        }
        None => rustls_native_certs::load_native_certs().certs,
    };
    roots.add_parsable_certificates(found);
    if roots.is_empty() {
        let whose = match authorities {
            Some(_) => "the given file has no certificates",
            None => "this system has none",
        };
        let said = format!("no certificate authorities: {whose}");
        return Err(Error::Settings(said));
    }
    Ok(roots)
}

/// The reason why the handshake failed, in words that say what to do about it.
#[expect(clippy::wildcard_enum_match_arm, reason = "what is rare is said in the words of rustls")]
fn connect_error(server: &str, error: &io::Error) -> ConnectError {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let said = match cause {
        None => {
            let said = format!("{server}: the TLS handshake failed, perhaps it speaks no TLS: {error}");
            return ConnectError::passing(said);
        }
        Some(rustls::Error::InvalidCertificate(certificate)) => match certificate {
            // One that calls itself as one that is trusted, with another key, is none of them.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is signed by an unknown authority".into()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired".into()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet".into()
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("its certificate is not for the name {}", host(server))
            }
            other => format!("its certificate cannot be trusted: {other}"),
        },
        Some(rustls::Error::InvalidMessage(_)) => "it does not speak TLS".into(),
        Some(rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::HandshakeFailure,
        )) => "it wants a client certificate".into(),
        Some(rustls::Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateRevoked
            | AlertDescription::DecryptError,
        )) => "it does not take the client certificate: it is expired, revoked, or of another authority".into(),
        Some(other) => format!("TLS: {other}"),
    };
    ConnectError::lasting(format!("{server}: {said}"))
}
