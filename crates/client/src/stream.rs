//! The gRPC stream: one connection, one stream on it, many requests in flight, each message a batch.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{AUTHORIZATION, HeaderValue};
use hyper::http::{Request as HttpRequest, Response as HttpResponse, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use leasehold_api::grpc::command::Ask;
use leasehold_api::grpc::reply::Answer as Said;
use leasehold_api::grpc::sessions_client::SessionsClient;
use leasehold_api::grpc::{
    self, Attach, AttachRequest, AttachResponse, COMMANDS_MAX, Cancel, CloseSession, Command,
    Heartbeat, Mode, Reply, StreamAcquire, StreamRelease, StreamRenew,
};
use leasehold_api::{Claim, Code, Problem};
use tokio::sync::mpsc;
use tonic::Streaming;
use tonic::codegen::tokio_stream::Stream;
use tower_service::Service;

use crate::access::{AbortOnDrop, Access, ConnectError, Protocol};
use crate::address::query_value;
use crate::machine::{Answer, CallId, Request, Wait};
use crate::payload::{Granted, Payload, What, millis, parts_to_release};

/// A peer that does not answer a ping is gone, even if nothing is asked of it.
const PING_INTERVAL: Duration = Duration::from_secs(5);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// The server reads messages up to 64 KiB.
const MESSAGE_BYTES_MAX: usize = 48 * 1024;
/// Large enough that a window is never what a batch waits for.
const WINDOW_BYTES: u32 = 1 << 20;
/// So that a server that does not lead the namespace can send the stream on without looking into it.
const NAMESPACE: &str = "leasehold-namespace";
/// A cancel has the id of what it cancels, with this bit: no call has it.
const CANCEL: u64 = 1 << 63;

/// A stream that stands.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) outgoing: mpsc::UnboundedSender<AttachRequest>,
    pub(crate) incoming: Streaming<AttachResponse>,
    /// Aborted with the stream, so that nothing leaves it later: the same requests go out over the next connection.
    _connection: AbortOnDrop,
}

/// Connects, and binds a stream to the namespace. The leases on it are their own: none ends with the stream.
pub(crate) async fn attach(
    access: &Access,
    address: &str,
    namespace: &str,
) -> Result<Attached, ConnectError> {
    let said = |error: &dyn std::error::Error| ConnectError::passing(format!("{address}: {error}"));
    let io = access.connect(address, Protocol::Http2).await?;
    let (sender, connection) = Builder::new(access.clone())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .handshake(TokioIo::new(io))
        .await
        .map_err(|error| said(&error))?;
    let connection = AbortOnDrop(access.spawn(async move { drop(connection.await) }));
    let origin: Uri = address.parse().map_err(|error| said(&error))?;
    let (outgoing, messages) = mpsc::unbounded_channel();
    let hello = Attach { namespace: namespace.into(), session: None };
    let _ = outgoing.send(AttachRequest { attach: Some(hello), commands: Vec::new() });
    let token = access.tokens().map(|tokens| tokens.current());
    let service = Connection { sender, token: token.clone() };
    let mut client = SessionsClient::with_origin(service, origin);
    let mut request = tonic::Request::new(Messages(messages));
    if let Ok(named) = query_value(namespace).parse() {
        request.metadata_mut().insert(NAMESPACE, named);
    }
    let answer = client.attach(request).await.map_err(|status| {
        if status.code() == tonic::Code::Unauthenticated
            && let (Some(tokens), Some(token)) = (access.tokens(), &token)
            && tokens.newer_than(token).is_some()
        {
            let said = format!("{address}: the token was replaced meanwhile");
            return ConnectError::passing(said);
        }
        refused(address, &status)
    })?;
    let mut incoming = answer.into_inner();
    match incoming.message().await {
        Ok(Some(_)) => Ok(Attached { outgoing, incoming, _connection: connection }),
        Ok(None) => {
            Err(ConnectError::passing(format!("{address}: the stream ended before it began")))
        }
        Err(status) => Err(refused(address, &status)),
    }
}

fn refused(address: &str, status: &tonic::Status) -> ConnectError {
    let said = format!("{address}: {}", status.message());
    let code = if status.code() == tonic::Code::Unauthenticated {
        Code::Unauthenticated
    } else if status.code() == tonic::Code::PermissionDenied {
        Code::PermissionDenied
    } else {
        return ConnectError::passing(said);
    };
    // A proxy in front of the server need not answer as it does.
    let problem = grpc::problem_of(status).unwrap_or_else(|| Problem::new(code, status.message()));
    ConnectError::denied(said, problem)
}

/// One HTTP/2 connection as a service.
#[derive(Clone, Debug)]
struct Connection {
    sender: SendRequest<tonic::body::Body>,
    token: Option<HeaderValue>,
}

impl Service<HttpRequest<tonic::body::Body>> for Connection {
    type Response = HttpResponse<Incoming>;
    type Error = hyper::Error;
    type Future =
        Pin<Box<dyn Future<Output = Result<HttpResponse<Incoming>, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.sender.poll_ready(cx)
    }

    fn call(&mut self, mut request: HttpRequest<tonic::body::Body>) -> Self::Future {
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        Box::pin(self.sender.send_request(request))
    }
}

/// Outgoing messages.
#[derive(Debug)]
struct Messages(mpsc::UnboundedReceiver<AttachRequest>);

impl Stream for Messages {
    type Item = AttachRequest;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<AttachRequest>> {
        self.get_mut().0.poll_recv(cx)
    }
}

/// Commands of one moment, gathered into as few messages as they fit into.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    commands: Vec<Command>,
    bytes: usize,
}

impl Batch {
    /// Adds a command; returns a message that is full without it.
    pub(crate) fn push(&mut self, command: Command, size: usize) -> Option<AttachRequest> {
        let is_full = self.bytes + size > MESSAGE_BYTES_MAX || self.commands.len() >= COMMANDS_MAX;
        let full = if is_full { self.take() } else { None };
        self.bytes += size;
        self.commands.push(command);
        full
    }

    pub(crate) fn take(&mut self) -> Option<AttachRequest> {
        if self.commands.is_empty() {
            return None;
        }
        self.bytes = 0;
        // The next batch is probably as large.
        let room = Vec::with_capacity(self.commands.len());
        let commands = std::mem::replace(&mut self.commands, room);
        Some(AttachRequest { attach: None, commands })
    }
}

/// The command that cancels a request.
pub(crate) fn cancel(call: CallId) -> Command {
    let command_id = call.to_u64();
    Command { id: command_id | CANCEL, ask: Some(Ask::Cancel(Cancel { command_id })) }
}

impl Payload {
    /// The request as a command, and about how large it is; `None` if it does not go over the stream.
    pub(crate) fn command(
        &self,
        call: CallId,
        request: &Request,
        granted: &Granted,
    ) -> Option<(Command, usize)> {
        let (ask, size) = match (request, &self.what) {
            (Request::Acquire { .. }, What::Session { .. }) => return None,
            (Request::Acquire { wait, ticket }, What::Lock(_) | What::Set(_)) => {
                let (acquire, size) = self.stream_acquire(*wait, ticket.clone());
                (Ask::Acquire(Box::new(acquire)), size)
            }
            (Request::Renew, What::Lock(claim)) => {
                let renew = StreamRenew {
                    lock: claim.lock.clone(),
                    owner_id: self.owner.clone(),
                    lease_id: granted.lease_id.clone(),
                    fencing_token: granted.token,
                    ttl: None,
                };
                (Ask::Renew(renew), 0)
            }
            (Request::Renew, What::Set(_) | What::Session { .. }) => {
                (Ask::Heartbeat(Heartbeat { session_id: granted.lease_id.clone(), ttl: None }), 0)
            }
            (Request::Release, What::Set(claims)) if self.session.is_some() => {
                // Several commands could not be answered as one.
                let [claim] = parts_to_release(claims) else { return None };
                (Ask::Release(self.stream_release(claim, granted)), 0)
            }
            (Request::Release, What::Lock(claim)) => {
                (Ask::Release(self.stream_release(claim, granted)), 0)
            }
            (Request::Release, What::Set(_) | What::Session { .. }) => {
                (Ask::Close(CloseSession { session_id: granted.lease_id.clone() }), 0)
            }
        };
        let names: usize = self.locks().iter().map(|claim| claim.lock.len() + 16).sum();
        let size = size + names + self.owner.len() + self.request_id.len() + 96;
        Some((Command { id: call.to_u64(), ask: Some(ask) }, size))
    }

    fn stream_release(&self, claim: &Claim, granted: &Granted) -> StreamRelease {
        StreamRelease {
            lock: claim.lock.clone(),
            owner_id: self.owner.clone(),
            lease_id: granted.lease_id.clone(),
            fencing_token: granted.token,
            traceparent: self.traceparent_text(),
        }
    }

    fn traceparent_text(&self) -> Option<String> {
        self.traceparent.as_ref()?.to_str().ok().map(str::to_owned)
    }

    fn stream_acquire(&self, wait: Wait, ticket: Option<String>) -> (StreamAcquire, usize) {
        let mut acquire = StreamAcquire {
            owner_id: self.owner.clone(),
            ttl: self.ttl.map(whole),
            wait: match wait {
                Wait::UpTo(wait) => Some(whole(wait)),
                Wait::Never | Wait::Forever => None,
            },
            wait_forever: wait == Wait::Forever,
            request_id: Some(self.request_id.clone()),
            reclaim_window: (!self.reclaim_window.is_zero()).then(|| whole(self.reclaim_window)),
            session_id: self.session.clone(),
            ticket,
            traceparent: self.traceparent_text(),
            ..StreamAcquire::default()
        };
        let mut size = 0;
        if let Some(metadata) = &self.metadata {
            size = serde_json::to_vec(metadata).map_or(0, |text| text.len() * 2);
            acquire.metadata = grpc::metadata(metadata);
        }
        match &self.what {
            What::Lock(claim) => {
                acquire.lock.clone_from(&claim.lock);
                acquire.mode = mode(claim);
                acquire.permits = claim.permits;
            }
            What::Set(claims) => {
                let wire = |claim: &Claim| grpc::Claim {
                    lock: claim.lock.clone(),
                    mode: mode(claim),
                    permits: claim.permits,
                };
                acquire.locks = claims.iter().map(wire).collect();
            }
            What::Session { .. } => {}
        }
        (acquire, size)
    }
}

fn mode(claim: &Claim) -> i32 {
    claim.mode.map_or(Mode::Unspecified, Mode::from).into()
}

/// Lengths of time are sent in whole milliseconds, never shorter than asked.
fn whole(length: Duration) -> prost_types::Duration {
    grpc::length(Duration::from_millis(millis(length)))
}

/// Reply to a command.
pub(crate) enum Told {
    Answer(CallId, Answer, Option<Granted>),
    /// A reply that does not fit the command.
    Nonsense(CallId),
    /// News of a cancel that changes nothing.
    Nothing,
}

pub(crate) fn read(reply: Reply) -> Told {
    if reply.id & CANCEL != 0 {
        let call = CallId::from_u64(reply.id & !CANCEL);
        return match reply.answer {
            // It left the queue, and no other answer will come.
            Some(Said::Cancelled(cancelled)) if cancelled.waiting => {
                let problem = Problem::new(Code::LockHeld, "the request was cancelled");
                Told::Answer(call, Answer::Refused(Box::new(problem)), None)
            }
            Some(_) | None => Told::Nothing,
        };
    }
    let call = CallId::from_u64(reply.id);
    match reply.answer {
        Some(Said::Problem(problem)) => {
            Told::Answer(call, Answer::Refused(Box::new(Problem::from(&*problem))), None)
        }
        Some(Said::Granted(grant)) => {
            let answer = Answer::Granted {
                ttl: read_length(grant.ttl),
                left: read_length(grant.expires_in),
            };
            let granted = Granted {
                lease_id: grant.lease_id,
                token: grant.fencing_token,
                lock: Some(grant.lock).filter(|lock| !lock.is_empty()),
                waited: read_length(grant.waited),
                replayed: grant.replayed,
                epoch: grant.epoch,
                session_number: None,
            };
            Told::Answer(call, answer, Some(granted))
        }
        Some(Said::Renewed(extended)) => {
            let (ttl, left) = (read_length(extended.ttl), read_length(extended.expires_in));
            Told::Answer(call, Answer::Renewed { ttl, left }, None)
        }
        Some(Said::Released(_) | Said::Closed(_)) => Told::Answer(call, Answer::Released, None),
        Some(
            Said::Cancelled(_)
            | Said::Tested(_)
            | Said::Checked(_)
            | Said::Lock(_)
            | Said::Unlocked(_)
            | Said::Accepted(_),
        )
        | None => Told::Nonsense(call),
    }
}

/// A length that is missing is none: what cannot be read must not be believed.
fn read_length(length: Option<prost_types::Duration>) -> Duration {
    length.and_then(grpc::duration).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_cut_before_it_is_too_large_to_be_read() {
        let mut batch = Batch::default();
        let command = || Command { id: 1, ask: None };
        assert!(batch.take().is_none());
        assert!(batch.push(command(), 40_000).is_none());
        let full = batch.push(command(), 40_000).expect("both do not fit");
        assert_eq!(full.commands.len(), 1);
        assert_eq!(batch.take().map(|message| message.commands.len()), Some(1));
    }

    #[test]
    fn a_cancelled_request_is_refused_only_if_it_still_waited() {
        let call = CallId::from_u64(0x1_0000_0007);
        let id = cancel(call).id;
        let said = |waiting| Some(Said::Cancelled(grpc::Cancelled { waiting }));
        assert!(matches!(
            read(Reply { id, answer: said(true) }),
            Told::Answer(of, Answer::Refused(_), None) if of == call
        ));
        assert!(matches!(read(Reply { id, answer: said(false) }), Told::Nothing));
    }
}
