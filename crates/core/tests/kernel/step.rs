//! The steps of a script, as they are printed when something goes wrong.

use std::fmt;

use super::wire::Order;

/// What one process does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) process: usize,
    pub(crate) act: Act,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Order(Order),
    /// A signal ends the call it waits in.
    Interrupt,
    /// It ends by itself; a new process takes its place.
    Exit,
    /// It is killed, waiting or not; a new process takes its place.
    Kill,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}: ", self.process)?;
        match self.act {
            Act::Order(order) => write!(f, "{order}"),
            Act::Interrupt => f.write_str("interrupt"),
            Act::Exit => f.write_str("exit"),
            Act::Kill => f.write_str("kill"),
        }
    }
}
