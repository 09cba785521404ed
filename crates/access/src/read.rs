//! Roles and tokens out of a tree, and back into JSON.
#![allow(clippy::wildcard_enum_match_arm, reason = "a value of any other kind is refused")]

use std::time::Duration;

use leasehold_core::Principal;
use serde_json::json;

use crate::network::Network;
use crate::pattern::{InodePattern, NamePattern, NamespacePattern, PathPattern};
use crate::principal::{self, Use};
use crate::record::TokenRecord;
use crate::rule::{Quota, Role, RoleRef, Rule, RuleNamespace};
use crate::token::{SecretHash, TokenId};
use crate::tree::{Fault, Node, Value};
use crate::verb::{Verb, Verbs};

/// The most rules in a role, and the most patterns of a kind in a rule.
const RULES_MAX: usize = 256;
const ROLES_OF_TOKEN_MAX: usize = 64;
const NOTE_LEN_MAX: usize = 256;
const GIVEN: &str = "{namespace}";

pub(crate) fn role(node: &Node) -> Result<Role, Fault> {
    let mut fields = node.fields("a role")?;
    let rules = rules(fields.need("rules")?)?;
    let quota = fields.take("quota").map(quota).transpose()?.unwrap_or_default();
    skip_version(&mut fields, node);
    fields.finish()?;
    Ok(Role { rules, quota })
}

pub(crate) fn rules(node: &Node) -> Result<Vec<Rule>, Fault> {
    node.list("rules", RULES_MAX)?.iter().map(rule).collect()
}

fn rule(node: &Node) -> Result<Rule, Fault> {
    let mut fields = node.fields("a rule")?;
    let mut verbs = Verbs::NONE;
    for item in fields.need("verbs")?.list("verbs", Verb::ALL.len())? {
        let name = item.text("a verb")?;
        let verb = Verb::parse(name).ok_or_else(|| {
            let all: Vec<&str> = Verb::ALL.into_iter().map(Verb::as_str).collect();
            item.fault(format_args!("there is no verb {name:?}; there are {}", all.join(", ")))
        })?;
        verbs = verbs.with(verb);
    }
    let namespace = fields.take("namespace").map(namespace_of_rule).transpose()?;
    let names = patterns(fields.take("names"), "names", NamePattern::parse)?;
    let paths = patterns(fields.take("paths"), "paths", PathPattern::parse)?;
    let fences = patterns(fields.take("fences"), "fences", NamePattern::parse_register)?;
    let inodes = fields.take("inodes").map_or(Ok(Vec::new()), inodes)?;
    let sessions = match fields.take("sessions") {
        None => false,
        Some(all) if all.text("sessions")? == "*" => true,
        Some(other) => return Err(other.fault("sessions is \"*\" or left out")),
    };
    fields.finish()?;
    let rule = Rule { verbs, namespace, names, paths, inodes, fences, sessions };
    rule.check().map_err(|fault| node.fault(fault))?;
    Ok(rule)
}

fn namespace_of_rule(node: &Node) -> Result<RuleNamespace, Fault> {
    match node.text("namespace")? {
        GIVEN => Ok(RuleNamespace::Given),
        text => {
            let pattern = NamespacePattern::parse(text).map_err(|fault| node.fault(fault))?;
            Ok(RuleNamespace::Pattern(pattern))
        }
    }
}

/// A list of patterns, or a single one.
fn patterns<T, E: std::fmt::Display>(
    node: Option<&Node>,
    what: &str,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, Fault> {
    let Some(node) = node else { return Ok(Vec::new()) };
    let items = match &node.value {
        Value::Text(_) => std::slice::from_ref(node),
        _ => node.list(what, RULES_MAX)?,
    };
    let read = |item: &Node| parse(item.text(what)?).map_err(|fault| item.fault(fault));
    items.iter().map(read).collect()
}

fn inodes(node: &Node) -> Result<Vec<InodePattern>, Fault> {
    let items = match &node.value {
        Value::Text(_) | Value::Number(_) => std::slice::from_ref(node),
        _ => node.list("inodes", RULES_MAX)?,
    };
    let read = |item: &Node| match item.value {
        Value::Number(number) => Ok(InodePattern(number..=number)),
        _ => InodePattern::parse(item.text("an inode")?).map_err(|fault| item.fault(fault)),
    };
    items.iter().map(read).collect()
}

fn quota(node: &Node) -> Result<Quota, Fault> {
    let mut fields = node.fields("a quota")?;
    let mut number = |name| fields.take(name).map(|node| node.number(name)).transpose();
    let mut quota = Quota {
        locks: number("locks")?,
        bytes: number("bytes")?,
        waiters: number("waiters")?,
        waiter_bytes: number("waiter_bytes")?,
        sessions: number("sessions")?,
        registers: number("registers")?,
        namespaces: number("namespaces")?,
        watches: number("watches")?,
        connections: number("connections")?,
        ..Quota::default()
    };
    let mut length = |name| fields.take(name).map(|node| duration(node, name)).transpose();
    quota.ttl_max = length("ttl_max")?;
    quota.wait_max = length("wait_max")?;
    quota.reclaim_max = length("reclaim_max")?;
    fields.finish()?;
    Ok(quota)
}

/// `500ms`, `30s`, `5m`, `1h` or `7d`.
fn duration(node: &Node, what: &str) -> Result<Duration, Fault> {
    let fault =
        || node.fault(format_args!("{what} is a duration such as \"30s\", \"5m\" or \"1h\""));
    let text = node.text(what)?;
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(fault)?;
    let (number, unit) = text.split_at(unit_at);
    let millis: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(fault()),
    };
    let number: u64 = number.parse().map_err(|_| fault())?;
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(fault)
}

pub(crate) fn role_refs(node: &Node) -> Result<Vec<RoleRef>, Fault> {
    let read =
        |item: &Node| RoleRef::parse(item.text("a role")?).map_err(|fault| item.fault(fault));
    node.list("roles", ROLES_OF_TOKEN_MAX)?.iter().map(read).collect()
}

pub(crate) fn principal_of(node: &Node, text: &str, of: Use) -> Result<Principal, Fault> {
    principal::parse(text, of).map_err(|fault| node.fault(fault))
}

pub(crate) fn token_id(node: &Node) -> Result<TokenId, Fault> {
    TokenId::parse(node.text("id")?)
        .ok_or_else(|| node.fault("id is the twelve characters behind lk_, without the secret"))
}

/// A token as it stands in a file, or in a document with what only the server writes.
pub(crate) fn token(node: &Node) -> Result<TokenRecord, Fault> {
    let mut fields = node.fields("a token")?;
    let id = token_id(fields.need("id")?)?;
    let principal = fields.need("principal")?;
    let principal = principal_of(principal, principal.text("principal")?, Use::Token)?;
    let hash = fields.need("sha256")?;
    let hash = SecretHash::parse(hash.text("sha256")?).ok_or_else(|| {
        hash.fault("sha256 has 64 hexadecimal digits: `leasehold token hash` makes them of a token")
    })?;
    let mut time = |name| fields.take(name).map(|node| node.time(name)).transpose();
    let (not_before, expires) = (time("not_before")?, time("expires")?);
    let roles = role_refs(fields.need("roles")?)?;
    let networks = patterns(fields.take("cidrs"), "cidrs", str::parse::<Network>)?;
    let note = match fields.take("note") {
        None => String::new(),
        Some(note) if note.text("note")?.len() > NOTE_LEN_MAX => {
            return Err(note.fault(format_args!("note is longer than {NOTE_LEN_MAX} bytes")));
        }
        Some(note) => note.text("note")?.into(),
    };
    let mut record = TokenRecord {
        id,
        principal,
        roles,
        hash,
        note,
        not_before,
        expires,
        networks,
        created: None,
        created_by: None,
        parent: None,
        rules: None,
    };
    if node.line.is_none() {
        record.created = fields.take("created").map(|node| node.time("created")).transpose()?;
        record.parent = fields.take("parent").map(token_id).transpose()?;
        record.rules = fields.take("rules").map(rules).transpose()?;
        if let Some(by) = fields.take("created_by") {
            record.created_by = Some(principal_of(by, by.text("created_by")?, Use::Named)?);
        }
    }
    skip_version(&mut fields, node);
    fields.finish()?;
    Ok(record)
}

/// Documents carry a version, which was checked when they were read.
fn skip_version(fields: &mut crate::tree::Fields<'_>, node: &Node) {
    if node.line.is_none() {
        fields.take("v");
    }
}

pub(crate) fn role_json(role: &Role) -> serde_json::Value {
    json!({ "v": 1, "rules": rules_json(&role.rules), "quota": quota_json(&role.quota) })
}

fn rules_json(rules: &[Rule]) -> serde_json::Value {
    let texts = |all: Vec<String>| (!all.is_empty()).then_some(all);
    let rules = rules.iter().map(|rule| {
        let verbs: Vec<&str> = rule.verbs.iter().map(Verb::as_str).collect();
        let namespace = rule.namespace.as_ref().map(|namespace| match namespace {
            RuleNamespace::Given => GIVEN.into(),
            RuleNamespace::Pattern(pattern) => pattern.to_string(),
        });
        without_nulls(json!({
            "verbs": verbs,
            "namespace": namespace,
            "names": texts(rule.names.iter().map(ToString::to_string).collect()),
            "paths": texts(rule.paths.iter().map(ToString::to_string).collect()),
            "inodes": texts(rule.inodes.iter().map(ToString::to_string).collect()),
            "fences": texts(rule.fences.iter().map(ToString::to_string).collect()),
            "sessions": rule.sessions.then_some("*"),
        }))
    });
    rules.collect()
}

fn quota_json(quota: &Quota) -> serde_json::Value {
    let length =
        |length: Option<Duration>| length.map(|length| format!("{}ms", length.as_millis()));
    without_nulls(json!({
        "locks": quota.locks,
        "bytes": quota.bytes,
        "waiters": quota.waiters,
        "waiter_bytes": quota.waiter_bytes,
        "sessions": quota.sessions,
        "registers": quota.registers,
        "namespaces": quota.namespaces,
        "watches": quota.watches,
        "connections": quota.connections,
        "ttl_max": length(quota.ttl_max),
        "wait_max": length(quota.wait_max),
        "reclaim_max": length(quota.reclaim_max),
    }))
}

pub(crate) fn token_json(token: &TokenRecord) -> serde_json::Value {
    let roles: Vec<String> = token.roles.iter().map(ToString::to_string).collect();
    let networks: Vec<String> = token.networks.iter().map(ToString::to_string).collect();
    without_nulls(json!({
        "v": 1,
        "id": token.id.as_str(),
        "principal": token.principal.as_str(),
        "roles": roles,
        "sha256": token.hash.to_string(),
        "note": (!token.note.is_empty()).then_some(&token.note),
        "not_before": token.not_before,
        "expires": token.expires,
        "cidrs": (!networks.is_empty()).then_some(networks),
        "created": token.created,
        "created_by": token.created_by.as_ref().map(Principal::as_str),
        "parent": token.parent.as_ref().map(TokenId::as_str),
        "rules": token.rules.as_deref().map(rules_json),
    }))
}

/// The table without the keys that are not set.
fn without_nulls(mut table: serde_json::Value) -> serde_json::Value {
    if let Some(fields) = table.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    table
}
