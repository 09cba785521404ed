//! Sessions: a lease opened first, under which any number of locks are taken.

use serde::{Deserialize, Serialize};

use crate::locks::Metadata;

/// The policy for a session whose stream breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// Everything is released at once.
    #[default]
    Release,
    /// Everything is kept for `disconnect_ttl_ms`.
    Keep,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct OpenRequest {
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Name))]
    pub owner_id: String,
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_ms: u64,
    /// The way in that the session comes by; `http` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Adapter>))]
    pub adapter: Option<String>,
    #[serde(default)]
    pub on_disconnect: OnDisconnect,
    /// Needed with `on_disconnect: keep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 86_400_000))]
    pub disconnect_ttl_ms: Option<u64>,
    /// Your own name for this request: a repetition gets the same session, not a second one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Name>))]
    pub request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub metadata: Option<Metadata>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Opened {
    /// A secret: whoever knows it can use and end the session.
    pub session_id: String,
    /// Its number in lists.
    pub session: u64,
    pub owner_id: String,
    pub adapter: String,
    pub ttl_ms: u64,
    pub lease_expiry_ms: u64,
    pub expires_in_ms: u64,
    pub expires_at: String,
    /// The same request opened it before; this is that session.
    #[serde(default)]
    pub replayed: bool,
    pub epoch: u64,
}

/// The heartbeat of a session, or of any lease. The body may be left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct KeepAliveRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct KeptAlive {
    pub ttl_ms: u64,
    pub lease_expiry_ms: u64,
    pub expires_in_ms: u64,
    pub expires_at: String,
    pub epoch: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Closed {
    pub closed: bool,
    /// The number of grants that ended with it.
    pub released: u64,
    /// It was closed before; `released` is what was said then.
    #[serde(default)]
    pub replayed: bool,
}

/// An operator ends a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BreakSessionRequest {
    /// For the record, and for the holder.
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Name))]
    pub reason: String,
}

/// A session as others may see it: everything but its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Session {
    pub session: u64,
    pub namespace: String,
    pub owner_id: String,
    pub adapter: String,
    pub on_disconnect: OnDisconnect,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disconnect_ttl_ms: Option<u64>,
    /// Whether a stream is bound to it.
    pub attached: bool,
    /// Opened before the server restarted, and not heard of since.
    pub recovering: bool,
    pub opened_at: String,
    pub ttl_ms: u64,
    pub expires_at: String,
    pub expires_in_ms: u64,
    pub locks: u64,
    pub waiters: u64,
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub metadata: Metadata,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SessionPage {
    pub sessions: Vec<Session>,
    pub next_page_token: Option<String>,
}
