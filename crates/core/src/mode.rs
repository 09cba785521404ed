//! The modes of a lock, and their compatibility.

use std::fmt;
use std::num::NonZeroU32;

/// The mode in which a scope is requested or held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// By one holder alone.
    #[default]
    Exclusive,
    /// By any number of holders, all of them shared.
    Shared,
    /// By up to so many holders at once: a counting semaphore.
    Permits(NonZeroU32),
}

impl Mode {
    /// The semaphore's limit, if this is one.
    pub fn permits(self) -> Option<NonZeroU32> {
        match self {
            Mode::Permits(limit) => Some(limit),
            Mode::Exclusive | Mode::Shared => None,
        }
    }

    /// The kinds of mode, for labels and counts.
    pub const KINDS: [&str; 3] = ["exclusive", "shared", "permits"];

    /// The place of its kind in [`Mode::KINDS`].
    pub(crate) const fn kind_no(self) -> usize {
        match self {
            Mode::Exclusive => 0,
            Mode::Shared => 1,
            Mode::Permits(_) => 2,
        }
    }

    /// The mode without a semaphore's limit.
    pub const fn kind(self) -> &'static str {
        Mode::KINDS[self.kind_no()]
    }

    /// Whether two owners may hold overlapping scopes in these modes. Permits of one scope are counted instead:
    /// across different scopes they keep others out as an exclusive lock does.
    pub fn conflicts_with(self, other: Mode) -> bool {
        !(self == Mode::Shared && other == Mode::Shared)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mode::Exclusive => f.write_str("exclusive"),
            Mode::Shared => f.write_str("shared"),
            Mode::Permits(limit) => write!(f, "permits({limit})"),
        }
    }
}
