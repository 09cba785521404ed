//! The search through the explanations of one lock's history.

use std::collections::HashSet;

use super::state::State;
use super::{Fault, Rules, moments};
use crate::history::{Acquired, Event, Kept, LockIndex, Mode, Moment, Operation, Token};

/// How many operations before a fault are shown.
const SHOWN_LEN: usize = 12;

/// One way to explain what was seen so far.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Configuration {
    state: State,
    /// Operations that have taken effect and have not returned yet, in order.
    done: Vec<usize>,
}

pub(super) struct Search {
    lock: LockIndex,
    operations: Vec<Operation>,
    rules: Rules,
    configurations: Vec<Configuration>,
    /// Called and not answered.
    open: Vec<usize>,
    /// Acquires without an answer: if they were granted, nobody knows the token, so nothing but refusals can come of them.
    phantoms: Vec<Phantom>,
    /// Until when requests that stood in the queue were there: exclusive ones, shared ones.
    queued_until: [Option<Moment>; 2],
    configurations_most: usize,
}

struct Phantom {
    mode: Mode,
    ttl: std::time::Duration,
    until: Moment,
}

impl Search {
    pub(super) fn new(lock: LockIndex, operations: Vec<Operation>, rules: Rules) -> Search {
        Search {
            lock,
            operations,
            rules,
            configurations: vec![Configuration { state: State::default(), done: Vec::new() }],
            open: Vec::new(),
            phantoms: Vec::new(),
            queued_until: [None; 2],
            configurations_most: 1,
        }
    }

    /// The most configurations at a time, if the history can be explained.
    pub(super) fn run(mut self) -> Result<usize, Fault> {
        for (_, is_answer, index) in moments(&self.operations) {
            if is_answer {
                self.answer(index)?;
            } else {
                self.call(index);
            }
            self.configurations_most = self.configurations_most.max(self.configurations.len());
        }
        Ok(self.configurations_most)
    }

    fn call(&mut self, index: usize) {
        let operation = self.operations[index];
        if let Event::Acquire { mode, ttl, outcome: Acquired::Unknown, .. } = operation.event {
            self.phantoms.push(Phantom { mode, ttl, until: operation.returned + ttl });
        }
        if let Event::Restart { down } = operation.event {
            for phantom in self.phantoms.iter_mut().filter(|phantom| phantom.until >= down) {
                phantom.until = phantom.until.max(operation.returned + phantom.ttl);
            }
        }
        let late_max = self.rules.late_max;
        self.phantoms.retain(|phantom| phantom.until + late_max >= operation.invoked);
        self.open.push(index);
        let mut configurations = std::mem::take(&mut self.configurations);
        for configuration in &mut configurations {
            self.mark_refusals(configuration);
        }
        self.configurations = configurations;
    }

    fn answer(&mut self, index: usize) -> Result<(), Fault> {
        let operation = self.operations[index];
        if self.needs_no_explanation(&operation) {
            self.close(index);
            return Ok(());
        }
        let mut explained = HashSet::new();
        let mut seen = HashSet::new();
        let before = std::mem::take(&mut self.configurations);
        let mut next = before.clone();
        while let Some(configuration) = next.pop() {
            if configuration.done.contains(&index) {
                explained.insert(configuration);
                continue;
            }
            for after in self.successors(&configuration, operation.returned) {
                if seen.insert(after.clone()) {
                    next.push(after);
                }
            }
            if seen.len() > self.rules.configurations_max {
                return Err(Fault::Undecided { lock: self.lock, operation });
            }
        }
        // Nobody knows whether it took effect; if it did, then before its answer would have come.
        if unknown_token(&operation).is_some() {
            explained.extend(before);
        } else if explained.is_empty() {
            return Err(self.unexplained(index, &before));
        }
        self.configurations = explained.into_iter().collect();
        self.close(index);
        Ok(())
    }

    /// What one more of the open operations can make of this configuration.
    fn successors<'a>(
        &'a self,
        from: &'a Configuration,
        limit: Moment,
    ) -> impl Iterator<Item = Configuration> + 'a {
        self.open.iter().filter(|index| !from.done.contains(index)).filter_map(move |&index| {
            let state = from.state.after(&self.operations[index], limit)?;
            let mut after = Configuration { state, done: from.done.clone() };
            after.done.push(index);
            self.mark_refusals(&mut after);
            after.done.sort_unstable();
            Some(after)
        })
    }

    /// Refusals change nothing: one counts as done as soon as something is in its way.
    fn mark_refusals(&self, configuration: &mut Configuration) {
        for &index in &self.open {
            let operation = &self.operations[index];
            if let Event::Acquire { mode, outcome: Acquired::Refused, .. } = operation.event
                && !configuration.done.contains(&index)
                && configuration.state.is_in_the_way(mode, operation.invoked, self.rules.late_max)
            {
                configuration.done.push(index);
                configuration.done.sort_unstable();
            }
        }
    }

    /// Grants that nobody heard of, and refusals because of others that were waiting or may have been granted.
    fn needs_no_explanation(&self, operation: &Operation) -> bool {
        match operation.event {
            Event::Acquire { outcome: Acquired::Unknown, .. } => true,
            Event::Acquire { mode, outcome: Acquired::Refused, .. } => {
                self.is_behind_phantom(mode, operation) || self.is_behind_waiter(mode, operation)
            }
            Event::Acquire { outcome: Acquired::Granted(_), .. }
            | Event::Renew { .. }
            | Event::Release { .. }
            | Event::Restart { .. } => false,
        }
    }

    fn is_behind_phantom(&self, mode: Mode, operation: &Operation) -> bool {
        self.phantoms.iter().any(|phantom| {
            phantom.mode.conflicts_with(mode)
                && operation.invoked <= phantom.until + self.rules.late_max
        })
    }

    fn is_behind_waiter(&self, mode: Mode, operation: &Operation) -> bool {
        let gone = [Mode::Exclusive, Mode::Shared].into_iter().zip(self.queued_until);
        let mut gone = gone.filter_map(|(other, until)| Some((other, until?)));
        let is_gone = gone
            .any(|(other, until)| other.conflicts_with(mode) && operation.invoked <= until);
        is_gone
            || self.open.iter().map(|&index| &self.operations[index]).any(|other| {
                other != operation
                    && queued_mode(other).is_some_and(|other| other.conflicts_with(mode))
            })
    }

    fn close(&mut self, index: usize) {
        let operation = self.operations[index];
        let mut closed = self.without_object();
        closed.push(index);
        self.open.retain(|open| !closed.contains(open));
        for configuration in &mut self.configurations {
            configuration.done.retain(|done| !closed.contains(done));
        }
        if let Some(mode) = queued_mode(&operation) {
            let until = &mut self.queued_until[usize::from(mode == Mode::Shared)];
            *until = Some(operation.returned);
        }
        if self.configurations.len() > 1 {
            let distinct: HashSet<Configuration> = self.configurations.drain(..).collect();
            self.configurations.extend(distinct);
        }
    }

    /// Open operations without an answer whose lease is there in no configuration any more: nothing can come of them.
    fn without_object(&self) -> Vec<usize> {
        let is_without = |index: &&usize| {
            let operation = &self.operations[**index];
            let Some(token) = unknown_token(operation) else { return false };
            !self.configurations.iter().any(|configuration| configuration.state.knows(token))
        };
        self.open.iter().filter(is_without).copied().collect()
    }

    fn unexplained(&self, index: usize, before: &[Configuration]) -> Fault {
        let operation = self.operations[index];
        let mut earlier: Vec<Operation> = self.operations.clone();
        earlier.retain(|other| other.invoked <= operation.returned && *other != operation);
        earlier.sort_by_key(|other| other.invoked);
        let before_len = earlier.len().saturating_sub(SHOWN_LEN);
        Fault::Unexplained {
            lock: self.lock,
            operation,
            held: before.first().map(|first| format!("{:?}", first.state)).unwrap_or_default(),
            before: earlier.split_off(before_len),
        }
    }
}

/// The lease that an operation without an answer was about.
fn unknown_token(operation: &Operation) -> Option<Token> {
    match operation.event {
        Event::Renew { token, outcome: Kept::Unknown, .. }
        | Event::Release { token, outcome: Kept::Unknown } => Some(token),
        Event::Renew { outcome: Kept::Done | Kept::Lost, .. }
        | Event::Release { outcome: Kept::Done | Kept::Lost, .. }
        | Event::Acquire { .. }
        | Event::Restart { .. } => None,
    }
}

/// The mode of a request that could stand in the queue.
fn queued_mode(operation: &Operation) -> Option<Mode> {
    match operation.event {
        Event::Acquire { mode, waited: true, .. } => Some(mode),
        Event::Acquire { waited: false, .. }
        | Event::Renew { .. }
        | Event::Release { .. }
        | Event::Restart { .. } => None,
    }
}
