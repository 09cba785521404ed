//! What is wanted of the rows, as ratios within one run: a library beside a library, a bare client beside a bare client.

use crate::load::{Load, Row};

/// What of a row counts.
#[derive(Clone, Copy)]
enum Of {
    Rate,
    P50,
    ServerCpu,
    ClientCpu,
}

#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
    /// Shown only.
    None,
}

use Bound::{AtLeast, AtMost};
use Of::{ClientCpu, P50, Rate, ServerCpu};

/// What is compared, of which row, with which other row if any, and what is wanted.
type Wanted = (&'static str, Of, &'static str, Option<&'static str>, Bound);

const WANTED: &[Wanted] = &[
    ("SDK against Redis, not durable", Rate, "sdk", Some("redis"), AtLeast(0.5)),
    ("SDK against Redis, appendfsync always", Rate, "sdk", Some("redis-durable"), AtLeast(2.0)),
    ("SDK against etcd's lock service", Rate, "sdk", Some("etcd"), AtLeast(12.0)),
    ("SDK, client CPU, us a pair", ClientCpu, "sdk", None, AtMost(6.0)),
    ("HTTP against Redis, appendfsync always", Rate, "http", Some("redis-durable"), AtLeast(0.7)),
    ("HTTP, server CPU, us a pair", ServerCpu, "http", None, AtMost(38.0)),
    ("HTTP against Redis, not durable", Rate, "http", Some("redis"), Bound::None),
    ("bare stream against bare Redis, not durable", Rate, "raw", Some("redis-bare"), Bound::None),
    (
        "bare stream against bare Redis, appendfsync always",
        Rate,
        "raw",
        Some("redis-bare-durable"),
        Bound::None,
    ),
    ("SDK against the bare stream", Rate, "sdk", Some("raw"), Bound::None),
    (
        "one worker: server CPU, against appendfsync always",
        ServerCpu,
        "lone-sdk",
        Some("lone-redis"),
        AtMost(1.2),
    ),
    (
        "one worker: p50 of an acquire, against the same",
        P50,
        "lone-sdk",
        Some("lone-redis"),
        AtMost(1.7),
    ),
    ("one lock: hand-overs a second, SDK", Rate, "hot-sdk", None, AtLeast(4_500.0)),
    ("one lock: against PostgreSQL", Rate, "hot-sdk", Some("hot-postgres"), AtLeast(1.2)),
    ("one lock: bare stream, against PostgreSQL", Rate, "hot", Some("hot-postgres"), Bound::None),
    ("one lock: hand-overs a second, bare stream", Rate, "hot", None, AtLeast(5_000.0)),
    ("with tokens, bare stream", Rate, "token-raw", Some("raw"), AtLeast(0.97)),
    ("with tokens, SDK", Rate, "token-sdk", Some("sdk"), AtLeast(0.97)),
    ("with tokens, HTTP", Rate, "token-http", Some("http"), AtLeast(0.95)),
    ("with tokens and TLS, SDK", Rate, "tls-sdk", Some("sdk"), Bound::None),
    ("renewals a second", Rate, "renew", None, AtLeast(100_000.0)),
];

impl Of {
    fn value(self, load: &Load) -> f64 {
        match self {
            Rate => load.rate(),
            P50 => load.p50.as_secs_f64(),
            ServerCpu => load.server_micros(),
            ClientCpu => load.client_micros(),
        }
    }
}

/// Each line whose rows were both measured.
pub(crate) fn show(rows: &[(&str, Row)]) {
    let value = |wanted: &str, of: Of| {
        let (_, row) = rows.iter().find(|(key, _)| *key == wanted)?;
        Some(of.value(&row.median()?))
    };
    for (what, of, ours, theirs, bound) in WANTED.iter().copied() {
        let Some(ours) = value(ours, of) else { continue };
        let (value, unit) = match theirs.map(|theirs| value(theirs, of)) {
            None => (ours, ""),
            Some(Some(theirs)) => (ours / theirs, "x"),
            Some(None) => continue,
        };
        println!("{what:<52} {value:>9.2}{unit:<1}  {}", verdict(value, bound));
    }
}

fn verdict(value: f64, bound: Bound) -> String {
    let said = |is_met, sign, bound| {
        format!("wanted {sign} {bound}: {}", if is_met { "met" } else { "missed" })
    };
    match bound {
        AtLeast(bound) => said(value >= bound, ">=", bound),
        AtMost(bound) => said(value <= bound, "<=", bound),
        Bound::None => String::new(),
    }
}
