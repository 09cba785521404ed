//! The console: files that were built into the binary, and the rules under which a browser may show them.

use axum::http::header::{CACHE_CONTROL, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri};
use axum::response::Response;
use leasehold_api::Code;

use crate::http::encode::{Answered, with_type};
use crate::service::problems::Failure;

/// A file of the console, as it lies in the repository.
struct File {
    /// Below `/console/`.
    path: &'static str,
    kind: &'static str,
    etag: &'static str,
    bytes: &'static [u8],
}

// `FILES`, made by `build.rs` from the folder `console`.
include!(concat!(env!("OUT_DIR"), "/console.rs"));

/// Nothing but our own files is loaded, no script stands in a page, nobody puts the console into a frame, and no link
/// tells others where it came from.
const RULES: [(&str, &str); 2] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self' data:; worker-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'",
    ),
    ("x-frame-options", "DENY"),
];

/// The page itself.
pub(crate) async fn front(headers: HeaderMap) -> Answered {
    file("index.html", &headers)
}

/// One of its parts.
pub(crate) async fn part(uri: Uri, headers: HeaderMap) -> Answered {
    file(uri.path().strip_prefix("/console/").unwrap_or(""), &headers)
}

fn file(path: &str, headers: &HeaderMap) -> Answered {
    let Some(file) = FILES.iter().find(|file| file.path == path) else {
        return Err(Failure::new(Code::NotFound, "the console has no such file"));
    };
    let is_known =
        headers.get(IF_NONE_MATCH).and_then(|given| given.to_str().ok()).is_some_and(|given| {
            given.split(',').any(|known| known.trim().trim_start_matches("W/") == file.etag)
        });
    let kind = HeaderValue::from_static(file.kind);
    let mut response = match is_known {
        true => {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        }
        false => with_type(StatusCode::OK, kind, file.bytes),
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, HeaderValue::from_static(file.etag));
    // Kept, but asked for each time: a new server must never be met by an old page.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    for (name, value) in RULES {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}
