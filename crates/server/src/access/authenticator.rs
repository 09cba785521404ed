//! The credentials and rights that hold now, and how a request is let in.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::http::Request;
use leasehold_access::{
    AccessFile, Need, Object, Operation, Refused, Rights, Snapshot, Token, UnixSeconds,
};
use leasehold_api::Code;
use leasehold_core::Timestamp;
use leasehold_engine::Clock;
use leasehold_store::{AccessChange, AccessStore, Document, DocumentId, with_cause};
use tokio::sync::{Mutex, Notify, watch};

use super::changes::Changes;
use super::credential::{self, Credential, unauthenticated};
use super::failures::Failures;
use super::file::FileError;
use super::operations;
use super::sources::{Sources, unread};
use crate::audit::{Audit, Line};
use crate::config::AuthConfig;
use crate::convert::wall;
use crate::service::caller::Caller;
use crate::service::problems::Failure;

/// How often the store is asked for its version: revocations are known everywhere within a second.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// An answer of the store that takes longer is none.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// When the store has been silent for so long, a credential that is not known may be a new one.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// How often a change is made anew because another server was faster.
const CHANGE_TRIES: usize = 5;

/// Documents to put, by their id and body, and to remove.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) puts: Vec<(String, String)>,
    pub(crate) removes: Vec<String>,
}

impl Change {
    fn documents(self) -> Result<AccessChange, Failure> {
        let put = |(id, body): (String, String)| {
            DocumentId::new(&id).and_then(|id| Document::new(id, &body))
        };
        let puts: Option<Vec<_>> = self.puts.into_iter().map(put).collect();
        let removes: Option<Vec<_>> = self.removes.iter().map(|id| DocumentId::new(id)).collect();
        let change = puts.zip(removes).and_then(|(puts, removes)| AccessChange::new(puts, removes));
        change.ok_or_else(|| Failure::new(Code::TooLarge, "a role or token is larger than 16 KiB"))
    }
}

/// Knows who may do what, as of now.
#[derive(Debug)]
pub(crate) struct Authenticator {
    enabled: bool,
    snapshot: ArcSwap<Snapshot>,
    /// Rises with everything that may end a right: for streams, which look at it with each message.
    generation: watch::Sender<u64>,
    /// When the store last answered, on the server's axis in milliseconds; 0: never.
    heard: AtomicU64,
    failures: Failures,
    sources: Mutex<Sources>,
    has_store: bool,
    reload: Notify,
    nothing: Arc<Rights>,
    audit: Audit,
}

impl Authenticator {
    /// Reads the access file, if there is one.
    pub(crate) fn new(
        config: &AuthConfig,
        store: Option<Arc<dyn AccessStore>>,
        audit: Audit,
    ) -> Result<Authenticator, FileError> {
        let path = config.access_file.clone().filter(|_| config.enabled);
        let has_store = store.is_some();
        let mut sources = Sources::new(path, store)?;
        Ok(Authenticator {
            enabled: config.enabled,
            snapshot: ArcSwap::from_pointee(sources.snapshot()),
            generation: watch::Sender::new(0),
            heard: AtomicU64::new(0),
            failures: Failures::default(),
            sources: Mutex::new(sources),
            has_store,
            reload: Notify::new(),
            nothing: Arc::new(Rights::none()),
            audit,
        })
    }

    /// Whether a credential is needed at all.
    pub(crate) fn is_on(&self) -> bool {
        self.enabled
    }

    /// What is known now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Every change that may end a right of the caller; `None` if there can be none.
    pub(crate) fn changes_for(&self, caller: &Caller) -> Option<Changes> {
        caller.rights.as_ref().map(|_| Changes::new(self.generation.subscribe()))
    }

    // Letting in.

    /// Gives a request its caller, or says why it is not let in: without a good credential, or because what is asked is
    /// about the server and not allowed. What is asked of a namespace is decided where its name has been decoded.
    pub(crate) fn enter<B>(
        &self,
        now: Timestamp,
        request: &Request<B>,
        is_grpc: bool,
        caller: Caller,
    ) -> Result<Caller, Failure> {
        if !self.enabled {
            return Ok(caller);
        }
        let shown = credential::shown(request.headers(), request.uri())?;
        let operation = operations::of(is_grpc, request.method(), request.uri());
        let mut caller = Caller { rights: Some(self.nothing.clone()), ..caller };
        match shown {
            Some(shown) => self.authenticate(now, shown, &mut caller)?,
            None if operation == Ok(Operation::Public) => {}
            None => {
                let line =
                    || Line::new("auth.failure", "failed").by(&caller).with("reason", "none_shown");
                caller.audit.note_of(caller.peer, line);
                return Err(unauthenticated());
            }
        }
        let operation = operation.map_err(Failure::from)?;
        if let Need::Server(_) | Need::Principal = operation.needs() {
            caller.may(operation, Object::Server)?;
        }
        Ok(caller)
    }

    fn authenticate(
        &self,
        now: Timestamp,
        shown: &str,
        caller: &mut Caller,
    ) -> Result<(), Failure> {
        let address = caller.peer.ip();
        let snapshot = self.snapshot.load();
        match snapshot.authenticate(shown, Some(address), seconds(now)) {
            Ok(found) => {
                let id = found.record.id;
                caller.principal = found.record.principal.clone();
                caller.rights = Some(found.rights.clone());
                caller.credential = Credential::Token(found);
                caller.audit.used(caller, id);
                Ok(())
            }
            Err(why) => {
                caller.audit.note_of(caller.peer, || refusal(caller, shown, why));
                Err(self.refused(now, caller.peer, why))
            }
        }
    }

    fn refused(&self, now: Timestamp, peer: SocketAddr, why: Refused) -> Failure {
        if matches!(why, Refused::Unknown | Refused::Parent) && self.is_silent(now) {
            let said = "the store of credentials cannot be read, and this one is not known yet";
            let failure = Failure::new(Code::StoreUnavailable, said);
            return failure.retried_after(Duration::from_secs(1));
        }
        tracing::debug!(peer = %peer, reason = why.as_str(), "authentication failed");
        match self.failures.note(now, peer.ip()) {
            None => unauthenticated(),
            Some(left) => {
                let said = "too many failed authentications from your address";
                Failure::new(Code::RateLimited, said).retried_after(left)
            }
        }
    }

    fn is_silent(&self, now: Timestamp) -> bool {
        let heard = Timestamp::from_millis(self.heard.load(Relaxed));
        self.has_store && now.since(heard) > SILENCE_MAX
    }

    /// Looks at the credential of a stream that goes on: what it may do now, or that it may nothing any more.
    pub(crate) fn again(&self, now: Timestamp, caller: &mut Caller) -> Result<(), Failure> {
        match &caller.credential {
            Credential::None => Ok(()),
            Credential::Token(token) => {
                let snapshot = self.snapshot.load();
                let found = snapshot.credential_of(token.record.id).ok_or_else(unauthenticated)?;
                let is_same = found.record.hash == token.record.hash
                    && found.record.principal == token.record.principal;
                let is_good = found.check(Some(caller.peer.ip()), seconds(now)).is_ok();
                if !is_same || !is_good {
                    return Err(unauthenticated());
                }
                caller.rights = Some(found.rights.clone());
                caller.credential = Credential::Token(found.clone());
                caller.resolve_again();
                Ok(())
            }
        }
    }

    // Keeping up.

    /// Asks the store for the first time, and gives it its first token if it has none.
    pub(crate) async fn load(&self, clock: &dyn Clock, bootstrap: Option<&Path>) {
        let mut sources = self.sources.lock().await;
        self.ask(clock, &mut sources).await;
        let Some(path) = bootstrap else { return };
        let token = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let parsed = token.and_then(|text| {
            text.trim().parse::<Token>().map_err(|_| "what is in it is not a token".to_owned())
        });
        match parsed {
            Err(error) => {
                tracing::error!(file = %path.display(), error, "the bootstrap token cannot be used");
            }
            Ok(token) => match sources.bootstrap(&token, seconds(clock.now())).await {
                Ok(true) => tracing::warn!(token = token.id().as_str(), "bootstrap token taken"),
                Ok(false) => tracing::info!("bootstrap token ignored: there are credentials"),
                Err(error) => tracing::error!(error = with_cause(&error), "bootstrap failed"),
            },
        }
        self.put(&mut sources);
    }

    /// Keeps up with the store and the file until the server stops.
    pub(crate) async fn keep(
        self: Arc<Authenticator>,
        clock: Arc<dyn Clock>,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut looked = clock.now();
        let mut before = seconds(looked);
        loop {
            let is_asked = tokio::select! {
                _ = stop.wait_for(|stopped| *stopped) => return,
                () = self.reload.notified() => true,
                () = tokio::time::sleep(ASK_EVERY) => false,
            };
            let now = clock.now();
            let mut sources = self.sources.lock().await;
            self.ask(&*clock, &mut sources).await;
            if is_asked || now.since(looked) >= LOOK_EVERY {
                looked = now;
                if is_asked || sources.is_file_changed() {
                    self.read_file(&mut sources);
                }
            }
            let after = seconds(now);
            if after != before && is_any_over(&self.snapshot.load(), before, after) {
                self.generation.send_modify(|generation| *generation += 1);
            }
            before = after;
        }
    }

    /// Reads everything anew, soon: somebody has sent a SIGHUP.
    pub(crate) fn reload(&self) {
        self.reload.notify_one();
    }

    async fn ask(&self, clock: &dyn Clock, sources: &mut Sources) {
        if !self.has_store {
            return;
        }
        match tokio::time::timeout(ASK_TIMEOUT, sources.ask_store()).await {
            Ok(Ok(is_new)) => {
                self.heard.store(clock.now().as_millis(), Relaxed);
                if is_new {
                    self.put(sources);
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(error = with_cause(&error), "access documents cannot be read");
            }
            Err(_) => tracing::debug!("access documents did not come in time"),
        }
    }

    fn read_file(&self, sources: &mut Sources) {
        match sources.read_file() {
            Ok(()) => {
                tracing::info!("access file read");
                self.audit.tell(|| Line::new("access.reload", "ok"));
                self.put(sources);
            }
            Err(error) => {
                let error = error.to_string();
                self.audit.tell(|| Line::new("access.reload", "failed").with("error", &*error));
                tracing::error!(error, "access file refused: the last good one stays in force");
            }
        }
    }

    /// Changes what is stored: `make` says how, from what is known by then, and is asked again if another server was faster.
    /// What was changed is in force here when this returns, and elsewhere within a second.
    pub(crate) async fn change(
        &self,
        clock: &dyn Clock,
        force: bool,
        make: impl Fn(&Snapshot, &AccessFile) -> Result<Change, Failure> + Send + Sync,
    ) -> Result<(), Failure> {
        let mut sources = self.sources.lock().await;
        for _ in 0..CHANGE_TRIES {
            if sources.ask_store().await.map_err(|error| unread(&error))? {
                self.put(&mut sources);
            }
            let change = make(&self.snapshot.load(), sources.file())?.documents()?;
            let now = seconds(clock.now());
            if sources.change(change, force, now).await?.is_some() {
                sources.ask_store().await.map_err(|error| unread(&error))?;
                self.put(&mut sources);
                return Ok(());
            }
        }
        let said = "others are changing roles and tokens at the same time";
        Err(Failure::new(Code::Overloaded, said).retried_after(Duration::from_secs(1)))
    }

    fn put(&self, sources: &mut Sources) {
        let snapshot = sources.snapshot();
        for fault in snapshot.faults() {
            tracing::error!(fault = %fault, "not taken: it allows nothing");
        }
        for credential in snapshot.credentials() {
            let record = &credential.record;
            let is_ours = record.created_by.is_none() && record.created.is_some();
            if is_ours && self.snapshot.load().credential_of(record.id).is_none() {
                self.audit.tell(|| {
                    let line = Line::new("token.bootstrap", "ok").with("token", record.id.as_str());
                    line.with("of", record.principal.as_str())
                });
            }
        }
        self.snapshot.store(Arc::new(snapshot));
        self.generation.send_modify(|generation| *generation += 1);
    }
}

/// The true reason, which nobody but the audit log is told.
fn refusal(caller: &Caller, shown: &str, why: Refused) -> Line {
    let id = shown.parse::<Token>().ok().map(|token| token.id().to_string());
    let line = Line::new("auth.failure", "failed").by(caller).with("reason", why.as_str());
    // Finds out who shows a token that was mistyped, without keeping it.
    let hashed = if id.is_none() { caller.audit.hashed(shown) } else { None };
    line.with_some("shown_id", id).with_some("shown", hashed)
}

/// The wall clock, which the ends of tokens are compared with.
pub(crate) fn seconds(now: Timestamp) -> UnixSeconds {
    wall::millis(now) / 1000
}

/// Whether a credential has come to its end between two moments.
fn is_any_over(snapshot: &Snapshot, before: UnixSeconds, after: UnixSeconds) -> bool {
    let is_over = |end: UnixSeconds| (before + 1..=after).contains(&end);
    snapshot.credentials().any(|credential| credential.record.expires.is_some_and(is_over))
}
