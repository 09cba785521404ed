//! Two servers around one store, over TLS: each knows the other by its certificate, and one stands for the clients of the other.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::http::Uri;
use hyper_util::rt::TokioIo;
use leasehold_access::Token;
use leasehold_api::grpc::locks_client::LocksClient;
use leasehold_api::grpc::sessions_client::SessionsClient;
use leasehold_api::grpc::watch_client::WatchClient;
use leasehold_api::grpc::{
    AcquireRequest, Attach, AttachRequest, AttachResponse, Command, OpenRequest, StreamAcquire,
    WatchRequest, attach, command::Ask, length, reply::Answer,
};
use leasehold_engine::SystemClock;
use leasehold_server::{AuthConfig, ClientAuth, ClusterConfig, Config, Ground, Server, Store};
use leasehold_store::MemoryJournal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::client::TlsStream;
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tower_service::Service;

use crate::authority::{Authority, Signed, Wanted};
use crate::polling::eventually;
use crate::world::{Client, Connection, Files, config};

const WORKER: &str = "leasehold://principal/worker";
const SERVER: &str = "leasehold://server/one";
const ACCESS: &str = "[principal.worker]\nroles = [\"client:default\"]\n";
/// What must be known everywhere by then.
const SECOND: Duration = Duration::from_secs(1);

fn admin() -> Token {
    Token::mint(&[7; 40])
}

/// Who signs for whom.
struct Authorities {
    servers: Authority,
    clients: Authority,
}

impl Authorities {
    fn new() -> Authorities {
        Authorities { servers: Authority::new("servers"), clients: Authority::new("clients") }
    }

    fn server(&self) -> Signed {
        self.servers.sign(of_server(&[SERVER]))
    }

    fn worker(&self) -> Signed {
        self.clients.sign(Wanted::for_client(&[WORKER]))
    }
}

fn of_server(uris: &[&str]) -> Wanted {
    let mut wanted = Wanted::for_server();
    wanted.names.extend(Wanted::for_client(uris).names);
    wanted
}

/// A server of the cluster, and its files.
struct Node {
    server: Server,
    address: SocketAddr,
    files: Files,
}

impl Node {
    async fn start(
        journal: &MemoryJournal,
        authorities: &Authorities,
        set: impl FnOnce(&mut Config),
    ) -> Node {
        let files = Files::of(&authorities.server());
        files.write("clients.pem", &authorities.clients.pem());
        files.write("servers.pem", &authorities.servers.pem());
        files.write("revoked.pem", &authorities.clients.revokes(&[]));
        files.write("root.token", admin().reveal());
        files.write("access.toml", ACCESS);
        let mut tls = files.tls();
        tls.client_ca = Some(files.path("clients.pem"));
        tls.crl = Some(files.path("revoked.pem"));
        tls.client_auth = ClientAuth::Optional;
        let auth = AuthConfig {
            enabled: true,
            access_file: Some(files.path("access.toml")),
            bootstrap_token_file: Some(files.path("root.token")),
            ..AuthConfig::default()
        };
        let cluster = ClusterConfig {
            ca: Some(files.path("servers.pem")),
            leadership_ttl: Duration::from_secs(2),
            ..ClusterConfig::default()
        };
        // Any that several servers share: the journal is what is used.
        let store = Store::parse("postgres://nobody@127.0.0.1/none").unwrap();
        let mut config = Config { auth, cluster, store, ..config(tls) };
        set(&mut config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let journals = vec![Arc::new(journal.clone()) as Arc<_>];
        let ground = Ground { listener, address, journals, clock: Arc::new(SystemClock::new()) };
        let server = Server::start_on(config, ground).await.unwrap();
        Node { server, address, files }
    }
}

/// Both servers. The first one leads.
struct Pair {
    leader: Node,
    follower: Node,
    authorities: Arc<Authorities>,
}

impl Pair {
    async fn start() -> Pair {
        Pair::with(|_| {}).await
    }

    /// With these settings on both.
    async fn with(set: impl Fn(&mut Config)) -> Pair {
        let (journal, authorities) = (MemoryJournal::shared(), Arc::new(Authorities::new()));
        let leader = Node::start(&journal, &authorities, &set).await;
        let follower = Node::start(&journal, &authorities, &set).await;
        let pair = Pair { leader, follower, authorities };
        pair.follows().await;
        pair
    }

    async fn follows(&self) {
        let is_ready = async || self.nobody(&self.follower).get("/readyz").await.unwrap().0 == 200;
        eventually("the follower follows", is_ready).await;
    }

    fn nobody(&self, node: &Node) -> Client {
        Client::trusting(&self.authorities.servers, node.address)
    }

    fn showing(&self, node: &Node, own: &Signed) -> Client {
        Client::with_certificate(&self.authorities.servers, node.address, own)
    }

    /// A token of a principal that may use the namespace, once both servers know it; and its id.
    async fn token(&self, principal: &str) -> (String, String) {
        let body = json!({ "principal": principal, "roles": ["client:default"] });
        let (status, made) =
            as_admin(&self.nobody(&self.leader), "POST /v1/auth/tokens", &body).await;
        assert!(matches!(status, 200 | 201), "{made}");
        let token = made["token"].as_str().unwrap().to_owned();
        let headers = bearer(&token);
        let client = self.nobody(&self.follower);
        let is_known = async || say(&client, "GET /v1/locks", &headers, "").await.0 == 200;
        eventually("it is known", is_known).await;
        (token, made["id"].as_str().unwrap().into())
    }

    async fn rejected(&self) -> u64 {
        let headers = bearer(admin().reveal());
        let (_, metrics) = self
            .nobody(&self.leader)
            .connect()
            .await
            .unwrap()
            .ask("/metrics", &headers)
            .await
            .unwrap();
        let line =
            metrics.lines().find_map(|line| line.strip_prefix("leasehold_peer_rejected_total "));
        line.unwrap().parse().unwrap()
    }
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

/// One request on a connection of its own; the status and the JSON of the answer.
async fn say(client: &Client, what: &str, headers: &str, body: &str) -> (u16, Value) {
    let mut connection = client.connect().await.unwrap();
    let (status, answer) = connection.say(what, headers, body).await.unwrap();
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or_default())
}

async fn as_admin(client: &Client, what: &str, body: &Value) -> (u16, Value) {
    say(client, what, &bearer(admin().reveal()), &body.to_string()).await
}

async fn acquire(client: &Client, lock: &str, headers: &str) -> (u16, Value) {
    let body = json!({ "owner_id": "one", "ttl_ms": 30_000 }).to_string();
    say(client, &format!("POST /v1/locks/{lock}/acquire"), headers, &body).await
}

/// Speaks gRPC through TLS.
#[derive(Clone)]
struct Dial(Client);

impl Service<Uri> for Dial {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = std::io::Error;
    type Future = Pin<Box<dyn Future<Output = std::io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Dial(mut client) = self.clone();
        client.config.alpn_protocols = vec![b"h2".to_vec()];
        Box::pin(async move { client.connect().await.map(|connection| TokioIo::new(connection.0)) })
    }
}

async fn channel(client: &Client) -> Channel {
    let endpoint = Endpoint::from_static("http://localhost");
    endpoint.connect_with_connector(Dial(client.clone())).await.unwrap()
}

/// What is asked, by the bearer of a token, if there is one.
fn by<T>(token: Option<&str>, asked: T) -> Request<T> {
    let mut request = Request::new(asked);
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().unwrap();
        request.metadata_mut().insert("authorization", value);
    }
    request
}

struct Said(mpsc::Receiver<AttachRequest>);

impl Stream for Said {
    type Item = AttachRequest;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AttachRequest>> {
        self.get_mut().0.poll_recv(cx)
    }
}

/// A stream with a session of its own.
struct Talk {
    say: mpsc::Sender<AttachRequest>,
    hear: Streaming<AttachResponse>,
}

impl Talk {
    async fn begin(channel: &Channel, token: Option<&str>, owner: &str) -> Talk {
        let ttl = Some(length(Duration::from_secs(30)));
        let open = OpenRequest { owner_id: owner.into(), ttl, ..OpenRequest::default() };
        let attach = Attach { session: Some(attach::Session::Open(open)), ..Attach::default() };
        let (say, said) = mpsc::channel(64);
        say.send(AttachRequest { attach: Some(attach), commands: vec![] }).await.unwrap();
        let mut sessions = SessionsClient::new(channel.clone());
        let mut hear = sessions.attach(by(token, Said(said))).await.unwrap().into_inner();
        let first = hear.message().await.unwrap().unwrap();
        assert!(first.attached.is_some());
        Talk { say, hear }
    }

    fn asking(id: u64, lock: &str) -> AttachRequest {
        let acquire = StreamAcquire { lock: lock.into(), ..StreamAcquire::default() };
        let ask = Some(Ask::Acquire(Box::new(acquire)));
        AttachRequest { attach: None, commands: vec![Command { id, ask }] }
    }

    async fn acquire(&mut self, id: u64, lock: &str) -> Answer {
        self.say.send(Talk::asking(id, lock)).await.unwrap();
        loop {
            let heard = self.hear.message().await.unwrap().unwrap();
            if let Some(reply) = heard.replies.into_iter().find(|reply| reply.id == id) {
                return reply.answer.unwrap();
            }
        }
    }

    /// How it ends, if each answer is followed by the next request or nothing is said any more; and when.
    async fn end(self, is_busy: bool) -> (Status, Instant) {
        let Talk { say, mut hear } = self;
        for id in 1000.. {
            if is_busy {
                // Where nobody listens any more, the end is to be heard.
                let _ = say.send(Talk::asking(id, "busy")).await;
            }
            match hear.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return (Status::ok("it has ended"), Instant::now()),
                Err(status) => return (status, Instant::now()),
            }
        }
        unreachable!("there are numbers enough")
    }
}

/// Opens a watch, and waits until it has begun.
async fn watch(client: &Client, headers: &str) -> Connection {
    let mut connection = client.connect().await.unwrap();
    let head = format!("GET /v1/watch HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    connection.0.write_all(head.as_bytes()).await.unwrap();
    let mut begun = [0; 12];
    connection.0.read_exact(&mut begun).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    connection
}

/// Reads until the watch is over; all that it told, and when it ended.
async fn end(mut watch: Connection) -> (String, Instant) {
    let mut said = Vec::new();
    let mut part = [0; 4096];
    let reading = async {
        loop {
            match watch.0.read(&mut part).await {
                Ok(0) | Err(_) => return,
                Ok(len) => said.extend_from_slice(&part[..len]),
            }
            // The last chunk of a body.
            if said.ends_with(b"0\r\n\r\n") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("it ends");
    (String::from_utf8(said).unwrap(), Instant::now())
}

#[tokio::test]
async fn follower_forwards_over_tls_who_asks_by_token_and_by_certificate() {
    let pair = Pair::start().await;
    let (token, _) = pair.token("billing").await;
    let worker = pair.authorities.worker();
    for (client, token, principal) in [
        (pair.nobody(&pair.follower), Some(&*token), "billing"),
        (pair.showing(&pair.follower, &worker), None, "worker"),
    ] {
        let headers = token.map(bearer).unwrap_or_default();
        let name = |part: &str| format!("{principal}-{part}");
        let mut told = watch(&client, &headers).await;
        let (status, grant) = acquire(&client, &name("http"), &headers).await;
        assert_eq!(status, 200, "{grant}");
        let get = format!("GET /v1/locks/{}", name("http"));
        let at_leader = say(&pair.nobody(&pair.leader), &get, &bearer(admin().reveal()), "").await;
        assert_eq!(at_leader.1["holders"][0]["principal"], principal, "{at_leader:?}");
        // What the leader has granted comes back through the follower.
        let mut part = vec![0; 4096];
        let mut heard = String::new();
        while !heard.contains(&name("http")) {
            let len = tokio::time::timeout(SECOND * 10, told.0.read(&mut part)).await;
            heard.push_str(&String::from_utf8_lossy(&part[..len.expect("it is told").unwrap()]));
        }
        let channel = channel(&client).await;
        let ttl = Some(length(Duration::from_secs(30)));
        let asked = AcquireRequest {
            lock: name("grpc"),
            owner_id: "one".into(),
            ttl,
            ..AcquireRequest::default()
        };
        let granted = LocksClient::new(channel.clone()).acquire(by(token, asked)).await.unwrap();
        assert!(granted.into_inner().fencing_token > 0);
        let mut talk = Talk::begin(&channel, token, &name("stream")).await;
        let answer = talk.acquire(1, &name("attached")).await;
        assert!(matches!(answer, Answer::Granted(_)), "{answer:?}");
        // And nothing that it may not.
        let asked = format!("POST /v1/locks/{}/acquire?namespace=secret", name("http"));
        let body = json!({ "owner_id": "one", "ttl_ms": 30_000 }).to_string();
        assert_eq!(say(&client, &asked, &headers, &body).await.0, 403);
    }
    assert_eq!(pair.rejected().await, 0);
    pair.leader.server.stop().await;
    pair.follower.server.stop().await;
}

/// Attack 7, by gRPC, and 18: all through a follower.
#[tokio::test]
async fn streams_through_a_follower_end_with_what_let_them_in() {
    let pair = Pair::start().await;
    for revoked_at in [&pair.leader, &pair.follower] {
        let (token, id) = pair.token("billing").await;
        let mut talks = Vec::new();
        let mut watches = Vec::new();
        for node in [&pair.leader, &pair.follower] {
            let channel = channel(&pair.nobody(node)).await;
            for is_busy in [false, true] {
                let talk = Talk::begin(&channel, Some(&token), &format!("{is_busy}")).await;
                talks.push(tokio::spawn(talk.end(is_busy)));
            }
            let asked = by(Some(&token), WatchRequest::default());
            let told = WatchClient::new(channel).watch(asked).await.unwrap().into_inner();
            watches.push(told);
        }
        let client = pair.nobody(revoked_at);
        let what = format!("DELETE /v1/auth/tokens/{id}");
        assert_eq!(say(&client, &what, &bearer(admin().reveal()), "").await.0, 200);
        let revoked = Instant::now();
        for talk in talks {
            let (status, ended) = talk.await.unwrap();
            assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
            assert!(ended < revoked + SECOND, "{:?}", ended - revoked);
        }
        for mut told in watches {
            let ending = async {
                loop {
                    match told.message().await {
                        Ok(Some(_)) => {}
                        Ok(None) => return Code::Ok,
                        Err(status) => return status.code(),
                    }
                }
            };
            let until = tokio::time::Instant::from_std(revoked + SECOND);
            let ended = tokio::time::timeout_at(until, ending).await;
            assert_eq!(ended.expect("it ends in time"), Code::Unauthenticated);
        }
    }
    // A certificate that the store denies is good for nothing at the leader, which has never seen it.
    let worker = pair.authorities.worker();
    let client = pair.showing(&pair.follower, &worker);
    let open = watch(&client, "").await;
    let digits: String = worker.serial.iter().map(|byte| format!("{byte:02x}")).collect();
    let denial = json!({ "certificate": digits });
    let denied = as_admin(&pair.nobody(&pair.leader), "POST /v1/auth/revocations", &denial).await;
    assert_eq!(denied.0, 200, "{denied:?}");
    let denied = Instant::now();
    let (_, ended) = end(open).await;
    assert!(ended < denied + SECOND, "{:?}", ended - denied);
    assert!(matches!(acquire(&client, "x", "").await.0, 401 | 429));
    // One that only the list of the follower names ends there.
    let listed = pair.authorities.worker();
    let client = pair.showing(&pair.follower, &listed);
    let open = watch(&client, "").await;
    pair.follower.files.write("revoked.pem", &pair.authorities.clients.revokes(&[&listed]));
    let written = Instant::now();
    let (_, ended) = end(open).await;
    assert!(ended < written + SECOND * 2, "{:?}", ended - written);
}

/// Speaks TLS as a server does, and notes what it is asked.
struct Tap {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    async fn start(shown: &Signed) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tap = Tap { address: listener.local_addr().unwrap(), heard: Arc::default() };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![shown.certificate.clone()], shown.key())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let heard = tap.heard.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(tcp).await else { continue };
                let mut part = [0; 4096];
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut part).await {
                        Ok(len @ 1..) => head.extend_from_slice(&part[..len]),
                        Ok(_) | Err(_) => break,
                    }
                }
                heard.lock().unwrap().extend(head);
                let _ = stream
                    .write_all(
                        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}",
                    )
                    .await;
                let _ = stream.shutdown().await;
            }
        });
        tap
    }

    fn heard(&self) -> String {
        String::from_utf8_lossy(&self.heard.lock().unwrap()).into_owned()
    }
}

/// A pair of which the follower finds the tap where it looks for the leader.
async fn tapped(authorities: &Arc<Authorities>, tap: &Tap) -> Pair {
    let (journal, authorities) = (MemoryJournal::shared(), authorities.clone());
    let address = format!("https://{}", tap.address);
    let elsewhere = |config: &mut Config| config.cluster.advertise = Some(address);
    let leader = Node::start(&journal, &authorities, elsewhere).await;
    let follower = Node::start(&journal, &authorities, |_| {}).await;
    let pair = Pair { leader, follower, authorities };
    pair.follows().await;
    pair
}

/// Attack 44, with a header that a real server has just made and that was never used.
#[tokio::test]
async fn word_of_a_server_counts_with_the_certificate_of_a_server_alone() {
    let authorities = Arc::new(Authorities::new());
    let tap = Tap::start(&authorities.server()).await;
    let pair = tapped(&authorities, &tap).await;
    let path = "/v1/locks/x";
    let asked = pair
        .nobody(&pair.follower)
        .connect()
        .await
        .unwrap()
        .ask(path, &bearer(admin().reveal()))
        .await
        .unwrap();
    assert_eq!(asked.0, 200, "{asked:?}");
    let heard = tap.heard();
    assert!(!heard.contains(admin().reveal()), "the token went along");
    let is_header = |line: &&str| line.to_ascii_lowercase().starts_with("leasehold-forwarded:");
    let header = heard.lines().find(is_header).unwrap().to_owned() + "\r\n";
    let Authorities { servers, clients } = &*pair.authorities;
    let shown = [
        None,
        Some(pair.authorities.worker()),
        Some(clients.sign(of_server(&[SERVER]))),
        Some(servers.sign(of_server(&[]))),
        Some(servers.sign(of_server(&["leasehold://server/"]))),
        Some(servers.sign(of_server(&[WORKER]))),
    ];
    let before = pair.rejected().await;
    for own in &shown {
        let client = match own {
            Some(own) => pair.showing(&pair.leader, own),
            None => pair.nobody(&pair.leader),
        };
        let (status, refused) = say(&client, &format!("GET {path}"), &header, "").await;
        assert_eq!((status, &refused["code"]), (400, &json!("invalid_request")), "{refused}");
    }
    assert_eq!(pair.rejected().await, before + shown.len() as u64);
    let client = pair.showing(&pair.leader, &pair.authorities.server());
    let (status, lock) = say(&client, &format!("GET {path}"), &header, "").await;
    assert_eq!((status, &lock["state"]), (200, &json!("free")));
    // Once.
    assert_eq!(say(&client, &format!("GET {path}"), &header, "").await.0, 400);
    // And a server is no client.
    assert_eq!(say(&client, &format!("GET {path}"), "", "").await.0, 401);
}

/// The other half of attack 44: a client's certificate makes no leader.
#[tokio::test]
async fn follower_tells_nothing_to_what_is_no_server() {
    let authorities = Arc::new(Authorities::new());
    let other = Authority::new("servers");
    for signed in [
        authorities.servers.sign(of_server(&[])),
        authorities.servers.sign(of_server(&[WORKER])),
        other.sign(of_server(&[SERVER])),
        authorities
            .servers
            .sign(Wanted { names: Wanted::for_client(&[SERVER]).names, ..Wanted::for_server() }),
    ] {
        let tap = Tap::start(&signed).await;
        let pair = tapped(&authorities, &tap).await;
        let headers = bearer(admin().reveal());
        let (status, refused) =
            say(&pair.nobody(&pair.follower), "GET /v1/locks/x", &headers, "").await;
        assert_eq!((status, &refused["code"]), (503, &json!("not_leader")), "{refused}");
        assert_eq!(tap.heard(), "");
    }
}

#[tokio::test]
async fn certificate_of_a_server_is_replaced_without_a_gap() {
    let pair = Pair::start().await;
    let (token, _) = pair.token("billing").await;
    let client = pair.nobody(&pair.follower);
    let headers = bearer(&token);
    // Over connections of before, which are kept.
    let channel = channel(&client).await;
    let mut talk = Talk::begin(&channel, Some(&token), "stream").await;
    assert_eq!(acquire(&client, "before", &headers).await.0, 200);
    let first = client.connect().await.unwrap().server();
    let next = pair.authorities.server();
    pair.follower.files.write("server.key", &next.key_pem());
    pair.follower.files.write("server.pem", &next.pem);
    let is_new = async || client.connect().await.unwrap().server() == next.certificate;
    eventually("the new one is shown", is_new).await;
    assert_eq!(acquire(&client, "between", &headers).await.0, 200);
    assert!(matches!(talk.acquire(1, "stream").await, Answer::Granted(_)), "it goes on");
    // The old one is good for nothing: no request is sent with it any more.
    let read = webpki::EndEntityCert::try_from(&first).unwrap();
    let digits: String = read.serial().iter().map(|byte| format!("{byte:02x}")).collect();
    let denial = json!({ "certificate": digits });
    let denied = as_admin(&pair.nobody(&pair.leader), "POST /v1/auth/revocations", &denial).await;
    assert_eq!(denied.0, 200, "{denied:?}");
    for number in 0..5 {
        assert_eq!(acquire(&client, &format!("after-{number}"), &headers).await.0, 200);
    }
}

#[tokio::test]
async fn clients_are_asked_for_nothing_because_servers_are() {
    let pair = Pair::with(|config| {
        let tls = config.tls.as_mut().unwrap();
        (tls.client_ca, tls.crl, tls.client_auth) = (None, None, ClientAuth::Off);
    })
    .await;
    let (token, _) = pair.token("billing").await;
    let of_servers = pair.authorities.servers.sign(Wanted::for_client(&[WORKER]));
    for client in [pair.nobody(&pair.follower), pair.showing(&pair.follower, &of_servers)] {
        let (status, answer) = acquire(&client, "x", &bearer(&token)).await;
        assert!(matches!(status, 200 | 409), "{answer}");
        // What is shown unasked stands for nobody, and harms nobody.
        assert_eq!(acquire(&client, "x", "").await.0, 401);
        assert_eq!(client.get("/readyz").await.unwrap().0, 200);
    }
}

#[tokio::test]
async fn server_that_others_would_not_know_does_not_start() {
    let authorities = Authorities::new();
    let refused = async |shown: &Signed, set: &dyn Fn(&Files, &mut Config)| {
        let files = Files::of(shown);
        files.write("servers.pem", &authorities.servers.pem());
        let mut config = config(files.tls());
        config.cluster.ca = Some(files.path("servers.pem"));
        set(&files, &mut config);
        match Server::start(config).await {
            Err(error) => error.to_string(),
            Ok(_) => panic!("it starts"),
        }
    };
    let none = |_: &Files, _: &mut Config| {};
    let said = refused(&authorities.servers.sign(of_server(&[])), &none).await;
    assert!(said.contains("it has no name leasehold://server/NAME"), "{said}");
    let said = refused(&authorities.clients.sign(of_server(&[SERVER])), &none).await;
    assert!(said.contains("other servers would not know this one by its certificate"), "{said}");
    let good = authorities.server();
    let no_file = |files: &Files, config: &mut Config| config.cluster.ca = Some(files.path("none"));
    let said = refused(&good, &no_file).await;
    assert!(said.starts_with("cannot read ") && said.contains("none"), "{said}");
    let no_tls = |_: &Files, config: &mut Config| config.tls = None;
    let said = refused(&good, &no_tls).await;
    assert!(said.contains("cluster.ca") && said.contains("it needs [tls]"), "{said}");
    let in_the_clear = |_: &Files, config: &mut Config| {
        config.cluster.advertise = Some("http://127.0.0.1:8080".into());
    };
    let said = refused(&good, &in_the_clear).await;
    assert!(said.contains("cluster.advertise") && said.contains("https://HOST:PORT"), "{said}");
}
