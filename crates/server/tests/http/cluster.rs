//! Servers among themselves: two in one process around one store, one of which leads. What is sent to the other is carried out
//! for who asked, if that other is believed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use leasehold_access::Token;
use leasehold_engine::SystemClock;
use leasehold_server::{
    AuthConfig, ClusterConfig, Config, Ground, Listener, Remote, Server, Store,
};
use leasehold_store::MemoryJournal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::access;
use crate::polling::eventually;
use crate::world::{Reply, World, config, plant};

/// What must be known everywhere by then.
const SECOND: Duration = Duration::from_secs(1);

/// Both servers. The first one leads.
pub(crate) struct Pair {
    pub(crate) leader: World,
    pub(crate) follower: World,
    root: Token,
    journal: MemoryJournal,
    _folder: TempDir,
}

fn secret(seed: u8) -> Token {
    let byte = |at| seed.wrapping_mul(29).wrapping_add(u8::try_from(at).expect("a short array"));
    Token::mint(&std::array::from_fn(byte))
}

async fn server(journal: &MemoryJournal, change: impl FnOnce(&mut Config)) -> World {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    server_on(listener, address, journal, change).await
}

async fn server_on(
    listener: impl Listener,
    address: SocketAddr,
    journal: &MemoryJournal,
    change: impl FnOnce(&mut Config),
) -> World {
    plant();
    // Any that several servers share: the journal below is what is used.
    let store = Store::parse("postgres://nobody@127.0.0.1/none").unwrap();
    let cluster =
        ClusterConfig { leadership_ttl: Duration::from_secs(2), ..ClusterConfig::default() };
    let mut config = Config { store, cluster, ..config() };
    change(&mut config);
    let journals = vec![Arc::new(journal.clone()) as Arc<_>];
    let ground = Ground { listener, address, journals, clock: Arc::new(SystemClock::new()) };
    World { server: Server::start_on(config, ground).await.unwrap(), address }
}

impl Pair {
    pub(crate) async fn start() -> Pair {
        let folder = tempfile::tempdir().unwrap();
        let root = secret(1);
        let file = folder.path().join("root.token");
        std::fs::write(&file, root.reveal()).unwrap();
        let auth = |config: &mut Config| {
            let bootstrap_token_file = Some(file.clone());
            config.auth = AuthConfig { enabled: true, bootstrap_token_file, ..config.auth.clone() };
        };
        let journal = MemoryJournal::shared();
        let leader = server(&journal, auth).await;
        let pair =
            |follower| Pair { leader, follower, root, journal: journal.clone(), _folder: folder };
        let follower = server(&journal, auth).await;
        let pair = pair(follower);
        let readyz = async || pair.follower.get("/readyz").await.status == 200;
        eventually("the follower follows", readyz).await;
        pair
    }

    pub(crate) async fn ask(
        &self,
        world: &World,
        token: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Reply {
        let bearer = format!("Bearer {token}");
        let mut headers = vec![("authorization", bearer.as_str())];
        let body = body.map(Value::to_string);
        if body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        world.send(method, path, &headers, body.as_deref()).await
    }

    async fn acquire(&self, world: &World, token: &str, lock: &str) -> Reply {
        let path = format!("/v1/locks/{lock}/acquire?namespace=billing");
        let body = json!({ "owner_id": "worker", "ttl_ms": 30_000 });
        self.ask(world, token, "POST", &path, Some(&body)).await
    }

    pub(crate) async fn token(&self, principal: &str, role: &str) -> (String, String) {
        let body = json!({ "principal": principal, "roles": [role] });
        let path = "/v1/auth/tokens";
        let made = self.ask(&self.leader, self.root.reveal(), "POST", path, Some(&body)).await.ok();
        (made["token"].as_str().unwrap().into(), made["id"].as_str().unwrap().into())
    }

    pub(crate) async fn revoke(&self, world: &World, id: &str) {
        let path = format!("/v1/auth/tokens/{id}");
        self.ask(world, self.root.reveal(), "DELETE", &path, None).await.ok();
    }
}

#[tokio::test]
async fn follower_carries_who_asks_to_the_leader_and_nothing_else() {
    let pair = Pair::start().await;
    let (billing, _) = pair.token("billing", "client:billing").await;
    let (other, _) = pair.token("other", "client:billing").await;
    // A token that was made a moment ago at the leader is good at the follower as soon as that knows of it, and the other way.
    eventually("known", async || pair.acquire(&pair.follower, &billing, "a").await.status == 200)
        .await;
    let grant = pair.acquire(&pair.follower, &billing, "b").await.ok();
    let seen = pair
        .ask(&pair.leader, pair.root.reveal(), "GET", "/v1/locks/b?namespace=billing", None)
        .await
        .ok();
    assert_eq!(seen["holders"][0]["principal"], "billing", "{seen}");
    // Neither the same owner nor the lease id make another principal the holder.
    pair.acquire(&pair.follower, &other, "b").await.problem("lock_held");
    let renew = json!({ "owner_id": "worker", "lease_id": grant["lease_id"], "fencing_token": grant["fencing_token"] });
    let path = "/v1/locks/b/renew?namespace=billing";
    let refused = pair.ask(&pair.follower, &other, "POST", path, Some(&renew)).await;
    assert!(matches!(refused.status, 404 | 409), "{refused:?}");
    pair.ask(&pair.follower, &billing, "POST", path, Some(&renew)).await.ok();
    // What clients say of themselves in headers is no word of a server.
    let bearer = format!("Bearer {other}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("leasehold-principal", "billing"),
        ("x-forwarded-user", "billing"),
        ("x-forwarded-for", "10.0.0.1"),
    ];
    let refused = pair.follower.send("POST", path, &headers, Some(&renew.to_string())).await;
    assert!(matches!(refused.status, 404 | 409), "{refused:?}");
}

/// Attack 42.
#[tokio::test]
async fn header_of_a_server_is_believed_from_a_server_alone() {
    let pair = Pair::start().await;
    let (billing, _) = pair.token("billing", "client:billing").await;
    let bearer = format!("Bearer {billing}");
    // As a server would write it, but without the key.
    let payload = "eyJyZXF1ZXN0X2lkIjoieCIsInByaW5jaXBhbCI6InJvb3QiLCJ2aWEiOiJ0b2tlbiIsInBlZXIiOiIxLjIuMy40OjUiLCJzZXJ2ZXIiOiJ4IiwidmVyc2lvbiI6MSwicmVxdWVzdCI6IngiLCJleHBpcmVzX21zIjoxLCJub25jZSI6MX0";
    let forged = format!("1.{payload}.{}", "A".repeat(43));
    for value in ["1", "", "1.e30.AAAA", &forged] {
        for with_token in [false, true] {
            let mut headers = vec![("leasehold-forwarded", value)];
            if with_token {
                headers.push(("authorization", &bearer));
            }
            for world in [&pair.leader, &pair.follower] {
                let refused =
                    world.send("GET", "/v1/locks?namespace=billing", &headers, None).await;
                assert_eq!(refused.status, 400, "{value}: {refused:?}");
                refused.problem("invalid_request");
            }
        }
    }
    let metrics = pair.ask(&pair.leader, pair.root.reveal(), "GET", "/metrics", None).await.text;
    assert!(metrics.contains("leasehold_peer_rejected_total 8\n"), "{metrics}");
}

/// Attack 42, with the header of a real server: taken from the wire, it is good for nothing.
#[tokio::test]
async fn header_that_was_taken_from_the_wire_is_refused() {
    let journal = MemoryJournal::shared();
    let folder = tempfile::tempdir().unwrap();
    let root = secret(1);
    let file = folder.path().join("root.token");
    std::fs::write(&file, root.reveal()).unwrap();
    let tap = Tap::start().await;
    let auth = |config: &mut Config| {
        let bootstrap_token_file = Some(file.clone());
        config.auth = AuthConfig { enabled: true, bootstrap_token_file, ..config.auth.clone() };
    };
    let leader = server(&journal, |config| {
        auth(config);
        config.cluster.advertise = Some(format!("http://{}", tap.address));
    })
    .await;
    tap.leads_to(leader.address);
    let follower = server(&journal, auth).await;
    eventually("the follower follows", async || follower.get("/readyz").await.status == 200).await;
    let bearer = format!("Bearer {}", root.reveal());
    let headers =
        [("authorization", bearer.as_str()), ("cookie", "a=b"), ("leasehold-secret", "x")];
    follower.send("GET", "/v1/locks/x?namespace=billing", &headers, None).await.ok();
    let head = tap.heard();
    let lower = head.to_ascii_lowercase();
    assert!(!head.contains(root.reveal()), "the token went along");
    for name in ["authorization:", "cookie:", "leasehold-secret:"] {
        assert!(!lower.contains(name), "{head}");
    }
    let line =
        head.lines().find(|line| line.to_ascii_lowercase().starts_with("leasehold-forwarded:"));
    let value = line.unwrap().split_once(": ").unwrap().1.trim();
    // Made fresh by whoever has no key, it is good for nothing either, whatever else about it is right.
    let (payload, _) = value.strip_prefix("1.").unwrap().split_once('.').unwrap();
    let mut vouched: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
    vouched["nonce"] = json!(vouched["nonce"].as_u64().unwrap() ^ 1);
    let payload = URL_SAFE_NO_PAD.encode(vouched.to_string());
    let changed = format!("1.{payload}.{}", "A".repeat(43));
    let changed = [("leasehold-forwarded", changed.as_str())];
    let refused = leader.send("GET", "/v1/locks/x?namespace=billing", &changed, None).await;
    assert_eq!(refused.status, 400, "{refused:?}");
    refused.problem("invalid_request");
    let taken = [("leasehold-forwarded", value)];
    for path in ["/v1/locks/x?namespace=billing", "/v1/locks/y?namespace=billing", "/v1/locks/x"] {
        let refused = leader.send("GET", path, &taken, None).await;
        assert_eq!(refused.status, 400, "{path}: {refused:?}");
        refused.problem("invalid_request");
    }
}

/// Attack 7, over HTTP: a watch that waits and one that is told things, a long poll, and single requests, at each server.
#[tokio::test]
async fn revoked_token_is_good_at_no_server_after_a_second() {
    let pair = Pair::start().await;
    for revoked_at in [&pair.leader, &pair.follower] {
        let (billing, id) = pair.token("billing", "client:billing").await;
        for world in [&pair.leader, &pair.follower] {
            eventually("known", async || {
                pair.ask(world, &billing, "GET", "/v1/locks?namespace=billing", None).await.status
                    == 200
            })
            .await;
        }
        let grant = pair.acquire(&pair.follower, &billing, &format!("lock-{id}")).await.ok();
        let mut streams = Vec::new();
        for world in [&pair.leader, &pair.follower] {
            for path in
                ["/v1/watch?namespace=billing", "/v1/events?namespace=billing&wait_ms=20000"]
            {
                streams.push((path, open(world, path, &billing).await));
            }
        }
        pair.revoke(revoked_at, &id).await;
        let revoked = tokio::time::Instant::now();
        for (path, mut stream) in streams {
            let mut rest = Vec::new();
            let ended = tokio::time::timeout_at(revoked + SECOND, stream.read_to_end(&mut rest));
            assert!(ended.await.is_ok(), "{path} goes on");
        }
        tokio::time::timeout_at(revoked + SECOND, async {
            let renew = json!({ "owner_id": "worker", "lease_id": grant["lease_id"], "fencing_token": grant["fencing_token"] });
            let path = format!("/v1/locks/lock-{id}/renew?namespace=billing");
            for world in [&pair.leader, &pair.follower] {
                eventually("refused", async || {
                    // Whoever showed a token before it was known here has shown wrong ones, as it seemed.
                    let refused = pair.ask(world, &billing, "POST", &path, Some(&renew)).await;
                    matches!(refused.status, 401 | 429)
                })
                .await;
            }
        })
        .await
        .expect("it renews a second after it was revoked");
    }
}

/// What a server that was broken into may forward for a while: the leader decides by what it knows itself.
#[tokio::test]
async fn leader_decides_by_what_it_knows_itself() {
    let pair = Pair::start().await;
    let (billing, id) = pair.token("billing", "client:billing").await;
    eventually("known", async || pair.acquire(&pair.follower, &billing, "x").await.status == 200)
        .await;
    let grant = pair.acquire(&pair.follower, &billing, "y").await.ok();
    let renew = json!({ "owner_id": "worker", "lease_id": grant["lease_id"], "fencing_token": grant["fencing_token"] });
    let path = "/v1/locks/y/renew?namespace=billing";
    // The follower may not have heard of it yet: then it is the leader that refuses.
    pair.revoke(&pair.leader, &id).await;
    let refused = pair.ask(&pair.follower, &billing, "POST", path, Some(&renew)).await;
    assert!(matches!(refused.status, 401 | 429), "{refused:?}");
}

#[tokio::test]
async fn key_is_rotated_without_a_gap() {
    let pair = Pair::start().await;
    let (billing, _) = pair.token("billing", "client:billing").await;
    eventually("known", async || pair.acquire(&pair.follower, &billing, "x").await.status == 200)
        .await;
    let key = async || {
        let documents = pair.journal.clone();
        let access = (Arc::new(documents) as Arc<dyn leasehold_store::Journal>).access().unwrap();
        let all = access.documents().await.unwrap().all;
        all.iter().find(|one| one.id().as_str() == "cluster-key").unwrap().body().to_owned()
    };
    let before = key().await;
    let path = "/v1/auth/cluster-key/rotate";
    pair.ask(&pair.follower, &billing, "POST", path, None).await.problem("permission_denied");
    let rotated = pair.ask(&pair.follower, pair.root.reveal(), "POST", path, None).await.ok();
    assert!(rotated["previous_good_until"].is_string(), "{rotated}");
    assert_ne!(key().await, before);
    for number in 0..20 {
        pair.acquire(&pair.follower, &billing, &format!("n{number}")).await.ok();
    }
}

/// Attack 62: watches through a follower have connections of their own, and do not count as those of one peer.
#[tokio::test]
async fn many_watches_through_a_follower_delay_no_heartbeat() {
    let pair = Pair::start().await;
    let (billing, _) = pair.token("billing", "client:billing").await;
    eventually("known", async || pair.acquire(&pair.follower, &billing, "x").await.status == 200)
        .await;
    let body = json!({ "owner_id": "worker", "ttl_ms": 30_000 });
    let root = pair.root.reveal();
    let opened = pair.ask(&pair.follower, root, "POST", "/v1/sessions", Some(&body)).await.ok();
    let mut watches = Vec::new();
    // A principal may have a hundred.
    let (audit, _) = pair.token("audit", "client:billing").await;
    eventually("known", async || pair.acquire(&pair.follower, &audit, "y").await.status == 200)
        .await;
    for _ in 0..64 {
        for token in [&billing, &audit] {
            watches.push(open(&pair.follower, "/v1/watch?namespace=billing", token).await);
        }
    }
    let path = format!("/v1/sessions/{}/keepalive", opened["session_id"].as_str().unwrap());
    let mut took = Vec::new();
    for _ in 0..20 {
        let start = tokio::time::Instant::now();
        pair.ask(&pair.follower, root, "POST", &path, Some(&json!({}))).await.ok();
        took.push(start.elapsed());
    }
    took.sort();
    println!(
        "128 watches through a follower; a keep-alive there: median {:?}, most {:?}",
        took[10], took[19]
    );
    assert!(took[10] <= Duration::from_millis(50), "{took:?}");
}

/// A socket at whose other end the system sees a user.
struct Local(TcpListener, u32);

impl Listener for Local {
    type Stream = TcpStream;

    async fn accept(&self) -> std::io::Result<(TcpStream, Remote)> {
        let (stream, address) = self.0.accept().await?;
        Ok((stream, Remote { address, uid: Some(self.1) }))
    }
}

#[tokio::test]
async fn local_user_of_a_follower_is_the_same_principal_at_the_leader() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.toml");
    access::write(&file, "[principal.\"uid/1000\"]\nroles = [\"client:billing\"]\n");
    let auth = |config: &mut Config| {
        config.auth.enabled = true;
        config.auth.access_file = Some(file.clone());
    };
    let journal = MemoryJournal::shared();
    let _leader = server(&journal, auth).await;
    let mut followers = Vec::new();
    for uid in [1000, 1001] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let follower = server_on(Local(listener, uid), address, &journal, auth).await;
        let readyz = async || follower.get("/readyz").await.status == 200;
        eventually("the follower follows", readyz).await;
        followers.push(follower);
    }
    let body = json!({ "owner_id": "worker", "ttl_ms": 30_000 }).to_string();
    let path = "/v1/locks/a/acquire?namespace=billing";
    followers[0].post(path, &body).await.ok();
    let held = followers[0].get("/v1/locks/a?namespace=billing").await.ok();
    assert_eq!(held["holders"][0]["principal"], "uid/1000", "{held}");
    followers[0].post("/v1/locks/a/acquire", &body).await.problem("permission_denied");
    followers[1].post(path, &body).await.problem("permission_denied");
}

/// Opens a stream and waits until its head has come; a long poll has none yet.
async fn open(world: &World, path: &str, token: &str) -> TcpStream {
    let mut stream = world.connect().await;
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    if path.starts_with("/v1/watch") {
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
    }
    stream
}

/// A wire between two servers on which somebody listens.
struct Tap {
    address: SocketAddr,
    to: Arc<std::sync::Mutex<Option<SocketAddr>>>,
    heard: Arc<std::sync::Mutex<Vec<u8>>>,
}

impl Tap {
    async fn start() -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tap = Tap { address, to: Arc::default(), heard: Arc::default() };
        let (to, heard) = (tap.to.clone(), tap.heard.clone());
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let to = to.lock().unwrap().expect("it leads somewhere");
                let heard = heard.clone();
                tokio::spawn(async move {
                    let far = TcpStream::connect(to).await.unwrap();
                    let (mut from_near, mut to_near) = near.into_split();
                    let (mut from_far, mut to_far) = far.into_split();
                    let back = tokio::spawn(async move {
                        let _ = tokio::io::copy(&mut from_far, &mut to_near).await;
                    });
                    let mut bytes = [0; 4096];
                    while let Ok(len @ 1..) = from_near.read(&mut bytes).await {
                        heard.lock().unwrap().extend(&bytes[..len]);
                        if to_far.write_all(&bytes[..len]).await.is_err() {
                            break;
                        }
                    }
                    drop(to_far);
                    let _ = back.await;
                });
            }
        });
        tap
    }

    fn leads_to(&self, address: SocketAddr) {
        *self.to.lock().unwrap() = Some(address);
    }

    fn heard(&self) -> String {
        String::from_utf8_lossy(&self.heard.lock().unwrap()).into_owned()
    }
}
