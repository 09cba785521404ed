//! Judges a history: is there an order of its operations, each at a moment between its call and its answer, that a true
//! lock service could have gone through?
//!
//! Locks do not touch each other, so each is searched alone. The search goes through calls and answers in time (Wing and
//! Gong, with Lowe's just-in-time order) and keeps every *configuration* that explains what was seen so far: a state of the
//! lock, and which of the unanswered operations have already taken effect. When an operation returns, it must have taken
//! effect: configurations in which it cannot have are dropped. When none is left, the history cannot have happened.
//! Configurations are compared whole, never by a hash alone.
//!
//! Time is part of the state. Every operation takes effect as early as its call, its predecessors and the leases in its way
//! allow. All rules about time say "not before", so the earliest moments are the ones that explain most. A lease may end at
//! its deadline or any time after it; nobody has to see that until something else follows from it.
//!
//! Refusals change nothing. One is explained if, at some moment between call and answer, something was in its way.

mod fault;
mod search;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::history::{Acquired, Event, LockIndex, Moment, Operation, Token};
pub use fault::Fault;
use search::Search;

/// The settings of the judge: facts about the service.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The longest delay after the end of a lease until a refusal because of it is a fault.
    pub late_max: Duration,
    /// The most configurations that are kept before the search gives up.
    pub configurations_max: usize,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { late_max: Duration::from_secs(5), configurations_max: 200_000 }
    }
}

/// A history that can have happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub operations: usize,
    pub locks: usize,
    pub grants: usize,
    pub refusals: usize,
    pub unknown: usize,
    pub restarts: usize,
    /// The most configurations that had to be kept at a time.
    pub configurations: usize,
}

/// Checks each lock alone, and the tokens of all of them together.
pub fn check(history: &[Operation], rules: Rules) -> Result<Checked, Fault> {
    check_tokens(history)?;
    let mut checked = count(history);
    let mut undecided = None;
    for (lock, operations) in by_lock(history) {
        match Search::new(lock, operations, rules).run() {
            Ok(configurations) => {
                checked.configurations = checked.configurations.max(configurations);
                checked.locks += 1;
            }
            // Another lock may still show for certain that something is wrong.
            Err(fault @ Fault::Undecided { .. }) => undecided = undecided.or(Some(fault)),
            Err(fault) => return Err(fault),
        }
    }
    undecided.map_or(Ok(checked), Err)
}

/// A token is given once, and one that was asked for after another was known is higher.
fn check_tokens(history: &[Operation]) -> Result<(), Fault> {
    let mut grants: Vec<(&Operation, Token)> =
        history.iter().filter_map(|operation| Some((operation, granted(operation)?))).collect();
    let mut seen = HashMap::new();
    for &(operation, token) in &grants {
        // A set is one request for several locks, with one token.
        let one_request = |other: &&Operation| {
            (other.client, other.invoked) == (operation.client, operation.invoked)
                && other.lock != operation.lock
        };
        if let Some(other) = seen.insert(token, operation).filter(|other| !one_request(other)) {
            return Err(Fault::TokenTwice {
                token,
                first: Box::new(*other),
                second: Box::new(*operation),
            });
        }
    }
    let mut answered = grants.clone();
    answered.sort_by_key(|(operation, _)| operation.returned);
    grants.sort_by_key(|(operation, _)| operation.invoked);
    let mut answered = answered.into_iter().peekable();
    let mut highest: Option<(&Operation, Token)> = None;
    for (operation, token) in grants {
        while let Some(known) = answered.next_if(|(known, _)| known.returned < operation.invoked) {
            if highest.is_none_or(|(_, high)| high < known.1) {
                highest = Some(known);
            }
        }
        if let Some((first, high)) = highest
            && token <= high
        {
            return Err(Fault::TokenLower {
                first: Box::new(*first),
                second: Box::new(*operation),
            });
        }
    }
    Ok(())
}

fn granted(operation: &Operation) -> Option<Token> {
    match operation.event {
        Event::Acquire { outcome: Acquired::Granted(token), .. } => Some(token),
        Event::Acquire { .. }
        | Event::Renew { .. }
        | Event::Release { .. }
        | Event::Restart { .. } => None,
    }
}

/// The operations of each lock; a restart belongs to all.
fn by_lock(history: &[Operation]) -> BTreeMap<LockIndex, Vec<Operation>> {
    let is_restart = |operation: &&Operation| matches!(operation.event, Event::Restart { .. });
    let restarts: Vec<Operation> = history.iter().filter(is_restart).copied().collect();
    let mut by_lock: BTreeMap<LockIndex, Vec<Operation>> = BTreeMap::new();
    for operation in history.iter().filter(|operation| !is_restart(operation)) {
        by_lock.entry(operation.lock).or_insert_with(|| restarts.clone()).push(*operation);
    }
    by_lock
}

fn count(history: &[Operation]) -> Checked {
    let mut checked = Checked { operations: history.len(), ..Checked::default() };
    for operation in history {
        match operation.event {
            Event::Acquire { outcome: Acquired::Granted(_), .. } => checked.grants += 1,
            Event::Acquire { outcome: Acquired::Refused, .. } => checked.refusals += 1,
            Event::Restart { .. } => checked.restarts += 1,
            Event::Acquire { outcome: Acquired::Unknown, .. } => checked.unknown += 1,
            Event::Renew { outcome, .. } | Event::Release { outcome, .. } => {
                checked.unknown += usize::from(outcome == crate::history::Kept::Unknown);
            }
        }
    }
    checked
}

/// The moments at which something is called or answered, in order. What happens at the same moment may overlap, so calls
/// come before answers.
fn moments(operations: &[Operation]) -> Vec<(Moment, bool, usize)> {
    let mut moments = Vec::with_capacity(operations.len() * 2);
    for (index, operation) in operations.iter().enumerate() {
        moments.push((operation.invoked, false, index));
        if operation.returned < Moment::NEVER {
            moments.push((operation.returned, true, index));
        }
    }
    moments.sort_unstable();
    moments
}
