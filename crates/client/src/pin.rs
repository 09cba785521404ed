//! An authority that is known by the hash of its key alone, as a join string says it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use sha2::{Digest, Sha256};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const TEXT_LEN: usize = 43;
/// The tag of a SEQUENCE in DER.
const SEQUENCE: u8 = 0x30;

/// The SHA-256 of an authority's public key (its SubjectPublicKeyInfo in DER), written in base64url without padding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AuthorityHash([u8; 32]);

/// The text was no hash of an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the hash of an authority: expected 43 characters of base64url")]
pub struct NotAnAuthority;

impl AuthorityHash {
    /// The hash of a public key in DER.
    pub fn of_key(subject_public_key_info: &[u8]) -> AuthorityHash {
        AuthorityHash(Sha256::digest(subject_public_key_info).into())
    }

    /// The hash of the key of the first certificate in PEM.
    pub fn of_pem(pem: &[u8]) -> Result<AuthorityHash, NotAnAuthority> {
        let certificate = CertificateDer::from_pem_slice(pem).map_err(|_| NotAnAuthority)?;
        AuthorityHash::of(&certificate).ok_or(NotAnAuthority)
    }

    fn of(certificate: &CertificateDer<'_>) -> Option<AuthorityHash> {
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone().into_owned()).ok()?;
        // It is kept there without the head of the outermost SEQUENCE.
        let value: &[u8] = roots.roots.first()?.subject_public_key_info.as_ref();
        let mut key = vec![SEQUENCE];
        match u8::try_from(value.len()) {
            Ok(short) if short < 0x80 => key.push(short),
            Ok(long) => key.extend([0x81, long]),
            Err(_) => {
                key.push(0x82);
                key.extend(u16::try_from(value.len()).ok()?.to_be_bytes());
            }
        }
        key.extend(value);
        Some(AuthorityHash::of_key(&key))
    }
}

impl fmt::Display for AuthorityHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.chunks(3) {
            let bits = (0..3).fold(0usize, |bits, at| {
                bits << 8 | usize::from(chunk.get(at).copied().unwrap_or(0))
            });
            for at in 0..=chunk.len() {
                write!(f, "{}", char::from(DIGITS[bits >> (18 - 6 * at) & 63]))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for AuthorityHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthorityHash({self})")
    }
}

impl FromStr for AuthorityHash {
    type Err = NotAnAuthority;

    fn from_str(text: &str) -> Result<AuthorityHash, NotAnAuthority> {
        if text.len() != TEXT_LEN {
            return Err(NotAnAuthority);
        }
        let (mut bytes, mut bits, mut held) = (Vec::with_capacity(32), 0u32, 0);
        for byte in text.bytes() {
            let digit = DIGITS.iter().position(|digit| *digit == byte).ok_or(NotAnAuthority)?;
            bits = bits << 6 | u32::try_from(digit).map_err(|_| NotAnAuthority)?;
            held += 6;
            if held >= 8 {
                held -= 8;
                bytes.push(u8::try_from(bits >> held & 0xff).map_err(|_| NotAnAuthority)?);
            }
        }
        let hash = AuthorityHash(bytes.try_into().map_err(|_| NotAnAuthority)?);
        // Two bits are left over: only one text stands for a hash.
        if hash.to_string() == text { Ok(hash) } else { Err(NotAnAuthority) }
    }
}

/// Trusts servers whose chain holds the authority with that key, and has it sign for them. The chain is compared before anything
/// is sent over the connection.
#[derive(Debug)]
pub(crate) struct PinnedAuthority {
    hash: AuthorityHash,
    provider: Arc<CryptoProvider>,
}

impl PinnedAuthority {
    pub(crate) fn new(hash: AuthorityHash, provider: Arc<CryptoProvider>) -> PinnedAuthority {
        PinnedAuthority { hash, provider }
    }
}

impl ServerCertVerifier for PinnedAuthority {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let is_it = |one: &&CertificateDer<'_>| AuthorityHash::of(one) == Some(self.hash);
        let authority = intermediates.iter().find(is_it).ok_or(CertificateError::UnknownIssuer)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone())
                .build()
                .map_err(|error| Error::Other(OtherError(Arc::new(error))))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_stands_for_a_hash() {
        for byte in [0, 0x5a, 0xff] {
            let hash = AuthorityHash([byte; 32]);
            let text = hash.to_string();
            assert_eq!(text.len(), TEXT_LEN);
            assert_eq!(text.parse(), Ok(hash));
            assert!(text[1..].parse::<AuthorityHash>().is_err());
        }
        assert_eq!(AuthorityHash([0xff; 32]).to_string(), format!("{}8", "_".repeat(42)));
        for wrong in [format!("{}9", "_".repeat(42)), "=".repeat(43), "é".repeat(43)] {
            assert!(wrong.parse::<AuthorityHash>().is_err(), "{wrong}");
        }
    }
}
