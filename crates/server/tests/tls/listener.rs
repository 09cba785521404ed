//! The port: which TLS it speaks, what else it is told, and handshakes that never end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_server::{AccessLog, Config, MinVersion, Server, Store};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, ProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{World, rest};

/// The first bytes of a handshake.
fn client_hello(world: &World) -> Vec<u8> {
    let name = "localhost".try_into().unwrap();
    let config = Arc::new(world.client().config);
    let mut connection = ClientConnection::new(config, name).unwrap();
    let mut bytes = Vec::new();
    connection.write_tls(&mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn http_of_both_versions_is_spoken_over_tls() {
    let world = World::start().await;
    let mut client = world.client();
    assert_eq!(client.get("/livez").await.unwrap().0, 200);
    for (offered, chosen) in [
        (&["h2", "http/1.1"][..], Some("h2")),
        (&["http/1.1"][..], Some("http/1.1")),
        (&[][..], None),
    ] {
        client.config.alpn_protocols = offered.iter().map(|p| p.as_bytes().to_vec()).collect();
        let connection = client.connect().await.unwrap();
        let protocol = connection.0.get_ref().1.alpn_protocol();
        assert_eq!(protocol, chosen.map(str::as_bytes));
    }
    client.config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = client.connect().await.unwrap().0;
    let (mut asking, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let request = axum::http::Request::get("https://localhost/livez").body(()).unwrap();
    let (answer, _) = asking.send_request(request, true).unwrap();
    assert_eq!(answer.await.unwrap().status(), 200);
    world.server.stop().await;
}

#[tokio::test]
async fn tls_1_2_and_1_3_are_spoken_and_1_3_alone_if_that_is_wanted() {
    let world = World::start().await;
    let strict = World::with(|tls| tls.min_version = MinVersion::Tls13).await;
    for (version, is_taken) in [(&TLS12, false), (&TLS13, true)] {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        for (world, is_taken) in [(&world, true), (&strict, is_taken)] {
            let mut client = world.client();
            let mut roots = rustls::RootCertStore::empty();
            roots.add(world.authority.der()).unwrap();
            client.config = rustls::ClientConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&[version])
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            let connected = client.connect().await;
            assert_eq!(connected.is_ok(), is_taken);
            if let Ok(connection) = connected {
                let spoken = connection.0.get_ref().1.protocol_version();
                assert_eq!(spoken, Some(version.version));
            }
        }
    }
    world.server.stop().await;
    strict.server.stop().await;
}

/// A ClientHello of TLS 1.1, as clients of before 2018 send it.
fn hello_of_tls_1_1() -> Vec<u8> {
    let mut hello = vec![0x03, 0x02];
    hello.extend([7; 32]);
    // No session; two suites of that time, and no compression.
    hello.extend([0, 0, 4, 0x00, 0x2f, 0xc0, 0x13, 1, 0]);
    let len = u8::try_from(hello.len()).unwrap();
    let mut record = vec![0x16, 0x03, 0x01, 0, len + 4, 1, 0, 0, len];
    record.extend(hello);
    record
}

/// Attack 52.
#[tokio::test]
async fn what_is_not_tls_is_told_so_and_old_tls_is_refused() {
    let world = World::start().await;
    let mut plain = TcpStream::connect(world.address).await.unwrap();
    plain.write_all(b"GET /v1/locks HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let said = String::from_utf8(rest(&mut plain).await).unwrap();
    assert!(said.starts_with("HTTP/1.1 400 this port speaks TLS: write https://\r\n"), "{said}");
    let mut old = TcpStream::connect(world.address).await.unwrap();
    old.write_all(&hello_of_tls_1_1()).await.unwrap();
    let alert = rest(&mut old).await;
    // An alert, fatal: no handshake, or not with this version.
    assert_eq!((alert[0], alert[5]), (0x15, 2));
    assert!(matches!(alert[6..], [40 | 70]), "{alert:?}");
    let config = Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        store: Store::Memory,
        access_log: AccessLog::Off,
        ..Config::default()
    };
    let without = Server::start(config).await.unwrap();
    let mut to_plain = TcpStream::connect(without.address()).await.unwrap();
    to_plain.write_all(&client_hello(&world)).await.unwrap();
    let said = rest(&mut to_plain).await;
    assert!(
        said.starts_with(b"HTTP/1.1 400"),
        "what is no TLS tells the client that the port speaks none"
    );
    without.stop().await;
    world.server.stop().await;
}

/// The rest of attack 52.
#[tokio::test]
async fn sessions_are_resumed_and_nothing_is_taken_before_the_handshake_is_over() {
    let world = World::start().await;
    let mut client = world.client();
    client.config.enable_early_data = true;
    assert_eq!(client.get("/livez").await.unwrap().0, 200);
    let mut again = client.connect().await.unwrap();
    assert!(!again.0.get_ref().1.is_early_data_accepted());
    assert_eq!(again.ask("/livez", "").await.unwrap().0, 200);
    let (_, connection) = again.0.get_ref();
    assert_eq!(connection.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(connection.handshake_kind(), Some(rustls::HandshakeKind::Resumed));
    world.server.stop().await;
}

/// Attack 54.
#[tokio::test]
async fn handshakes_that_stop_half_way_keep_nobody_out() {
    let world = World::start().await;
    let hello = client_hello(&world);
    let mut stuck = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(&hello).await.unwrap();
        stuck.push(stream);
    }
    // All of them hold what they can when the first has its answer.
    stuck[0].read_u8().await.unwrap();
    let mut client = world.client();
    client.from = [127, 0, 0, 2];
    let begun = Instant::now();
    assert_eq!(client.get("/livez").await.unwrap().0, 200);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    for stream in &mut stuck {
        rest(stream).await;
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}");
    assert_eq!(world.client().get("/livez").await.unwrap().0, 200);
    world.server.stop().await;
}

#[tokio::test]
async fn handshake_that_is_not_over_in_five_seconds_is_given_up() {
    let world = World::start().await;
    let begun = Instant::now();
    let mut silent = TcpStream::connect(world.address).await.unwrap();
    let mut stuck = TcpStream::connect(world.address).await.unwrap();
    stuck.write_all(&client_hello(&world)).await.unwrap();
    tokio::join!(rest(&mut silent), rest(&mut stuck));
    let took = begun.elapsed();
    assert!((4..7).contains(&took.as_secs()), "{took:?}");
    world.server.stop().await;
}
