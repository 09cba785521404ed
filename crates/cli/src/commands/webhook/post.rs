//! One request to the receiver, over a connection of its own.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::signature::signature;
use crate::args::Webhook;
use crate::failure::{EXIT_CONFIG, EXIT_USAGE, Failure};

const AGENT: &str = concat!("leasehold/", env!("CARGO_PKG_VERSION"));
const SIGNATURE: &str = "leasehold-signature";
const DELIVERY: &str = "leasehold-delivery";

/// The address that takes the events.
pub(super) struct Receiver {
    uri: Uri,
    host: String,
    port: u16,
    /// For https.
    tls: Option<TlsConnector>,
    secret: Option<Vec<u8>>,
    /// For the whole of a request and its answer.
    timeout: Duration,
    /// When it is tried no more.
    pub(super) give_up: Option<Duration>,
}

/// Why it has not taken a delivery.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) said: String,
    /// When it wants to be asked again.
    pub(super) after: Option<Duration>,
}

impl Refused {
    fn new(said: impl Display) -> Refused {
        Refused { said: said.to_string(), after: None }
    }
}

impl Receiver {
    pub(super) fn new(
        url: &str,
        hook: &Webhook,
        secret: Option<Vec<u8>>,
        timeout: Duration,
    ) -> Result<Receiver, Failure> {
        let wrong = || {
            Failure::new(EXIT_USAGE, format!("{url} is no address of a receiver"))
                .next("something like https://hooks.example.org/locks")
        };
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, 80),
            Some("https") => (Some(connector(hook.receiver_cacert.as_deref())?), 443),
            _ => return Err(wrong()),
        };
        let host = uri.host().ok_or_else(wrong)?.to_string();
        let port = uri.port_u16().unwrap_or(port);
        Ok(Receiver { uri, host, port, tls, secret, timeout, give_up: hook.give_up })
    }

    /// Any answer of 200 to 299 says that it has them.
    pub(super) async fn post(&self, id: &str, body: &[u8], seconds: u64) -> Result<(), Refused> {
        let asking = self.ask(self.request(id, body, seconds)?);
        let posted = tokio::time::timeout(self.timeout, asking).await;
        let answer = posted.map_err(|_| Refused::new("no answer in time"))??;
        if answer.status().is_success() {
            return Ok(());
        }
        let seconds = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let after = seconds.and_then(|text| text.parse().ok()).map(Duration::from_secs);
        Err(Refused { said: format!("the receiver answers {}", answer.status()), after })
    }

    fn request(
        &self,
        id: &str,
        body: &[u8],
        seconds: u64,
    ) -> Result<Request<Full<Bytes>>, Refused> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        // What names a user stays out of it.
        let host = authority.rsplit('@').next().unwrap_or_default();
        let mut request = Request::post(path)
            .header(HOST, host)
            .header(USER_AGENT, AGENT)
            .header(CONTENT_TYPE, "application/json")
            .header(DELIVERY, id);
        if let Some(secret) = &self.secret {
            request = request.header(SIGNATURE, signature(secret, seconds, body));
        }
        request.body(Full::new(Bytes::copy_from_slice(body))).map_err(Refused::new)
    }

    async fn ask(&self, request: Request<Full<Bytes>>) -> Result<Response<()>, Refused> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let tcp = TcpStream::connect((host, self.port)).await.map_err(Refused::new)?;
        let Some(tls) = &self.tls else { return exchange(tcp, request).await };
        let name = ServerName::try_from(host.to_string()).map_err(Refused::new)?;
        exchange(tls.connect(name, tcp).await.map_err(Refused::new)?, request).await
    }
}

/// The head of the answer; what else it says is of no interest.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Response<()>, Refused> {
    let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(Refused::new)?;
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(Refused::new);
    connection.abort();
    Ok(answer?.map(drop))
}

/// Trusts these authorities, certificates in PEM; those of the system if there are none.
fn connector(authorities: Option<&Path>) -> Result<TlsConnector, Failure> {
    let wrong = |said: String| Failure::new(EXIT_CONFIG, said);
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(file) => {
            let fault = |error: &dyn Display| wrong(format!("{}: {error}", file.display()));
            let certificates =
                CertificateDer::pem_file_iter(file).map_err(|error| fault(&error))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| fault(&error))?;
                roots.add(certificate).map_err(|error| fault(&error))?;
            }
        }
        None => {
            let known = rustls_native_certs::load_native_certs().certs;
            roots.add_parsable_certificates(known);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(format!("TLS cannot be set up: {error}")))?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
