//! The description of the interface, in OpenAPI 3.1, made from the same types and handlers that serve it.

mod finish;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use axum::http::{HeaderValue, StatusCode};
use leasehold_api as api;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoParams, IntoResponses, OpenApi};

use crate::http::encode::{Answered, with_type};
use crate::http::{
    auth, backup, console, fences, graph, health, history, inodes, locks, overview, sessions, sets,
    simple, tokens, watch,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Leasehold",
        description = "A lock service: leases, fencing tokens, fair queues. Every error is problem+json, and its `code` is what programs decide by.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    servers((url = "/", description = "The server that serves this description")),
    security(),
    paths(
        locks::acquire, locks::renew, locks::release, locks::unlock, locks::get, locks::test, locks::check, locks::break_, locks::list,
        sets::acquire,
        sessions::open, sessions::list, sessions::get, sessions::keepalive, sessions::close, sessions::break_,
        fences::accept, fences::list, fences::get, fences::delete,
        tokens::get, inodes::remove,
        watch::watch, watch::events, graph::graph, history::history,
        overview::overview, overview::tree, overview::limits,
        simple::post, simple::delete, simple::get,
        health::livez, health::readyz, health::healthz, health::version, health::cluster, health::metrics, backup::get,
        auth::who_am_i, auth::tokens, auth::create, auth::token, auth::revoke, auth::rotate,
        auth::list_roles, auth::role, auth::put_role, auth::delete_role, auth::revoke_certificate,
        auth::test, console::login, console::exchange, console::logout, console::rotate_key,
        openapi,
    ),
    components(schemas(
        api::Problem, api::Code, api::Event, api::schema::Name, api::schema::LockName, api::schema::LockPrefix, api::schema::LeaseId,
        api::schema::Inode, api::schema::EventFrame,
    )),
    tags(
        (name = "locks", description = "Acquire, renew, release and inspect locks"),
        (name = "sessions", description = "Many locks under one lease"),
        (name = "fences", description = "High-water marks for fencing tokens"),
        (name = "watch", description = "Events, and the wait-for graph"),
        (name = "simple", description = "One lock for everyone, without leases or tokens on the client"),
        (name = "auth", description = "Who one is, tokens and roles"),
        (name = "service", description = "The service itself"),
    ),
)]
struct Document;

/// Every call takes a namespace.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "read by the derive")]
pub(crate) struct NamespaceParam {
    /// Locks of two namespaces never meet; `default` if left out.
    #[param(value_type = Option<api::schema::Name>)]
    namespace: Option<String>,
}

/// The codes that every call can also be answered with.
pub(crate) struct Problems;

/// The further codes of a call with a body.
pub(crate) struct BodyProblems;

/// The further codes of a call that names a session or a place in a queue.
pub(crate) struct NotFound;

impl IntoResponses for Problems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[
            (400, "invalid_request or invalid_lock_name"),
            (401, "unauthenticated: authentication is on, and no good credential was shown"),
            (
                403,
                "permission_denied: the caller may not do that, or the request comes from a page of another site",
            ),
            (414, "uri_too_long"),
            (421, "misdirected_request: on loopback only names of this machine are served"),
            (429, "a limit is reached; Retry-After says when to retry"),
            (431, "header_too_large"),
            (500, "internal"),
            (
                503,
                "not now: grace_period, store_unavailable, not_leader, draining, overloaded, audit_unavailable or interrupted",
            ),
        ])
    }
}

impl IntoResponses for BodyProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut all = Problems::responses();
        all.append(&mut problems(&[
            (408, "request_timeout: the body did not arrive"),
            (413, "too_large"),
            (415, "unsupported_media_type: send application/json"),
        ]));
        all
    }
}

impl IntoResponses for NotFound {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems(&[(404, "session_not_found, ticket_not_found or not_found")])
    }
}

fn problems(list: &[(u16, &str)]) -> BTreeMap<String, RefOr<Response>> {
    let problem = |&(status, why): &(u16, &str)| {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
        let response = ResponseBuilder::new()
            .description(why)
            .content("application/problem+json", content)
            .build();
        (status.to_string(), response.into())
    };
    list.iter().map(problem).collect()
}

/// This description
///
/// OpenAPI 3.1, as served.
#[utoipa::path(get, path = "/openapi.json", operation_id = "get_openapi", tag = "service",
    responses((status = 200, description = "OpenAPI 3.1", body = Object), Problems))]
pub(crate) async fn openapi() -> Answered {
    let json = HeaderValue::from_static("application/json");
    Ok(with_type(StatusCode::OK, json, document()))
}

/// The description as it is served.
pub fn document() -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let mut whole = serde_json::to_value(Document::openapi()).expect("it is plain data");
        finish::finish(&mut whole);
        serde_json::to_string_pretty(&whole).expect("it is plain data")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn parsed() -> Value {
        serde_json::from_str(document()).unwrap()
    }

    #[test]
    fn description_is_openapi_3_1() {
        assert_eq!(parsed()["openapi"], "3.1.0");
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn check(value: &Value, whole: &Value) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(target)) = map.get("$ref") {
                        let pointer = target.strip_prefix('#').unwrap();
                        assert!(whole.pointer(pointer).is_some(), "{target} leads nowhere");
                    }
                    map.values().for_each(|value| check(value, whole));
                }
                Value::Array(values) => values.iter().for_each(|value| check(value, whole)),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        let whole = parsed();
        check(&whole, &whole);
    }

    #[test]
    fn requests_allow_no_unknown_field() {
        let schemas = parsed()["components"]["schemas"].clone();
        for name in ["AcquireRequest", "RenewRequest", "ReleaseRequest", "OpenRequest", "Claim"] {
            assert_eq!(schemas[name]["additionalProperties"], false, "{name}");
        }
    }

    fn operations() -> Vec<(String, Value)> {
        let whole = parsed();
        let paths = whole["paths"].as_object().unwrap().clone();
        let of = |(path, methods): (String, Value)| {
            let methods = methods.as_object().unwrap().clone();
            methods
                .into_iter()
                .map(move |(method, operation)| (format!("{method} {path}"), operation))
        };
        paths.into_iter().flat_map(of).collect()
    }

    #[test]
    fn every_operation_has_an_id_of_its_own() {
        let mut known = BTreeMap::new();
        for (at, operation) in operations() {
            let id = operation["operationId"].as_str().unwrap().to_string();
            // The name of a handler alone would be the same for several of them.
            assert!(id.contains('_'), "{at}: {id} does not say what it is about");
            if let Some(other) = known.insert(id.clone(), at.clone()) {
                panic!("{id} is both {other} and {at}");
            }
        }
    }

    #[test]
    fn every_page_token_is_a_text() {
        for (at, operation) in operations() {
            let params = operation["parameters"].as_array().cloned().unwrap_or_default();
            for param in params.iter().filter(|param| param["name"] == "page_token") {
                assert!(param["schema"]["type"].to_string().contains("string"), "{at}: {param}");
            }
        }
    }

    #[test]
    fn every_code_is_listed() {
        let codes = parsed()["components"]["schemas"]["Code"].to_string();
        for code in api::Code::ALL {
            assert!(codes.contains(&format!("\"{code}\"")), "{code}");
        }
    }
}
