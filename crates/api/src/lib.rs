//! The wire contract: the JSON messages of the HTTP interface, and the one public list of problem codes.
//!
//! With the feature `grpc` also the messages and services of `leasehold.v1`, made from the .proto file: see [`grpc`].
//!
//! Plain data for both sides of the wire. There is no rule in here, and nothing of the server's inside: programs of
//! strangers compile this crate.
#![forbid(unsafe_code)]

mod code;
mod problem;
mod duration;

mod auth;
mod locks;
mod sets;
mod sessions;
mod fences;
mod inodes;
mod cursor;
mod watch;
mod graph;
mod history;
mod overview;
mod simple;
mod service;

#[cfg(feature = "grpc")]
pub mod grpc;
#[cfg(feature = "openapi")]
pub mod schema;

/// The port that a server listens on unless it is told otherwise.
pub const PORT: u16 = 8080;
/// The server that a command on the same machine asks.
pub const LOCAL_SERVER: &str = "http://127.0.0.1:8080";

pub use auth::{
    CreateTokenRequest, CreatedToken, DeletedRole, ExchangeRequest, LoggedOut, LoginCode,
    LoginRequest, RevokeCertificateRequest, RevokedCertificate, RevokedToken, RoleInfo, RoleList,
    RotateTokenRequest, RotatedKey, TestRightsRequest, TestedRights, TokenInfo, TokenList, WhoAmI,
};
pub use code::{Code, GrpcCode, RequestOutcome};
pub use cursor::{Cursor, CursorError};
pub use duration::{DurationError, format_duration, parse_duration};
pub use fences::{
    AcceptRequest, Accepted, DeleteFenceRequest, DeletedFence, Register, RegisterPage,
};
pub use graph::{Edge, EdgeKind, Graph, LockNode, Node, NodeKind, Place, Size, WaitEdge};
pub use history::{CycleStep, History, PastDeadlock, PastHolder};
pub use inodes::Removed;
pub use locks::{
    AcquireRequest, BreakRequest, Broken, CheckRequest, Checked, Gone, Grant, Holder, Lock,
    LockPage, LockState, LockSummary, Metadata, Mode, ReleaseRequest, Released, RenewRequest,
    Renewed, TestRequest, Tested, TokenState, TokenView, UnlockRequest, Unlocked, Waiter,
};
pub use overview::{Branch, Limits, NamespaceCount, Overview, Series, Totals, TreePage};
pub use problem::{FieldError, Problem};
pub use service::{Check, Cluster, Grace, Group, Health, LeaderView, Role, ServerView, Version};
pub use sessions::{
    BreakSessionRequest, Closed, KeepAliveRequest, KeptAlive, OnDisconnect, OpenRequest, Opened,
    Session, SessionPage,
};
pub use sets::{AcquireSetRequest, Claim, SetGrant};
pub use simple::{SimpleHeld, SimpleRefused, SimpleReleased, SimpleState};
pub use watch::{Event, EventPage, News};
