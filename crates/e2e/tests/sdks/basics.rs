//! What an SDK does when nothing goes wrong.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::harness::{LONG, Stage, Store, millis};

pub(crate) const STORE: Store = Store::Memory;

pub(crate) async fn a_lock_is_held_by_one_at_a_time(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let asked = json!({"op": "acquire", "lock": "a/b", "owner": "one", "ttl_ms": 30_000});
    let first = stage.driver.ask(asked).await?;
    assert_eq!(first["name"], "a/b");
    let state = stage.state_of("h1").await?;
    assert_eq!(state["state"], "valid");
    assert!(millis(&state["time_to_work_ms"]) > 10_000.0, "{state}");
    assert!(millis(&state["time_left_ms"]) <= 30_000.0, "{state}");
    assert_eq!(stage.driver.ask(json!({"op": "verify", "lease": "h1"})).await?["valid"], true);
    let tried = stage.driver.ask(json!({"op": "try", "lock": "a/b", "owner": "two"})).await?;
    assert_eq!(tried["lease"], Value::Null);
    let asked = json!({"op": "acquire", "lock": "a/b", "owner": "two"});
    let refused = stage.driver.refused(asked).await?;
    assert_eq!(refused["kind"], "held", "{refused}");
    assert_eq!(refused["code"], "lock_held");
    assert_eq!(refused["outcome"], "not_applied");
    assert_eq!(refused["holders"], json!(["one"]));
    assert!(millis(&refused["retry_after_ms"]) > 0.0, "{refused}");
    stage.driver.ask(json!({"op": "release", "lease": "h1"})).await?;
    assert_eq!(stage.state_of("h1").await?["state"], "lost");
    let next = stage.driver.ask(json!({"op": "try", "lock": "a/b", "owner": "two"})).await?;
    assert!(next["token"].as_u64() > first["token"].as_u64(), "{first} {next}");
    Ok(())
}

pub(crate) async fn who_waits_is_granted_when_it_comes_free(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let lease = stage.other.lock("a").owner("other").acquire().await?;
    let asked = json!({"op": "acquire", "lock": "a", "owner": "two", "wait_ms": null});
    let waiting = stage.driver.send(asked)?;
    stage.until_waiters("a", 1).await?;
    let short = json!({"op": "acquire", "lock": "a", "owner": "three", "wait_ms": 150});
    assert_eq!(stage.driver.refused(short).await?["kind"], "held");
    lease.release().await?;
    let held = waiting.ok().await?;
    assert!(millis(&held["waited_ms"]) >= 150.0, "{held}");
    Ok(())
}

pub(crate) async fn shared_permits_ranges_and_paths(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let free = async |line: Value| {
        let mut line = line;
        line["op"] = "try".into();
        anyhow::Ok(stage.driver.ask(line).await?["lease"] != Value::Null)
    };
    ensure!(free(json!({"lock": "doc", "shared": true})).await?);
    ensure!(free(json!({"lock": "doc", "shared": true})).await?);
    ensure!(!free(json!({"lock": "doc"})).await?);
    ensure!(free(json!({"lock": "pool", "permits": 2})).await?);
    ensure!(free(json!({"lock": "pool", "permits": 2})).await?);
    ensure!(!free(json!({"lock": "pool", "permits": 2})).await?);
    ensure!(free(json!({"lock": "inode:42@100..200"})).await?);
    ensure!(!free(json!({"lock": "inode:42@150.."})).await?);
    ensure!(free(json!({"lock": "inode:42@200.."})).await?);
    ensure!(free(json!({"lock": "path:/srv/a/**"})).await?);
    ensure!(!free(json!({"lock": "path:/srv/a/b"})).await?);
    ensure!(free(json!({"lock": "shop/till/check"})).await?, "a name may end like a verb");
    ensure!(free(json!({"lock": "a b/ä?#%"})).await?, "a name may be any text");
    let mismatch = json!({"op": "acquire", "lock": "pool", "permits": 3});
    let mismatch = stage.driver.refused(mismatch).await?;
    assert_eq!(
        (&mismatch["kind"], &mismatch["code"]),
        (&"refused".into(), &"limit_mismatch".into())
    );
    let wrong = stage.driver.refused(json!({"op": "acquire", "lock": "a//b"})).await?;
    assert_eq!((&wrong["kind"], &wrong["code"]), (&"refused".into(), &"invalid_lock_name".into()));
    Ok(())
}

pub(crate) async fn a_set_is_all_or_nothing(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let one = stage.other.lock("y").acquire().await?;
    let set = json!([{"lock": "x"}, {"lock": "y", "mode": "shared"}]);
    let tried = stage.driver.ask(json!({"op": "try", "locks": set, "ttl_ms": 1000})).await?;
    assert_eq!(tried["lease"], Value::Null);
    ensure!(stage.is_free("x").await?, "a refused set holds nothing");
    one.release().await?;
    let asked = json!({"op": "acquire", "locks": set, "ttl_ms": 1000, "wait_ms": 10_000});
    stage.driver.ask(asked).await?;
    stage.other.lock("y").shared().acquire().await?.release().await?;
    tokio::time::sleep(Duration::from_millis(1600)).await;
    assert_eq!(stage.state_of("h1").await?["state"], "valid", "a set is kept alive as one");
    ensure!(!stage.is_free("x").await?);
    stage.driver.ask(json!({"op": "release", "lease": "h1"})).await?;
    ensure!(stage.is_free("x").await?);
    Ok(())
}

pub(crate) async fn one_session_keeps_many_locks(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let opened =
        stage.driver.ask(json!({"op": "session", "ttl_ms": 1000, "owner": "boss"})).await?;
    let session = opened["lease"].clone();
    for lock in ["s/0", "s/1", "s/2"] {
        stage.driver.ask(json!({"op": "acquire", "session": session, "lock": lock})).await?;
    }
    let bytes = json!([{"lock": "inode:7@0..10"}, {"lock": "inode:7@20..30"}]);
    stage.driver.ask(json!({"op": "acquire", "session": session, "locks": bytes})).await?;
    tokio::time::sleep(Duration::from_millis(1600)).await;
    assert_eq!(stage.state_of("h2").await?["state"], "valid");
    stage.driver.ask(json!({"op": "release", "lease": "h5"})).await?;
    for lock in ["inode:7@0..10", "inode:7@20..30"] {
        stage.other.lock(lock).acquire().await?.release().await?;
    }
    stage.driver.ask(json!({"op": "release", "lease": "h4"})).await?;
    ensure!(stage.is_free("s/2").await? && !stage.is_free("s/1").await?);
    stage.driver.ask(json!({"op": "release", "lease": session})).await?;
    assert_eq!(stage.state_of("h2").await?["state"], "lost");
    ensure!(stage.is_free("s/0").await? && stage.is_free("s/1").await?);
    let late =
        stage.driver.refused(json!({"op": "acquire", "session": session, "lock": "s/9"})).await?;
    assert!(late["kind"] == "lease_lost" || late["kind"] == "bug", "{late}");
    Ok(())
}

pub(crate) async fn a_deadlock_is_refused_with_its_cycle(stage: Stage) -> Result<()> {
    stage.connect().await?;
    stage.acquire(json!({"lock": "x", "owner": "a"})).await?;
    stage.acquire(json!({"lock": "y", "owner": "b"})).await?;
    let waits = json!({"op": "acquire", "lock": "y", "owner": "a", "wait_ms": null});
    let _waiting = stage.driver.send(waits)?;
    stage.until_waiters("y", 1).await?;
    let asked = json!({"op": "acquire", "lock": "x", "owner": "b", "wait_ms": 10_000});
    let refused = stage.driver.refused(asked).await?;
    assert_eq!(
        (&refused["kind"], &refused["outcome"]),
        (&"deadlock".into(), &"not_applied".into())
    );
    assert_eq!(refused["cycle"].as_array().map(Vec::len), Some(2), "{refused}");
    Ok(())
}

pub(crate) async fn retries_are_bounded(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let lease = stage.other.lock("a").acquire().await?;
    let asked = json!({"op": "acquire", "lock": "a", "attempts": 3});
    assert_eq!(stage.driver.refused(asked.clone()).await?["kind"], "held");
    lease.release().await?;
    stage.driver.ask(asked).await?;
    let wrong = json!({"op": "acquire", "lock": "a//b", "attempts": 1000});
    assert_eq!(stage.driver.refused(wrong).await?["code"], "invalid_lock_name");
    Ok(())
}

pub(crate) async fn a_release_says_what_happened(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 30_000})).await?;
    let reason =
        leasehold_client::wire::BreakRequest { reason: "a test".into(), ..Default::default() };
    stage.other.api().break_lock("a", &reason).await?;
    let refused = stage.driver.refused(json!({"op": "release", "lease": lease})).await?;
    assert_eq!((&refused["kind"], &refused["by"]), (&"lease_lost".into(), &"server".into()));
    // The same when it was told before.
    let lease = stage.acquire(json!({"lock": "c", "ttl_ms": 30_000})).await?;
    stage.other.api().break_lock("c", &reason).await?;
    stage.driver.ask(json!({"op": "renew", "lease": lease})).await?;
    stage.driver.event(json!({"event": "lost", "lease": lease, "by": "server"}), LONG).await?;
    let refused = stage.driver.refused(json!({"op": "release", "lease": lease})).await?;
    assert_eq!((&refused["kind"], &refused["by"]), (&"lease_lost".into(), &"server".into()));
    let lease = stage.acquire(json!({"lock": "b", "ttl_ms": 30_000})).await?;
    stage.other.api().break_lock("b", &reason).await?;
    stage.driver.ask(json!({"op": "release_once", "lease": lease})).await?;
    stage.driver.ask(json!({"op": "release_once", "lease": lease})).await?;
    Ok(())
}

pub(crate) async fn a_lease_without_heartbeats_is_lost_by_the_clock(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let asked = json!({"lock": "a", "ttl_ms": 1000, "heartbeat": false});
    let lease = stage.acquire(asked.clone()).await?;
    let jeopardy = json!({"event": "jeopardy", "lease": lease});
    stage.driver.event(jeopardy, LONG).await?;
    let refused = stage.driver.refused(json!({"op": "check", "lease": lease})).await?;
    assert_eq!(refused["kind"], "lease_lost", "{refused}");
    let (_, lost) = stage.driver.event(json!({"event": "lost", "lease": lease}), LONG).await?;
    assert_eq!(lost["by"], "lapse");
    stage.until_free("a", LONG).await?;
    let kept = stage.acquire(asked).await?;
    stage.driver.ask(json!({"op": "start_heartbeat", "lease": kept})).await?;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    stage.driver.ask(json!({"op": "check", "lease": kept})).await?;
    Ok(())
}

pub(crate) async fn fences_turn_stale_tokens_away(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let ask = |lock: &str| json!({"op": "acquire", "lock": lock});
    let one = stage.driver.ask(ask("a")).await?["token"].clone();
    let two = stage.driver.ask(ask("b")).await?["token"].clone();
    let show = |token: &Value| json!({"op": "fence", "fence": "disk", "token": token});
    assert_eq!(stage.driver.ask(show(&one)).await?["high_water"], one);
    assert_eq!(stage.driver.ask(show(&two)).await?["high_water"], two);
    let stale = stage.driver.refused(show(&one)).await?;
    assert_eq!((&stale["kind"], &stale["code"]), (&"stale_fence".into(), &"stale_fence".into()));
    Ok(())
}

pub(crate) async fn leaders_follow_each_other(stage: Stage) -> Result<()> {
    stage.connect().await?;
    stage.driver.ask(json!({"op": "observe", "lock": "cron"})).await?;
    let leads = |owner: Value| json!({"event": "leader", "owner": owner});
    stage.driver.event(leads(Value::Null), LONG).await?;
    let campaign = |owner: &str, value: &str| json!({"op": "campaign", "lock": "cron", "owner": owner, "value": value});
    let first = stage.driver.ask(campaign("one", "10.0.0.7:9000")).await?;
    let (_, told) = stage.driver.event(leads("one".into()), LONG).await?;
    assert_eq!(told["value"], "10.0.0.7:9000");
    let second = stage.driver.send(campaign("two", "10.0.0.8:9000"))?;
    stage.until_waiters("cron", 1).await?;
    stage.driver.ask(json!({"op": "release", "lease": first["lease"]})).await?;
    second.ok().await?;
    let (_, told) = stage.driver.event(leads("two".into()), LONG).await?;
    assert_eq!(told["value"], "10.0.0.8:9000");
    Ok(())
}

pub(crate) async fn everything_is_given_back_on_close(stage: Stage) -> Result<()> {
    stage.connect().await?;
    stage.acquire(json!({"lock": "a", "ttl_ms": 60_000})).await?;
    let session = stage.driver.ask(json!({"op": "session", "ttl_ms": 60_000})).await?;
    let under = json!({"op": "acquire", "session": session["lease"], "lock": "b"});
    stage.driver.ask(under).await?;
    let held = stage.other.lock("c").acquire().await?;
    let asked = json!({"op": "acquire", "lock": "c", "wait_ms": null, "owner": "waits"});
    let waiting = stage.driver.send(asked)?;
    stage.until_waiters("c", 1).await?;
    stage.driver.ask(json!({"op": "close"})).await?;
    ensure!(stage.is_free("a").await? && stage.is_free("b").await?, "it was closed before");
    assert_eq!(waiting.err().await?["kind"], "closed");
    stage.until_waiters("c", 0).await?;
    held.release().await?;
    ensure!(stage.is_free("c").await?);
    let sessions = stage.other.api().list_sessions(None, None).await?.sessions;
    ensure!(sessions.is_empty(), "{sessions:?}");
    Ok(())
}

pub(crate) async fn a_dropped_guard_is_given_back(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 60_000})).await?;
    stage.driver.ask(json!({"op": "drop", "lease": lease})).await?;
    stage.until_free("a", LONG).await
}

pub(crate) async fn a_canceled_wait_leaves_the_queue(stage: Stage) -> Result<()> {
    if !stage.driver.can("cancel") {
        return Ok(());
    }
    stage.connect().await?;
    let lease = stage.other.lock("a").acquire().await?;
    let asked = json!({"op": "acquire", "lock": "a", "owner": "two", "wait_ms": null});
    let waiting = stage.driver.send(asked)?;
    stage.until_waiters("a", 1).await?;
    stage.driver.ask(json!({"op": "cancel", "of": waiting.id})).await?;
    assert_eq!(waiting.err().await?["kind"], "cancelled");
    stage.until_waiters("a", 0).await?;
    lease.release().await?;
    // It finds out whether it was granted, which may come about right then, and gives it back.
    stage.until_free("a", LONG).await
}

pub(crate) async fn a_lease_that_others_wait_for_is_wanted(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 60_000})).await?;
    let wanted = stage.driver.send(json!({"op": "wanted", "lease": lease}))?;
    let other = stage.other.clone();
    let waiting = tokio::spawn(async move { other.lock("a").wait(LONG).acquire().await });
    wanted.ok().await?;
    // Those who came before are seen as well.
    stage.driver.ask(json!({"op": "wanted", "lease": lease})).await?;
    stage.driver.ask(json!({"op": "release", "lease": lease})).await?;
    waiting.await??.release().await?;
    Ok(())
}

pub(crate) async fn a_session_hears_that_others_wait(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let session = stage.driver.ask(json!({"op": "session", "ttl_ms": 60_000})).await?;
    let session = session["lease"].clone();
    let line = json!({"op": "acquire", "session": session, "lock": "under"});
    let under = stage.driver.ask(line).await?;
    let wanted = stage.driver.send(json!({"op": "wanted", "lease": session}))?;
    let other = stage.other.clone();
    let waiting = tokio::spawn(async move { other.lock("under").wait(LONG).acquire().await });
    wanted.ok().await?;
    stage.driver.ask(json!({"op": "release", "lease": under["lease"]})).await?;
    waiting.await??.release().await?;
    stage.driver.ask(json!({"op": "check", "lease": session})).await.map(drop)
}

pub(crate) async fn who_would_wait_for_itself_is_refused(stage: Stage) -> Result<()> {
    stage.connect().await?;
    stage.acquire(json!({"lock": "a", "owner": "one"})).await?;
    let again = json!({"op": "acquire", "lock": "a", "owner": "one", "wait_ms": null});
    let refused = stage.driver.refused(again).await?;
    assert_eq!(refused["kind"], "deadlock", "{refused}");
    assert_eq!(refused["cycle"], json!([["one", "a", "one"]]), "{refused}");
    Ok(())
}

pub(crate) async fn many_workers_share_a_client(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let line = |worker: u32| json!({"op": "acquire", "lock": "a", "owner": format!("w{worker}"), "wait_ms": null});
    let mut waiting = Vec::new();
    for worker in 0..12 {
        waiting.push(stage.driver.send(line(worker))?);
    }
    let mut tokens = Vec::new();
    // Whoever is granted first gives way to the next: one of them answers at a time.
    let mut ends = tokio::task::JoinSet::new();
    for pending in waiting {
        ends.spawn(pending.ok());
    }
    while let Some(held) = ends.join_next().await {
        let held = held??;
        ensure!(stage.other.api().get("a").await?.holders.len() == 1);
        tokens.push(held["token"].as_u64());
        stage.driver.ask(json!({"op": "release", "lease": held["lease"]})).await?;
    }
    ensure!(tokens.len() == 12 && tokens.is_sorted(), "{tokens:?}");
    ensure!(stage.is_free("a").await?);
    Ok(())
}

pub(crate) async fn the_next_server_is_asked(stage: Stage) -> Result<()> {
    stage.connect_to(&format!("http://127.0.0.1:1,{}", stage.url())).await?;
    let lease = stage.acquire(json!({"lock": "a"})).await?;
    stage.driver.ask(json!({"op": "release", "lease": lease})).await.map(drop)
}

pub(crate) async fn no_connection_is_left_after_close(stage: Stage) -> Result<()> {
    let proxy = stage.connect_by_proxy().await?;
    stage.acquire(json!({"lock": "a", "ttl_ms": 60_000})).await?;
    stage.driver.ask(json!({"op": "session", "ttl_ms": 60_000})).await?;
    stage.driver.ask(json!({"op": "watch", "prefix": "a"})).await?;
    ensure!(proxy.open() > 0, "nothing goes through the proxy");
    stage.driver.ask(json!({"op": "close"})).await?;
    stage.until(LONG, "no connection stands", async || Ok(proxy.open() == 0)).await?;
    let closed = stage.driver.refused(json!({"op": "acquire", "lock": "b"})).await?;
    assert_eq!((&closed["kind"], &closed["outcome"]), (&"closed".into(), &"not_applied".into()));
    Ok(())
}

pub(crate) async fn low_level_calls_answer_as_the_interface_does(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let call = |method: &str, path: &str, body: Value| json!({"op": "api", "method": method, "path": path, "body": body});
    let body = json!({"owner_id": "tool", "ttl_ms": 30_000});
    let granted =
        stage.driver.ask(call("POST", "/v1/locks/t/acquire", body)).await?["body"].clone();
    assert_eq!(granted["owner_id"], "tool");
    let read = json!({"op": "api", "method": "GET", "path": "/v1/locks/t"});
    let lock = stage.driver.ask(read).await?["body"].clone();
    assert_eq!(lock["holders"][0]["owner_id"], "tool");
    let wrong = json!({"owner_id": "x", "lease_id": granted["lease_id"], "fencing_token": 1});
    let refused = stage.driver.refused(call("POST", "/v1/locks/t/release", wrong)).await?;
    assert_eq!((&refused["kind"], &refused["code"]), (&"refused".into(), &"not_holder".into()));
    let body = json!({"owner_id": "tool", "ttl_ms": 30_000});
    let session = stage.driver.ask(call("POST", "/v1/sessions", body)).await?["body"].clone();
    let body = json!({"owner_id": "tool", "session_id": session["session_id"]});
    let bytes = |verb: &str, range: &str| {
        call("POST", &format!("/v1/locks/inode:9@{range}/{verb}"), body.clone())
    };
    stage.driver.ask(bytes("acquire", "0..100")).await?;
    stage.driver.ask(bytes("unlock", "40..60")).await?;
    stage.other.lock("inode:9@40..60").acquire().await?.release().await?;
    ensure!(!stage.is_free("inode:9@0..40").await?, "only what was named is given back");
    Ok(())
}
