//! A field of the JSON messages is a field of the gRPC message of that name as well, and the other way round.
//!
//! Durations are `ttl_ms` here and `ttl` there. Whatever stands in one of the two alone is listed below with its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A message, and a field of it.
type Alone = (&'static str, &'static str);

/// In JSON alone; `*` stands for every message.
const JSON_ALONE: &[Alone] = &[
    // Also in `expires_at`, which is a moment in gRPC.
    ("*", "lease_expiry"),
    // In gRPC a message that comes says it.
    ("Accepted", "accepted"),
    ("Closed", "closed"),
    ("Released", "released"),
    // The drawing, and what belongs to HTTP.
    ("Graph", "size"),
    ("Node", "place"),
    ("Problem", "checks"),
    ("Problem", "kind"),
    ("Problem", "status"),
    ("Problem", "title"),
    ("RegisterPage", "fences"),
];

/// In gRPC alone.
const PROTO_ALONE: &[Alone] = &[
    // In the path or the query of an HTTP request.
    ("*", "lock"),
    ("*", "namespace"),
    ("AcceptRequest", "name"),
    ("BreakSessionRequest", "session"),
    ("KeepAliveRequest", "session_id"),
    // A wait over HTTP has an end. `reclaim` is a wish in both; `reclaim_ms` has this name in gRPC.
    ("*", "wait_forever"),
    ("*", "reclaim_window"),
    ("RegisterPage", "registers"),
];

/// Messages that share a name and nothing else: a place in a drawing and one in a queue; an event and its variants.
const OTHERS: &[&str] = &["Place", "Event"];

type Messages = BTreeMap<String, BTreeSet<String>>;

#[test]
fn no_field_is_forgotten_on_one_of_the_two_wires() {
    let (json, proto) = (of_json(), of_proto());
    let mut compared = 0;
    for (name, fields) in json.iter().filter(|(name, _)| !OTHERS.contains(&name.as_str())) {
        let Some(others) = proto.get(name) else { continue };
        compared += 1;
        let forgotten = |one: &BTreeSet<String>, other: &BTreeSet<String>, listed: &[Alone]| {
            let is_listed = |field: &String| {
                listed.iter().any(|(of, alone)| (*of == "*" || of == name) && alone == field)
            };
            one.difference(other).filter(|field| !is_listed(field)).cloned().collect::<Vec<_>>()
        };
        let missing = forgotten(fields, others, JSON_ALONE);
        assert!(missing.is_empty(), "{name} of the .proto file lacks {missing:?}");
        let missing = forgotten(others, fields, PROTO_ALONE);
        assert!(missing.is_empty(), "{name} of the JSON messages lacks {missing:?}");
    }
    assert!(compared > 40, "only {compared} messages were found in both");
}

/// The public fields of the structs in this crate, without units.
fn of_json() -> Messages {
    let mut messages = Messages::new();
    let sources = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    for entry in sources.expect("a directory of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            continue;
        }
        let mut fields: Option<&mut BTreeSet<String>> = None;
        for line in fs::read_to_string(&path).expect("a source").lines() {
            if let Some(rest) = line.strip_prefix("pub struct ") {
                let name = rest.trim_end_matches([' ', '{']);
                fields = Some(messages.entry(name.into()).or_default());
            } else if line == "}" {
                fields = None;
            } else if let Some((field, _)) =
                line.strip_prefix("    pub ").and_then(|rest| rest.split_once(": "))
                && let Some(fields) = &mut fields
            {
                fields.insert(without_unit(field));
            }
        }
    }
    messages
}

/// The fields of the messages in the .proto file, those of a `oneof` too.
fn of_proto() -> Messages {
    let mut messages = Messages::new();
    let (mut inside, mut depth) = (String::new(), 0);
    for line in include_str!("../proto/leasehold/v1/leasehold.proto").lines() {
        let line = line.split("//").next().unwrap_or_default().trim();
        if let Some(rest) = line.strip_prefix("message ")
            && depth == 0
        {
            inside = rest.trim_end_matches([' ', '{', '}']).into();
            messages.entry(inside.clone()).or_default();
        }
        let field = line.split_once(" = ").and_then(|(left, _)| left.rsplit(' ').next());
        if let Some(field) = field.filter(|field| !field.starts_with(char::is_uppercase))
            && let Some(fields) = messages.get_mut(&inside)
        {
            fields.insert(without_unit(field));
        }
        depth += line.matches('{').count();
        depth -= line.matches('}').count();
        if depth == 0 {
            inside.clear();
        }
    }
    messages
}

fn without_unit(field: &str) -> String {
    field.replace("_ms", "")
}
