//! Several locks at once, all or nothing, under one lease and one token.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::locks::{Metadata, Mode};

/// One lock of a set. In a request, the name alone will do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Claim {
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::LockName))]
    pub lock: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000))]
    pub permits: Option<u32>,
}

/// A claim that is written as an object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    lock: String,
    #[serde(default)]
    mode: Option<Mode>,
    #[serde(default)]
    permits: Option<u32>,
}

impl<'de> Deserialize<'de> for Claim {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Claim, D::Error> {
        deserializer.deserialize_any(ClaimVisitor)
    }
}

struct ClaimVisitor;

impl<'de> Visitor<'de> for ClaimVisitor {
    type Value = Claim;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a lock, or an object with `lock`")
    }

    fn visit_str<E: de::Error>(self, lock: &str) -> Result<Claim, E> {
        Ok(Claim { lock: lock.into(), ..Claim::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Claim, A::Error> {
        let Fields { lock, mode, permits } = Fields::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Claim { lock, mode, permits })
    }
}

/// Asks for a set of locks. The fields are those of `AcquireRequest`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AcquireSetRequest {
    #[cfg_attr(feature = "openapi", schema(min_items = 1, max_items = 64, value_type = Vec<crate::schema::LockOrClaim>))]
    pub locks: Vec<Claim>,
    #[cfg_attr(feature = "openapi", schema(value_type = crate::schema::Name))]
    pub owner_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 100, maximum = 86_400_000))]
    pub ttl_ms: Option<u64>,
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(maximum = 50_000))]
    pub wait_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::LeaseId>))]
    pub session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Name>))]
    pub request_id: Option<String>,
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(maximum = 86_400_000))]
    pub reclaim_ms: u64,
    #[serde(default)]
    pub reclaim: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<crate::schema::Ticket>))]
    pub ticket: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub metadata: Option<Metadata>,
}

/// All of them are yours. Keep them alive with `/v1/sessions/{lease_id}/keepalive`, give them back with `DELETE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SetGrant {
    /// In their canonical spelling, in the order asked.
    pub locks: Vec<Claim>,
    pub owner_id: String,
    pub lease_id: String,
    pub fencing_token: u64,
    pub ttl_ms: u64,
    pub lease_expiry_ms: u64,
    pub expires_in_ms: u64,
    pub expires_at: String,
    pub acquired_at: String,
    pub waited_ms: u64,
    pub replayed: bool,
    pub epoch: u64,
}
