//! Logging in to the console, and out.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{ORIGIN, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use leasehold_api::{ExchangeRequest, LoggedOut, LoginCode, LoginRequest, RotatedKey, WhoAmI};

use super::auth::{moment, self_of};
use super::encode::{Answered, json, ok};
use super::extract;
use super::openapi::{BodyProblems, Problems};
use crate::access::{LOGIN_TTL, cookie_shown};
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::console::LoggedIn;

/// Log in
///
/// Begins a session of the console for the bearer of a token with the verb `console`. The session is a cookie that only the
/// server's own pages can use; it ends with the token, after 12 hours, and after 2 hours without use. `csrf` goes as
/// `x-leasehold-csrf` with everything that changes something.
#[utoipa::path(
    post, path = "/v1/auth/login", operation_id = "log_in", tag = "auth",
    request_body = LoginRequest,
    responses((status = 200, description = "The caller, and the cookie", body = WhoAmI), BodyProblems)
)]
pub(crate) async fn login(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answered {
    let is_secure = is_secure(request.headers());
    let body: LoginRequest = extract::json(&app, request).await?;
    app.log_in(&caller, &body.token, is_secure).map(logged_in)
}

/// Exchange a token for a login code, or a code for a session
///
/// Without a body, the bearer of a token gets a code that is good once and for a minute, at every server of the cluster: for a
/// link to the console. With `code` a session begins, as by `login`.
#[utoipa::path(
    post, path = "/v1/auth/exchange", operation_id = "exchange_login_code", tag = "auth",
    request_body = Option<ExchangeRequest>,
    responses(
        (status = 200, description = "The caller, and the cookie", body = WhoAmI),
        (status = 201, description = "A code", body = LoginCode),
        BodyProblems,
    )
)]
pub(crate) async fn exchange(
    State(app): State<Arc<App>>,
    caller: Caller,
    request: Request,
) -> Answered {
    let is_secure = is_secure(request.headers());
    let body: ExchangeRequest = extract::json_if_any(&app, request).await?;
    match &body.code {
        Some(code) => app.log_in_by_code(&caller, code, is_secure).await.map(logged_in),
        None => {
            let code = app.login_code(&caller).await?;
            let expires_in_ms = LOGIN_TTL * 1000;
            Ok(json(StatusCode::CREATED, &LoginCode { code, expires_in_ms }))
        }
    }
}

/// Log out
///
/// Takes the cookie from the browser.
#[utoipa::path(
    post, path = "/v1/auth/logout", operation_id = "log_out", tag = "auth",
    responses((status = 200, description = "The session is over", body = LoggedOut), Problems)
)]
pub(crate) async fn logout(
    State(app): State<Arc<App>>,
    caller: Caller,
    headers: HeaderMap,
) -> Answered {
    let is_secure = cookie_shown(&headers).is_some_and(|shown| shown.is_secure);
    let cookie = app.log_out(&caller, is_secure);
    Ok(with_cookie(ok(&LoggedOut { logged_out: true })?, cookie))
}

/// Rotate the cluster key
///
/// Gives the servers of this store a new key to sign with, for requests that they forward and for sessions of the console. The
/// one before stays good for an hour; sessions that are older than that have to log in again.
#[utoipa::path(
    post, path = "/v1/auth/cluster-key/rotate", operation_id = "rotate_cluster_key", tag = "auth",
    responses((status = 200, description = "There is a new key", body = RotatedKey), Problems)
)]
pub(crate) async fn rotate_key(State(app): State<Arc<App>>, caller: Caller) -> Answered {
    let until = app.rotate_cluster_key(&caller).await?;
    ok(&RotatedKey { rotated: true, previous_good_until: moment(until) })
}

fn logged_in(LoggedIn { cookie, caller }: LoggedIn) -> Response {
    with_cookie(json(StatusCode::OK, &self_of(&caller)), cookie)
}

fn with_cookie(mut response: Response, cookie: HeaderValue) -> Response {
    response.headers_mut().append(SET_COOKIE, cookie);
    response
}

/// Whether the page came over HTTPS, by the word of the browser.
fn is_secure(headers: &HeaderMap) -> bool {
    headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}
