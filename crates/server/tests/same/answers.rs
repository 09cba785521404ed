//! Operations and their refusals: the same word, the same details and the same counters over each transport.

use std::collections::BTreeMap;

use serde_json::json;

use crate::transports::{ALL, Acquire, Ask, Proof, Ways};
use crate::world::World;

/// A case, and what is answered.
const CASES: [(&str, &str); 36] = [
    ("acquire a free lock", "done"),
    ("acquire again with the same request id", "done"),
    ("acquire something else with the same request id", "request_id_reused"),
    ("acquire a held lock", "lock_held"),
    ("wait for a held lock in vain", "lock_held"),
    ("wait for oneself", "deadlock"),
    ("acquire with another number of permits", "limit_mismatch"),
    ("acquire with a relative path", "invalid_lock_name"),
    ("acquire without an owner", "invalid_request"),
    ("acquire without a ttl", "invalid_request"),
    ("acquire with too long a ttl", "invalid_request"),
    ("acquire with a ttl and a session", "invalid_request"),
    ("acquire under a session that is not there", "session_not_found"),
    ("acquire with a ticket that is none", "invalid_request"),
    ("acquire with a ticket of no place", "ticket_not_found"),
    ("reclaim without a grace", "no_grace"),
    ("renew", "done"),
    ("renew with another token", "not_holder"),
    ("renew what was released", "lease_lost"),
    ("renew with a lease id that is none", "invalid_request"),
    ("release", "done"),
    ("release again", "done"),
    ("release what another holds", "not_holder"),
    ("unlock bytes that are held", "done"),
    ("unlock a name", "invalid_request"),
    ("test a held lock", "done"),
    ("test for too many permits", "invalid_request"),
    ("check a token", "done"),
    ("check a token of what was released", "done"),
    ("get a held lock", "done"),
    ("accept a token", "done"),
    ("accept a lower token", "stale_fence"),
    ("accept a token that was never issued", "invalid_request"),
    ("keep a session alive", "done"),
    ("keep a session alive that is not there", "session_not_found"),
    ("close a session", "done"),
];

const NOBODY: &str = "0123456789abcdef0123456789abcdef";

impl Ways {
    async fn held(&self, lock: &str, body: serde_json::Value) -> Proof {
        let path = format!("/v1/locks/{lock}/acquire");
        let grant = self.world.post(&path, &body.to_string()).await.ok();
        let lease = grant["lease_id"].as_str().unwrap().to_string();
        Proof { owner: "a", lease, token: grant["fencing_token"].as_u64().unwrap() }
    }

    async fn by_a(&self, lock: &str) -> Proof {
        self.held(lock, json!({ "owner_id": "a", "ttl_ms": 30_000 })).await
    }

    async fn released_by_a(&self, lock: &str) -> Proof {
        let proof = self.by_a(lock).await;
        self.world.release(lock, "a", &proof.lease, proof.token).await.ok();
        proof
    }

    async fn session(&self) -> String {
        let body = r#"{"owner_id":"a","ttl_ms":30000}"#;
        let opened = self.world.post("/v1/sessions", body).await.ok();
        opened["session_id"].as_str().unwrap().to_string()
    }

    /// Makes everything ready for a case, and says what is asked then.
    async fn prepare(&self, case: &str, name: &str) -> Ask {
        let lock = name.to_string();
        let acquire = |owner| Acquire {
            lock: lock.clone(),
            owner,
            ttl_ms: Some(30_000),
            ..Acquire::default()
        };
        let known = |lock: &str| Acquire {
            request_id: Some(format!("of {name}")),
            lock: lock.into(),
            ..acquire("a")
        };
        let of_request =
            json!({ "owner_id": "a", "ttl_ms": 30_000, "request_id": format!("of {name}") });
        match case {
            "acquire a free lock" => Ask::Acquire(acquire("a")),
            "acquire again with the same request id" => {
                self.held(&lock, of_request).await;
                Ask::Acquire(known(&lock))
            }
            "acquire something else with the same request id" => {
                self.held(&lock, of_request).await;
                Ask::Acquire(known(&format!("{lock}-2")))
            }
            "acquire a held lock" => {
                self.by_a(&lock).await;
                Ask::Acquire(acquire("b"))
            }
            "wait for a held lock in vain" => {
                self.by_a(&lock).await;
                Ask::Acquire(Acquire { wait_ms: 40, ..acquire("b") })
            }
            "wait for oneself" => {
                self.by_a(&lock).await;
                Ask::Acquire(Acquire { wait_ms: 1000, ..acquire("a") })
            }
            "acquire with another number of permits" => {
                self.held(&lock, json!({ "owner_id": "a", "ttl_ms": 30_000, "permits": 2 })).await;
                Ask::Acquire(Acquire { permits: Some(3), ..acquire("b") })
            }
            "acquire with a relative path" => {
                Ask::Acquire(Acquire { lock: "path:a/../b".into(), ..acquire("a") })
            }
            "acquire without an owner" => Ask::Acquire(acquire("")),
            "acquire without a ttl" => Ask::Acquire(Acquire { ttl_ms: None, ..acquire("a") }),
            "acquire with too long a ttl" => {
                Ask::Acquire(Acquire { ttl_ms: Some(1 << 50), ..acquire("a") })
            }
            "acquire with a ttl and a session" => {
                Ask::Acquire(Acquire { session: Some(NOBODY.into()), ..acquire("a") })
            }
            "acquire under a session that is not there" => {
                let session = Some(NOBODY.into());
                Ask::Acquire(Acquire { ttl_ms: None, session, ..acquire("a") })
            }
            "acquire with a ticket that is none" => {
                Ask::Acquire(Acquire { ticket: Some("x".into()), ..acquire("a") })
            }
            "acquire with a ticket of no place" => {
                let ticket = Some("999999-0123456789abcdef".into());
                Ask::Acquire(Acquire { ticket, wait_ms: 10, ..acquire("a") })
            }
            "reclaim without a grace" => {
                let session = Some(self.session().await);
                Ask::Acquire(Acquire { reclaim: true, ttl_ms: None, session, ..acquire("a") })
            }
            "renew" => Ask::Renew { proof: self.by_a(&lock).await, lock, ttl_ms: Some(60_000) },
            "renew with another token" => {
                let proof = self.by_a(&lock).await;
                let proof = Proof { token: proof.token + 1, ..proof };
                Ask::Renew { lock, proof, ttl_ms: None }
            }
            "renew what was released" => {
                Ask::Renew { proof: self.released_by_a(&lock).await, lock, ttl_ms: None }
            }
            "renew with a lease id that is none" => {
                let proof = Proof { owner: "a", lease: "x".into(), token: 1 };
                Ask::Renew { lock, proof, ttl_ms: None }
            }
            "release" => Ask::Release { proof: self.by_a(&lock).await, lock },
            "release again" => Ask::Release { proof: self.released_by_a(&lock).await, lock },
            "release what another holds" => {
                let proof = Proof { owner: "b", ..self.by_a(&lock).await };
                Ask::Release { lock, proof }
            }
            "unlock bytes that are held" => {
                let lock = inode(name);
                let session = self.by_a(&lock).await.lease;
                Ask::Unlock { lock, owner: "a", session }
            }
            "unlock a name" => Ask::Unlock { lock, owner: "a", session: NOBODY.into() },
            "test a held lock" => {
                self.by_a(&lock).await;
                Ask::Test { lock, owner: "b", permits: None }
            }
            "test for too many permits" => Ask::Test { lock, owner: "b", permits: Some(u32::MAX) },
            "check a token" => Ask::Check { token: self.by_a(&lock).await.token, lock },
            "check a token of what was released" => {
                Ask::Check { token: self.released_by_a(&lock).await.token, lock }
            }
            "get a held lock" => {
                self.by_a(&lock).await;
                Ask::Get { lock }
            }
            "accept a token" => Ask::Accept { token: self.by_a(&lock).await.token, register: lock },
            "accept a lower token" => {
                let token = self.by_a(&lock).await.token;
                let body = json!({ "fencing_token": token }).to_string();
                self.world.post(&format!("/v1/fences/{lock}/accept"), &body).await.ok();
                Ask::Accept { register: lock, token: token - 1 }
            }
            "accept a token that was never issued" => {
                Ask::Accept { register: lock, token: 1 << 52 }
            }
            "keep a session alive" => Ask::KeepAlive { session: self.session().await },
            "keep a session alive that is not there" => Ask::KeepAlive { session: NOBODY.into() },
            "close a session" => Ask::Close { session: self.session().await },
            unknown => panic!("no such case: {unknown}"),
        }
    }
}

/// A file of its own for a name.
fn inode(name: &str) -> String {
    let number = name.bytes().fold(7_u64, |sum, byte| (sum * 31 + u64::from(byte)) % 1_000_000_007);
    format!("inode:{number}@0..10")
}

/// What was counted between two looks.
fn counted(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> BTreeMap<String, i64> {
    #[expect(clippy::cast_possible_truncation, reason = "a handful of requests")]
    let gain = |(name, after): (&String, &f64)| {
        let gained = (after - before.get(name).unwrap_or(&0.0)).round() as i64;
        (gained != 0).then(|| (name.clone(), gained))
    };
    after.iter().filter_map(gain).collect()
}

#[tokio::test]
async fn operations_and_refusals_are_the_same_over_each_transport() {
    let mut ways = Ways::start().await;
    for (number, (case, word)) in CASES.into_iter().enumerate() {
        let mut over_http = None;
        for over in ALL {
            let name = format!("case{number}-{over:?}");
            let ask = ways.prepare(case, &name).await;
            let before = ways.counters().await;
            let said = ways.ask(over, ask).await;
            assert_eq!(said.word, word, "{case}, {over:?}: {said:?}");
            let counted = counted(&before, &ways.counters().await);
            let (said_before, counted_before) =
                over_http.get_or_insert((said.clone(), counted.clone()));
            assert_eq!(said, *said_before, "{case}: {over:?} and HTTP");
            assert_eq!(counted, *counted_before, "{case}: {over:?} and HTTP");
        }
        let (_, counted) = over_http.unwrap();
        assert!(!counted.is_empty(), "{case} is counted");
    }
}

#[tokio::test]
async fn waits_over_each_transport_are_in_the_percentiles_of_the_overview() {
    for over in ALL {
        let mut ways = Ways::start().await;
        let ask = ways.prepare("wait for a held lock in vain", "x").await;
        let totals = async |ways: &Ways| {
            let overview = ways.world.get("/v1/overview").await.ok();
            overview["totals"]["wait_p50_ms"].clone()
        };
        assert!(totals(&ways).await.is_null());
        assert_eq!(ways.ask(over, ask).await.word, "lock_held");
        assert!(totals(&ways).await.as_u64().is_some_and(|wait| wait >= 40), "{over:?}");
    }
}

#[tokio::test]
async fn a_reserved_namespace_is_refused_over_each_transport() {
    use leasehold_api::grpc::{AcquireRequest, Attach};

    let ways = Ways::start().await;
    let body = r#"{"owner_id":"a","ttl_ms":30000}"#;
    let path = "/v1/locks/x/acquire?namespace=leasehold.simple";
    let http = ways.world.post(path, body).await.problem("permission_denied");
    let namespace = String::from("leasehold.simple");
    let asked = AcquireRequest { namespace: namespace.clone(), ..crate::talk::acquire("x", "a") };
    let unary = crate::talk::refused(ways.locks().acquire(asked).await);
    let first = leasehold_api::grpc::AttachRequest {
        attach: Some(Attach { namespace, ..Attach::default() }),
        commands: Vec::new(),
    };
    let refused = ways.attach(first).await;
    for problem in [unary, refused] {
        assert_eq!(problem.code.to_string(), "permission_denied");
        assert_eq!(http["detail"], problem.detail);
    }
}

#[tokio::test]
async fn quota_is_told_with_its_numbers_over_each_transport() {
    let mut config = crate::world::config();
    config.limits.locks_max = 1;
    let mut ways = Ways::of(World::with(config).await).await;
    let held = ways.by_a("held").await;
    for over in ALL {
        let lock = format!("{over:?}").to_lowercase();
        let acquire = Acquire { lock, owner: "b", ttl_ms: Some(30_000), ..Acquire::default() };
        let said = ways.ask(over, Ask::Acquire(acquire)).await;
        assert_eq!(said.word, "quota_exceeded", "{over:?}");
        assert_eq!(said.more["quota"], r#"Some("locks") Some("server") Some(1)"#, "{over:?}");
        assert_eq!(said.more["retry"], "true", "{over:?}");
    }
    let released = ways.ask(ALL[2], Ask::Release { lock: "held".into(), proof: held }).await;
    assert_eq!(released.word, "done");
    let acquire =
        Acquire { lock: "b".into(), owner: "b", ttl_ms: Some(30_000), ..Acquire::default() };
    assert_eq!(ways.ask(ALL[2], Ask::Acquire(acquire)).await.word, "done");
}
