//! A Unix socket: its clients are known by their user.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use leasehold_server::{AccessLog, AuthConfig, Config, Listen, Server, StartError, Store};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::world::write;

async fn get(socket: &Path, path: &str, headers: &str) -> String {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let text = format!("GET {path} HTTP/1.1\r\nhost: locks\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn on(socket: &Path, auth: AuthConfig) -> Config {
    let listen = Listen::Unix(socket.into());
    Config { listen, auth, store: Store::Memory, access_log: AccessLog::Off, ..Config::default() }
}

fn mode(socket: &Path) -> u32 {
    std::fs::metadata(socket).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn user_at_the_other_end_is_the_principal_and_needs_no_token() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let access_file = folder.path().join("access.toml");
    let uid = rustix::process::getuid().as_raw();
    write(&access_file, &format!("[principal.\"uid/{uid}\"]\nroles = [\"reader\"]\n"));
    let auth = AuthConfig {
        enabled: true,
        access_file: Some(access_file.clone()),
        ..AuthConfig::default()
    };
    let server = Server::start(on(&socket, auth)).await.unwrap();
    assert_eq!(server.listen().to_string(), format!("unix:{}", socket.display()));
    assert_eq!(mode(&socket), 0o666);
    let own = get(&socket, "/v1/auth/self", "").await;
    assert!(own.contains(&format!("\"principal\":\"uid/{uid}\"")), "{own}");
    assert!(own.contains("\"credential\":\"user\""), "{own}");
    assert!(get(&socket, "/v1/locks", "").await.starts_with("HTTP/1.1 200"));
    assert!(get(&socket, "/metrics", "").await.starts_with("HTTP/1.1 403"), "a reader may not");
    let wrong = "authorization: Bearer lk_\r\n";
    assert!(get(&socket, "/v1/locks", wrong).await.starts_with("HTTP/1.1 401"));
    server.stop().await;
    assert!(!socket.exists(), "it takes its socket along");
}

#[tokio::test]
async fn socket_that_was_left_over_is_replaced_and_one_in_use_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let before = std::fs::metadata(&socket).unwrap().ino();
    let first = Server::start(on(&socket, AuthConfig::default())).await.unwrap();
    assert_eq!(mode(&socket), 0o660, "nobody is known: owner and group alone");
    assert!(get(&socket, "/v1/locks", "").await.starts_with("HTTP/1.1 200"), "{before}");
    let second = Server::start(on(&socket, AuthConfig::default())).await;
    assert!(matches!(second, Err(StartError::Listen { .. })), "{second:?}");
    assert!(get(&socket, "/livez", "").await.starts_with("HTTP/1.1 200"), "it is still there");
    first.stop().await;
    let file = folder.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert!(Server::start(on(&file, AuthConfig::default())).await.is_err());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}
