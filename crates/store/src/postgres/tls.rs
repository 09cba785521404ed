//! TLS for the connection, by rustls.

use std::fs;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::OpenError;
use crate::location::{PostgresLocation, Tls};

/// Makes TLS connections for one server.
#[derive(Clone)]
pub(super) struct RustlsConnect {
    config: Arc<ClientConfig>,
}

pub(super) fn connector(location: &PostgresLocation) -> Result<RustlsConnect, OpenError> {
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
    Ok(RustlsConnect { config: Arc::new(config) })
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

impl<S> MakeTlsConnect<S> for RustlsConnect
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Protected<S>;
    type TlsConnect = Handshake;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Handshake, Self::Error> {
        let name = ServerName::try_from(domain)?.to_owned();
        Ok(Handshake { connector: TlsConnector::from(self.config.clone()), name })
    }
}

/// A handshake that is to come.
pub(super) struct Handshake {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl<S> TlsConnect<S> for Handshake
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Stream = Protected<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Protected<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move {
            let stream = self.connector.connect(self.name, stream).await?;
            Ok(Protected(Box::new(stream)))
        })
    }
}

/// A protected connection.
pub(super) struct Protected<S>(Box<TlsStream<S>>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for Protected<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Protected<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Protected<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(context)
    }
}
