//! Requests for one lease, encoded for each transport.

use std::fmt;
use std::time::Duration;

use hyper::header::HeaderValue;
use leasehold_api::{
    AcquireRequest, AcquireSetRequest, Claim, Grant, KeptAlive, Metadata, Mode, OnDisconnect,
    OpenRequest, Opened, ReleaseRequest, RenewRequest, Renewed, SetGrant,
};

use crate::address::path_part;
use crate::http::{Answered, Ask};
use crate::machine::{Answer, Request, Wait};

/// Over HTTP the server waits no longer in one request; a ticket keeps the place for the next.
const HTTP_WAIT_MAX: Duration = Duration::from_secs(50);

#[derive(Clone, Debug)]
pub(crate) enum What {
    Lock(Claim),
    Set(Vec<Claim>),
    Session {
        adapter: Option<String>,
        on_disconnect: OnDisconnect,
        disconnect_ttl: Option<Duration>,
    },
}

/// Parts of a request that are the same in every try.
#[derive(Clone)]
pub(crate) struct Payload {
    pub(crate) what: What,
    pub(crate) owner: String,
    /// A lease of its own; without it the grant stands under `session`.
    pub(crate) ttl: Option<Duration>,
    pub(crate) session: Option<String>,
    pub(crate) request_id: String,
    pub(crate) reclaim_window: Duration,
    pub(crate) metadata: Option<Metadata>,
    /// The trace that the request is part of, and its release.
    pub(crate) traceparent: Option<HeaderValue>,
}

/// Answer to an acquire, without its times.
#[derive(Clone, Default)]
pub(crate) struct Granted {
    pub(crate) lease_id: String,
    pub(crate) token: u64,
    /// The canonical spelling.
    pub(crate) lock: Option<String>,
    pub(crate) waited: Duration,
    pub(crate) replayed: bool,
    pub(crate) epoch: u64,
    pub(crate) session_number: Option<u64>,
}

/// Without the ids of requests and sessions: they are secrets.
impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Payload");
        shown.field("what", &self.what).field("owner", &self.owner).field("ttl", &self.ttl);
        shown.finish_non_exhaustive()
    }
}

/// Without the id of the lease, which is a secret.
impl fmt::Debug for Granted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Granted");
        shown.field("token", &self.token).field("lock", &self.lock).field("epoch", &self.epoch);
        shown.finish_non_exhaustive()
    }
}

impl Granted {
    /// Lease id and token, as in notices of the server.
    pub(crate) fn name(&self) -> (String, u64) {
        (self.lease_id.clone(), self.token)
    }
}

pub(crate) fn millis(length: Duration) -> u64 {
    // Rounded up: a wait or a ttl is never shorter than asked.
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl Payload {
    /// The request as HTTP, with the namespace as a query; one, or several that do it together.
    pub(crate) fn http(&self, request: &Request, granted: &Granted, query: &str) -> Vec<Ask> {
        let mut asks = self.untraced_http(request, granted, query);
        // Heartbeats are nobody's doing.
        if *request != Request::Renew {
            asks.iter_mut().for_each(|ask| ask.traceparent.clone_from(&self.traceparent));
        }
        asks
    }

    fn untraced_http(&self, request: &Request, granted: &Granted, query: &str) -> Vec<Ask> {
        match (request, &self.what) {
            (Request::Release, What::Set(claims)) if self.session.is_some() => {
                let release = |claim: &Claim| {
                    Ask::post(release_path(&claim.lock, query), &self.release(granted))
                };
                parts_to_release(claims).iter().map(release).collect()
            }
            _ => vec![self.one_http(request, granted, query)],
        }
    }

    fn one_http(&self, request: &Request, granted: &Granted, query: &str) -> Ask {
        match (request, &self.what) {
            (Request::Acquire { wait, ticket }, What::Lock(claim)) => {
                let path = format!("/v1/locks/{}/acquire{query}", path_part(&claim.lock));
                Ask::post(path, &self.acquire(claim, *wait, ticket.clone()))
            }
            (Request::Acquire { wait, ticket }, What::Set(claims)) => {
                let path = format!("/v1/sets/acquire{query}");
                Ask::post(path, &self.acquire_set(claims, *wait, ticket.clone()))
            }
            (Request::Acquire { .. }, What::Session { .. }) => {
                Ask::post(format!("/v1/sessions{query}"), &self.open())
            }
            (Request::Renew, What::Lock(claim)) => {
                let path = format!("/v1/locks/{}/renew{query}", path_part(&claim.lock));
                let body = RenewRequest {
                    owner_id: self.owner.clone(),
                    lease_id: granted.lease_id.clone(),
                    fencing_token: granted.token,
                    ttl_ms: None,
                };
                Ask::post(path, &body)
            }
            (Request::Renew, What::Set(_) | What::Session { .. }) => Ask::post(
                format!("/v1/sessions/{}/keepalive{query}", granted.lease_id),
                &leasehold_api::KeepAliveRequest::default(),
            ),
            (Request::Release, What::Lock(claim)) => {
                Ask::post(release_path(&claim.lock, query), &self.release(granted))
            }
            (Request::Release, What::Set(_) | What::Session { .. }) => {
                Ask::delete(format!("/v1/sessions/{}{query}", granted.lease_id))
            }
        }
    }

    fn release(&self, granted: &Granted) -> ReleaseRequest {
        ReleaseRequest {
            owner_id: self.owner.clone(),
            lease_id: granted.lease_id.clone(),
            fencing_token: granted.token,
        }
    }

    fn acquire(&self, claim: &Claim, wait: Wait, ticket: Option<String>) -> AcquireRequest {
        AcquireRequest {
            owner_id: self.owner.clone(),
            ttl_ms: self.ttl.map(millis),
            wait_ms: wait_ms(wait),
            mode: claim.mode,
            permits: claim.permits,
            session_id: self.session.clone(),
            request_id: Some(self.request_id.clone()),
            reclaim_ms: millis(self.reclaim_window),
            reclaim: false,
            ticket,
            metadata: self.metadata.clone(),
        }
    }

    fn acquire_set(
        &self,
        claims: &[Claim],
        wait: Wait,
        ticket: Option<String>,
    ) -> AcquireSetRequest {
        AcquireSetRequest {
            locks: claims.to_vec(),
            owner_id: self.owner.clone(),
            ttl_ms: self.ttl.map(millis),
            wait_ms: wait_ms(wait),
            session_id: self.session.clone(),
            request_id: Some(self.request_id.clone()),
            reclaim_ms: millis(self.reclaim_window),
            reclaim: false,
            ticket,
            metadata: self.metadata.clone(),
        }
    }

    fn open(&self) -> OpenRequest {
        let What::Session { adapter, on_disconnect, disconnect_ttl } = &self.what else {
            unreachable!("only a session is opened");
        };
        OpenRequest {
            owner_id: self.owner.clone(),
            ttl_ms: self.ttl.map_or(0, millis),
            adapter: adapter.clone(),
            on_disconnect: *on_disconnect,
            disconnect_ttl_ms: disconnect_ttl.map(millis),
            request_id: Some(self.request_id.clone()),
            metadata: self.metadata.clone(),
        }
    }

    /// Decodes an answer over HTTP; `None` if it cannot be read.
    pub(crate) fn read_http(
        &self,
        request: &Request,
        answered: &Answered,
    ) -> Option<(Answer, Option<Granted>)> {
        if !answered.is_success() {
            return answered.problem().map(|problem| (Answer::Refused(problem), None));
        }
        match (request, &self.what) {
            (Request::Acquire { .. }, What::Lock(_)) => {
                let grant: Grant = answered.read().ok()?;
                Some(granted(
                    grant.ttl_ms,
                    grant.expires_in_ms,
                    Granted {
                        lease_id: grant.lease_id,
                        token: grant.fencing_token,
                        lock: Some(grant.lock),
                        waited: Duration::from_millis(grant.waited_ms),
                        replayed: grant.replayed,
                        epoch: grant.epoch,
                        session_number: None,
                    },
                ))
            }
            (Request::Acquire { .. }, What::Set(_)) => {
                let grant: SetGrant = answered.read().ok()?;
                Some(granted(
                    grant.ttl_ms,
                    grant.expires_in_ms,
                    Granted {
                        lease_id: grant.lease_id,
                        token: grant.fencing_token,
                        lock: None,
                        waited: Duration::from_millis(grant.waited_ms),
                        replayed: grant.replayed,
                        epoch: grant.epoch,
                        session_number: None,
                    },
                ))
            }
            (Request::Acquire { .. }, What::Session { .. }) => {
                let opened: Opened = answered.read().ok()?;
                Some(granted(
                    opened.ttl_ms,
                    opened.expires_in_ms,
                    Granted {
                        lease_id: opened.session_id,
                        epoch: opened.epoch,
                        replayed: opened.replayed,
                        session_number: Some(opened.session),
                        ..Granted::default()
                    },
                ))
            }
            (Request::Renew, What::Lock(_)) => {
                let renewed: Renewed = answered.read().ok()?;
                Some((extended(renewed.ttl_ms, renewed.expires_in_ms), None))
            }
            (Request::Renew, What::Set(_) | What::Session { .. }) => {
                let kept: KeptAlive = answered.read().ok()?;
                Some((extended(kept.ttl_ms, kept.expires_in_ms), None))
            }
            (Request::Release, _) => Some((Answer::Released, None)),
        }
    }

    /// Its lock, of a set the first one, for people.
    pub(crate) fn lock(&self) -> &str {
        self.locks().first().map_or("(session)", |claim| &claim.lock)
    }

    /// Its locks; none for a session.
    pub(crate) fn locks(&self) -> &[Claim] {
        match &self.what {
            What::Lock(claim) => std::slice::from_ref(claim),
            What::Set(claims) => claims,
            What::Session { .. } => &[],
        }
    }
}

/// The part of a set that must be named to release all of it while its session goes on: with a name or a path everything
/// under the same token ends, bytes of files are given back one by one.
pub(crate) fn parts_to_release(claims: &[Claim]) -> &[Claim] {
    let named = claims.iter().position(|claim| !claim.lock.starts_with("inode:"));
    named.map_or(claims, |at| std::slice::from_ref(&claims[at]))
}

fn release_path(lock: &str, query: &str) -> String {
    format!("/v1/locks/{}/release{query}", path_part(lock))
}

pub(crate) fn claim(lock: &str, mode: Mode, permits: Option<u32>) -> Claim {
    let mode = match mode {
        Mode::Exclusive | Mode::Permits => None,
        Mode::Shared => Some(Mode::Shared),
    };
    Claim { lock: lock.into(), mode, permits }
}

fn wait_ms(wait: Wait) -> u64 {
    match wait {
        Wait::Never => 0,
        Wait::UpTo(wait) => millis(wait.min(HTTP_WAIT_MAX)),
        Wait::Forever => millis(HTTP_WAIT_MAX),
    }
}

fn granted(ttl_ms: u64, left_ms: u64, granted: Granted) -> (Answer, Option<Granted>) {
    let (ttl, left) = (Duration::from_millis(ttl_ms), Duration::from_millis(left_ms));
    (Answer::Granted { ttl, left }, Some(granted))
}

fn extended(ttl_ms: u64, left_ms: u64) -> Answer {
    Answer::Renewed { ttl: Duration::from_millis(ttl_ms), left: Duration::from_millis(left_ms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquire_and_release_are_part_of_a_trace_and_heartbeats_are_not() {
        let payload = Payload {
            what: What::Lock(claim("job", Mode::Exclusive, None)),
            owner: "ann".into(),
            ttl: Some(Duration::from_secs(30)),
            session: None,
            request_id: "r".into(),
            reclaim_window: Duration::ZERO,
            metadata: None,
            traceparent: Some(HeaderValue::from_static("00-1-2-01")),
        };
        let acquire = Request::Acquire { wait: Wait::Never, ticket: None };
        for (request, is_traced) in
            [(acquire, true), (Request::Renew, false), (Request::Release, true)]
        {
            let asks = payload.http(&request, &Granted::default(), "");
            assert!(asks.iter().all(|ask| ask.traceparent.is_some() == is_traced), "{request:?}");
        }
    }
}
