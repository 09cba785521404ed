//! One server on PostgreSQL whose namespaces are spread over groups, each with a journal of its own.

use leasehold_client::Client;
use leasehold_store::conformance::servers::Postgres;

use crate::load::Load;
use crate::process::{Folder, Server};
use crate::{WORKERS, postgres, sdk, stream};

/// One of each group where there are four, two of each where there are two: a namespace stays with its group for ever.
const NAMESPACES: [&str; 4] = ["bench-4", "bench-3", "bench-2", "bench-1"];

/// Pairs through the SDK, a client for each namespace, whatever the number of groups.
pub(crate) async fn pairs(folder: &Folder, groups: usize) -> Result<Load, String> {
    let store = postgres::start()?;
    let (server, port) = serve(folder, &store, groups).await?;
    let mut clients = Vec::new();
    for namespace in NAMESPACES {
        clients.push(client(port, namespace).await.map_err(|error| error.to_string())?);
    }
    sdk::drive(clients, server.id(), WORKERS, false).await
}

async fn serve(folder: &Folder, store: &Postgres, groups: usize) -> Result<(Server, u16), String> {
    let file = folder.fresh("groups").join("leasehold.toml");
    let settings = format!("[cluster]\ngroups = {groups}\n");
    std::fs::write(&file, settings).map_err(|error| error.to_string())?;
    stream::serve_with(folder, &store.url(""), &["--config".as_ref(), file.as_os_str()]).await
}

/// A client whose group has a leader.
async fn client(port: u16, namespace: &str) -> Result<Client, leasehold_client::Error> {
    let builder = Client::builder(&format!("http://127.0.0.1:{port}")).namespace(namespace);
    let client = builder.connect().await?;
    client.lock("bench/first").owner("first").acquire().await?.release().await?;
    Ok(client)
}
