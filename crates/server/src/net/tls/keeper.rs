//! Keeps TLS up to date: looks at its files every second, and swaps what is in force only for something that fits together.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use leasehold_access::UnixSeconds;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{ClientConfig, ServerConfig};
use tokio::sync::{Notify, watch};

use super::files::TlsError;
use super::material::{ClientAuth, Material, TlsConfig};
use super::slots::Slots;
use crate::stamp::Stamp;
use crate::telemetry::metrics::Metrics;

const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The interval at which the log says that a certificate is about to expire.
const WARN_EVERY_SECONDS: u64 = 24 * 60 * 60;

/// TLS as it is done now.
#[derive(Debug)]
pub(crate) struct Tls {
    config: TlsConfig,
    /// The authorities that sign for the servers of a cluster.
    cluster_ca: Option<PathBuf>,
    current: ArcSwap<Material>,
    /// Rises when certificates of clients are judged anew.
    trust: AtomicU64,
    /// Rises with all that is read.
    version: AtomicU64,
    slots: Arc<Slots>,
    is_asked: Notify,
    /// The stamps of the files before they were read first: a change since then is one.
    first: Stamps,
}

/// The judgement of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) is_client: bool,
    /// Whether it is one of a server of this cluster.
    pub(crate) is_server: bool,
}

/// The stamps of the files.
type Stamps = Vec<Option<Stamp>>;

impl Tls {
    /// Reads the files, which have to be right.
    pub(crate) fn new(config: TlsConfig, cluster_ca: Option<PathBuf>) -> Result<Tls, TlsError> {
        let first = stamps(&config, cluster_ca.as_ref());
        let material = Material::read(&config, cluster_ca.as_deref(), now(), None)?;
        let (slots, is_asked) = (Slots::new(), Notify::new());
        let (trust, version) = (AtomicU64::new(0), AtomicU64::new(0));
        let current = ArcSwap::from_pointee(material);
        Ok(Tls { config, cluster_ca, current, trust, version, slots, is_asked, first })
    }

    pub(super) fn server(&self) -> Arc<ServerConfig> {
        self.current.load().server.clone()
    }

    pub(super) fn slots(&self) -> &Arc<Slots> {
        &self.slots
    }

    /// Whether the server's certificate is for this name, which is in small letters.
    pub(crate) fn is_for(&self, name: &str) -> bool {
        let parent = name.split_once('.').map(|(_, parent)| parent);
        self.current.load().names.iter().any(|own| match own.strip_prefix("*.") {
            Some(all_below) => parent == Some(all_below),
            None => own == name,
        })
    }

    /// When the server's certificate ends.
    pub(crate) fn not_after(&self) -> UnixSeconds {
        self.current.load().validity.not_after
    }

    /// Whether clients are known by certificates.
    pub(crate) fn asks_clients(&self) -> bool {
        self.config.client_auth != ClientAuth::Off
    }

    /// Whether the servers of the cluster know each other by their certificates.
    pub(crate) fn knows_servers(&self) -> bool {
        self.cluster_ca.is_some()
    }

    /// TLS for connections to other servers, as of now: it trusts their authorities alone, and shows the server's own
    /// certificate.
    pub(crate) fn client(&self, is_http2: bool) -> Option<Arc<ClientConfig>> {
        self.current.load().servers.as_ref().map(|servers| servers.client(is_http2))
    }

    /// Rises with all that is read: connections of before show what is old.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// Rises when certificates of clients may be judged otherwise than before.
    pub(crate) fn trust(&self) -> u64 {
        self.trust.load(Relaxed)
    }

    /// The judgement of a certificate that was shown, as of now.
    pub(crate) fn judge(&self, shown: &[CertificateDer<'_>]) -> Judged {
        let current = self.current.load();
        let is_client = match (&current.verifier, shown) {
            (Some(verifier), [own, between @ ..]) => {
                verifier.verify_client_cert(own, between, UnixTime::now()).is_ok()
            }
            (_, []) | (None, _) => false,
        };
        let is_server = current.servers.as_ref().is_some_and(|servers| servers.is_one(shown));
        Judged { is_client, is_server }
    }

    /// Reads the files anew, soon: somebody has sent a SIGHUP.
    pub(crate) fn reload(&self) {
        self.is_asked.notify_one();
    }

    /// Keeps up with the files until the server stops; `changed` is told when certificates of clients are judged anew.
    pub(crate) async fn keep(
        self: Arc<Tls>,
        metrics: Arc<Metrics>,
        changed: impl Fn() + Send,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut seen = self.first.clone();
        let mut warned = 0;
        loop {
            warned = self.warn(warned);
            let is_asked = tokio::select! {
                _ = stop.wait_for(|stopped| *stopped) => return,
                () = self.is_asked.notified() => true,
                () = tokio::time::sleep(LOOK_EVERY) => false,
            };
            let looked = stamps(&self.config, self.cluster_ca.as_ref());
            if !is_asked && looked == seen {
                continue;
            }
            seen = looked;
            match self.read() {
                Ok(is_trust_new) => {
                    tracing::info!(cert = %self.config.cert.display(), "TLS files read");
                    if is_trust_new {
                        changed();
                    }
                }
                Err(error) => {
                    metrics.reload_failed(error.setting());
                    let error = error.to_string();
                    tracing::error!(error, "TLS files refused: the last good ones stay in force");
                }
            }
        }
    }

    /// Puts what is in the files in force, if it fits; whether clients are judged anew.
    fn read(&self) -> Result<bool, TlsError> {
        let before = self.current.load_full();
        let cluster_ca = self.cluster_ca.as_deref();
        let material = Material::read(&self.config, cluster_ca, now(), Some(&before))?;
        let is_trust_new = !material.trusts_as(&before);
        self.current.store(Arc::new(material));
        self.version.fetch_add(1, Relaxed);
        if is_trust_new {
            self.trust.fetch_add(1, Relaxed);
        }
        Ok(is_trust_new)
    }

    /// Says once a day that the certificate is in the last third of its time.
    fn warn(&self, warned: UnixSeconds) -> UnixSeconds {
        let (now, validity) = (now(), self.current.load().validity);
        let lifetime = validity.not_after.saturating_sub(validity.not_before);
        let left = validity.not_after.saturating_sub(now);
        if left > lifetime / 3 || now < warned.saturating_add(WARN_EVERY_SECONDS) {
            return warned;
        }
        let cert = self.config.cert.display();
        let hours = left / 3600;
        tracing::warn!(%cert, hours, "the server's certificate ends soon: put a new one in its place");
        now
    }
}

fn stamps(config: &TlsConfig, cluster_ca: Option<&PathBuf>) -> Stamps {
    config.files().chain(cluster_ca.map(|path| &**path)).map(Stamp::at).collect()
}

fn now() -> UnixSeconds {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
