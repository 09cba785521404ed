//! TLS for the connections to a server, by rustls.

use std::io;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::access::{ConnectError, Protocol};
use crate::address::host;
use crate::error::Error;
use crate::surroundings::Bytes;

pub(crate) type Protected = Box<TlsStream<Box<dyn Bytes>>>;

/// Whom we trust, for each protocol that may be spoken.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl Tls {
    /// Trusts these authorities, certificates in PEM; those of the system if there are none.
    pub(crate) fn new(authorities: Option<&[u8]>) -> Result<Tls, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Settings(format!("TLS cannot be set up: {error}")))?
            .with_root_certificates(roots(authorities)?)
            .with_no_client_auth();
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

/// Why the handshake failed, in words that say what to do about it.
#[expect(clippy::wildcard_enum_match_arm, reason = "what is rare is said in the words of rustls")]
fn connect_error(server: &str, error: &io::Error) -> ConnectError {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let said = match cause {
        None => return ConnectError::passing(format!("{server}: {error}")),
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
        Some(other) => format!("TLS: {other}"),
    };
    ConnectError::lasting(format!("{server}: {said}"))
}
