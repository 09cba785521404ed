//! Reads requests: paths, queries and bodies, each with its own way of being wrong. What is wrong leaves as problem+json.

use std::borrow::Cow;
use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Request};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use leasehold_api::{Code, CursorError};
use leasehold_core::Namespace;
use leasehold_engine::Cursor;
use serde::de::DeserializeOwned;

use crate::convert;
use crate::service::app::App;
use crate::service::caller::Caller;
use crate::service::problems::{Early, Failure};
use crate::service::simple;
use crate::telemetry::traces::TraceContext;

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Infallible> {
        let caller = parts.extensions.get::<Caller>().cloned();
        let caller = caller.expect("every request is given its caller when it comes in");
        Ok(Caller { trace: TraceContext::of(&parts.headers), ..caller })
    }
}

/// The parameters of a query, each to be asked for by name. What nobody asks for is a mistake of the caller's.
#[derive(Debug)]
pub(crate) struct Params(Vec<(String, String)>);

impl Params {
    pub(crate) fn of(uri: &Uri) -> Result<Params, Failure> {
        let mut params: Vec<(String, String)> = Vec::new();
        for pair in uri.query().unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = |text: &str| {
                let text = text.replace('+', " ");
                convert::percent_decoded(&text).map(Cow::into_owned)
            };
            let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
                return Err(Failure::new(Code::InvalidRequest, "the query is not valid UTF-8"));
            };
            if params.iter().any(|(known, _)| *known == name) {
                return Err(Failure::field(name, "is given twice"));
            }
            params.push((name, value));
        }
        Ok(Params(params))
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(known, _)| known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Every call takes a namespace.
    pub(crate) fn namespace(&mut self) -> Result<Namespace, Failure> {
        convert::namespace(self.take("namespace").as_deref())
    }

    /// A whole number, or what it is if left out.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        let Some(text) = self.take(name) else { return Ok(None) };
        let number = whole_number(&text);
        number.map(Some).ok_or_else(|| Failure::field(name, "is not a whole number below 2^53"))
    }

    /// Reads a number within bounds.
    pub(crate) fn size(
        &mut self,
        name: &str,
        default: usize,
        max: usize,
    ) -> Result<usize, Failure> {
        match self.number(name)?.map(usize::try_from) {
            None => Ok(default),
            Some(Ok(size)) if (1..=max).contains(&size) => Ok(size),
            Some(_) => Err(Failure::field(name, format!("must be 1 to {max}"))),
        }
    }

    /// The point that a watcher has come to.
    pub(crate) fn cursor(&mut self, name: &str) -> Result<Option<Cursor>, Failure> {
        self.take(name).map(|text| cursor(name, &text)).transpose()
    }

    /// Nothing may be left.
    pub(crate) fn done(self) -> Result<(), Failure> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(Failure::field(name, "is not a parameter here")),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for Params {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Params, Failure> {
        Params::of(&parts.uri)
    }
}

/// The namespace of a request that has no other parameter.
#[derive(Debug)]
pub(crate) struct OnlyNamespace(pub(crate) Namespace);

impl<S: Sync> FromRequestParts<S> for OnlyNamespace {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<OnlyNamespace, Failure> {
        only_namespace(&parts.uri).map(OnlyNamespace)
    }
}

/// The namespace that a request is about: where it is decided, and later whether its caller may.
pub(crate) fn namespace(uri: &Uri) -> Result<Namespace, Failure> {
    match uri.path() {
        "/lock" => Ok(simple::namespace()),
        _ => Params::of(uri)?.namespace(),
    }
}

/// Digits and nothing else, for a number that JSON and JavaScript keep.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    const MAX: u64 = (1 << 53) - 1;
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&number| digits && number <= MAX)
}

/// The point that a watcher has come to, as it is written in a parameter or a header.
pub(crate) fn cursor(name: &str, text: &str) -> Result<Cursor, Failure> {
    let parsed = text.parse().map(convert::cursor);
    parsed.map_err(|fault: CursorError| Failure::field(name, fault.to_string()))
}

/// The namespace of a request that has no other parameter.
pub(crate) fn only_namespace(uri: &Uri) -> Result<Namespace, Failure> {
    let mut params = Params::of(uri)?;
    let namespace = params.namespace()?;
    params.done()?;
    Ok(namespace)
}

/// A part of a path, decoded.
pub(crate) fn path_part(text: &str) -> Result<Cow<'_, str>, Failure> {
    convert::percent_decoded(text).ok_or_else(|| {
        Failure::new(Code::InvalidRequest, "the path is not valid percent-encoded UTF-8")
    })
}

/// A path that ends in a verb: everything before its last slash, and what follows that.
pub(crate) fn named_and_verb<'a>(uri: &'a Uri, prefix: &str) -> Option<(&'a str, &'a str)> {
    uri.path().strip_prefix(prefix)?.rsplit_once('/')
}

/// The body as JSON. Only an object will do: serde would take an array of the values in order.
pub(crate) async fn json<T: DeserializeOwned>(app: &App, request: Request) -> Result<T, Failure> {
    let (parts, body) = request.into_parts();
    check_content_type(&parts.headers)?;
    parse(&read(app, &parts.headers, body).await?)
}

/// The same, for a body that may be left out.
pub(crate) async fn json_if_any<T: DeserializeOwned + Default>(
    app: &App,
    request: Request,
) -> Result<T, Failure> {
    let (parts, body) = request.into_parts();
    let bytes = read(app, &parts.headers, body).await?;
    if bytes.is_empty() {
        return Ok(T::default());
    }
    check_content_type(&parts.headers)?;
    parse(&bytes)
}

/// Refuses a request that has a body where only the query is read.
pub(crate) async fn no_body(app: &App, request: Request, hint: &str) -> Result<Uri, Failure> {
    let (parts, body) = request.into_parts();
    if read(app, &parts.headers, body).await?.is_empty() {
        return Ok(parts.uri);
    }
    Err(Failure::new(Code::InvalidRequest, format!("this request takes no body: {hint}")))
}

fn check_content_type(headers: &HeaderMap) -> Result<(), Failure> {
    let given = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = given.map(|given| given.split(';').next().unwrap_or("").trim());
    match kind {
        Some(kind) if kind.eq_ignore_ascii_case("application/json") => Ok(()),
        Some(_) | None => {
            Err(Failure::new(Code::UnsupportedMediaType, "send Content-Type: application/json"))
        }
    }
}

async fn read(app: &App, headers: &HeaderMap, body: Body) -> Result<Bytes, Failure> {
    let max = app.config.body_bytes_max;
    let too_large = || Failure::new(Code::TooLarge, format!("the body is larger than {max} bytes"));
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|len: usize| len > max) {
        return Err(too_large());
    }
    let reading = Limited::new(body, max).collect();
    match tokio::time::timeout(app.config.body_timeout, reading).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Failure::new(Code::InvalidRequest, "the body is incomplete")),
        Err(_) => Err(Failure::new(Code::RequestTimeout, "the body did not arrive in time")),
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    if first != Some(&b'{') {
        return Err(Failure::new(Code::InvalidRequest, "the body must be a JSON object"));
    }
    serde_json::from_slice(bytes).map_err(|_| explain::<T>(bytes))
}

/// Reads once more, slowly, to find out which field is wrong.
fn explain<T: DeserializeOwned>(bytes: &[u8]) -> Failure {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let Err(fault) = serde_path_to_error::deserialize::<_, T>(&mut json) else {
        return Failure::new(Code::InvalidRequest, "unexpected data after the JSON object");
    };
    let path = fault.path().to_string();
    let message = plain(&fault.into_inner().to_string());
    let named = message.split('`').nth(1);
    let is_about_a_name = message.starts_with("unknown field")
        || message.starts_with("missing field")
        || message.starts_with("duplicate field");
    let field: Cow<'_, str> = match (named, path.as_str()) {
        (Some(named), "." | "?") if is_about_a_name => named.into(),
        (_, "." | "?") => return Failure::new(Code::InvalidRequest, message),
        (_, path) => path.into(),
    };
    Early {
        code: Code::InvalidRequest,
        detail: message.clone(),
        field: Some((field.into_owned(), message)),
        retry_after: None,
        oldest_revision: None,
        quota: None,
    }
    .into()
}

/// A fault of the parser in words that every caller knows.
fn plain(message: &str) -> String {
    const WORDS: [(&str, &str); 14] = [
        ("expected u64", "expected a whole number"),
        ("expected u32", "expected a whole number"),
        ("expected u8", "expected a whole number"),
        ("expected i64", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected a borrowed string", "expected a string"),
        ("expected a sequence", "expected a list"),
        ("expected a map", "expected an object"),
        ("invalid type: map", "invalid type: object"),
        ("invalid type: sequence", "invalid type: list"),
        ("invalid type: floating point", "invalid type: number"),
        ("invalid type: integer", "invalid type: number"),
        ("unknown variant", "unknown value"),
        ("expected unit", "expected null"),
    ];
    let mut plain = message.to_string();
    for (word, said) in WORDS {
        plain = plain.replace(word, said);
    }
    match plain.split_once("expected struct ") {
        Some((before, after)) => {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
            format!("{before}expected an object{rest}")
        }
        None => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_api::AcquireRequest;
    use leasehold_core::Timestamp;

    #[test]
    fn parameters_are_given_once_and_all_are_known() {
        let params = |text: &str| Params::of(&text.parse().unwrap());
        let mut good = params("/x?prefix=a%2F+b&page_size=3").unwrap();
        assert_eq!(good.take("prefix").as_deref(), Some("a/ b"));
        assert_eq!(good.size("page_size", 10, 100).unwrap(), 3);
        good.done().unwrap();
        assert!(params("/x?a=1&a=2").is_err());
        assert!(params("/x?a=%ff").is_err());
        assert!(params("/x?other=1").unwrap().done().is_err());
        assert!(params("/x?a%62=1&ab=2").is_err(), "a name is compared as it is decoded");
        for text in ["-1", "+1", "1.5", "", "9007199254740992", "99999999999999999999"] {
            assert!(params(&format!("/x?n={text}")).unwrap().number("n").is_err(), "{text}");
        }
    }

    #[test]
    fn namespace_is_the_decoded_one_and_that_of_the_simple_lock_its_own() {
        let of = |text: &str| namespace(&text.parse().unwrap()).map(|name| name.to_string());
        assert_eq!(of("/v1/locks/a").unwrap(), "default");
        assert_eq!(of("/v1/locks/a/renew?name%73pace=t%65am").unwrap(), "team");
        assert_eq!(of("/lock?client=me&ttl=5").unwrap(), simple::NAMESPACE);
        assert_eq!(of("/lock?client=me&namespace=team").unwrap(), simple::NAMESPACE);
        assert!(of("/v1/locks/a?namespace=%ff").is_err());
    }

    #[test]
    fn faults_are_told_without_words_of_the_program() {
        let said = |text: &str| {
            let parsed = parse::<leasehold_api::AcquireSetRequest>(text.as_bytes());
            convert::problem(Timestamp::ZERO, &parsed.unwrap_err()).detail
        };
        for text in [
            r#"{"owner_id":"a","locks":[5]}"#,
            r#"{"owner_id":"a","locks":["x"],"ttl_ms":"5"}"#,
            r#"{"owner_id":"a","locks":["x"],"ttl_ms":1.5}"#,
            r#"{"owner_id":"a","locks":{"x":1}}"#,
            r#"{"owner_id":"a","locks":["x"],"metadata":[]}"#,
            r#"{"owner_id":"a","locks":[{"lock":"x","mode":"none"}]}"#,
            r#"{"owner_id":"a","locks":["x"],"reclaim":"yes"}"#,
        ] {
            let said = said(text);
            for word in ["u64", "struct", "variant", "sequence", "map", "Claim"] {
                assert!(!said.contains(word), "{text}: {said}");
            }
        }
    }

    #[test]
    fn fault_in_a_body_names_its_field() {
        let field = |text: &str| {
            let failure = parse::<AcquireRequest>(text.as_bytes()).unwrap_err();
            let problem = convert::problem(Timestamp::ZERO, &failure);
            assert_eq!(problem.code, Code::InvalidRequest);
            problem.errors.first().map_or(String::new(), |error| error.field.clone())
        };
        assert_eq!(field(r#"{"owner_id":"a","ttl_ms":"5"}"#), "ttl_ms");
        assert_eq!(field(r#"{"owner_id":"a","ttl_ms":1.5}"#), "ttl_ms");
        assert_eq!(field(r#"{"owner_id":"a","ttl":5}"#), "ttl");
        assert_eq!(field(r#"{"ttl_ms":5}"#), "owner_id");
        assert_eq!(field(r#"{"owner_id":"a","owner_id":"b"}"#), "owner_id");
        for text in ["", "[]", "5", "null", "{", "\u{feff}{}", r#"{"owner_id":"a"} x"#] {
            assert_eq!(field(text), "", "{text}");
        }
    }
}
