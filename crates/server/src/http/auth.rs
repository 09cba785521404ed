//! The caller's identity, tokens and roles.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::header::{CACHE_CONTROL, ETAG, IF_MATCH, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use leasehold_access::{
    Network, Role, RoleRef, Rule, TokenId, TokenRecord, UnixSeconds, Verb, document, principal,
};
use leasehold_api::{
    Code, CreateTokenRequest, CreatedToken, DeletedRole, Problem, RevokeCertificateRequest,
    RevokedCertificate, RevokedToken, RoleInfo, RoleList, RotateTokenRequest, TestRightsRequest,
    TestedRights, TokenInfo, TokenList, WhoAmI,
};
use serde_json::Value;

use super::encode::{Answered, json, ok, problem};
use super::extract::{self, Params};
use super::openapi::{BodyProblems, NotFound, Problems};
use crate::access::Credential;
use crate::convert;
use crate::service::app::App;
use crate::service::auth::{Condition, KnownRole, NewToken, NotChanged, RightsTest};
use crate::service::caller::Caller;
use crate::service::problems::Failure;

const OVERLAP_MS: u64 = 24 * 60 * 60 * 1000;

pub(super) fn moment(at: UnixSeconds) -> String {
    let seconds = i64::try_from(at).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::MAX).to_string()
}

fn info(record: &TokenRecord, in_file: bool) -> TokenInfo {
    TokenInfo {
        id: record.id.to_string(),
        principal: record.principal.to_string(),
        roles: record.roles.iter().map(ToString::to_string).collect(),
        note: record.note.clone(),
        created_at: record.created.map(moment),
        created_by: record.created_by.as_ref().map(ToString::to_string),
        expires_at: record.expires.map(moment),
        cidrs: record.networks.iter().map(ToString::to_string).collect(),
        parent: record.parent.map(|parent| parent.to_string()),
        in_file,
    }
}

/// Show who one is
///
/// The principal that the credential stands for, its roles, and all verbs that are allowed somewhere.
#[utoipa::path(
    get, path = "/v1/auth/self", operation_id = "who_am_i", tag = "auth",
    responses((status = 200, description = "The caller", body = WhoAmI), Problems)
)]
pub(crate) async fn who_am_i(caller: Caller) -> Answered {
    ok(&self_of(&caller))
}

pub(super) fn self_of(caller: &Caller) -> WhoAmI {
    let verbs = match &caller.rights {
        None => Verb::ALL.iter().map(|verb| verb.as_str().into()).collect(),
        Some(rights) => rights.verbs().iter().map(|verb| verb.as_str().into()).collect(),
    };
    let record = caller.credential.token().map(|token| &token.record);
    let (roles, expires): (&[RoleRef], _) = match (&caller.credential, record) {
        (Credential::Certificate(certificate), _) => {
            let roles = certificate.who().map_or(&[][..], |who| &who.roles);
            (roles, Some(certificate.not_after()))
        }
        (_, Some(record)) => (&record.roles, record.expires),
        (_, None) => (&[], None),
    };
    let csrf = match &caller.credential {
        Credential::Console(_, session) => Some(session.csrf.clone()),
        Credential::None
        | Credential::Token(_)
        | Credential::Certificate(_)
        | Credential::User(_) => None,
    };
    let roles = roles.iter().map(ToString::to_string);
    WhoAmI {
        principal: caller.principal.to_string(),
        credential: caller.credential.kind().into(),
        token_id: record.map(|record| record.id.to_string()),
        roles: roles.collect(),
        verbs,
        expires_at: expires.map(moment),
        csrf,
    }
}

/// List tokens
///
/// All tokens, those of the access file too, without their secrets.
#[utoipa::path(
    get, path = "/v1/auth/tokens", operation_id = "list_tokens", tag = "auth",
    responses((status = 200, description = "The tokens by their ids", body = TokenList), Problems)
)]
pub(crate) async fn tokens(State(app): State<Arc<App>>) -> Answered {
    let tokens = app.tokens();
    ok(&TokenList {
        tokens: tokens.iter().map(|(record, in_file)| info(record, *in_file)).collect(),
    })
}

/// Create a token
///
/// Makes a token of a principal; without one, a narrower token of the caller's own. The secret is told once.
#[utoipa::path(
    post, path = "/v1/auth/tokens", operation_id = "create_token", tag = "auth",
    request_body = CreateTokenRequest,
    responses((status = 201, description = "The token with its secret", body = CreatedToken), BodyProblems)
)]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answered {
    let body: CreateTokenRequest = extract::json(&app, request).await?;
    let asked = NewToken {
        principal: body.principal,
        roles: body.roles.as_deref().map(roles).transpose()?,
        ttl: body.ttl_ms.map(|ms| ms.div_ceil(1000)),
        no_expiry: body.no_expiry,
        networks: body.cidrs.as_deref().map(networks).transpose()?,
        note: note(body.note.as_deref().unwrap_or(""))?,
        rules: body.rules.as_ref().map(rules).transpose()?,
    };
    let (token, record) = app.create_token(&caller, asked).await?;
    Ok(created(token.reveal(), &record))
}

/// A secret is told: no cache keeps it.
fn created(secret: &str, record: &TokenRecord) -> Response {
    let created = CreatedToken { token: secret.into(), record: info(record, false) };
    let mut response = json(StatusCode::CREATED, &created);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn roles(texts: &[String]) -> Result<Vec<RoleRef>, Failure> {
    let role = |text: &String| {
        RoleRef::parse(text).map_err(|fault| Failure::field("roles", fault.to_string()))
    };
    texts.iter().map(role).collect()
}

fn networks(texts: &[String]) -> Result<Vec<Network>, Failure> {
    let network = |text: &String| {
        text.parse::<Network>().map_err(|fault| Failure::field("cidrs", fault.to_string()))
    };
    texts.iter().map(network).collect()
}

fn note(text: &str) -> Result<String, Failure> {
    let is_good = text.len() <= 256 && !text.chars().any(char::is_control);
    match is_good {
        true => Ok(text.into()),
        false => Err(Failure::field("note", "has more than 256 bytes, or control characters")),
    }
}

fn rules(rules: &Value) -> Result<Vec<Rule>, Failure> {
    Ok(role_of(&serde_json::json!({ "rules": rules }))?.rules)
}

fn role_of(value: &Value) -> Result<Role, Failure> {
    document::role_of_json(&value.to_string())
        .map_err(|fault| Failure::field("rules", fault.to_string()))
}

fn token_id(text: &str) -> Result<TokenId, Failure> {
    TokenId::parse(text).ok_or_else(|| Failure::field("token", "is not the id of a token"))
}

/// Get a token
///
/// One token by its public id, without its secret.
#[utoipa::path(
    get, path = "/v1/auth/tokens/{token}", operation_id = "get_token_info", tag = "auth",
    params(("token" = String, Path, description = "The id of the token: what stands after `lk_`")),
    responses((status = 200, description = "The token", body = TokenInfo), NotFound, Problems)
)]
pub(crate) async fn token(State(app): State<Arc<App>>, Path(id): Path<String>) -> Answered {
    let (record, in_file) = app.token_by_id(token_id(&id)?)?;
    ok(&info(&record, in_file))
}

/// Revoke a token
///
/// Ends a token and all that were made of it, on every server within a second. Without `admin` only one that was made of the caller's own. What was locked with it stands until its lease is
/// over.
#[utoipa::path(
    delete, path = "/v1/auth/tokens/{token}", operation_id = "revoke_token", tag = "auth",
    params(
        ("token" = String, Path, description = "The id of the token: what stands after `lk_`"),
        ("force" = Option<bool>, Query, description = "Also if nobody could administer the server any more"),
    ),
    responses((status = 200, description = "It is good for nothing any more", body = RevokedToken), NotFound, Problems)
)]
pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    mut params: Params,
) -> Answered {
    let force = is_forced(&mut params)?;
    params.done()?;
    app.revoke_token(&caller, token_id(&id)?, force).await?;
    ok(&RevokedToken { id, revoked: true })
}

fn is_forced(params: &mut Params) -> Result<bool, Failure> {
    match params.take("force").as_deref() {
        None | Some("false") => Ok(false),
        Some("true") => Ok(true),
        Some(_) => Err(Failure::field("force", "is true or false")),
    }
}

/// Rotate a token
///
/// Makes a token like another, which ends after the overlap. Both are good until then.
#[utoipa::path(
    post, path = "/v1/auth/tokens/{token}/rotate", operation_id = "rotate_token", tag = "auth",
    params(("token" = String, Path, description = "The id of the token: what stands after `lk_`")),
    request_body = Option<RotateTokenRequest>,
    responses((status = 201, description = "The new token with its secret", body = CreatedToken), NotFound, BodyProblems)
)]
pub(crate) async fn rotate(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(id): Path<String>,
    request: Request,
) -> Answered {
    let body: RotateTokenRequest = extract::json_if_any(&app, request).await?;
    let overlap = body.overlap_ms.unwrap_or(OVERLAP_MS).div_ceil(1000);
    let (token, record) = app.rotate_token(&caller, token_id(&id)?, overlap).await?;
    Ok(created(token.reveal(), &record))
}

fn role_info(known: &KnownRole) -> RoleInfo {
    let (_, body) = document::of_role(&known.name, &known.role);
    let mut body: Value = serde_json::from_str(&body).unwrap_or_default();
    let quota = body["quota"].take();
    RoleInfo {
        name: known.name.clone(),
        rules: body["rules"].take(),
        quota: (!quota.is_null()).then_some(quota),
        source: known.source.into(),
    }
}

/// List roles
///
/// The built-in roles, those of the access file and those of the store.
#[utoipa::path(
    get, path = "/v1/auth/roles", operation_id = "list_roles", tag = "auth",
    responses((status = 200, description = "All roles", body = RoleList), Problems)
)]
pub(crate) async fn list_roles(State(app): State<Arc<App>>) -> Answered {
    ok(&RoleList { roles: app.roles().iter().map(role_info).collect() })
}

/// Get a role
///
/// One role; `ETag` names its version.
#[utoipa::path(
    get, path = "/v1/auth/roles/{role}", operation_id = "get_role", tag = "auth",
    params(("role" = String, Path, description = "The name of the role")),
    responses((status = 200, description = "The role", body = RoleInfo), NotFound, Problems)
)]
pub(crate) async fn role(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answered {
    app.role(&name).map(|known| with_version(&known))
}

fn with_version(known: &KnownRole) -> Response {
    let mut response = json(StatusCode::OK, &role_info(known));
    if let Ok(version) = HeaderValue::from_str(&known.version()) {
        response.headers_mut().insert(ETAG, version);
    }
    response
}

/// Put a role
///
/// Makes a role, or replaces it. With `If-Match` only the version that it names, with `If-None-Match: *` only a new one.
#[utoipa::path(
    put, path = "/v1/auth/roles/{role}", operation_id = "put_role", tag = "auth",
    params(
        ("role" = String, Path, description = "The name of the role"),
        ("force" = Option<bool>, Query, description = "Also if nobody could administer the server any more"),
        ("If-Match" = Option<String>, Header, description = "The version to replace"),
    ),
    request_body(content = Object, description = "`rules`, and `quota` if it has one"),
    responses(
        (status = 200, description = "The role as it is now", body = RoleInfo),
        (status = 412, description = "invalid_request: it is another version by now", body = Problem, content_type = "application/problem+json"),
        BodyProblems,
    )
)]
pub(crate) async fn put_role(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    mut params: Params,
    request: Request,
) -> Answered {
    let force = is_forced(&mut params)?;
    params.done()?;
    let condition = condition(request.headers())?;
    let body: Value = extract::json(&app, request).await?;
    let role = role_of(&body)?;
    if RoleRef::parse(&name).is_err() || name.contains(':') {
        return Err(Failure::field("role", "is not the name of a role"));
    }
    match app.change_role(&caller, &name, Some(role), condition, force).await {
        Ok(()) => app.role(&name).map(|known| with_version(&known)),
        Err(not) => not_changed(not),
    }
}

fn condition(headers: &HeaderMap) -> Result<Condition, Failure> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or(""));
    match (text(IF_MATCH), text(IF_NONE_MATCH)) {
        (None, None) => Ok(Condition::None),
        (None, Some("*")) => Ok(Condition::New),
        (Some(version), None) => Ok(Condition::Version(version.into())),
        (_, Some(_)) => {
            Err(Failure::field("If-None-Match", "is * and stands alone, or is left out"))
        }
    }
}

fn not_changed(not: NotChanged) -> Answered {
    match not {
        NotChanged::Failure(failure) => Err(failure),
        NotChanged::Condition => {
            let said = "the role is another one by now: get it again";
            Ok(problem(Problem { status: 412, ..Problem::new(Code::InvalidRequest, said) }))
        }
    }
}

/// Delete a role
///
/// Its rights end on every server within a second.
#[utoipa::path(
    delete, path = "/v1/auth/roles/{role}", operation_id = "delete_role", tag = "auth",
    params(
        ("role" = String, Path, description = "The name of the role"),
        ("force" = Option<bool>, Query, description = "Also if nobody could administer the server any more"),
        ("If-Match" = Option<String>, Header, description = "The version to delete"),
    ),
    responses(
        (status = 200, description = "It is gone", body = DeletedRole),
        (status = 412, description = "invalid_request: it is another version by now", body = Problem, content_type = "application/problem+json"),
        NotFound, Problems,
    )
)]
pub(crate) async fn delete_role(
    State(app): State<Arc<App>>,
    caller: Caller,
    Path(name): Path<String>,
    mut params: Params,
    headers: HeaderMap,
) -> Answered {
    let force = is_forced(&mut params)?;
    params.done()?;
    match app.change_role(&caller, &name, None, condition(&headers)?, force).await {
        Ok(()) => ok(&DeletedRole { name, deleted: true }),
        Err(not) => not_changed(not),
    }
}

/// Revoke a certificate
///
/// No server takes it any more within a second, and its streams end; its locks stand until their leases are over.
#[utoipa::path(
    post, path = "/v1/auth/revocations", operation_id = "revoke_certificate", tag = "auth",
    request_body = RevokeCertificateRequest,
    responses((status = 200, description = "It is good no more", body = RevokedCertificate), BodyProblems)
)]
pub(crate) async fn revoke_certificate(State(app): State<Arc<App>>, request: Request) -> Answered {
    let body: RevokeCertificateRequest = extract::json(&app, request).await?;
    let certificate = app.revoke_certificate(&body.certificate, &body.note).await?;
    ok(&RevokedCertificate { certificate, revoked: true })
}

/// Test what a principal may do
///
/// Tells which rule allows it, with any of the principal's credentials that are good now.
#[utoipa::path(
    post, path = "/v1/auth/test", operation_id = "test_rights", tag = "auth",
    request_body = TestRightsRequest,
    responses((status = 200, description = "Whether it is allowed, and by which rule", body = TestedRights), BodyProblems)
)]
pub(crate) async fn test(State(app): State<Arc<App>>, request: Request) -> Answered {
    let body: TestRightsRequest = extract::json(&app, request).await?;
    let verb = Verb::parse(&body.verb);
    let namespace = body.namespace.as_deref().map(|name| convert::namespace(Some(name)));
    let asked = RightsTest {
        principal: principal::parse(&body.principal, principal::Use::Named)
            .map_err(|fault| Failure::field("principal", fault.to_string()))?,
        verb: verb.ok_or_else(|| Failure::field("verb", "is none: acquire, read, watch, fence, break, remove, sessions, metrics, cluster, console, token.self or admin"))?,
        namespace: namespace.transpose()?,
        scope: body.lock.as_deref().map(convert::scope).transpose()?,
    };
    let by = app.test_rights(&asked);
    ok(&TestedRights { allowed: by.is_some(), by: by.map(|source| source.to_string()) })
}
