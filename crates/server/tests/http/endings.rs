//! What is told of locks that are no longer held: reasons, tokens, repeated releases.

use serde_json::{Value, json};

use crate::world::World;

impl World {
    async fn check(&self, lock: &str, token: &Value) -> Value {
        let body = json!({ "fencing_token": token }).to_string();
        self.post(&format!("/v1/locks/{lock}/check"), &body).await.ok()
    }

    async fn grant(&self, lock: &str, body: &Value) -> Value {
        self.post(&format!("/v1/locks/{lock}/acquire"), &body.to_string()).await.ok()
    }
}

fn proof(grant: &Value) -> String {
    let (owner, lease, token) = (&grant["owner_id"], &grant["lease_id"], &grant["fencing_token"]);
    json!({ "owner_id": owner, "lease_id": lease, "fencing_token": token }).to_string()
}

async fn expired(world: &World, lock: &str) -> Value {
    let grant = world.grant(lock, &json!({ "owner_id": "a", "ttl_ms": 100 })).await;
    world.wait_until_free(lock).await;
    grant
}

#[tokio::test]
async fn check_gives_the_reason_when_a_token_is_not_valid() {
    let world = World::start().await;
    let lasts = json!({ "owner_id": "a", "ttl_ms": 30_000 });
    let held = world.grant("held", &lasts).await;
    let token = &held["fencing_token"];
    let valid = world.check("held", token).await;
    assert_eq!((&valid["valid"], valid.get("reason")), (&json!(true), None));
    let wrong = world.check("other", token).await;
    assert_eq!((&wrong["valid"], &wrong["reason"]), (&json!(false), &json!("other_scope")));
    world.post("/v1/locks/held/release", &proof(&held)).await.ok();
    assert_eq!(world.check("held", token).await["reason"], "released");
    let short = expired(&world, "short").await;
    assert_eq!(world.check("short", &short["fencing_token"]).await["reason"], "expired");
    let never = json!(short["fencing_token"].as_u64().unwrap() + 9000);
    assert_eq!(world.check("short", &never).await["reason"], "unknown");
    let opened = world.post("/v1/sessions", &lasts.to_string()).await.ok();
    let under = json!({ "owner_id": "a", "session_id": opened["session_id"] });
    let first = world.grant("inode:1@0..10", &under).await;
    world.grant("inode:1@10..20", &under).await;
    let old = world.check("inode:1@0..10", &first["fencing_token"]).await;
    assert_eq!(old["reason"], "superseded");
}

#[tokio::test]
async fn token_leads_to_its_grant_held_or_ended_and_never_to_a_lease_id() {
    let world = World::start().await;
    let set = r#"{"owner_id":"a","ttl_ms":30000,"locks":["x","inode:7@0..10"]}"#;
    let set = world.post("/v1/sets/acquire?namespace=other", set).await.ok();
    let path = format!("/v1/tokens/{}", set["fencing_token"]);
    let shown = world.get(&path).await;
    let lease = set["lease_id"].as_str().unwrap();
    assert!(!shown.text.contains(lease), "a lease id is its holder's secret");
    let held = shown.ok();
    assert_eq!((&held["state"], &held["namespace"]), (&json!("held"), &json!("other")));
    let locks: Vec<&Value> =
        held["holders"].as_array().unwrap().iter().map(|holder| &holder["lock"]).collect();
    assert_eq!(locks, ["x", "inode:7@0..10"]);
    assert_eq!(held["ended"], json!([]));
    world.delete(&format!("/v1/sessions/{lease}?namespace=other")).await.ok();
    let shown = world.get(&path).await;
    assert!(!shown.text.contains(lease), "not of an ended one either");
    let ended = shown.ok();
    assert_eq!((&ended["state"], &ended["holders"]), (&json!("ended"), &json!([])));
    let last = &ended["ended"][0];
    assert_eq!((&last["owner_id"], &last["reason"]), (&json!("a"), &json!("closed")));
    assert!(last["held_ms"].is_u64() && last["ended_at"].is_string(), "{last}");
    assert_eq!(ended["ended"].as_array().unwrap().len(), 2);
    world.get("/v1/tokens/999999").await.problem("not_found");
    for nonsense in ["x", "-1", "9007199254740992", "1.5"] {
        world.get(&format!("/v1/tokens/{nonsense}")).await.problem("invalid_request");
    }
}

#[tokio::test]
async fn operators_reason_is_with_the_token_of_what_they_broke() {
    let world = World::start().await;
    let grant = world.grant("x", &json!({ "owner_id": "a", "ttl_ms": 30_000 })).await;
    world.post("/v1/locks/x/break", r#"{"reason":"it hangs"}"#).await.ok();
    let shown = world.get(&format!("/v1/tokens/{}", grant["fencing_token"])).await.ok();
    let ended = &shown["ended"][0];
    assert_eq!((&ended["reason"], &ended["note"]), (&json!("revoked"), &json!("it hangs")));
    let late = world.post("/v1/locks/x/release", &proof(&grant)).await.problem("not_holder");
    assert_eq!(late["reason"], "released");
}

#[tokio::test]
async fn last_token_of_a_lock_is_told_after_its_release() {
    let world = World::start().await;
    assert_eq!(world.get("/v1/locks/x").await.ok()["last_fencing_token"], Value::Null);
    let (lease, token) = world.acquire("x", "a").await;
    world.release("x", "a", &lease, token).await.ok();
    let free = world.get("/v1/locks/x").await.ok();
    assert_eq!((&free["state"], &free["last_fencing_token"]), (&json!("free"), &json!(token)));
    let elsewhere = world.get("/v1/locks/x?namespace=other").await.ok();
    assert_eq!(elsewhere["last_fencing_token"], Value::Null);
}

#[tokio::test]
async fn renewal_and_release_say_how_the_lease_ended() {
    let world = World::start().await;
    let short = expired(&world, "short").await;
    let renewed = world.post("/v1/locks/short/renew", &proof(&short)).await.problem("lease_lost");
    assert_eq!(renewed["reason"], "expired");
    let released = world.post("/v1/locks/short/release", &proof(&short)).await;
    assert_eq!(released.problem("not_holder")["reason"], "expired");
    let mut mistyped = short.clone();
    mistyped["lease_id"] = json!("0123456789abcdef0123456789abcdef");
    let unknown = world.post("/v1/locks/short/renew", &proof(&mistyped)).await;
    assert_eq!(unknown.problem("lease_lost")["reason"], "unknown");
    let held = world.grant("held", &json!({ "owner_id": "a", "ttl_ms": 30_000 })).await;
    let elsewhere = world.post("/v1/locks/other/renew", &proof(&held)).await;
    assert_eq!(elsewhere.problem("not_holder")["reason"], "other_scope");
    world.post("/v1/locks/held/release", &proof(&held)).await.ok();
    let late = world.post("/v1/locks/held/renew", &proof(&held)).await.problem("lease_lost");
    assert_eq!(late["reason"], "released");
}

#[tokio::test]
async fn repeated_release_is_answered_as_before_whoever_holds_the_lock_now() {
    let world = World::start().await;
    let grant = world.grant("x", &json!({ "owner_id": "a", "ttl_ms": 30_000 })).await;
    let first = world.post("/v1/locks/x/release", &proof(&grant)).await.ok();
    assert_eq!(first["replayed"], false);
    let (_, token) = world.acquire("x", "b").await;
    let again = world.post("/v1/locks/x/release", &proof(&grant)).await.ok();
    let expected = json!({ "released": true, "held_ms": first["held_ms"], "replayed": true });
    assert_eq!(again, expected);
    assert_eq!(world.get("/v1/locks/x").await.ok()["holders"][0]["fencing_token"], token);
    let mut other = grant.clone();
    other["owner_id"] = json!("b");
    world.post("/v1/locks/x/release", &proof(&other)).await.problem("not_holder");
}

#[tokio::test]
async fn bytes_are_unlocked_under_a_session_or_a_plain_lease() {
    let world = World::start().await;
    let plain = world.grant("inode:5@0..10", &json!({ "owner_id": "a", "ttl_ms": 30_000 })).await;
    // What is acquired under a plain lease stands under that lease.
    let lease = &plain["lease_id"];
    let ask = json!({ "owner_id": "a", "session_id": lease });
    let under = world.grant("inode:5@20..30", &ask).await;
    assert_eq!(under["lease_id"], *lease);
    let stranger = json!({ "owner_id": "b", "session_id": lease }).to_string();
    world.post("/v1/locks/inode:5@40..50/acquire", &stranger).await.problem("session_not_found");
    let unlock = json!({ "owner_id": "a", "session_id": lease }).to_string();
    let unlocked = world.post("/v1/locks/inode:5@5..25/unlock", &unlock).await.ok();
    assert_eq!(unlocked, json!({ "lock": "inode:5@5..25", "changed": true }));
    let again = world.post("/v1/locks/inode:5@5..25/unlock", &unlock).await.ok();
    assert_eq!(again["changed"], false);
    let left = world.get("/v1/locks/inode:5").await.ok();
    let locks: Vec<&Value> =
        left["holders"].as_array().unwrap().iter().map(|holder| &holder["lock"]).collect();
    assert_eq!(locks, ["inode:5@0..5", "inode:5@25..30"]);
    assert_eq!(world.post("/v1/locks/inode:5/unlock", &unlock).await.ok()["changed"], true);
    // The lease has ended with the last of it, and the answer may have been lost.
    assert_eq!(world.post("/v1/locks/inode:5/unlock", &unlock).await.ok()["changed"], false);
    let gone = world.post("/v1/locks/inode:5/unlock", &stranger).await;
    assert_eq!(gone.problem("session_not_found")["reason"], "released");
    let named = world.post("/v1/locks/job/unlock", &unlock).await.problem("invalid_request");
    assert_eq!(named["errors"][0]["field"], "lock");
}

#[tokio::test]
async fn plain_lease_is_kept_alive_and_closed_as_a_session_is() {
    let world = World::start().await;
    let (lease, _) = world.acquire("x", "a").await;
    let path = format!("/v1/sessions/{lease}");
    let kept = world.post(&format!("{path}/keepalive"), r#"{"ttl_ms":60000}"#).await.ok();
    assert_eq!(kept["ttl_ms"], 60_000);
    let closed = json!({ "closed": true, "released": 1, "replayed": false });
    assert_eq!(world.delete(&path).await.ok(), closed);
    assert_eq!(world.delete(&path).await.ok()["replayed"], true);
    let late = world.post(&format!("{path}/keepalive"), "{}").await.problem("session_not_found");
    assert_eq!(late["reason"], "released");
    assert_eq!(world.get("/v1/locks/x").await.ok()["state"], "free");
}
