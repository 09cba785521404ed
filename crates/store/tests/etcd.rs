//! etcd, the real one: the suite that every store passes, and what only such a store can suffer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use leasehold_store::conformance::servers::Etcd;
use leasehold_store::conformance::{Harm, Harness, Mishap, Step};
use leasehold_store::etcd::EtcdJournal;
use leasehold_store::{EtcdLocation, Journal, Location};
use tokio::runtime::Runtime;

/// One server for all tests of this file; it ends with the process.
fn server() -> &'static Etcd {
    static SERVER: OnceLock<Etcd> = OnceLock::new();
    SERVER.get_or_init(Etcd::start)
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime can be made"))
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    runtime().block_on(future)
}

fn location(url: &str) -> EtcdLocation {
    match Location::parse(url).expect("it is an address") {
        Location::Etcd(location) => location,
        other => panic!("{other} is no etcd"),
    }
}

async fn open(url: &str) -> Arc<EtcdJournal> {
    Arc::new(EtcdJournal::open(&location(url), 0).await.expect("it can be opened"))
}

/// Each has a prefix of its own.
struct Keyspace {
    url: String,
    /// Only to be full: that concerns all who use it.
    own: Option<Etcd>,
    journal: Mutex<Weak<EtcdJournal>>,
}

impl Keyspace {
    fn new() -> Keyspace {
        Keyspace { url: url(server()), own: None, journal: Mutex::default() }
    }

    fn on_its_own() -> Keyspace {
        let own = Etcd::start();
        Keyspace { url: url(&own), own: Some(own), journal: Mutex::default() }
    }

    fn journal(&self) -> Arc<EtcdJournal> {
        let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        journal.upgrade().expect("the journal is open")
    }
}

fn url(server: &Etcd) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let prefix = COUNT.fetch_add(1, Ordering::Relaxed);
    server.url(&format!("prefix=test/{prefix}&timeout_ms=20000&compact=off"))
}

impl Harness for Keyspace {
    fn open(&self) -> Step<'_, Arc<dyn Journal>> {
        Box::pin(async {
            let journal = open(&self.url).await;
            *self.journal.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&journal);
            journal as Arc<dyn Journal>
        })
    }

    fn lose_answer<'a>(&'a self, _: &'a Arc<dyn Journal>, mishap: Mishap) -> Step<'a, ()> {
        Box::pin(async move { self.journal().mishap(mishap) })
    }

    fn set_full<'a>(&'a self, _: &'a Arc<dyn Journal>, full: bool) -> Step<'a, ()> {
        assert!(self.own.is_some(), "others use this etcd too");
        Box::pin(async move { self.journal().set_full(full).await })
    }

    fn harm(&self, what: Harm) -> Step<'_, ()> {
        Box::pin(async move { open(&self.url).await.harm(what).await })
    }
}

mod suite {
    use super::*;

    leasehold_store::conformance_tests!(Keyspace::new(), block_on, Keyspace::on_its_own());
}
