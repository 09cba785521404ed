//! The lines of a vector, as they are written. The order of fields is that of the file.

use std::collections::BTreeMap;

use leasehold_api::{Gone, RequestOutcome};
use serde::Serialize;

/// The first line of a vector.
#[derive(Debug, Serialize)]
pub(super) struct Header {
    pub(super) vector: String,
    pub(super) version: u32,
    pub(super) jitter: &'static str,
    pub(super) settings: Settings,
    pub(super) servers: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Settings {
    pub(super) patience_ms: u64,
    pub(super) answer_timeout_ms: u64,
    pub(super) connect_timeout_ms: u64,
    pub(super) backoff_first_ms: u64,
    pub(super) backoff_max_ms: u64,
    pub(super) heartbeat: &'static str,
}

/// Every other line: one input, and everything that came of it.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    pub(super) at: u64,
    #[serde(flatten)]
    pub(super) input: Input,
    /// What the call returned, if it says whether there was something to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) returns: Option<bool>,
    pub(super) out: Vec<Output>,
    /// The leases as they stand from here on, where that has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) standing: Option<BTreeMap<String, Standing>>,
    pub(super) next: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Input {
    Do(Deed),
    Hear(Heard),
    Fail { call: u64, how: &'static str },
    Up { link: u64 },
    Down { link: u64 },
    Wake(bool),
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Deed {
    Start(bool),
    Acquire {
        key: String,
        ttl_ms: u64,
        /// Nothing is for ever.
        wait_ms: Option<u64>,
        kept: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        session: Option<String>,
    },
    Release {
        key: String,
    },
    Abandon {
        key: String,
    },
    Renew {
        key: String,
    },
    StartHeartbeat {
        key: String,
    },
    Suspect(bool),
    SuspectIfIdle(bool),
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Heard {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<u64>,
    /// Said unasked: the lease of this key is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    #[serde(flatten)]
    pub(super) answer: Said,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Said {
    Granted { ttl_ms: u64, left_ms: u64 },
    Renewed { ttl_ms: u64, left_ms: u64 },
    Released(bool),
    Refused(Refusal),
    Lost(Refusal),
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Refusal {
    pub(super) code: String,
    pub(super) outcome: RequestOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<Gone>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recommended_retry_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ticket: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) leader: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Output {
    Connect {
        link: u64,
        address: String,
    },
    Send {
        call: u64,
        key: String,
        #[serde(flatten)]
        request: Request,
    },
    Cancel {
        call: u64,
        key: String,
    },
    Tell {
        key: String,
        news: &'static str,
    },
    End {
        key: String,
        how: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        by: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        outcome: Option<RequestOutcome>,
    },
}

#[derive(Debug, Serialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub(super) enum Request {
    Acquire {
        wait_ms: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        ticket: Option<String>,
    },
    Renew,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Standing {
    pub(super) since: u64,
    pub(super) jeopardy_at: u64,
    pub(super) lapses_at: u64,
}

pub(super) fn line(of: &impl Serialize) -> String {
    serde_json::to_string(of).expect("all keys are text") + "\n"
}
