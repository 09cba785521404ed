//! A function that is called without SQL, through a connection of our own.
//!
//! PostgreSQL can be asked to call a function in one message, which has the function's number and the arguments as they
//! are: no statement has to be read, no bytes to be written as text. The call is a transaction of its own, committed
//! before it is answered. Like a message of statements it is run when all of it has arrived, or not at all.
//!
//! The library cannot send such a message. So it makes the connection, with all that belongs to it (several hosts,
//! passwords, TLS), and then lets go of it.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

use tokio::io::{AsyncRead as _, AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;

use super::connection::{Connector, Failure, text_expression};
use super::line::Duplex;

/// An answer is a few dozen bytes, or says what went wrong.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Values are sent and wanted as they are, not as text.
const BINARY: u16 = 1;

/// A function, and the connection to call it through, which is made when it is needed.
pub(super) struct Function {
    connector: Arc<Connector>,
    /// Its name, with the types of its arguments.
    signature: String,
    /// Nothing while it is in use: who gives up a call has given up the connection as well.
    idle: Mutex<Option<Wire>>,
}

/// An argument.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Integer(i32),
    Bigint(i64),
    Bytes(&'a [u8]),
}

impl Function {
    pub(super) fn new(connector: Arc<Connector>, signature: String) -> Function {
        Function { connector, signature, idle: Mutex::default() }
    }

    /// Calls it; what it returns.
    pub(super) async fn call(&self, arguments: &[Value<'_>]) -> Result<Vec<u8>, Failure> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut wire = match idle.and_then(Wire::still_quiet) {
            Some(wire) => wire,
            None => match timeout(self.connector.timeout, self.connect()).await {
                Ok(wire) => wire?,
                Err(late) => return Err(Failure::nothing("it does not answer", late)),
            },
        };
        let value = match timeout(self.connector.timeout, wire.call(arguments)).await {
            Ok(value) => value?,
            Err(late) => return Err(Failure::unknown("it did not answer in time", late)),
        };
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some(wire);
        Ok(value)
    }

    async fn connect(&self) -> Result<Wire, Failure> {
        let line = self.connector.connect_without_library().await?;
        let mut wire = Wire { line, function: 0, heard: Vec::new() };
        let signature = text_expression(&self.signature);
        // Should the library have read on and kept a piece of something, no sensible answer comes of this.
        let number = wire.query(&format!("SELECT to_regprocedure({signature})::oid")).await;
        let number = number.map_err(Failure::of_nothing)?;
        let number = std::str::from_utf8(&number).ok().and_then(|number| number.parse().ok());
        let missing = || io::Error::other(format!("{} is not there", self.signature));
        wire.function =
            number.ok_or_else(|| Failure::nothing("a function is missing", missing()))?;
        Ok(wire)
    }
}

/// A connection that nobody else speaks through.
struct Wire {
    line: Box<dyn Duplex>,
    /// The number of the function.
    function: u32,
    /// What has come and was not looked at.
    heard: Vec<u8>,
}

impl Wire {
    /// Nothing may come unasked, but that the connection has ended or is about to.
    fn still_quiet(mut self) -> Option<Wire> {
        let mut byte = [0];
        let mut context = Context::from_waker(Waker::noop());
        let came = Pin::new(&mut self.line).poll_read(&mut context, &mut ReadBuf::new(&mut byte));
        came.is_pending().then_some(self)
    }

    async fn call(&mut self, arguments: &[Value<'_>]) -> Result<Vec<u8>, Failure> {
        let said = message(b'F', |said| {
            said.extend(self.function.to_be_bytes());
            // One format, for all of them.
            said.extend(1_u16.to_be_bytes());
            said.extend(BINARY.to_be_bytes());
            said.extend(u16::try_from(arguments.len()).unwrap_or(u16::MAX).to_be_bytes());
            for argument in arguments {
                argument.put_into(said);
            }
            said.extend(BINARY.to_be_bytes());
        });
        let answer = self.answer(&said, b'V').await?;
        value(&answer).ok_or_else(nonsense)
    }

    /// The one value of the one row.
    async fn query(&mut self, statement: &str) -> Result<Vec<u8>, Failure> {
        let said = message(b'Q', |said| {
            said.extend(statement.as_bytes());
            said.push(0);
        });
        let row = self.answer(&said, b'D').await?;
        // The number of columns comes first.
        row.get(2..).and_then(value).ok_or_else(nonsense)
    }

    /// Says it, and listens until the server has finished: the message of that kind that came.
    async fn answer(&mut self, said: &[u8], kind: u8) -> Result<Vec<u8>, Failure> {
        let (mut answer, mut refusal) = (None, None);
        let ended = match self.say(said).await {
            Err(error) => Err(error),
            Ok(()) => loop {
                match self.hear().await {
                    Ok((b'Z', status)) => break Ok(status == b"I"),
                    Ok((b'E', fields)) => refusal = Some(Refusal::of(&fields)),
                    Ok((found, body)) if found == kind => answer = Some(body),
                    // Remarks, and how a statement went.
                    Ok((b'N' | b'S' | b'A' | b'T' | b'C', _)) => {}
                    Ok(_) => break Ok(false),
                    Err(error) => break Err(error),
                }
            },
        };
        match (refusal, ended, answer) {
            (Some(refusal), _, _) => Err(refusal.into()),
            (None, Ok(true), Some(answer)) => Ok(answer),
            (None, Ok(_), _) => Err(nonsense()),
            (None, Err(error), _) => Err(Failure::unknown("the connection broke", error)),
        }
    }

    async fn say(&mut self, said: &[u8]) -> io::Result<()> {
        self.line.write_all(said).await?;
        self.line.flush().await
    }

    /// The next message: its kind, and the rest.
    async fn hear(&mut self) -> io::Result<(u8, Vec<u8>)> {
        loop {
            if let Some((&[kind, a, b, c, d], rest)) = self.heard.split_first_chunk() {
                // The length counts itself.
                let len = u32::from_be_bytes([a, b, c, d]) as usize;
                let len = len.checked_sub(4).filter(|len| *len <= MESSAGE_BYTES_MAX);
                let len = len.ok_or(io::ErrorKind::InvalidData)?;
                if let Some(body) = rest.get(..len) {
                    let body = body.to_vec();
                    self.heard.drain(..5 + len);
                    return Ok((kind, body));
                }
            }
            if self.line.read_buf(&mut self.heard).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

fn message(kind: u8, put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0, 0];
    put(&mut message);
    let len = length(message.len() - 1);
    message[1..5].copy_from_slice(&len);
    message
}

/// Records are far smaller than what this can tell.
fn length(len: usize) -> [u8; 4] {
    u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes()
}

impl Value<'_> {
    fn put_into(self, said: &mut Vec<u8>) {
        let mut put = |bytes: &[u8]| {
            said.extend(length(bytes.len()));
            said.extend(bytes);
        };
        match self {
            Value::Integer(number) => put(&number.to_be_bytes()),
            Value::Bigint(number) => put(&number.to_be_bytes()),
            Value::Bytes(bytes) => put(bytes),
        }
    }
}

/// Its length comes first; that of nothing is -1.
fn value(bytes: &[u8]) -> Option<Vec<u8>> {
    let (len, rest) = bytes.split_first_chunk()?;
    let len = usize::try_from(i32::from_be_bytes(*len)).ok()?;
    rest.get(..len).map(<[u8]>::to_vec)
}

fn nonsense() -> Failure {
    Failure::unknown(
        "it answers what cannot be understood",
        io::Error::from(io::ErrorKind::InvalidData),
    )
}

/// Why the server did not do it.
#[derive(Debug, Default)]
struct Refusal {
    severity: String,
    code: String,
    message: String,
}

impl Refusal {
    fn of(fields: &[u8]) -> Refusal {
        let mut refusal = Refusal::default();
        for field in fields.split(|byte| *byte == 0) {
            let Some((kind, text)) = field.split_first() else { continue };
            let text = String::from_utf8_lossy(text).into_owned();
            match kind {
                // In the server's language, then for programs.
                b'S' | b'V' => refusal.severity = text,
                b'C' => refusal.code = text,
                b'M' => refusal.message = text,
                _ => {}
            }
        }
        refusal
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let (severity, code) = (refusal.severity.clone(), refusal.code.clone());
        Failure::of_refusal(&severity, &code, refusal)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.severity, self.message, self.code)
    }
}

impl std::error::Error for Refusal {}
