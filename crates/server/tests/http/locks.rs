//! What users do with locks, over a real socket.

use crate::polling::eventually;
use crate::world::{World, config, post_to};

#[tokio::test]
async fn lock_goes_from_hand_to_hand() {
    let world = World::start().await;
    let body = r#"{"owner_id":"a","ttl_ms":30000,"metadata":{"host":"web-1"}}"#;
    let grant = world.post("/v1/locks/job/nightly/acquire", body).await.ok();
    assert_eq!(grant["lock"], "job/nightly");
    assert_eq!(grant["owner_id"], "a");
    assert_eq!(grant["mode"], "exclusive");
    assert_eq!(grant["ttl_ms"], 30_000);
    assert_eq!(grant["replayed"], false);
    assert!(grant["expires_in_ms"].as_u64().unwrap() <= 30_000);
    let lease = grant["lease_id"].as_str().unwrap();
    let token = grant["fencing_token"].as_u64().unwrap();

    let body = r#"{"owner_id":"b","ttl_ms":30000}"#;
    let refused = world.post("/v1/locks/job%2Fnightly/acquire", body).await;
    assert_eq!(refused.status, 409);
    assert!(refused.header("retry-after").is_some());
    let problem = refused.problem("lock_held");
    assert_eq!(problem["current_owner_id"], "a");
    assert_eq!(problem["holders"][0]["fencing_token"], token);
    assert_eq!(problem["holders"][0]["metadata"]["host"], "web-1");
    assert!(problem["recommended_retry_ms"].as_u64().unwrap() > 0);
    assert!(!refused.text.contains(lease), "a lease id is its holder's secret");

    let body = format!(
        r#"{{"owner_id":"a","lease_id":"{lease}","fencing_token":{token},"ttl_ms":60000}}"#
    );
    let renewed = world.post("/v1/locks/job/nightly/renew", &body).await.ok();
    assert_eq!(renewed["ttl_ms"], 60_000);

    let seen = world.get("/v1/locks/job/nightly").await;
    assert!(!seen.text.contains(lease));
    assert_eq!(seen.ok()["state"], "held");
    assert_eq!(seen.ok()["last_fencing_token"], token);

    assert_eq!(world.release("job/nightly", "a", lease, token).await.ok()["released"], true);
    assert_eq!(world.release("job/nightly", "a", lease, token).await.ok()["replayed"], true);
    assert_eq!(world.get("/v1/locks/job/nightly").await.ok()["state"], "free");
    let (_, next) = world.acquire("job/nightly", "b").await;
    assert!(next > token);
}

#[tokio::test]
async fn canonical_name_comes_back_whatever_was_written() {
    let world = World::start().await;
    for (path, canonical) in [
        ("path:/srv//a/./b", "path:/srv/a/b"),
        ("path%3A%2Fx%2F**", "path:/x/**"),
        ("inode:007@0..", "inode:7"),
        ("na%C3%AFve%20name", "naïve name"),
    ] {
        let body = r#"{"owner_id":"a","ttl_ms":30000}"#;
        let grant = world.post(&format!("/v1/locks/{path}/acquire"), body).await.ok();
        assert_eq!(grant["lock"], canonical);
        assert_eq!(world.get(&format!("/v1/locks/{path}")).await.ok()["lock"], canonical);
    }
}

#[tokio::test]
async fn waiter_is_granted_when_the_holder_releases() {
    let world = World::start().await;
    let (lease, token) = world.acquire("x", "a").await;
    let body = r#"{"owner_id":"b","ttl_ms":30000,"wait_ms":20000}"#;
    let (granted, ()) = tokio::join!(world.post("/v1/locks/x/acquire", body), async {
        world.wait_for_waiters(1).await;
        world.release("x", "a", &lease, token).await.ok();
    });
    let grant = granted.ok();
    assert_eq!(grant["owner_id"], "b");
    assert!(grant["fencing_token"].as_u64().unwrap() > token);
}

#[tokio::test]
async fn ticket_keeps_the_place_of_a_wait_that_ran_out() {
    let world = World::start().await;
    let (lease, token) = world.acquire("x", "a").await;
    let body = r#"{"owner_id":"b","ttl_ms":30000,"wait_ms":50}"#;
    let problem = world.post("/v1/locks/x/acquire", body).await.problem("lock_held");
    assert!(problem["waited_ms"].as_u64().unwrap() >= 50);
    assert_eq!(problem["queue_position"], 1);
    let ticket = problem["ticket"].as_str().unwrap();
    let first = format!(r#"{{"owner_id":"b","ttl_ms":30000,"wait_ms":9000,"ticket":"{ticket}"}}"#);
    let second = r#"{"owner_id":"c","ttl_ms":30000,"wait_ms":2000}"#;
    let waits = async |owner: &str, left: u64| {
        let lock = world.get("/v1/locks/x").await.ok();
        let waiters = lock["waiters"].as_array().unwrap().clone();
        let is_it = |waiter: &serde_json::Value| {
            waiter["owner_id"] == owner && waiter["gives_up_in_ms"].as_u64() > Some(left)
        };
        waiters.iter().any(is_it)
    };
    let (first, second, ()) = tokio::join!(
        async {
            eventually("c waits", async || waits("c", 0).await).await;
            world.post("/v1/locks/x/acquire", &first).await
        },
        world.post("/v1/locks/x/acquire", second),
        async {
            eventually("b waits again", async || waits("b", 2000).await).await;
            world.release("x", "a", &lease, token).await.ok();
        }
    );
    assert_eq!(first.ok()["owner_id"], "b");
    second.problem("lock_held");
    let stale = r#"{"owner_id":"b","ttl_ms":30000,"wait_ms":50,"ticket":"999"}"#;
    world.post("/v1/locks/y/acquire", stale).await.problem("ticket_not_found");
}

/// The number alone can be guessed.
#[tokio::test]
async fn ticket_is_of_no_use_without_its_secret() {
    let world = World::start().await;
    world.acquire("x", "a").await;
    let body = r#"{"owner_id":"b","ttl_ms":30000,"wait_ms":1}"#;
    let problem = world.post("/v1/locks/x/acquire", body).await.problem("lock_held");
    let ticket = problem["ticket"].as_str().unwrap();
    let (number, secret) = ticket.split_once('-').unwrap();
    let other = format!("{:016x}", u64::from_str_radix(secret, 16).unwrap() ^ 1);
    for guess in [number.to_string(), format!("{number}-{other}")] {
        let body = format!(r#"{{"owner_id":"b","ttl_ms":30000,"wait_ms":1,"ticket":"{guess}"}}"#);
        world.post("/v1/locks/x/acquire", &body).await.problem("ticket_not_found");
    }
}

#[tokio::test]
async fn abandoned_waits_take_no_room_from_others() {
    let mut config = config();
    (config.limits.waiters_max, config.limits.waiters_per_scope_max) = (2, 2);
    let world = World::with(config).await;
    world.acquire("x", "a").await;
    for number in 0..20 {
        let body = format!(r#"{{"owner_id":"gone-{number}","ttl_ms":30000,"wait_ms":1}}"#);
        world.post("/v1/locks/x/acquire", &body).await.problem("lock_held");
    }
    assert_eq!(world.sample("leasehold_waiters").await, 0.0);
    assert_eq!(world.sample("leasehold_kept_places").await, 20.0);
    let body = r#"{"owner_id":"b","ttl_ms":30000,"wait_ms":1}"#;
    let problem = world.post("/v1/locks/x/acquire", body).await.problem("lock_held");
    assert_eq!(problem["waiters"], 0);
}

#[tokio::test]
async fn waiter_whose_connection_breaks_comes_back_to_its_place_with_its_request_id() {
    use tokio::io::AsyncWriteExt;
    let world = World::start().await;
    let (lease, token) = world.acquire("x", "a").await;
    let body = r#"{"owner_id":"b","ttl_ms":30000,"wait_ms":40000,"request_id":"r-1"}"#;
    let mut stream = world.connect().await;
    let head = "POST /v1/locks/x/acquire HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    world.wait_for_waiters(1).await;
    drop(stream);
    world.wait_for_waiters(0).await;
    let other = r#"{"owner_id":"c","ttl_ms":30000,"wait_ms":40000}"#;
    tokio::select! {
        _ = world.post("/v1/locks/x/acquire", other) => panic!("it stands behind the first"),
        granted = async {
            world.wait_for_waiters(1).await;
            tokio::join!(world.post("/v1/locks/x/acquire", body), async {
                world.wait_for_waiters(2).await;
                world.release("x", "a", &lease, token).await.ok();
            })
        } => assert_eq!(granted.0.ok()["owner_id"], "b"),
    }
}

#[tokio::test]
async fn waiter_whose_connection_breaks_is_never_granted() {
    use tokio::io::AsyncWriteExt;
    let world = World::start().await;
    let (lease, token) = world.acquire("x", "a").await;
    let body = r#"{"owner_id":"gone","ttl_ms":30000,"wait_ms":40000}"#;
    let mut stream = world.connect().await;
    let head = "POST /v1/locks/x/acquire HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    world.wait_for_waiters(1).await;
    drop(stream);
    world.wait_for_waiters(0).await;
    world.release("x", "a", &lease, token).await.ok();
    assert_eq!(world.get("/v1/locks/x").await.ok()["state"], "free");
    let (_, next) = world.acquire("x", "b").await;
    assert_eq!(next, token + 1, "no token was spent on who had gone");
}

#[tokio::test]
async fn same_request_id_gets_the_same_grant() {
    let world = World::start().await;
    let body = r#"{"owner_id":"a","ttl_ms":30000,"request_id":"r-1"}"#;
    let first = world.post("/v1/locks/x/acquire", body).await.ok();
    let again = world.post("/v1/locks/x/acquire", body).await.ok();
    assert_eq!(again["replayed"], true);
    assert_eq!(first["lease_id"], again["lease_id"]);
    assert_eq!(first["fencing_token"], again["fencing_token"]);
    let other = r#"{"owner_id":"a","ttl_ms":40000,"request_id":"r-1"}"#;
    world.post("/v1/locks/x/acquire", other).await.problem("request_id_reused");
}

#[tokio::test]
async fn circle_of_waits_is_refused_with_the_circle() {
    let world = World::start().await;
    let (lease, token) = world.acquire("x", "a").await;
    world.acquire("y", "b").await;
    let waits = r#"{"owner_id":"b","ttl_ms":30000,"wait_ms":20000}"#;
    let closes = r#"{"owner_id":"a","ttl_ms":30000,"wait_ms":20000}"#;
    let (granted, ()) = tokio::join!(world.post("/v1/locks/x/acquire", waits), async {
        world.wait_for_waiters(1).await;
        let graph = world.get("/v1/graph").await.ok();
        assert_eq!(graph["edges"].as_array().unwrap().len(), 2);
        let dot = world.get("/v1/graph?format=dot").await;
        assert!(dot.text.starts_with("digraph"), "{dot:?}");
        let problem = world.post("/v1/locks/y/acquire", closes).await.problem("deadlock");
        assert_eq!(problem["cycle"].as_array().unwrap().len(), 2);
        world.release("x", "a", &lease, token).await.ok();
    });
    granted.ok();
    assert!((world.sample("leasehold_deadlocks_total").await - 1.0).abs() < 0.1);
}

#[tokio::test]
async fn shared_and_counted_holders_stand_side_by_side() {
    let world = World::start().await;
    for owner in ["a", "b"] {
        let shared = format!(r#"{{"owner_id":"{owner}","ttl_ms":30000,"mode":"shared"}}"#);
        world.post("/v1/locks/s/acquire", &shared).await.ok();
        let permit = format!(r#"{{"owner_id":"{owner}","ttl_ms":30000,"permits":2}}"#);
        let grant = world.post("/v1/locks/p/acquire", &permit).await.ok();
        assert_eq!((&grant["mode"], &grant["permits"]), (&"permits".into(), &2.into()));
    }
    let third = r#"{"owner_id":"c","ttl_ms":30000,"permits":2}"#;
    world.post("/v1/locks/p/acquire", third).await.problem("lock_held");
    let other = r#"{"owner_id":"c","ttl_ms":30000,"permits":3}"#;
    world.post("/v1/locks/p/acquire", other).await.problem("limit_mismatch");
}

#[tokio::test]
async fn lock_can_be_tested_checked_or_broken() {
    let world = World::start().await;
    let (lease, token) = world.acquire("x", "a").await;
    let free = world.post("/v1/locks/y/test", r#"{"owner_id":"b"}"#).await.ok();
    assert_eq!((&free["free"], &free["conflict"]), (&true.into(), &serde_json::Value::Null));
    let held = world.post("/v1/locks/x/test", r#"{"owner_id":"b","mode":"shared"}"#).await.ok();
    assert_eq!((&held["free"], &held["conflict"]["owner_id"]), (&false.into(), &"a".into()));

    let check = |token: u64| format!(r#"{{"fencing_token":{token},"lease_id":"{lease}"}}"#);
    assert_eq!(world.post("/v1/locks/x/check", &check(token)).await.ok()["valid"], true);
    assert_eq!(world.post("/v1/locks/x/check", &check(token - 1)).await.ok()["valid"], false);

    world.post("/v1/locks/x/break", "{}").await.problem("invalid_request");
    let broken = world.post("/v1/locks/x/break", r#"{"reason":"stuck"}"#).await.ok();
    assert_eq!(broken["broken"], 1);
    assert_eq!(world.post("/v1/locks/x/check", &check(token)).await.ok()["valid"], false);
}

#[tokio::test]
async fn list_goes_on_where_the_page_ended() {
    let world = World::start().await;
    for number in 0..5 {
        world.acquire(&format!("job/{number}"), "a").await;
    }
    world.acquire("other", "b").await;
    let mut names = Vec::new();
    let mut path = "/v1/locks?prefix=job/&page_size=2".to_string();
    loop {
        let page = world.get(&path).await.ok();
        let locks = page["locks"].as_array().unwrap();
        names.extend(locks.iter().map(|lock| lock["lock"].as_str().unwrap().to_string()));
        match page["next_page_token"].as_str() {
            Some(token) => path = format!("/v1/locks?prefix=job/&page_size=2&page_token={token}"),
            None => break,
        }
    }
    assert_eq!(names, ["job/0", "job/1", "job/2", "job/3", "job/4"]);
    let of_b = world.get("/v1/locks?owner_id=b&state=held").await.ok();
    assert_eq!(of_b["locks"].as_array().unwrap().len(), 1);
    assert_eq!(
        world.get("/v1/locks?namespace=else").await.ok()["locks"].as_array().unwrap().len(),
        0
    );
}

#[tokio::test]
async fn set_is_granted_whole_or_not_at_all() {
    let world = World::start().await;
    let (lease, token) = world.acquire("b", "x").await;
    let body = r#"{"owner_id":"s","ttl_ms":30000,"locks":[{"lock":"a"},{"lock":"b"},{"lock":"path:/c/**","mode":"shared"}]}"#;
    world.post("/v1/sets/acquire", body).await.problem("lock_held");
    assert_eq!(world.get("/v1/locks/a").await.ok()["state"], "free");
    world.release("b", "x", &lease, token).await.ok();
    let grant = world.post("/v1/sets/acquire", body).await.ok();
    assert_eq!(grant["locks"].as_array().unwrap().len(), 3);
    let lease = grant["lease_id"].as_str().unwrap();
    world.post(&format!("/v1/sessions/{lease}/keepalive"), "{}").await.ok();
    let closed = world.delete(&format!("/v1/sessions/{lease}")).await.ok();
    assert_eq!(closed["closed"], true);
    assert_eq!(world.get("/v1/locks").await.ok()["locks"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn session_keeps_and_releases_everything_under_it() {
    let world = World::start().await;
    let body = r#"{"owner_id":"s","ttl_ms":30000,"adapter":"nlm","on_disconnect":"keep","disconnect_ttl_ms":5000}"#;
    let opened = world.post("/v1/sessions", body).await;
    assert_eq!(opened.status, 201);
    let opened = opened.ok();
    let id = opened["session_id"].as_str().unwrap();
    for lock in ["a", "b"] {
        let body = format!(r#"{{"owner_id":"s","session_id":"{id}"}}"#);
        let grant = world.post(&format!("/v1/locks/{lock}/acquire"), &body).await.ok();
        assert_eq!(grant["lease_id"], id);
    }
    let seen = world.get(&format!("/v1/sessions/{id}")).await.ok();
    assert_eq!((&seen["locks"], &seen["adapter"]), (&2.into(), &"nlm".into()));
    let list = world.get("/v1/sessions").await;
    assert!(!list.text.contains(id), "a session's id is its holder's secret");
    let number = list.ok()["sessions"][0]["session"].as_u64().unwrap();
    for session in [id.to_string(), number.to_string()] {
        let locks = world.get(&format!("/v1/locks?session_id={session}")).await.ok();
        assert_eq!(locks["locks"].as_array().unwrap().len(), 2);
    }
    world.send("POST", &format!("/v1/sessions/{id}/keepalive"), &[], None).await.ok();
    assert_eq!(world.delete(&format!("/v1/sessions/{id}")).await.ok()["released"], 2);
    let again = world.delete(&format!("/v1/sessions/{id}")).await.ok();
    assert_eq!((&again["released"], &again["replayed"]), (&2.into(), &true.into()));
    world.get(&format!("/v1/sessions/{id}")).await.problem("session_not_found");
}

#[tokio::test]
async fn session_that_is_opened_twice_under_one_request_id_is_one() {
    let world = World::start().await;
    let body = r#"{"owner_id":"s","ttl_ms":30000,"request_id":"r1"}"#;
    let first = world.post("/v1/sessions", body).await;
    assert_eq!((first.status, &first.ok()["replayed"]), (201, &false.into()));
    let again = world.post("/v1/sessions", body).await;
    assert_eq!((again.status, &again.ok()["replayed"]), (201, &true.into()));
    assert_eq!(first.ok()["session_id"], again.ok()["session_id"]);
    assert_eq!(world.get("/v1/sessions").await.ok()["sessions"].as_array().unwrap().len(), 1);
    let other = r#"{"owner_id":"s","ttl_ms":20000,"request_id":"r1"}"#;
    world.post("/v1/sessions", other).await.problem("request_id_reused");
    world.post("/v1/locks/x/acquire", other).await.problem("request_id_reused");
    let others = r#"{"owner_id":"t","ttl_ms":20000,"request_id":"r1"}"#;
    assert_eq!(world.post("/v1/sessions", others).await.ok()["replayed"], false);
    let wrong = r#"{"owner_id":"s","ttl_ms":30000,"request_id":""}"#;
    world.post("/v1/sessions", wrong).await.problem("invalid_request");
}

#[tokio::test]
async fn lock_that_others_wait_for_is_not_free() {
    let world = World::start().await;
    world.acquire("path:%2Fsrv%2Fa", "a").await;
    let wait = r#"{"owner_id":"b","ttl_ms":30000,"wait_ms":20000}"#;
    let waits = world.post("/v1/locks/path:%2Fsrv%2F**/acquire", wait);
    let looks = eventually("others wait for it", async || {
        let test = r#"{"owner_id":"c"}"#;
        let tested = world.post("/v1/locks/path:%2Fsrv%2Fc/test", test).await.ok();
        tested["free"] == false && tested["conflict"].is_null()
    });
    tokio::select! {
        () = looks => {}
        granted = waits => panic!("it is held: {granted:?}"),
    }
}

#[tokio::test]
async fn locks_of_a_removed_file_are_gone() {
    let world = World::start().await;
    world.acquire("inode:42@0..10", "a").await;
    world.acquire("inode:42@20..30", "b").await;
    let removed = world.delete("/v1/inodes/42").await.ok();
    assert_eq!((&removed["inode"], &removed["released"]), (&42.into(), &2.into()));
    world.delete("/v1/inodes/x").await.problem("invalid_request");
}

#[tokio::test]
async fn expired_lock_is_lost_to_its_holder() {
    let world = World::start().await;
    let grant = world.post("/v1/locks/x/acquire", r#"{"owner_id":"a","ttl_ms":100}"#).await.ok();
    world.wait_until_free("x").await;
    let (lease, token) = (&grant["lease_id"], &grant["fencing_token"]);
    let body = format!(r#"{{"owner_id":"a","lease_id":{lease},"fencing_token":{token}}}"#);
    assert_eq!(
        world.post("/v1/locks/x/renew", &body).await.problem("lease_lost")["reason"],
        "expired"
    );
    assert!((world.sample("lock_expired_total").await - 1.0).abs() < 0.1);
    assert!(world.sample("locks_held").await.abs() < 0.1);
}

/// A wait that may close a cycle is refused if that cannot be found out within the steps that a check may take.
#[tokio::test]
async fn wait_whose_deadlock_check_would_take_too_long_is_refused() {
    let world = World::start().await;
    let session = world.post("/v1/sessions", r#"{"owner_id":"many","ttl_ms":600000}"#).await.ok();
    let session = session["session_id"].as_str().unwrap();
    for set in 0..640 {
        let locks: Vec<String> = (0..64).map(|at| format!(r#""path:/x/{set}/{at}""#)).collect();
        let locks = locks.join(",");
        let body = format!(r#"{{"owner_id":"many","session_id":"{session}","locks":[{locks}]}}"#);
        world.post("/v1/sets/acquire", &body).await.ok();
    }
    world.acquire("mine", "a").await;
    let wants_mine = r#"{"owner_id":"b","ttl_ms":600000,"wait_ms":50000}"#;
    let waiting = tokio::spawn(post_to(world.address, "/v1/locks/mine/acquire", wants_mine));
    world.wait_for_waiters(1).await;
    let wait = r#"{"owner_id":"a","ttl_ms":600000,"wait_ms":50000}"#;
    let refused = world.post("/v1/locks/path:%2Fx%2F**/acquire", wait).await;
    assert_eq!(refused.status, 429);
    refused.problem("too_many_waiters");
    let seen = world.get("/v1/cluster").await.ok();
    assert_eq!(seen["waiters"], 1, "it does not wait unchecked");
    waiting.abort();
}
