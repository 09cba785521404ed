//! Reads requests: from gRPC's words to the core's, each with its own way of being wrong.

use std::time::Duration;

use leasehold_api::{self as api, Code, Problem, grpc};
use leasehold_core as core;
use leasehold_core::{CallId, Claim, Namespace, Scope, Under, Wait};

use crate::convert;
use crate::service::problems::Failure;
use crate::service::random;

/// Longer than this nobody waits; who wants to wait for ever says so.
const WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn namespace(text: &str) -> Result<Namespace, Failure> {
    convert::namespace(Some(text).filter(|text| !text.is_empty()))
}

/// A length in whole milliseconds.
pub(super) fn length(
    field: &str,
    given: Option<prost_types::Duration>,
) -> Result<Option<Duration>, Failure> {
    let Some(given) = given else { return Ok(None) };
    match grpc::millis(given) {
        Some(millis) => Ok(Some(Duration::from_millis(millis))),
        None => Err(Failure::field(field, "must be a duration in whole milliseconds")),
    }
}

pub(super) fn needed_length(
    field: &str,
    given: Option<prost_types::Duration>,
) -> Result<Duration, Failure> {
    length(field, given)?.ok_or_else(|| Failure::field(field, "is missing"))
}

pub(super) fn mode(mode: i32, permits: Option<u32>) -> Result<core::Mode, Failure> {
    let mode = match grpc::Mode::try_from(mode) {
        Ok(grpc::Mode::Unspecified) => None,
        Ok(mode) => Some(api::Mode::from(mode)),
        Err(_) => return Err(Failure::field("mode", "is not a mode")),
    };
    convert::mode(mode, permits)
}

pub(super) fn claim(lock: &str, of: i32, permits: Option<u32>) -> Result<Claim, Failure> {
    Ok(Claim { scope: convert::scope(lock)?, mode: mode(of, permits)? })
}

/// The locks of a set.
pub(super) fn claims(locks: &[grpc::Claim]) -> Result<Vec<Claim>, Failure> {
    let one = |(at, asked): (usize, &grpc::Claim)| {
        let claim = claim(&asked.lock, asked.mode, asked.permits);
        claim.map_err(|failure| failure.within(&format!("locks[{at}]")))
    };
    locks.iter().enumerate().map(one).collect()
}

/// The fields of an acquire beside the locks.
pub(super) struct Terms<'a> {
    pub(super) owner: core::Owner,
    pub(super) under: Under,
    pub(super) wait: Option<prost_types::Duration>,
    pub(super) wait_forever: bool,
    pub(super) request_id: Option<&'a str>,
    pub(super) reclaim_window: Option<prost_types::Duration>,
    pub(super) reclaim: bool,
    pub(super) ticket: Option<&'a str>,
    pub(super) metadata: Option<&'a prost_types::Struct>,
}

/// The lease that a grant is to stand under: a session, or one of its own.
pub(super) fn under(
    session_id: Option<&str>,
    ttl: Option<prost_types::Duration>,
) -> Result<Under, Failure> {
    match (session_id, length("ttl", ttl)?) {
        (Some(_), Some(_)) => {
            Err(Failure::field("ttl", "belongs to the session: leave it out with session_id"))
        }
        (Some(session), None) => convert::lease_id("session_id", session).map(Under::Session),
        (None, Some(ttl)) => Ok(Under::NewLease { id: random::lease_id(), ttl }),
        (None, None) => Err(Failure::field("ttl", "is missing")),
    }
}

/// An acquire, before the engine numbers it.
pub(super) fn acquire(
    namespace: Namespace,
    claims: Vec<Claim>,
    terms: Terms<'_>,
) -> Result<core::Acquire, Failure> {
    let wait = wait(terms.wait, terms.wait_forever)?;
    Ok(core::Acquire {
        call: CallId(0),
        namespace,
        owner: terms.owner,
        claims,
        under: terms.under,
        wait,
        keep_place: matches!(wait, Wait::UpTo(_)),
        ticket: terms.ticket.map(convert::ticket).transpose()?,
        request_id: terms.request_id.map(convert::request_id).transpose()?,
        reclaim_window: length("reclaim_window", terms.reclaim_window)?.unwrap_or_default(),
        reclaim: terms.reclaim,
        metadata: match terms.metadata {
            Some(given) => metadata(given)?,
            None => None,
        },
    })
}

fn wait(given: Option<prost_types::Duration>, forever: bool) -> Result<Wait, Failure> {
    match length("wait", given)? {
        _ if forever => Ok(Wait::Forever),
        None | Some(Duration::ZERO) => Ok(Wait::Never),
        Some(length) if length > WAIT_MAX => {
            Err(Failure::field("wait", "is more than a day; set wait_forever to wait for ever"))
        }
        Some(length) => Ok(Wait::UpTo(length)),
    }
}

pub(super) fn metadata(
    given: &prost_types::Struct,
) -> Result<Option<std::sync::Arc<str>>, Failure> {
    let map = grpc::metadata_of(given)
        .ok_or_else(|| Failure::field("metadata", "has a value that JSON does not know"))?;
    convert::metadata(Some(&map))
}

pub(super) fn on_disconnect(request: &grpc::OpenRequest) -> Result<core::OnDisconnect, Failure> {
    let ttl = length("disconnect_ttl", request.disconnect_ttl)?;
    match (grpc::OnDisconnect::try_from(request.on_disconnect), ttl) {
        (Ok(grpc::OnDisconnect::Unspecified | grpc::OnDisconnect::Release), None) => {
            Ok(core::OnDisconnect::Release)
        }
        (Ok(grpc::OnDisconnect::Keep), Some(ttl)) => Ok(core::OnDisconnect::Keep(ttl)),
        (Ok(grpc::OnDisconnect::Unspecified | grpc::OnDisconnect::Release), Some(_)) => {
            Err(Failure::field("disconnect_ttl", "goes with ON_DISCONNECT_KEEP only"))
        }
        (Ok(grpc::OnDisconnect::Keep), None) => {
            Err(Failure::field("disconnect_ttl", "is needed with ON_DISCONNECT_KEEP"))
        }
        (Err(_), _) => Err(Failure::field("on_disconnect", "is not a disconnect policy")),
    }
}

pub(super) fn lock_state(state: i32) -> Result<Option<core::LockState>, Failure> {
    match grpc::LockState::try_from(state) {
        Ok(grpc::LockState::Unspecified) => Ok(None),
        Ok(grpc::LockState::Held) => Ok(Some(core::LockState::Held)),
        Ok(grpc::LockState::Recovering) => Ok(Some(core::LockState::Recovering)),
        Ok(grpc::LockState::ReclaimWindow) => Ok(Some(core::LockState::ReclaimWindow)),
        Ok(grpc::LockState::Free) | Err(_) => {
            Err(Failure::field("state", "is one of HELD, RECOVERING, RECLAIM_WINDOW"))
        }
    }
}

pub(super) fn page_size(asked: u32, default: usize, max: usize) -> Result<usize, Failure> {
    match usize::try_from(asked) {
        Ok(0) => Ok(default),
        Ok(size) if size <= max => Ok(size),
        Ok(_) | Err(_) => Err(Failure::field("page_size", format!("must be 1 to {max}"))),
    }
}

/// A lock's name as it is spelled; for answers that repeat it.
pub(super) fn scope(text: &str) -> Result<Scope, Failure> {
    convert::scope(text)
}

/// The same problem in the words of this interface: JSON says `ttl_ms` where gRPC says `ttl`.
pub(super) fn reworded(mut problem: Problem) -> Problem {
    if problem.code == Code::InvalidRequest {
        for error in &mut problem.errors {
            let field = match error.field.as_str() {
                "ttl_ms" => "ttl",
                "wait_ms" => "wait",
                "reclaim_ms" => "reclaim_window",
                "disconnect_ttl_ms" => "disconnect_ttl",
                _ => continue,
            };
            error.field = field.into();
        }
    }
    problem
}
