//! The cancellation token of a lease: work that was given one stops in time. On paused time.

use std::time::Duration;

use leasehold_client::{Clock, State};
use tokio::time::{Instant, sleep, timeout};

use crate::server::{FORGETFUL, SILENT, Server, TTL, held};

#[tokio::test(start_paused = true)]
async fn it_fires_half_of_a_ttl_after_the_last_renewal_that_was_confirmed() {
    let server = Server::start();
    let lease = held(&server.client().await, "a").await;
    let stop = lease.cancellation_token();
    sleep(TTL * 10).await;
    assert!(!stop.is_cancelled(), "the heartbeats keep it");
    server.is_now(SILENT);
    let since = lease.window().since();
    stop.cancelled().await;
    assert_eq!(lease.state(), State::Jeopardy);
    let after = server.now().since(since);
    let late = after.checked_sub(TTL / 2).expect("the work is not stopped too early");
    assert!(late <= Duration::from_millis(2), "{late:?} too late");
}

#[tokio::test(start_paused = true)]
async fn it_fires_for_everything_under_a_session() {
    let server = Server::start();
    let client = server.client().await;
    let session = client.session().ttl(TTL).open().await.unwrap();
    let (one, two) = (session.lock("a").acquire().await.unwrap(), session.lock("b").acquire());
    let two = two.await.unwrap();
    let tokens = [session.cancellation_token(), one.cancellation_token(), two.cancellation_token()];
    server.is_now(SILENT);
    tokens[0].cancelled().await;
    let limit = Duration::from_millis(1);
    for token in tokens {
        timeout(limit, token.cancelled()).await.expect("it stands under the session");
    }
}

#[tokio::test(start_paused = true)]
async fn it_fires_at_once_when_the_server_says_that_the_lease_is_over() {
    let server = Server::start();
    let lease = held(&server.client().await, "a").await;
    let stop = lease.cancellation_token();
    server.is_now(FORGETFUL);
    let before = Instant::now();
    stop.cancelled().await;
    assert_eq!(lease.state(), State::Lost);
    assert!(before.elapsed() <= TTL / 3 + Duration::from_millis(2), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn it_fires_when_the_lease_is_given_back() {
    let server = Server::start();
    let client = server.client().await;
    let lease = held(&client, "a").await;
    let stop = lease.cancellation_token();
    lease.release().await.unwrap();
    assert!(stop.is_cancelled());
    let dropped = held(&client, "b").await;
    let stop = dropped.cancellation_token();
    assert!(!stop.is_cancelled());
    drop(dropped);
    assert!(stop.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn one_that_is_asked_for_too_late_has_fired() {
    let server = Server::start();
    let lease = held(&server.client().await, "a").await;
    server.is_now(SILENT);
    lease.jeopardy().await;
    assert!(lease.cancellation_token().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn cancelling_it_stops_nobody_else() {
    let server = Server::start();
    let lease = held(&server.client().await, "a").await;
    let (mine, theirs) = (lease.cancellation_token(), lease.cancellation_token());
    mine.cancel();
    assert!(mine.is_cancelled() && !theirs.is_cancelled() && lease.is_valid());
    server.is_now(SILENT);
    theirs.cancelled().await;
}
