//! Identity, and changes of tokens and roles.

use std::sync::Arc;

use leasehold_access::{
    Credential as Known, Narrowing, Network, Object, Operation, Rights, Role, RoleRef, Rule,
    Source, Token, TokenId, TokenRecord, UnixSeconds, Verb, certificate, document, principal,
};
use leasehold_api::Code;
use leasehold_core::{Namespace, Principal, Scope};

use super::app::App;
use super::caller::Caller;
use super::problems::Failure;
use super::random;
use crate::access::{Change, Credential, seconds};
use crate::audit::Line;

const NOTE_LEN_MAX: usize = 256;
const TTL_DEFAULT: UnixSeconds = 90 * 24 * 60 * 60;

/// The request for a new token.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewToken {
    /// Another than the caller, or a token that is not made of the caller's.
    pub(crate) principal: Option<String>,
    pub(crate) roles: Option<Vec<RoleRef>>,
    pub(crate) ttl: Option<UnixSeconds>,
    pub(crate) no_expiry: bool,
    pub(crate) networks: Option<Vec<Network>>,
    pub(crate) note: String,
    pub(crate) rules: Option<Vec<Rule>>,
}

/// A role, and the place where it is defined.
#[derive(Clone, Debug)]
pub(crate) struct KnownRole {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) source: &'static str,
}

impl KnownRole {
    /// Changes with what it says: for `If-Match`.
    pub(crate) fn version(&self) -> String {
        let (_, body) = document::of_role(&self.name, &self.role);
        let hash = body.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("\"{hash:016x}\"")
    }
}

/// The question whether somebody may do something.
#[derive(Clone, Debug)]
pub(crate) struct RightsTest {
    pub(crate) principal: Principal,
    pub(crate) verb: Verb,
    pub(crate) namespace: Option<Namespace>,
    pub(crate) scope: Option<Scope>,
}

/// The condition under which a role is changed.
#[derive(Clone, Debug)]
pub(crate) enum Condition {
    None,
    /// It is not there yet.
    New,
    Version(String),
}

/// The reason why a role was not changed.
#[derive(Clone, Debug)]
pub(crate) enum NotChanged {
    Failure(Failure),
    /// It is another one by now.
    Condition,
}

impl From<Failure> for NotChanged {
    fn from(failure: Failure) -> NotChanged {
        NotChanged::Failure(failure)
    }
}

impl App {
    /// A new token: of another principal, or a narrower one of the caller's own.
    pub(crate) async fn create_token(
        &self,
        caller: &Caller,
        asked: NewToken,
    ) -> Result<(Token, TokenRecord), Failure> {
        self.needs_authentication()?;
        let now = seconds(self.now());
        let token = Token::mint(&random::bytes());
        let record = match &asked.principal {
            None => narrower(caller, &token, asked, now)?,
            Some(name) => {
                caller.may(Operation::Administer, Object::Server)?;
                let principal = principal::parse(name, principal::Use::Token)
                    .map_err(|fault| Failure::field("principal", fault.to_string()))?;
                self.record(caller, &token, principal, asked, now)?
            }
        };
        let change = || {
            let puts = vec![document::of_token(&record)];
            Ok(Change { puts, removes: Vec::new() })
        };
        let changing = self.authenticator.change(&*self.clock, false, |_, _| change());
        let line = about(Line::new("token.create", "asked"), &record);
        self.audited(caller, line, changing, |line, ()| line).await?;
        Ok((token, record))
    }

    fn record(
        &self,
        caller: &Caller,
        token: &Token,
        principal: Principal,
        asked: NewToken,
        now: UnixSeconds,
    ) -> Result<TokenRecord, Failure> {
        let snapshot = self.authenticator.snapshot();
        let roles = asked.roles.unwrap_or_default();
        for given in &roles {
            let unknown = || Failure::field("roles", format!("there is no role {}", given.role));
            let role = snapshot.role(&given.role).ok_or_else(unknown)?;
            let added = Rights::none().add(given, &role);
            added.map_err(|fault| Failure::field("roles", fault.to_string()))?;
        }
        let ttl = asked.ttl.unwrap_or(TTL_DEFAULT);
        Ok(TokenRecord {
            id: token.id(),
            principal,
            roles,
            hash: token.hash(),
            note: asked.note,
            created: Some(now),
            created_by: Some(caller.principal.clone()),
            not_before: None,
            expires: (!asked.no_expiry).then(|| now.saturating_add(ttl)),
            networks: asked.networks.unwrap_or_default(),
            parent: None,
            rules: asked.rules,
        })
    }

    /// All tokens by their ids, and whether they stand in the file.
    pub(crate) fn tokens(&self) -> Vec<(TokenRecord, bool)> {
        let snapshot = self.authenticator.snapshot();
        let mut tokens: Vec<(TokenRecord, bool)> =
            snapshot.credentials().map(|known| (known.record.clone(), in_file(known))).collect();
        tokens.sort_by_key(|(record, _)| record.id);
        tokens
    }

    pub(crate) fn token_by_id(&self, id: TokenId) -> Result<(TokenRecord, bool), Failure> {
        let snapshot = self.authenticator.snapshot();
        let known = snapshot.credential_of(id).ok_or_else(|| no_token(id))?;
        Ok((known.record.clone(), in_file(known)))
    }

    /// Ends a token, and all that were made of it.
    ///
    /// A caller that made a narrower token of its own may end that one.
    pub(crate) async fn revoke_token(
        &self,
        caller: &Caller,
        id: TokenId,
        force: bool,
    ) -> Result<(), Failure> {
        self.needs_authentication()?;
        let is_own = match (&caller.credential, self.authenticator.snapshot().credential_of(id)) {
            (Credential::Token(shown), Some(known)) => known.record.parent == Some(shown.record.id),
            (_, _) => false,
        };
        if !is_own {
            caller.may(Operation::Administer, Object::Server)?;
        }
        let change = |snapshot: &leasehold_access::Snapshot| {
            let known = snapshot.credential_of(id).ok_or_else(|| no_token(id))?;
            if in_file(known) {
                return Err(Failure::new(
                    Code::InvalidRequest,
                    format!("token {id} stands in the access file: take it out there"),
                ));
            }
            Ok(Change { puts: Vec::new(), removes: vec![format!("token/{id}")] })
        };
        let changing =
            self.authenticator.change(&*self.clock, force, |snapshot, _| change(snapshot));
        let line = Line::new("token.revoke", "asked").with("token", id.as_str());
        self.audited(caller, line, changing, |line, ()| line).await
    }

    /// Denies a certificate, by its serial number; says how that is written.
    pub(crate) async fn revoke_certificate(
        &self,
        serial: &str,
        note: &str,
    ) -> Result<String, Failure> {
        self.needs_authentication()?;
        if note.len() > NOTE_LEN_MAX {
            return Err(Failure::field("note", format!("has more than {NOTE_LEN_MAX} bytes")));
        }
        let no_serial =
            || Failure::field("certificate", "is no serial number in hexadecimal digits");
        let serial = certificate::serial(serial).ok_or_else(no_serial)?;
        let (id, body) = document::of_denied_certificate(&serial, note, seconds(self.now()));
        let change = || Ok(Change { puts: vec![(id.clone(), body.clone())], removes: Vec::new() });
        self.authenticator.change(&*self.clock, false, |_, _| change()).await?;
        Ok(serial)
    }

    /// A new token like another, which ends after the overlap.
    pub(crate) async fn rotate_token(
        &self,
        caller: &Caller,
        id: TokenId,
        overlap: UnixSeconds,
    ) -> Result<(Token, TokenRecord), Failure> {
        self.needs_authentication()?;
        let now = seconds(self.now());
        let token = Token::mint(&random::bytes());
        let rotated = |old: &TokenRecord| {
            let life = old.expires.zip(old.created).map(|(end, start)| end.saturating_sub(start));
            TokenRecord {
                id: token.id(),
                hash: token.hash(),
                created: Some(now),
                created_by: Some(caller.principal.clone()),
                not_before: None,
                expires: old.expires.map(|_| now.saturating_add(life.unwrap_or(TTL_DEFAULT))),
                ..old.clone()
            }
        };
        let change = |snapshot: &leasehold_access::Snapshot| {
            let known = snapshot.credential_of(id).ok_or_else(|| no_token(id))?;
            let end = now.saturating_add(overlap);
            let ends = known.record.expires.map_or(end, |expires| expires.min(end));
            let old = TokenRecord { expires: Some(ends), ..known.record.clone() };
            let mut puts = vec![document::of_token(&rotated(&known.record))];
            // One of the file stays as it is written there.
            if !in_file(known) {
                puts.push(document::of_token(&old));
            }
            Ok(Change { puts, removes: Vec::new() })
        };
        let changing =
            self.authenticator.change(&*self.clock, false, |snapshot, _| change(snapshot));
        let line = Line::new("token.rotate", "asked").with("token", id.as_str());
        let line = line.with("new_token", token.id().as_str()).with("overlap_s", overlap);
        self.audited(caller, line, changing, |line, ()| line).await?;
        let (record, _) = self.token_by_id(token.id())?;
        Ok((token, record))
    }

    pub(crate) fn roles(&self) -> Vec<KnownRole> {
        let snapshot = self.authenticator.snapshot();
        let names: Vec<&str> = snapshot.role_names().collect();
        names.into_iter().filter_map(|name| self.role(name).ok()).collect()
    }

    pub(crate) fn role(&self, name: &str) -> Result<KnownRole, Failure> {
        let snapshot = self.authenticator.snapshot();
        let role = snapshot.role(name).ok_or_else(|| no_role(name))?;
        let source = match Role::built_in(name) {
            Some(_) => "built_in",
            None if snapshot.is_role_of_file(name) => "file",
            None => "store",
        };
        Ok(KnownRole { name: name.into(), role, source })
    }

    /// Makes a role, or another of it; `None` removes it.
    pub(crate) async fn change_role(
        &self,
        caller: &Caller,
        name: &str,
        role: Option<Role>,
        condition: Condition,
        force: bool,
    ) -> Result<(), NotChanged> {
        self.needs_authentication()?;
        let is_met = std::sync::atomic::AtomicBool::new(true);
        let make = |snapshot: &leasehold_access::Snapshot, file: &leasehold_access::AccessFile| {
            if Role::built_in(name).is_some() || file.roles.contains_key(name) {
                let said = format!("role {name} is built in, or stands in the access file");
                return Err(Failure::new(Code::InvalidRequest, said));
            }
            let known = snapshot.role(name);
            let known = known.map(|role| KnownRole { name: name.into(), role, source: "store" });
            let is_right = match (&condition, &known) {
                (Condition::None, _) | (Condition::New, None) => true,
                (Condition::New, Some(_)) | (Condition::Version(_), None) => false,
                (Condition::Version(version), Some(known)) => known.version() == *version,
            };
            if !is_right {
                is_met.store(false, std::sync::atomic::Ordering::Relaxed);
                return Err(Failure::new(Code::InvalidRequest, "it is another one by now"));
            }
            match &role {
                None if known.is_none() => Err(no_role(name)),
                None => Ok(Change { puts: Vec::new(), removes: vec![format!("role/{name}")] }),
                Some(role) => {
                    Ok(Change { puts: vec![document::of_role(name, role)], removes: Vec::new() })
                }
            }
        };
        let event = if role.is_some() { "role.put" } else { "role.delete" };
        let line = Line::new(event, "asked").with("role", name);
        let body = role.as_ref().map(|role| document::of_role(name, role).1);
        let line = line.with_some("body", body);
        let changing = self.authenticator.change(&*self.clock, force, make);
        let changed = self.audited(caller, line, changing, |line, ()| line).await;
        changed.map_err(|failure| match is_met.into_inner() {
            true => NotChanged::Failure(failure),
            false => NotChanged::Condition,
        })
    }

    /// The rule that allows something to a principal with any of its credentials, if one does.
    pub(crate) fn test_rights(&self, asked: &RightsTest) -> Option<Arc<Source>> {
        let snapshot = self.authenticator.snapshot();
        let verbs = leasehold_access::Verbs::of(&[asked.verb]);
        let by = |rights: Arc<Rights>| match (&asked.namespace, &asked.scope) {
            (None, _) => rights.on_server(asked.verb),
            (Some(namespace), None) => {
                rights.in_namespace(namespace).allows_anything(verbs).cloned()
            }
            (Some(namespace), Some(scope)) => {
                rights.in_namespace(namespace).allows(verbs, scope).cloned()
            }
        };
        snapshot.rights_of(&asked.principal, seconds(self.now())).into_iter().find_map(by)
    }

    pub(super) fn needs_authentication(&self) -> Result<(), Failure> {
        if self.authenticator.is_on() {
            return Ok(());
        }
        let said = "authentication is off: set auth.enabled = true in the configuration first";
        Err(Failure::new(Code::InvalidRequest, said))
    }
}

/// A token of the caller that may do no more than the one that the caller has shown.
fn narrower(
    caller: &Caller,
    token: &Token,
    asked: NewToken,
    now: UnixSeconds,
) -> Result<TokenRecord, Failure> {
    caller.may(Operation::NarrowToken, Object::Server)?;
    let Credential::Token(shown) = &caller.credential else {
        return Err(Failure::field("principal", "is missing: only a token can be narrowed"));
    };
    let expires = asked.ttl.map(|ttl| now.saturating_add(ttl));
    let narrowing = Narrowing {
        roles: asked.roles,
        expires,
        networks: asked.networks,
        rules: asked.rules,
        note: asked.note,
    };
    let narrowed = shown.record.narrow(token, narrowing, now);
    narrowed.map_err(|fault| Failure::new(Code::PermissionDenied, fault.to_string()))
}

/// The text of an audit line about a new token.
fn about(line: Line, record: &TokenRecord) -> Line {
    let roles: Vec<String> = record.roles.iter().map(ToString::to_string).collect();
    line.with("token", record.id.as_str())
        .with("of", record.principal.as_str())
        .with("roles", roles.join(" "))
        .with_some("expires", record.expires)
        .with_some("parent", record.parent.map(|parent| parent.to_string()))
}

/// Tokens of the file say nothing of when they were made.
fn in_file(known: &Known) -> bool {
    known.record.created.is_none()
}

fn no_token(id: TokenId) -> Failure {
    Failure::new(Code::NotFound, format!("there is no token {id}"))
}

fn no_role(name: &str) -> Failure {
    let name: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
    Failure::new(Code::NotFound, format!("there is no role {name}"))
}
