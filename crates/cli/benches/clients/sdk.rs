//! Our own server with the library, as programs use it: each worker a task, all over one client.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use leasehold_client::Client;

use crate::load::{Load, Meter};
use crate::process::Folder;
use crate::{WORKERS, run, stream};

pub(crate) async fn pairs(folder: &Folder) -> Result<Load, String> {
    let (server, port) = stream::serve(folder, "sqlite").await?;
    let client = Client::connect(&format!("http://127.0.0.1:{port}"))
        .await
        .map_err(|error| error.to_string())?;
    let (done, is_over) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let tasks = tokio::task::LocalSet::new();
    let mut workers = Vec::new();
    for worker in 0..WORKERS {
        let (client, done, is_over) = (client.clone(), done.clone(), is_over.clone());
        workers.push(tasks.spawn_local(async move {
            let (lock, owner) = (format!("bench/lock-{worker}"), format!("worker-{worker}"));
            while !is_over.get() {
                let lease = client.lock(&lock).owner(&owner).acquire().await?;
                lease.release().await?;
                done.set(done.get() + 1);
            }
            Ok::<(), leasehold_client::Error>(())
        }));
    }
    tasks
        .run_until(async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let (meter, before) = (Meter::start(server.id()), done.get());
            tokio::time::sleep(run()).await;
            let load = meter.stop(done.get() - before);
            is_over.set(true);
            for worker in workers {
                let ended = worker.await.map_err(|error| error.to_string())?;
                ended.map_err(|error| error.to_string())?;
            }
            client.close().await;
            Ok(load)
        })
        .await
}
