//! Authorities, and what they sign.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SanType, SerialNumber, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub(crate) struct Signed {
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) serial: Vec<u8>,
    pub(crate) pem: String,
    key: KeyPair,
}

/// What a certificate is for, and from when until when.
pub(crate) struct Wanted {
    pub(crate) names: Vec<SanType>,
    pub(crate) usages: Vec<ExtendedKeyUsagePurpose>,
    pub(crate) expires_in: Option<Duration>,
    pub(crate) is_expired: bool,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    /// For `localhost` and 127.0.0.1.
    pub(crate) fn server(&self) -> Signed {
        self.sign(Wanted::for_server())
    }

    pub(crate) fn sign(&self, wanted: Wanted) -> Signed {
        let mut params = CertificateParams::default();
        params.subject_alt_names = wanted.names;
        params.extended_key_usages = wanted.usages;
        params.distinguished_name.push(DnType::CommonName, "leasehold://principal/by-its-name");
        params.use_authority_key_identifier_extension = true;
        let serial = rustls_random();
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.not_before = date_time_ymd(2020, 1, 1);
        if wanted.is_expired {
            params.not_after = date_time_ymd(2021, 1, 1);
        }
        if let Some(after) = wanted.expires_in {
            let since_1970 = std::time::UNIX_EPOCH.elapsed().unwrap();
            params.not_after = date_time_ymd(1970, 1, 1) + since_1970 + after;
        }
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.0).unwrap();
        Signed { certificate: signed.der().clone(), serial: serial.into(), pem: signed.pem(), key }
    }

    /// The list of those that are revoked.
    pub(crate) fn revokes(&self, all: &[&Signed]) -> String {
        let revoked = all.iter().map(|signed| RevokedCertParams {
            serial_number: SerialNumber::from_slice(&signed.serial),
            revocation_time: date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2021, 1, 1),
            next_update: date_time_ymd(2200, 1, 1),
            crl_number: SerialNumber::from_slice(&[1]),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

/// A serial number that no other certificate of the test has.
fn rustls_random() -> [u8; 8] {
    let mut serial = [0; 8];
    rustls::crypto::ring::default_provider().secure_random.fill(&mut serial).unwrap();
    serial[0] &= 0x7f;
    serial
}

impl Wanted {
    /// For a server as `localhost` and 127.0.0.1.
    pub(crate) fn for_server() -> Wanted {
        Wanted {
            names: vec![dns("localhost"), SanType::IpAddress([127, 0, 0, 1].into())],
            usages: vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            ..Wanted::for_client(&[])
        }
    }

    /// For a client with these URIs.
    pub(crate) fn for_client(uris: &[&str]) -> Wanted {
        Wanted {
            names: uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect(),
            usages: vec![ExtendedKeyUsagePurpose::ClientAuth],
            expires_in: None,
            is_expired: false,
        }
    }
}

pub(crate) fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

impl Signed {
    pub(crate) fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
    }
}
