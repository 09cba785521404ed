//! TLS for the connection, by rustls.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_postgres::Socket;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::OpenError;
use crate::location::{PostgresLocation, Tls};

/// A connection begins in the clear, and with the question whether the server can do better.
const CAN_YOU: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
const YES: u8 = b'S';

/// How connections are protected.
#[derive(Clone)]
pub(super) struct Protection {
    config: Arc<ClientConfig>,
}

impl Protection {
    /// Asks the server of that name for it.
    pub(super) async fn of(
        self,
        name: ServerName<'static>,
        mut socket: Socket,
    ) -> io::Result<TlsStream<Socket>> {
        socket.write_all(&CAN_YOU).await?;
        if socket.read_u8().await? != YES {
            return Err(io::Error::other("the server does not offer TLS"));
        }
        TlsConnector::from(self.config).connect(name, socket).await
    }
}

pub(super) fn protection(location: &PostgresLocation) -> Result<Protection, OpenError> {
    let failed =
        |what: String| OpenError::Failed { store: location.to_string(), what, cause: None };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = verifier(location, &provider).map_err(failed)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let files = &location.files;
    let config = match (&files.certificate, &files.key) {
        (Some(certificate), Some(key)) => {
            let certificates = certificates(certificate).map_err(failed)?;
            let key = fs::read(key)
                .map_err(|error| error.to_string())
                .and_then(|pem| {
                    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| error.to_string())
                })
                .map_err(|why| failed(format!("the key of sslkey cannot be read: {why}")))?;
            builder
                .with_client_auth_cert(certificates, key)
                .map_err(|error| failed(format!("sslcert and sslkey cannot be used: {error}")))?
        }
        (None | Some(_), None) | (None, Some(_)) => builder.with_no_client_auth(),
    };
    Ok(Protection { config: Arc::new(config) })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |why: String| format!("{} cannot be read: {why}", path.display());
    let pem = fs::read(path).map_err(|error| failed(error.to_string()))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| failed(error.to_string()))?;
    if found.is_empty() {
        return Err(failed("there is no certificate in it".into()));
    }
    Ok(found)
}

/// Looks at the server's certificate as far as was asked for.
#[derive(Debug)]
struct Verifier {
    tls: Tls,
    provider: Arc<CryptoProvider>,
    /// `None` if nothing is verified.
    authorities: Option<Arc<WebPkiServerVerifier>>,
}

fn verifier(
    location: &PostgresLocation,
    provider: &Arc<CryptoProvider>,
) -> Result<Verifier, String> {
    let authorities = match location.tls {
        Tls::Off | Tls::Unverified => None,
        Tls::VerifyAuthority | Tls::Verify => {
            let roots = Arc::new(roots(location.files.authority.as_deref())?);
            let built = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
            Some(built.build().map_err(|error| error.to_string())?)
        }
    };
    Ok(Verifier { tls: location.tls, provider: provider.clone(), authorities })
}

fn roots(authority: Option<&Path>) -> Result<RootCertStore, String> {
    let found = match authority {
        Some(path) => certificates(path)?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found);
    if roots.is_empty() {
        return Err("no authority is known that could have signed its certificate".into());
    }
    Ok(roots)
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified = authorities.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.tls == Tls::VerifyAuthority => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
