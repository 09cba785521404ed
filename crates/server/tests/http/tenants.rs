//! Two tenants on one server: what one of them does and holds, the other neither gets nor sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use leasehold_access::Token;
use leasehold_core::{Epoch, Timestamp};
use leasehold_engine::{Clock, SystemClock};
use leasehold_server::{AuthConfig, Config, Ground, Server};
use leasehold_store::{
    AccessChange, AccessStore, Batch, Campaign, Candidate, Changed, Chunk, Documents, Error,
    Heartbeat, Journal, JournalCaps, Leader, MemoryJournal, Page, Pending, Position, Pruned, Seq,
    ready,
};
use serde_json::json;
use tokio::net::TcpListener;

use crate::access::{ADMIN, BILLING, Doors, OTHER, token};
use crate::polling::eventually;
use crate::world::{World, config, plant};

/// Attack 30.
#[tokio::test]
async fn reclaim_window_is_not_for_another_principal_of_the_same_name() {
    let doors = Doors::start().await;
    let path = "/v1/locks/job/acquire?namespace=billing";
    let brief = r#"{"owner_id":"worker-1","ttl_ms":1000,"reclaim_ms":30000}"#;
    doors.ask(BILLING, "POST", path, Some(brief)).await.ok();
    let held = "/v1/locks/job?namespace=billing";
    let is_over =
        async || doors.ask(ADMIN, "GET", held, None).await.ok()["state"] == "reclaim_window";
    eventually("the lease has lapsed", is_over).await;
    doors.ask(OTHER, "POST", path, Some(brief)).await.problem("reclaim_window");
    doors.ask(BILLING, "POST", path, Some(brief)).await.ok();
}

/// A token of a principal that sees what is below `b/` alone, and whatever it is told to acquire.
async fn bee(doors: &Doors) -> String {
    let role =
        r#"{"rules":[{"verbs":["read","watch","acquire"],"namespace":"default","names":["b/"]}]}"#;
    doors.ask(ADMIN, "PUT", "/v1/auth/roles/bees", Some(role)).await.ok();
    let asked = r#"{"principal":"bee","roles":["bees"]}"#;
    let made = doors.ask(ADMIN, "POST", "/v1/auth/tokens", Some(asked)).await.ok();
    made["token"].as_str().unwrap().to_owned()
}

/// Attack 33.
#[tokio::test]
async fn events_of_a_set_tell_of_its_visible_part_alone() {
    let doors = Doors::start().await;
    let bee = bee(&doors).await;
    let start = doors.ask(ADMIN, "GET", "/v1/history", None).await.ok()["events_after"].clone();
    let events = format!("/v1/events?after={start}");
    let set = r#"{"owner_id":"topsecret","ttl_ms":30000,"locks":[{"lock":"a/x"},{"lock":"b/y"}]}"#;
    doors.ask(ADMIN, "POST", "/v1/sets/acquire", Some(set)).await.ok();
    doors
        .ask(ADMIN, "POST", "/v1/locks/a%2Fz/acquire", Some(r#"{"owner_id":"w","ttl_ms":30000}"#))
        .await
        .ok();
    let all = doors.ask(ADMIN, "GET", &events, None).await;
    assert!(all.text.contains("a/x") && all.text.contains("a/z"), "{all:?}");
    let seen = doors.by(&bee, "GET", &events, None).await;
    assert_eq!(seen.status, 200, "{seen:?}");
    assert!(seen.text.contains("b/y"), "{seen:?}");
    assert!(!seen.text.contains("a/x") && !seen.text.contains("a/z"), "{seen:?}");
}

/// Attack 36.
#[tokio::test]
async fn circle_through_locks_of_others_does_not_name_them() {
    let doors = Doors::start().await;
    let bee = bee(&doors).await;
    let hold = |owner: &str| format!(r#"{{"owner_id":"{owner}","ttl_ms":30000}}"#);
    let wait = |owner: &str| format!(r#"{{"owner_id":"{owner}","ttl_ms":30000,"wait_ms":20000}}"#);
    // The bee waits for a chain of two others, who wait for it.
    let (own, other) = ("/v1/locks/b%2F1/acquire", "/v1/locks/b%2F2/acquire");
    let hidden = "/v1/locks/a%2Fsecret/acquire";
    doors.by(&bee, "POST", own, Some(&hold("bee"))).await.ok();
    doors.ask(ADMIN, "POST", other, Some(&hold("alice-one"))).await.ok();
    doors.ask(ADMIN, "POST", hidden, Some(&hold("alice-two"))).await.ok();
    let (first, second, closing) = (wait("alice-one"), wait("alice-two"), wait("bee"));
    let chain = async {
        tokio::join!(
            doors.ask(ADMIN, "POST", hidden, Some(&first)),
            doors.ask(ADMIN, "POST", own, Some(&second)),
        )
    };
    let closes = async {
        let wait = async || doors.ask(ADMIN, "GET", "/v1/cluster", None).await.ok()["waiters"] == 2;
        eventually("both wait", wait).await;
        let refused = doors.by(&bee, "POST", other, Some(&closing)).await;
        let problem = refused.problem("deadlock");
        let steps = problem["cycle"].as_array().unwrap();
        assert_eq!(steps.len(), 3, "{problem}");
        assert!(steps.iter().any(|step| step["hidden"] == true), "{problem}");
        assert!(!refused.text.contains("a/secret"), "{problem}");
    };
    tokio::select! {
        () = closes => {}
        _ = chain => panic!("nobody gives way"),
    }
}

/// Attack 40.
#[tokio::test]
async fn register_takes_no_token_that_nobody_has_and_none_of_a_stranger() {
    let doors = Doors::start().await;
    let held = doors.acquire(BILLING, "a", "billing", "w").await.ok();
    let fence = held["fencing_token"].as_u64().unwrap();
    let path = "/v1/fences/disk/accept?namespace=billing";
    let accept = |token: u64| json!({ "fencing_token": token }).to_string();
    doors.ask(BILLING, "POST", path, Some(&accept(fence + 1000))).await.problem("invalid_request");
    doors.ask(BILLING, "POST", path, Some(&accept(fence))).await.ok();
    let elsewhere = "/v1/fences/disk/accept?namespace=default";
    let refused = doors.ask(BILLING, "POST", elsewhere, Some(&accept(fence))).await;
    refused.problem("permission_denied");
    let remove = "/v1/fences/disk?namespace=billing";
    let reason = Some(r#"{"reason":"test"}"#);
    doors.ask(BILLING, "DELETE", remove, reason).await.problem("permission_denied");
    let left = doors.ask(BILLING, "GET", remove, None).await.ok();
    assert_eq!(left["high_water"], fence, "{left}");
}

/// A store of which the access documents can be cut off.
#[derive(Clone, Debug)]
struct Silent {
    journal: MemoryJournal,
    is_silent: Arc<AtomicBool>,
}

fn inner(silent: &Silent) -> Arc<dyn AccessStore> {
    let journal: Arc<dyn Journal> = Arc::new(silent.journal.clone());
    journal.access().unwrap()
}

impl Silent {
    fn or_silence<T: Send + 'static>(&self, answer: Pending<T>) -> Pending<T> {
        match self.is_silent.load(Ordering::Relaxed) {
            false => answer,
            true => ready(Err(Error::Unavailable { what: "it is silent".into(), cause: None })),
        }
    }
}

impl AccessStore for Silent {
    fn version(&self) -> Pending<u64> {
        self.or_silence(inner(self).version())
    }

    fn documents(&self) -> Pending<Documents> {
        self.or_silence(inner(self).documents())
    }

    fn change(&self, expected: u64, change: AccessChange) -> Pending<Changed> {
        self.or_silence(inner(self).change(expected, change))
    }
}

impl Journal for Silent {
    fn caps(&self) -> JournalCaps {
        self.journal.caps()
    }

    fn leader(&self) -> Pending<Option<Leader>> {
        self.journal.leader()
    }

    fn campaign(&self, candidate: Candidate, overdue: Option<Heartbeat>) -> Pending<Campaign> {
        self.journal.campaign(candidate, overdue)
    }

    fn confirm(&self, epoch: Epoch) -> Pending<()> {
        self.journal.confirm(epoch)
    }

    fn resign(&self, epoch: Epoch) -> Pending<()> {
        self.journal.resign(epoch)
    }

    fn jump_epoch(&self, epoch: Epoch, to: Epoch) -> Pending<()> {
        self.journal.jump_epoch(epoch, to)
    }

    fn append(&self, batch: Batch) -> Pending<()> {
        self.journal.append(batch)
    }

    fn read_back(&self, epoch: Epoch, seq: Seq) -> Pending<Option<Batch>> {
        self.journal.read_back(epoch, seq)
    }

    fn put_chunk(&self, chunk: Chunk) -> Pending<()> {
        self.journal.put_chunk(chunk)
    }

    fn commit_snapshot(&self, epoch: Epoch, as_of: Seq, chunks: u32) -> Pending<()> {
        self.journal.commit_snapshot(epoch, as_of, chunks)
    }

    fn prune(&self, epoch: Epoch) -> Pending<Pruned> {
        self.journal.prune(epoch)
    }

    fn load(&self, epoch: Epoch, from: Position) -> Pending<Page> {
        self.journal.load(epoch, from)
    }

    fn access(self: Arc<Self>) -> Option<Arc<dyn AccessStore>> {
        Some(self)
    }
}

/// The system's clock, and what the test moves it by.
#[derive(Debug)]
struct Moved {
    clock: SystemClock,
    by_ms: AtomicU64,
}

impl Clock for Moved {
    fn now(&self) -> Timestamp {
        let moved = self.clock.now().as_millis() + self.by_ms.load(Ordering::Relaxed);
        Timestamp::from_millis(moved)
    }
}

/// Attack 9.
#[tokio::test]
async fn token_that_may_be_a_new_one_is_not_called_wrong_while_the_store_is_silent() {
    plant();
    let folder = tempfile::tempdir().unwrap();
    let bootstrap = folder.path().join("token");
    std::fs::write(&bootstrap, token(ADMIN).reveal()).unwrap();
    let bootstrap_token_file = Some(bootstrap);
    let auth = AuthConfig { enabled: true, bootstrap_token_file, ..AuthConfig::default() };
    let silent = Silent { journal: MemoryJournal::new(), is_silent: Arc::default() };
    let clock = Arc::new(Moved { clock: SystemClock::new(), by_ms: AtomicU64::new(0) });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let journals = vec![Arc::new(silent.clone()) as Arc<_>];
    let ground = Ground { listener, address, journals, clock: clock.clone() };
    let server = Server::start_on(Config { auth, ..config() }, ground).await.unwrap();
    let world = World { server, address };
    let ask = async |token: &Token| {
        let bearer = format!("Bearer {}", token.reveal());
        world.send("GET", "/v1/locks", &[("authorization", &bearer)], None).await
    };
    let (known, unknown) = (token(ADMIN), token(BILLING));
    assert_eq!(ask(&known).await.status, 200);
    ask(&unknown).await.problem("unauthenticated");
    silent.is_silent.store(true, Ordering::Relaxed);
    clock
        .by_ms
        .store(u64::try_from(Duration::from_secs(6).as_millis()).unwrap(), Ordering::Relaxed);
    let is_told = async || ask(&unknown).await.status == 503;
    eventually("it may be a new one", is_told).await;
    ask(&unknown).await.problem("store_unavailable");
    assert_eq!(ask(&known).await.status, 200);
    silent.is_silent.store(false, Ordering::Relaxed);
    let is_wrong = async || ask(&unknown).await.status == 401;
    eventually("it is known to be wrong", is_wrong).await;
}
