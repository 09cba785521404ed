//! The count of an owner's holds by lease.

use std::collections::BTreeMap;

use crate::lease::LeaseIdx;

/// The number of an owner's grants and pieces under each lease. Nearly always under one, so that one costs no allocation.
#[derive(Clone, Debug, Default)]
pub(crate) enum Holds {
    #[default]
    Nothing,
    One {
        lease: LeaseIdx,
        count: u32,
    },
    Many(Box<ByLease>),
}

#[derive(Clone, Debug)]
pub(crate) struct ByLease(BTreeMap<LeaseIdx, u32>);

impl Holds {
    /// One more; whether it is the first under that lease.
    pub(crate) fn add(&mut self, lease: LeaseIdx) -> bool {
        match self {
            Holds::Nothing => {
                *self = Holds::One { lease, count: 1 };
                true
            }
            Holds::One { lease: only, count } if *only == lease => {
                *count += 1;
                false
            }
            Holds::One { lease: first, count } => {
                let by_lease = BTreeMap::from([(*first, *count), (lease, 1)]);
                *self = Holds::Many(Box::new(ByLease(by_lease)));
                true
            }
            Holds::Many(many) => {
                let count = many.0.entry(lease).or_insert(0);
                *count += 1;
                *count == 1
            }
        }
    }

    /// One less; whether it was the last under that lease.
    pub(crate) fn remove(&mut self, lease: LeaseIdx) -> bool {
        let count = match self {
            Holds::One { lease: only, count } if *only == lease => Some(count),
            Holds::Many(many) => many.0.get_mut(&lease),
            Holds::Nothing | Holds::One { .. } => None,
        };
        let count = count.expect("every hold was counted");
        *count -= 1;
        if *count > 0 {
            return false;
        }
        if let Holds::Many(many) = self
            && many.0.len() > 1
        {
            many.0.remove(&lease);
        } else {
            *self = Holds::Nothing;
        }
        true
    }

    /// By lease.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LeaseIdx, u32)> {
        let (one, many) = match self {
            Holds::Nothing => (None, None),
            Holds::One { lease, count } => (Some((*lease, *count)), None),
            Holds::Many(many) => (None, Some(&many.0)),
        };
        let many = many.into_iter().flatten().map(|(&lease, &count)| (lease, count));
        one.into_iter().chain(many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_and_last_under_each_lease_are_told() {
        let (a, b) = (LeaseIdx(1), LeaseIdx(2));
        let mut holds = Holds::default();
        assert_eq!([b, b, a].map(|lease| holds.add(lease)), [true, false, true]);
        assert!(holds.iter().eq([(a, 1), (b, 2)]));
        assert_eq!([b, b, a].map(|lease| holds.remove(lease)), [false, true, true]);
        assert!(holds.iter().next().is_none());
    }
}
