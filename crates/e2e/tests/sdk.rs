//! What the SDK promises, over each of its transports, against the real server.

use std::time::{Duration, Instant};

use anyhow::Result;
use leasehold_client::wire::{BreakRequest, Claim, Code, Mode, News};
use leasehold_client::{Client, Error, ListQuery, LostBy, Retry, State, Transport, blocking};
use leasehold_e2e::proxy::{Network, Proxy};
use leasehold_e2e::server::Server;

const LONG: Duration = Duration::from_secs(30);

/// One server for the tests that do not disturb each other; each uses names of its own.
async fn client(server: &Server, transport: Transport) -> Result<Client> {
    let url = format!("http://{}", server.address());
    Ok(Client::builder(&url)
        .transport(transport)
        .patience(Duration::from_secs(5))
        .connect()
        .await?)
}

macro_rules! over_both_transports {
    ($($test:ident),* $(,)?) => {
        mod http {
            $(#[tokio::test]
            async fn $test() -> anyhow::Result<()> {
                super::$test(leasehold_client::Transport::Http).await
            })*
        }
        mod stream {
            $(#[tokio::test]
            async fn $test() -> anyhow::Result<()> {
                super::$test(leasehold_client::Transport::Stream).await
            })*
        }
    };
}

over_both_transports!(
    a_lock_is_held_by_one_at_a_time,
    who_waits_is_granted_when_it_comes_free,
    many_workers_share_a_client,
    shared_and_permits_and_ranges_and_paths,
    a_set_is_all_or_nothing,
    one_session_keeps_many_locks,
    a_session_whose_answer_was_lost_is_opened_once,
    a_set_of_bytes_under_a_session_is_free_as_soon_as_it_is_released,
    holders_hear_that_somebody_waits,
    a_session_hears_that_somebody_waits,
    a_dropped_guard_is_given_back_also_outside_a_runtime,
    a_dropped_future_leaves_the_queue_and_no_lock,
    a_deadlock_is_refused_with_its_circle,
    a_broken_lock_is_lost_at_once,
    retries_are_bounded,
    run_releases_and_stops_the_work_in_time,
    a_lease_outlives_its_ttl_by_heartbeats,
    a_lease_survives_a_restart_of_the_server,
    an_acquire_survives_a_restart_of_the_server,
    leaders_follow_each_other,
    watchers_miss_nothing,
    fences_turn_stale_tokens_away,
    unreachable_is_not_refused,
    everything_is_given_back_on_close,
    a_release_in_the_gap_wakes_the_waiter,
    the_blocking_client_does_the_same,
);

async fn a_lock_is_held_by_one_at_a_time(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let lease = client.lock("a/b").owner("one").ttl(LONG).acquire().await?;
    assert_eq!(lease.state(), State::Valid);
    assert_eq!(lease.lock(), "a/b");
    assert!(lease.time_to_work() > LONG / 3 && lease.time_left() <= LONG);
    assert!(client.lock("a/b").owner("two").try_acquire().await?.is_none());
    let refused = client.lock("a/b").owner("two").acquire().await.expect_err("it cannot be done");
    assert_eq!(refused.code(), Some(Code::LockHeld));
    assert_eq!(
        refused.problem().expect("a refusal says why").current_owner_id.as_deref(),
        Some("one")
    );
    assert!(refused.recommended_retry().is_some());
    let first = lease.fencing_token();
    let handle = lease.handle().clone();
    lease.release().await?;
    assert_eq!(handle.state(), State::Lost);
    assert_eq!(handle.lost_by(), LostBy::Released);
    let next = client.lock("a/b").owner("two").try_acquire().await?.expect("it is free");
    assert!(next.fencing_token() > first);
    let held = client.api().get("a/b").await?;
    assert_eq!(held.holders[0].owner_id, "two");
    Ok(())
}

async fn who_waits_is_granted_when_it_comes_free(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let lease = client.lock("a").acquire().await?;
    let waiting = tokio::spawn(client.lock("a").owner("two").wait(LONG).acquire());
    until_waiters(&client, "a", 1).await?;
    let short = client
        .lock("a")
        .wait(Duration::from_millis(100))
        .acquire()
        .await
        .expect_err("it cannot be done");
    assert_eq!(short.code(), Some(Code::LockHeld));
    lease.release().await?;
    let next = waiting.await??;
    assert!(next.waited() >= Duration::from_millis(100));
    next.release().await?;
    Ok(())
}

async fn until_waiters(client: &Client, lock: &str, count: u64) -> Result<()> {
    while client.api().get(lock).await?.waiters_total != count {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

async fn many_workers_share_a_client(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let counter = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let mut workers = Vec::new();
    for worker in 0..16 {
        let (client, counter) = (client.clone(), counter.clone());
        workers.push(tokio::spawn(async move {
            let owner = format!("worker-{worker}");
            for _ in 0..5 {
                let lease = client.lock("hot").owner(&owner).wait(LONG).acquire().await?;
                let before = counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                assert_eq!(before, 0, "two at once");
                tokio::task::yield_now().await;
                counter.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                lease.release().await?;
            }
            Ok::<(), Error>(())
        }));
    }
    for worker in workers {
        worker.await??;
    }
    Ok(())
}

async fn shared_and_permits_and_ranges_and_paths(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let _one = client.lock("doc").shared().acquire().await?;
    let _two = client.lock("doc").mode(Mode::Shared).acquire().await?;
    assert!(client.lock("doc").try_acquire().await?.is_none());
    let _first = client.lock("pool").permits(2).acquire().await?;
    let _second = client.lock("pool").permits(2).acquire().await?;
    assert!(client.lock("pool").permits(2).try_acquire().await?.is_none());
    let mismatch = client.lock("pool").permits(3).acquire().await.expect_err("it cannot be done");
    assert_eq!(mismatch.code(), Some(Code::LimitMismatch));
    let _bytes = client.lock("inode:42@100..200").acquire().await?;
    assert!(client.lock("inode:42@150..").try_acquire().await?.is_none());
    let _rest = client.lock("inode:42@200..").acquire().await?;
    let _tree = client.lock("path:/srv/a/**").acquire().await?;
    assert!(client.lock("path:/srv/a/b").try_acquire().await?.is_none());
    assert!(client.lock("path:/srv/b").try_acquire().await?.is_some());
    let wrong = client.lock("a//b").acquire().await.expect_err("it cannot be done");
    assert_eq!(wrong.code(), Some(Code::InvalidLockName));
    Ok(())
}

async fn a_set_is_all_or_nothing(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let one = client.lock("y").acquire().await?;
    assert!(client.set(["x", "y"]).try_acquire().await?.is_none());
    assert!(client.lock("x").try_acquire().await?.is_some(), "a refused set holds nothing");
    one.release().await?;
    let claims = vec![
        Claim { lock: "x".into(), ..Claim::default() },
        Claim { lock: "y".into(), mode: Some(Mode::Shared), permits: None },
    ];
    let set = client.claims(claims).ttl(Duration::from_secs(1)).wait(LONG).acquire().await?;
    assert_eq!(set.locks().len(), 2);
    let _reader = client.lock("y").shared().acquire().await?;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(set.is_valid(), "a set is kept alive as one");
    assert!(client.lock("x").try_acquire().await?.is_none());
    set.release().await?;
    assert!(client.lock("x").try_acquire().await?.is_some());
    Ok(())
}

async fn one_session_keeps_many_locks(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let ttl = Duration::from_secs(1);
    let session = client.session().owner("boss").ttl(ttl).open().await?;
    let mut leases = Vec::new();
    for n in 0..20 {
        leases.push(session.lock(&format!("s/{n}")).acquire().await?);
    }
    tokio::time::sleep(ttl * 3 / 2).await;
    assert!(leases.iter().all(|lease| lease.is_valid()));
    let query = ListQuery { session_id: Some(session.id().into()), ..ListQuery::default() };
    assert_eq!(client.api().list(&query).await?.locks.len(), 20);
    leases.pop().expect("there are twenty").release().await?;
    assert!(client.lock("s/19").try_acquire().await?.is_some());
    let last = leases.pop().expect("there are nineteen");
    session.close().await?;
    assert_eq!(last.state(), State::Lost);
    assert!(client.lock("s/0").try_acquire().await?.is_some());
    Ok(())
}

async fn a_session_whose_answer_was_lost_is_opened_once(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let direct = client(&server, transport).await?;
    let proxy = Proxy::before(server.address()).await?;
    let url = format!("http://{}", proxy.address());
    let client = Client::builder(&url).transport(transport).connect().await?;
    proxy.set(Network::DeafensClient);
    let opening = tokio::spawn(client.session().owner("boss").ttl(LONG).open());
    let count = async || anyhow::Ok(direct.api().list_sessions(None, None).await?.sessions.len());
    while count().await? == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    proxy.set(Network::Resets);
    tokio::time::sleep(Duration::from_millis(20)).await;
    proxy.set(Network::Works);
    let session = opening.await??;
    assert!(session.is_replayed(), "it was opened before");
    assert_eq!(count().await?, 1);
    let lease = session.lock("a").acquire().await?;
    assert!(lease.is_valid());
    session.close().await?;
    assert_eq!(count().await?, 0);
    // One that nobody waits for any more is not left behind either.
    proxy.set(Network::DeafensClient);
    let opening = tokio::spawn(client.session().owner("boss").ttl(LONG).open());
    while count().await? == 0 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    opening.abort();
    proxy.set(Network::Resets);
    tokio::time::sleep(Duration::from_millis(20)).await;
    proxy.set(Network::Works);
    let since = Instant::now();
    while count().await? > 0 {
        assert!(since.elapsed() < LONG / 2, "an abandoned session stays until its ttl");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn a_set_of_bytes_under_a_session_is_free_as_soon_as_it_is_released(
    transport: Transport,
) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let session = client.session().owner("boss").ttl(LONG).open().await?;
    let free = async |locks: &[&str]| {
        for lock in locks {
            let lease = client.lock(lock).owner("other").try_acquire().await?;
            lease.expect("it is free").release().await?;
        }
        anyhow::Ok(())
    };
    // Bytes alone, and bytes that come before a name.
    let sets: [&[&str]; 2] = [
        &["inode:1@0..10", "inode:1@20..30", "inode:2"],
        &["inode:1@0..10", "inode:2@5..", "job/x", "path:/srv/a"],
    ];
    let kept = session.lock("inode:3@0..10").acquire().await?;
    for set in sets {
        let lease = session.set(set.iter().copied()).acquire().await?;
        for lock in set {
            assert!(client.lock(lock).owner("other").try_acquire().await?.is_none(), "{lock}");
        }
        lease.release().await?;
        free(set).await?;
        // The rest of the session goes on.
        assert!(kept.is_valid());
        assert!(client.lock("inode:3@5..6").owner("other").try_acquire().await?.is_none());
    }
    let dropped = session.set(["inode:4@0..10", "inode:4@20..30"]).acquire().await?;
    drop(dropped);
    for lock in ["inode:4@0..10", "inode:4@20..30"] {
        client.lock(lock).owner("other").wait(LONG).acquire().await?.release().await?;
    }
    Ok(())
}

async fn holders_hear_that_somebody_waits(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let other = self::client(&server, transport).await?;
    let wanted =
        async |lease: &leasehold_client::Lease| tokio::time::timeout(LONG, lease.wanted()).await;
    let lease = client.lock("path:/srv/a").owner("one").ttl(LONG * 10).acquire().await?;
    let alone = client.lock("job/alone").owner("one").ttl(LONG * 10).acquire().await?;
    let heard = tokio::spawn({
        let handle = lease.handle().clone();
        async move { handle.wanted().await }
    });
    // Those who wait for something else do not count, and neither do those who only try.
    assert!(other.lock("path:/srv/a").owner("two").try_acquire().await?.is_none());
    assert!(!heard.is_finished());
    let waiting = tokio::spawn(other.lock("path:/srv/**").owner("two").wait(LONG).acquire());
    tokio::time::timeout(LONG, heard).await??;
    // Also one who asks later, though nobody comes any more.
    wanted(&lease).await?;
    assert!(tokio::time::timeout(Duration::from_millis(100), alone.wanted()).await.is_err());
    assert!(lease.is_valid());
    // And one who was granted what others waited for before.
    let third = tokio::spawn(client.lock("path:/srv/b").owner("three").wait(LONG).acquire());
    until_waiters(&client, "path:/srv/b", 2).await?;
    lease.release().await?;
    let lease = waiting.await??;
    wanted(&lease).await?;
    lease.release().await?;
    third.await??.release().await?;
    Ok(())
}

async fn a_session_hears_that_somebody_waits(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let other = self::client(&server, transport).await?;
    let session = client.session().owner("boss").ttl(LONG * 10).open().await?;
    let first = session.lock("s/1").acquire().await?;
    let second = session.set(["s/2", "inode:1@0..10"]).acquire().await?;
    let of_session = leasehold_client::LeaseHandle::clone(&session);
    let heard = [of_session, second.handle().clone()]
        .map(|handle| tokio::spawn(async move { handle.wanted().await }));
    let waiting = tokio::spawn(other.lock("inode:1@5..6").wait(LONG).acquire());
    for heard in heard {
        tokio::time::timeout(LONG, heard).await??;
    }
    assert!(tokio::time::timeout(Duration::from_millis(100), first.wanted()).await.is_err());
    second.release().await?;
    waiting.await??.release().await?;
    assert!(first.is_valid() && session.is_valid());
    Ok(())
}

async fn a_dropped_guard_is_given_back_also_outside_a_runtime(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let lease = client.lock("a").acquire().await?;
    std::thread::spawn(move || drop(lease)).join().expect("dropping does not panic");
    let next = client.lock("a").owner("two").wait(LONG).acquire().await?;
    drop(next);
    client.lock("a").wait(LONG).acquire().await?.release().await?;
    Ok(())
}

async fn a_dropped_future_leaves_the_queue_and_no_lock(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let lease = client.lock("a").acquire().await?;
    let waiting = tokio::spawn(client.lock("a").owner("gone").wait_forever().acquire());
    until_waiters(&client, "a", 1).await?;
    waiting.abort();
    until_waiters(&client, "a", 0).await?;
    lease.release().await?;
    // Those that are dropped at any moment of their life leave nothing either.
    for micros in (0..3000).step_by(150) {
        let asked = client.lock("a").owner("fickle").wait(LONG).acquire();
        let _ = tokio::time::timeout(Duration::from_micros(micros), asked).await;
    }
    let lease = client.lock("a").owner("next").wait(LONG).acquire().await?;
    assert!(lease.waited() < Duration::from_secs(10));
    Ok(())
}

async fn a_deadlock_is_refused_with_its_circle(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let _a = client.lock("a").owner("one").acquire().await?;
    let _b = client.lock("b").owner("two").acquire().await?;
    let waiting = tokio::spawn(client.lock("b").owner("one").wait(LONG).acquire());
    until_waiters(&client, "b", 1).await?;
    let refused =
        client.lock("a").owner("two").wait(LONG).acquire().await.expect_err("it cannot be done");
    assert_eq!(refused.code(), Some(Code::Deadlock));
    assert_eq!(
        refused
            .problem()
            .expect("a refusal says why")
            .cycle
            .as_ref()
            .expect("a deadlock has a circle")
            .len(),
        2
    );
    waiting.abort();
    Ok(())
}

async fn a_broken_lock_is_lost_at_once(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let lease = client.lock("a").ttl(Duration::from_secs(3)).acquire().await?;
    let request = BreakRequest { reason: "stuck".into(), fencing_token: None };
    assert_eq!(client.api().break_lock("a", &request).await?.broken, 1);
    // Told by the next heartbeat, a third of the ttl later, or at once where the server can speak unasked.
    let since = Instant::now();
    let by = tokio::time::timeout(Duration::from_secs(5), lease.lost()).await?;
    assert!(matches!(by, LostBy::Server { .. }), "{by:?} after {:?}", since.elapsed());
    assert!(lease.check().is_err());
    assert!(matches!(lease.release().await, Err(Error::LeaseLost { .. })));
    Ok(())
}

async fn retries_are_bounded(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let lease = client.lock("a").acquire().await?;
    let retry = Retry { attempts: 3, pause_max: Duration::from_millis(20), ..Retry::default() };
    let refused = client.lock("a").acquire_with_retry(retry).await.expect_err("it cannot be done");
    assert_eq!(refused.code(), Some(Code::LockHeld));
    let retry = Retry { attempts: 1000, pause_max: Duration::from_millis(20), ..retry };
    let waiting = tokio::spawn(client.lock("a").acquire_with_retry(retry));
    tokio::time::sleep(Duration::from_millis(50)).await;
    lease.release().await?;
    waiting.await??.release().await?;
    Ok(())
}

async fn run_releases_and_stops_the_work_in_time(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let token = client.lock("a").run(|lease| async move { lease.fencing_token() }).await?;
    assert!(token > 0);
    assert!(client.lock("a").try_acquire().await?.is_some(), "it was given back");
    let breaker = client.clone();
    let stopped = client
        .lock("b")
        .ttl(Duration::from_secs(1))
        .run(|_| async move {
            let request = BreakRequest { reason: "stuck".into(), fencing_token: None };
            breaker.api().break_lock("b", &request).await.expect("it can be broken");
            std::future::pending::<()>().await;
        })
        .await;
    assert!(matches!(stopped, Err(Error::LeaseLost { .. })), "{stopped:?}");
    Ok(())
}

async fn a_lease_outlives_its_ttl_by_heartbeats(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let ttl = Duration::from_secs(1);
    let kept = client.lock("kept").ttl(ttl).acquire().await?;
    let manual = client.lock("manual").ttl(ttl).manual_heartbeat().acquire().await?;
    let started = client.lock("started").ttl(ttl).manual_heartbeat().acquire().await?;
    started.start_heartbeat();
    tokio::time::sleep(ttl * 5 / 2).await;
    assert_eq!(kept.state(), State::Valid);
    assert_eq!(started.state(), State::Valid);
    assert_eq!(manual.state(), State::Lost);
    Ok(())
}

async fn a_lease_survives_a_restart_of_the_server(transport: Transport) -> Result<()> {
    let mut server = Server::start().await?;
    let client = client(&server, transport).await?;
    let lease = client.lock("a").ttl(Duration::from_secs(8)).acquire().await?;
    let session = client.session().ttl(Duration::from_secs(8)).open().await?;
    let under = session.lock("b").acquire().await?;
    server.kill()?;
    server.start_again().await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(lease.state(), State::Valid, "{:?}", lease.lost_by());
    assert_eq!(under.state(), State::Valid);
    assert!(client.lock("a").owner("two").try_acquire().await?.is_none());
    lease.release().await?;
    under.release().await?;
    Ok(())
}

async fn an_acquire_survives_a_restart_of_the_server(transport: Transport) -> Result<()> {
    let mut server = Server::start().await?;
    let client = client(&server, transport).await?;
    let lease = client.lock("a").ttl(Duration::from_secs(8)).acquire().await?;
    let waiting = tokio::spawn(client.lock("a").owner("two").wait(LONG).acquire());
    until_waiters(&client, "a", 1).await?;
    server.kill()?;
    server.start_again().await?;
    until_waiters_somehow(&client, "a", 1).await?;
    lease.release().await?;
    let next = waiting.await??;
    assert_eq!(next.state(), State::Valid);
    next.release().await?;
    Ok(())
}

/// The requests of the tool are not repeated: right after a restart its connection may be a dead one.
async fn until_waiters_somehow(client: &Client, lock: &str, count: u64) -> Result<()> {
    for _ in 0..10 {
        if until_waiters(client, lock, count).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    until_waiters(client, lock, count).await
}

async fn leaders_follow_each_other(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let election = client.election("cron").ttl(LONG);
    let mut observer = election.observe().await?;
    assert_eq!(observer.next().await?, None);
    let first = election.clone().owner("one").campaign("one:1").await?;
    let seen = observer.next().await?.expect("somebody leads");
    assert_eq!((seen.owner.as_str(), seen.value.as_str()), ("one", "one:1"));
    let second = election.clone().owner("two");
    let campaign = tokio::spawn(async move { second.campaign("two:1").await });
    until_waiters(&client, "cron", 1).await?;
    first.resign().await?;
    let second = campaign.await??;
    loop {
        if let Some(leader) = observer.next().await?
            && leader.value == "two:1"
        {
            assert_eq!(leader.fencing_token, second.fencing_token());
            break;
        }
    }
    Ok(())
}

async fn watchers_miss_nothing(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let mut watch = client.watch("w/", None).await?;
    let mut tokens = Vec::new();
    for n in 0..20 {
        let lease = client.lock(&format!("w/{n}")).acquire().await?;
        tokens.push(lease.fencing_token());
        lease.release().await?;
    }
    let mut seen = Vec::new();
    while seen.len() < tokens.len() {
        let event = tokio::time::timeout(LONG, watch.next()).await?.expect("it goes on")?;
        if let News::Granted { fencing_token, .. } = event.news {
            seen.push(fencing_token);
        }
    }
    assert_eq!(seen, tokens);
    Ok(())
}

async fn fences_turn_stale_tokens_away(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let fence = client.fence("reports");
    assert_eq!(fence.high_water().await?, None);
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let lease = client.lock("reports").acquire().await?;
        tokens.push(lease.fencing_token());
        lease.release().await?;
    }
    let (older, newer) = (tokens[0], tokens[1]);
    assert_eq!(fence.accept(newer).await?, newer);
    let stale = fence.accept(older).await.expect_err("it cannot be done");
    assert_eq!(stale.code(), Some(Code::StaleFence));
    let unissued = fence.accept(newer + 1).await.expect_err("nobody holds it");
    assert_eq!(unissued.code(), Some(Code::InvalidRequest));
    assert_eq!(fence.high_water().await?, Some(newer));
    let listed = client.api().list_fences(None, None).await?.fences;
    assert_eq!(listed.iter().map(|fence| fence.name.as_str()).collect::<Vec<_>>(), ["reports"]);
    assert_eq!(fence.delete("test").await?, newer);
    assert_eq!(fence.high_water().await?, None);
    Ok(())
}

async fn unreachable_is_not_refused(transport: Transport) -> Result<()> {
    let mut server = Server::start().await?;
    let url = format!("http://{}", server.address());
    let patience = Duration::from_millis(300);
    let client = Client::builder(&url).transport(transport).patience(patience).connect().await?;
    server.kill()?;
    let error = client.lock("a").acquire().await.expect_err("it cannot be done");
    assert!(error.is_unreachable(), "{error}");
    assert_eq!(error.code(), None);
    // One that accepts and says nothing is no server either.
    let mute = std::net::TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", mute.local_addr()?);
    let mute = Client::builder(&url).transport(transport).patience(patience).start()?;
    let error = mute.lock("a").acquire().await.expect_err("nobody answers");
    assert!(error.is_unreachable(), "{error}");
    let nobody = Client::builder("http://127.0.0.1:9").transport(transport).patience(patience);
    let error = nobody.connect().await.expect_err("it cannot be done");
    assert!(error.is_unreachable(), "{error}");
    Ok(())
}

async fn everything_is_given_back_on_close(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let one = client(&server, transport).await?;
    let two = client(&server, transport).await?;
    let mut leases = Vec::new();
    for n in 0..30 {
        leases.push(one.lock(&format!("c/{n}")).ttl(LONG).acquire().await?);
    }
    leases.truncate(15);
    one.close().await;
    assert!(leases.iter().all(|lease| lease.state() == State::Lost));
    assert_eq!(two.api().list(&ListQuery::default()).await?.locks.len(), 0);
    Ok(())
}

/// Between the refusal of one and the queueing of another there must be no moment in which a release wakes nobody.
async fn a_release_in_the_gap_wakes_the_waiter(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let other = self::client(&server, transport).await?;
    for round in 0..200_u64 {
        let lease = client.lock("gap").owner("holder").acquire().await?;
        let waiting = tokio::spawn(other.lock("gap").owner("waiter").wait(LONG).acquire());
        // Around the moment in which the other request arrives, sooner or later.
        let gap = Duration::from_micros((round * 37) % 1500);
        tokio::time::sleep(gap).await;
        lease.release().await?;
        let next = tokio::time::timeout(Duration::from_secs(10), waiting).await???;
        next.release().await?;
    }
    Ok(())
}

async fn the_blocking_client_does_the_same(transport: Transport) -> Result<()> {
    let server = Server::start().await?;
    let client = client(&server, transport).await?;
    let worker = std::thread::spawn(move || {
        let client = blocking::Client::from_async(client);
        let lease = client.acquire(client.lock("a").ttl(LONG))?;
        assert!(client.try_acquire(client.lock("a"))?.is_none());
        client.release(lease)?;
        let token = client.run(client.lock("a"), |lease| lease.fencing_token())?;
        let lost = client.run(client.lock("a").ttl(Duration::from_secs(2)), |lease| {
            let reason = BreakRequest { reason: "test".into(), fencing_token: None };
            blocking::wait(client.api().break_lock("a", &reason))?;
            assert!(lease.fencing_token() > token);
            blocking::wait(lease.lost());
            lease.check()
        });
        assert!(matches!(lost, Err(Error::LeaseLost { .. })), "{lost:?}");
        assert!(client.try_acquire(client.lock("a"))?.is_some(), "given back in any case");
        client.close();
        Ok::<(), Error>(())
    });
    tokio::task::spawn_blocking(move || worker.join().expect("it does not panic")).await??;
    Ok(())
}
