//! Whose each byte is, by the records alone and byte by byte: no pieces, no indexes, nothing of the core's.
//!
//! Bytes belong to a lease and an owner under it. The same owner name under another lease is another holder.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::{
    ByteRange, Claim, Ending, FencingToken, Granted, LeaseId, Mode, Namespace, Owner, Scope,
    Transition,
};

/// The files of this small world are that long; the last cell stands for all that comes behind.
const CELLS: usize = 24;

type Party = (LeaseId, Owner);

#[derive(Debug, Default)]
pub(super) struct Bytes {
    files: BTreeMap<(Namespace, u64), BTreeMap<Party, Row>>,
}

/// What one party holds of a file.
type Row = [Option<Cell>; CELLS];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Cell {
    mode: Mode,
    /// Those that are good for it.
    tokens: BTreeSet<FencingToken>,
}

impl Bytes {
    /// Takes a change in; the fault is what was seen of bytes that went to another owner. `granted` finds the grant of a
    /// token.
    pub(super) fn note<'a>(
        &mut self,
        transition: &Transition,
        granted: impl FnOnce(FencingToken) -> Option<&'a Granted>,
    ) -> Result<(), String> {
        match transition {
            Transition::Granted(granted) => {
                granted.claims.iter().try_for_each(|claim| self.lock(granted, claim))?;
            }
            Transition::RangeEnded { namespace, lease, owner, inode, range, .. } => {
                let place = (namespace.clone(), *inode);
                if let Some(row) = self
                    .files
                    .get_mut(&place)
                    .and_then(|file| file.get_mut(&(*lease, owner.clone())))
                {
                    row[cells(*range)].fill(None);
                }
            }
            Transition::GrantEnded { fence, ending, .. } if *ending != Ending::Withdrawn => {
                if let Some(granted) = granted(*fence) {
                    self.end_set(granted);
                }
            }
            // What its owner may take back in a reclaim window nobody else has: that is the table's to keep.
            Transition::LeaseLapsed { namespace, lease, .. }
            | Transition::LeaseEnding { namespace, lease, .. }
            | Transition::LeaseEnded { namespace, lease, .. } => {
                for (_, file) in self.files.iter_mut().filter(|((at, _), _)| at == namespace) {
                    file.retain(|(holder, _), _| holder != lease);
                }
            }
            Transition::EpochBegan { .. }
            | Transition::Jumped { .. }
            | Transition::SessionOpened(_)
            | Transition::TtlChanged { .. }
            | Transition::GrantEnded { .. }
            | Transition::KeyEnded { .. }
            | Transition::FenceAccepted { .. }
            | Transition::FenceDeleted { .. } => {}
        }
        self.files.retain(|_, file| {
            file.retain(|_, row| row.iter().any(Option::is_some));
            !file.is_empty()
        });
        Ok(())
    }

    fn lock(&mut self, granted: &Granted, claim: &Claim) -> Result<(), String> {
        let Scope::Range { inode, range } = claim.scope else { return Ok(()) };
        let party: Party = (granted.lease, granted.owner.clone());
        let file = self.files.entry((granted.namespace.clone(), inode)).or_default();
        for (other, row) in file.iter().filter(|(other, _)| **other != party) {
            let conflicts = |cell: &Cell| cell.mode.conflicts_with(claim.mode);
            if row[cells(range)].iter().flatten().any(conflicts) {
                return Err(format!(
                    "{} got bytes {}..={} of inode {inode} {}, which {} holds under another lease",
                    party.1,
                    range.start(),
                    range.last(),
                    claim.mode,
                    other.1
                ));
            }
        }
        let row = file.entry(party).or_insert_with(|| [const { None }; CELLS]);
        for cell in &mut row[cells(range)] {
            let tokens = cell.take().filter(|cell| cell.mode == claim.mode).map(|cell| cell.tokens);
            *cell = Some(Cell { mode: claim.mode, tokens: tokens.unwrap_or_default() });
        }
        merge(row, cells(range), granted.fence);
        Ok(())
    }

    /// The bytes of a set that has names too go with its token.
    fn end_set(&mut self, granted: &Granted) {
        let ranges =
            granted.claims.iter().filter(|claim| matches!(claim.scope, Scope::Range { .. }));
        if ranges.clone().count() == granted.claims.len() {
            return;
        }
        let party = (granted.lease, granted.owner.clone());
        for claim in ranges {
            let Scope::Range { inode, range } = claim.scope else { continue };
            let place = (granted.namespace.clone(), inode);
            let Some(row) = self.files.get_mut(&place).and_then(|file| file.get_mut(&party)) else {
                continue;
            };
            for cell in &mut row[cells(range)] {
                cell.take_if(|cell| cell.tokens.contains(&granted.fence));
            }
        }
    }

    /// Whether anything is left of the bytes that were granted with this token.
    pub(super) fn stands(&self, granted: &Granted) -> bool {
        let party = (granted.lease, granted.owner.clone());
        granted.claims.iter().any(|claim| {
            let Scope::Range { inode, range } = claim.scope else { return false };
            let file = self.files.get(&(granted.namespace.clone(), inode));
            let row = file.and_then(|file| file.get(&party));
            row.is_some_and(|row| {
                let mut held = row[cells(range)].iter().flatten();
                held.any(|cell| cell.tokens.contains(&granted.fence))
            })
        })
    }

    pub(super) fn forget(&mut self) {
        self.files.clear();
    }
}

fn cells(range: ByteRange) -> std::ops::Range<usize> {
    let cell = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX).min(CELLS - 1);
    cell(range.start())..cell(range.last()) + 1
}

/// What touches and has the same mode is one piece, for which all tokens of its parts are good.
fn merge(row: &mut Row, asked: std::ops::Range<usize>, token: FencingToken) {
    let mode = row[asked.start].as_ref().map(|cell| cell.mode);
    let is_same = |cell: &Option<Cell>| cell.as_ref().map(|cell| cell.mode) == mode;
    let before = row[..asked.start].iter().rev().take_while(|cell| is_same(cell)).count();
    let after = row[asked.end..].iter().take_while(|cell| is_same(cell)).count();
    let piece = &mut row[asked.start - before..asked.end + after];
    let mut tokens: BTreeSet<FencingToken> =
        piece.iter().flatten().flat_map(|cell| cell.tokens.iter().copied()).collect();
    tokens.insert(token);
    piece.iter_mut().flatten().for_each(|cell| cell.tokens.clone_from(&tokens));
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Millis, Timestamp};

    use super::*;

    fn granted(lease: u128, fence: u64, mode: Mode, (start, end): (u64, u64)) -> Granted {
        let range = ByteRange::half_open(start, Some(end)).unwrap();
        Granted {
            namespace: Namespace::default(),
            lease: LeaseId::from_u128(lease),
            opens: None,
            owner: Owner::new("worker").unwrap(),
            claims: vec![Claim { scope: Scope::range(1, range), mode }],
            fence: FencingToken::new(fence).unwrap(),
            granted_at: Timestamp::ZERO,
            reclaim_window: Millis::new(0),
            request: None,
            metadata: None,
        }
    }

    fn note(bytes: &mut Bytes, granted: &Granted) -> Result<(), String> {
        bytes.note(&Transition::Granted(granted.clone()), |_| None)
    }

    fn unlocked(lease: u128, (start, end): (u64, u64)) -> Transition {
        Transition::RangeEnded {
            namespace: Namespace::default(),
            lease: LeaseId::from_u128(lease),
            owner: Owner::new("worker").unwrap(),
            inode: 1,
            range: ByteRange::half_open(start, Some(end)).unwrap(),
            ending: Ending::Released,
        }
    }

    #[test]
    fn another_lease_of_the_same_owner_is_another_holder() {
        let mut bytes = Bytes::default();
        note(&mut bytes, &granted(1, 1, Mode::Exclusive, (0, 4))).unwrap();
        note(&mut bytes, &granted(1, 2, Mode::Shared, (2, 4))).unwrap();
        note(&mut bytes, &granted(2, 3, Mode::Shared, (3, 9))).unwrap();
        assert!(note(&mut bytes, &granted(2, 4, Mode::Exclusive, (1, 2))).is_err());
    }

    #[test]
    fn grant_stands_as_long_as_a_byte_of_it_has_its_token() {
        let mut bytes = Bytes::default();
        let (one, two) =
            (granted(1, 1, Mode::Exclusive, (0, 4)), granted(1, 2, Mode::Exclusive, (4, 8)));
        note(&mut bytes, &one).unwrap();
        note(&mut bytes, &two).unwrap();
        bytes.note(&unlocked(1, (0, 3)), |_| None).unwrap();
        assert!(bytes.stands(&one) && bytes.stands(&two));
        bytes.note(&unlocked(1, (3, 4)), |_| None).unwrap();
        assert!(!bytes.stands(&one), "what it merged with was granted with another token");
        assert!(bytes.stands(&two));
    }
}
