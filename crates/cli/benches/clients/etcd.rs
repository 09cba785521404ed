//! etcd's own lock service, over one connection.

use std::process::Command as Program;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tonic::Request;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::load::{Load, Meter, fresh};
use crate::process::{Folder, Server, free_port, is_installed};
use crate::{WORKERS, run};

/// The few messages that are needed, of `etcdserverpb` and `v3lockpb`.
mod wire {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct LeaseGrant {
        #[prost(int64, tag = "1")]
        pub(super) ttl: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct LeaseGranted {
        #[prost(int64, tag = "2")]
        pub(super) id: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct LeaseRevoke {
        #[prost(int64, tag = "1")]
        pub(super) id: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct LeaseRevoked {}

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Lock {
        #[prost(bytes, tag = "1")]
        pub(super) name: Vec<u8>,
        #[prost(int64, tag = "2")]
        pub(super) lease: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Locked {
        #[prost(bytes, tag = "2")]
        pub(super) key: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Unlock {
        #[prost(bytes, tag = "1")]
        pub(super) key: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Unlocked {}
}

/// Under which leases locks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leases {
    /// All under one, which is there before.
    One,
    /// Each under one of its own, opened for it and ended after it.
    Each,
}

pub(crate) async fn pairs(folder: &Folder) -> Result<Load, String> {
    if !is_installed("etcd") {
        return Err("etcd is not installed (Debian package etcd-server)".into());
    }
    let (port, peers) = (free_port(), free_port());
    let client = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{peers}");
    let mut program = Program::new("etcd");
    program.arg("--data-dir").arg(folder.fresh("etcd"));
    program.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    program.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    program.args(["--initial-cluster", &format!("default={peer}"), "--log-level", "error"]);
    let server = Server::start(&mut program, port).await?;
    pairs_on(port, server.id(), Leases::One).await
}

/// The same on an etcd that is there already.
pub(crate) async fn pairs_on(port: u16, server: u32, leases: Leases) -> Result<Load, String> {
    let client = format!("http://127.0.0.1:{port}");
    let endpoint = Endpoint::from_shared(client).map_err(|error| error.to_string())?;
    let channel = endpoint.connect().await.map_err(|error| error.to_string())?;
    let lease = first_lease(&channel).await?;
    let (done, prefix) = (Arc::new(AtomicU64::new(0)), fresh());
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| format!("bench/{prefix}/lock-{worker}"))
        .map(|name| {
            let lease = (leases == Leases::One).then_some(lease);
            tokio::spawn(work(channel.clone(), lease, name, done.clone()))
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = done.load(Ordering::Relaxed);
    let meter = Meter::start(server);
    tokio::time::sleep(run()).await;
    let load = meter.stop(done.load(Ordering::Relaxed) - before);
    let failed = workers.iter().any(tokio::task::JoinHandle::is_finished);
    for worker in workers {
        worker.abort();
    }
    if failed { Err("a worker failed".into()) } else { Ok(load) }
}

/// The server listens before it serves.
async fn first_lease(channel: &Channel) -> Result<i64, String> {
    let began = Instant::now();
    loop {
        match open_lease(channel).await {
            Ok(lease) => return Ok(lease),
            Err(status) if began.elapsed() > Duration::from_secs(15) => {
                return Err(status.to_string());
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn open_lease(channel: &Channel) -> Result<i64, tonic::Status> {
    let ask = wire::LeaseGrant { ttl: 600 };
    let granted: wire::LeaseGranted = call(channel, "/etcdserverpb.Lease/LeaseGrant", ask).await?;
    Ok(granted.id)
}

/// Under that lease, or each time under one of its own.
async fn work(
    channel: Channel,
    shared: Option<i64>,
    name: String,
    done: Arc<AtomicU64>,
) -> Result<(), tonic::Status> {
    let name = name.into_bytes();
    loop {
        let lease = match shared {
            Some(lease) => lease,
            None => open_lease(&channel).await?,
        };
        let lock = wire::Lock { name: name.clone(), lease };
        let locked: wire::Locked = call(&channel, "/v3lockpb.Lock/Lock", lock).await?;
        let unlock = wire::Unlock { key: locked.key };
        let _: wire::Unlocked = call(&channel, "/v3lockpb.Lock/Unlock", unlock).await?;
        if shared.is_none() {
            let revoke = wire::LeaseRevoke { id: lease };
            let _: wire::LeaseRevoked =
                call(&channel, "/etcdserverpb.Lease/LeaseRevoke", revoke).await?;
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

async fn call<Ask, Answer>(
    channel: &Channel,
    method: &'static str,
    ask: Ask,
) -> Result<Answer, tonic::Status>
where
    Ask: prost::Message + 'static,
    Answer: prost::Message + Default + 'static,
{
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
    let codec = ProstCodec::<Ask, Answer>::default();
    let path = PathAndQuery::from_static(method);
    Ok(grpc.unary(Request::new(ask), path, codec).await?.into_inner())
}
