//! Five small stories that every lock service must be able to tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hyper::Method;
use leasehold_api::{Code, SimpleHeld, SimpleRefused, SimpleState};
use leasehold_e2e::checker::{Rules, check};
use leasehold_e2e::client::{Ask, Client, Http, NoAnswer};
use leasehold_e2e::history::Recorder;
use leasehold_e2e::server::Server;

const TTL: Duration = Duration::from_secs(20);

/// Notices when two are in it at the same time.
#[derive(Debug, Default)]
struct Guarded {
    is_occupied: AtomicBool,
    overlaps: AtomicU64,
    entries: AtomicU64,
    highest_token: AtomicU64,
}

impl Guarded {
    async fn visit(&self, token: u64) {
        if self.is_occupied.swap(true, Ordering::SeqCst)
            || self.highest_token.swap(token, Ordering::SeqCst) >= token
        {
            self.overlaps.fetch_add(1, Ordering::SeqCst);
        }
        // Read, let others run, write: an overlap would lose an entry.
        let entries = self.entries.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.entries.store(entries + 1, Ordering::SeqCst);
        self.is_occupied.store(false, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eighty_clients_never_meet_in_an_exclusive_lock() -> Result<()> {
    const CLIENTS: u32 = 80;
    const VISITS: u64 = 10;
    let server = Server::start().await?;
    let recorder = Recorder::default();
    let guarded = Arc::new(Guarded::default());
    let visitors: Vec<_> = (0..CLIENTS)
        .map(|id| {
            let mut client = Client::new(server.address(), id, &recorder);
            let guarded = guarded.clone();
            tokio::spawn(async move {
                for _ in 0..VISITS {
                    let ask = Ask::exclusive(TTL).waiting(Duration::from_secs(50));
                    let lease = client.acquire(0, ask).await.done()?;
                    guarded.visit(lease.token).await;
                    client.release(&lease).await.done()?;
                }
                anyhow::Ok(())
            })
        })
        .collect();
    for visitor in visitors {
        visitor.await??;
    }
    assert_eq!(guarded.overlaps.load(Ordering::SeqCst), 0);
    assert_eq!(guarded.entries.load(Ordering::SeqCst), u64::from(CLIENTS) * VISITS);
    check(&recorder.take(), Rules::default())?;
    Ok(())
}

#[tokio::test]
async fn two_visitors_at_the_same_time_would_be_noticed() {
    let guarded = Guarded::default();
    tokio::join!(guarded.visit(1), guarded.visit(2));
    assert_eq!(guarded.overlaps.load(Ordering::SeqCst), 1);
    assert_eq!(guarded.entries.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn tokens_rise_across_fifty_restarts() -> Result<()> {
    let mut server = Server::start().await?;
    let recorder = Recorder::default();
    let mut client = Client::new(server.address(), 0, &recorder);
    let mut highest = 0;
    for round in 0..50 {
        for lock in [round % 3, 3 + round] {
            // A lock that was not released comes back with the restart: then the next one is asked.
            if let Ok(lease) = client.acquire(lock, Ask::exclusive(TTL)).await.done() {
                ensure!(lease.token > highest, "round {round}: {} after {highest}", lease.token);
                highest = lease.token;
                if round % 2 == 0 {
                    client.release(&lease).await.done()?;
                }
            }
        }
        if round % 5 == 0 {
            ensure!(server.stop().await?.success(), "{}", server.log());
            server.start_again().await?;
        } else {
            server.crash(&recorder).await?;
        }
    }
    ensure!(highest >= 50, "there were grants in every round");
    Ok(())
}

#[tokio::test]
async fn stale_holder_is_refused_after_another_has_come() -> Result<()> {
    let server = Server::start().await?;
    let recorder = Recorder::default();
    let [mut old, mut new] = [0, 1].map(|id| Client::new(server.address(), id, &recorder));
    let mut stale = old.acquire(0, Ask::exclusive(Duration::from_millis(300))).await.done()?;
    let ask = Ask::exclusive(TTL).waiting(Duration::from_secs(10));
    let mut current = new.acquire(0, ask).await.done()?;
    ensure!(current.token > stale.token);
    let refused = [old.renew(&mut stale).await.refused()?, old.release(&stale).await.refused()?];
    for code in refused {
        ensure!(matches!(code, Code::LeaseLost | Code::NotHolder), "{code}");
    }
    // With the other's token, but its own lease; and with the other's lease, but its own token.
    for (lease_id, token) in [(&stale.lease_id, current.token), (&current.lease_id, stale.token)] {
        let mut mixed = stale.clone();
        (mixed.lease_id, mixed.token) = (lease_id.clone(), token);
        ensure!(old.release(&mixed).await.refused()? == Code::NotHolder);
    }
    new.renew(&mut current).await.done()?;
    new.release(&current).await.done()?;
    Ok(())
}

#[tokio::test]
async fn lock_of_a_dead_client_goes_to_the_next_when_its_lease_ends() -> Result<()> {
    const SHORT: Duration = Duration::from_millis(800);
    let server = Server::start().await?;
    let recorder = Recorder::default();
    let mut dead = Client::new(server.address(), 0, &recorder);
    let mut next = Client::new(server.address(), 1, &recorder);
    let asked = Instant::now();
    dead.acquire(0, Ask::exclusive(SHORT)).await.done()?;
    // It dies: its connection goes, nothing is released.
    drop(dead);
    let lease =
        next.acquire(0, Ask::exclusive(TTL).waiting(Duration::from_secs(20))).await.done()?;
    let took = asked.elapsed();
    ensure!(took >= SHORT, "the lease ended after {took:?}");
    ensure!(took < SHORT + Duration::from_secs(5), "the lease ended only after {took:?}");
    ensure!(lease.token > 1);
    Ok(())
}

#[tokio::test]
async fn simple_lock_keeps_its_timeline() -> Result<()> {
    let mut simple = Simple::start("1s").await?;
    let (status, held) = simple.post::<SimpleHeld>("a", "1s").await?;
    ensure!((status, held.holder.as_str()) == (200, "a"));
    let (status, refused) = simple.post::<SimpleRefused>("b", "1s").await?;
    ensure!((status, refused.holder.as_str()) == (409, "a"));
    ensure!(!refused.message.contains("grace"), "{refused:?}");
    tokio::time::sleep(Duration::from_millis(600)).await;
    let (status, _) = simple.post::<SimpleHeld>("a", "1s").await?;
    ensure!(status == 200, "the same client renews");
    tokio::time::sleep(Duration::from_millis(600)).await;
    let state = simple.get().await?;
    ensure!(state.holder == "a" && !state.is_expired, "the renewal counts: {state:?}");
    ensure!(simple.delete("b").await? == 403);
    // The lease ends; for a second more only `a` may have it back.
    tokio::time::sleep(Duration::from_millis(700)).await;
    let state = simple.get().await?;
    ensure!(state.is_expired && state.grace_until.is_some(), "{state:?}");
    let (status, refused) = simple.post::<SimpleRefused>("b", "1s").await?;
    ensure!(status == 409 && refused.message.contains("grace period active"), "{refused:?}");
    let (status, _) = simple.post::<SimpleHeld>("a", "1s").await?;
    ensure!(status == 200, "the last holder takes it back");
    // It ends again, and so does the window.
    tokio::time::sleep(Duration::from_millis(2300)).await;
    let (status, held) = simple.post::<SimpleHeld>("b", "1s").await?;
    ensure!((status, held.holder.as_str()) == (200, "b"));
    ensure!(simple.delete("a").await? == 403);
    ensure!(simple.delete("b").await? == 200);
    let state = simple.get().await?;
    ensure!(state.holder.is_empty() && state.is_expired, "a release has no window: {state:?}");
    let (status, _) = simple.post::<SimpleHeld>("c", "1s").await?;
    ensure!(status == 200);
    Ok(())
}

/// Many at once: whatever the lock decides is said with the bodies and statuses of the simple interface.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn simple_lock_answers_a_crowd_with_nothing_but_its_own_statuses() -> Result<()> {
    let mut server = Server::start_with(&["--simple-grace", "20ms"]).await?;
    let clients = (0..24).map(|client| {
        let mut http = Http::new(server.address());
        tokio::spawn(async move {
            let mut taken = 0;
            for round in 0..40 {
                // Two share a name; some leases are so short that they expire meanwhile.
                let (name, ttl) = (client / 2, if round % 3 == 0 { "100ms" } else { "5s" });
                let path = format!("/lock?client=c{name}&ttl={ttl}");
                let answer = http.ask(Method::POST, &path).await?;
                match answer.status {
                    200 => {
                        let held: SimpleHeld = answer.json()?;
                        ensure!(held.holder == format!("c{name}"), "{held:?}");
                        taken += 1;
                    }
                    409 => ensure!(!answer.json::<SimpleRefused>()?.holder.is_empty()),
                    other => anyhow::bail!("POST: {other}"),
                }
                if round % 12 == 0 {
                    tokio::time::sleep(Duration::from_millis(105)).await;
                }
                let answer = http.ask(Method::DELETE, &format!("/lock?client=c{name}")).await?;
                match answer.status {
                    200 => ensure!(answer.json::<serde_json::Value>()?["released"] == true),
                    403 => ensure!(answer.json::<SimpleRefused>()?.message == "not the holder"),
                    other => anyhow::bail!("DELETE: {other}"),
                }
            }
            Ok(taken)
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut taken = 0;
    for client in clients {
        taken += client.await??;
    }
    ensure!(taken >= 24, "the lock was had {taken} times");
    // A holder goes on after a restart with other settings.
    let mut http = Http::new(server.address());
    ensure!(http.ask(Method::POST, "/lock?client=a&ttl=20s").await?.status == 200);
    ensure!(server.stop().await?.success(), "{}", server.log());
    server.start_again_with(&["--simple-grace", "3s"]).await?;
    let mut http = Http::new(server.address());
    for (method, path, status) in [
        (Method::POST, "/lock?client=b", 409),
        (Method::POST, "/lock?client=a&ttl=25s", 200),
        (Method::DELETE, "/lock?client=a", 200),
    ] {
        let answer = http.ask(method, path).await?;
        ensure!(answer.status == status, "{path}: {}", answer.status);
    }
    Ok(())
}

struct Simple {
    http: Http,
    _server: Server,
}

impl Simple {
    async fn start(grace: &str) -> Result<Simple> {
        let server = Server::start_with(&["--simple-grace", grace]).await?;
        Ok(Simple { http: Http::new(server.address()), _server: server })
    }

    async fn post<T: serde::de::DeserializeOwned>(
        &mut self,
        client: &str,
        ttl: &str,
    ) -> Result<(u16, T)> {
        let path = format!("/lock?client={client}&ttl={ttl}");
        let answer = self.http.ask(Method::POST, &path).await?;
        let body = answer.json().with_context(|| format!("status {}", answer.status))?;
        Ok((answer.status, body))
    }

    async fn delete(&mut self, client: &str) -> Result<u16, NoAnswer> {
        let answer = self.http.ask(Method::DELETE, &format!("/lock?client={client}")).await?;
        Ok(answer.status)
    }

    async fn get(&mut self) -> Result<SimpleState> {
        self.http.get("/lock").await?.json()
    }
}
