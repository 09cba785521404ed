//! An observer of every step that is decided, for tests and the simulator. Without the feature `inspect` there is
//! nobody.

use std::cell::Cell;
use std::fmt;

use leasehold_core::{Command, LockTable, Step, Transition};

/// Looks at every step of one engine.
pub trait Watch: fmt::Debug + Send {
    /// A command is about to be carried out.
    fn before(&mut self, command: &Command);

    /// It has been.
    fn after(&mut self, table: &LockTable, step: &Step);

    /// Decisions that no store has kept were undone.
    fn rolled_back(&mut self, table: &LockTable);

    /// A change that was undone turned out to be durable and was made again.
    fn applied(&mut self, table: &LockTable, transition: &Transition);
}

/// Makes the one who looks at an engine that has just begun with this table.
pub type Watcher = fn(&LockTable) -> Box<dyn Watch>;

thread_local! {
    static WATCHER: Cell<Option<Watcher>> = const { Cell::new(None) };
}

/// From now on every engine that begins in this thread is looked at.
pub fn watch(watcher: Option<Watcher>) {
    WATCHER.set(watcher);
}

/// The one who looks at an engine.
#[derive(Debug)]
pub(crate) struct Inspection(Option<Box<dyn Watch>>);

impl Inspection {
    pub(crate) fn new(table: &LockTable) -> Inspection {
        Inspection(WATCHER.get().map(|watcher| watcher(table)))
    }

    pub(crate) fn before(&mut self, command: &Command) {
        self.0.iter_mut().for_each(|watch| watch.before(command));
    }

    pub(crate) fn after(&mut self, table: &LockTable, step: &Step) {
        self.0.iter_mut().for_each(|watch| watch.after(table, step));
    }

    pub(crate) fn rolled_back(&mut self, table: &LockTable) {
        self.0.iter_mut().for_each(|watch| watch.rolled_back(table));
    }

    pub(crate) fn applied(&mut self, table: &LockTable, transition: &Transition) {
        self.0.iter_mut().for_each(|watch| watch.applied(table, transition));
    }
}
