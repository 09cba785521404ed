//! A server that speaks TLS, the folder with its files, and a small client.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_server::{AccessLog, ClientAuth, Config, MinVersion, Server, Store, TlsConfig};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::authority::{Authority, Signed};

/// Nothing here takes longer unless something is wrong.
const PATIENCE: Duration = Duration::from_secs(20);

/// The files of a server, in a folder of their own.
pub(crate) struct Files {
    pub(crate) folder: TempDir,
}

impl Files {
    pub(crate) fn of(certificate: &Signed) -> Files {
        let files = Files { folder: tempfile::tempdir().unwrap() };
        files.write("server.pem", &certificate.pem);
        files.write("server.key", &certificate.key_pem());
        files
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file in its place.
    pub(crate) fn write(&self, name: &str, text: &str) {
        write(&self.path(name), text);
    }

    pub(crate) fn tls(&self) -> TlsConfig {
        TlsConfig {
            cert: self.path("server.pem"),
            key: self.path("server.key"),
            client_ca: None,
            client_auth: ClientAuth::Off,
            crl: None,
            min_version: MinVersion::Tls12,
        }
    }
}

pub(crate) fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

pub(crate) fn config(tls: TlsConfig) -> Config {
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        store: Store::Memory,
        access_log: AccessLog::Off,
        tls: Some(tls),
        ..Config::default()
    }
}

/// A server, and who is trusted to have signed for it.
pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
    pub(crate) files: Files,
    pub(crate) authority: Authority,
}

impl World {
    pub(crate) async fn start() -> World {
        World::with(|_| {}).await
    }

    /// With other settings than the usual ones.
    pub(crate) async fn with(set: impl FnOnce(&mut TlsConfig)) -> World {
        let authority = Authority::new("authority");
        let files = Files::of(&authority.server());
        let mut tls = files.tls();
        set(&mut tls);
        let server = Server::start(config(tls)).await.unwrap();
        World { address: server.address(), server, files, authority }
    }

    pub(crate) fn client(&self) -> Client {
        Client::trusting(&self.authority, self.address)
    }
}

/// A client of HTTP/1.1 over TLS.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) config: ClientConfig,
    pub(crate) server: SocketAddr,
    /// The address it comes from.
    pub(crate) from: [u8; 4],
}

impl Client {
    pub(crate) fn trusting(authority: &Authority, server: SocketAddr) -> Client {
        let config = builder(authority).with_no_client_auth();
        Client { config, server, from: [127, 0, 0, 1] }
    }

    /// The same with a certificate.
    pub(crate) fn with_certificate(
        authority: &Authority,
        server: SocketAddr,
        own: &Signed,
    ) -> Client {
        let chain = vec![own.certificate.clone()];
        let config = builder(authority).with_client_auth_cert(chain, own.key()).unwrap();
        Client { config, server, from: [127, 0, 0, 1] }
    }

    pub(crate) async fn tcp(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((self.from, 0).into()).unwrap();
        socket.connect(self.server).await.unwrap()
    }

    pub(crate) async fn connect(&self) -> io::Result<Connection> {
        let tcp = self.tcp().await;
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::new(self.config.clone()));
        Ok(Connection(connector.connect(name, tcp).await?))
    }

    /// One request on a connection of its own; the status and the whole answer.
    pub(crate) async fn get(&self, path: &str) -> io::Result<(u16, String)> {
        let mut connection = self.connect().await?;
        connection.ask(path, "connection: close\r\n").await
    }
}

fn builder(
    authority: &Authority,
) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
}

/// A connection that speaks TLS.
pub(crate) struct Connection(pub(crate) TlsStream<TcpStream>);

impl Connection {
    /// The certificate that the server has shown.
    pub(crate) fn server(&self) -> CertificateDer<'static> {
        self.0.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    }

    /// A GET with more headers; the status and what came with it.
    pub(crate) async fn ask(&mut self, path: &str, headers: &str) -> io::Result<(u16, String)> {
        self.say(&format!("GET {path}"), headers, "").await
    }

    /// The same for any method and body.
    pub(crate) async fn say(
        &mut self,
        what: &str,
        headers: &str,
        body: &str,
    ) -> io::Result<(u16, String)> {
        let body = match body {
            "" => "\r\n".to_owned(),
            body => format!(
                "content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ),
        };
        let text = format!("{what} HTTP/1.1\r\nhost: localhost\r\n{headers}{body}");
        self.0.write_all(text.as_bytes()).await?;
        let mut answer = Vec::new();
        let mut part = [0; 4096];
        while !is_whole(&answer) {
            match self.0.read(&mut part).await? {
                0 => break,
                len => answer.extend_from_slice(&part[..len]),
            }
        }
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.get(9..12).and_then(|status| status.parse().ok());
        status.map(|status| (status, answer)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

/// Whether the head and as many bytes as it tells of are there.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let len = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    len.is_some_and(|len: usize| body.len() >= len)
}

/// All that comes until the other end closes.
pub(crate) async fn rest(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Vec<u8> {
    let mut rest = Vec::new();
    // A connection that is reset has said all it says.
    let reading = stream.read_to_end(&mut rest);
    let _ = tokio::time::timeout(PATIENCE, reading).await.expect("the server closes");
    rest
}
