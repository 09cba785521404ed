//! TLS for connections to a store, by rustls.

use std::fmt;
use std::fs;
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

use crate::location::{Tls, TlsFiles};

/// The client's TLS settings: its own identity, and the certificates that it trusts.
pub(crate) fn config(tls: Tls, files: &TlsFiles) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = verifier(tls, files, &provider)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    match (&files.certificate, &files.key) {
        (Some(certificate), Some(path)) => builder
            .with_client_auth_cert(certificates(certificate)?, key(path)?)
            .map_err(|error| format!("our certificate and its key cannot be used: {error}")),
        (None | Some(_), None) | (None, Some(_)) => Ok(builder.with_no_client_auth()),
    }
}

fn unreadable(path: &Path, why: impl fmt::Display) -> String {
    format!("{} cannot be read: {why}", path.display())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = fs::read(path).map_err(|error| unreadable(path, error))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = found.map_err(|error| unreadable(path, error))?;
    if found.is_empty() {
        return Err(unreadable(path, "there is no certificate in it"));
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let pem = fs::read(path).map_err(|error| unreadable(path, error))?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| unreadable(path, error))
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
    tls: Tls,
    files: &TlsFiles,
    provider: &Arc<CryptoProvider>,
) -> Result<Verifier, String> {
    let authorities = match tls {
        Tls::Off | Tls::Unverified => None,
        Tls::VerifyAuthority | Tls::Verify => {
            let roots = Arc::new(roots(files.authority.as_deref())?);
            let built = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
            Some(built.build().map_err(|error| error.to_string())?)
        }
    };
    Ok(Verifier { tls, provider: provider.clone(), authorities })
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
