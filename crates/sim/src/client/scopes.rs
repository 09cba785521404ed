//! What there is to be locked in this small world.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

use std::num::NonZeroU32;

use leasehold_core::{ByteRange, Claim, Mode, Namespace, Scope};

use crate::plan::{Focus, Work};
use crate::rng::Rng;

/// Names that the judge of histories follows.
pub(crate) const NAMES: u64 = 4;

const PATHS: [&str; 7] =
    ["path:/a", "path:/a/b", "path:/a/b/c", "path:/a/**", "path:/a/b/**", "path:/d", "path:/**"];

/// How far the bytes of a file go, before the open end.
const BYTES: u64 = 12;

pub(crate) fn name(number: u64) -> Scope {
    Scope::parse(&format!("name-{number}")).expect("a plain name")
}

/// A name that only the simple lock is asked for.
pub(super) fn simple(number: u64) -> Scope {
    Scope::parse(&format!("simple-{number}")).expect("a plain name")
}

pub(crate) fn namespace(rng: &mut Rng) -> Namespace {
    match rng.below(60) {
        0 => Namespace::new("second").expect("a plain name"),
        1 => Namespace::new("third").expect("a plain name"),
        _ => Namespace::default(),
    }
}

/// One scope and how it is wanted.
pub(crate) fn claim(rng: &mut Rng, work: &Work) -> Claim {
    let focus = match work.focus {
        Focus::All => {
            *rng.pick(&[Focus::Names, Focus::Paths, Focus::Ranges, Focus::Permits, Focus::Hot])
        }
        focus => focus,
    };
    let mode = if rng.percent(25) { Mode::Shared } else { Mode::Exclusive };
    match focus {
        Focus::Hot | Focus::All => Claim { scope: name(0), mode },
        Focus::Names => Claim { scope: name(rng.below(work.locks)), mode },
        Focus::Paths => {
            let path = PATHS[rng.index(PATHS.len())];
            Claim { scope: Scope::parse(path).expect("a plain path"), mode }
        }
        Focus::Ranges => {
            let scope = Scope::range(1 + rng.below(2), range(rng));
            Claim { scope, mode: if rng.percent(2) { permits(rng) } else { mode } }
        }
        Focus::Permits => {
            let scope = Scope::parse(&format!("permits-{}", rng.below(2))).expect("a plain name");
            Claim { scope, mode: if rng.percent(4) { mode } else { permits(rng) } }
        }
    }
}

fn permits(rng: &mut Rng) -> Mode {
    let limit = if rng.percent(90) { 2 } else { *rng.pick(&[1, 3, 9]) };
    Mode::Permits(NonZeroU32::new(limit).expect("not zero"))
}

pub(crate) fn range(rng: &mut Rng) -> ByteRange {
    let start = rng.below(BYTES);
    let end = if rng.percent(15) { None } else { Some(start + rng.between(1, BYTES / 2)) };
    ByteRange::half_open(start, end).expect("not empty")
}
