//! The credentials and rights that hold now, and how a request is let in.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use axum::http::{HeaderValue, Request};
use leasehold_access::{
    AccessFile, CertificateMapping, Certified, Need, Object, Operation, Refused, Rights, Snapshot,
    Token, TokenId, UnixSeconds, principal,
};
use leasehold_api::Code;
use leasehold_core::{Principal, Timestamp, planted};
use leasehold_engine::{Account, Clock};
use leasehold_store::{AccessChange, AccessStore, Document, DocumentId, with_cause};
use prometheus_client::metrics::counter::Counter;
use rustls::pki_types::CertificateDer;
use tokio::sync::{Mutex, Notify, watch};

use super::certificate::{Ends, Identity, PeerCertificate};
use super::changes::Changes;
use super::cookie::{self, Session};
use super::credential::{self, Credential, Shown, unauthenticated};
use super::failures::Failures;
use super::file::FileError;
use super::keys::{CLUSTER_KEY, ClusterKeys, Extras, Login, PREVIOUS_KEPT};
use super::operations;
use super::sources::{Sources, unread};
use super::vouched::{self, Asking, NotVouched, Seen, Vouched};
use crate::audit::{Audit, Line};
use crate::config::AuthConfig;
use crate::convert::wall;
use crate::net::tls::Tls;
use crate::quota::QuotaConfig;
use crate::service::caller::Caller;
use crate::service::problems::Failure;
use crate::telemetry::metrics::Metrics;

/// The interval at which the store is asked for its version: revocations are known everywhere within a second.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// The interval at which the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// An answer of the store that takes longer is none.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// When the store has been silent for so long, a credential that is not known may be a new one.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The number of times a change is made anew because another server was faster.
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
    mappings: Vec<CertificateMapping>,
    /// When the certificates of open connections end.
    ends: Arc<Ends>,
    nothing: Arc<Rights>,
    audit: Audit,
    /// The documents' contents beside rights.
    extras: ArcSwap<Extras>,
    seen: Seen,
    /// Whether servers know each other by their certificates.
    knows_servers: bool,
    /// Headers of servers that were not believed.
    rejected: Counter,
    quotas: QuotaConfig,
}

impl Authenticator {
    /// Reads the access file, if there is one.
    pub(crate) fn new(
        config: &AuthConfig,
        quotas: QuotaConfig,
        store: Option<Arc<dyn AccessStore>>,
        audit: Audit,
        (knows_servers, rejected): (bool, Counter),
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
            mappings: config.certificates(),
            ends: Arc::default(),
            nothing: Arc::new(Rights::none()),
            audit,
            extras: ArcSwap::default(),
            seen: Seen::default(),
            knows_servers,
            rejected,
            quotas,
        })
    }

    /// Whether a credential is needed at all.
    pub(crate) fn is_on(&self) -> bool {
        self.enabled
    }

    /// The state that is known now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Every change that may end a right of the caller; `None` if there can be none.
    pub(crate) fn changes_for(&self, caller: &Caller) -> Option<Changes> {
        let can_end = caller.rights.is_some() || caller.shown.can_end();
        can_end.then(|| Changes::new(self.generation.subscribe()))
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
        let is_vouched = self.enabled && vouched::is_there(request.headers());
        if is_vouched && !self.is_from_server(&caller) {
            return Err(self.not_believed(&caller, NotVouched::NotAServer));
        }
        let checked = caller.shown.check(&self.snapshot.load(), seconds(now));
        checked.map_err(|why| self.certificate_refused(now, &caller, why))?;
        if !self.enabled {
            return Ok(caller);
        }
        let operation = operations::of(is_grpc, request.method(), request.uri());
        let mut caller = match is_vouched {
            true => self.enter_vouched(now, request, caller)?,
            false => self.enter_shown(now, request, (is_grpc, operation), caller)?,
        };
        let operation = operation.map_err(Failure::from)?;
        if let Need::Server(_) | Need::Principal = operation.needs() {
            caller.may(operation, Object::Server)?;
        }
        self.settle_account(&mut caller);
        Ok(caller)
    }

    /// Settles whose calls the engine takes those of a caller for, by the rights that it has now.
    fn settle_account(&self, caller: &mut Caller) {
        if let Some(rights) = caller.rights.as_ref().filter(|_| !caller.principal.is_anonymous()) {
            caller.account = Account::of(&caller.principal, self.quotas.of(rights.quota()));
        }
    }

    /// By what the request shows of itself.
    fn enter_shown<B>(
        &self,
        now: Timestamp,
        request: &Request<B>,
        (is_grpc, operation): (bool, Result<Operation, operations::Missing>),
        caller: Caller,
    ) -> Result<Caller, Failure> {
        let shown = credential::shown(request.headers(), request.uri())?;
        let cookie = cookie::shown(request.headers()).filter(|_| !is_grpc);
        if shown.is_some() && cookie.is_some() {
            let said = "there is a token and a cookie: send one of them";
            return Err(Failure::new(Code::InvalidRequest, said));
        }
        let mut caller = Caller { rights: Some(self.nothing.clone()), ..caller };
        match shown {
            Some(shown) => self.authenticate(now, shown, &mut caller)?,
            None if caller.shown.certificate().is_some() => self.certified(now, &mut caller)?,
            None if operation == Ok(Operation::Public) => {}
            None if let Shown::User(uid) = caller.shown => self.local(uid, &mut caller),
            None if cookie.is_some() => {
                let value = cookie.map_or("", |cookie| cookie.value);
                self.authenticate_cookie(now, value, request, &mut caller)?;
            }
            None => {
                let line =
                    || Line::new("auth.failure", "failed").by(&caller).with("reason", "none_shown");
                caller.audit.note_of(caller.peer, line);
                return Err(unauthenticated());
            }
        }
        Ok(caller)
    }

    pub(crate) fn authenticate(
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

    /// The session of a cookie, in a request of one of the console's own pages.
    fn authenticate_cookie<B>(
        &self,
        now: Timestamp,
        value: &str,
        request: &Request<B>,
        caller: &mut Caller,
    ) -> Result<(), Failure> {
        let refuse = |caller: &Caller, reason: &'static str| {
            let line = || Line::new("auth.failure", "failed").by(caller).with("reason", reason);
            caller.audit.note_of(caller.peer, line);
            unauthenticated()
        };
        if !cookie::is_of_own_page(request) {
            return Err(refuse(caller, "cookie_of_another_page"));
        }
        let extras = self.extras.load();
        let session =
            extras.keys.as_ref().and_then(|keys| Session::parse(value, keys, seconds(now)));
        let session = session.ok_or_else(|| refuse(caller, "cookie"))?;
        let token = session.token().ok_or_else(|| refuse(caller, "cookie"))?;
        self.stand_for(now, token, caller)?;
        if !session.is_of(&caller.principal) {
            return Err(refuse(caller, "cookie"));
        }
        caller.may(Operation::UseConsole, Object::Server)?;
        cookie::check_page(request, &session)?;
        if let Credential::Token(found) = &caller.credential {
            caller.credential = Credential::Console(found.clone(), session);
        }
        Ok(())
    }

    /// Makes a caller the bearer of a token that was shown before: here to the console, or to another server.
    pub(crate) fn stand_for(
        &self,
        now: Timestamp,
        id: TokenId,
        caller: &mut Caller,
    ) -> Result<(), Failure> {
        let snapshot = self.snapshot.load();
        let found = snapshot.credential_of(id).ok_or(Refused::Unknown);
        let good = found.and_then(|found| {
            found.check(Some(caller.peer.ip()), seconds(now)).map(|()| found.clone())
        });
        match good {
            Ok(found) => {
                caller.principal = found.record.principal.clone();
                caller.rights = Some(found.rights.clone());
                caller.credential = Credential::Token(found);
                Ok(())
            }
            Err(why) => {
                caller.audit.note_of(caller.peer, || {
                    let line = Line::new("auth.failure", "failed").by(caller);
                    line.with("reason", why.as_str()).with("shown_id", id.as_str())
                });
                Err(unauthenticated())
            }
        }
    }

    // Among servers.

    /// Whether a connection may be that of another server, as far as servers know each other by certificates.
    fn is_from_server(&self, caller: &Caller) -> bool {
        let certificate = caller.shown.certificate();
        !self.knows_servers || certificate.is_some_and(|shown| shown.is_of_server())
    }

    /// A request that another server has let in: by its word who asks, by our own knowledge what that one may do.
    fn enter_vouched<B>(
        &self,
        now: Timestamp,
        request: &Request<B>,
        caller: Caller,
    ) -> Result<Caller, Failure> {
        let extras = self.extras.load();
        let read = |keys: &ClusterKeys| {
            let of = (request.method(), request.uri());
            let at = Duration::from_millis(wall::millis(now));
            Vouched::of(request.headers(), of, keys, at, &self.seen)
        };
        let keys = extras.keys.as_ref().ok_or(NotVouched::Signature);
        let vouched = keys.and_then(read).map_err(|why| self.not_believed(&caller, why))?;
        let server = caller.shown.certificate().cloned();
        let client = vouched.certificate(&self.ends).map(Arc::new);
        let mut caller = Caller {
            rights: Some(self.nothing.clone()),
            shown: Shown::Through { server, client: client.clone() },
            peer: vouched.peer,
            request_id: vouched.request_id.as_str().into(),
            through: Some(vouched.server.as_str().into()),
            ..caller
        };
        let known = self.vouched_for(now, &vouched, client.as_ref(), &mut caller);
        if planted!("revoked-renews-on-follower", known.is_err()) {
            caller.principal = Principal::new(&vouched.principal).map_err(|_| unauthenticated())?;
            return Ok(caller);
        }
        match known {
            Ok(()) if caller.principal.as_str() == vouched.principal => Ok(caller),
            // The other server has heard of it first.
            Err(_) if vouched.version > extras.version => {
                self.reload.notify_one();
                let said = "this server has not read the newest roles and tokens yet";
                let failure = Failure::new(Code::StoreUnavailable, said);
                Err(failure.retried_after(ASK_EVERY))
            }
            Ok(()) | Err(_) => Err(unauthenticated()),
        }
    }

    fn not_believed(&self, caller: &Caller, why: NotVouched) -> Failure {
        self.rejected.inc();
        caller.audit.note_of(caller.peer, || {
            let line = Line::new("cluster.bad_header", "failed").by(caller);
            line.with("reason", why.as_str())
        });
        let said =
            "leasehold-forwarded is a header between servers, and this one is not to be believed";
        Failure::new(Code::InvalidRequest, said)
    }

    /// Names the caller by the word of another server. What it has shown there has to be good by what is known here.
    fn vouched_for(
        &self,
        now: Timestamp,
        vouched: &Vouched,
        certificate: Option<&Arc<Identity>>,
        caller: &mut Caller,
    ) -> Result<(), Failure> {
        if let Err(why) = caller.shown.check(&self.snapshot.load(), seconds(now)) {
            let line = || Line::new("auth.failure", "failed").by(caller).with("reason", why);
            caller.audit.note_of(caller.peer, line);
            return Err(unauthenticated());
        }
        match (&*vouched.via, &vouched.token, certificate) {
            (_, Some(token), _) => {
                let id = TokenId::parse(token).ok_or_else(unauthenticated)?;
                self.stand_for(now, id, caller)
            }
            ("certificate", None, Some(identity)) => {
                let who = identity.who().map_err(|_| unauthenticated())?;
                self.certified_as(identity, who, caller);
                Ok(())
            }
            ("user", None, _) => {
                let uid = vouched.principal.strip_prefix("uid/").and_then(|uid| uid.parse().ok());
                self.local(uid.ok_or_else(unauthenticated)?, caller);
                Ok(())
            }
            (_, None, _) => Err(unauthenticated()),
        }
    }

    /// The header that tells another server who asks.
    pub(crate) fn vouch<B>(
        &self,
        now: Timestamp,
        server: &str,
        caller: &Caller,
        request: &Request<B>,
    ) -> Result<HeaderValue, Failure> {
        if !self.enabled {
            return Ok(HeaderValue::from_static("1"));
        }
        let extras = self.extras.load();
        let keys = extras.keys.as_ref().ok_or_else(no_key)?;
        let asking = Asking {
            request_id: &caller.request_id,
            principal: &caller.principal,
            via: caller.credential.kind(),
            token: caller.credential.token().map(|token| token.record.id),
            certificate: caller.shown.certificate().map(|shown| &**shown.identity()),
            peer: caller.peer,
            server,
            version: extras.version,
        };
        let now_ms = wall::millis(now);
        Ok(asking.header(keys.signing(now_ms / 1000), now_ms, request.method(), request.uri()))
    }

    /// A new key for all servers; returns until when the one before is good.
    pub(crate) async fn rotate_key(
        &self,
        clock: &dyn Clock,
        now: UnixSeconds,
    ) -> Result<UnixSeconds, Failure> {
        let rotated = |_: &Snapshot, _: &AccessFile| {
            let extras = self.extras.load();
            let keys = extras
                .keys
                .as_ref()
                .map_or_else(|| ClusterKeys::new(now), |keys| keys.rotated(now));
            Ok(Change { puts: vec![(CLUSTER_KEY.into(), keys.body())], removes: Vec::new() })
        };
        self.change(clock, true, rotated).await?;
        Ok(now.saturating_add(PREVIOUS_KEPT))
    }

    // The console.

    /// The header that gives a browser its session.
    pub(crate) fn cookie(
        &self,
        session: &Session,
        now: UnixSeconds,
        is_secure: bool,
    ) -> Result<HeaderValue, Failure> {
        let extras = self.extras.load();
        let keys = extras.keys.as_ref().ok_or_else(no_key)?;
        Ok(session.set(keys.signing(now), is_secure))
    }

    /// The same for one that goes on, if it is time to say so.
    pub(crate) fn cookie_used(
        &self,
        now: Timestamp,
        caller: &Caller,
        is_secure: bool,
    ) -> Option<HeaderValue> {
        let Credential::Console(_, session) = &caller.credential else { return None };
        let used = session.used_now(seconds(now))?;
        self.cookie(&used, seconds(now), is_secure).ok()
    }

    /// A code that a page may log in with.
    pub(crate) fn login(&self, id: TokenId) -> Option<Login> {
        self.extras.load().logins.get(&id).copied()
    }

    /// A code was none, or is over: whoever guesses has to wait, as with tokens.
    pub(crate) fn refuse_code(
        &self,
        now: Timestamp,
        caller: &Caller,
        reason: &'static str,
    ) -> Failure {
        let line = || Line::new("auth.failure", "failed").by(caller).with("reason", reason);
        caller.audit.note_of(caller.peer, line);
        self.failed(now, caller.peer, reason)
    }

    /// Codes that are over.
    pub(crate) fn logins_over(&self, now: UnixSeconds) -> Vec<TokenId> {
        let extras = self.extras.load();
        let over = extras.logins.iter().filter(|(_, login)| now >= login.expires);
        over.map(|(id, _)| *id).collect()
    }

    /// Names the caller by the certificate of its connection.
    fn certified(&self, now: Timestamp, caller: &mut Caller) -> Result<(), Failure> {
        let Some(certificate) = caller.shown.certificate().cloned() else {
            return Err(unauthenticated());
        };
        let who = certificate.who().map_err(|why| self.certificate_refused(now, caller, why))?;
        self.certified_as(certificate.identity(), who, caller);
        Ok(())
    }

    fn certified_as(&self, identity: &Arc<Identity>, who: &Certified, caller: &mut Caller) {
        caller.principal = who.principal.clone();
        caller.rights = Some(identity.rights(&self.snapshot.load(), who));
        caller.credential = Credential::Certificate(identity.clone());
    }

    fn certificate_refused(&self, now: Timestamp, caller: &Caller, why: &'static str) -> Failure {
        let line = || Line::new("auth.failure", "failed").by(caller).with("reason", why);
        caller.audit.note_of(caller.peer, line);
        self.failed(now, caller.peer, why)
    }

    /// Names the caller by the user at the other end of a Unix socket.
    fn local(&self, uid: u32, caller: &mut Caller) {
        caller.principal = principal::of_uid(uid);
        let snapshot = self.snapshot.load();
        let rights = snapshot.rights_without_token(&caller.principal).unwrap_or(&self.nothing);
        caller.rights = Some(rights.clone());
        caller.credential = Credential::User(uid);
    }

    /// The identity of the client of a new connection, which has shown these certificates.
    pub(crate) fn introduce(&self, chain: Vec<CertificateDer<'static>>, tls: &Arc<Tls>) -> Shown {
        let ends = self.ends.clone();
        let certificate = PeerCertificate::new(chain, &self.mappings, tls.clone(), ends);
        certificate.map_or(Shown::Nothing, |certificate| Shown::Certificate(Arc::new(certificate)))
    }

    fn refused(&self, now: Timestamp, peer: SocketAddr, why: Refused) -> Failure {
        if matches!(why, Refused::Unknown | Refused::Parent) && self.is_silent(now) {
            let said = "the store of credentials cannot be read, and this one is not known yet";
            let failure = Failure::new(Code::StoreUnavailable, said);
            return failure.retried_soon();
        }
        self.failed(now, peer, why.as_str())
    }

    fn failed(&self, now: Timestamp, peer: SocketAddr, why: &'static str) -> Failure {
        tracing::debug!(peer = %peer, reason = why, "authentication failed");
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
        let checked = caller.shown.check(&self.snapshot.load(), seconds(now));
        checked.map_err(|_| unauthenticated())?;
        match caller.credential.clone() {
            Credential::None => Ok(()),
            Credential::Certificate(certificate) => {
                let who = certificate.who().map_err(|_| unauthenticated())?;
                caller.rights = Some(certificate.rights(&self.snapshot.load(), who));
                self.settle_account(caller);
                caller.resolve_again();
                Ok(())
            }
            Credential::User(uid) => {
                self.local(uid, caller);
                self.settle_account(caller);
                caller.resolve_again();
                Ok(())
            }
            Credential::Token(token) | Credential::Console(token, _) => {
                let is_over = |session: &Session| !session.is_good(seconds(now));
                if matches!(&caller.credential, Credential::Console(_, session) if is_over(session))
                {
                    return Err(unauthenticated());
                }
                let snapshot = self.snapshot.load();
                let found = snapshot.credential_of(token.record.id).ok_or_else(unauthenticated)?;
                let is_same = found.record.hash == token.record.hash
                    && found.record.principal == token.record.principal;
                let is_good = found.check(Some(caller.peer.ip()), seconds(now)).is_ok();
                if !is_same || !is_good {
                    return Err(unauthenticated());
                }
                caller.rights = Some(found.rights.clone());
                match &mut caller.credential {
                    Credential::Token(known) | Credential::Console(known, _) => {
                        *known = found.clone();
                    }
                    Credential::None | Credential::Certificate(_) | Credential::User(_) => {}
                }
                self.settle_account(caller);
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
        if let Some(path) = bootstrap {
            self.bootstrap(clock, &mut sources, path).await;
        }
        self.put(&mut sources);
        self.make_key(clock, &mut sources).await;
    }

    async fn bootstrap(&self, clock: &dyn Clock, sources: &mut Sources, path: &Path) {
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
    }

    /// The first server around a store makes the key for all of them.
    async fn make_key(&self, clock: &dyn Clock, sources: &mut Sources) {
        let is_known = self.heard.load(Relaxed) > 0 && self.extras.load().keys.is_none();
        if !self.has_store || !is_known {
            return;
        }
        let now = seconds(clock.now());
        let puts = vec![(CLUSTER_KEY.to_owned(), ClusterKeys::new(now).body())];
        let change = Change { puts, removes: Vec::new() }.documents();
        let Ok(change) = change else { return };
        // If another was first, its key is the one: the store is asked in any case.
        if sources.change(change, true, now).await.is_ok() {
            self.ask(clock, sources).await;
        }
    }

    /// Keeps up with the store and the file until the server stops.
    pub(crate) async fn keep(
        self: Arc<Authenticator>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
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
            self.make_key(&*clock, &mut sources).await;
            if is_asked || now.since(looked) >= LOOK_EVERY {
                looked = now;
                if is_asked || sources.is_file_changed() {
                    self.read_file(&mut sources, &metrics);
                }
            }
            let after = seconds(now);
            let is_any_over = || {
                self.ends.is_any_over(before, after)
                    || is_any_over(&self.snapshot.load(), before, after)
            };
            // Sessions of the console come to their end too.
            let is_minute = after / 60 != before / 60;
            if is_minute || (after != before && is_any_over()) {
                self.generation.send_modify(|generation| *generation += 1);
            }
            before = after;
        }
    }

    /// Certificates of clients are judged anew, so streams have to look.
    pub(crate) fn certificates_changed(&self) {
        self.generation.send_modify(|generation| *generation += 1);
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

    fn read_file(&self, sources: &mut Sources, metrics: &Metrics) {
        match sources.read_file() {
            Ok(()) => {
                tracing::info!("access file read");
                self.audit.tell(|| Line::new("access.reload", "ok"));
                self.put(sources);
            }
            Err(error) => {
                metrics.reload_failed("access_file");
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
        Err(Failure::new(Code::Overloaded, said).retried_soon())
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
        self.extras.store(Arc::new(sources.extras()));
        self.snapshot.store(Arc::new(snapshot));
        self.generation.send_modify(|generation| *generation += 1);
    }
}

fn no_key() -> Failure {
    let said = "the key of the servers has not been read yet, or the store keeps none";
    Failure::new(Code::StoreUnavailable, said).retried_soon()
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
