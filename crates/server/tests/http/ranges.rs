//! Byte ranges of files, over a real socket: whose they are, which tokens are good for them, and what a retry gets.

use serde_json::{Value, json};

use crate::world::{Reply, World, config};

const FILE: &str = "inode:9@0..100";

impl World {
    async fn ask(&self, lock: &str, what: &str, body: &Value) -> Reply {
        self.post(&format!("/v1/locks/{lock}/{what}"), &body.to_string()).await
    }

    async fn session(&self, owner: &str) -> Value {
        let open = json!({ "owner_id": owner, "ttl_ms": 30_000 });
        self.post("/v1/sessions", &open.to_string()).await.ok()["session_id"].clone()
    }
}

#[tokio::test]
async fn bytes_belong_to_a_lease_and_not_to_the_name_of_its_owner() {
    let world = World::start().await;
    let session = world.session("worker-a").await;
    let held = json!({ "owner_id": "worker-a", "session_id": session });
    let held = world.ask(FILE, "acquire", &held).await.ok();
    let plain = json!({ "owner_id": "worker-a", "ttl_ms": 30_000 });
    let refused = world.ask(FILE, "acquire", &plain).await.problem("lock_held");
    assert_eq!(refused["holders"][0]["fencing_token"], held["fencing_token"]);
    let waits = json!({ "owner_id": "worker-a", "ttl_ms": 30_000, "wait_ms": 1000 });
    let circle = world.ask(FILE, "acquire", &waits).await.problem("deadlock");
    assert_eq!(circle["cycle"].as_array().unwrap().len(), 1, "{circle}");

    // Beside it, of another lease: neither merges, and neither proves the other.
    let beside = world.ask("inode:9@100..200", "acquire", &plain).await.ok();
    let stranger = json!({ "owner_id": "worker-a", "lease_id": beside["lease_id"], "fencing_token": beside["fencing_token"] });
    // What it does not hold is released already.
    world.ask(FILE, "release", &stranger).await.ok();
    let other = json!({ "owner_id": "worker-b", "ttl_ms": 30_000 });
    world.ask(FILE, "acquire", &other).await.problem("lock_held");
    let path = format!("/v1/sessions/{}", session.as_str().unwrap());
    assert_eq!(world.get(&path).await.ok()["locks"], 1);
    world.delete(&path).await.ok();
    world.ask(FILE, "acquire", &other).await.ok();
}

#[tokio::test]
async fn merged_bytes_honour_the_tokens_of_their_lease_alone() {
    let world = World::start().await;
    let session = world.session("a").await;
    let under = json!({ "owner_id": "a", "session_id": session });
    let first = world.ask("inode:9@0..10", "acquire", &under).await.ok();
    let (_, between) = world.acquire("job", "b").await;
    let second = world.ask("inode:9@10..20", "acquire", &under).await.ok();
    let proof =
        |token: &Value| json!({ "owner_id": "a", "lease_id": session, "fencing_token": token });
    assert!(first["fencing_token"].as_u64() < Some(between));
    for what in ["renew", "release"] {
        let refused = world.ask("inode:9@0..20", what, &proof(&json!(between))).await;
        refused.problem("not_holder");
    }
    for grant in [&first, &second] {
        world.ask("inode:9@0..20", "renew", &proof(&grant["fencing_token"])).await.ok();
    }
    world.ask("inode:9@0..20", "release", &proof(&first["fencing_token"])).await.ok();
    assert_eq!(world.get("/v1/locks/inode:9").await.ok()["state"], "free");
}

#[tokio::test]
async fn repeated_request_gets_its_grant_while_a_part_of_its_bytes_is_held() {
    let world = World::start().await;
    let ask = json!({ "owner_id": "a", "ttl_ms": 30_000, "request_id": "r1" });
    let first = world.ask(FILE, "acquire", &ask).await.ok();
    let unlock = json!({ "owner_id": "a", "session_id": first["lease_id"] });
    world.ask("inode:9@0..50", "unlock", &unlock).await.ok();
    let again = world.ask(FILE, "acquire", &ask).await.ok();
    assert_eq!(again["replayed"], true);
    for field in ["lease_id", "fencing_token"] {
        assert_eq!(again[field], first[field]);
    }
    let proof = json!({ "owner_id": "a", "lease_id": first["lease_id"], "fencing_token": first["fencing_token"] });
    world.ask("inode:9@50..100", "renew", &proof).await.ok();
    assert_eq!(world.get("/v1/locks/inode:9").await.ok()["holders"][0]["lock"], "inode:9@50..100");
}

/// What a session could pile up, or what would take long, is refused with the reason.
#[tokio::test]
async fn what_one_session_may_hold_and_change_at_once_is_limited() {
    let mut config = config();
    config.limits.locks_per_session_max = 4;
    config.limits.own_ranges_per_step_max = 2;
    config.limits.windowed_locks_per_session_max = 2;
    let world = World::with(config).await;
    let under = json!({ "owner_id": "a", "session_id": world.session("a").await });
    world.ask(FILE, "acquire", &under).await.ok();
    for hole in ["inode:9@10..20", "inode:9@30..40", "inode:9@50..60"] {
        world.ask(hole, "unlock", &under).await.ok();
    }
    for (lock, why) in [("inode:9@70..80", "holds 4 locks"), ("inode:9", "name smaller parts")] {
        let refused = world.ask(lock, "unlock", &under).await;
        assert_eq!(refused.status, 429);
        let problem = refused.problem("quota_exceeded");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{problem}");
    }
    world.ask("inode:9@0..35", "unlock", &under).await.ok();
    let mut window = under.clone();
    window["reclaim_ms"] = json!(1000);
    let problem = world.ask("job", "acquire", &window).await.problem("quota_exceeded");
    assert!(problem["detail"].as_str().unwrap().contains("reclaim windows"), "{problem}");
    world.ask("job", "acquire", &under).await.ok();
}
