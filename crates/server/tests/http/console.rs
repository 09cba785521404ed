//! What the console asks the server for, and the rules under which a browser may.

use crate::polling::eventually;
use crate::world::World;

#[tokio::test]
async fn console_is_served_with_strict_rules() {
    let world = World::start().await;
    let page = world.get("/").await;
    assert_eq!(page.status, 200);
    assert!(page.text.starts_with("<!doctype html>"));
    let policy = page.header("content-security-policy").unwrap();
    for part in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"] {
        assert!(policy.contains(part), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    assert!(!page.text.contains("<script>") && !page.text.contains("style="), "inline code");
}

#[tokio::test]
async fn file_that_a_browser_has_is_not_sent_again() {
    let world = World::start().await;
    let first = world.get("/console/style.css").await;
    assert_eq!(first.header("content-type"), Some("text/css; charset=utf-8"));
    let tag = first.header("etag").unwrap().to_string();
    let again = world.send("GET", "/console/style.css", &[("if-none-match", &tag)], None).await;
    assert_eq!((again.status, again.text.len()), (304, 0));
    let other = [("if-none-match", "\"0\"")];
    assert_eq!(world.send("GET", "/console/style.css", &other, None).await.status, 200);
}

#[tokio::test]
async fn path_outside_the_console_leads_nowhere() {
    let world = World::start().await;
    for path in [
        "/console/nothing.js",
        "/console/",
        "/console/../Cargo.toml",
        "/console/%2e%2e/Cargo.toml",
        "/console/../../../../etc/passwd",
    ] {
        let reply = world.get(path).await;
        assert_eq!(reply.status, 404, "{path}");
        reply.problem("not_found");
    }
}

#[tokio::test]
async fn page_of_another_site_changes_nothing() {
    let world = World::start().await;
    let body = r#"{"owner_id":"a","ttl_ms":30000}"#;
    let json = ("content-type", "application/json");
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "http://localhost.evil.example"),
        ("origin", "http://localhost:9"),
        ("origin", "null"),
        ("origin", ""),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let reply =
            world.send("POST", "/v1/locks/x/acquire", &[json, (name, value)], Some(body)).await;
        assert_eq!(reply.status, 403, "{name}: {value}");
        reply.problem("permission_denied");
        let reply = world.send("POST", "/lock?client=a", &[(name, value)], None).await;
        assert_eq!(reply.status, 403, "{name}: {value}");
        let reply = world.send("DELETE", "/v1/inodes/1", &[(name, value)], None).await;
        assert_eq!(reply.status, 403, "{name}: {value}");
        // Looking may cost the server something: a browser says where it was asked to.
        let looked = world.send("GET", "/v1/graph", &[(name, value)], None).await;
        assert_eq!(looked.status, if name == "origin" { 200 } else { 403 }, "{name}: {value}");
        assert_eq!(looked.header("cross-origin-resource-policy"), Some("same-origin"));
        for path in ["/", "/console/app.js", "/livez", "/readyz"] {
            let shown = world.send("GET", path, &[(name, value)], None).await;
            assert_eq!(shown.status, 200, "{path}");
        }
    }
    for own in ["same-origin", "none"] {
        let looked = world.send("GET", "/v1/graph", &[("sec-fetch-site", own)], None).await;
        assert_eq!(looked.status, 200, "{own}");
    }
    let form =
        [("content-type", "application/x-www-form-urlencoded"), ("origin", "http://localhost")];
    let reply = world.send("POST", "/v1/locks/x/acquire", &form, Some(body)).await;
    assert_eq!(reply.status, 415);
    assert_eq!(world.get("/v1/locks/x").await.ok()["state"], "free");
    let own = [json, ("origin", "http://localhost"), ("sec-fetch-site", "same-origin")];
    world.send("POST", "/v1/locks/x/acquire", &own, Some(body)).await.ok();
}

#[tokio::test]
async fn history_tells_past_holders_with_their_tokens_and_ends() {
    let world = World::start().await;
    let (lease, first) = world.acquire("job/a", "worker-1").await;
    world.release("job/a", "worker-1", &lease, first).await.ok();
    let (_, second) = world.acquire("job/a", "worker-2").await;
    world.post("/v1/locks/job/a/break", r#"{"reason":"stuck"}"#).await.ok();
    world.acquire("job/b", "other").await;
    world.post("/v1/locks/job/b/break", r#"{"reason":"done"}"#).await.ok();
    let history = world.get("/v1/history?lock=job/a").await.ok();
    let told: Vec<_> = history["holders"]
        .as_array()
        .unwrap()
        .iter()
        .map(|past| {
            (
                past["owner_id"].as_str().unwrap(),
                past["fencing_token"].as_u64().unwrap(),
                past["reason"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(told, [("worker-2", second, "revoked"), ("worker-1", first, "released")]);
    assert_eq!(history["holders"][0]["note"], "stuck");
    assert_eq!(world.get("/v1/history").await.ok()["holders"].as_array().unwrap().len(), 3);
    assert_eq!(
        world.get("/v1/history?namespace=other").await.ok()["holders"].as_array().unwrap().len(),
        0
    );
    for path in ["/v1/history?lock=a//b", "/v1/history?page_size=0", "/v1/history?locks=a"] {
        assert_eq!(world.get(path).await.status, 400, "{path}");
    }
}

#[tokio::test]
async fn deadlock_is_remembered_with_the_tokens_of_its_moment() {
    let world = World::start().await;
    let (lease_a, token_a) = world.acquire("db/migrate", "worker-a").await;
    let (_, token_b) = world.acquire("billing/close", "worker-b").await;
    let waiting = {
        let address = world.address;
        tokio::spawn(async move {
            crate::world::post_to(
                address,
                "/v1/locks/billing/close/acquire",
                r#"{"owner_id":"worker-a","ttl_ms":30000,"wait_ms":20000}"#,
            )
            .await
        })
    };
    world.wait_for_waiters(1).await;
    let refused = r#"{"owner_id":"worker-b","ttl_ms":30000,"wait_ms":20000}"#;
    world.post("/v1/locks/db/migrate/acquire", refused).await.problem("deadlock");
    let check = async |world: &World| {
        let history = world.get("/v1/history?lock=db/migrate").await.ok();
        let deadlock = history["deadlocks"][0].clone();
        assert_eq!(deadlock["victim"], "worker-b");
        let step = |lock: &str| {
            let steps = deadlock["cycle"].as_array().unwrap();
            steps.iter().find(|step| step["lock"] == lock).unwrap().clone()
        };
        assert_eq!(step("db/migrate")["fencing_token"], token_a);
        assert_eq!(step("db/migrate")["blocker"], "worker-a");
        assert_eq!(step("billing/close")["fencing_token"], token_b);
    };
    check(&world).await;
    // While the rest of the circle stands, the picture shows what would have closed it.
    let drawn = async |world: &World| {
        let graph = world.get("/v1/graph?layout=true").await.ok();
        let edges = graph["edges"].as_array().unwrap().clone();
        let refused = edges.into_iter().find(|edge| edge["type"] == "refused");
        refused.map(|edge| (edge["from"].clone(), edge["to"].clone()))
    };
    assert_eq!(drawn(&world).await, Some(("owner:worker-b".into(), "lock:db/migrate".into())));
    // Also when the lock has gone to others since.
    world.release("db/migrate", "worker-a", &lease_a, token_a).await.ok();
    world.acquire("db/migrate", "worker-c").await;
    check(&world).await;
    assert_eq!(drawn(&world).await, None);
    world.post("/v1/locks/billing/close/break", r#"{"reason":"test"}"#).await.ok();
    assert_eq!(waiting.await.unwrap().status, 200);
}

#[tokio::test]
async fn overview_names_those_who_wait_and_those_who_lapse_next() {
    let world = World::start().await;
    world.acquire("x", "long").await;
    world.post("/v1/locks/y/acquire", r#"{"owner_id":"short","ttl_ms":9000}"#).await.ok();
    world.post("/v1/sessions", r#"{"owner_id":"s","ttl_ms":9000}"#).await.ok();
    let address = world.address;
    let waiting = tokio::spawn(async move {
        crate::world::post_to(
            address,
            "/v1/locks/x/acquire",
            r#"{"owner_id":"w","ttl_ms":30000,"wait_ms":20000}"#,
        )
        .await
    });
    world.wait_for_waiters(1).await;
    let overview = world.get("/v1/overview").await.ok();
    assert_eq!(
        (&overview["locks_held"], &overview["waiters"], &overview["sessions"]),
        (&2.into(), &1.into(), &1.into())
    );
    assert_eq!(overview["longest_waits"][0]["owner_id"], "w");
    assert_eq!(overview["about_to_expire"][0]["owner_id"], "short");
    assert_eq!(overview["about_to_expire"][0]["ttl_ms"], 9000);
    assert_eq!(overview["totals"]["grants"], 2);
    assert_eq!(overview["namespaces"][0]["namespace"], "default");
    assert_eq!(world.get("/v1/overview?namespace=other").await.ok()["locks_held"], 0);
    // Waits are counted in milliseconds, and one that took none is no wait.
    eventually("it has waited", async || {
        let overview = world.get("/v1/overview").await.ok();
        overview["longest_waits"][0]["waiting_ms"].as_u64().is_some_and(|waited| waited > 1)
    })
    .await;
    world.post("/v1/locks/x/break", r#"{"reason":"test"}"#).await.ok();
    assert_eq!(waiting.await.unwrap().status, 200);
    let overview = world.get("/v1/overview").await.ok();
    assert!(overview["totals"]["wait_p99_ms"].as_u64().is_some());
}

#[tokio::test]
async fn tree_steps_over_whole_branches() {
    let world = World::start().await;
    for lock in ["job/a", "job/b", "deploy", "path:/srv/x", "inode:7@0..10"] {
        world.acquire(lock, "a").await;
    }
    let tree = world.get("/v1/tree").await.ok();
    let names: Vec<&str> = tree["branches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|branch| branch["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["deploy", "inode:", "job/", "path:/"]);
    let page = world.get("/v1/tree?page_size=2").await.ok();
    let token = page["next_page_token"].as_str().unwrap();
    let next = world.get(&format!("/v1/tree?page_size=2&page_token={token}")).await.ok();
    assert_eq!(next["branches"][0]["name"], "job/");
    assert_eq!(next["branches"][0]["locks"], 2);
    assert_eq!(world.get("/v1/tree?prefix=job/&page_token=other").await.status, 400);
}

#[tokio::test]
async fn graph_says_where_to_draw() {
    let world = World::start().await;
    world.acquire("path:/srv/**", "holder").await;
    let address = world.address;
    let waiting = tokio::spawn(async move {
        crate::world::post_to(
            address,
            "/v1/locks/path:/srv/a/acquire",
            r#"{"owner_id":"w","ttl_ms":30000,"wait_ms":20000}"#,
        )
        .await
    });
    world.wait_for_waiters(1).await;
    let graph = world.get("/v1/graph?layout=true").await.ok();
    let nodes = graph["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 4);
    assert!(nodes.iter().all(|node| node["place"]["width"].as_f64().is_some()), "{graph}");
    assert!(graph["size"]["width"].as_f64().unwrap() > 0.0);
    let held = nodes.iter().find(|node| node["name"] == "path:/srv/**").unwrap();
    assert_eq!(held["lock"]["ttl_ms"], 30_000);
    // What is waited for and what is held have different names: the picture shows what they have to do with each other.
    let edges = graph["edges"].as_array().unwrap();
    assert!(edges.iter().any(|edge| edge["type"] == "overlaps"), "{graph}");
    assert_eq!(
        world.get("/v1/graph?filter=nobody").await.ok()["nodes"].as_array().unwrap().len(),
        0
    );
    assert!(world.get("/v1/graph").await.ok()["nodes"][0].get("place").is_none());
    assert!(world.get("/v1/graph?format=dot").await.text.contains("dotted"));
    assert_eq!(world.get("/v1/graph?layout=yes").await.status, 400);
    world.post("/v1/locks/path:/srv/**/break", r#"{"reason":"test"}"#).await.ok();
    assert_eq!(waiting.await.unwrap().status, 200);
}

#[tokio::test]
async fn session_is_broken_by_its_number() {
    let world = World::start().await;
    let opened = world.post("/v1/sessions", r#"{"owner_id":"a","ttl_ms":30000}"#).await.ok();
    let (id, number) =
        (opened["session_id"].as_str().unwrap(), opened["session"].as_u64().unwrap());
    let body = format!(r#"{{"owner_id":"a","session_id":"{id}"}}"#);
    world.post("/v1/locks/x/acquire", &body).await.ok();
    let path = format!("/v1/sessions/{number}/break");
    assert_eq!(world.post(&path, "{}").await.status, 400);
    let broken = world.post(&path, r#"{"reason":"its machine is gone"}"#).await.ok();
    assert_eq!(broken["released"], 1);
    assert_eq!(world.get("/v1/locks/x").await.ok()["state"], "free");
    world.post(&path, r#"{"reason":"again"}"#).await.problem("session_not_found");
    world.post("/v1/sessions/x/break", r#"{"reason":"again"}"#).await.problem("invalid_request");
}

#[tokio::test]
async fn limits_in_force_are_told() {
    let world = World::start().await;
    let limits = world.get("/v1/limits").await.ok();
    assert_eq!((&limits["set_max"], &limits["ttl_max_ms"]), (&64.into(), &86_400_000.into()));
}

#[tokio::test]
async fn samples_are_taken_while_nobody_looks() {
    let world = World::start().await;
    world.acquire("x", "a").await;
    let held = async || world.get("/v1/overview").await.ok()["series"]["locks_held"].clone();
    let is_sampled = async || held().await.as_array().is_some_and(|held| !held.is_empty());
    eventually("there is a sample", is_sampled).await;
    assert_eq!(held().await[0], 1);
}
