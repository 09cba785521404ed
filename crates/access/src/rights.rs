//! Rights: what the roles of a principal come to, in a form that answers quickly.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold_core::{Namespace, RegisterName, Scope, ScopeKind};

use crate::operation::{Need, Operation};
use crate::pattern::{NamePattern, PathPattern, is_flock, root_of, roots_of};
use crate::rule::{Quota, Role, RoleError, RoleRef, Rule, RuleNamespace};
use crate::verb::{Verb, Verbs};
use crate::visible::Visible;

/// The rights of a principal: the rules of all its roles together.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    rules: Vec<(Rule, Arc<Source>)>,
    quota: Quota,
    /// The restriction of a narrower token.
    within: Option<Arc<Rights>>,
}

/// The rule that allowed something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    pub role: Box<str>,
    /// Counted from one.
    pub rule: usize,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rule {} of role {}", self.rule, self.role)
    }
}

/// The object of an operation, decoded once and used by the handler too.
#[derive(Clone, Copy, Debug)]
pub enum Object<'a> {
    /// The server, or what needs a principal only.
    Server,
    Namespace(&'a Namespace),
    Scopes(&'a Namespace, &'a [&'a Scope]),
    Register(&'a Namespace, &'a RegisterName),
}

/// A refusal: one of these verbs was needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    pub verbs: Verbs,
    /// The index of the scope in a set.
    pub claim: usize,
}

impl Rights {
    /// Of a principal without any role.
    pub fn none() -> Rights {
        Rights::default()
    }

    /// The rights that every caller has while authentication is off: those of `admin`.
    pub fn all() -> Rights {
        let mut rights = Rights::none();
        let admin = RoleRef { role: "admin".into(), namespace: None };
        let role = Role::built_in("admin").expect("it is built in");
        rights.add(&admin, &role).expect("it is no template");
        rights
    }

    /// Adds what a role allows.
    pub fn add(&mut self, given: &RoleRef, role: &Role) -> Result<(), RoleError> {
        for (at, rule) in given.rules_of(role)?.into_iter().enumerate() {
            let source = Source { role: given.to_string().into(), rule: at + 1 };
            self.rules.push((rule, Arc::new(source)));
        }
        self.quota = self.quota.or(&role.quota);
        Ok(())
    }

    /// Only what these rules allow as well.
    #[must_use]
    pub fn narrowed(mut self, rules: &[Rule]) -> Rights {
        let source = |at| Arc::new(Source { role: "the token".into(), rule: at + 1 });
        let rules = rules.iter().enumerate().map(|(at, rule)| (rule.clone(), source(at)));
        self.within(Arc::new(Rights { rules: rules.collect(), ..Rights::default() }));
        self
    }

    /// Only what others allow as well.
    pub(crate) fn within(&mut self, others: Arc<Rights>) {
        self.within = Some(match self.within.take() {
            None => others,
            Some(first) => {
                let mut both = Rights::clone(&first);
                both.within(others);
                Arc::new(both)
            }
        });
    }

    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    /// The verbs that anything is allowed with, for people.
    pub fn verbs(&self) -> Verbs {
        let named = |verb: &Verb| self.rules.iter().any(|(rule, _)| rule.verbs.contains(*verb));
        let within =
            |verb: &Verb| self.within.as_ref().is_none_or(|within| within.verbs().contains(*verb));
        Verb::ALL.into_iter().filter(named).filter(within).fold(Verbs::NONE, Verbs::with)
    }

    /// The rule that allows a verb that is about the server.
    pub fn on_server(&self, verb: Verb) -> Option<Arc<Source>> {
        let rule = self.rules.iter().find(|(rule, _)| rule.verbs.contains(verb));
        let (_, source) = rule.filter(|_| verb.is_about_server())?;
        match &self.within {
            None => Some(source.clone()),
            Some(within) => within.on_server(verb).map(|_| source.clone()),
        }
    }

    /// The rights in one namespace: to be kept by whoever asks often.
    pub fn in_namespace(&self, namespace: &Namespace) -> NamespaceRights {
        let mut rights = NamespaceRights::default();
        for (rule, source) in &self.rules {
            match &rule.namespace {
                Some(RuleNamespace::Pattern(pattern)) if pattern.matches(namespace) => {
                    rights.add(rule, source);
                }
                Some(_) | None => {}
            }
        }
        rights.within = self.within.as_ref().map(|within| Box::new(within.in_namespace(namespace)));
        rights
    }

    /// Decides an operation; gives the rule that allowed it, or that allowed the first of a set.
    pub fn decide(
        &self,
        operation: Operation,
        object: Object<'_>,
    ) -> Result<Option<Arc<Source>>, Denied> {
        match (operation.needs(), object) {
            (Need::Nothing | Need::Principal, _) => Ok(None),
            (Need::Server(verb), _) => match self.on_server(verb) {
                Some(source) => Ok(Some(source)),
                None => Err(Denied { verbs: Verbs::of(&[verb]), claim: 0 }),
            },
            (
                need,
                Object::Namespace(namespace)
                | Object::Scopes(namespace, _)
                | Object::Register(namespace, _),
            ) => self.in_namespace(namespace).decide(need, object),
            // An operation on something in a namespace, without one: there is no rule for that.
            (need, Object::Server) => Err(Denied { verbs: verbs_of(need), claim: 0 }),
        }
    }
}

fn verbs_of(need: Need) -> Verbs {
    match need {
        Need::Nothing | Need::Principal => Verbs::NONE,
        Need::Scopes(verbs) | Need::Register(verbs) | Need::SomewhereIn(verbs) => verbs,
        Need::AllOf(verb) | Need::Server(verb) => Verbs::of(&[verb]),
    }
}

/// Rights in one namespace, by verb.
#[derive(Clone, Debug, Default)]
pub struct NamespaceRights {
    areas: [Area; Verb::IN_NAMESPACE],
    within: Option<Box<NamespaceRights>>,
}

/// All that one verb is allowed on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Area {
    pub(crate) names: Names,
    pub(crate) paths: Paths,
    pub(crate) inodes: Vec<(u64, u64, Arc<Source>)>,
    pub(crate) fences: Names,
    sessions: Option<Arc<Source>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    pub(crate) all: Option<Arc<Source>>,
    pub(crate) flock: Option<Arc<Source>>,
    pub(crate) exactly: BTreeMap<Box<str>, Arc<Source>>,
    pub(crate) below: BTreeMap<Box<str>, Arc<Source>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    pub(crate) exactly: BTreeMap<Box<str>, Arc<Source>>,
    pub(crate) subtrees: BTreeMap<Box<str>, Arc<Source>>,
}

impl NamespaceRights {
    fn add(&mut self, rule: &Rule, source: &Arc<Source>) {
        for verb in rule.verbs.iter().filter(|verb| !verb.is_about_server()) {
            let area = &mut self.areas[verb as usize];
            rule.names.iter().for_each(|pattern| area.names.add(pattern, source));
            rule.fences.iter().for_each(|pattern| area.fences.add(pattern, source));
            for pattern in &rule.paths {
                let (map, text) = match pattern {
                    PathPattern::Exactly(path) => (&mut area.paths.exactly, path),
                    PathPattern::Subtree(root) => (&mut area.paths.subtrees, root),
                };
                map.entry(text.clone()).or_insert_with(|| source.clone());
            }
            for pattern in &rule.inodes {
                area.inodes.push((*pattern.0.start(), *pattern.0.end(), source.clone()));
            }
            if rule.sessions && area.sessions.is_none() {
                area.sessions = Some(source.clone());
            }
        }
    }

    /// The rule that allows one of the verbs on a scope.
    pub fn allows(&self, verbs: Verbs, scope: &Scope) -> Option<&Arc<Source>> {
        self.first(verbs, &|area| area.scope(scope))
    }

    /// The rule that allows one of the verbs on a fence register.
    pub fn allows_register(&self, verbs: Verbs, register: &RegisterName) -> Option<&Arc<Source>> {
        self.first(verbs, &|area| area.fences.find(register.as_str()))
    }

    /// The rule that shows the sessions of others.
    pub fn allows_sessions(&self) -> Option<&Arc<Source>> {
        self.first(Verbs::of(&[Verb::Sessions]), &|area| area.sessions.as_ref())
    }

    /// The rule that allows one of the verbs on anything here.
    pub fn allows_anything(&self, verbs: Verbs) -> Option<&Arc<Source>> {
        self.first(verbs, &Area::anything)
    }

    /// The rule that allows the verb on every lock here.
    pub fn allows_everything(&self, verb: Verb) -> Option<&Arc<Source>> {
        self.first(Verbs::of(&[verb]), &Area::everything)
    }

    /// The part of the key space whose locks may be listed with the verbs.
    pub fn visible(&self, verbs: Verbs, prefix: &str) -> Visible {
        let areas = verbs.iter().filter_map(|verb| self.areas.get(verb as usize));
        let own = Visible::of(areas, prefix);
        match &self.within {
            None => own,
            Some(within) => own.and(&within.visible(verbs, prefix)),
        }
    }

    /// Decides what is about a thing in this namespace.
    pub fn decide(&self, need: Need, object: Object<'_>) -> Result<Option<Arc<Source>>, Denied> {
        let denied = |claim| Denied { verbs: verbs_of(need), claim };
        let found = match (need, object) {
            (Need::Scopes(verbs), Object::Scopes(_, scopes)) => {
                let mut first = None;
                for (claim, scope) in scopes.iter().enumerate() {
                    let source = self.allows(verbs, scope).ok_or_else(|| denied(claim))?;
                    first.get_or_insert(source);
                }
                first
            }
            (Need::Register(verbs), Object::Register(_, name)) => self.allows_register(verbs, name),
            (Need::SomewhereIn(verbs), _) => self.allows_anything(verbs),
            (Need::AllOf(verb), _) => self.allows_everything(verb),
            (Need::Scopes(_) | Need::Register(_), _) => None,
            (Need::Nothing | Need::Principal | Need::Server(_), _) => return Ok(None),
        };
        found.map(|source| Some(source.clone())).ok_or_else(|| denied(0))
    }

    fn first<'a>(
        &'a self,
        verbs: Verbs,
        find: &dyn for<'b> Fn(&'b Area) -> Option<&'b Arc<Source>>,
    ) -> Option<&'a Arc<Source>> {
        let mut areas = verbs.iter().filter_map(|verb| self.areas.get(verb as usize));
        let found = areas.find_map(find)?;
        match &self.within {
            None => Some(found),
            Some(within) => within.first(verbs, find).map(|_| found),
        }
    }
}

impl Area {
    fn scope(&self, scope: &Scope) -> Option<&Arc<Source>> {
        match scope {
            Scope::Key(key) => match key.kind() {
                ScopeKind::Named => self.names.find(key.as_str()),
                ScopeKind::Path | ScopeKind::Subtree => self.paths.find(key.as_str(), key.kind()),
                ScopeKind::Inode | ScopeKind::Range => None,
            },
            Scope::Range { inode, .. } => {
                let mut ranges = self.inodes.iter();
                let found = ranges.find(|(first, last, _)| (first..=last).contains(&inode));
                found.map(|(.., source)| source)
            }
        }
    }

    fn anything(&self) -> Option<&Arc<Source>> {
        self.names
            .any()
            .or_else(|| self.paths.exactly.values().next())
            .or_else(|| self.paths.subtrees.values().next())
            .or_else(|| self.inodes.first().map(|(.., source)| source))
            .or_else(|| self.fences.any())
    }

    fn everything(&self) -> Option<&Arc<Source>> {
        let all = self.inodes.iter().any(|(first, last, _)| (*first, *last) == (0, u64::MAX));
        self.paths.subtrees.get("path:").filter(|_| all)?;
        self.names.all.as_ref()
    }
}

impl Names {
    fn add(&mut self, pattern: &NamePattern, source: &Arc<Source>) {
        let source = || source.clone();
        match pattern {
            NamePattern::All => self.all.get_or_insert_with(source),
            NamePattern::Flock => self.flock.get_or_insert_with(source),
            NamePattern::Exactly(name) => self.exactly.entry(name.clone()).or_insert_with(source),
            NamePattern::Below(begin) => self.below.entry(begin.clone()).or_insert_with(source),
        };
    }

    fn find(&self, name: &str) -> Option<&Arc<Source>> {
        let slashes = || name.match_indices('/').map(|(at, _)| &name[..=at]);
        self.all
            .as_ref()
            .or_else(|| self.exactly.get(name))
            .or_else(|| self.flock.as_ref().filter(|_| is_flock(name)))
            .or_else(|| {
                // `x/` itself is not below `x/`; only a register can end in a slash.
                let begins = slashes().filter(|begin| begin.len() < name.len());
                begins.filter_map(|begin| self.below.get(begin)).next()
            })
    }

    fn any(&self) -> Option<&Arc<Source>> {
        let first = self.exactly.values().chain(self.below.values()).next();
        self.all.as_ref().or(self.flock.as_ref()).or(first)
    }
}

impl Paths {
    /// A path, or a subtree of which all must lie inside.
    fn find(&self, text: &str, kind: ScopeKind) -> Option<&Arc<Source>> {
        let (path, exactly) = match kind {
            ScopeKind::Subtree => (root_of(text), None),
            ScopeKind::Named | ScopeKind::Path | ScopeKind::Inode | ScopeKind::Range => {
                (text, self.exactly.get(text))
            }
        };
        exactly.or_else(|| roots_of(path).find_map(|root| self.subtrees.get(root)))
    }
}
