//! The client's own thread takes over when the caller's runtime does not run. On paused time.

use std::time::Duration;

use leasehold_client::State;
use tokio::time::{Instant, sleep, timeout};

use crate::server::{ANSWERS, SILENT, Server, TTL, held};

const SOON: Duration = Duration::from_millis(400);

#[tokio::test(start_paused = true)]
async fn a_runtime_that_runs_keeps_its_leases_itself() {
    let server = Server::start();
    let lease = held(&server.client().await, "a").await;
    let connections = server.connections();
    sleep(TTL * 20).await;
    assert!(lease.is_valid());
    assert_eq!(server.connections(), connections, "nobody took over");
}

#[tokio::test(start_paused = true)]
async fn no_lease_is_lost_while_the_runtime_is_blocked() {
    let server = Server::start();
    let client = server.client().await;
    let (lease, session) = (held(&client, "a").await, client.session().ttl(TTL).open().await);
    let (member, stop) = (session.unwrap().lock("b").acquire().await, lease.cancellation_token());
    drop(member);
    for _ in 0..3 {
        let before = server.connections();
        server.stall.begin();
        sleep(TTL * 4).await;
        assert!(server.connections() > before, "the guard has a connection of its own");
        assert_eq!(lease.state(), State::Valid);
        let before = server.connections();
        server.stall.end();
        sleep(TTL * 4).await;
        assert!(server.connections() > before, "the task has it back");
        assert!(lease.is_valid() && !stop.is_cancelled());
    }
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_short_block_moves_nothing() {
    let server = Server::start();
    let lease = held(&server.client().await, "a").await;
    let connections = server.connections();
    for _ in 0..100 {
        server.stall.begin();
        sleep(TTL / 20).await;
        server.stall.end();
        sleep(TTL / 7).await;
    }
    assert!(lease.is_valid());
    assert_eq!(server.connections(), connections);
}

#[tokio::test(start_paused = true)]
async fn orders_from_elsewhere_are_not_left_lying() {
    let server = Server::start();
    let client = server.client().await;
    let lease = held(&client, "a").await;
    server.stall.begin();
    let other = timeout(SOON, held(&client, "b")).await.unwrap();
    timeout(SOON, other.release()).await.unwrap().unwrap();
    drop(lease);
    sleep(SOON).await;
    assert_eq!(server.asked("/release"), 2);
    let quick = Instant::now();
    drop(held(&client, "c").await);
    assert!(quick.elapsed() < Duration::from_millis(5), "the guard has the driver by now");
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_while_the_guard_drives_is_got_when_the_task_drives_again() {
    let server = Server::start();
    let client = server.client().await;
    server.stall.begin();
    server.is_now(SILENT);
    let asked = tokio::spawn(client.lock("a").ttl(TTL).acquire());
    sleep(SOON).await;
    assert_eq!(server.asked("/acquire"), 1);
    server.is_now(ANSWERS);
    server.stall.end();
    let lease = timeout(SOON, asked).await.unwrap().unwrap().unwrap();
    assert!(lease.is_valid());
    assert_eq!(server.asked("/acquire"), 2, "asked again, under the same id");
}

#[tokio::test(start_paused = true)]
async fn leases_outlive_the_runtime_that_they_were_got_on() {
    let server = Server::start();
    let client = server.client().await;
    let lease = held(&client, "a").await;
    server.drop_runtime();
    sleep(TTL * 10).await;
    assert!(lease.is_valid());
    lease.release().await.unwrap();
    assert!(held(&client, "b").await.is_valid());
}

#[tokio::test(start_paused = true)]
async fn work_is_told_to_stop_in_time_though_the_runtime_is_blocked() {
    let server = Server::start();
    let lease = held(&server.client().await, "a").await;
    let stop = lease.cancellation_token();
    server.stall.begin();
    server.is_now(SILENT);
    stop.cancelled().await;
    assert_eq!(lease.state(), State::Jeopardy);
    let left = lease.time_left();
    assert!(left + Duration::from_millis(5) >= TTL / 2, "{left:?} left");
}

#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_the_runtime_nothing_stays_of_a_client_that_is_dropped() {
    for end in 0..4 {
        let server = Server::start();
        let client = server.client().await;
        let lease = held(&client, "a").await;
        match end {
            0 => {}
            1 => server.stall.begin(),
            2 => server.drop_runtime(),
            _ => {
                server.stall.begin();
                sleep(TTL * 2).await;
                server.stall.end();
            }
        }
        drop((client, lease));
        sleep(SOON).await;
        assert_eq!(server.asked("/release"), 1, "case {end}");
        server.stall.end();
        // Idle connections are kept for a minute, by both ends.
        sleep(Duration::from_secs(200)).await;
        assert_eq!(server.users(), 0, "case {end}");
    }
}
