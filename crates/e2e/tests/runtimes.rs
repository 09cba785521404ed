//! Programs that block their runtime, leave it without running it, or drop it: none of them loses a lease by that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use leasehold_client::{Client, LeaseHandle, State, Transport, blocking};
use leasehold_e2e::server::Server;
use tokio::runtime::{Builder, Runtime};

const TTL: Duration = Duration::from_secs(2);
const TRANSPORTS: [Transport; 2] = [Transport::Stream, Transport::Http];

/// A runtime of one thread, as small programs have it.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

async fn client(address: &str, transport: Transport) -> Result<Client> {
    Ok(Client::builder(address).transport(transport).connect().await?)
}

/// Somebody else who tries to get the lock all the time; says how often it was refused, or fails if it was not.
struct Rival {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<u32>>,
}

impl Rival {
    fn start(address: &str) -> Result<Rival> {
        let rival = blocking::Client::connect(address)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = thread::spawn(move || {
            let mut refused = 0;
            while !over.load(Ordering::Relaxed) {
                let lease = rival.try_acquire(rival.lock("a").owner("rival"))?;
                ensure!(lease.is_none(), "the lock was lost");
                refused += 1;
                thread::sleep(Duration::from_millis(20));
            }
            Ok(refused)
        });
        Ok(Rival { is_over, thread })
    }

    fn end(self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        let refused = self.thread.join().expect("it does not panic")?;
        ensure!(refused > 10, "it was asked for {refused} times only");
        Ok(())
    }
}

/// Watches from outside the runtime that the holder never has to doubt its lease.
fn assert_valid_for(lease: &LeaseHandle, length: Duration) {
    let since = Instant::now();
    while since.elapsed() < length {
        assert_eq!(lease.state(), State::Valid, "after {:?}", since.elapsed());
        thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn a_blocked_runtime_loses_no_lease() -> Result<()> {
    let server = Server::start().await?;
    let address = format!("http://{}", server.address());
    let work = tokio::task::spawn_blocking(move || {
        for transport in TRANSPORTS {
            blocks_its_runtime(&address, transport)
                .with_context(|| format!("over {transport:?}"))?;
        }
        Ok(())
    });
    work.await?
}

fn blocks_its_runtime(address: &str, transport: Transport) -> Result<()> {
    let (held, holds) = mpsc::channel();
    let address_of_worker = address.to_owned();
    let worker = thread::spawn(move || {
        runtime()?.block_on(async move {
            let client = client(&address_of_worker, transport).await?;
            let lease = client.lock("a").owner("one").ttl(TTL).acquire().await?;
            let session = client.session().owner("one").ttl(TTL).open().await?;
            let member = session.lock("b").acquire().await?;
            let stop = lease.cancellation_token();
            for _ in 0..2 {
                let _ = held.send(lease.handle().clone());
                let blocking = tokio::spawn(async { thread::sleep(TTL * 3) });
                blocking.await?;
                ensure!(lease.is_valid() && member.is_valid() && !stop.is_cancelled());
                // The task goes on with the driver where the thread left it.
                tokio::time::sleep(TTL).await;
                ensure!(lease.is_valid() && member.is_valid() && !stop.is_cancelled());
                let other = client.lock("c").owner("one").ttl(TTL).acquire().await?;
                other.release().await?;
            }
            member.release().await?;
            session.close().await?;
            lease.release().await?;
            client.close().await;
            Ok(())
        })
    });
    let lease = holds.recv().context("it got its locks")?;
    let rival = Rival::start(address)?;
    assert_valid_for(&lease, TTL * 3);
    let lease = holds.recv().context("it went on")?;
    assert_valid_for(&lease, TTL * 3);
    rival.end()?;
    worker.join().expect("it does not panic")
}

#[tokio::test]
async fn leases_outlive_a_runtime_that_is_dropped() -> Result<()> {
    let server = Server::start().await?;
    let address = format!("http://{}", server.address());
    let work = tokio::task::spawn_blocking(move || {
        for transport in TRANSPORTS {
            let runtime = runtime()?;
            let (client, lease) = runtime.block_on(async {
                let client = client(&address, transport).await?;
                let lease = client.lock("a").owner("one").ttl(TTL).acquire().await?;
                anyhow::Ok((client, lease))
            })?;
            drop(runtime);
            let rival = Rival::start(&address)?;
            assert_valid_for(&lease, TTL * 3);
            rival.end()?;
            // It goes on without any runtime, and in another one.
            let other = blocking::wait(client.lock("b").owner("one").acquire())?;
            blocking::wait(other.release())?;
            self::runtime()?.block_on(lease.release())?;
            blocking::wait(client.close());
        }
        Ok(())
    });
    work.await?
}

#[tokio::test]
async fn a_runtime_that_is_not_run_keeps_nobody_waiting() -> Result<()> {
    let server = Server::start().await?;
    let address = format!("http://{}", server.address());
    let work = tokio::task::spawn_blocking(move || {
        for transport in TRANSPORTS {
            let runtime = runtime()?;
            let client = runtime.block_on(client(&address, transport))?;
            let lease = runtime.block_on(client.lock("a").owner("one").ttl(TTL).acquire())?;
            assert_valid_for(&lease, TTL * 3);
            drop(lease);
            let next = client.lock("a").owner("two").wait(TTL).acquire();
            let lease = blocking::wait(next).context("it is given back without the runtime")?;
            // Now the runtime runs again.
            runtime.block_on(lease.release())?;
            drop(runtime.block_on(client.lock("a").owner("three").acquire())?);
            let rest = client.lock("a").owner("four").wait(TTL).acquire();
            drop(blocking::wait(rest)?);
            blocking::wait(client.close());
        }
        Ok(())
    });
    work.await?
}
