//! Every operation behind its path. A request that is not in these tables is refused.
//!
//! That stands in front of the service, which decides once more with what was decoded: a path that is forgotten here is
//! closed, not open.

use axum::http::{Method, Uri};
use leasehold_access::Operation;
use leasehold_api::Code;

use crate::service::problems::Failure;

/// The reason why a path stands for no operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Path,
    Method,
}

impl From<Missing> for Failure {
    fn from(missing: Missing) -> Failure {
        match missing {
            Missing::Path => {
                let said = "no resource at this path; /openapi.json lists them all";
                Failure::new(Code::NotFound, said)
            }
            Missing::Method => {
                Failure::new(Code::PermissionDenied, "no operation with this method at this path")
            }
        }
    }
}

/// Method, path and operation. A part in braces stands for any text; the first row that fits counts.
pub(crate) const HTTP: [(&str, &str, Operation); 58] = [
    ("GET", "/livez", Operation::Public),
    ("GET", "/readyz", Operation::Public),
    ("GET", "/openapi.json", Operation::Public),
    ("GET", "/v1/version", Operation::Public),
    ("GET", "/", Operation::Public),
    ("GET", "/console/{path}", Operation::Public),
    ("GET", "/healthz", Operation::Cluster),
    ("GET", "/v1/cluster", Operation::Cluster),
    ("GET", "/v1/limits", Operation::Cluster),
    ("GET", "/metrics", Operation::Metrics),
    // All lease ids and the key of the cluster are in it.
    ("GET", "/v1/backup", Operation::Administer),
    ("POST", "/v1/locks/{lock}/acquire", Operation::Acquire),
    ("POST", "/v1/locks/{lock}/renew", Operation::UseLease),
    ("POST", "/v1/locks/{lock}/release", Operation::UseLease),
    ("POST", "/v1/locks/{lock}/unlock", Operation::Unlock),
    ("POST", "/v1/locks/{lock}/test", Operation::TestLock),
    ("POST", "/v1/locks/{lock}/check", Operation::CheckLock),
    ("POST", "/v1/locks/{lock}/break", Operation::BreakLock),
    ("GET", "/v1/locks/{lock}", Operation::GetLock),
    ("GET", "/v1/locks", Operation::ListLocks),
    ("POST", "/v1/sets/acquire", Operation::Acquire),
    ("GET", "/v1/sessions", Operation::ListSessions),
    ("POST", "/v1/sessions", Operation::OpenSession),
    ("POST", "/v1/sessions/{session_id}/keepalive", Operation::UseLease),
    ("POST", "/v1/sessions/{session}/break", Operation::BreakSession),
    ("GET", "/v1/sessions/{session_id}", Operation::UseLease),
    ("DELETE", "/v1/sessions/{session_id}", Operation::UseLease),
    ("POST", "/v1/fences/{name}/accept", Operation::AcceptFence),
    ("GET", "/v1/fences/{name}", Operation::GetFence),
    ("DELETE", "/v1/fences/{name}", Operation::DeleteFence),
    ("GET", "/v1/fences", Operation::ListFences),
    ("GET", "/v1/tokens/{fencing_token}", Operation::FindToken),
    ("DELETE", "/v1/inodes/{inode}", Operation::RemoveInode),
    ("GET", "/v1/watch", Operation::Watch),
    ("GET", "/v1/events", Operation::Watch),
    ("GET", "/v1/graph", Operation::Graph),
    ("GET", "/v1/history", Operation::History),
    ("GET", "/v1/overview", Operation::Overview),
    ("GET", "/v1/tree", Operation::Tree),
    ("GET", "/lock", Operation::GetLock),
    ("POST", "/lock", Operation::Acquire),
    ("DELETE", "/lock", Operation::UseLease),
    ("GET", "/v1/auth/self", Operation::WhoAmI),
    ("POST", "/v1/auth/login", Operation::Public),
    // With a code; who wants one has to be somebody, which the service looks at.
    ("POST", "/v1/auth/exchange", Operation::Public),
    ("POST", "/v1/auth/logout", Operation::Logout),
    ("POST", "/v1/auth/cluster-key/rotate", Operation::Administer),
    ("GET", "/v1/auth/tokens", Operation::Administer),
    // Of others: only for those who administer, which the service looks at.
    ("POST", "/v1/auth/tokens", Operation::NarrowToken),
    ("POST", "/v1/auth/tokens/{token}/rotate", Operation::Administer),
    ("GET", "/v1/auth/tokens/{token}", Operation::Administer),
    // Others than those that were made of one's own: only for those who administer.
    ("DELETE", "/v1/auth/tokens/{token}", Operation::NarrowToken),
    ("GET", "/v1/auth/roles", Operation::Administer),
    ("GET", "/v1/auth/roles/{role}", Operation::Administer),
    ("PUT", "/v1/auth/roles/{role}", Operation::Administer),
    ("DELETE", "/v1/auth/roles/{role}", Operation::Administer),
    ("POST", "/v1/auth/revocations", Operation::Administer),
    ("POST", "/v1/auth/test", Operation::Administer),
];

/// Method of gRPC and operation; a service followed by a slash stands for all its methods.
pub(crate) const GRPC: [(&str, Operation); 30] = [
    ("/leasehold.v1.Locks/Acquire", Operation::Acquire),
    ("/leasehold.v1.Locks/AcquireSet", Operation::Acquire),
    ("/leasehold.v1.Locks/Renew", Operation::UseLease),
    ("/leasehold.v1.Locks/Release", Operation::UseLease),
    ("/leasehold.v1.Locks/Unlock", Operation::Unlock),
    ("/leasehold.v1.Locks/Test", Operation::TestLock),
    ("/leasehold.v1.Locks/Check", Operation::CheckLock),
    ("/leasehold.v1.Locks/GetToken", Operation::FindToken),
    ("/leasehold.v1.Locks/Get", Operation::GetLock),
    ("/leasehold.v1.Locks/List", Operation::ListLocks),
    ("/leasehold.v1.Locks/Break", Operation::BreakLock),
    ("/leasehold.v1.Locks/GetGraph", Operation::Graph),
    ("/leasehold.v1.Sessions/Open", Operation::OpenSession),
    ("/leasehold.v1.Sessions/KeepAlive", Operation::UseLease),
    ("/leasehold.v1.Sessions/Get", Operation::UseLease),
    ("/leasehold.v1.Sessions/List", Operation::ListSessions),
    ("/leasehold.v1.Sessions/Close", Operation::UseLease),
    ("/leasehold.v1.Sessions/Break", Operation::BreakSession),
    // What it binds to is known with its first message.
    ("/leasehold.v1.Sessions/Attach", Operation::UseLease),
    ("/leasehold.v1.Watch/Watch", Operation::Watch),
    ("/leasehold.v1.Fences/Accept", Operation::AcceptFence),
    ("/leasehold.v1.Fences/Get", Operation::GetFence),
    ("/leasehold.v1.Fences/List", Operation::ListFences),
    ("/leasehold.v1.Fences/Delete", Operation::DeleteFence),
    ("/leasehold.v1.Inodes/Remove", Operation::RemoveInode),
    ("/leasehold.v1.Cluster/Get", Operation::Cluster),
    ("/leasehold.v1.Cluster/GetVersion", Operation::Public),
    ("/grpc.health.v1.Health/", Operation::Public),
    ("/grpc.reflection.v1.ServerReflection/", Operation::Reflection),
    ("/grpc.reflection.v1alpha.ServerReflection/", Operation::Reflection),
];

/// The operation that a request asks for.
pub(super) fn of(is_grpc: bool, method: &Method, uri: &Uri) -> Result<Operation, Missing> {
    if is_grpc {
        return of_grpc(uri.path()).ok_or(Missing::Path);
    }
    let method = if method == Method::HEAD { "GET" } else { method.as_str() };
    let mut fits = HTTP.iter().filter(|(_, path, _)| is_at(path, uri.path())).peekable();
    if fits.peek().is_none() {
        return Err(Missing::Path);
    }
    let found = fits.find(|(known, ..)| *known == method).ok_or(Missing::Method)?;
    let is_verbose = uri.path() == "/readyz" && uri.query().is_some_and(|query| !query.is_empty());
    Ok(if is_verbose { Operation::Cluster } else { found.2 })
}

fn of_grpc(path: &str) -> Option<Operation> {
    let fits = |known: &str| match known.ends_with('/') {
        true => path.starts_with(known),
        false => path == known,
    };
    GRPC.iter().find(|(known, _)| fits(known)).map(|(_, operation)| *operation)
}

/// Whether a path is one of those that a row stands for.
fn is_at(row: &str, path: &str) -> bool {
    let Some((before, rest)) = row.split_once('{') else { return row == path };
    let (_, after) = rest.split_once('}').unwrap_or(("", ""));
    path.len() >= before.len() + after.len() && path.starts_with(before) && path.ends_with(after)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use leasehold_api::grpc::FILE_DESCRIPTOR_SET;
    use prost::Message as _;

    use super::*;

    /// Methods and paths, with what stands in braces left out.
    fn rows() -> BTreeSet<(String, String)> {
        HTTP.iter().map(|(method, path, _)| ((*method).into(), without_names(path))).collect()
    }

    fn without_names(path: &str) -> String {
        match (path.find('{'), path.find('}')) {
            (Some(from), Some(to)) => format!("{}{{}}{}", &path[..from], &path[to + 1..]),
            _ => path.into(),
        }
    }

    #[test]
    fn every_operation_of_the_openapi_document_has_a_row() {
        let document: serde_json::Value =
            serde_json::from_str(crate::http::openapi::document()).expect("it is JSON");
        let rows = rows();
        let mut count = 0;
        for (path, item) in document["paths"].as_object().expect("paths") {
            for method in item.as_object().expect("methods").keys() {
                let row = (method.to_uppercase(), without_names(path));
                assert!(rows.contains(&row), "{row:?} has no operation");
                count += 1;
            }
        }
        assert!(count > 30, "{count}");
    }

    #[test]
    fn every_method_of_the_descriptor_set_has_a_row() {
        let set = prost_types::FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("ours");
        let mut count = 0;
        for file in &set.file {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    assert!(of_grpc(&path).is_some(), "{path} has no operation");
                    count += 1;
                }
            }
        }
        assert!(count > 20, "{count}");
    }

    /// The router as it is written: axum does not tell its routes.
    #[test]
    fn every_route_of_the_router_has_a_row_for_each_of_its_methods() {
        let written = include_str!("../http/router.rs");
        let mut count = 0;
        for route in written.split(".route(\"").skip(1) {
            let (path, handlers) = route.split_once('"').expect("a path in quotes");
            let handlers = handlers.split(".route(").next().unwrap_or("");
            for (method, name) in
                [("GET", "get("), ("POST", "post("), ("DELETE", "delete("), ("PUT", "put(")]
            {
                let stands = |before: char| [' ', '.'].contains(&before);
                let is_there = handlers
                    .match_indices(name)
                    .any(|(at, _)| handlers[..at].chars().next_back().is_some_and(stands));
                if !is_there {
                    continue;
                }
                let path = path.replace("{*", "{");
                let fits = |row: &(&str, &str, Operation)| {
                    let (before, _) = row.1.split_once('{').unwrap_or((row.1, ""));
                    row.0 == method
                        && (is_at(row.1, &path)
                            || before == path
                            || without_names(row.1).starts_with(&without_names(&path)))
                };
                assert!(HTTP.iter().any(fits), "{method} {path} has no operation");
                count += 1;
            }
        }
        assert!(count > 30, "{count}");
    }

    #[test]
    fn only_what_is_meant_to_be_open_is_open() {
        let open = |(method, path, operation): &(&'static str, &'static str, Operation)| {
            (*operation == Operation::Public).then_some((*method, *path))
        };
        let open: Vec<_> = HTTP.iter().filter_map(open).collect();
        let expected =
            ["/livez", "/readyz", "/openapi.json", "/v1/version", "/", "/console/{path}"];
        let logins = ["/v1/auth/login", "/v1/auth/exchange"].map(|path| ("POST", path));
        assert!(open.into_iter().eq(expected.map(|path| ("GET", path)).into_iter().chain(logins)));
        let of = |method: &str, uri: &str| {
            of(false, &method.parse().expect("a method"), &uri.parse().expect("a URI"))
        };
        assert_eq!(of("GET", "/readyz?verbose"), Ok(Operation::Cluster));
        assert_eq!(of("HEAD", "/livez"), Ok(Operation::Public));
        assert_eq!(of("DELETE", "/livez"), Err(Missing::Method));
        assert_eq!(of("GET", "/v1/nothing"), Err(Missing::Path));
        assert_eq!(of("POST", "/v1/locks/a/b/acquire"), Ok(Operation::Acquire));
        assert_eq!(of("GET", "/v1/locks/a/acquire"), Ok(Operation::GetLock));
        assert_eq!(of("POST", "/v1/locks/a"), Err(Missing::Method));
    }
}
