//! The requests of the HTTP interface, one function for each.
//!
//! No lease is kept alive here: these are for tools that take a lock in one process and release it in another. A
//! request is repeated only if it certainly was not carried out, or only reads; for the client's patience at most. Programs use [`Client::lock`] and [`Client::session`].

use bytes::Bytes;
use hyper::Method;
use leasehold_api::{
    AcceptRequest, Accepted, AcquireRequest, AcquireSetRequest, BreakRequest, BreakSessionRequest,
    Broken, CheckRequest, Checked, Closed, Cluster, Cursor, DeleteFenceRequest, DeletedFence,
    EventPage, Grant, Graph, Health, KeepAliveRequest, KeptAlive, Lock, LockPage, OpenRequest,
    Opened, Register, RegisterPage, ReleaseRequest, Released, Removed, RenewRequest, Renewed,
    Session, SessionPage, SetGrant, TestRequest, Tested, TokenView, UnlockRequest, Unlocked,
    Version,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use crate::address::{path_part, query_value};
use crate::client::Client;
use crate::download::Download;
use crate::driver::Order;
use crate::error::{Error, Result};
use crate::http::{Answered, Ask};

/// See [`Client::api`].
#[derive(Clone, Copy, Debug)]
pub struct Api<'a> {
    client: &'a Client,
}

/// A filter of a list of locks.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    pub prefix: Option<String>,
    /// `held`, `recovering` or `reclaim_window`.
    pub state: Option<String>,
    pub owner_id: Option<String>,
    /// The session's id, or its number.
    pub session_id: Option<String>,
    pub page_size: Option<u64>,
    pub page_token: Option<String>,
}

impl<'a> Api<'a> {
    pub(crate) fn new(client: &'a Client) -> Api<'a> {
        Api { client }
    }

    /// Takes one lock. The grant is not kept alive: see [`Api::renew`].
    pub async fn acquire(&self, lock: &str, request: &AcquireRequest) -> Result<Grant> {
        self.of_lock(lock, "acquire", request).await
    }

    /// Moves the deadline of a grant to its full ttl from now.
    pub async fn renew(&self, lock: &str, request: &RenewRequest) -> Result<Renewed> {
        self.of_lock(lock, "renew", request).await
    }

    /// Gives a grant back. A release whose answer was lost can be repeated: it is answered as before, with `replayed`.
    pub async fn release(&self, lock: &str, request: &ReleaseRequest) -> Result<Released> {
        self.of_lock(lock, "release", request).await
    }

    /// Ends an owner's hold on bytes of a file, `inode:N` or a range of it, under a session or a lease.
    pub async fn unlock(&self, lock: &str, request: &UnlockRequest) -> Result<Unlocked> {
        self.of_lock(lock, "unlock", request).await
    }

    /// Says whether a lock could be acquired now, and who is in the way if not.
    pub async fn test(&self, lock: &str, request: &TestRequest) -> Result<Tested> {
        self.of_lock(lock, "test", request).await
    }

    /// Says whether a fencing token is a current holder's, and why not.
    pub async fn check(&self, lock: &str, request: &CheckRequest) -> Result<Checked> {
        self.of_lock(lock, "check", request).await
    }

    /// Ends what is held, for operators.
    pub async fn break_lock(&self, lock: &str, request: &BreakRequest) -> Result<Broken> {
        self.of_lock(lock, "break", request).await
    }

    /// One lock: its state, its holders, its waiters.
    pub async fn get(&self, lock: &str) -> Result<Lock> {
        self.read(Ask::get(self.path(&format!("/v1/locks/{}", path_part(lock))))).await
    }

    /// The grant that carries a fencing token, held or ended, while anything of it is remembered.
    pub async fn get_token(&self, fencing_token: u64) -> Result<TokenView> {
        self.read(Ask::get(self.path(&format!("/v1/tokens/{fencing_token}")))).await
    }

    /// A page of the locks that are held.
    pub async fn list(&self, query: &ListQuery) -> Result<LockPage> {
        let page_size = query.page_size.map(|size| size.to_string());
        let path = self.with_params(
            "/v1/locks",
            &[
                ("prefix", query.prefix.as_deref()),
                ("state", query.state.as_deref()),
                ("owner_id", query.owner_id.as_deref()),
                ("session_id", query.session_id.as_deref()),
                ("page_size", page_size.as_deref()),
                ("page_token", query.page_token.as_deref()),
            ],
        );
        self.read(Ask::get(path)).await
    }

    /// Takes several locks, all or nothing, under one lease.
    pub async fn acquire_set(&self, request: &AcquireSetRequest) -> Result<SetGrant> {
        self.read(Ask::post(self.path("/v1/sets/acquire"), request)).await
    }

    /// Opens a session.
    pub async fn open_session(&self, request: &OpenRequest) -> Result<Opened> {
        self.read(Ask::post(self.path("/v1/sessions"), request)).await
    }

    /// Also for the lease of a lock or a set.
    pub async fn keep_alive(&self, id: &str, request: &KeepAliveRequest) -> Result<KeptAlive> {
        let path = format!("/v1/sessions/{}/keepalive", path_part(id));
        self.read(Ask::post(self.path(&path), request)).await
    }

    /// Also for the lease of a lock or a set. Can be repeated, like a release.
    pub async fn close_session(&self, id: &str) -> Result<Closed> {
        self.read(Ask::delete(self.path(&format!("/v1/sessions/{}", path_part(id))))).await
    }

    /// Ends a session by its number, as lists show it; for operators.
    pub async fn break_session(
        &self,
        number: u64,
        request: &BreakSessionRequest,
    ) -> Result<Closed> {
        self.read(Ask::post(self.path(&format!("/v1/sessions/{number}/break")), request)).await
    }

    /// One session.
    pub async fn get_session(&self, id: &str) -> Result<Session> {
        self.read(Ask::get(self.path(&format!("/v1/sessions/{}", path_part(id))))).await
    }

    /// A page of the sessions that are open.
    pub async fn list_sessions(
        &self,
        page_size: Option<u64>,
        page_token: Option<&str>,
    ) -> Result<SessionPage> {
        let page_size = page_size.map(|size| size.to_string());
        let params = [("page_size", page_size.as_deref()), ("page_token", page_token)];
        self.read(Ask::get(self.with_params("/v1/sessions", &params))).await
    }

    /// Shows a token to a register; a stale one is refused with `stale_fence`, one that was never issued with
    /// `invalid_request`.
    pub async fn accept_fence(&self, name: &str, token: u64) -> Result<Accepted> {
        let path = format!("/v1/fences/{}/accept", path_part(name));
        self.read(Ask::post(self.path(&path), &AcceptRequest { fencing_token: token })).await
    }

    /// The highest token that a register has seen.
    pub async fn get_fence(&self, name: &str) -> Result<Register> {
        self.read(Ask::get(self.path(&format!("/v1/fences/{}", path_part(name))))).await
    }

    /// A page of the fence registers, by name.
    pub async fn list_fences(
        &self,
        page_size: Option<u64>,
        page_token: Option<&str>,
    ) -> Result<RegisterPage> {
        let page_size = page_size.map(|size| size.to_string());
        let params = [("page_size", page_size.as_deref()), ("page_token", page_token)];
        self.read(Ask::get(self.with_params("/v1/fences", &params))).await
    }

    /// Removes a fence register: what it has seen is forgotten.
    pub async fn delete_fence(
        &self,
        name: &str,
        request: &DeleteFenceRequest,
    ) -> Result<DeletedFence> {
        let path = self.path(&format!("/v1/fences/{}", path_part(name)));
        self.read(Ask { method: Method::DELETE, ..Ask::post(path, request) }).await
    }

    /// Drops every lock and every waiter of a file that is gone.
    pub async fn remove_inode(&self, inode: u64) -> Result<Removed> {
        self.read(Ask::delete(self.path(&format!("/v1/inodes/{inode}")))).await
    }

    /// Events after a cursor; waits up to `wait_ms` if there are none yet.
    pub async fn events(&self, prefix: &str, after: Cursor, wait_ms: u64) -> Result<EventPage> {
        let (after, wait_ms) = (after.to_string(), wait_ms.to_string());
        let params = [
            ("prefix", Some(prefix)),
            ("after", Some(after.as_str())),
            ("wait_ms", Some(wait_ms.as_str())),
        ];
        self.read(Ask::get(self.with_params("/v1/events", &params))).await
    }

    /// The wait-for graph.
    pub async fn graph(&self) -> Result<Graph> {
        self.read(Ask::get(self.path("/v1/graph"))).await
    }

    /// The same as a drawing for Graphviz.
    pub async fn graph_dot(&self) -> Result<String> {
        let answered =
            self.ask(Ask::get(self.with_params("/v1/graph", &[("format", Some("dot"))]))).await?;
        text(&answered)
    }

    /// The server that answers, and who leads which group of namespaces.
    pub async fn cluster(&self) -> Result<Cluster> {
        self.read(Ask::get("/v1/cluster".into())).await
    }

    /// Version of the server, and its interfaces.
    pub async fn version(&self) -> Result<Version> {
        self.read(Ask::get("/v1/version".into())).await
    }

    /// Health of the server and of its parts.
    pub async fn ready(&self) -> Result<Health> {
        self.read(Ask::get("/readyz?verbose=1".into())).await
    }

    /// Metrics of the server, as text.
    pub async fn metrics(&self) -> Result<String> {
        text(&self.ask(Ask::get("/metrics".into())).await?)
    }

    /// A backup of the server's SQLite store, to be written to a file piece by piece.
    pub async fn backup(&self) -> Result<Download> {
        let (done, started) = oneshot::channel();
        self.client.order(Order::Download { ask: Ask::get("/v1/backup".into()), done })?;
        started.await.map_err(|_| Error::unanswered("the client is closed"))?
    }

    /// Any request of the HTTP interface: a path with its query, and the body of a 2xx answer as the server said it.
    pub async fn raw(&self, method: Method, path: &str, body: Option<&[u8]>) -> Result<Bytes> {
        let body = body.map_or_else(Bytes::new, Bytes::copy_from_slice);
        let answered = self.ask(Ask { method, path: path.into(), body, traceparent: None }).await?;
        if answered.is_success() { Ok(answered.body) } else { Err(answered.refusal()) }
    }

    async fn of_lock<T: DeserializeOwned>(
        &self,
        lock: &str,
        verb: &str,
        request: &impl Serialize,
    ) -> Result<T> {
        let path = self.path(&format!("/v1/locks/{}/{verb}", path_part(lock)));
        self.read(Ask::post(path, request)).await
    }

    async fn read<T: DeserializeOwned>(&self, ask: Ask) -> Result<T> {
        self.ask(ask).await?.read()
    }

    async fn ask(&self, ask: Ask) -> Result<Answered> {
        let (done, answered) = oneshot::channel();
        self.client.order(Order::Http { ask, done })?;
        // The client was closed while the request was on its way.
        answered.await.map_err(|_| Error::unanswered("the client is closed"))?
    }

    fn path(&self, path: &str) -> String {
        format!("{path}{}", self.client.shared.query)
    }

    fn with_params(&self, path: &str, params: &[(&str, Option<&str>)]) -> String {
        let given = params.iter().filter_map(|(name, value)| value.map(|value| (name, value)));
        given.fold(self.path(path), |path, (name, value)| {
            format!("{path}&{name}={}", query_value(value))
        })
    }
}

fn text(answered: &Answered) -> Result<String> {
    if !answered.is_success() {
        return Err(answered.refusal());
    }
    Ok(String::from_utf8_lossy(&answered.body).into_owned())
}
