//! Rules, roles and the quotas that come with them.

use std::fmt;
use std::time::Duration;

use crate::pattern::{InodePattern, NamePattern, NamespacePattern, PathPattern};
use crate::verb::{Verb, Verbs};

/// Verbs × namespaces × things in them. A rule only allows, and rules add up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub verbs: Verbs,
    /// `None` in a rule about the server alone.
    pub namespace: Option<RuleNamespace>,
    pub names: Vec<NamePattern>,
    pub paths: Vec<PathPattern>,
    pub inodes: Vec<InodePattern>,
    pub fences: Vec<NamePattern>,
    /// All sessions of the namespace.
    pub sessions: bool,
}

/// The namespaces of a rule, or that they are given where the role is used: `{namespace}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleNamespace {
    Pattern(NamespacePattern),
    Given,
}

/// The reason why a rule could never allow what it says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("a rule has at least one verb")]
    NoVerbs,
    #[error("{0} is about things in a namespace: name one")]
    NoNamespace(Verb),
    #[error("{0} has nothing to match: give {1}")]
    NothingFor(Verb, &'static str),
    #[error("{0} match nothing: no verb of the rule is about them")]
    Unused(&'static str),
}

impl Rule {
    /// Allows these verbs on all there is in the namespaces.
    pub(crate) fn on_all_of(verbs: Verbs, namespace: RuleNamespace) -> Rule {
        Rule {
            verbs,
            namespace: Some(namespace),
            names: vec![NamePattern::All],
            paths: vec![PathPattern::Subtree("path:".into())],
            inodes: vec![InodePattern::ALL],
            fences: vec![NamePattern::All],
            sessions: true,
        }
    }

    pub(crate) fn on_server(verbs: Verbs) -> Rule {
        Rule { verbs, ..Rule::default() }
    }

    /// Each verb must have something to be about, and each pattern a verb.
    pub fn check(&self) -> Result<(), RuleError> {
        if self.verbs.is_empty() {
            return Err(RuleError::NoVerbs);
        }
        let mut used = [false; 5];
        for verb in self.verbs.iter().filter(|verb| !verb.is_about_server()) {
            if self.namespace.is_none() {
                return Err(RuleError::NoNamespace(verb));
            }
            let (about, wanted) = objects_of(verb);
            let has = self.has();
            if !(0..5).any(|kind| about[kind] && has[kind]) {
                return Err(RuleError::NothingFor(verb, wanted));
            }
            (0..5).for_each(|kind| used[kind] |= about[kind]);
        }
        let kinds = ["names", "paths", "inodes", "fences", "sessions"];
        match (0..5).find(|&kind| self.has()[kind] && !used[kind]) {
            Some(kind) => Err(RuleError::Unused(kinds[kind])),
            None if self.namespace.is_some() && used == [false; 5] => {
                Err(RuleError::Unused("namespaces"))
            }
            None => Ok(()),
        }
    }

    fn has(&self) -> [bool; 5] {
        [
            !self.names.is_empty(),
            !self.paths.is_empty(),
            !self.inodes.is_empty(),
            !self.fences.is_empty(),
            self.sessions,
        ]
    }
}

/// Names, paths, inodes, fence registers, sessions: those that a verb is about.
fn objects_of(verb: Verb) -> ([bool; 5], &'static str) {
    match verb {
        Verb::Acquire | Verb::Watch | Verb::Break => {
            ([true, true, true, false, false], "names, paths or inodes")
        }
        Verb::Read => ([true, true, true, true, false], "names, paths, inodes or fences"),
        Verb::Fence => ([false, false, false, true, false], "fences"),
        Verb::Remove => ([true, false, true, false, false], "inodes"),
        Verb::Sessions => ([false, false, false, false, true], "sessions = \"*\""),
        Verb::Metrics | Verb::Cluster | Verb::Console | Verb::TokenSelf | Verb::Admin => {
            ([false; 5], "nothing")
        }
    }
}

/// A named list of rules, and a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    pub rules: Vec<Rule>,
    pub quota: Quota,
}

impl Role {
    /// Whether a namespace has to be given where it is used.
    pub fn is_template(&self) -> bool {
        self.rules.iter().any(|rule| rule.namespace == Some(RuleNamespace::Given))
    }

    /// The roles that are always there.
    pub fn built_in(name: &str) -> Option<Role> {
        let everywhere = || RuleNamespace::Pattern(NamespacePattern::All);
        let rules = match name {
            "admin" => {
                let own = NamespacePattern::Below("leasehold.".into());
                let verbs = Verb::ALL.into_iter().fold(Verbs::NONE, Verbs::with);
                vec![
                    Rule::on_all_of(verbs, everywhere()),
                    Rule::on_all_of(verbs, RuleNamespace::Pattern(own)),
                ]
            }
            "operator" => {
                let inside = &[Verb::Read, Verb::Watch, Verb::Break, Verb::Sessions];
                let about = &[Verb::Metrics, Verb::Cluster, Verb::Console, Verb::TokenSelf];
                vec![
                    Rule::on_all_of(Verbs::of(inside), everywhere()),
                    Rule::on_server(Verbs::of(about)),
                ]
            }
            "reader" => vec![
                Rule::on_all_of(Verbs::of(&[Verb::Read, Verb::Watch]), everywhere()),
                Rule::on_server(Verbs::of(&[Verb::Console])),
            ],
            "prometheus" => vec![Rule::on_server(Verbs::of(&[Verb::Metrics]))],
            "client" => {
                let inside = &[Verb::Acquire, Verb::Read, Verb::Watch, Verb::Fence];
                vec![
                    Rule::on_all_of(Verbs::of(inside), RuleNamespace::Given),
                    Rule::on_server(Verbs::of(&[Verb::TokenSelf])),
                ]
            }
            "server" => vec![Rule::on_server(Verbs::of(&[Verb::Cluster]))],
            _ => return None,
        };
        Some(Role { rules, quota: Quota::default() })
    }

    pub const BUILT_IN: [&str; 6] =
        ["admin", "operator", "reader", "prometheus", "client", "server"];
}

/// A role as it is given to a principal: `reader`, or a template with its namespaces, `client:billing`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoleRef {
    pub role: Box<str>,
    pub namespace: Option<NamespacePattern>,
}

/// The reason why a text is not the name of a role, or does not refer to one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    #[error("role {0:?}: a name has 1 to 64 of a-z, 0-9, '.', '_' and '-'")]
    Name(String),
    #[error("role {0}: {1}")]
    Namespace(String, crate::pattern::PatternError),
    #[error("there is no role {0}")]
    Unknown(String),
    #[error("role {0} needs a namespace: write {0}:NAMESPACE")]
    NamespaceMissing(String),
    #[error("role {0} takes no namespace")]
    NamespaceUnused(String),
}

impl RoleRef {
    pub fn parse(text: &str) -> Result<RoleRef, RoleError> {
        let (role, namespace) = match text.split_once(':') {
            None => (text, None),
            Some((role, namespace)) => (role, Some(namespace)),
        };
        check_role_name(role)?;
        let namespace = namespace.map(NamespacePattern::parse).transpose();
        let namespace = namespace.map_err(|fault| RoleError::Namespace(role.into(), fault))?;
        Ok(RoleRef { role: role.into(), namespace })
    }

    /// The rules of the role with the namespace put in.
    pub(crate) fn rules_of(&self, role: &Role) -> Result<Vec<Rule>, RoleError> {
        match (role.is_template(), &self.namespace) {
            (true, None) => return Err(RoleError::NamespaceMissing(self.role.to_string())),
            (false, Some(_)) => return Err(RoleError::NamespaceUnused(self.role.to_string())),
            (true, Some(_)) | (false, None) => {}
        }
        let given = |mut rule: Rule| {
            if let (Some(RuleNamespace::Given), Some(namespace)) =
                (&rule.namespace, &self.namespace)
            {
                rule.namespace = Some(RuleNamespace::Pattern(namespace.clone()));
            }
            rule
        };
        Ok(role.rules.iter().cloned().map(given).collect())
    }
}

impl fmt::Display for RoleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            None => f.write_str(&self.role),
            Some(namespace) => write!(f, "{}:{namespace}", self.role),
        }
    }
}

pub(crate) fn check_role_name(name: &str) -> Result<(), RoleError> {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    let is_good = (1..=64).contains(&name.len()) && name.bytes().all(allowed);
    if is_good { Ok(()) } else { Err(RoleError::Name(name.chars().take(64).collect())) }
}

/// The quotas of a principal; `None` where its roles do not set one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub locks: Option<u64>,
    /// Bytes of names and metadata.
    pub bytes: Option<u64>,
    pub waiters: Option<u64>,
    pub waiter_bytes: Option<u64>,
    pub sessions: Option<u64>,
    pub registers: Option<u64>,
    pub namespaces: Option<u64>,
    pub watches: Option<u64>,
    pub connections: Option<u64>,
    pub ttl_max: Option<Duration>,
    pub wait_max: Option<Duration>,
    pub reclaim_max: Option<Duration>,
}

impl Quota {
    /// The larger of both in everything that either says: rights add up.
    #[must_use]
    pub fn or(&self, other: &Quota) -> Quota {
        Quota {
            locks: self.locks.max(other.locks),
            bytes: self.bytes.max(other.bytes),
            waiters: self.waiters.max(other.waiters),
            waiter_bytes: self.waiter_bytes.max(other.waiter_bytes),
            sessions: self.sessions.max(other.sessions),
            registers: self.registers.max(other.registers),
            namespaces: self.namespaces.max(other.namespaces),
            watches: self.watches.max(other.watches),
            connections: self.connections.max(other.connections),
            ttl_max: self.ttl_max.max(other.ttl_max),
            wait_max: self.wait_max.max(other.wait_max),
            reclaim_max: self.reclaim_max.max(other.reclaim_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_roles_have_rules_that_can_match() {
        for name in Role::BUILT_IN {
            let role = Role::built_in(name).unwrap();
            assert!(!role.rules.is_empty(), "{name}");
            assert_eq!(role.is_template(), name == "client");
        }
        assert_eq!(Role::built_in("root"), None);
    }

    #[test]
    fn rule_that_can_match_nothing_is_refused() {
        let namespace = || Some(RuleNamespace::Pattern(NamespacePattern::All));
        let acquire = Verbs::of(&[Verb::Acquire]);
        let names = || vec![NamePattern::All];
        let rule = Rule { verbs: acquire, namespace: namespace(), ..Rule::default() };
        let wanted = "names, paths or inodes";
        assert_eq!(Rule::default().check(), Err(RuleError::NoVerbs));
        assert_eq!(rule.check(), Err(RuleError::NothingFor(Verb::Acquire, wanted)));
        let whole = Rule { names: names(), ..rule.clone() };
        assert_eq!(whole.check(), Ok(()));
        let nowhere = Rule { namespace: None, ..whole.clone() };
        assert_eq!(nowhere.check(), Err(RuleError::NoNamespace(Verb::Acquire)));
        let fences = Rule { fences: names(), ..whole };
        assert_eq!(fences.check(), Err(RuleError::Unused("fences")));
        let server = Rule { namespace: namespace(), ..Rule::on_server(Verbs::of(&[Verb::Admin])) };
        assert_eq!(server.check(), Err(RuleError::Unused("namespaces")));
    }

    #[test]
    fn role_with_a_namespace_is_a_template() {
        let client = RoleRef::parse("client:team-a.*").unwrap();
        assert_eq!(client.to_string(), "client:team-a.*");
        let rules = client.rules_of(&Role::built_in("client").unwrap()).unwrap();
        let below = NamespacePattern::Below("team-a.".into());
        assert_eq!(rules[0].namespace, Some(RuleNamespace::Pattern(below)));
        let bare = RoleRef::parse("client").unwrap();
        let missing = bare.rules_of(&Role::built_in("client").unwrap()).unwrap_err();
        assert_eq!(missing.to_string(), "role client needs a namespace: write client:NAMESPACE");
        let unused = RoleRef::parse("reader:x").unwrap();
        assert!(unused.rules_of(&Role::built_in("reader").unwrap()).is_err());
        for bad in ["", "Admin", "a b", "client:", "client:app*", &"x".repeat(65)] {
            assert!(RoleRef::parse(bad).is_err(), "{bad:?}");
        }
    }
}
