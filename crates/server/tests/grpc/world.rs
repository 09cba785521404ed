//! A real server on a free port, and a client that speaks gRPC to it.

use std::time::Duration;

use leasehold_api::grpc::cluster_client::ClusterClient;
use leasehold_api::grpc::fences_client::FencesClient;
use leasehold_api::grpc::inodes_client::InodesClient;
use leasehold_api::grpc::locks_client::LocksClient;
use leasehold_api::grpc::sessions_client::SessionsClient;
use leasehold_api::grpc::watch_client::WatchClient;
use leasehold_api::grpc::{
    AcquireRequest, Attach, AttachRequest, AttachResponse, Attached, ClusterState, Command,
    GetClusterRequest, GetRequest, Grant, Lock, OpenRequest, Push, ReleaseRequest, Reply,
    StreamAcquire, attach, command::Ask, length, problem_of, push::News, reply::Answer,
};
use leasehold_api::{Code, Problem};
use leasehold_server::{AccessLog, Config, Server, Store};
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status, Streaming};

use crate::polling::eventually;

/// Nothing here takes longer unless something is wrong.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) channel: Channel,
}

pub(crate) fn config() -> Config {
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        store: Store::Memory,
        access_log: AccessLog::Off,
        ..Config::default()
    }
}

impl World {
    pub(crate) async fn start() -> World {
        World::with(config()).await
    }

    pub(crate) async fn with(config: Config) -> World {
        let server = Server::start(config).await.unwrap();
        let channel = connect(&server).await;
        World { server, channel }
    }

    pub(crate) fn locks(&self) -> LocksClient<Channel> {
        LocksClient::new(self.channel.clone())
    }

    pub(crate) fn sessions(&self) -> SessionsClient<Channel> {
        SessionsClient::new(self.channel.clone())
    }

    pub(crate) fn fences(&self) -> FencesClient<Channel> {
        FencesClient::new(self.channel.clone())
    }

    pub(crate) fn inodes(&self) -> InodesClient<Channel> {
        InodesClient::new(self.channel.clone())
    }

    pub(crate) fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone())
    }

    pub(crate) async fn cluster(&self) -> ClusterState {
        let mut cluster = ClusterClient::new(self.channel.clone());
        cluster.get(GetClusterRequest {}).await.unwrap().into_inner()
    }

    pub(crate) async fn get(&self, lock: &str) -> Lock {
        let get = GetRequest { lock: lock.into(), ..Default::default() };
        self.locks().get(get).await.unwrap().into_inner()
    }

    pub(crate) async fn acquire(&self, lock: &str, owner: &str) -> Grant {
        self.locks().acquire(acquire(lock, owner)).await.unwrap().into_inner()
    }

    pub(crate) async fn release(&self, grant: &Grant) {
        self.locks().release(release(grant)).await.unwrap();
    }

    /// Waits until so many requests stand in queues.
    pub(crate) async fn wait_for_waiters(&self, number: u64) {
        eventually("so many wait", async || self.cluster().await.waiters == number).await;
    }

    pub(crate) async fn wait_until_free(&self, lock: &str) {
        eventually("it is free", async || self.get(lock).await.holders.is_empty()).await;
    }

    /// A stream that opens a session of its own.
    pub(crate) async fn attach(&self, open: OpenRequest) -> Talk {
        let attach = Attach { session: Some(attach::Session::Open(open)), ..Attach::default() };
        self.bind(attach).await.unwrap()
    }

    pub(crate) async fn bind(&self, attach: Attach) -> Result<Talk, Status> {
        Talk::begin(self.sessions(), AttachRequest { attach: Some(attach), commands: vec![] }).await
    }
}

pub(crate) async fn connect(server: &Server) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address())).unwrap();
    endpoint.connect().await.unwrap()
}

pub(crate) fn secs(number: u64) -> Option<prost_types::Duration> {
    Some(length(Duration::from_secs(number)))
}

pub(crate) fn millis(number: u64) -> Option<prost_types::Duration> {
    Some(length(Duration::from_millis(number)))
}

pub(crate) fn acquire(lock: &str, owner: &str) -> AcquireRequest {
    AcquireRequest {
        lock: lock.into(),
        owner_id: owner.into(),
        ttl: secs(30),
        ..AcquireRequest::default()
    }
}

pub(crate) fn release(grant: &Grant) -> ReleaseRequest {
    ReleaseRequest {
        namespace: String::new(),
        lock: grant.lock.clone(),
        owner_id: grant.owner_id.clone(),
        lease_id: grant.lease_id.clone(),
        fencing_token: grant.fencing_token,
    }
}

pub(crate) fn open(owner: &str) -> OpenRequest {
    OpenRequest { owner_id: owner.into(), ttl: secs(30), ..OpenRequest::default() }
}

/// The problem that a call was refused with: told in full, and as the table of codes says.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<Response<T>, Status>) -> Problem {
    let status = answer.expect_err("it is refused");
    let problem = problem_of(&status).unwrap_or_else(|| panic!("{status:?}"));
    assert_eq!(status.code() as i32, problem.code.grpc_code() as i32, "{status:?}");
    assert_eq!(status.message(), problem.detail);
    assert!(!problem.detail.is_empty());
    assert!(!problem.request_id.is_empty(), "{status:?}");
    problem
}

/// One stream of a client.
pub(crate) struct Talk {
    pub(crate) say: mpsc::Sender<AttachRequest>,
    pub(crate) hear: Streaming<AttachResponse>,
    pub(crate) attached: Attached,
    replies: Vec<Reply>,
    pushes: Vec<Push>,
    next_id: u64,
}

pub(crate) struct Said(pub(crate) mpsc::Receiver<AttachRequest>);

impl Stream for Said {
    type Item = AttachRequest;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<AttachRequest>> {
        self.get_mut().0.poll_recv(cx)
    }
}

impl Talk {
    pub(crate) async fn begin(
        mut sessions: SessionsClient<Channel>,
        first: AttachRequest,
    ) -> Result<Talk, Status> {
        let (say, said) = mpsc::channel(1024);
        say.send(first).await.unwrap();
        let mut hear = sessions.attach(Said(said)).await?.into_inner();
        let first = hear.message().await?.expect("the first answer");
        let attached = first.attached.expect("it says what it is bound to");
        let (replies, pushes) = (first.replies, first.pushes);
        Ok(Talk { say, hear, attached, replies, pushes, next_id: 1 })
    }

    /// Asks, and says under which id.
    pub(crate) async fn ask(&mut self, ask: Ask) -> u64 {
        self.ask_all([ask]).await
    }

    /// Asks all of it in one message; the ids count up to the one returned.
    pub(crate) async fn ask_all(&mut self, asks: impl IntoIterator<Item = Ask>) -> u64 {
        let mut commands = Vec::new();
        for ask in asks {
            commands.push(Command { id: self.next_id, ask: Some(ask) });
            self.next_id += 1;
        }
        self.say.send(AttachRequest { attach: None, commands }).await.unwrap();
        self.next_id - 1
    }

    pub(crate) async fn answer(&mut self, id: u64) -> Answer {
        loop {
            if let Some(at) = self.replies.iter().position(|reply| reply.id == id) {
                return self.replies.swap_remove(at).answer.expect("a reply says something");
            }
            self.listen().await;
        }
    }

    pub(crate) async fn push(&mut self) -> News {
        while self.pushes.is_empty() {
            self.listen().await;
        }
        self.pushes.remove(0).news.expect("a push says something")
    }

    async fn listen(&mut self) {
        let heard = tokio::time::timeout(PATIENCE, self.hear.message()).await;
        let heard = heard.expect("something is said in time").unwrap().expect("it goes on");
        self.replies.extend(heard.replies);
        self.pushes.extend(heard.pushes);
    }

    /// How the stream ends.
    pub(crate) async fn end(mut self) -> Result<Vec<Reply>, Status> {
        let ending = async {
            while let Some(heard) = self.hear.message().await? {
                self.replies.extend(heard.replies);
            }
            Ok(std::mem::take(&mut self.replies))
        };
        tokio::time::timeout(PATIENCE, ending).await.expect("it ends in time")
    }

    pub(crate) fn has_answer(&self, id: u64) -> bool {
        self.replies.iter().any(|reply| reply.id == id)
    }
}

pub(crate) fn try_for(lock: &str) -> Ask {
    Ask::Acquire(Box::new(StreamAcquire { lock: lock.into(), ..StreamAcquire::default() }))
}

pub(crate) fn wait_for(lock: &str, owner: &str) -> Ask {
    Ask::Acquire(Box::new(StreamAcquire {
        lock: lock.into(),
        owner_id: owner.into(),
        wait_forever: true,
        ..StreamAcquire::default()
    }))
}

/// A problem with this code.
#[track_caller]
pub(crate) fn problem(answer: Answer, code: Code) -> Problem {
    let Answer::Problem(problem) = answer else { panic!("a problem was expected: {answer:?}") };
    let problem = Problem::from(&*problem);
    assert_eq!(problem.code, code, "{problem:?}");
    problem
}
