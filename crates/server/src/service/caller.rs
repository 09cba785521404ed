//! The caller of a request: the first argument of every operation.

use std::net::SocketAddr;
use std::sync::Arc;

use leasehold_core::Principal;

use crate::telemetry::metrics::Stopwatch;

/// On whose behalf an operation is carried out, and how it came.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Anonymous as long as there is no authentication.
    pub(crate) principal: Principal,
    pub(crate) peer: SocketAddr,
    pub(crate) transport: Transport,
    /// The id under which the request is logged; that of the whole stream for its commands.
    pub(crate) request_id: Arc<str>,
    /// When the request began to come in.
    pub(crate) since: Stopwatch,
}

impl Caller {
    /// A caller without a credential.
    pub(crate) fn anonymous(
        peer: SocketAddr,
        transport: Transport,
        request_id: Arc<str>,
        since: Stopwatch,
    ) -> Caller {
        Caller { principal: Principal::ANONYMOUS, peer, transport, request_id, since }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http,
    Grpc,
}

impl Transport {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Transport::Http => "http",
            Transport::Grpc => "grpc",
        }
    }
}
