//! One stream to a server of ours: the least that a client can be, without the library.
//!
//! Every answer makes the next request of its worker; what came in one message goes out in one message.

use std::cell::Cell;
use std::time::{Duration, Instant};

use leasehold_api::grpc::sessions_client::SessionsClient;
use leasehold_api::grpc::{
    Attach, AttachRequest, AttachResponse, Command, OpenRequest, StreamAcquire, StreamRelease,
    attach, command::Ask, length, reply::Answer,
};
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Streaming};

use crate::load::{Load, Meter, fresh};
use crate::{WORKERS, run};

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// One stream.
pub(crate) struct Link {
    say: mpsc::UnboundedSender<AttachRequest>,
    hear: Streaming<AttachResponse>,
    _channel: Channel,
}

struct Said(mpsc::UnboundedReceiver<AttachRequest>);

impl Stream for Said {
    type Item = AttachRequest;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<AttachRequest>> {
        self.get_mut().0.poll_recv(cx)
    }
}

impl Link {
    pub(crate) async fn open(port: u16, session: Option<attach::Session>) -> Result<Link, String> {
        Link::open_as(port, None, session).await
    }

    /// The same by the bearer of a token.
    pub(crate) async fn open_as(
        port: u16,
        token: Option<&str>,
        session: Option<attach::Session>,
    ) -> Result<Link, String> {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))
            .map_err(|error| error.to_string())?
            .tcp_nodelay(true);
        let began = Instant::now();
        loop {
            let opened = Link::try_open(&endpoint, token, session.clone()).await;
            if opened.is_ok() || began.elapsed() > Duration::from_secs(10) {
                return opened;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn try_open(
        endpoint: &Endpoint,
        token: Option<&str>,
        session: Option<attach::Session>,
    ) -> Result<Link, String> {
        let channel = endpoint.connect().await.map_err(|error| error.to_string())?;
        let (say, said) = mpsc::unbounded_channel();
        let attach = Attach { session, ..Attach::default() };
        let _ = say.send(AttachRequest { attach: Some(attach), commands: vec![] });
        let mut sessions = SessionsClient::new(channel.clone());
        let mut asked = Request::new(Said(said));
        if let Some(token) = token {
            let bearer = format!("Bearer {token}")
                .parse()
                .map_err(|_| "a token is visible ASCII".to_owned())?;
            asked.metadata_mut().insert("authorization", bearer);
        }
        let hear = sessions.attach(asked).await.map_err(|status| status.to_string())?;
        let mut link = Link { say, hear: hear.into_inner(), _channel: channel };
        link.hear().await?;
        Ok(link)
    }

    pub(crate) fn say(&self, commands: Vec<Command>) {
        let _ = self.say.send(AttachRequest { attach: None, commands });
    }

    pub(crate) async fn hear(&mut self) -> Result<AttachResponse, String> {
        let heard = self.hear.message().await.map_err(|status| status.to_string())?;
        heard.ok_or_else(|| "the stream ended".to_owned())
    }
}

/// What a worker asks for, and as whom.
pub(crate) struct Wish {
    pub(crate) lock: String,
    pub(crate) owner: String,
}

/// One for each worker, by its number.
pub(crate) struct Wishes(Vec<Wish>);

impl Wishes {
    pub(crate) fn new(lock: impl Fn(usize) -> String) -> Wishes {
        let wish = |worker| Wish { lock: lock(worker), owner: format!("worker-{worker}") };
        Wishes((0..WORKERS).map(wish).collect())
    }

    pub(crate) fn of(&self, worker: u64) -> &Wish {
        &self.0[usize::try_from(worker).expect("there are few workers")]
    }
}

pub(crate) fn acquire(worker: u64, wish: &Wish, wait_forever: bool) -> Command {
    Command {
        id: worker,
        ask: Some(Ask::Acquire(Box::new(StreamAcquire {
            lock: wish.lock.clone(),
            owner_id: wish.owner.clone(),
            ttl: Some(length(TTL)),
            wait_forever,
            ..StreamAcquire::default()
        }))),
    }
}

pub(crate) fn release(worker: u64, wish: &Wish, lease_id: String, fencing_token: u64) -> Command {
    let (lock, owner_id) = (wish.lock.clone(), wish.owner.clone());
    let release = StreamRelease { lock, owner_id, lease_id, fencing_token, traceparent: None };
    Command { id: worker, ask: Some(Ask::Release(release)) }
}

/// As a program asks: each acquire has a request id, and a name that no acquire had before.
struct Turns {
    prefix: u64,
    number: Vec<Cell<u64>>,
}

impl Turns {
    fn new() -> Turns {
        Turns { prefix: fresh(), number: vec![Cell::new(0); WORKERS] }
    }

    fn wish(&self, worker: u64) -> (Wish, u64) {
        let number = self.number[usize::try_from(worker).expect("there are few workers")].get();
        let lock = format!("bench/{}/{worker}/{number}", self.prefix);
        (Wish { lock, owner: format!("worker-{worker}") }, number)
    }

    fn acquire(&self, worker: u64) -> Command {
        let cell = &self.number[usize::try_from(worker).expect("there are few workers")];
        cell.set(cell.get() + 1);
        let (wish, number) = self.wish(worker);
        let mut command = acquire(worker, &wish, false);
        if let Some(Ask::Acquire(acquire)) = &mut command.ask {
            acquire.request_id = Some(format!("{:016x}-{worker}-{number}", self.prefix));
        }
        command
    }
}

fn fresh_wishes() -> Wishes {
    let prefix = fresh();
    Wishes::new(|worker| format!("bench/{prefix}/lock-{worker}"))
}

/// Each worker takes and gives back a lock of its own.
pub(crate) async fn own_locks(server: u32, link: &mut Link) -> Result<Load, String> {
    let turns = Turns::new();
    measure(
        server,
        link,
        |worker| turns.acquire(worker),
        |worker, lease, token| release(worker, &turns.wish(worker).0, lease, token),
    )
    .await
}

/// A session for all workers together.
pub(crate) fn session() -> attach::Session {
    let (owner_id, ttl) = ("bench".into(), Some(length(TTL)));
    attach::Session::Open(OpenRequest { owner_id, ttl, ..OpenRequest::default() })
}

/// The same as `own_locks` on a stream that is bound to a session.
pub(crate) async fn locks_of_session(server: u32, link: &mut Link) -> Result<Load, String> {
    let wishes = fresh_wishes();
    let lock = |worker: u64| wishes.of(worker).lock.clone();
    let ask = |worker: u64, ask| Command { id: worker, ask: Some(ask) };
    measure(
        server,
        link,
        |worker| {
            let acquire = StreamAcquire { lock: lock(worker), ..Default::default() };
            ask(worker, Ask::Acquire(Box::new(acquire)))
        },
        |worker, _, fencing_token| {
            let lock = lock(worker);
            ask(worker, Ask::Release(StreamRelease { lock, fencing_token, ..Default::default() }))
        },
    )
    .await
}

pub(crate) async fn measure(
    server: u32,
    link: &mut Link,
    acquire: impl Fn(u64) -> Command,
    release: impl Fn(u64, String, u64) -> Command,
) -> Result<Load, String> {
    link.say((0..WORKERS as u64).map(&acquire).collect());
    let mut meter = Meter::start(server);
    let (mut pairs, mut warm) = (0, false);
    let mut asked = [Instant::now(); WORKERS];
    let mut waits = Vec::new();
    loop {
        let heard = link.hear().await?;
        let now = Instant::now();
        let mut next = Vec::with_capacity(heard.replies.len());
        for reply in heard.replies {
            let asked = asked.get_mut(usize::try_from(reply.id).unwrap_or(usize::MAX));
            let asked = asked.ok_or_else(|| format!("nobody is worker {}", reply.id))?;
            match reply.answer {
                Some(Answer::Granted(grant)) => {
                    waits.push(now - *asked);
                    next.push(release(reply.id, grant.lease_id, grant.fencing_token));
                }
                Some(Answer::Released(_)) => {
                    pairs += 1;
                    *asked = now;
                    next.push(acquire(reply.id));
                }
                other => return Err(format!("unexpected: {other:?}")),
            }
        }
        link.say(next);
        if !warm && meter.elapsed() > Duration::from_millis(500) {
            (meter, pairs, warm) = (Meter::start(server), 0, true);
            waits.clear();
        }
        if warm && meter.elapsed() > run() {
            return Ok(meter.stop(pairs).with_waits(waits));
        }
    }
}
