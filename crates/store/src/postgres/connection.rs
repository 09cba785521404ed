//! A connection that is made when it is needed, and made again when it broke.
//!
//! A transaction goes in one message of the simple protocol. The server runs it when all of it has arrived, or not at
//! all. With the extended protocol a connection that is cut before its last few bytes leaves a transaction that has
//! locked the leader's row and waits for a client that is gone, for as long as the server takes to notice. In a
//! message of its own there is also room for the settings that hold for this one transaction.

use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::TlsStream;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{
    Client, Config, Connection, NoTls, Row, SimpleQueryMessage, SimpleQueryRow, Socket,
};

use super::tls::Protection;
use crate::error::{Cause, Error, OpenError};
use crate::location::{PostgresLocation, Tls};
use crate::tls;

/// The settings of a connection.
pub(super) struct Connector {
    config: Config,
    protection: Option<Protection>,
    pub(super) timeout: Duration,
    /// The statements that each transaction that writes begins with.
    settings: String,
}

/// The outcome of a call that failed.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// It was never sent, or the server says that it did nothing.
    Nothing { what: String, cause: Cause },
    /// Unknown: the server may have carried it out.
    Unknown { what: String, cause: Cause },
}

/// A way to the server for one call after the other.
pub(super) struct Lane {
    connector: Arc<Connector>,
    session: Mutex<Option<Arc<Session>>>,
}

/// A connection. It ends when nobody uses it any more.
struct Session {
    client: Client,
    connection: AbortHandle,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Connector {
    pub(super) fn new(location: &PostgresLocation) -> Result<Connector, OpenError> {
        let mut config = Config::new();
        for (host, port) in &location.hosts {
            config.host(host.as_str()).port(*port);
        }
        config
            .user(location.user.as_str())
            .dbname(location.database.as_str())
            .application_name("leasehold")
            .connect_timeout(location.timeout)
            .tcp_user_timeout(location.timeout)
            .keepalives_idle(Duration::from_secs(10));
        if let Some(password) = &location.password {
            config.password(password.reveal());
        }
        if location.hosts.len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let protection = match location.tls {
            Tls::Off => {
                config.ssl_mode(SslMode::Disable);
                None
            }
            Tls::Unverified | Tls::VerifyAuthority | Tls::Verify => {
                let tls = tls::config(location.tls, &location.files);
                let failed =
                    |what| OpenError::Failed { store: location.to_string(), what, cause: None };
                let protection = Protection::new(tls.map_err(failed)?);
                config.ssl_mode(SslMode::Require);
                Some(protection)
            }
        };
        let timeout = location.timeout;
        Ok(Connector { config, protection, timeout, settings: settings(timeout) })
    }

    async fn connect(&self) -> Result<Session, Failure> {
        let connected = match &self.protection {
            Some(protection) => self.config.connect(protection.clone()).await.map(Session::new),
            None => self.config.connect(NoTls).await.map(Session::new),
        };
        connected.map_err(|error| Failure::nothing(reason_not_connected(&error), error))
    }

    /// The longest time a call may wait for others before the server gives up.
    pub(super) fn lock_timeout_ms(&self) -> i32 {
        // Nothing would be for ever.
        i32::try_from(self.timeout.as_millis() * 2 / 5).unwrap_or(i32::MAX).max(1)
    }
}

/// Whatever the database, the role or the pooler would have it be.
///
/// The server gives up before we do: then it is known that nothing was done.
fn settings(timeout: Duration) -> String {
    let statement_ms = timeout.as_millis() * 4 / 5;
    let lock_ms = timeout.as_millis() * 2 / 5;
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE; \
         SET LOCAL synchronous_commit = on; \
         SET LOCAL lock_timeout = {lock_ms}; \
         SET LOCAL statement_timeout = {statement_ms}; "
    )
}

impl Session {
    fn new<T>((client, connection): (Client, Connection<Socket, T>)) -> Session
    where
        T: TlsStream + Send + Unpin + 'static,
    {
        // What breaks it is told to whoever waits for an answer.
        let connection = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Session { client, connection }
    }
}

impl Lane {
    pub(super) fn new(connector: Arc<Connector>) -> Lane {
        Lane { connector, session: Mutex::default() }
    }

    /// Runs statements that write, as one transaction; the rows of them all.
    pub(super) async fn write(&self, statements: &str) -> Result<Vec<SimpleQueryRow>, Failure> {
        let sql = format!("{}{statements}", self.connector.settings);
        let session = self.session().await?;
        let answer = session.client.simple_query(&sql);
        let messages = self.answered(&session, answer).await?;
        let mut rows = Vec::new();
        for message in messages {
            if let SimpleQueryMessage::Row(row) = message {
                rows.push(row);
            }
        }
        Ok(rows)
    }

    /// Asks something that changes nothing.
    pub(super) async fn read(&self, query: &str, values: &[i64]) -> Result<Vec<Row>, Failure> {
        let session = self.session().await?;
        let values: Vec<(&(dyn ToSql + Sync), Type)> =
            values.iter().map(|value| (value as &(dyn ToSql + Sync), Type::INT8)).collect();
        let answer = session.client.query_typed(query, &values);
        self.answered(&session, answer).await
    }

    async fn session(&self) -> Result<Arc<Session>, Failure> {
        let mut session = self.session.lock().await;
        if let Some(session) = session.as_ref().filter(|session| !session.client.is_closed()) {
            return Ok(session.clone());
        }
        *session = None;
        let made = match timeout(self.connector.timeout, self.connector.connect()).await {
            Ok(made) => Arc::new(made?),
            Err(late) => return Err(Failure::nothing("it does not answer", late)),
        };
        *session = Some(made.clone());
        Ok(made)
    }

    async fn answered<T>(
        &self,
        session: &Arc<Session>,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Failure> {
        let failure = match timeout(self.connector.timeout, answer).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Failure::of(error),
            Err(late) => Failure::unknown("it did not answer in time", late),
        };
        if let Failure::Unknown { .. } = failure {
            self.forget(session).await;
        }
        Err(failure)
    }

    async fn forget(&self, broken: &Arc<Session>) {
        let mut session = self.session.lock().await;
        if session.as_ref().is_some_and(|session| Arc::ptr_eq(session, broken)) {
            *session = None;
        }
    }
}

fn reason_not_connected(error: &tokio_postgres::Error) -> &'static str {
    let Some(code) = error.code() else { return "it cannot be reached" };
    if *code == SqlState::INVALID_PASSWORD || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
    {
        "user or password are wrong"
    } else {
        "it refuses the connection"
    }
}

impl Failure {
    fn nothing(what: &str, cause: impl std::error::Error + Send + Sync + 'static) -> Failure {
        Failure::Nothing { what: what.into(), cause: Arc::new(cause) }
    }

    fn unknown(what: &str, cause: impl std::error::Error + Send + Sync + 'static) -> Failure {
        Failure::Unknown { what: what.into(), cause: Arc::new(cause) }
    }

    fn of(error: tokio_postgres::Error) -> Failure {
        match error.as_db_error() {
            Some(refusal) if is_certain(refusal.severity(), refusal.code().code()) => {
                Failure::nothing("it refuses", error)
            }
            Some(_) => Failure::unknown("it broke off", error),
            None => Failure::unknown("the connection broke", error),
        }
    }

    /// The SQLSTATE, if the server gave one.
    pub(super) fn code(&self) -> Option<SqlState> {
        let (Failure::Nothing { cause, .. } | Failure::Unknown { cause, .. }) = self;
        cause.downcast_ref::<tokio_postgres::Error>()?.code().cloned()
    }

    /// For everything but an append: it may be tried again whatever came of it.
    pub(super) fn unavailable(self, task: &str) -> Error {
        let (Failure::Nothing { what, cause } | Failure::Unknown { what, cause }) = self;
        Error::Unavailable { what: format!("{task}: {what}"), cause: Some(cause) }
    }

    /// For an append.
    pub(super) fn of_append(self) -> Error {
        match self {
            Failure::Nothing { what, cause } => Error::Unavailable { what, cause: Some(cause) },
            Failure::Unknown { what, cause } => Error::OutcomeUnknown { what, cause: Some(cause) },
        }
    }

    pub(super) fn of_opening(self, store: &str) -> OpenError {
        let (Failure::Nothing { what, cause } | Failure::Unknown { what, cause }) = self;
        OpenError::Failed { store: store.into(), what, cause: Some(cause) }
    }
}

/// Whether an error tells for certain that the transaction was rolled back.
///
/// One that ends the connection does not, since it may have come after the commit; nor does one of a pooler that has
/// lost its server, nor one that says itself that it does not know.
fn is_certain(severity: &str, code: &str) -> bool {
    let class = code.get(..2).unwrap_or_default();
    severity == "ERROR"
        && !matches!(class, "08" | "58" | "XX")
        && !code.starts_with("57P")
        && code != SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN.code()
}

/// Bytes as an expression that needs no quoting, whatever the server's settings are.
pub(super) fn bytes_expression(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2 + 16);
    text.push_str("decode('");
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text.push_str("', 'hex')");
    text
}

pub(super) fn text_expression(text: &str) -> String {
    let mut expression = String::new();
    let _ = write!(expression, "convert_from({}, 'UTF8')", bytes_expression(text.as_bytes()));
    expression
}
