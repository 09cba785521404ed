//! Random numbers, from the seed alone.
//!
//! Every purpose has a generator of its own, named by numbers: the third message from one node to another, the seventh thing
//! that a client does. So leaving something out of a world does not change what chance does to the rest of it, which is
//! what lets the shrinker cut a failing schedule down.

use leasehold_judge::random::Random;

/// A row of numbers that look random and are the same for the same seed and names.
#[derive(Clone, Copy, Debug)]
pub struct Rng(Random);

/// What numbers are drawn for, so that no two purposes share a row.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    Plan = 1,
    Faults,
    Message,
    Store,
    Work,
    Client,
    Server,
    LeaseId,
}

impl Rng {
    pub fn new(seed: u64, purpose: Purpose, one: u64, two: u64) -> Rng {
        let purpose = mixed(seed ^ mixed(purpose as u64));
        let names = mixed(one.wrapping_add(0x51) ^ mixed(two.wrapping_add(0xa3)));
        let mut random = Random::new(mixed(purpose ^ names));
        // The first number is that of the names themselves.
        random.number();
        Rng(random)
    }

    pub fn number(&mut self) -> u64 {
        self.0.number()
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.number() % end }
    }

    /// From `from` up to and including `to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from).saturating_add(1))
    }

    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// True in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True in so many of a million cases.
    pub fn ppm(&mut self, ppm: u64) -> bool {
        self.below(1_000_000) < ppm
    }

    /// One of several, by weight; the last one if all weights are 0.
    pub fn weighted<T: Copy>(&mut self, choices: &[(u64, T)]) -> T {
        let mut left = self.below(choices.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices {
            if left < *weight {
                return *choice;
            }
            left -= weight;
        }
        choices[choices.len() - 1].1
    }

    /// Lengths that vary over orders of magnitude: each factor of two is as likely as the next. The last one may begin just
    /// below `to`, so a length can be up to twice that.
    pub fn spread(&mut self, from: u64, to: u64) -> u64 {
        let doublings = to.max(1).ilog2().saturating_sub(from.max(1).ilog2());
        let scale = (from << self.below(u64::from(doublings) + 1)).min(to);
        self.between(scale, scale.saturating_mul(2).min(to))
    }
}

/// Numbers that lie close together come to lie far apart.
fn mixed(number: u64) -> u64 {
    Random::new(number).number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_names_give_the_same_row_and_others_do_not() {
        let row = |one, two| {
            let mut rng = Rng::new(7, Purpose::Message, one, two);
            [rng.number(), rng.number(), rng.number()]
        };
        assert_eq!(row(1, 2), row(1, 2));
        assert_ne!(row(1, 2), row(2, 1));
        assert_ne!(row(0, 0), row(0, 1));
    }

    #[test]
    fn spread_covers_all_magnitudes_between_its_ends() {
        let mut rng = Rng::new(1, Purpose::Plan, 0, 0);
        let drawn: Vec<u64> = (0..1000).map(|_| rng.spread(100, 5000)).collect();
        assert!(drawn.iter().all(|length| (100..10_000).contains(length)));
        assert!(
            drawn.iter().any(|&length| length < 200) && drawn.iter().any(|&length| length > 3000)
        );
    }
}
