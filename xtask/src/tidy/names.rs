//! One word, one type: names that may stand for one thing only, and names that the glossary has replaced.

use super::files::File;
use super::{Fault, Found, numbered};

/// Types that are named all over the code. Each is defined once outside tests.
const ONCE: &[&str] = &[
    "CallEnvelope",
    "Caller",
    "Chunk",
    "Compensation",
    "ConnectError",
    "ConnectionLimiter",
    "ConnectionPermit",
    "Control",
    "DeliveryGuard",
    "EngineConfig",
    "Epoch",
    "FaultyJournal",
    "Fence",
    "FencingToken",
    "Handle",
    "Heartbeat",
    "Inbound",
    "InjectedFault",
    "Journal",
    "JournalCaps",
    "LeaseIdx",
    "LeaseView",
    "LeaseWindow",
    "LockTable",
    "LoopEvent",
    "Member",
    "MeteredIo",
    "Metrics",
    "NamespaceIdx",
    "NamespaceState",
    "OwnerIdx",
    "Peer",
    "Port",
    "PortEvent",
    "ProblemRewriter",
    "Readings",
    "ReplyQueue",
    "Runner",
    "Samples",
    "Scope",
    "Seq",
    "Status",
];

/// No type has such a name any more, and the one to take.
const GONE: &[(&str, &str)] = &[
    ("Announced", "Peer"),
    ("Beat", "Heartbeat"),
    ("Complaint", "ConnectError"),
    ("Crowd", "ConnectionLimiter"),
    ("Dice", "Rng"),
    ("Dressed", "ProblemRewriter"),
    ("Gift", "DeliveryGuard"),
    ("KnownGrant", "RetryableGrant"),
    ("LeaseNo", "LeaseIdx"),
    ("Letters", "ReplyBatch"),
    ("Lulls", "CommitDelay"),
    ("Mailbox", "ReplyQueue"),
    ("Mishap", "InjectedFault"),
    ("Mood", "InjectedFault"),
    ("OwnerNo", "OwnerIdx"),
    ("Parcel", "CallEnvelope"),
    ("Portion", "BatchLimit"),
    ("Space", "NamespaceState"),
    ("SpaceNo", "NamespaceIdx"),
    ("Traits", "JournalCaps"),
];

const CRATES: &str = "crates/";
/// The machine of the client has a heartbeat of each lease, which nobody else names.
const BEAT_OF_THE_CLIENT: &str = "crates/client/src/machine/entry.rs";

pub(super) fn faults(files: &[File]) -> Vec<Fault> {
    let mut defined: Vec<(&str, &str, usize)> = files.iter().flat_map(definitions).collect();
    defined.sort_unstable();
    let mut faults = Vec::new();
    for (at, &(name, path, line)) in defined.iter().enumerate() {
        let mut fault = |what: String| {
            faults.push(Fault { path: path.into(), found: Found::new(line, what) });
        };
        if let Some((_, better)) = GONE.iter().find(|(gone, _)| *gone == name)
            && path != BEAT_OF_THE_CLIENT
        {
            fault(format!("the glossary has another name for `{name}`: {better}"));
        }
        let first = defined[..at].iter().find(|(other, ..)| *other == name);
        if let Some((_, first, _)) = first.filter(|_| ONCE.contains(&name)) {
            fault(format!("`{name}` is defined in {first}: one name, one thing"));
        }
    }
    faults
}

/// The types that a file of a crate defines, but for those of tests and benches.
fn definitions(file: &File) -> impl Iterator<Item = (&str, &str, usize)> {
    let is_source = file.path.starts_with(CRATES)
        && file.path.contains("/src/")
        && file.path.ends_with(".rs")
        && !file.path.contains("/tests");
    let lines = numbered(&file.text).take_while(|(_, line)| line.trim() != "#[cfg(test)]");
    let defined = lines.filter_map(|(number, line)| Some((defined(line)?, number)));
    defined.filter(move |_| is_source).map(|(name, number)| (name, file.path.as_str(), number))
}

fn defined(line: &str) -> Option<&str> {
    // Associated types and those inside functions are indented: they are seen where they are.
    let line = line.strip_prefix("pub").unwrap_or(line);
    let line = line.strip_prefix("(crate)").or(line.strip_prefix("(super)")).unwrap_or(line);
    let (kind, rest) = line.trim_start().split_once(' ')?;
    let is_type = !line.starts_with("    ") && ["struct", "enum", "trait", "type"].contains(&kind);
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    is_type.then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(texts: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<File> = texts.iter().map(|(path, text)| File::new(path, text)).collect();
        faults(&files).iter().map(Fault::to_string).collect()
    }

    #[test]
    fn second_definition_is_found() {
        let texts = [
            ("crates/a/src/x.rs", "//! X.\npub struct Caller;\n"),
            ("crates/b/src/y.rs", "//! Y.\npub(crate) enum Caller<T> {\n"),
            ("crates/b/src/z.rs", "//! Z.\nstruct CallerOfOthers;\nstruct Waiting;\n"),
            ("crates/c/src/z.rs", "//! Z.\nstruct Waiting;\n"),
        ];
        let what = "`Caller` is defined in crates/a/src/x.rs: one name, one thing";
        assert_eq!(found(&texts), [format!("crates/b/src/y.rs:2: {what}")]);
    }

    #[test]
    fn tests_may_name_their_types_as_they_like() {
        let inside = "//! X.\n#[cfg(test)]\nmod tests {\n}\nstruct Caller;\n";
        let texts = [
            ("crates/a/src/x.rs", "//! X.\npub struct Caller;\n"),
            ("crates/b/src/x.rs", inside),
            ("crates/b/tests/x.rs", "//! X.\nstruct Caller;\n"),
        ];
        assert_eq!(found(&texts), [""; 0]);
    }

    #[test]
    fn name_that_was_replaced_is_found() {
        let what = "the glossary has another name for `Mood`: InjectedFault";
        let texts = [("crates/a/src/x.rs", "//! X.\n\nenum Mood {\n")];
        assert_eq!(found(&texts), [format!("crates/a/src/x.rs:3: {what}")]);
    }

    #[test]
    fn lists_are_in_order_and_do_not_overlap() {
        assert!(ONCE.is_sorted() && GONE.is_sorted());
        assert!(GONE.iter().all(|(gone, _)| !ONCE.contains(gone)));
    }
}
