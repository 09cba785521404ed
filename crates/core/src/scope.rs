//! Scopes: the things that a lock covers, and the one spelling of each.
//!
//! | scope      | canonical text                          | covers                          |
//! |------------|-----------------------------------------|---------------------------------|
//! | named      | `job/nightly`                           | the name, nothing else          |
//! | path       | `path:/srv/a`                           | that path                       |
//! | subtree    | `path:/srv/a/**`                        | the path and all below it       |
//! | inode      | `inode:42`                              | the whole file                  |
//! | byte range | `inode:42@100..200`, `inode:42@100..`   | those bytes                     |
//!
//! Names and paths are held under their canonical text, so the order of the table is the order of the listing, and
//! everything below a path lies in one run: from `path:/srv/a/` up to, not including, `path:/srv/a0`.

use std::fmt;
use std::str::FromStr;

use crate::name::{self, NameError, unprintable};
use crate::range::ByteRange;
use crate::text::Text;

const PATH: &str = "path:";
const INODE: &str = "inode:";
const SUBTREE: &str = "/**";

/// The part of a namespace that a lock covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// A name, path or subtree.
    Key(Key),
    /// Bytes of a file; the whole file is the range `0..`.
    Range { inode: u64, range: ByteRange },
}

/// A scope that is known by its text alone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Text);

/// The kinds of scope, for filters, labels and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScopeKind {
    Named,
    Path,
    Subtree,
    Inode,
    Range,
}

impl ScopeKind {
    /// In the order of their numbers.
    pub const ALL: [ScopeKind; 5] =
        [ScopeKind::Named, ScopeKind::Path, ScopeKind::Subtree, ScopeKind::Inode, ScopeKind::Range];
}

/// The reason why a text is not a scope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    #[error("lock {0}")]
    Name(#[from] NameError),
    #[error("name {0:?} has an empty part: names are parts joined by '/'")]
    EmptyPart(String),
    #[error("name {0:?} has a part '.' or '..'")]
    DotPart(String),
    #[error("path {0:?} is not absolute: write path:/…")]
    RelativePath(String),
    #[error("path {0:?} has a part '..': give the path it leads to")]
    ParentPart(String),
    #[error("path {0:?} has '**' before its end: only a last part '**' means the subtree")]
    SubtreeInside(String),
    #[error(
        "{0:?} has a part '*': there are no patterns, a last part '**' of a path means the subtree"
    )]
    Wildcard(String),
    #[error("{0:?} is a name, and names have no subtrees: write path:/{0}")]
    SubtreeOfName(String),
    #[error("{0:?} begins like a path or a file: write {1:?} in lower case")]
    PrefixCase(String, &'static str),
    #[error("{0:?} is not an inode number: write inode:42 or inode:42@100..200")]
    Inode(String),
    #[error("{0:?} is not a byte range: write 100..200 or 100..")]
    Range(String),
    #[error("byte range {0:?} is empty: its end must lie after its start")]
    EmptyRange(String),
}

impl Scope {
    pub const LEN_MAX: usize = 512;

    /// The scope that a text from outside names; any spelling in, the canonical one out.
    ///
    /// Refuses what is most likely meant otherwise, and names that are not in normalization form C. Paths are taken as
    /// they are: so are the names of files.
    pub fn parse(text: &str) -> Result<Scope, ScopeError> {
        let scope = Scope::stored(text)?;
        check_intent(text)?;
        if scope.kind() == ScopeKind::Named {
            name::admit(text, Scope::LEN_MAX)?;
        }
        Ok(scope)
    }

    /// The scope that a text names which was admitted once, by these rules or older ones.
    pub fn stored(text: &str) -> Result<Scope, ScopeError> {
        name::decode(text, Scope::LEN_MAX)?;
        if let Some(path) = text.strip_prefix(PATH) {
            parse_path(path).map(Scope::Key)
        } else if let Some(inode) = text.strip_prefix(INODE) {
            parse_inode(inode)
        } else {
            parse_name(text).map(Scope::Key)
        }
    }

    /// A whole file.
    pub const fn inode(inode: u64) -> Scope {
        Scope::Range { inode, range: ByteRange::ALL }
    }

    pub const fn range(inode: u64, range: ByteRange) -> Scope {
        Scope::Range { inode, range }
    }

    pub fn kind(&self) -> ScopeKind {
        match self {
            Scope::Key(key) => key.kind(),
            Scope::Range { range, .. } if *range == ByteRange::ALL => ScopeKind::Inode,
            Scope::Range { .. } => ScopeKind::Range,
        }
    }

    /// Whether the two cover anything in common.
    pub fn overlaps(&self, other: &Scope) -> bool {
        match (self, other) {
            (Scope::Key(mine), Scope::Key(theirs)) => mine.overlaps(theirs),
            (Scope::Range { inode, range }, Scope::Range { inode: i, range: r }) => {
                inode == i && range.overlaps(*r)
            }
            (Scope::Key(_), Scope::Range { .. }) | (Scope::Range { .. }, Scope::Key(_)) => false,
        }
    }
}

impl Key {
    pub fn kind(&self) -> ScopeKind {
        match self.0.as_bytes() {
            text if !text.starts_with(PATH.as_bytes()) => ScopeKind::Named,
            text if text.ends_with(SUBTREE.as_bytes()) => ScopeKind::Subtree,
            _ => ScopeKind::Path,
        }
    }

    pub fn text(&self) -> &Text {
        &self.0
    }

    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Sorts before every key there can be.
    pub(crate) fn least() -> Key {
        Key(Text::new(""))
    }

    pub fn overlaps(&self, other: &Key) -> bool {
        if self == other {
            return true;
        }
        match (self.subtree_root(), other.subtree_root()) {
            (None, None) => false,
            (Some(root), None) => lies_under(other, root),
            (None, Some(root)) => lies_under(self, root),
            (Some(mine), Some(theirs)) => lies_under(self, theirs) || lies_under(other, mine),
        }
    }

    /// `path:/srv/a` of `path:/srv/a/**`, and `path:` of `path:/**`.
    fn subtree_root(&self) -> Option<&[u8]> {
        match self.kind() {
            ScopeKind::Subtree => self.0.as_bytes().strip_suffix(SUBTREE.as_bytes()),
            ScopeKind::Named | ScopeKind::Path | ScopeKind::Inode | ScopeKind::Range => None,
        }
    }

    /// The texts of the subtrees that cover this path or subtree, itself first if it is one, the root last.
    pub(crate) fn covering_subtrees(&self) -> Vec<Vec<u8>> {
        let path = match self.kind() {
            ScopeKind::Subtree => self.subtree_root().unwrap_or_default(),
            ScopeKind::Path => self.0.as_bytes(),
            ScopeKind::Named | ScopeKind::Inode | ScopeKind::Range => return Vec::new(),
        };
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let mut end = path.len();
        let mut texts = Vec::new();
        loop {
            texts.push([&path[..end], SUBTREE.as_bytes()].concat());
            match path[..end].iter().rposition(|&byte| byte == b'/') {
                Some(slash) => end = slash,
                None => return texts,
            }
        }
    }

    /// The run of texts that lie below this subtree, as (first, first after); `None` for other kinds.
    pub(crate) fn below(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let root = self.subtree_root()?;
        Some(([root, b"/"].concat(), [root, b"0"].concat()))
    }

    /// The key of the path that a subtree starts at: `path:/srv/a` for `path:/srv/a/**`.
    pub(crate) fn subtree_path(&self) -> Option<Vec<u8>> {
        let root = self.subtree_root()?;
        Some(if root == PATH.as_bytes() { [root, b"/"].concat() } else { root.to_vec() })
    }
}

/// Whether `key` is the path `root` or anything below it.
fn lies_under(key: &Key, root: &[u8]) -> bool {
    match key.0.as_bytes().strip_prefix(root) {
        Some(rest) => rest.is_empty() || rest[0] == b'/',
        None => false,
    }
}

/// Refuses a text that would be one kind of scope and looks like another.
fn check_intent(text: &str) -> Result<(), ScopeError> {
    for prefix in [PATH, INODE] {
        let begins = text.get(..prefix.len());
        if begins.is_some_and(|given| given != prefix && given.eq_ignore_ascii_case(prefix)) {
            return Err(ScopeError::PrefixCase(text.into(), prefix));
        }
    }
    let mut parts = text.split('/');
    if parts.clone().any(|part| part == "*") {
        return Err(ScopeError::Wildcard(text.into()));
    }
    if !text.starts_with(PATH) && parts.any(|part| part == "**") {
        return Err(ScopeError::SubtreeOfName(text.into()));
    }
    Ok(())
}

fn parse_name(text: &str) -> Result<Key, ScopeError> {
    for part in text.as_bytes().split(|&byte| byte == b'/') {
        match part {
            b"" => return Err(ScopeError::EmptyPart(text.into())),
            b"." | b".." => return Err(ScopeError::DotPart(text.into())),
            _ => {}
        }
    }
    Ok(Key(Text::new(text)))
}

fn parse_path(path: &str) -> Result<Key, ScopeError> {
    if !path.starts_with('/') {
        return Err(ScopeError::RelativePath(path.into()));
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.contains(&"..") {
        return Err(ScopeError::ParentPart(path.into()));
    }
    if parts.iter().rev().skip(1).any(|part| *part == "**") {
        return Err(ScopeError::SubtreeInside(path.into()));
    }
    Ok(Key(Text::new(&format!("{PATH}/{}", parts.join("/")))))
}

fn parse_inode(text: &str) -> Result<Scope, ScopeError> {
    let (number, range) = match text.split_once('@') {
        Some((number, range)) => (number, parse_range(range)?),
        None => (text, ByteRange::ALL),
    };
    let inode = digits(number).ok_or_else(|| ScopeError::Inode(number.into()))?;
    Ok(Scope::Range { inode, range })
}

fn parse_range(text: &str) -> Result<ByteRange, ScopeError> {
    let fault = || ScopeError::Range(text.into());
    let (start, end) = text.split_once("..").ok_or_else(fault)?;
    let start = digits(start).ok_or_else(fault)?;
    let end = match end {
        "" => None,
        end => Some(digits(end).ok_or_else(fault)?),
    };
    ByteRange::half_open(start, end).ok_or_else(|| ScopeError::EmptyRange(text.into()))
}

/// Decimal digits and nothing else: `u64::from_str` would let a sign through.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Whether a prefix could begin the canonical text of a lock; a filter that cannot match is a caller's mistake.
pub fn is_prefix(text: &str) -> bool {
    text.len() <= Scope::LEN_MAX && !text.chars().any(unprintable)
}

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Scope, ScopeError> {
        Scope::parse(text)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Key(key) => fmt::Display::fmt(key, f),
            Scope::Range { inode, range } if *range == ByteRange::ALL => {
                write!(f, "{INODE}{inode}")
            }
            Scope::Range { inode, range } => write!(f, "{INODE}{inode}@{range}"),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::borrow::Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for ScopeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScopeKind::Named => "named",
            ScopeKind::Path => "path",
            ScopeKind::Subtree => "subtree",
            ScopeKind::Inode => "inode",
            ScopeKind::Range => "range",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(text: &str) -> Scope {
        Scope::parse(text).unwrap()
    }

    #[test]
    fn canonical_text_parses_back_to_the_same_scope() {
        for text in [
            "job/nightly",
            "flock:42",
            "naïve name",
            "path:/",
            "path:/srv/a",
            "path:/**",
            "path:/srv/a/**",
            "inode:42",
            "inode:18446744073709551615",
            "inode:42@100..200",
            "inode:42@100..",
            "inode:42@0..18446744073709551615",
        ] {
            assert_eq!(scope(text).to_string(), text);
        }
    }

    #[test]
    fn other_spellings_become_canonical() {
        for (text, canonical) in [
            ("path:/srv//a/./b/", "path:/srv/a/b"),
            ("path:/srv/a/**/", "path:/srv/a/**"),
            ("inode:007", "inode:7"),
            ("inode:42@0..", "inode:42"),
        ] {
            assert_eq!(scope(text).to_string(), canonical);
        }
    }

    #[test]
    fn faults_are_named() {
        let fault = |text: &str| Scope::parse(text).unwrap_err();
        assert_eq!(fault(""), ScopeError::Name(NameError::Empty));
        assert_eq!(
            fault(&"x".repeat(513)),
            ScopeError::Name(NameError::TooLong { len: 513, max: 512 })
        );
        assert_eq!(fault("a\0b"), ScopeError::Name(NameError::Character(0)));
        assert_eq!(fault("a//b"), ScopeError::EmptyPart("a//b".into()));
        assert_eq!(fault("../x"), ScopeError::DotPart("../x".into()));
        assert_eq!(fault("path:srv"), ScopeError::RelativePath("srv".into()));
        assert_eq!(fault("path:/a/../b"), ScopeError::ParentPart("/a/../b".into()));
        assert_eq!(fault("path:/a/**/b"), ScopeError::SubtreeInside("/a/**/b".into()));
        assert_eq!(fault("job/**"), ScopeError::SubtreeOfName("job/**".into()));
        assert_eq!(fault("job/*"), ScopeError::Wildcard("job/*".into()));
        assert_eq!(fault("path:/a/*"), ScopeError::Wildcard("path:/a/*".into()));
        assert_eq!(fault("Path:/a"), ScopeError::PrefixCase("Path:/a".into(), "path:"));
        assert_eq!(fault("INODE:4"), ScopeError::PrefixCase("INODE:4".into(), "inode:"));
        assert_eq!(fault("cafe\u{301}"), ScopeError::Name(NameError::NotNormalized(0x65)));
        assert_eq!(fault("inode:x"), ScopeError::Inode("x".into()));
        assert_eq!(fault("inode:+1"), ScopeError::Inode("+1".into()));
        assert_eq!(fault("inode:1@5"), ScopeError::Range("5".into()));
        assert_eq!(fault("inode:1@5..5"), ScopeError::EmptyRange("5..5".into()));
    }

    #[test]
    fn paths_are_taken_as_they_are() {
        assert_eq!(scope("path:/cafe\u{301}").to_string(), "path:/cafe\u{301}");
        assert_ne!(scope("path:/cafe\u{301}"), scope("path:/caf\u{e9}"));
    }

    #[test]
    fn scope_that_was_admitted_by_older_rules_is_read_back() {
        for text in ["cafe\u{301}", "job/**", "Path:/a", "path:/a/*"] {
            assert_eq!(Scope::stored(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn scopes_overlap_as_the_table_says() {
        let all = [
            "a",
            "a/b",
            "path:/",
            "path:/a",
            "path:/ab",
            "path:/a/b",
            "path:/**",
            "path:/a/**",
            "path:/a/b/**",
            "inode:1",
            "inode:2",
            "inode:1@0..5",
            "inode:1@5..9",
            "inode:1@4..6",
        ];
        let pairs = [
            ("path:/", "path:/**"),
            ("path:/a", "path:/**"),
            ("path:/ab", "path:/**"),
            ("path:/a/b", "path:/**"),
            ("path:/a", "path:/a/**"),
            ("path:/a/b", "path:/a/**"),
            ("path:/a/b", "path:/a/b/**"),
            ("path:/**", "path:/a/**"),
            ("path:/**", "path:/a/b/**"),
            ("path:/a/**", "path:/a/b/**"),
            ("inode:1", "inode:1@0..5"),
            ("inode:1", "inode:1@5..9"),
            ("inode:1", "inode:1@4..6"),
            ("inode:1@0..5", "inode:1@4..6"),
            ("inode:1@5..9", "inode:1@4..6"),
        ];
        for one in all {
            for other in all {
                let expected =
                    one == other || pairs.contains(&(one, other)) || pairs.contains(&(other, one));
                assert_eq!(scope(one).overlaps(&scope(other)), expected, "{one} and {other}");
            }
        }
    }

    #[test]
    fn runs_below_a_subtree_and_subtrees_above_a_path_agree_with_overlap() {
        let texts = [
            "path:/",
            "path:/a",
            "path:/a0",
            "path:/a/b",
            "path:/a/**",
            "path:/a/b/**",
            "path:/**",
        ];
        for one in texts {
            for other in texts {
                let (Scope::Key(one), Scope::Key(other)) = (scope(one), scope(other)) else {
                    unreachable!("all of them are paths")
                };
                let other_text = other.text().as_bytes().to_vec();
                let found = one.covering_subtrees().contains(&other_text)
                    || one == other
                    || one.subtree_path().is_some_and(|path| path == other_text)
                    || one
                        .below()
                        .is_some_and(|(first, end)| first <= other_text && other_text < end);
                assert_eq!(found, one.overlaps(&other), "{one} and {other}");
            }
        }
    }
}
