//! Certificates of clients: who they stand for, and that nobody is served by one that is not good any more.

use std::time::{Duration, Instant};

use leasehold_access::Token;
use leasehold_server::{AuthConfig, ClientAuth, Config, Server};
use rcgen::{ExtendedKeyUsagePurpose, SanType};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::authority::{Authority, Signed, Wanted, dns};
use crate::polling::eventually;
use crate::world::{Client, Connection, Files, config};

const WORKER: &str = "leasehold://principal/worker";
const ACCESS: &str = "[principal.worker]\nroles = [\"client:default\"]\n";

/// A server that knows its clients by their certificates.
struct Gate {
    server: Server,
    files: Files,
    authority: Authority,
    clients: Authority,
}

fn admin() -> Token {
    Token::mint(&[7; 40])
}

impl Gate {
    async fn start(client_auth: ClientAuth) -> Gate {
        let authority = Authority::new("servers");
        let clients = Authority::new("clients");
        let files = Files::of(&authority.server());
        files.write("clients.pem", &clients.pem());
        files.write("revoked.pem", &clients.revokes(&[]));
        let token = admin();
        files.write(
            "access.toml",
            &format!(
                "{ACCESS}[[token]]\nid = \"{}\"\nprincipal = \"root\"\nroles = [\"admin\"]\nsha256 = \"{}\"\n",
                token.id(),
                token.hash()
            ),
        );
        let mut tls = files.tls();
        tls.client_ca = Some(files.path("clients.pem"));
        tls.crl = Some(files.path("revoked.pem"));
        tls.client_auth = client_auth;
        let access_file = Some(files.path("access.toml"));
        let auth = AuthConfig { enabled: true, access_file, ..AuthConfig::default() };
        let server = Server::start(Config { auth, ..config(tls) }).await.unwrap();
        Gate { server, files, authority, clients }
    }

    fn client(&self, own: &Signed) -> Client {
        Client::with_certificate(&self.authority, self.server.address(), own)
    }

    fn nobody(&self) -> Client {
        Client::trusting(&self.authority, self.server.address())
    }

    fn worker(&self) -> Signed {
        self.clients.sign(Wanted::for_client(&[WORKER]))
    }

    /// Denies a certificate, as an administrator does.
    async fn deny(&self, certificate: &Signed) {
        let digits: String = certificate.serial.iter().map(|byte| format!("{byte:02X}")).collect();
        let body = json!({ "certificate": digits }).to_string();
        let text = format!(
            "POST /v1/auth/revocations HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            admin().reveal(),
            body.len()
        );
        let mut connection = self.nobody().connect().await.unwrap();
        connection.0.write_all(text.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let len = connection.0.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..len]);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}

async fn who(client: &Client, headers: &str) -> (u16, Value) {
    let mut connection = client.connect().await.unwrap();
    let (status, answer) = connection.ask("/v1/auth/self", headers).await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(body).unwrap())
}

/// Opens a watch, and waits until it has begun.
async fn watch(client: &Client) -> Connection {
    let mut connection = client.connect().await.unwrap();
    let head = "GET /v1/watch HTTP/1.1\r\nhost: localhost\r\n\r\n";
    connection.0.write_all(head.as_bytes()).await.unwrap();
    let mut begun = [0; 12];
    connection.0.read_exact(&mut begun).await.unwrap();
    assert_eq!(&begun, b"HTTP/1.1 200");
    connection
}

/// Reads until the watch is over; how long that took.
async fn end(mut watch: Connection) -> Duration {
    let begun = Instant::now();
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
    begun.elapsed()
}

/// Attack 16.
#[tokio::test]
async fn certificate_that_is_not_good_is_no_handshake() {
    for client_auth in [ClientAuth::Optional, ClientAuth::Required] {
        let gate = Gate::start(client_auth).await;
        let good = gate.worker();
        assert_eq!(gate.client(&good).get("/v1/locks").await.unwrap().0, 200);
        let revoked = gate.worker();
        gate.files.write("revoked.pem", &gate.clients.revokes(&[&revoked]));
        let is_refused = async || gate.client(&revoked).get("/livez").await.is_err();
        eventually("the list is read", is_refused).await;
        let worker = || Wanted::for_client(&[WORKER]);
        let of_server = Wanted { usages: vec![ExtendedKeyUsagePurpose::ServerAuth], ..worker() };
        for bad in [
            Authority::new("clients").sign(worker()),
            gate.clients.sign(Wanted { is_expired: true, ..worker() }),
            gate.clients.sign(of_server),
        ] {
            assert!(gate.client(&bad).get("/livez").await.is_err());
        }
        assert_eq!(gate.client(&good).get("/v1/locks").await.unwrap().0, 200);
        let without = gate.nobody().get("/v1/locks").await;
        match client_auth {
            ClientAuth::Required => assert!(without.is_err()),
            ClientAuth::Optional | ClientAuth::Off => assert_eq!(without.unwrap().0, 401),
        }
        gate.server.stop().await;
    }
}

/// Attack 17.
#[tokio::test]
async fn principal_is_what_exactly_one_name_of_the_certificate_says() {
    let gate = Gate::start(ClientAuth::Optional).await;
    let (status, own) = who(&gate.client(&gate.worker()), "").await;
    assert_eq!(
        (status, &own["principal"], &own["credential"]),
        (200, &json!("worker"), &json!("certificate"))
    );
    assert!(own["verbs"].as_array().unwrap().contains(&json!("acquire")), "{own}");
    // One that has no roles is known, and may nothing.
    let stranger =
        gate.clients.sign(Wanted::for_client(&["leasehold://principal/k8s/prod/stranger"]));
    let stranger = gate.client(&stranger);
    assert_eq!(who(&stranger, "").await.1["principal"], "k8s/prod/stranger");
    assert_eq!(stranger.get("/v1/locks").await.unwrap().0, 403);
    let two = [WORKER, "leasehold://principal/other"];
    for names in [
        vec![],
        vec![dns("worker"), SanType::URI("https://worker".try_into().unwrap())],
        Wanted::for_client(&two).names,
        Wanted::for_client(&["leasehold://principal/server/a"]).names,
        Wanted::for_client(&["leasehold://server/worker"]).names,
    ] {
        let signed = gate.clients.sign(Wanted { names, ..Wanted::for_client(&[]) });
        for path in ["/v1/locks", "/livez", "/v1/auth/self"] {
            let (status, answer) = gate.client(&signed).get(path).await.unwrap();
            assert!(matches!(status, 401 | 429), "{path}: {answer}");
        }
    }
    gate.server.stop().await;
}

#[tokio::test]
async fn bearer_acts_where_both_are_shown_and_both_have_to_be_good() {
    let gate = Gate::start(ClientAuth::Optional).await;
    let bearer = format!("authorization: Bearer {}\r\n", admin().reveal());
    let worker = gate.worker();
    assert_eq!(who(&gate.client(&worker), &bearer).await.1["principal"], "root");
    // As a mesh has them: they stand for nobody here.
    let of_mesh = gate.clients.sign(Wanted::for_client(&["spiffe://mesh/ns/a/sa/b"]));
    assert_eq!(who(&gate.client(&of_mesh), &bearer).await.1["principal"], "root");
    let wrong = "authorization: Bearer lk_\r\n";
    assert_eq!(who(&gate.client(&worker), wrong).await.0, 401);
    gate.deny(&worker).await;
    assert_eq!(who(&gate.client(&worker), &bearer).await.0, 401);
    gate.server.stop().await;
}

/// Attack 18.
#[tokio::test]
async fn open_streams_end_with_their_certificate() {
    let gate = Gate::start(ClientAuth::Required).await;
    let listed = gate.worker();
    let brief =
        Wanted { expires_in: Some(Duration::from_secs(3)), ..Wanted::for_client(&[WORKER]) };
    let (brief, until) = (gate.clients.sign(brief), Instant::now() + Duration::from_secs(3));
    let kept = gate.worker();
    let mut kept_watch = watch(&gate.client(&kept)).await;
    let brief_watch = watch(&gate.client(&brief)).await;
    let listed_watch = watch(&gate.client(&listed)).await;
    let mut idle = gate.client(&listed).connect().await.unwrap();
    gate.files.write("revoked.pem", &gate.clients.revokes(&[&listed]));
    let took = end(listed_watch).await;
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(idle.ask("/v1/locks", "").await.unwrap().0, 401);
    end(brief_watch).await;
    assert!(
        Instant::now() < until + Duration::from_millis(2200),
        "a second of the clock, and one more"
    );
    assert_eq!(gate.client(&kept).get("/v1/locks").await.unwrap().0, 200);
    let is_open = tokio::time::timeout(Duration::from_millis(1), kept_watch.0.read_u8());
    assert!(!matches!(is_open.await, Ok(Err(_))), "others go on");
    gate.server.stop().await;
}

/// Attacks 18 and 19, with the list of the store.
#[tokio::test]
async fn denied_certificate_is_good_for_no_stream_and_no_resumed_session() {
    let gate = Gate::start(ClientAuth::Optional).await;
    let worker = gate.worker();
    let client = gate.client(&worker);
    assert_eq!(client.get("/v1/locks").await.unwrap().0, 200);
    let open = watch(&client).await;
    gate.deny(&worker).await;
    let took = end(open).await;
    assert!(took < Duration::from_secs(1), "{took:?}");
    let mut resumed = client.connect().await.unwrap();
    assert_eq!(resumed.ask("/v1/locks", "").await.unwrap().0, 401);
    let kind = resumed.0.get_ref().1.handshake_kind();
    assert_eq!(kind, Some(rustls::HandshakeKind::Resumed));
    // A new list of the authority ends all sessions: there is no resuming past it.
    gate.files.write("revoked.pem", &gate.clients.revokes(&[&worker]));
    let is_refused = async || client.get("/livez").await.is_err();
    eventually("the list is read", is_refused).await;
    gate.server.stop().await;
}
