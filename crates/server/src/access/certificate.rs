//! The certificate that a client has shown, for as long as its connection lasts: who it is, and whether it is still good.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use leasehold_access::{
    CertificateMapping, Certified, Rights, Snapshot, UnixSeconds, certificate::certified,
};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

use crate::net::tls::{Tls, serial_of, validity};

/// The client's identity by its certificate.
#[derive(Debug)]
pub(crate) struct PeerCertificate {
    chain: Vec<CertificateDer<'static>>,
    serial: String,
    not_after: UnixSeconds,
    who: Result<Certified, &'static str>,
    tls: Arc<Tls>,
    /// When it was last judged: see [`PeerCertificate::is_trusted`].
    judged: AtomicU64,
    /// Its rights, and the generation of the snapshot that they are from.
    rights: ArcSwapOption<(u64, Arc<Rights>)>,
    ends: Arc<Ends>,
}

/// When the certificates of all connections end.
#[derive(Debug, Default)]
pub(super) struct Ends(Mutex<BTreeMap<UnixSeconds, usize>>);

impl PeerCertificate {
    /// Reads what a client has shown; `None` if it has shown nothing.
    pub(super) fn new(
        chain: Vec<CertificateDer<'static>>,
        mappings: &[CertificateMapping],
        tls: Arc<Tls>,
        ends: Arc<Ends>,
    ) -> Option<PeerCertificate> {
        let own = chain.first()?;
        let unreadable = (String::new(), 0, Err("it cannot be read"));
        let (serial, not_after, who) = match webpki::EndEntityCert::try_from(own) {
            Err(_) => unreadable,
            Ok(read) => {
                let who = certified(mappings, read.valid_uri_names(), read.valid_dns_names());
                let not_after = validity(own).map_or(0, |validity| validity.not_after);
                (serial_of(read.serial()), not_after, who.map_err(|why| why.as_str()))
            }
        };
        ends.add(not_after);
        let (judged, rights) = (AtomicU64::new(0), ArcSwapOption::empty());
        Some(PeerCertificate { chain, serial, not_after, who, tls, judged, rights, ends })
    }

    pub(crate) fn not_after(&self) -> UnixSeconds {
        self.not_after
    }

    /// The principal and the roles that it stands for, or the reason why it stands for none.
    pub(crate) fn who(&self) -> Result<&Certified, &'static str> {
        self.who.as_ref().map_err(|why| *why)
    }

    /// Whether it is good now, whoever it stands for.
    pub(super) fn check(&self, snapshot: &Snapshot, now: UnixSeconds) -> Result<(), &'static str> {
        if now >= self.not_after {
            Err("the certificate has expired")
        } else if snapshot.is_denied(&self.serial) {
            Err("the certificate is denied")
        } else if !self.is_trusted() {
            Err("the certificate is revoked, or its authority is not trusted any more")
        } else {
            Ok(())
        }
    }

    /// Whether its chain is good by the authorities and revocations of now: judged once for each version of them. A session
    /// that is resumed was judged for another connection.
    fn is_trusted(&self) -> bool {
        const GOOD: u64 = 1;
        const BAD: u64 = 2;
        // The version and the judgement in one number, so that they always go together.
        let version = (self.tls.trust() + 1) << 2;
        let judged = self.judged.load(Relaxed);
        if judged & !(GOOD | BAD) == version {
            return judged & GOOD != 0;
        }
        let is_good = self.tls.is_good(&self.chain);
        self.judged.store(version | if is_good { GOOD } else { BAD }, Relaxed);
        is_good
    }

    pub(super) fn rights(&self, snapshot: &Snapshot, who: &Certified) -> Arc<Rights> {
        match &*self.rights.load() {
            Some(known) if known.0 == snapshot.generation() => known.1.clone(),
            Some(_) | None => {
                let rights = Arc::new(snapshot.rights_of_certified(who));
                self.rights.store(Some(Arc::new((snapshot.generation(), rights.clone()))));
                rights
            }
        }
    }
}

impl Drop for PeerCertificate {
    fn drop(&mut self) {
        self.ends.remove(self.not_after);
    }
}

impl Ends {
    /// Whether any certificate has come to its end between two moments.
    pub(super) fn is_any_over(&self, before: UnixSeconds, after: UnixSeconds) -> bool {
        self.0
            .lock()
            .range(before + 1..=after.max(before + 1))
            .next()
            .is_some_and(|(end, _)| *end <= after)
    }

    fn add(&self, end: UnixSeconds) {
        *self.0.lock().entry(end).or_default() += 1;
    }

    fn remove(&self, end: UnixSeconds) {
        let mut ends = self.0.lock();
        if let Some(count) = ends.get_mut(&end) {
            *count -= 1;
            if *count == 0 {
                ends.remove(&end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_known_as_long_as_a_connection_has_them() {
        let ends = Ends::default();
        ends.add(10);
        ends.add(10);
        assert!(!ends.is_any_over(5, 9) && ends.is_any_over(9, 10) && !ends.is_any_over(10, 20));
        ends.remove(10);
        assert!(ends.is_any_over(0, 100));
        ends.remove(10);
        assert!(!ends.is_any_over(0, 100) && !ends.is_any_over(7, 7) && !ends.is_any_over(7, 3));
    }
}
