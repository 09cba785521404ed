//! Memory and SQLite side by side: whatever is asked of them, in whatever order, they give the same answers.
#![allow(clippy::unwrap_used, reason = "in a test the panic is the report")]

mod common;

use std::sync::Arc;

use common::{candidate, chunk, fast_folder, granted, open};
use leasehold_core::Epoch;
use leasehold_store::conformance::block_on;
use leasehold_store::{
    Batch, Campaign, Conflict, Error, Journal, Loaded, MemoryJournal, Position, Pruned, Seq,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Something that is asked. Numbers are near what would be right, so that some of them are.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Lead,
    Resign { epoch_off: u64 },
    Append { epoch_off: u64, seq_off: i64 },
    ReadBack { seq_off: i64 },
    PutChunk { epoch_off: u64, as_of_back: u64, index_off: i64 },
    CommitSnapshot { as_of_back: u64, chunks_off: i64 },
    Prune,
    Load,
    Reopen,
}

fn ask() -> impl Strategy<Value = Ask> {
    let mostly_right = || prop_oneof![8 => Just(0), 1 => Just(1), 1 => Just(-1)];
    let mostly_mine = || prop_oneof![12 => Just(0_u64), 1 => 1..3_u64];
    prop_oneof![
        1 => Just(Ask::Lead),
        1 => mostly_mine().prop_map(|epoch_off| Ask::Resign { epoch_off }),
        12 => (mostly_mine(), mostly_right())
            .prop_map(|(epoch_off, seq_off)| Ask::Append { epoch_off, seq_off }),
        2 => mostly_right().prop_map(|seq_off| Ask::ReadBack { seq_off }),
        6 => (mostly_mine(), 0..3_u64, mostly_right())
            .prop_map(|(epoch_off, as_of_back, index_off)| Ask::PutChunk { epoch_off, as_of_back, index_off }),
        3 => (0..3_u64, mostly_right())
            .prop_map(|(as_of_back, chunks_off)| Ask::CommitSnapshot { as_of_back, chunks_off }),
        2 => Just(Ask::Prune),
        2 => Just(Ask::Load),
        1 => Just(Ask::Reopen),
    ]
}

/// An answer in a form that can be compared.
#[derive(Debug, PartialEq)]
enum Answer {
    Done,
    Epoch(u64),
    Record(Option<Batch>),
    Items(Vec<Loaded>),
    Conflict(Conflict),
    Other(String),
}

impl Answer {
    fn of<T>(answer: Result<T, Error>, or: impl FnOnce(T) -> Answer) -> Answer {
        match answer {
            Ok(done) => or(done),
            Err(Error::Conflict(conflict)) => Answer::Conflict(conflict),
            Err(error) => Answer::Other(error.to_string()),
        }
    }
}

/// Where the asking has come to; the same for both stores.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    epoch: u64,
    last: u64,
    as_of: u64,
    chunks: u32,
    records: u64,
}

impl Place {
    fn next(self, off: i64) -> Seq {
        Seq((self.last + 1).saturating_add_signed(off))
    }

    fn of_epoch(self, back: u64) -> Epoch {
        Epoch(self.epoch.saturating_sub(back))
    }
}

fn asked(journal: &dyn Journal, place: Place, ask: Ask) -> Answer {
    let epoch = Epoch(place.epoch);
    match ask {
        Ask::Lead | Ask::Reopen => lead(journal),
        Ask::Resign { epoch_off } => {
            let answer = block_on(journal.resign(place.of_epoch(epoch_off)));
            Answer::of(answer, |()| Answer::Done)
        }
        Ask::Append { epoch_off, seq_off } => {
            let transition = granted(place.records);
            let batch = Batch::new(place.of_epoch(epoch_off), place.next(seq_off), [&transition]);
            Answer::of(block_on(journal.append(batch)), |()| Answer::Done)
        }
        Ask::ReadBack { seq_off } => {
            let answer = block_on(journal.read_back(epoch, place.next(seq_off - 1)));
            Answer::of(answer, Answer::Record)
        }
        Ask::PutChunk { epoch_off, as_of_back, index_off } => {
            let index = place.chunks.saturating_add_signed(i32::try_from(index_off).unwrap());
            let as_of = match index {
                0 => place.last.saturating_sub(as_of_back),
                1.. => place.as_of,
            };
            let chunk = chunk(place.of_epoch(epoch_off), as_of, index, 0..3);
            Answer::of(block_on(journal.put_chunk(chunk)), |()| Answer::Done)
        }
        Ask::CommitSnapshot { as_of_back, chunks_off } => {
            let as_of = Seq(place.as_of.saturating_sub(as_of_back));
            let chunks = place.chunks.saturating_add_signed(i32::try_from(chunks_off).unwrap());
            let answer = block_on(journal.commit_snapshot(epoch, as_of, chunks));
            Answer::of(answer, |()| Answer::Done)
        }
        Ask::Prune => loop {
            match block_on(journal.prune(epoch)) {
                Ok(Pruned::Partial) => {}
                answer => return Answer::of(answer, |_| Answer::Done),
            }
        },
        Ask::Load => Answer::of(load(journal, epoch), Answer::Items),
    }
}

fn lead(journal: &dyn Journal) -> Answer {
    let leader = block_on(journal.leader()).unwrap();
    let overdue = leader.map(|leader| leader.beat);
    match block_on(journal.campaign(candidate(), overdue)).unwrap() {
        Campaign::Won(leadership) => Answer::Epoch(leadership.epoch.0),
        Campaign::Lost(leader) => panic!("{leader:?} leads"),
    }
}

fn load(journal: &dyn Journal, epoch: Epoch) -> Result<Vec<Loaded>, Error> {
    let mut items = Vec::new();
    let mut next = Some(Position::Start);
    while let Some(position) = next {
        let page = block_on(journal.load(epoch, position))?;
        items.extend(page.items);
        next = page.next;
    }
    Ok(items)
}

impl Place {
    /// Keeps track of what was accepted.
    fn follow(&mut self, ask: Ask, answer: &Answer) {
        match (ask, answer) {
            (Ask::Lead | Ask::Reopen, Answer::Epoch(epoch)) => {
                self.epoch = *epoch;
                self.chunks = 0;
            }
            (Ask::Append { .. }, Answer::Done) => {
                self.last += 1;
                self.records += 1;
            }
            (Ask::PutChunk { as_of_back, index_off, .. }, Answer::Done) => {
                let off = i32::try_from(index_off).unwrap();
                if self.chunks.saturating_add_signed(off) == 0 {
                    self.as_of = self.last.saturating_sub(as_of_back);
                    self.chunks = 0;
                }
                self.chunks += 1;
            }
            (Ask::CommitSnapshot { .. }, Answer::Done) => self.chunks = 0,
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn memory_and_sqlite_give_the_same_answers(asks in vec(ask(), 1..60)) {
        let folder = fast_folder();
        let path = folder.path().join("locks.db");
        let memory = MemoryJournal::new();
        let mut sqlite = open(&path);
        let mut place = Place::default();
        for ask in asks.into_iter().chain([Ask::Reopen, Ask::Load]) {
            if matches!(ask, Ask::Reopen) {
                drop(sqlite);
                sqlite = open(&path);
            }
            let expected = asked(&memory, place, ask);
            let found = asked(&*Arc::clone(&sqlite), place, ask);
            prop_assert_eq!(&found, &expected, "{:?} at {:?}", ask, place);
            place.follow(ask, &expected);
        }
    }
}
