//! The conformance suite: what every store has to do, as tests.
//!
//! A store joins with a [`Harness`], which knows how to open it and how to harm it, and one line:
//! `conformance_tests!(harness, block_on)`. Each case gets a store of its own with nothing in it.

mod access;
mod cases;
mod faulty;
mod steps;
pub mod servers;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crate::journal::{Journal, Seq};

pub use access::*;
pub use cases::*;
pub use faulty::{FaultyJournal, InjectedFault, JournalEffect};

/// Something that the harness does, in its own time.
pub type Step<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One store to be tested.
pub trait Harness: Send + Sync {
    /// Opens the store as a server does when it starts. Unless it is shared, all that was opened before has been
    /// dropped.
    fn open(&self) -> Step<'_, Arc<dyn Journal>>;

    /// Leaves no room for another record, or makes room again.
    fn set_full<'a>(&'a self, journal: &'a Arc<dyn Journal>, full: bool) -> Step<'a, ()>;

    /// Harms what is stored. No journal is open, unless the store is only in memory.
    fn corrupt(&self, what: Corruption) -> Step<'_, ()>;
}

/// Damage to stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Corruption {
    /// Cuts the record off in its middle.
    CutRecord(Seq),
    /// Changes one bit of the record.
    FlipRecord(Seq),
    /// Takes the record away.
    RemoveRecord(Seq),
    /// Changes one bit of a chunk of the complete snapshot.
    FlipChunk(u32),
    /// Marks the record as one of a newer version, with everything else in order.
    NewerRecord(Seq),
}

impl Corruption {
    /// Does it to the bytes; `None` when they are to be taken away.
    pub fn apply(self, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        match self {
            Corruption::CutRecord(_) => bytes.truncate(bytes.len() / 2),
            Corruption::FlipRecord(_) | Corruption::FlipChunk(_) => {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 4;
            }
            Corruption::RemoveRecord(_) => return None,
            Corruption::NewerRecord(_) => {
                bytes[0] = crate::record::VERSION + 1;
                crate::record::reseal(&mut bytes);
            }
        }
        Some(bytes)
    }
}

/// Waits on this thread until the future is done. For stores that need no runtime of their own.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Makes a test of each case. `$harness` is evaluated anew for every one; `$block_on` runs a future to its end. Where a
/// store that is full would be in the way of other tests, `$full` is the harness for the cases in which it is.
#[macro_export]
macro_rules! conformance_tests {
    ($harness:expr, $block_on:path) => {
        $crate::conformance_tests!($harness, $block_on, $harness);
    };
    ($harness:expr, $block_on:path, $full:expr) => {
        $crate::conformance_tests! { @each $full, $block_on;
            full_store_refuses_records
            store_works_again_when_there_is_room
        }
        $crate::conformance_tests! { @each $harness, $block_on;
            records_come_back_in_order
            records_are_there_after_reopening
            every_kind_of_transition_comes_back
            large_journal_is_loaded_in_pages
            journal_of_many_small_records_is_loaded_whole
            record_out_of_order_is_refused
            record_of_an_epoch_that_never_led_is_refused
            each_campaign_raises_the_epoch
            epoch_goes_on_after_reopening
            deposed_leader_commits_nothing
            leader_that_resigned_commits_nothing
            campaign_against_a_live_leader_is_lost
            campaign_against_an_overdue_leader_is_won
            leader_is_known_until_it_resigns
            epoch_that_was_jumped_is_gone_on_from
            torn_last_record_is_left_out
            torn_last_record_is_replaced_by_the_next
            torn_last_record_is_found_wherever_the_leader_was_last_confirmed
            lost_replacement_of_a_torn_record_is_settled_by_reading_back
            torn_record_behind_the_snapshot_does_not_matter
            corrupt_record_in_the_middle_stops_the_load
            missing_record_stops_the_load
            record_of_a_newer_version_stops_the_load
            corrupt_chunk_stops_the_load
            snapshot_takes_the_place_of_the_records_before_it
            pruned_journal_loads_the_same
            pruned_journal_goes_on_with_the_next_number
            pruning_goes_in_short_steps
            appends_go_on_while_a_snapshot_is_written
            large_snapshot_is_loaded_in_pages
            unfinished_snapshot_is_ignored
            unfinished_snapshot_is_ignored_after_reopening
            new_snapshot_may_begin_before_the_last_is_finished
            chunk_out_of_order_is_refused
            snapshot_of_records_to_come_is_refused
            snapshot_behind_the_last_one_is_refused
            commit_of_a_snapshot_with_missing_chunks_is_refused
            commit_of_a_snapshot_may_be_repeated
            snapshot_begun_by_a_deposed_leader_is_refused
            lost_answer_is_settled_by_reading_back
            lost_request_is_settled_by_reading_back
            dropped_append_leaves_the_journal_whole
            access_documents_come_back_in_order
            access_change_for_another_version_changes_nothing
            one_of_many_access_changes_at_once_is_made
            access_documents_are_there_after_reopening
            access_documents_do_not_ask_who_leads
            largest_access_change_is_made_whole
        }
    };
    (@each $harness:expr, $block_on:path; $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                let harness = $harness;
                $block_on($crate::conformance::$case(&harness));
            }
        )*
    };
}
