//! A stream through a server that does not lead: everything on it goes to the leader and back, and its end too.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use leasehold_api::grpc::command::Ask;
use leasehold_api::grpc::locks_client::LocksClient;
use leasehold_api::grpc::push::News;
use leasehold_api::grpc::reply::Answer;
use leasehold_api::grpc::sessions_client::SessionsClient;
use leasehold_api::grpc::watch_client::WatchClient;
use leasehold_api::grpc::{
    AcquireRequest, Attach, AttachRequest, AttachResponse, Command, Heartbeat, OnDisconnect,
    OpenRequest, Push, RenewRequest, Reply, StreamAcquire, StreamRelease, WatchRequest, attach,
    length,
};
use leasehold_client::Client;
use leasehold_client::wire::{BreakRequest, LockState};
use leasehold_e2e::cluster::{Cluster, Store};
use leasehold_store::conformance::servers::EtcdCluster;
use tokio::sync::mpsc;
use tonic::Streaming;
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::Endpoint;

use super::clients::eventually;

/// Nothing here lapses by itself.
const TTL: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_through_a_follower_is_a_stream_to_the_leader() -> Result<()> {
    let etcd = tokio::task::spawn_blocking(|| EtcdCluster::start(1)).await?;
    let mut cluster = Cluster::start(2, Store::Etcd(etcd), "").await?;
    let leader = cluster.wait_for_leader(PATIENCE).await?;
    let (at_leader, at_follower) = (cluster.addresses()[leader], cluster.addresses()[1 - leader]);
    let others = Client::connect(&format!("http://{at_leader}")).await?;

    commands_and_news(at_follower, &others).await?;
    its_end_releases(at_follower, &others).await?;
    its_end_keeps(at_follower, &others).await?;
    watchers_are_not_in_the_way(at_follower).await
}

/// More watches through a follower than a connection carries, none of them read: others are answered all the same.
async fn watchers_are_not_in_the_way(at: SocketAddr) -> Result<()> {
    const WATCHES: usize = 150;
    let endpoint = Endpoint::from_shared(format!("http://{at}"))?;
    let mut talk = Talk::open(at, OnDisconnect::Release).await?;
    let mut watches = Vec::new();
    for batch in 0..2 {
        let mut watcher = WatchClient::new(endpoint.connect().await?);
        for number in 0..WATCHES / 2 {
            let asked = watcher.watch(WatchRequest::default());
            let watch = tokio::time::timeout(PATIENCE, asked).await;
            watches.push(watch.with_context(|| format!("watch {batch}.{number} hangs"))??);
        }
    }
    let beat = talk.ask(Ask::Heartbeat(Heartbeat::default()))?;
    ensure!(matches!(talk.answer(beat).await?, Answer::Renewed(_)), "a stream from before");
    let mut locks = LocksClient::new(endpoint.connect().await?);
    let ask = AcquireRequest {
        lock: "renewed".into(),
        owner_id: "r".into(),
        ttl: Some(length(TTL)),
        ..AcquireRequest::default()
    };
    let acquired = tokio::time::timeout(PATIENCE, locks.acquire(ask)).await;
    let grant = acquired.context("an acquire hangs")??.into_inner();
    let renew = RenewRequest {
        lock: grant.lock,
        owner_id: grant.owner_id,
        lease_id: grant.lease_id,
        fencing_token: grant.fencing_token,
        ..RenewRequest::default()
    };
    tokio::time::timeout(PATIENCE, locks.renew(renew)).await.context("a renewal hangs")??;
    let mut late = Talk::open(at, OnDisconnect::Release).await?;
    late.acquire("late").await?;
    drop(watches);
    Ok(())
}

/// Commands, heartbeats, and what the server says unasked.
async fn commands_and_news(at: SocketAddr, others: &Client) -> Result<()> {
    let mut talk = Talk::open(at, OnDisconnect::Release).await?;
    let token = talk.acquire("a").await?;
    talk.acquire("b").await?;
    let beat = talk.ask(Ask::Heartbeat(Heartbeat::default()))?;
    let Answer::Renewed(renewed) = talk.answer(beat).await? else { bail!("it was not renewed") };
    ensure!(renewed.ttl == Some(length(TTL)), "{renewed:?}");
    ensure!(others.lock("a").owner("other").try_acquire().await?.is_none(), "it is held");

    let waiting = tokio::spawn(others.lock("a").owner("other").wait(PATIENCE).acquire());
    let News::Wanted(wanted) = talk.news().await? else { bail!("somebody wants it") };
    ensure!(wanted.lock == "a", "{wanted:?}");
    let release = StreamRelease { lock: "a".into(), fencing_token: token, ..Default::default() };
    let release = talk.ask(Ask::Release(release))?;
    ensure!(matches!(talk.answer(release).await?, Answer::Released(_)), "it was not released");
    ensure!(waiting.await??.fencing_token() > token, "tokens rise");

    let request = BreakRequest { reason: "it is in the way".into(), fencing_token: None };
    others.api().break_lock("b", &request).await?;
    let News::Lost(lost) = talk.news().await? else { bail!("it was broken") };
    ensure!(lost.reason == "revoked", "{lost:?}");
    Ok(())
}

async fn its_end_releases(at: SocketAddr, others: &Client) -> Result<()> {
    let mut talk = Talk::open(at, OnDisconnect::Release).await?;
    talk.acquire("c").await?;
    ensure!(others.api().get("c").await?.state == LockState::Held);
    drop(talk);
    eventually("it is released", async || Ok(others.api().get("c").await?.state == LockState::Free))
        .await
}

async fn its_end_keeps(at: SocketAddr, others: &Client) -> Result<()> {
    let mut talk = Talk::open(at, OnDisconnect::Keep).await?;
    let session_id = talk.session_id.clone();
    talk.acquire("d").await?;
    drop(talk);
    eventually("the leader has heard that it is over", async || {
        Ok(!others.api().get_session(&session_id).await?.attached)
    })
    .await?;
    ensure!(others.api().get("d").await?.state == LockState::Held, "it was to be kept");
    let mut again = Talk::begin(at, attach::Session::SessionId(session_id)).await?;
    let beat = again.ask(Ask::Heartbeat(Heartbeat::default()))?;
    ensure!(matches!(again.answer(beat).await?, Answer::Renewed(_)), "it is bound again");
    Ok(())
}

/// One stream of a client.
struct Talk {
    say: mpsc::UnboundedSender<AttachRequest>,
    hear: Streaming<AttachResponse>,
    session_id: String,
    replies: Vec<Reply>,
    pushes: Vec<Push>,
    next_id: u64,
}

struct Said(mpsc::UnboundedReceiver<AttachRequest>);

impl Stream for Said {
    type Item = AttachRequest;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AttachRequest>> {
        self.get_mut().0.poll_recv(cx)
    }
}

impl Talk {
    async fn open(at: SocketAddr, on_disconnect: OnDisconnect) -> Result<Talk> {
        let keeps = on_disconnect == OnDisconnect::Keep;
        let open = OpenRequest {
            owner_id: "talker".into(),
            ttl: Some(length(TTL)),
            on_disconnect: on_disconnect.into(),
            disconnect_ttl: keeps.then(|| length(TTL)),
            ..OpenRequest::default()
        };
        Talk::begin(at, attach::Session::Open(open)).await
    }

    async fn begin(at: SocketAddr, session: attach::Session) -> Result<Talk> {
        let channel = Endpoint::from_shared(format!("http://{at}"))?.connect().await?;
        let mut sessions = SessionsClient::new(channel);
        let (say, said) = mpsc::unbounded_channel();
        let attach = Attach { session: Some(session), ..Attach::default() };
        say.send(AttachRequest { attach: Some(attach), commands: Vec::new() })?;
        let mut hear = sessions.attach(Said(said)).await?.into_inner();
        let first = hear.message().await?.context("it ended")?;
        let session_id = first.attached.context("it says what it is bound to")?.session_id;
        Ok(Talk { say, hear, session_id, replies: Vec::new(), pushes: Vec::new(), next_id: 1 })
    }

    fn ask(&mut self, ask: Ask) -> Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let commands = vec![Command { id, ask: Some(ask) }];
        self.say.send(AttachRequest { attach: None, commands })?;
        Ok(id)
    }

    /// The token of the grant.
    async fn acquire(&mut self, lock: &str) -> Result<u64> {
        let acquire = StreamAcquire { lock: lock.into(), ..StreamAcquire::default() };
        let id = self.ask(Ask::Acquire(Box::new(acquire)))?;
        let answer = self.answer(id).await?;
        let Answer::Granted(grant) = answer else { bail!("it was not granted: {answer:?}") };
        Ok(grant.fencing_token)
    }

    async fn answer(&mut self, id: u64) -> Result<Answer> {
        loop {
            if let Some(at) = self.replies.iter().position(|reply| reply.id == id) {
                return self.replies.swap_remove(at).answer.context("a reply says something");
            }
            self.listen().await?;
        }
    }

    async fn news(&mut self) -> Result<News> {
        while self.pushes.is_empty() {
            self.listen().await?;
        }
        self.pushes.remove(0).news.context("news say something")
    }

    async fn listen(&mut self) -> Result<()> {
        let heard = tokio::time::timeout(PATIENCE, self.hear.message()).await??;
        let heard = heard.context("the stream ended")?;
        self.replies.extend(heard.replies);
        self.pushes.extend(heard.pushes);
        Ok(())
    }
}
