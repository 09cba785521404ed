//! Requests to etcd: to the member that answers, with a limit on how long.
//!
//! A member that fails is left for the next one. A request that may have been carried out is never sent a second time
//! from here, unless doing it twice is the same as doing it once.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tonic::codegen::http::Uri;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response, Status};

use super::connection::Connection;
use super::proto::auth_client::AuthClient;
use super::proto::kv_client::KvClient;
use super::proto::maintenance_client::MaintenanceClient;
use super::proto::{
    AuthenticateRequest, CompactionRequest, RangeRequest, RangeResponse, StatusRequest, TxnRequest,
    TxnResponse,
};
use crate::error::{Cause, Error, OpenError};
use crate::location::{EtcdLocation, Tls, host_and_port};
use crate::tls;

/// A page of large records is the largest answer there is.
const ANSWER_BYTES_MAX: usize = 640 << 20;

/// The way to a cluster.
pub(super) struct Client {
    members: Vec<Endpoint>,
    /// The member that is asked.
    current: AtomicUsize,
    credentials: Option<Credentials>,
    timeout: Duration,
}

struct Endpoint {
    host: String,
    port: u16,
    /// With its scheme, as the head of each request names it.
    origin: Uri,
    protection: Option<(TlsConnector, ServerName<'static>)>,
    connection: tokio::sync::Mutex<Option<Connection>>,
}

struct Credentials {
    user: String,
    password: crate::location::Secret,
    token: Mutex<Option<String>>,
}

/// The outcome of a request that failed.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// It was never sent, or etcd says that it did nothing.
    Nothing { what: String, cause: Option<Cause> },
    /// Unknown: etcd may have carried it out.
    Unknown { what: String, cause: Option<Cause> },
    /// The revision that was asked for has been forgotten.
    Compacted,
}

/// Whether a request may be sent to the next member when the first did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Again {
    /// Doing it twice is the same as doing it once.
    Yes,
    No,
}

impl Client {
    pub(super) fn new(location: &EtcdLocation) -> Result<Client, OpenError> {
        let failed = |what: String, cause: Option<Cause>| OpenError::Failed {
            store: location.to_string(),
            what,
            cause,
        };
        let connector = match location.tls {
            Tls::Off => None,
            Tls::Unverified | Tls::VerifyAuthority | Tls::Verify => {
                let config = tls::config(location.tls, &location.files);
                let mut config = config.map_err(|what| failed(what, None))?;
                config.alpn_protocols = vec![b"h2".to_vec()];
                Some(TlsConnector::from(Arc::new(config)))
            }
        };
        let mut members = Vec::new();
        for (host, port) in &location.hosts {
            let what = || format!("{host} cannot be the address of a member");
            let scheme = if connector.is_some() { "https" } else { "http" };
            let origin = Uri::try_from(format!("{scheme}://{}", host_and_port(host, *port)))
                .map_err(|error| failed(what(), Some(Arc::new(error))))?;
            let protection = match connector.clone() {
                Some(connector) => {
                    let name = ServerName::try_from(host.clone())
                        .map_err(|error| failed(what(), Some(Arc::new(error))))?;
                    Some((connector, name))
                }
                None => None,
            };
            let (host, port, connection) = (host.clone(), *port, tokio::sync::Mutex::default());
            members.push(Endpoint { host, port, origin, protection, connection });
        }
        let credentials = match (&location.user, &location.password) {
            (Some(user), Some(password)) => Some(Credentials {
                user: user.clone(),
                password: password.clone(),
                token: Mutex::default(),
            }),
            (None | Some(_), None) | (None, Some(_)) => None,
        };
        Ok(Client { members, current: AtomicUsize::new(0), credentials, timeout: location.timeout })
    }

    /// Sent once: when it fails, it may have been carried out.
    pub(super) async fn txn_once(&self, txn: TxnRequest) -> Result<TxnResponse, Failure> {
        self.txn_to(txn, Again::No).await
    }

    /// For what is the same when it is done twice.
    pub(super) async fn txn(&self, txn: TxnRequest) -> Result<TxnResponse, Failure> {
        self.txn_to(txn, Again::Yes).await
    }

    async fn txn_to(&self, txn: TxnRequest, again: Again) -> Result<TxnResponse, Failure> {
        self.ask(again, txn, |connection, request| async move {
            let mut client = kv(connection).max_decoding_message_size(ANSWER_BYTES_MAX);
            client.txn(request).await
        })
        .await
    }

    pub(super) async fn range(&self, range: RangeRequest) -> Result<RangeResponse, Failure> {
        self.ask(Again::Yes, range, |connection, request| async move {
            let mut client = kv(connection).max_decoding_message_size(ANSWER_BYTES_MAX);
            client.range(request).await
        })
        .await
    }

    pub(super) async fn compact(&self, revision: i64) -> Result<(), Failure> {
        let compaction = CompactionRequest { revision, physical: false };
        self.ask(Again::No, compaction, |connection, request| async move {
            kv(connection).compact(request).await
        })
        .await
        .map(drop)
    }

    /// The version of the member that is asked.
    pub(super) async fn version(&self) -> Result<String, Failure> {
        let status = self
            .ask(Again::Yes, StatusRequest {}, |connection, request| async move {
                maintenance(connection).status(request).await
            })
            .await?;
        Ok(status.version)
    }

    #[cfg(feature = "conformance")]
    pub(super) async fn set_full(&self, full: bool) -> Result<(), Failure> {
        use super::proto::alarm_request::AlarmAction;
        use super::proto::{AlarmRequest, AlarmType};
        let action = if full { AlarmAction::Activate } else { AlarmAction::Deactivate };
        let status = self
            .ask(Again::Yes, StatusRequest {}, |connection, request| async move {
                maintenance(connection).status(request).await
            })
            .await?;
        let alarm = AlarmRequest {
            action: action.into(),
            member_id: status.header.map_or(0, |header| header.member_id),
            alarm: AlarmType::Nospace.into(),
        };
        self.ask(Again::Yes, alarm, |connection, request| async move {
            maintenance(connection).alarm(request).await
        })
        .await
        .map(drop)
    }

    /// Asks one member after the other until one answers or the time is over.
    async fn ask<Q, A, F>(
        &self,
        again: Again,
        message: Q,
        send: impl Fn(Connection, Request<Q>) -> F,
    ) -> Result<A, Failure>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let over = Instant::now() + self.timeout;
        let mut tries = 0;
        loop {
            // The first member has not all the time: if it hangs, another one shall have some.
            let share = self.timeout / u32::try_from(self.members.len().min(3)).unwrap_or(1);
            let until = match again {
                Again::Yes => over.min(Instant::now() + share),
                Again::No => over,
            };
            let at = self.current.load(Ordering::Acquire);
            let failure = match self.ask_member(at, until, message.clone(), &send).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            tries += 1;
            match failure {
                Attempt::Final(failure) => return Err(failure),
                // The token was refused: the next try gets a new one.
                Attempt::Unauthenticated(failure) if tries > 1 => return Err(failure),
                Attempt::Unauthenticated(_) => {}
                Attempt::NotSent(failure) => {
                    self.leave(at);
                    if tries >= self.members.len() || Instant::now() >= over {
                        return Err(failure);
                    }
                }
                Attempt::Lost(failure) => {
                    self.leave(at);
                    let is_over = tries > self.members.len() || Instant::now() >= over;
                    if again == Again::No || is_over {
                        return Err(failure);
                    }
                }
            }
        }
    }

    async fn ask_member<Q, A, F>(
        &self,
        at: usize,
        until: Instant,
        message: Q,
        send: &impl Fn(Connection, Request<Q>) -> F,
    ) -> Result<A, Attempt>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let connection = self.connection(at, until).await?;
        let mut request = Request::new(message);
        if let Some(token) = self.token(&connection, until).await? {
            request.metadata_mut().insert("authorization", token);
        }
        match timeout_at(until, send(connection, request)).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.judge(status)),
            Err(late) => Err(Attempt::Lost(Failure::Unknown {
                what: "it did not answer in time".into(),
                cause: Some(Arc::new(late)),
            })),
        }
    }

    async fn connection(&self, at: usize, until: Instant) -> Result<Connection, Attempt> {
        let member = &self.members[at % self.members.len()];
        let mut connection = member.connection.lock().await;
        if let Some(open) = connection.as_ref().filter(|connection| connection.is_open()) {
            return Ok(open.clone());
        }
        let not_sent = |what: &str, cause: Cause| {
            Attempt::NotSent(Failure::Nothing { what: what.into(), cause: Some(cause) })
        };
        match timeout_at(until, timeout(self.timeout / 3, member.connect())).await {
            Ok(Ok(Ok(made))) => {
                *connection = Some(made.clone());
                Ok(made)
            }
            Ok(Ok(Err(error))) => Err(not_sent("it cannot be reached", Arc::new(error))),
            Ok(Err(late)) | Err(late) => Err(not_sent("it does not answer", Arc::new(late))),
        }
    }

    /// Goes on with the next member, and connects to this one anew when its turn comes again.
    fn leave(&self, at: usize) {
        let next = at.wrapping_add(1);
        let moved =
            self.current.compare_exchange(at, next, Ordering::AcqRel, Ordering::Acquire).is_ok();
        let left = &self.members[at % self.members.len()].connection;
        if moved && let Ok(mut connection) = left.try_lock() {
            *connection = None;
        }
    }

    async fn token(
        &self,
        connection: &Connection,
        until: Instant,
    ) -> Result<Option<MetadataValue<tonic::metadata::Ascii>>, Attempt> {
        let Some(credentials) = &self.credentials else { return Ok(None) };
        let kept = credentials.token.lock().clone();
        let token = match kept {
            Some(token) => token,
            None => {
                let token = authenticate(credentials, connection.clone(), until).await?;
                *credentials.token.lock() = Some(token.clone());
                token
            }
        };
        Ok(MetadataValue::try_from(token).ok())
    }

    /// Reads an answer of etcd.
    fn judge(&self, status: Status) -> Attempt {
        let said = status.message().to_string();
        let (code, cause): (Code, Option<Cause>) = (status.code(), Some(Arc::new(status)));
        let token_is_old = code == Code::Unauthenticated
            || said.contains("invalid auth token")
            || said.contains("revision of auth store is old");
        if token_is_old && let Some(credentials) = &self.credentials {
            *credentials.token.lock() = None;
            let what = "user or password are no longer accepted".into();
            return Attempt::Unauthenticated(Failure::Nothing { what, cause });
        }
        match code {
            Code::OutOfRange if said.contains("compacted") => Attempt::Final(Failure::Compacted),
            // A member that has not come so far yet; another one may have.
            Code::OutOfRange => Attempt::Lost(Failure::Nothing { what: said, cause }),
            Code::ResourceExhausted
            | Code::InvalidArgument
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::FailedPrecondition
            | Code::Unimplemented
            | Code::NotFound => Attempt::Final(Failure::Nothing { what: said, cause }),
            Code::Ok
            | Code::Cancelled
            | Code::Unknown
            | Code::DeadlineExceeded
            | Code::AlreadyExists
            | Code::Aborted
            | Code::Internal
            | Code::Unavailable
            | Code::DataLoss => {
                let what = "it broke off or has no leader".into();
                Attempt::Lost(Failure::Unknown { what, cause })
            }
        }
    }
}

impl Endpoint {
    async fn connect(&self) -> io::Result<Connection> {
        let socket = TcpStream::connect((self.host.as_str(), self.port)).await?;
        socket.set_nodelay(true)?;
        let origin = self.origin.clone();
        match &self.protection {
            Some((connector, name)) => {
                let protected = connector.connect(name.clone(), socket).await?;
                Connection::over(protected, origin).await
            }
            None => Connection::over(socket, origin).await,
        }
    }
}

fn kv(connection: Connection) -> KvClient<Connection> {
    let origin = connection.origin.clone();
    KvClient::with_origin(connection, origin)
}

fn maintenance(connection: Connection) -> MaintenanceClient<Connection> {
    let origin = connection.origin.clone();
    MaintenanceClient::with_origin(connection, origin)
}

fn authentication(connection: Connection) -> AuthClient<Connection> {
    let origin = connection.origin.clone();
    AuthClient::with_origin(connection, origin)
}

/// The outcome of one try.
enum Attempt {
    /// Another try would not help.
    Final(Failure),
    Unauthenticated(Failure),
    NotSent(Failure),
    Lost(Failure),
}

async fn authenticate(
    credentials: &Credentials,
    connection: Connection,
    until: Instant,
) -> Result<String, Attempt> {
    let request = AuthenticateRequest {
        name: credentials.user.clone(),
        password: credentials.password.reveal().into(),
    };
    match timeout_at(until, authentication(connection).authenticate(request)).await {
        Ok(Ok(answer)) => Ok(answer.into_inner().token),
        Ok(Err(status))
            if matches!(status.code(), Code::InvalidArgument | Code::PermissionDenied) =>
        {
            let what = "user or password are wrong".into();
            Err(Attempt::Final(Failure::Nothing { what, cause: Some(Arc::new(status)) }))
        }
        Ok(Err(status)) if status.code() == Code::FailedPrecondition => {
            let what = "it knows no users: leave user and password out".into();
            Err(Attempt::Final(Failure::Nothing { what, cause: Some(Arc::new(status)) }))
        }
        Ok(Err(status)) => {
            let what = "it does not say who we are".into();
            Err(Attempt::NotSent(Failure::Nothing { what, cause: Some(Arc::new(status)) }))
        }
        Err(late) => {
            let what = "it did not answer in time".into();
            Err(Attempt::NotSent(Failure::Nothing { what, cause: Some(Arc::new(late)) }))
        }
    }
}

impl Failure {
    fn parts(self) -> (String, Option<Cause>) {
        match self {
            Failure::Nothing { what, cause } | Failure::Unknown { what, cause } => (what, cause),
            Failure::Compacted => ("the revision that was asked for is forgotten".into(), None),
        }
    }

    /// For everything but an append: it may be tried again whatever came of it.
    pub(super) fn unavailable(self, task: &str) -> Error {
        let (what, cause) = self.parts();
        Error::Unavailable { what: format!("{task}: {what}"), cause }
    }

    /// For an append.
    pub(super) fn of_append(self) -> Error {
        match self {
            Failure::Unknown { what, cause } => Error::OutcomeUnknown { what, cause },
            failure @ (Failure::Nothing { .. } | Failure::Compacted) => {
                let (what, cause) = failure.parts();
                Error::Unavailable { what, cause }
            }
        }
    }

    pub(super) fn of_opening(self, store: &str) -> OpenError {
        let (what, cause) = self.parts();
        OpenError::Failed { store: store.into(), what, cause }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Nothing { what, .. } | Failure::Unknown { what, .. } => f.write_str(what),
            Failure::Compacted => f.write_str("the revision that was asked for is forgotten"),
        }
    }
}
