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
