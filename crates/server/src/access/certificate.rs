//! The certificate that a client has shown: who it is, and whether it is still good. It was shown here, for as long as a
//! connection lasts, or to another server, which vouches for it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwapOption;
use leasehold_access::{
    CertificateMapping, Certified, Rights, Snapshot, UnixSeconds, certificate::certified,
};
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

use crate::net::tls::{Judged, Tls, serial_of, validity};

/// The client's identity by its certificate.
#[derive(Debug)]
pub(crate) struct Identity {
    serial: String,
    not_after: UnixSeconds,
    who: Result<Certified, &'static str>,
    /// Its rights, and the generation of the snapshot that they are from.
    rights: ArcSwapOption<(u64, Arc<Rights>)>,
    ends: Arc<Ends>,
}

/// A certificate that was shown here.
#[derive(Debug)]
pub(crate) struct PeerCertificate {
    identity: Arc<Identity>,
    chain: Vec<CertificateDer<'static>>,
    tls: Arc<Tls>,
    /// The last judgement: see [`PeerCertificate::judge`].
    judged: AtomicU64,
}

/// When the certificates of those who are connected end.
#[derive(Debug, Default)]
pub(super) struct Ends(Mutex<BTreeMap<UnixSeconds, usize>>);

impl Identity {
    pub(super) fn new(
        serial: String,
        not_after: UnixSeconds,
        who: Result<Certified, &'static str>,
        ends: Arc<Ends>,
    ) -> Identity {
        ends.add(not_after);
        Identity { serial, not_after, who, rights: ArcSwapOption::empty(), ends }
    }

    pub(crate) fn serial(&self) -> &str {
        &self.serial
    }

    pub(crate) fn not_after(&self) -> UnixSeconds {
        self.not_after
    }

    /// The principal and the roles that it stands for, or the reason why it stands for none.
    pub(crate) fn who(&self) -> Result<&Certified, &'static str> {
        self.who.as_ref().map_err(|why| *why)
    }

    /// Whether it is good now, whoever it stands for, as far as one can tell who has not seen it.
    pub(super) fn check(&self, snapshot: &Snapshot, now: UnixSeconds) -> Result<(), &'static str> {
        if now >= self.not_after {
            Err("the certificate has expired")
        } else if snapshot.is_denied(&self.serial) {
            Err("the certificate is denied")
        } else {
            Ok(())
        }
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

impl Drop for Identity {
    fn drop(&mut self) {
        self.ends.remove(self.not_after);
    }
}

impl PeerCertificate {
    /// Reads what a client or another server has shown; `None` if it has shown nothing, or nothing that it was asked for.
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
        let identity = Arc::new(Identity::new(serial, not_after, who, ends));
        let shown = PeerCertificate { identity, chain, tls, judged: AtomicU64::new(0) };
        // A port for servers asks everybody; where clients are none by certificate, theirs count for nothing.
        let is_asked_for = shown.tls.asks_clients() || shown.judge().is_server;
        is_asked_for.then_some(shown)
    }

    pub(crate) fn identity(&self) -> &Arc<Identity> {
        &self.identity
    }

    /// Whether it is good now, for a client or for a server.
    pub(super) fn check(&self, snapshot: &Snapshot, now: UnixSeconds) -> Result<(), &'static str> {
        self.identity.check(snapshot, now)?;
        let judged = self.judge();
        if judged.is_client || judged.is_server {
            Ok(())
        } else {
            Err("the certificate is revoked, or its authority is not trusted any more")
        }
    }

    /// The principal and the roles that it stands for, if it is one of a client: an authority of servers says nothing of clients.
    pub(super) fn who(&self) -> Result<&Certified, &'static str> {
        let who = self.identity.who()?;
        if self.judge().is_client { Ok(who) } else { Err("the certificate is none of a client") }
    }

    /// Whether it is that of a server of this cluster.
    pub(super) fn is_of_server(&self) -> bool {
        self.judge().is_server
    }

    /// The judgement of its chain by the authorities and revocations of now: made once for each version of them. A session
    /// that is resumed was judged for another connection.
    fn judge(&self) -> Judged {
        const CLIENT: u64 = 1;
        const SERVER: u64 = 2;
        // The version and the judgement in one number, so that they always go together.
        let version = (self.tls.trust() + 1) << 2;
        let mut judged = self.judged.load(Relaxed);
        if judged & !(CLIENT | SERVER) != version {
            let Judged { is_client, is_server } = self.tls.judge(&self.chain);
            let flag = |is_so: bool, flag: u64| if is_so { flag } else { 0 };
            judged = version | flag(is_client, CLIENT) | flag(is_server, SERVER);
            self.judged.store(judged, Relaxed);
        }
        Judged { is_client: judged & CLIENT != 0, is_server: judged & SERVER != 0 }
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
