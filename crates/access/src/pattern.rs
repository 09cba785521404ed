//! Patterns: which namespaces and which things in them a rule is about.
//!
//! There are four forms and no others: one thing (`x`), what is below it (`x/`, `/x/**`, `team.*`), a range of numbers, and
//! all (`*`). Each is read with [`Scope::parse`] when it is loaded and has to be in canonical form, so a pattern and a lock are
//! compared as the same kind of text.

use std::ops::RangeInclusive;

use leasehold_core::{Namespace, RegisterName, Scope, ScopeKind};

/// Namespaces of the service itself: only a pattern that names them literally matches them.
const RESERVED: &str = "leasehold.";
const PATH: &str = "path:";
const SUBTREE: &str = "/**";

/// The reason why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("{0:?} has a '*' in it: write \"x\", \"x/\" for what is below it, or \"*\"")]
    NameWildcard(String),
    #[error("{0:?} has a '*' in it: write \"/x\", or \"/x/**\" for it and what is below it")]
    PathWildcard(String),
    #[error("{0:?} has a '*' in it: write \"team\", \"team.*\", \"team/*\" or \"*\"")]
    NamespaceWildcard(String),
    #[error("{0:?} is not the name of a lock")]
    NotAName(String),
    #[error("path {0:?} is not absolute: write /…")]
    RelativePath(String),
    #[error("{given:?} is not in canonical form: write {canonical:?}")]
    NotCanonical { given: String, canonical: String },
    #[error("{0:?} is not an inode number or a range such as \"10..20\"")]
    NotInodes(String),
    #[error("range {0:?} is empty")]
    EmptyRange(String),
    #[error("{what} {given:?} {fault}")]
    Fault { what: &'static str, given: String, fault: String },
}

/// A pattern of namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NamespacePattern {
    Exactly(Box<str>),
    /// All that begin with this prefix, which ends in `.` or `/`.
    Below(Box<str>),
    All,
}

impl NamespacePattern {
    pub fn parse(text: &str) -> Result<NamespacePattern, PatternError> {
        if text == "*" {
            return Ok(NamespacePattern::All);
        }
        let (name, is_below) = match text.strip_suffix('*') {
            Some(name) if name.ends_with(['.', '/']) => (name, true),
            Some(_) => return Err(PatternError::NamespaceWildcard(text.into())),
            None => (text, false),
        };
        if name.contains('*') {
            return Err(PatternError::NamespaceWildcard(text.into()));
        }
        Namespace::new(name).map_err(|fault| PatternError::Fault {
            what: "namespace",
            given: text.into(),
            fault: fault.to_string(),
        })?;
        Ok(if is_below {
            NamespacePattern::Below(name.into())
        } else {
            NamespacePattern::Exactly(name.into())
        })
    }

    pub fn matches(&self, namespace: &Namespace) -> bool {
        let name = namespace.as_str();
        let is_open = !name.starts_with(RESERVED);
        match self {
            NamespacePattern::Exactly(only) => **only == *name,
            NamespacePattern::Below(begin) => {
                (is_open || begin.starts_with(RESERVED))
                    && name.strip_prefix(&**begin).is_some_and(|rest| !rest.is_empty())
            }
            NamespacePattern::All => is_open,
        }
    }
}

impl std::fmt::Display for NamespacePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NamespacePattern::Exactly(name) => f.write_str(name),
            NamespacePattern::Below(begin) => write!(f, "{begin}*"),
            NamespacePattern::All => f.write_str("*"),
        }
    }
}

/// A pattern of names, of locks or of fence registers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NamePattern {
    Exactly(Box<str>),
    /// All that begin with this prefix, which ends in `/`.
    Below(Box<str>),
    /// `flock:` and an inode number: whole-file locks.
    Flock,
    All,
}

impl NamePattern {
    /// A pattern of lock names.
    pub fn parse(text: &str) -> Result<NamePattern, PatternError> {
        if text == "flock:*" {
            return Ok(NamePattern::Flock);
        }
        NamePattern::read(text, |name| match Scope::parse(name) {
            Ok(scope) if scope.kind() == ScopeKind::Named => Ok(()),
            Ok(_) => Err(PatternError::NotAName(text.into())),
            Err(fault) => Err(fault_of("name", text, &fault)),
        })
    }

    /// A pattern of names of fence registers.
    pub fn parse_register(text: &str) -> Result<NamePattern, PatternError> {
        NamePattern::read(text, |name| {
            RegisterName::new(name).map(drop).map_err(|fault| fault_of("register", text, &fault))
        })
    }

    fn read(
        text: &str,
        check: impl Fn(&str) -> Result<(), PatternError>,
    ) -> Result<NamePattern, PatternError> {
        if text == "*" {
            return Ok(NamePattern::All);
        }
        if text.contains('*') {
            return Err(PatternError::NameWildcard(text.into()));
        }
        let name = text.strip_suffix('/');
        check(name.unwrap_or(text))?;
        Ok(if name.is_some() {
            NamePattern::Below(text.into())
        } else {
            NamePattern::Exactly(text.into())
        })
    }
}

/// A pattern of paths. The texts are canonical ones of scopes: `path:/srv/a`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathPattern {
    Exactly(Box<str>),
    /// This path, what is below it, and subtrees that lie inside; `path:` is the root.
    Subtree(Box<str>),
}

impl PathPattern {
    pub fn parse(text: &str) -> Result<PathPattern, PatternError> {
        if !text.starts_with('/') {
            return Err(PatternError::RelativePath(text.into()));
        }
        let path = text.strip_suffix(SUBTREE);
        if path.unwrap_or(text).contains('*') {
            return Err(PatternError::PathWildcard(text.into()));
        }
        let given = format!("{PATH}{text}");
        let scope = Scope::parse(&given).map_err(|fault| fault_of("path", text, &fault))?;
        let canonical = scope.to_string();
        if canonical != given {
            let canonical = canonical[PATH.len()..].into();
            return Err(PatternError::NotCanonical { given: text.into(), canonical });
        }
        Ok(match given.strip_suffix(SUBTREE) {
            Some(root) => PathPattern::Subtree(root.into()),
            None => PathPattern::Exactly(given.into()),
        })
    }
}

/// A range of inode numbers, the last one included.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InodePattern(pub RangeInclusive<u64>);

impl InodePattern {
    pub const ALL: InodePattern = InodePattern(0..=u64::MAX);

    /// `*`, `42`, or `10..20`, which ends before 20.
    pub fn parse(text: &str) -> Result<InodePattern, PatternError> {
        let fault = || PatternError::NotInodes(text.into());
        let number = |digits: &str| -> Result<u64, PatternError> {
            let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            if is_plain { digits.parse().map_err(|_| fault()) } else { Err(fault()) }
        };
        if text == "*" {
            return Ok(InodePattern::ALL);
        }
        let Some((start, end)) = text.split_once("..") else {
            let only = number(text)?;
            return Ok(InodePattern(only..=only));
        };
        let (start, end) = (number(start)?, number(end)?);
        if start >= end {
            return Err(PatternError::EmptyRange(text.into()));
        }
        Ok(InodePattern(start..=end - 1))
    }
}

fn fault_of(what: &'static str, given: &str, fault: &dyn std::fmt::Display) -> PatternError {
    PatternError::Fault { what, given: given.into(), fault: fault.to_string() }
}

/// Whether a name is that of a whole-file lock.
pub(crate) fn is_flock(name: &str) -> bool {
    let inode = name.strip_prefix("flock:");
    inode.is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The roots of the subtrees that a path, or the root of a subtree, lies in: itself first, `path:` last.
pub(crate) fn roots_of(path: &str) -> impl Iterator<Item = &str> {
    let first = path.strip_suffix('/').unwrap_or(path);
    std::iter::successors(Some(first), |at| at.rfind('/').map(|slash| &at[..slash]))
}

/// The path that a subtree's text starts at; `path:` for the root.
pub(crate) fn root_of(subtree: &str) -> &str {
    subtree.strip_suffix(SUBTREE).unwrap_or(subtree)
}

impl std::fmt::Display for NamePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NamePattern::Exactly(text) | NamePattern::Below(text) => f.write_str(text),
            NamePattern::Flock => f.write_str("flock:*"),
            NamePattern::All => f.write_str("*"),
        }
    }
}

impl std::fmt::Display for PathPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PathPattern::Exactly(path) => f.write_str(&path[PATH.len()..]),
            PathPattern::Subtree(root) => write!(f, "{}{SUBTREE}", &root[PATH.len()..]),
        }
    }
}

impl std::fmt::Display for InodePattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (*self.0.start(), *self.0.end()) {
            (0, u64::MAX) => f.write_str("*"),
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}..{}", last.saturating_add(1)),
        }
    }
}
