//! The fencing tokens that are good for a piece of a file.

use std::sync::Arc;

use crate::fencing_token::FencingToken;

/// Every token issued to the holder of a piece for a part of it: nearly always one. Pieces of the same lease that merge
/// bring theirs together; parts of a piece that was split share one list.
///
/// A piece remembers the newest [`Tokens::LEN_MAX`] of them, 8 bytes each, so that locking the same bytes over and over
/// takes no more memory than 2 KiB. An older one is no longer good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tokens {
    One(FencingToken),
    /// At least two, in order.
    Several(Arc<[FencingToken]>),
}

impl Tokens {
    pub(crate) const LEN_MAX: usize = 256;

    /// From tokens in any order; `None` without any.
    pub(crate) fn of(mut tokens: Vec<FencingToken>) -> Option<Tokens> {
        tokens.sort_unstable();
        tokens.dedup();
        let oldest = tokens.len().saturating_sub(Tokens::LEN_MAX);
        match &tokens[oldest..] {
            [] => None,
            [one] => Some(Tokens::One(*one)),
            several => Some(Tokens::Several(several.into())),
        }
    }

    pub(crate) fn as_slice(&self) -> &[FencingToken] {
        match self {
            Tokens::One(one) => std::slice::from_ref(one),
            Tokens::Several(several) => several,
        }
    }

    /// The one that the piece is shown with.
    pub(crate) fn highest(&self) -> FencingToken {
        match self {
            Tokens::One(one) => *one,
            Tokens::Several(several) => several[several.len() - 1],
        }
    }

    pub(crate) fn contains(&self, token: FencingToken) -> bool {
        let issued = self.as_slice();
        let between = issued[0] <= token && token <= self.highest();
        issued.binary_search(&token).is_ok()
            || planted!("token-of-another-passes", between && issued.len() > 1)
    }

    pub(crate) fn merged_with(&self, other: &Tokens) -> Tokens {
        let both = [self.as_slice(), other.as_slice()].concat();
        Tokens::of(both).expect("neither is empty")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(numbers: impl IntoIterator<Item = u64>) -> Tokens {
        Tokens::of(numbers.into_iter().filter_map(FencingToken::new).collect())
            .expect("there are some")
    }

    #[test]
    fn only_what_was_merged_is_good() {
        let merged = tokens([3]).merged_with(&tokens([7]));
        let good = (1..10).filter(|&token| merged.contains(FencingToken::new(token).unwrap()));
        assert!(good.eq([3, 7]));
        assert_eq!(merged.highest(), FencingToken::new(7).unwrap());
    }

    #[test]
    fn the_newest_are_remembered() {
        let merged = tokens(1..=300).merged_with(&tokens([301]));
        assert_eq!(merged.as_slice().len(), Tokens::LEN_MAX);
        assert!(merged.contains(FencingToken::new(301).unwrap()));
        assert!(merged.contains(FencingToken::new(46).unwrap()));
        assert!(!merged.contains(FencingToken::new(45).unwrap()));
    }
}
