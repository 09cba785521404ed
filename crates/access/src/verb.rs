//! The verbs that a rule can allow.

use std::fmt;

/// A kind of thing that a rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// Take locks, open sessions, and renew and release one's own.
    Acquire,
    Read,
    Watch,
    /// Show fencing tokens to registers.
    Fence,
    /// Force-release locks of others.
    Break,
    /// Remove files.
    Remove,
    /// See the sessions of others.
    Sessions,
    Metrics,
    Cluster,
    Console,
    /// Make narrower tokens of one's own.
    TokenSelf,
    Admin,
}

impl Verb {
    pub const ALL: [Verb; 12] = [
        Verb::Acquire,
        Verb::Read,
        Verb::Watch,
        Verb::Fence,
        Verb::Break,
        Verb::Remove,
        Verb::Sessions,
        Verb::Metrics,
        Verb::Cluster,
        Verb::Console,
        Verb::TokenSelf,
        Verb::Admin,
    ];
    /// The verbs about things in a namespace; the others are about the server.
    pub(crate) const IN_NAMESPACE: usize = 7;

    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Acquire => "acquire",
            Verb::Read => "read",
            Verb::Watch => "watch",
            Verb::Fence => "fence",
            Verb::Break => "break",
            Verb::Remove => "remove",
            Verb::Sessions => "sessions",
            Verb::Metrics => "metrics",
            Verb::Cluster => "cluster",
            Verb::Console => "console",
            Verb::TokenSelf => "token.self",
            Verb::Admin => "admin",
        }
    }

    pub fn parse(text: &str) -> Option<Verb> {
        Verb::ALL.into_iter().find(|verb| verb.as_str() == text)
    }

    /// Whether it is about the server as a whole and not about a namespace.
    pub const fn is_about_server(self) -> bool {
        self as usize >= Verb::IN_NAMESPACE
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of verbs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Verbs(u16);

impl Verbs {
    pub const NONE: Verbs = Verbs(0);

    pub const fn of(verbs: &[Verb]) -> Verbs {
        let (mut bits, mut at) = (0, 0);
        while at < verbs.len() {
            bits |= 1 << verbs[at] as u16;
            at += 1;
        }
        Verbs(bits)
    }

    pub const fn contains(self, verb: Verb) -> bool {
        self.0 & (1 << verb as u16) != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub const fn with(self, verb: Verb) -> Verbs {
        Verbs(self.0 | 1 << verb as u16)
    }

    pub fn iter(self) -> impl Iterator<Item = Verb> {
        Verb::ALL.into_iter().filter(move |&verb| self.contains(verb))
    }
}

/// `acquire or read`.
impl fmt::Display for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Verb::as_str).collect();
        f.write_str(&names.join(" or "))
    }
}
