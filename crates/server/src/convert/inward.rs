//! From outside to inside.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use leasehold_api as api;
use leasehold_api::Code;
use leasehold_core as core;
use leasehold_core::{
    CallId, Claim, FencingToken, LeaseId, Mode, Namespace, Owner, Principal, RegisterName,
    RequestId, Scope, SecretTicket, Ticket, Under, Wait,
};

use crate::service::problems::Failure;
use crate::service::random;
use crate::service::sessions::SessionName;

/// The longest wait of one request over HTTP: proxies cut after a minute. The ticket keeps the place for the next one.
pub(crate) const HTTP_WAIT_MAX: Duration = Duration::from_secs(50);

pub(crate) fn namespace(text: Option<&str>) -> Result<Namespace, Failure> {
    match text {
        None => Ok(Namespace::default()),
        Some(text) => {
            Namespace::new(text).map_err(|fault| Failure::field("namespace", fault.to_string()))
        }
    }
}

pub(crate) fn scope(text: &str) -> Result<Scope, Failure> {
    Scope::parse(text).map_err(|fault| Failure::new(Code::InvalidLockName, fault.to_string()))
}

pub(crate) fn owner(principal: &Principal, text: &str) -> Result<Owner, Failure> {
    Owner::of(principal, text).map_err(|fault| Failure::field("owner_id", fault.to_string()))
}

pub(crate) fn fence(number: u64) -> Result<FencingToken, Failure> {
    FencingToken::new(number).ok_or_else(|| {
        Failure::field(
            "fencing_token",
            format!("{number} is above {}, the highest there is", FencingToken::MAX),
        )
    })
}

/// A session by its number or its id.
pub(crate) fn session_name(text: &str) -> Result<SessionName, Failure> {
    if text.len() < 32
        && let Ok(number) = text.parse()
    {
        return Ok(SessionName::Number(number));
    }
    lease_id("session_id", text).map(SessionName::Id)
}

pub(crate) fn register(text: &str) -> Result<RegisterName, Failure> {
    RegisterName::new(text).map_err(|fault| Failure::field("name", fault.to_string()))
}

/// The register that ended the page before.
pub(crate) fn register_cursor(token: &str) -> Result<RegisterName, Failure> {
    RegisterName::stored(token)
        .map_err(|_| Failure::field("page_token", "is not one that was handed out"))
}

/// The adapters that a session can be opened by.
const ADAPTERS: [&str; 7] = ["http", "grpc", "fuse", "nlm", "nfs", "smb", "other"];

pub(crate) fn adapter(text: Option<&str>, usual: &str) -> Result<core::Adapter, Failure> {
    let name = text.unwrap_or(usual);
    let known = ADAPTERS.contains(&name).then(|| core::Adapter::new(name).ok()).flatten();
    known
        .ok_or_else(|| Failure::field("adapter", format!("must be one of {}", ADAPTERS.join(", "))))
}

/// Text from a URL; `None` if it does not decode to UTF-8.
pub(crate) fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
    let mut codes = text.split('%').skip(1);
    let is_code =
        |rest: &str| rest.len() >= 2 && rest.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit);
    if !codes.all(is_code) {
        return None;
    }
    percent_encoding::percent_decode_str(text).decode_utf8().ok()
}

/// A lease id in its one spelling: 32 lower-case hexadecimal digits.
pub(crate) fn lease_id(field: &str, text: &str) -> Result<LeaseId, Failure> {
    // The text is not repeated: it may be somebody's secret with one digit missing.
    let refused = || Failure::field(field, "must be 32 lower-case hexadecimal digits");
    let (high, low) = text.split_at_checked(16).ok_or_else(refused)?;
    let halves = hex_digits(high).zip(hex_digits(low)).ok_or_else(refused)?;
    Ok(LeaseId::from_u128(u128::from(halves.0) << 64 | u128::from(halves.1)))
}

/// 16 lower-case hexadecimal digits. By hand, as every release reads one.
fn hex_digits(text: &str) -> Option<u64> {
    let digits: &[u8; 16] = text.as_bytes().try_into().ok()?;
    let (mut number, mut seen) = (0, 0);
    for digit in digits {
        let value = HEX_VALUES[usize::from(*digit)];
        (number, seen) = (number << 4 | u64::from(value), seen | value);
    }
    (seen < 16).then_some(number)
}

/// The value of each byte as a digit; 255 if it is none.
const HEX_VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    values
};

pub(crate) fn mode(mode: Option<api::Mode>, permits: Option<u32>) -> Result<Mode, Failure> {
    match (mode, permits) {
        (None | Some(api::Mode::Exclusive), None) => Ok(Mode::Exclusive),
        (Some(api::Mode::Shared), None) => Ok(Mode::Shared),
        (Some(api::Mode::Permits), None) => {
            Err(Failure::field("permits", "is needed with mode permits"))
        }
        (None | Some(api::Mode::Permits), Some(limit)) => NonZeroU32::new(limit)
            .map(Mode::Permits)
            .ok_or_else(|| Failure::field("permits", "must be at least 1")),
        (Some(api::Mode::Exclusive | api::Mode::Shared), Some(_)) => {
            Err(Failure::field("permits", "goes with mode permits only: leave mode out"))
        }
    }
}

/// Checks metadata; gives its text, or nothing if it is empty.
pub(crate) fn metadata(given: Option<&api::Metadata>) -> Result<Option<Arc<str>>, Failure> {
    let Some(map) = given.filter(|map| !map.is_empty()) else {
        return Ok(None);
    };
    if map.iter().any(|(key, value)| is_unprintable(key) || has_unprintable(value)) {
        return Err(Failure::field("metadata", "has a control character"));
    }
    let text = serde_json::to_string(map)
        .map_err(|_| Failure::field("metadata", "cannot be written as JSON"))?;
    Ok(Some(text.into()))
}

fn has_unprintable(value: &serde_json::Value) -> bool {
    use serde_json::Value;
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => is_unprintable(text),
        Value::Array(values) => values.iter().any(has_unprintable),
        Value::Object(map) => {
            map.iter().any(|(key, value)| is_unprintable(key) || has_unprintable(value))
        }
    }
}

/// Text may have several lines here; anything else that moves a cursor is not meant to be read.
fn is_unprintable(text: &str) -> bool {
    text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t'))
}

/// An acquire of one lock or of a set, before the engine numbers it.
pub(crate) fn acquire(
    principal: &Principal,
    namespace: Namespace,
    claims: Vec<Claim>,
    request: &api::AcquireRequest,
) -> Result<core::Acquire, Failure> {
    Ok(core::Acquire {
        call: CallId(0),
        namespace,
        owner: owner(principal, &request.owner_id)?,
        claims,
        under: under(request)?,
        wait: match wait(request.wait_ms)? {
            Duration::ZERO => Wait::Never,
            length => Wait::UpTo(length),
        },
        keep_place: request.wait_ms > 0,
        ticket: request.ticket.as_deref().map(ticket).transpose()?,
        request_id: request.request_id.as_deref().map(request_id).transpose()?,
        reclaim_window: Duration::from_millis(request.reclaim_ms),
        reclaim: request.reclaim,
        metadata: metadata(request.metadata.as_ref())?,
    })
}

/// The bytes of a file to unlock.
pub(crate) fn unlock(
    namespace: Namespace,
    scope: &Scope,
    owner: Owner,
    session: LeaseId,
) -> Result<core::Unlock, Failure> {
    match *scope {
        Scope::Range { inode, range } => {
            Ok(core::Unlock { namespace, session, owner, inode, range })
        }
        Scope::Key(_) => {
            Err(Failure::field("lock", "has no bytes to unlock: name inode:N, or a range of it"))
        }
    }
}

fn under(request: &api::AcquireRequest) -> Result<Under, Failure> {
    match (&request.session_id, request.ttl_ms) {
        (Some(_), Some(_)) => {
            Err(Failure::field("ttl_ms", "belongs to the session: leave it out with session_id"))
        }
        (Some(session), None) => lease_id("session_id", session).map(Under::Session),
        (None, Some(ttl)) => {
            Ok(Under::NewLease { id: random::lease_id(), ttl: Duration::from_millis(ttl) })
        }
        (None, None) => Err(Failure::field("ttl_ms", "is missing")),
    }
}

/// The time that one request over HTTP waits for a lock: proxies cut off those that take longer.
fn wait(millis: u64) -> Result<Duration, Failure> {
    let length = Duration::from_millis(millis);
    if length > HTTP_WAIT_MAX {
        let max = HTTP_WAIT_MAX.as_millis();
        let said = format!(
            "is {millis}, the limit over HTTP is {max}: to wait longer, repeat the request with the ticket of its answer"
        );
        return Err(Failure::field("wait_ms", said));
    }
    Ok(length)
}

/// The time that a long poll waits for events.
pub(crate) fn poll_wait(millis: u64) -> Result<Duration, Failure> {
    let length = Duration::from_millis(millis);
    if length > HTTP_WAIT_MAX {
        let max = HTTP_WAIT_MAX.as_millis();
        let said = format!("is {millis}, the limit is {max}: ask again after the last revision");
        return Err(Failure::field("wait_ms", said));
    }
    Ok(length)
}

/// A ticket: the number of a place and its secret. One without a secret is of an older server, so its place is gone.
pub(crate) fn ticket(text: &str) -> Result<SecretTicket, Failure> {
    const OF_NO_PLACE: SecretTicket = SecretTicket { ticket: Ticket(0), secret: 0 };
    let refused = || Failure::field("ticket", "is not a ticket");
    let (number, secret) = text.split_once('-').map_or((text, None), |(n, s)| (n, Some(s)));
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| digits).ok_or_else(refused)?;
    let Some(secret) = secret else { return Ok(OF_NO_PLACE) };
    let secret = hex_digits(secret).ok_or_else(refused)?;
    Ok(SecretTicket { ticket: Ticket(number), secret })
}

pub(crate) fn ticket_text(ticket: SecretTicket) -> String {
    format!("{}-{:016x}", ticket.ticket.0, ticket.secret)
}

pub(crate) fn request_id(text: &str) -> Result<RequestId, Failure> {
    RequestId::new(text).map_err(|fault| Failure::field("request_id", fault.to_string()))
}

pub(crate) fn on_disconnect(request: &api::OpenRequest) -> Result<core::OnDisconnect, Failure> {
    match (request.on_disconnect, request.disconnect_ttl_ms) {
        (api::OnDisconnect::Release, None) => Ok(core::OnDisconnect::Release),
        (api::OnDisconnect::Keep, Some(ttl)) => {
            Ok(core::OnDisconnect::Keep(Duration::from_millis(ttl)))
        }
        (api::OnDisconnect::Release, Some(_)) => {
            Err(Failure::field("disconnect_ttl_ms", "goes with on_disconnect keep only"))
        }
        (api::OnDisconnect::Keep, None) => {
            Err(Failure::field("disconnect_ttl_ms", "is needed with on_disconnect keep"))
        }
    }
}

pub(crate) fn lock_state(text: &str) -> Result<core::LockState, Failure> {
    match text {
        "held" => Ok(core::LockState::Held),
        "recovering" => Ok(core::LockState::Recovering),
        "reclaim_window" => Ok(core::LockState::ReclaimWindow),
        _ => Err(Failure::field("state", "is one of held, recovering, reclaim_window")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_codes_are_decoded_strictly() {
        assert_eq!(percent_decoded("a%2Fb%20c").as_deref(), Some("a/b c"));
        assert_eq!(percent_decoded("%c3%a9").as_deref(), Some("é"));
        for text in ["%", "%2", "%zz", "%ff", "%ed%a0%80", "%+1", "%2é", "a%%20"] {
            assert_eq!(percent_decoded(text), None, "{text}");
        }
    }

    #[test]
    fn wait_beyond_what_proxies_allow_is_refused() {
        assert_eq!(wait(0).unwrap(), Duration::ZERO);
        assert_eq!(wait(50_000).unwrap(), HTTP_WAIT_MAX);
        assert!(wait(50_001).is_err());
        assert!(wait(1 << 63).is_err());
    }

    #[test]
    fn ticket_is_read_as_it_was_told() {
        let told = SecretTicket { ticket: Ticket(17), secret: 0xbeef };
        assert_eq!(ticket_text(told), "17-000000000000beef");
        assert_eq!(ticket(&ticket_text(told)).unwrap(), told);
        assert_eq!(ticket("17").unwrap().ticket, Ticket(0), "the number alone leads nowhere");
        for wrong in ["", "-", "x", "17-", "17-beef", "-000000000000beef", "17-000000000000BEEF"] {
            assert!(ticket(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn metadata_with_a_control_character_is_refused() {
        let map = |text: &str| serde_json::from_str::<api::Metadata>(text).unwrap();
        assert!(metadata(Some(&map(r#"{"a":"\u0000"}"#))).is_err());
        assert!(metadata(Some(&map(r#"{"a\u001b":1}"#))).is_err());
        assert_eq!(metadata(Some(&map("{}"))).unwrap(), None);
        assert_eq!(
            metadata(Some(&map(r#"{"a":"x\ny"}"#))).unwrap().as_deref(),
            Some(r#"{"a":"x\ny"}"#)
        );
    }
}
