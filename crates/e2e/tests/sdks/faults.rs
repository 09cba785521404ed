//! What an SDK does when the network, the server, the clock or its own process fail it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_client::wire::BreakRequest;
use leasehold_e2e::proxy::{Network, Proxy};
use serde_json::{Value, json};

use super::harness::{LATE_MAX, LONG, Noise, Stage, Store, millis};

pub(crate) const STORE: Store = Store::Sqlite;

const TTL: Duration = Duration::from_secs(3);
const TTL_MS: u64 = 3000;

pub(crate) async fn a_lease_outlives_its_ttl_by_heartbeats(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 600})).await?;
    tokio::time::sleep(Duration::from_millis(2000)).await;
    stage.driver.ask(json!({"op": "check", "lease": lease})).await?;
    assert_eq!(stage.driver.ask(json!({"op": "verify", "lease": lease})).await?["valid"], true);
    Ok(())
}

pub(crate) async fn a_lease_counts_from_before_it_was_asked_for(stage: Stage) -> Result<()> {
    let proxy = stage.connect_by_proxy().await?;
    stage.acquire(json!({"lock": "warm"})).await?;
    let asked = Instant::now();
    proxy.set(Network::Stalls);
    let line = json!({"op": "acquire", "lock": "a", "ttl_ms": 10_000, "heartbeat": false});
    let waiting = stage.driver.send(line)?;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let slow = asked.elapsed();
    proxy.set(Network::Works);
    let held = waiting.ok().await?;
    let lease = held["lease"].as_str().context("a lease has a name")?;
    let left = millis(&stage.state_of(lease).await?["time_left_ms"]);
    // It was sent a little after we asked for it.
    let most = 10_000.0 - slow.as_secs_f64() * 1000.0 + 300.0;
    ensure!(left <= most, "{left} ms are believed to be left, though the answer took {slow:?}");
    Ok(())
}

pub(crate) async fn work_is_told_to_stop_at_half_of_the_ttl(stage: Stage) -> Result<()> {
    let proxy = stage.connect_by_proxy().await?;
    for network in [Network::Stalls, Network::Resets, Network::DeafensClient] {
        proxy.set(Network::Works);
        let noise = Noise::listen();
        let lease = stage.acquire(json!({"lock": "a", "ttl_ms": TTL_MS})).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let cut = Instant::now();
        proxy.set(network);
        let jeopardy = json!({"event": "jeopardy", "lease": lease});
        let (told, _) = stage.driver.event(jeopardy, LONG).await?;
        let (took, slack) = (told.saturating_duration_since(cut), noise.allowance());
        ensure!(took <= TTL / 2 + LATE_MAX + slack, "{network:?}: told {took:?} after the cut");
        ensure!(took + slack >= TTL / 6, "{network:?}: told already {took:?} after the cut");
        let refused = stage.driver.refused(json!({"op": "check", "lease": lease})).await?;
        assert_eq!(refused["kind"], "lease_lost", "{refused}");
        let (_, lost) = stage.driver.event(json!({"event": "lost", "lease": lease}), LONG).await?;
        assert_eq!(lost["by"], "lapse", "{network:?}");
        stage.until_free("a", LONG).await?;
    }
    Ok(())
}

pub(crate) async fn a_body_that_outlives_its_lease_ends_with_its_loss(stage: Stage) -> Result<()> {
    let proxy = stage.connect_by_proxy().await?;
    let noise = Noise::listen();
    let line = json!({"op": "run", "lock": "a", "ttl_ms": TTL_MS, "sleep_ms": 5000});
    let running = stage.driver.send(line)?;
    stage.driver.event(json!({"event": "running"}), LONG).await?;
    tokio::time::sleep(Duration::from_millis(200)).await;
    let cut = Instant::now();
    proxy.set(Network::Stalls);
    if stage.driver.can("cancels_work") {
        let (stopped, _) = stage.driver.event(json!({"event": "stopped"}), LONG).await?;
        let took = stopped.saturating_duration_since(cut);
        ensure!(took <= TTL / 2 + LATE_MAX + noise.allowance(), "stopped {took:?} after the cut");
    }
    let error = running.err().await?;
    assert_eq!(error["kind"], "lease_lost", "{error}");
    // Without a fault the same body ends well.
    proxy.set(Network::Works);
    stage.until_free("a", LONG).await?;
    let line = json!({"op": "run", "lock": "a", "ttl_ms": TTL_MS, "sleep_ms": 100});
    stage.driver.ask(line).await?;
    ensure!(stage.is_free("a").await?, "it was not given back");
    Ok(())
}

pub(crate) async fn a_broken_lock_is_lost_with_the_next_heartbeat(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 6000})).await?;
    let noise = Noise::listen();
    let since = Instant::now();
    let reason = BreakRequest { reason: "a test".into(), ..BreakRequest::default() };
    stage.other.api().break_lock("a", &reason).await?;
    let (told, lost) = stage.driver.event(json!({"event": "lost", "lease": lease}), LONG).await?;
    assert_eq!(lost["by"], "server");
    let took = told.saturating_duration_since(since);
    ensure!(took <= Duration::from_secs(2) + LATE_MAX + noise.allowance(), "told after {took:?}");
    let refused = stage.driver.refused(json!({"op": "check", "lease": lease})).await?;
    assert_eq!((&refused["kind"], &refused["by"]), (&"lease_lost".into(), &"server".into()));
    Ok(())
}

pub(crate) async fn who_slept_through_the_ttl_knows_at_once(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 30_000})).await?;
    stage.driver.ask(json!({"op": "check", "lease": lease})).await?;
    stage.driver.ask(json!({"op": "advance_clock", "ms": 16_000})).await?;
    let first = stage.driver.send(json!({"op": "check", "lease": lease}))?.came().await?;
    // Either it was in time to renew, or the work must stop: nothing in between.
    if let Err(refused) = first {
        assert_eq!(refused["by"], "jeopardy", "{refused}");
    }
    stage.driver.ask(json!({"op": "advance_clock", "ms": 60_000})).await?;
    let refused = stage.driver.refused(json!({"op": "check", "lease": lease})).await?;
    assert_eq!((&refused["kind"], &refused["by"]), (&"lease_lost".into(), &"lapse".into()));
    stage.driver.event(json!({"event": "lost", "lease": lease}), LONG).await?;
    Ok(())
}

pub(crate) async fn a_stopped_process_believes_in_nothing_when_it_goes_on(
    stage: Stage,
) -> Result<()> {
    stage.connect().await?;
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 1000})).await?;
    let running = json!({"op": "run", "lock": "b", "ttl_ms": 1000, "sleep_ms": 1500});
    let running = stage.driver.send(running)?;
    stage.driver.event(json!({"event": "running"}), LONG).await?;
    stage.driver.pause()?;
    // Somebody else has both meanwhile.
    let next = stage.other.lock("a").owner("next").wait(LONG).acquire().await?;
    stage.other.lock("b").owner("next").wait(LONG).acquire().await?.release().await?;
    let check = stage.driver.send(json!({"op": "check", "lease": lease}))?;
    stage.driver.go_on()?;
    let error = check.err().await?;
    assert_eq!(error["kind"], "lease_lost", "{error}");
    let error = running.err().await?;
    assert_eq!(error["kind"], "lease_lost", "{error}");
    ensure!(next.is_valid());
    Ok(())
}

pub(crate) async fn a_program_that_blocks_loses_no_lock(stage: Stage) -> Result<()> {
    if !stage.driver.can("keeps_while_blocked") {
        return Ok(());
    }
    stage.connect().await?;
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 1000})).await?;
    stage.driver.ask(json!({"op": "block", "ms": 2500})).await?;
    stage.driver.ask(json!({"op": "check", "lease": lease})).await?;
    assert_eq!(stage.driver.ask(json!({"op": "verify", "lease": lease})).await?["valid"], true);
    Ok(())
}

pub(crate) async fn a_lease_survives_a_restart_of_the_server(mut stage: Stage) -> Result<()> {
    stage.connect().await?;
    // Long enough that a slow machine starts a server in a third of it.
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 20_000})).await?;
    stage.server.kill()?;
    stage.server.start_again().await?;
    stage.driver.ask(json!({"op": "renew", "lease": lease})).await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    stage.driver.ask(json!({"op": "check", "lease": lease})).await?;
    stage.driver.ask(json!({"op": "release", "lease": lease})).await?;
    ensure!(stage.is_free("a").await?);
    Ok(())
}

pub(crate) async fn a_wait_survives_a_restart_of_the_server(mut stage: Stage) -> Result<()> {
    stage.connect().await?;
    let held = stage.other.lock("a").owner("other").ttl(LONG).acquire().await?;
    let line = json!({"op": "acquire", "lock": "a", "owner": "two", "wait_ms": null});
    let waiting = stage.driver.send(line)?;
    stage.until_waiters("a", 1).await?;
    stage.server.kill()?;
    stage.server.start_again().await?;
    stage.until_waiters("a", 1).await?;
    held.release().await?;
    waiting.ok().await?;
    Ok(())
}

pub(crate) async fn a_grant_whose_answer_was_lost_is_got_again(stage: Stage) -> Result<()> {
    let proxy = stage.connect_by_proxy().await?;
    stage.acquire(json!({"lock": "warm"})).await?;
    proxy.set(Network::DeafensClient);
    let line = json!({"op": "acquire", "lock": "a", "ttl_ms": 60_000, "wait_ms": 60_000});
    let waiting = stage.driver.send(line)?;
    stage.until(LONG, "it is granted", async || Ok(!stage.is_free("a").await?)).await?;
    proxy.set(Network::Resets);
    tokio::time::sleep(Duration::from_millis(50)).await;
    proxy.set(Network::Works);
    let held = tokio::time::timeout(LONG, waiting.ok()).await.context("it waits for itself")??;
    assert_eq!(held["replayed"], true, "{held}");
    let lock = stage.other.api().get("a").await?;
    assert_eq!((lock.holders.len(), lock.waiters_total), (1, 0));
    assert_eq!(held["token"], lock.holders[0].fencing_token);
    Ok(())
}

pub(crate) async fn a_place_in_line_outlives_its_connection(stage: Stage) -> Result<()> {
    let proxy = stage.connect_by_proxy().await?;
    let held = stage.other.lock("a").owner("other").acquire().await?;
    let line = json!({"op": "acquire", "lock": "a", "owner": "first", "wait_ms": null});
    let first = stage.driver.send(line)?;
    stage.until_waiters("a", 1).await?;
    proxy.set(Network::Resets);
    stage.until_waiters("a", 0).await?;
    // Somebody comes while it is away, and stands behind it all the same.
    let second = stage.second().await?;
    let line = json!({"op": "acquire", "lock": "a", "owner": "second", "wait_ms": null});
    let behind = second.send(line)?;
    stage.until_waiters("a", 1).await?;
    proxy.set(Network::Works);
    stage.until_waiters("a", 2).await?;
    held.release().await?;
    let first = first.ok().await?;
    stage.driver.ask(json!({"op": "release", "lease": first["lease"]})).await?;
    let behind = behind.ok().await?;
    ensure!(first["token"].as_u64() < behind["token"].as_u64(), "{first} {behind}");
    Ok(())
}

pub(crate) async fn unreachable_is_not_refused(mut stage: Stage) -> Result<()> {
    let line = json!({"op": "connect", "servers": stage.url(), "patience_ms": 800});
    stage.driver.ask(line).await?;
    stage.acquire(json!({"lock": "warm"})).await?;
    stage.server.kill()?;
    // Nothing can be sent: nothing has happened.
    let fresh = stage.second_to(&stage.url(), 800).await?;
    let error = fresh.refused(json!({"op": "acquire", "lock": "a"})).await?;
    assert_eq!((&error["kind"], &error["outcome"]), (&"unreachable".into(), &"not_applied".into()));
    assert_eq!(error["code"], Value::Null);
    let wrong = json!({"op": "connect", "servers": "ftp://nowhere"});
    assert_eq!(fresh.refused(wrong).await?["kind"], "usage");
    Ok(())
}

pub(crate) async fn what_may_have_been_granted_is_given_back(stage: Stage) -> Result<()> {
    let proxy = stage.connect_by_proxy().await?;
    stage.acquire(json!({"lock": "warm", "ttl_ms": 1000, "heartbeat": false})).await?;
    proxy.set(Network::DeafensClient);
    let line = json!({"op": "acquire", "lock": "a", "ttl_ms": 600_000});
    let error = stage.driver.refused(line).await?;
    assert_eq!((&error["kind"], &error["outcome"]), (&"unreachable".into(), &"unknown".into()));
    ensure!(!stage.is_free("a").await?, "the request has arrived");
    // What was swallowed never comes: a connection on which something is missing is broken.
    proxy.set(Network::Resets);
    tokio::time::sleep(Duration::from_millis(50)).await;
    proxy.set(Network::Works);
    stage.until_free("a", LONG * 2).await
}

pub(crate) async fn a_killed_holder_is_outlived_by_its_ttl_alone(stage: Stage) -> Result<()> {
    stage.connect().await?;
    let mut second = stage.second().await?;
    let line = json!({"op": "acquire", "lock": "a", "owner": "killed", "ttl_ms": 2000});
    let held = second.ask(line).await?;
    let line = json!({"op": "acquire", "lock": "a", "owner": "next", "wait_ms": 30_000});
    let waiting = stage.driver.send(line)?;
    stage.until_waiters("a", 1).await?;
    let killed = Instant::now();
    second.kill()?;
    let next = waiting.ok().await?;
    ensure!(killed.elapsed() >= Duration::from_millis(1000), "after {:?}", killed.elapsed());
    ensure!(next["token"].as_u64() > held["token"].as_u64());
    Ok(())
}

pub(crate) async fn watchers_miss_nothing(mut stage: Stage) -> Result<()> {
    stage.connect().await?;
    stage.driver.ask(json!({"op": "watch", "prefix": "w/"})).await?;
    stage.other.lock("elsewhere").acquire().await?.release().await?;
    for round in 0..3 {
        let lock = format!("w/{round}");
        stage.other.lock(&lock).acquire().await?.release().await?;
        for kind in ["granted", "ended"] {
            let news = json!({"event": "news", "type": kind, "lock": lock});
            stage.driver.event(news, LONG).await?;
        }
        stage.server.kill()?;
        stage.server.start_again().await?;
    }
    ensure!(stage.driver.take(&json!({"event": "news", "lock": "elsewhere"})).is_none());
    Ok(())
}

pub(crate) async fn a_watcher_that_missed_events_is_told(stage: Stage) -> Result<()> {
    stage.connect().await?;
    // An epoch that this server has never had.
    let line = json!({"op": "watch", "prefix": "w/", "after": "77-5"});
    stage.driver.ask(line).await?;
    stage.driver.event(json!({"event": "news", "type": "resync"}), LONG).await?;
    stage.other.lock("w/a").acquire().await?.release().await?;
    let news = json!({"event": "news", "type": "granted", "lock": "w/a"});
    stage.driver.event(news, LONG).await?;
    Ok(())
}

pub(crate) async fn work_under_a_session_is_told_to_stop_with_it(stage: Stage) -> Result<()> {
    let proxy = stage.connect_by_proxy().await?;
    let noise = Noise::listen();
    let session = stage.driver.ask(json!({"op": "session", "ttl_ms": TTL_MS})).await?;
    let session = session["lease"].clone();
    let line = json!({"op": "acquire", "session": session, "lock": "a"});
    let under = stage.driver.ask(line).await?["lease"].clone();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let cut = Instant::now();
    proxy.set(Network::Stalls);
    for lease in [&under, &session] {
        let jeopardy = json!({"event": "jeopardy", "lease": lease});
        let (told, _) = stage.driver.event(jeopardy, LONG).await?;
        let took = told.saturating_duration_since(cut);
        ensure!(took <= TTL / 2 + LATE_MAX + noise.allowance(), "{lease}: told after {took:?}");
        let refused = stage.driver.refused(json!({"op": "check", "lease": lease})).await?;
        assert_eq!((&refused["kind"], &refused["by"]), (&"lease_lost".into(), &"jeopardy".into()));
    }
    for lease in [&under, &session] {
        stage.driver.event(json!({"event": "lost", "lease": lease, "by": "lapse"}), LONG).await?;
    }
    proxy.set(Network::Works);
    stage.until_free("a", LONG).await
}

pub(crate) async fn a_session_survives_a_restart_of_the_server(mut stage: Stage) -> Result<()> {
    stage.connect().await?;
    let session = stage.driver.ask(json!({"op": "session", "ttl_ms": 20_000})).await?;
    let session = session["lease"].clone();
    for lock in ["a", "b"] {
        stage.driver.ask(json!({"op": "acquire", "session": session, "lock": lock})).await?;
    }
    stage.server.kill()?;
    stage.server.start_again().await?;
    stage.driver.ask(json!({"op": "renew", "lease": session})).await?;
    stage.driver.ask(json!({"op": "acquire", "session": session, "lock": "c"})).await?;
    stage.driver.ask(json!({"op": "check", "lease": session})).await?;
    stage.driver.ask(json!({"op": "release", "lease": session})).await?;
    for lock in ["a", "b", "c"] {
        ensure!(stage.is_free(lock).await?, "{lock}");
    }
    Ok(())
}

pub(crate) async fn a_session_whose_answer_was_lost_is_opened_once(stage: Stage) -> Result<()> {
    let proxy = stage.connect_by_proxy().await?;
    stage.acquire(json!({"lock": "warm"})).await?;
    proxy.set(Network::DeafensClient);
    let opening = stage.driver.send(json!({"op": "session", "ttl_ms": 60_000}))?;
    let sessions =
        async || anyhow::Ok(stage.other.api().list_sessions(None, None).await?.sessions.len());
    stage.until(LONG, "it is opened", async || Ok(sessions().await? == 1)).await?;
    proxy.set(Network::Resets);
    tokio::time::sleep(Duration::from_millis(50)).await;
    proxy.set(Network::Works);
    let opened = opening.ok().await?;
    assert_eq!(opened["replayed"], true, "{opened}");
    assert_eq!(sessions().await?, 1);
    stage.driver.ask(json!({"op": "release", "lease": opened["lease"]})).await?;
    assert_eq!(sessions().await?, 0);
    Ok(())
}

pub(crate) async fn heartbeats_every_sixth_outlast_longer_outages(stage: Stage) -> Result<()> {
    let proxy = Proxy::before(stage.server.address()).await?;
    let servers = format!("http://{}", proxy.address());
    let line =
        json!({"op": "connect", "servers": servers, "patience_ms": 5000, "heartbeat": "ttl/6"});
    stage.driver.ask(line).await?;
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 12_000})).await?;
    // Right before a heartbeat is due, which is when an outage costs most.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    proxy.set(Network::Resets);
    // Of ttl/9, heartbeats every third are only sure to survive 1.3 s, and those every sixth 3 s.
    tokio::time::sleep(Duration::from_millis(2200)).await;
    proxy.set(Network::Works);
    tokio::time::sleep(Duration::from_millis(2500)).await;
    // Long enough after the first grant that it has been renewed since.
    let left = millis(&stage.state_of(&lease).await?["time_left_ms"]);
    ensure!(left > 7000.0, "it was not renewed: {left} ms are left");
    stage.driver.ask(json!({"op": "check", "lease": lease})).await?;
    ensure!(stage.driver.take(&json!({"event": "jeopardy"})).is_none());
    Ok(())
}

pub(crate) async fn a_fork_holds_nothing(stage: Stage) -> Result<()> {
    if !stage.driver.can("fork") {
        return Ok(());
    }
    stage.connect().await?;
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 1000})).await?;
    let child = stage.driver.ask(json!({"op": "fork", "lease": lease})).await?;
    assert_eq!(child["state"], "lost");
    assert_eq!(
        (&child["check"]["kind"], &child["check"]["by"]),
        (&"lease_lost".into(), &"fork".into())
    );
    assert_eq!(child["client"], "closed");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    stage.driver.ask(json!({"op": "check", "lease": lease})).await?;
    assert_eq!(stage.driver.ask(json!({"op": "verify", "lease": lease})).await?["valid"], true);
    Ok(())
}
