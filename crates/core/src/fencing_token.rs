//! Fencing tokens: the numbers that let a guarded resource turn a stale writer away.

use std::fmt;

/// A fencing token. Each grant is stamped with one, higher than every token before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    /// Below every token ever handed out.
    pub const ZERO: FencingToken = FencingToken(0);
    /// The largest integer that JSON readers and JavaScript keep exactly.
    pub const MAX: FencingToken = FencingToken((1 << 53) - 1);
    /// The fewest tokens that are left where a counter is put ahead on purpose: over an hour at a million a second.
    pub const HEADROOM: u64 = 1 << 32;
    /// The highest token that a counter may be put to by an operator.
    pub const JUMP_MAX: FencingToken =
        FencingToken(FencingToken::MAX.0 + 1 - FencingToken::HEADROOM);

    /// A token as it came from outside; `None` past 53 bits, which no server ever handed out.
    pub const fn new(value: u64) -> Option<FencingToken> {
        if value <= FencingToken::MAX.0 { Some(FencingToken(value)) } else { None }
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next token; `None` at the end of the counter. At a million grants a second the 53 bits last 285 years.
    pub(crate) fn next(self) -> Option<FencingToken> {
        FencingToken::new(self.0 + 1)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
