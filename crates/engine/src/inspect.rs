//! Somebody who looks at every step that is decided, for tests and the simulator. Without the feature `inspect` there is
//! nobody.

use std::cell::Cell;

use leasehold_core::{Command, LockTable, Step};

/// Gets the table before and after, what was asked, and what came of it.
pub type Watch = fn(&LockTable, &LockTable, &Command, &Step);

thread_local! {
    static WATCH: Cell<Option<Watch>> = const { Cell::new(None) };
}

/// From now on this one looks at every step in this thread.
pub fn watch(watch: Option<Watch>) {
    WATCH.set(watch);
}

/// What is needed to look at a step that is about to be made.
pub(crate) fn before(table: &LockTable, command: &Command) -> Option<(Watch, LockTable, Command)> {
    let watch = WATCH.get()?;
    Some((watch, table.clone(), command.clone()))
}
