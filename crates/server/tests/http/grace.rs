//! What a server answers after a restart, until those who held something are back.

use leasehold_server::{Config, Grace, Policy, Store};

use crate::world::{World, config};

/// A server that restarts on a file, and a lock that is held before.
async fn restarted(data: &std::path::Path, policy: Policy) -> (World, String, u64) {
    let grace = Grace { policy: Some(policy), length: None };
    let store = Store::Sqlite(data.join("leasehold.db"));
    let config = Config { store, grace, ..config() };
    let before = World::with(config.clone()).await;
    let (lease, token) = before.acquire("job", "a").await;
    before.server.stop().await;
    (World::with(config).await, lease, token)
}

#[tokio::test]
async fn conflict_with_a_recovering_grant_is_one_with_a_held_lock() {
    let data = tempfile::tempdir().unwrap();
    let (world, lease, token) = restarted(data.path(), Policy::Conflicting).await;
    let try_it = r#"{"owner_id":"b","ttl_ms":30000}"#;
    let refused = world.post("/v1/locks/job/acquire", try_it).await;
    assert_eq!(refused.status, 409);
    let problem = refused.problem("lock_held");
    assert_eq!(problem["holders"][0]["state"], "recovering");
    assert_eq!(problem["current_owner_id"], "a");
    assert!(problem["recommended_retry_ms"].as_u64().unwrap() < 1000, "{problem}");
    let alone = r#"{"owner_id":"a","ttl_ms":30000,"reclaim":true}"#;
    world.post("/v1/locks/job/acquire", alone).await.problem("not_holder");
    let reclaim = format!(r#"{{"owner_id":"a","session_id":"{lease}","reclaim":true}}"#);
    world.post("/v1/locks/other/acquire", &reclaim).await.problem("not_holder");
    let shared = reclaim.replace("true}", r#"true,"mode":"shared"}"#);
    world.post("/v1/locks/job/acquire", &shared).await.problem("not_holder");
    let grant = world.post("/v1/locks/job/acquire", &reclaim).await.ok();
    assert_eq!((&grant["fencing_token"], &grant["replayed"]), (&token.into(), &true.into()));
}

#[tokio::test]
async fn strict_grace_is_over_when_all_are_back() {
    let data = tempfile::tempdir().unwrap();
    let (world, lease, token) = restarted(data.path(), Policy::Strict).await;
    let try_it = r#"{"owner_id":"b","ttl_ms":30000}"#;
    let refused = world.post("/v1/locks/free/acquire", try_it).await;
    assert_eq!(refused.status, 503);
    refused.problem("grace_period");
    let renew = format!(r#"{{"owner_id":"a","lease_id":"{lease}","fencing_token":{token}}}"#);
    world.post("/v1/locks/job/renew", &renew).await.ok();
    world.post("/v1/locks/free/acquire", try_it).await.ok();
}

#[tokio::test]
async fn strict_grace_does_not_keep_a_first_start_waiting() {
    let data = tempfile::tempdir().unwrap();
    let grace = Grace { policy: Some(Policy::Strict), length: None };
    let store = Store::Sqlite(data.path().join("leasehold.db"));
    let world = World::with(Config { store, grace, ..config() }).await;
    world.acquire("job", "a").await;
}

/// A store that forgets knows nobody's locks: only who says that it held one before gets it.
#[tokio::test]
async fn grace_of_a_store_that_forgets_grants_what_was_held_before_and_nothing_else() {
    let mut config = config();
    config.limits.lease_ttl_max = std::time::Duration::from_secs(150);
    config.grace.length = Some(std::time::Duration::from_secs(150));
    let world = World::with(config).await;
    let ask = r#"{"owner_id":"a","ttl_ms":30000}"#;
    let refused = world.post("/v1/locks/job/acquire", ask).await;
    assert_eq!(refused.status, 503);
    let problem = refused.problem("grace_period");
    let left = problem["grace_ends_in_ms"].as_u64().unwrap();
    assert!((140_000..=150_000).contains(&left), "{problem}");
    assert_eq!(problem["detail"], "recovery grace active for another 2 min");
    let reclaim = r#"{"owner_id":"a","ttl_ms":30000,"reclaim":true}"#;
    world.post("/v1/locks/job/acquire", reclaim).await.ok();
    let other = reclaim.replace(r#":"a""#, r#":"b""#);
    world.post("/v1/locks/job/acquire", &other).await.problem("lock_held");
    world.post("/v1/locks/job/test", r#"{"owner_id":"b"}"#).await.problem("grace_period");
    assert_eq!(world.get("/v1/cluster").await.ok()["grace"]["strict"], true);
}
