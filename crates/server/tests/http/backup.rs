//! Backups over HTTP: who may have one, and that nothing waits for whoever takes one.

use std::path::Path;

use leasehold_server::{AuditConfig, AuditTo, AuthConfig, Config, Store};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::access::{ADMIN, BILLING, access_file, all_tokens, token, write};
use crate::polling::eventually;
use crate::world::{World, config};

const REQUEST: &[u8] = b"GET /v1/backup HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

fn on_disk(folder: &TempDir) -> Config {
    Config { store: Store::Sqlite(folder.path().join("locks.db")), ..config() }
}

/// A client that takes in hardly anything on its own.
async fn slow(world: &World) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(world.address).await.unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn only_who_administers_has_one_and_the_audit_log_knows() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    write(&at("access.toml"), &access_file(&all_tokens()));
    let access_file = Some(at("access.toml"));
    let auth = AuthConfig { enabled: true, access_file, ..AuthConfig::default() };
    let to = Some(AuditTo::File(at("audit.jsonl")));
    let audit = AuditConfig { to, ..AuditConfig::default() };
    let world = World::with(Config { auth, audit, ..on_disk(&folder) }).await;
    let ask = async |seed: u8| {
        let bearer = format!("Bearer {}", token(seed).reveal());
        world.send("GET", "/v1/backup", &[("authorization", &bearer)], None).await
    };
    world.get("/v1/backup").await.problem("unauthenticated");
    ask(BILLING).await.problem("permission_denied");
    let reply = ask(ADMIN).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/octet-stream"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert!(reply.text.starts_with("SQLite format 3\0"));
    let text = std::fs::read_to_string(at("audit.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("\"backup\"")).collect();
    assert!(lines[0].contains("\"outcome\":\"asked\""), "{lines:?}");
    let bytes = format!("\"bytes\":{}", reply.header("content-length").unwrap());
    assert!(lines[1].contains("\"outcome\":\"ok\"") && lines[1].contains(&bytes), "{lines:?}");
    assert!(names(folder.path()).iter().all(|name| !name.contains(".sent")));
}

#[tokio::test]
async fn what_is_not_sqlite_is_backed_up_otherwise() {
    let problem = World::start().await.get("/v1/backup").await.problem("invalid_request");
    assert!(problem["detail"].as_str().unwrap().contains("tools of their own"));
}

#[tokio::test]
async fn client_that_takes_its_time_holds_up_nothing_but_other_backups() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::with(on_disk(&folder)).await;
    let metadata = "x".repeat(3000);
    for number in 0..700 {
        let body =
            serde_json::json!({ "owner_id": "a", "ttl_ms": 60000, "metadata": { "x": metadata } });
        world.post(&format!("/v1/locks/job{number}/acquire"), &body.to_string()).await.ok();
    }
    let mut client = slow(&world).await;
    client.write_all(REQUEST).await.unwrap();
    let mut head = [0; 12];
    client.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    let refused = world.get("/v1/backup").await;
    refused.problem("overloaded");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    world.acquire("meanwhile", "b").await;
    assert!(names(folder.path()).iter().all(|name| !name.contains(".sent")), "it has no name");
    drop(client);
    eventually("there is room for the next", async || world.get("/v1/backup").await.status == 200)
        .await;
}
