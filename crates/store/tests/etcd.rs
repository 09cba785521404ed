//! etcd, the real one: the suite that every store passes, and what only such a store can suffer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};

mod common;

use common::certificates::{Certificates, text};
use common::shared;
use leasehold_store::conformance::servers::{Etcd, EtcdCluster, Proxy};
use leasehold_store::conformance::{Corruption, Harness, Step};
use leasehold_store::etcd::EtcdJournal;
use leasehold_store::{EtcdLocation, Journal, Location};
use parking_lot::Mutex;
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
    let Ok(Location::Etcd(location)) = Location::parse(url) else { panic!("{url} is no etcd") };
    location
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
        let journal = self.journal.lock();
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
            *self.journal.lock() = Arc::downgrade(&journal);
            journal as Arc<dyn Journal>
        })
    }

    fn set_full<'a>(&'a self, _: &'a Arc<dyn Journal>, full: bool) -> Step<'a, ()> {
        assert!(self.own.is_some(), "others use this etcd too");
        Box::pin(async move { self.journal().set_full(full).await })
    }

    fn corrupt(&self, what: Corruption) -> Step<'_, ()> {
        Box::pin(async move { open(&self.url).await.corrupt(what).await })
    }
}

mod suite {
    use super::*;

    leasehold_store::conformance_tests!(Keyspace::new(), block_on, Keyspace::on_its_own());
}

async fn open_on(port: u16, prefix: &str, timeout_ms: u32) -> shared::Store {
    open(&format!("etcd://127.0.0.1:{port}?prefix={prefix}&timeout_ms={timeout_ms}")).await
}

#[test]
fn access_documents_are_of_all_groups() {
    block_on(async {
        let url = server().url("prefix=all-groups");
        let one: shared::Store = open(&url).await;
        let other = EtcdJournal::open(&location(&url), 1).await;
        let other: shared::Store = Arc::new(other.expect("it can be opened"));
        shared::documents_are_of_all_groups(&one, &other).await;
    });
}

#[test]
fn answers_lost_on_the_way_are_settled() {
    block_on(async {
        let proxy = Proxy::start(server().port());
        let store = open_on(proxy.port(), "answers-lost", 500).await;
        let other = open_on(server().port(), "answers-lost", 20_000).await;
        shared::answers_are_lost(&store, &other, &proxy).await;
    });
}

#[test]
fn append_that_arrives_late_is_refused() {
    block_on(async {
        let proxy = Proxy::start(server().port());
        let store = open_on(proxy.port(), "late", 1000).await;
        shared::late_append_is_refused(&store, &proxy, || server().is_settled()).await;
    });
}

#[test]
fn read_back_that_arrives_late_is_no_hindrance() {
    block_on(async {
        let proxy = Proxy::start(server().port());
        let store = open_on(proxy.port(), "late-again", 1000).await;
        shared::late_read_back_is_no_hindrance(&store, &proxy, || server().is_settled()).await;
    });
}

#[test]
fn appends_survive_a_server_that_crashes() {
    let mut own = Etcd::start();
    block_on(async {
        let store: shared::Store = open(&own.url("timeout_ms=3000")).await;
        shared::appends_survive(&store, async |mut progress| {
            for _ in 0..2 {
                progress.more(50).await;
                tokio::task::block_in_place(|| {
                    own.kill();
                    own.start_again();
                    own.wait_until_ready();
                });
            }
        })
        .await;
    });
}

#[test]
fn appends_survive_members_that_fail() {
    let mut cluster = EtcdCluster::start(3);
    // While a member is down, another process may take its port, and then be asked by ours.
    let url = cluster.url(&format!("timeout_ms=3000&prefix=survives-{}", std::process::id()));
    block_on(async {
        let store: shared::Store = open(&url).await;
        shared::appends_survive(&store, async |mut progress| {
            for round in 0..3 {
                progress.more(50).await;
                // The leader twice; the one that is asked first, once.
                let leader = tokio::task::block_in_place(|| cluster.leader());
                let at = if round == 2 { Some(0) } else { leader };
                let member = &mut cluster.members()[at.unwrap_or(0)];
                tokio::task::block_in_place(|| member.kill());
                // The others go on without it.
                progress.more(20).await;
                tokio::task::block_in_place(|| {
                    member.start_again();
                    member.wait_until_ready();
                });
            }
        })
        .await;
    });
}

#[test]
fn large_chunk_is_kept_in_parts() {
    use leasehold_store::{Chunk, Loaded, Position, Seq};
    block_on(async {
        let store = open_on(server().port(), "parts", 20_000).await;
        let epoch = shared::lead(&store, "node-1").await;
        store.append(common::batch(epoch, 1)).await.expect("it can be written");
        let chunks: Vec<Chunk> = [60_000, 3, 60_000]
            .into_iter()
            .zip(0..)
            .map(|(len, index)| common::chunk(epoch, 1, index, 0..len))
            .collect();
        assert!(chunks[0].bytes().len() > 2 << 20, "{}", chunks[0].bytes().len());
        for chunk in &chunks {
            store.put_chunk(chunk.clone()).await.expect("it can be written");
        }
        store.commit_snapshot(epoch, Seq(1), 3).await.expect("it can be committed");
        let mut found = Vec::new();
        let mut next = Some(Position::Start);
        while let Some(from) = next {
            let page = store.load(epoch, from).await.expect("the load works");
            found.extend(page.items);
            next = page.next;
        }
        let expected: Vec<Loaded> = chunks.into_iter().map(Loaded::Chunk).collect();
        assert!(found == expected, "{} chunks came back", found.len());
    });
}

#[test]
fn load_goes_on_when_its_revision_was_forgotten() {
    use leasehold_store::{Position, Pruned, Seq};
    block_on(async {
        let own = Etcd::start();
        let store: shared::Store = open(&own.url("compact=on")).await;
        let other: shared::Store = open(&own.url("group=1&compact=on")).await;
        let (epoch, epoch_of_other) =
            (shared::lead(&store, "node-1").await, shared::lead(&other, "node-1").await);
        for seq in 1..=40 {
            store.append(common::batch(epoch, seq)).await.expect("it can be written");
        }
        let page = store.load(epoch, Position::Start).await.expect("the load works");
        let mut count = page.items.len();
        let mut next = page.next;
        assert!(next.is_some(), "there is more than one page");
        // The other group goes on meanwhile, and lets etcd forget.
        for seq in 1..=3 {
            other.append(common::batch(epoch_of_other, seq)).await.expect("it can be written");
            let chunk = common::chunk(epoch_of_other, seq, 0, 0..3);
            other.put_chunk(chunk).await.expect("it can be written");
            let committed = other.commit_snapshot(epoch_of_other, Seq(seq), 1).await;
            committed.expect("it can be committed");
            while other.prune(epoch_of_other).await.expect("it can be pruned") == Pruned::Partial {}
        }
        while let Some(from) = next {
            let page = store.load(epoch, from).await.expect("the load goes on");
            count += page.items.len();
            next = page.next;
        }
        assert_eq!(count, 40);
    });
}

#[test]
fn opening_says_what_is_wrong() {
    block_on(async {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let away = location(&format!("etcd://127.0.0.1:{port}"));
        let said = EtcdJournal::open(&away, 0).await.expect_err("nobody is there").to_string();
        assert!(said.ends_with("cannot be opened: it cannot be reached"), "{said}");
        let url = server().url("user=keeper&password=hush");
        let said = EtcdJournal::open(&location(&url), 0).await.expect_err("there are no users");
        let said = said.to_string();
        assert!(said.contains("leave user and password out"), "{said}");
    });
}

#[test]
fn both_sides_show_their_certificates() {
    let (known, unknown) = (Certificates::new(), Certificates::new());
    let own = Etcd::start_with_tls(&known.authority(), &known.certificate(), &known.key());
    let url = |authority: &Certificates| {
        let (authority, certificate, key) =
            (text(&authority.authority()), text(&known.certificate()), text(&known.key()));
        own.url(&format!("cacert={authority}&cert={certificate}&key={key}&timeout_ms=20000"))
    };
    block_on(async {
        let store: shared::Store = open(&url(&known)).await;
        let epoch = shared::lead(&store, "node-1").await;
        store.append(common::batch(epoch, 1)).await.expect("it can be written");
        assert_eq!(shared::loaded(&store, epoch).await, [1]);
        for refused in [url(&unknown), own.url(&format!("cacert={}", text(&known.authority())))] {
            let opened = EtcdJournal::open(&location(&refused), 0).await;
            opened.expect_err("one of the two does not trust the other");
        }
    });
}

#[test]
fn user_and_password_are_shown_when_asked_for() {
    let own = Etcd::start();
    block_on(async {
        let before: shared::Store = open(&own.url("prefix=before")).await;
        own.ask_for_password("hush");
        let store: shared::Store = open(&own.url("user=root&password=hush")).await;
        let epoch = shared::lead(&store, "node-1").await;
        store.append(common::batch(epoch, 1)).await.expect("it can be written");
        assert_eq!(shared::loaded(&store, epoch).await, [1]);
        let refused = before.leader().await;
        assert!(matches!(refused, Err(leasehold_store::Error::Unavailable { .. })), "{refused:?}");
        let wrong = EtcdJournal::open(&location(&own.url("user=root&password=hash")), 0).await;
        let said = wrong.expect_err("it is wrong").to_string();
        assert!(said.ends_with("user or password are wrong"), "{said}");
    });
}

/// Tokens of etcd are forgotten when it restarts.
#[test]
fn password_is_shown_again_when_the_token_is_no_longer_known() {
    let mut own = Etcd::start();
    block_on(async {
        own.ask_for_password("hush");
        let store: shared::Store = open(&own.url("user=root&password=hush")).await;
        let epoch = shared::lead(&store, "node-1").await;
        tokio::task::block_in_place(|| {
            own.kill();
            own.start_again();
            own.wait_until_ready();
        });
        let mut seq = 1;
        while seq <= 3 {
            if shared::append_for_certain(&store, common::batch(epoch, seq))
                .await
                .expect("it leads")
            {
                seq += 1;
            }
        }
        assert_eq!(shared::loaded(&store, epoch).await, [1, 2, 3]);
    });
}

#[test]
fn version_is_told() {
    let about = block_on(async {
        let store = open(&Keyspace::new().url).await;
        store.about().await.expect("it is there").expect("it is known")
    });
    assert!(about.version.starts_with("etcd 3."), "{about:?}");
}
