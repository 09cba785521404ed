//! Random numbers that are the same for the same seed, and scripts made of them.

use leasehold_core::{ByteRange, Mode};

use super::mirror::Mirror;
use super::step::{Act, Step};
use super::wire::{Close, Kind, Order, Span};

/// SplitMix64.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn index(&mut self, len: usize) -> usize {
        let len = u64::try_from(len).expect("a length fits");
        usize::try_from(self.below(len)).expect("it is below a usize")
    }

    fn offset(&mut self, first: i64, last: i64) -> i64 {
        let len = u64::try_from(last - first + 1).expect("the last comes after the first");
        first + i64::try_from(self.below(len)).expect("it is below an i64")
    }

    /// Whether something that happens so many times in a hundred does.
    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// The next step of a script: something that the process can do as things stand.
    pub(crate) fn step(&mut self, mirror: &Mirror) -> Step {
        loop {
            let process = self.index(mirror.len());
            let act = if mirror.is_waiting(process) {
                match self.below(100) {
                    0..9 => Act::Interrupt,
                    9..11 => Act::Kill,
                    _ => continue,
                }
            } else {
                self.act(mirror, process)
            };
            return Step { process, act };
        }
    }

    fn act(&mut self, mirror: &Mirror, process: usize) -> Act {
        let kind = if self.percent(50) { Kind::Read } else { Kind::Write };
        let span = self.span(mirror, process);
        Act::Order(match self.below(1000) {
            0..480 => Order::Lock { wait: self.percent(55), kind, span },
            480..600 => Order::Unlock(span),
            // What others wait for comes free more often so.
            600..810 => Order::Unlock(self.held_span(mirror, process).unwrap_or(span)),
            810..880 => Order::Test { kind, span },
            880..910 => Order::Close(match self.below(3) {
                0 => Close::Opened,
                1 => Close::OpenedToRead,
                _ => Close::Duplicate,
            }),
            910..985 => Order::Flock((!self.percent(35)).then_some(kind)),
            985..993 => return Act::Exit,
            _ => return Act::Kill,
        })
    }

    /// Exactly what a process holds somewhere.
    fn held_span(&mut self, mirror: &Mirror, process: usize) -> Option<Span> {
        let own = mirror.pieces_of(process);
        let (range, _) = *own.get(self.index(own.len().max(1)))?;
        Some(Span::of(range))
    }

    fn span(&mut self, mirror: &Mirror, process: usize) -> Span {
        let own = mirror.pieces_of(process);
        match self.below(100) {
            // The same bytes again, and those right beside them: what upgrades, splits and merges are made of.
            0..25 if !own.is_empty() => {
                let (range, _): (ByteRange, Mode) = own[self.index(own.len())];
                self.span_near(range)
            }
            25..31 => Span::ALL,
            31..40 => Span { start: self.offset(0, 24), len: 0 },
            40..48 => {
                let start = self.offset(1, 24);
                let len = -self.offset(1, start);
                Span { start, len }
            }
            // The last bytes that the kernel can lock.
            48..53 => {
                let start = i64::MAX - self.offset(0, 7);
                let len = self.offset(0, i64::MAX - start);
                Span { start, len }
            }
            _ => Span { start: self.offset(0, 23), len: self.offset(1, 9) },
        }
    }

    fn span_near(&mut self, range: ByteRange) -> Span {
        let whole = Span::of(range);
        let Span { start: first, len } = whole;
        let open = len == 0;
        match self.below(4) {
            // Without its ends; right behind it; right before it; all of it.
            0 if open && first < i64::MAX || len > 1 => {
                Span { start: first + 1, len: if open { 0 } else { (len - 2).max(1) } }
            }
            1 if !open && first < i64::MAX - len - 9 => {
                Span { start: first + len, len: self.offset(1, 4) }
            }
            2 if first > 0 => Span { start: first, len: -self.offset(1, first.min(4)) },
            _ => whole,
        }
    }
}
