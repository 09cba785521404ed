//! Our own server with the SDK for Rust, as programs use it: each worker a task, all over one client.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use leasehold_client::{Client, Error};
use tokio::task::LocalSet;

use crate::load::{Load, Meter};
use crate::process::Folder;
use crate::{doors, run, stream};

/// What workers share while they are measured.
#[derive(Clone, Default)]
pub(crate) struct Count {
    done: Rc<Cell<u64>>,
    waits: Rc<RefCell<Vec<Duration>>>,
    is_over: Rc<Cell<bool>>,
}

impl Count {
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// An acquire was answered.
    pub(crate) fn waited(&self, since: Instant) {
        self.waits.borrow_mut().push(since.elapsed());
    }

    /// A release was answered.
    pub(crate) fn done(&self) {
        self.done.set(self.done.get() + 1);
    }

    /// Lets the workers get going, measures them, and ends them.
    pub(crate) async fn measure<E: ToString + 'static>(
        &self,
        server: u32,
        tasks: &LocalSet,
        workers: Vec<tokio::task::JoinHandle<Result<(), E>>>,
    ) -> Result<Load, String> {
        let measuring = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.waits.borrow_mut().clear();
            let (meter, before) = (Meter::start(server), self.done.get());
            tokio::time::sleep(run()).await;
            let load = meter.stop(self.done.get() - before).with_waits(self.waits.take());
            self.is_over.set(true);
            for worker in workers {
                let ended = worker.await.map_err(|error| error.to_string())?;
                ended.map_err(|error| error.to_string())?;
            }
            Ok(load)
        };
        tasks.run_until(measuring).await
    }
}

/// Each worker acquires and releases a lock that nobody has had before, over and over; or all the same one, for which they wait.
pub(crate) async fn pairs(folder: &Folder, workers: usize, is_hot: bool) -> Result<Load, String> {
    let (server, port) = stream::serve(folder, "sqlite").await?;
    let client = Client::connect(&format!("http://127.0.0.1:{port}"))
        .await
        .map_err(|error| error.to_string())?;
    drive(vec![client], server.id(), workers, is_hot).await
}

/// The same with a token, and with TLS.
pub(crate) async fn pairs_behind_doors(
    folder: &Folder,
    workers: usize,
    with_tls: bool,
) -> Result<Load, String> {
    let (server, door) = doors::serve(folder, with_tls).await?;
    let mut builder = Client::builder(&door.url());
    if let Some(token) = &door.token {
        builder = builder.token(token);
    }
    if let Some(authority) = &door.authority {
        builder = builder.authorities(authority.as_bytes());
    }
    let client = builder.connect().await.map_err(|error| error.to_string())?;
    drive(vec![client], server.id(), workers, false).await
}

/// The same over these clients, between which the workers are shared out evenly.
pub(crate) async fn drive(
    clients: Vec<Client>,
    server: u32,
    workers: usize,
    is_hot: bool,
) -> Result<Load, String> {
    let (count, tasks) = (Count::default(), LocalSet::new());
    let work = |worker: usize| {
        work(clients[worker % clients.len()].clone(), worker, is_hot, count.clone())
    };
    let running = (0..workers).map(|worker| tasks.spawn_local(work(worker))).collect();
    let load = count.measure(server, &tasks, running).await?;
    for client in clients {
        client.close().await;
    }
    Ok(load)
}

async fn work(client: Client, worker: usize, is_hot: bool, count: Count) -> Result<(), Error> {
    let owner = format!("worker-{worker}");
    let mut turn = 0;
    while !count.is_over() {
        turn += 1;
        let since = Instant::now();
        let request = match is_hot {
            true => client.lock("bench/hot").wait_forever(),
            false => client.lock(&format!("bench/{worker}/{turn}")),
        };
        let lease = request.owner(&owner).acquire().await?;
        count.waited(since);
        lease.release().await?;
        count.done();
    }
    Ok(())
}
