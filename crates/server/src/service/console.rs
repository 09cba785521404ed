//! Logging in to the console: with a token, or with a code that somebody who has one got for a minute.

use axum::http::HeaderValue;
use leasehold_access::{Object, Operation, Token};
use leasehold_api::Code;

use super::app::App;
use super::caller::Caller;
use super::problems::Failure;
use super::random;
use crate::access::{
    Change, Credential, Login, Session, code_of, login_id, parse_code, removed, seconds,
    unauthenticated,
};
use crate::audit::{Class, Line};

/// So many codes that are over go with one that is made.
const REMOVED_MAX: usize = 32;

/// A session that has begun.
#[derive(Debug)]
pub(crate) struct LoggedIn {
    pub(crate) cookie: HeaderValue,
    /// The caller that it stands for.
    pub(crate) caller: Caller,
}

impl App {
    /// Begins a session for the bearer of a token.
    pub(crate) fn log_in(
        &self,
        caller: &Caller,
        token: &str,
        is_secure: bool,
    ) -> Result<LoggedIn, Failure> {
        self.needs_authentication()?;
        let mut caller = caller.clone();
        self.authenticator.authenticate(self.now(), token, &mut caller)?;
        self.begin(caller, is_secure)
    }

    /// Begins one for a code. It is good once, at whichever server it is shown first.
    pub(crate) async fn log_in_by_code(
        &self,
        caller: &Caller,
        code: &str,
        is_secure: bool,
    ) -> Result<LoggedIn, Failure> {
        self.needs_authentication()?;
        let now = seconds(self.now());
        let refuse = |reason| self.authenticator.refuse_code(self.now(), caller, reason);
        let code = parse_code(code).ok_or_else(|| refuse("malformed_code"))?;
        let used = |_: &_, _: &_| {
            let known = self.authenticator.login(code.id());
            match known.is_some_and(|login| login.is(&code, now)) {
                true => Ok(Change { puts: Vec::new(), removes: vec![login_id(code.id())] }),
                false => Err(refuse("code")),
            }
        };
        // What it stands for: it is gone when the change is made.
        let found = std::sync::Mutex::new(None);
        let make = |snapshot: &_, file: &_| {
            let change = used(snapshot, file)?;
            *found.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
                self.authenticator.login(code.id());
            Ok(change)
        };
        self.authenticator.change(&*self.clock, true, make).await?;
        let login: Option<Login> =
            found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let login = login.ok_or_else(unauthenticated)?;
        let mut caller = caller.clone();
        self.authenticator.stand_for(self.now(), login.token, &mut caller)?;
        self.begin(caller, is_secure)
    }

    fn begin(&self, mut caller: Caller, is_secure: bool) -> Result<LoggedIn, Failure> {
        caller.may(Operation::UseConsole, Object::Server)?;
        if !is_secure && self.config.listen.is_open_to_others() {
            let said = "over plain HTTP a session could be stolen: open the console by https://";
            return Err(Failure::new(Code::PermissionDenied, said));
        }
        let Credential::Token(token) = &caller.credential else { return Err(unauthenticated()) };
        let now = seconds(self.now());
        let session = Session::new(token.record.id, &caller.principal, now);
        let cookie = self.authenticator.cookie(&session, now, is_secure)?;
        self.audit.note(Class::Auth, || Line::new("auth.login", "ok").by(&caller));
        caller.credential = Credential::Console(token.clone(), session.into());
        Ok(LoggedIn { cookie, caller })
    }

    /// Ends the session of a browser.
    pub(crate) fn log_out(&self, caller: &Caller, is_secure: bool) -> HeaderValue {
        self.audit.note(Class::Auth, || Line::new("auth.logout", "ok").by(caller));
        removed(is_secure)
    }

    /// A code for the caller's console.
    pub(crate) async fn login_code(&self, caller: &Caller) -> Result<String, Failure> {
        self.needs_authentication()?;
        let token = match &caller.credential {
            Credential::Token(token) => token,
            Credential::None => return Err(unauthenticated()),
            Credential::Console(..) | Credential::Certificate(_) | Credential::User(_) => {
                let said = "a code is made for the bearer of a token";
                return Err(Failure::new(Code::InvalidRequest, said));
            }
        };
        caller.may(Operation::UseConsole, Object::Server)?;
        let now = seconds(self.now());
        let secret = Token::mint(&random::bytes());
        let login = Login::new(&secret, token.record.id, now);
        let make = |_: &_, _: &_| {
            let over = self.authenticator.logins_over(now).into_iter().take(REMOVED_MAX);
            let removes = over.map(login_id).collect();
            Ok(Change { puts: vec![(login_id(secret.id()), login.body())], removes })
        };
        self.authenticator.change(&*self.clock, true, make).await?;
        self.audit.note(Class::Auth, || Line::new("auth.login_code", "ok").by(caller));
        Ok(code_of(&secret))
    }

    /// A new key for the servers of the store; returns until when the one before is good.
    pub(crate) async fn rotate_cluster_key(&self, caller: &Caller) -> Result<u64, Failure> {
        self.needs_authentication()?;
        caller.may(Operation::Administer, Object::Server)?;
        let now = seconds(self.now());
        let rotating = self.authenticator.rotate_key(&*self.clock, now);
        let line = Line::new("cluster_key.rotate", "asked");
        self.audited(caller, line, rotating, |line, until| line.with("previous_until", *until))
            .await
    }
}
