//! What happened, as a number for machines and as lines for people.

use std::fmt::Arguments;

use crate::plan::Node;
use crate::time::Moment;

/// Follows everything that happens. The number is always kept; the lines only when they are wanted.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    pub events: u64,
    lines: Option<Vec<String>>,
}

/// More lines than that nobody reads: the oldest go.
const LINES_MAX: usize = 200_000;

impl Trace {
    pub fn new(with_lines: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, events: 0, lines: with_lines.then(Vec::new) }
    }

    /// Two worlds are the same if all that was noted is.
    pub fn note(&mut self, what: u64) {
        self.hash = (self.hash ^ what).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    pub fn is_read(&self) -> bool {
        self.lines.is_some()
    }

    pub fn line(&mut self, now: Moment, node: Node, what: Arguments<'_>) {
        if let Some(lines) = &mut self.lines {
            if lines.len() == LINES_MAX {
                lines.drain(..LINES_MAX / 2);
            }
            lines.push(format!("{now}  {:<9} {what}", node.to_string()));
        }
    }

    pub fn take_lines(&mut self) -> Vec<String> {
        self.lines.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
