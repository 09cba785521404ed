//! TLS in front of a server: a proxy that ends it, asks for a token if it is told to, and the certificates for both.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// An authority, and what it has signed; made anew with the `openssl` command.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
}

/// `openssl ca` alone can sign for a time that is past.
const SETTINGS: &str = "
[ca]
default_ca = own
[own]
database = index
new_certs_dir = .
certificate = authority.pem
private_key = authority.key
default_md = sha256
policy = any
unique_subject = no
rand_serial = yes
[any]
commonName = supplied
";

/// What is wrong with a server's certificate, if anything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    Good,
    ForAnotherName,
    Expired,
}

impl Authority {
    pub fn new() -> Result<Authority> {
        let authority = Authority { folder: tempfile::tempdir()? };
        authority.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority
             -addext basicConstraints=critical,CA:TRUE -keyout authority.key -out authority.pem",
        )?;
        authority.write("settings", SETTINGS)?;
        authority.write("index", "")?;
        Ok(authority)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        Ok(std::fs::write(self.folder.path().join(name), text)?)
    }

    /// The file that clients are to trust.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    pub fn pem(&self) -> Result<Vec<u8>> {
        Ok(std::fs::read(self.file())?)
    }

    /// A certificate for `localhost` and 127.0.0.1, unless something is to be wrong with it.
    pub fn sign(&self, certificate: Certificate) -> Result<(PathBuf, PathBuf)> {
        let (names, validity) = match certificate {
            Certificate::Good => ("DNS:localhost,IP:127.0.0.1", "-days 2"),
            Certificate::ForAnotherName => ("DNS:elsewhere.example", "-days 2"),
            Certificate::Expired => (
                "DNS:localhost,IP:127.0.0.1",
                "-startdate 20200101000000Z -enddate 20200102000000Z",
            ),
        };
        self.write("names", &format!("subjectAltName={names}"))?;
        self.openssl(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=server
             -keyout server.key -out server.csr",
        )?;
        self.openssl(&format!(
            "ca -batch -notext -config settings {validity} -extfile names -in server.csr
             -out server.pem"
        ))?;
        Ok((self.folder.path().join("server.pem"), self.folder.path().join("server.key")))
    }

    fn openssl(&self, args: &str) -> Result<()> {
        let mut command = Command::new("openssl");
        command.args(args.split_whitespace()).current_dir(self.folder.path());
        let done = command.output().context("openssl can be started")?;
        ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Ok(())
    }
}

/// Speaks TLS to clients and the same in the clear to a server, until this is dropped.
#[derive(Debug)]
pub struct TlsProxy {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl TlsProxy {
    pub async fn before(
        server: SocketAddr,
        authority: &Authority,
        certificate: Certificate,
    ) -> Result<TlsProxy> {
        let (certificate, key) = authority.sign(certificate)?;
        let acceptor = TlsAcceptor::from(Arc::new(config(&certificate, &key)?));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                drop(tokio::spawn(async move {
                    let Ok(mut client) = acceptor.accept(client).await else { return };
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    let _ = server.set_nodelay(true);
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                }));
            }
        });
        Ok(TlsProxy { address, accepting })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for TlsProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn config(certificate: &Path, key: &Path) -> Result<ServerConfig> {
    let certificates: Vec<_> =
        CertificateDer::pem_file_iter(certificate)?.collect::<Result<_, _>>()?;
    let key = PrivateKeyDer::from_pem_file(key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
