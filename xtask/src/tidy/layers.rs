//! Who may name whom inside the server: transports decode and encode, the service decides, counts and delivers.

use super::files::File;
use super::{Found, numbered};

const SERVER: &str = "crates/server/src/";

/// A part of the server, what it may not name, and why.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("http/", "crate::grpc", "a transport knows no other"),
    ("http/", "leasehold_api::grpc", "a transport knows no other"),
    ("grpc/", "crate::http", "a transport knows no other"),
    ("service/", "crate::http", "the service knows no transport"),
    ("service/", "crate::grpc", "the service knows no transport"),
    ("service/", "crate::convert", "the service speaks the core's types"),
];

/// Names the core's types.
const CORE: &str = "leasehold_core";
/// The service, the decoders and encoders around it, and what reads principals, namespaces, limits, figures and traces. Nothing
/// else knows what a lock is: connections, the console's files, access logs.
const KNOWS_THE_CORE: &[&str] = &[
    "access/",
    "audit/grants.rs",
    "cluster/",
    "config/",
    "convert/",
    "grpc/",
    "http/",
    "lib.rs",
    "quota.rs",
    "server.rs",
    "service/",
    "telemetry/metrics.rs",
    "telemetry/readings.rs",
    "telemetry/traces",
    "token_seed.rs",
];

/// All that the service may name of the wire.
const OF_THE_WIRE: &str = "use leasehold_api::Code;";

/// Counts one operation; the metrics themselves are tested with it.
const COUNTING: &str = "metrics.answered(";
const COUNTED_IN: &str = "service/operation.rs";
const METRICS: &str = "telemetry/metrics.rs";

pub(super) fn faults(file: &File) -> Vec<Found> {
    let Some(path) = file.path.strip_prefix(SERVER) else { return Vec::new() };
    let mut found = Vec::new();
    let mut counted = 0;
    let knows_the_core = KNOWS_THE_CORE.iter().any(|part| path.starts_with(part));
    for (number, line) in numbered(&file.text) {
        if !knows_the_core && line.contains(CORE) {
            let what = "only the service, decoders and a few others listed in tidy name the core";
            found.push(Found::new(number, what));
        }
        for (part, name, why) in FORBIDDEN {
            if path.starts_with(part) && line.contains(name) {
                found.push(Found::new(number, format!("`{name}` in {part}: {why}")));
            }
        }
        if path.starts_with("service/") && line.contains("leasehold_api") && line != OF_THE_WIRE {
            let what = "the service names nothing of the wire but its codes";
            found.push(Found::new(number, what));
        }
        if path != METRICS && line.contains(COUNTING) {
            counted += 1;
            if path != COUNTED_IN || counted > 1 {
                let what = format!("operations are counted in one place of {COUNTED_IN}");
                found.push(Found::new(number, what));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<usize> {
        let file = File::new(&format!("{SERVER}{path}"), text);
        faults(&file).into_iter().map(|found| found.line).collect()
    }

    #[test]
    fn each_forbidden_name_is_found_in_its_part_alone() {
        for (part, name, _) in FORBIDDEN {
            let text = format!("//! Text.\nuse {name}::x;\n");
            assert_eq!(found(&format!("{part}a.rs"), &text), [2], "{name}");
            assert_eq!(found("convert/a.rs", &text), [0; 0]);
        }
        assert_eq!(found("grpc/a.rs", "use axum::http::Request;"), [0; 0]);
    }

    #[test]
    fn service_may_name_codes_and_nothing_else_of_the_wire() {
        assert_eq!(found("service/a.rs", "use leasehold_api::Code;"), [0; 0]);
        assert_eq!(found("service/a.rs", "use leasehold_api::{Code, Problem};"), [1]);
        assert_eq!(found("service/a.rs", "fn f() -> leasehold_api::Grant;"), [1]);
    }

    #[test]
    fn core_is_named_where_locks_are_known() {
        for path in ["service/a.rs", "http/a.rs", "grpc/stream/a.rs", "convert/a.rs"] {
            assert_eq!(found(path, "use leasehold_core::Scope;"), [0; 0]);
        }
        for path in ["net/a.rs", "console/a.rs", "telemetry/access_log.rs", "listen.rs"] {
            assert_eq!(found(path, "use leasehold_core::Scope;"), [1], "{path}");
        }
    }

    #[test]
    fn operations_are_counted_once() {
        let line = "self.metrics.answered(op, took, outcome);\n";
        assert_eq!(found(COUNTED_IN, line), [0; 0]);
        assert_eq!(found(COUNTED_IN, &line.repeat(2)), [2]);
        assert_eq!(found("http/locks.rs", line), [1]);
        assert_eq!(found(METRICS, &line.repeat(3)), [0; 0]);
    }
}
