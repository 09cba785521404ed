//! The identity of servers among themselves: by an authority of theirs, and by a name that only certificates of servers
//! have.
//!
//! A server that speaks to another shows its own certificate, and looks at that of the other as a client does, host name
//! included. Either side wants the name `leasehold://server/NAME`: a client's certificate of the same authority is none of a
//! server.

use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::files::{self, TlsError};
use super::material::provider;

const SETTING: &str = "cluster_ca";
/// The beginning of the name of a server.
const SERVER: &str = "leasehold://server/";

/// The means by which servers know each other.
#[derive(Debug)]
pub(super) struct Servers {
    /// Judges those who come.
    verifier: Arc<dyn ClientCertVerifier>,
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl Servers {
    /// Fits the server's own certificate to the authorities: others look at it in the same way.
    pub(super) fn new(
        path: &Path,
        authorities: &[CertificateDer<'static>],
        chain: &[CertificateDer<'static>],
        key: &PrivateKeyDer<'static>,
    ) -> Result<Servers, TlsError> {
        let roots = Arc::new(files::roots(SETTING, path, authorities)?);
        let fault = |error: &dyn std::fmt::Display| TlsError::fault(SETTING, path, error);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider())
            .build()
            .map_err(|error| fault(&error))?;
        let of_others = WebPkiServerVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| fault(&error))?;
        let of_others = Arc::new(OfServers(of_others));
        let client = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| fault(&error))?
            .dangerous()
            .with_custom_certificate_verifier(of_others)
            .with_client_auth_cert(chain.to_vec(), key.clone_key())
            .map_err(|error| fault(&error))?;
        let speaking = |protocol: &[u8]| {
            let mut client = client.clone();
            client.alpn_protocols = vec![protocol.to_vec()];
            Arc::new(client)
        };
        let servers = Servers { verifier, http1: speaking(b"http/1.1"), http2: speaking(b"h2") };
        servers.judge(chain).map_err(|why| {
            fault(&format!("other servers would not know this one by its certificate: {why}"))
        })?;
        Ok(servers)
    }

    /// TLS for connections to other servers.
    pub(super) fn client(&self, is_http2: bool) -> Arc<ClientConfig> {
        if is_http2 { self.http2.clone() } else { self.http1.clone() }
    }

    /// Whether this is the certificate of a server.
    pub(super) fn is_one(&self, chain: &[CertificateDer<'_>]) -> bool {
        self.judge(chain).is_ok()
    }

    fn judge(&self, chain: &[CertificateDer<'_>]) -> Result<(), String> {
        let (own, between) = chain.split_first().ok_or("there is none")?;
        let verified = self.verifier.verify_client_cert(own, between, UnixTime::now());
        verified.map_err(|error| error.to_string())?;
        if has_name(own) { Ok(()) } else { Err(format!("it has no name {SERVER}NAME")) }
    }
}

/// Whether a certificate has the name of a server.
fn has_name(certificate: &CertificateDer<'_>) -> bool {
    let read = webpki::EndEntityCert::try_from(certificate);
    read.is_ok_and(|read| {
        read.valid_uri_names().any(|name| name.len() > SERVER.len() && name.starts_with(SERVER))
    })
}

/// Looks at other servers as any client does, and wants the name besides.
#[derive(Debug)]
struct OfServers(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for OfServers {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.0.verify_server_cert(own, between, name, ocsp, now)?;
        if has_name(own) {
            Ok(verified)
        } else {
            Err(Error::General(format!("the certificate has no name {SERVER}NAME")))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
