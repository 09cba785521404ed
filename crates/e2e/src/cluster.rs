//! Several servers around one store, each with wires of its own to it that can be cut.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use leasehold_api::{Cluster as ClusterView, Role};
use leasehold_store::conformance::servers::{EtcdCluster, Postgres, Proxy, Way};
use tempfile::TempDir;

use crate::client::Http;
use crate::history::{Event, Operation, Recorder};
use crate::server::Server;

/// The file with what all servers are told.
const SETTINGS: &str = "leasehold.toml";
const LOOK_TIMEOUT: Duration = Duration::from_millis(500);

/// What the servers share.
#[derive(Debug)]
pub enum Store {
    Postgres(Box<Postgres>),
    Etcd(EtcdCluster),
}

#[derive(Debug)]
pub struct Cluster {
    pub nodes: Vec<Node>,
    pub store: Store,
    settings: TempDir,
}

/// One server and its wires to the store.
#[derive(Debug)]
pub struct Node {
    pub server: Server,
    /// It is meant to be down.
    pub is_down: bool,
    wires: Vec<Proxy>,
}

impl Node {
    /// What gets through between this server and the store.
    pub fn set_wires(&self, way: Way) {
        self.wires.iter().for_each(|wire| wire.set(way));
    }
}

impl Cluster {
    /// So many servers with these settings (TOML) on a store of their own.
    pub async fn start(servers: usize, store: Store, settings: &str) -> Result<Cluster> {
        let directory = tempfile::tempdir()?;
        std::fs::write(directory.path().join(SETTINGS), settings)?;
        let mut cluster = Cluster { nodes: Vec::new(), store, settings: directory };
        for _ in 0..servers {
            cluster.join().await?;
        }
        Ok(cluster)
    }

    /// One more server.
    pub async fn join(&mut self) -> Result<()> {
        let file = self.settings.path().join(SETTINGS);
        let file = file.to_str().context("a path is text")?;
        let (wires, url) = self.store.wires();
        let server = Server::start_with(&["--store", &url, "--config", file]).await?;
        self.nodes.push(Node { server, is_down: false, wires });
        Ok(())
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(|node| node.server.address()).collect()
    }

    /// The server that leads the first group, by its own account.
    pub async fn leader(&self) -> Option<usize> {
        let mut best = None;
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(view) = look(node.server.address()).await else { continue };
            if view.role == Role::Leader && best.is_none_or(|(epoch, _)| epoch < view.epoch) {
                best = Some((view.epoch, at));
            }
        }
        best.map(|(_, at)| at)
    }

    /// A server that ends because the store is away when it starts is started again, as whoever runs it would.
    fn supervise(&mut self) -> Result<()> {
        for node in self.nodes.iter_mut().filter(|node| !node.is_down) {
            if node.server.ended().is_some() {
                node.server.spawn_again()?;
            }
        }
        Ok(())
    }

    pub async fn wait_for_leader(&mut self, timeout: Duration) -> Result<usize> {
        let since = Instant::now();
        while since.elapsed() < timeout {
            self.supervise()?;
            if let Some(leader) = self.leader().await {
                return Ok(leader);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let logs: Vec<String> = self.nodes.iter().map(|node| node.server.log()).collect();
        bail!("nobody leads after {timeout:?}; the logs:\n{}", logs.join("\n----\n"))
    }
}

impl Store {
    /// Its address, without wires.
    pub fn url(&self) -> String {
        match self {
            Store::Postgres(postgres) => postgres.url(""),
            Store::Etcd(etcd) => etcd.url(""),
        }
    }

    /// Wires for one server, and the address of the store at their other end.
    fn wires(&mut self) -> (Vec<Proxy>, String) {
        match self {
            Store::Postgres(postgres) => {
                let wire = Proxy::start(postgres.port());
                let url = Postgres::url_on(wire.port(), "timeout_ms=1000");
                (vec![wire], url)
            }
            Store::Etcd(etcd) => {
                let wires: Vec<Proxy> =
                    etcd.members().iter().map(|member| Proxy::start(member.port())).collect();
                let hosts: Vec<String> =
                    wires.iter().map(|wire| format!("127.0.0.1:{}", wire.port())).collect();
                (wires, format!("etcd://{}?timeout_ms=1000", hosts.join(",")))
            }
        }
    }
}

/// What a server says about itself and the others.
pub async fn look(address: SocketAddr) -> Option<ClusterView> {
    let mut http = Http::new(address).impatient(LOOK_TIMEOUT);
    let answer =
        tokio::time::timeout(LOOK_TIMEOUT * 2, http.get("/v1/cluster")).await.ok()?.ok()?;
    answer.json().ok()
}

/// Notes each change of leader in the history, as seen from outside: somewhere between the last sight of the old one and
/// the first of the new one.
pub async fn note_leaders(addresses: Vec<SocketAddr>, recorder: Recorder) {
    let mut epoch = 0;
    let mut last_seen = recorder.now();
    loop {
        for address in &addresses {
            let asked = recorder.now();
            let Some(view) = look(*address).await else { continue };
            if view.role != Role::Leader || view.epoch < epoch {
                continue;
            }
            if view.epoch > epoch && epoch > 0 {
                let (invoked, returned) = (last_seen, recorder.now());
                let event = Event::Restart { down: invoked };
                recorder.record(Operation { client: u32::MAX, lock: 0, invoked, returned, event });
            }
            (epoch, last_seen) = (view.epoch, asked);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
