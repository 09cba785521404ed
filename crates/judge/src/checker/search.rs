//! The search through the explanations of one lock's history.

use std::collections::{HashMap, HashSet};

use super::state::{ByMode, Known, MODES, Phantom, State};
use super::{Fault, Rules, moments};
use crate::history::{Acquired, Event, Kept, LockIndex, Mode, Moment, Operation, Token};

/// The number of operations before a fault that are shown.
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
    known: Known,
    configurations: Vec<Configuration>,
    /// Called and not answered.
    open: Vec<usize>,
    /// Acquires without an answer, by what they asked for.
    phantoms: ByMode<Phantom>,
    /// Whether each token was told to a client, and if not, what was asked about it nevertheless and never answered. That
    /// can be in the moment it is told, and counts from then on.
    tokens: HashMap<Token, Told>,
    /// Until when requests for each mode that stood in the queue were there.
    queued_until: ByMode<Option<Moment>>,
    configurations_most: usize,
}

enum Told {
    NotYet(Vec<Operation>),
    Yes,
}

impl Configuration {
    /// The key that two of them must have in common for one to be better than the other.
    fn kin(&self) -> (&[usize], Token) {
        (&self.done, self.state.token())
    }

    /// Whether it explains all that the other explains.
    fn is_better_than(&self, other: &Configuration) -> bool {
        self.done == other.done && self.state.is_better_than(&other.state)
    }

    /// Notes an operation of unknown outcome: from its call on it may have happened or not.
    fn note_unknown(&mut self, operation: &Operation) {
        match operation.event {
            Event::Renew { token, ttl, outcome: Kept::Unknown } => {
                self.state.may_be_renewed(token, ttl, operation.returned);
            }
            Event::Release { token, outcome: Kept::Unknown } => self.state.may_be_released(token),
            Event::Renew { outcome: Kept::Done | Kept::Lost, .. }
            | Event::Release { outcome: Kept::Done | Kept::Lost, .. }
            | Event::Acquire { .. }
            | Event::Restart { .. } => {}
        }
    }
}

impl Search {
    pub(super) fn new(lock: LockIndex, operations: Vec<Operation>, rules: Rules) -> Search {
        let asked_again = asked_again(&operations);
        Search {
            lock,
            operations,
            rules,
            known: Known { late_max: rules.late_max, asked_again },
            configurations: vec![Configuration { state: State::default(), done: Vec::new() }],
            open: Vec::new(),
            phantoms: ByMode::default(),
            tokens: HashMap::new(),
            queued_until: ByMode::default(),
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
            self.phantoms.of_mut(mode).may_last(ttl, operation.returned + ttl);
        }
        if let Event::Restart { .. } = operation.event {
            for mode in MODES {
                self.phantoms.of_mut(mode).restart(&operation, self.rules.late_max);
            }
        }
        if operation.returned < Moment::NEVER {
            self.open.push(index);
        }
        if let Some(token) = unknown_of(&operation) {
            let told = self.tokens.entry(token).or_insert_with(|| Told::NotYet(Vec::new()));
            if let Told::NotYet(early) = told {
                early.push(operation);
            }
        }
        self.note_unknown(&operation);
    }

    fn note_unknown(&mut self, operation: &Operation) {
        let mut configurations = std::mem::take(&mut self.configurations);
        for configuration in &mut configurations {
            configuration.note_unknown(operation);
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
                return Err(Fault::Undecided { lock: self.lock, operation: Box::new(operation) });
            }
        }
        if explained.is_empty() {
            return Err(self.unexplained(index, &before));
        }
        self.configurations = explained.into_iter().collect();
        self.close(index);
        Ok(())
    }

    /// The configurations that one more of the open operations can make of this one.
    fn successors<'a>(
        &'a self,
        from: &'a Configuration,
        limit: Moment,
    ) -> impl Iterator<Item = Configuration> + 'a {
        self.open.iter().filter(|index| !from.done.contains(index)).filter_map(move |&index| {
            let state = from.state.after(&self.operations[index], limit, &self.known)?;
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

    /// Tests for operations without an answer, and refusals because of others that were waiting or may have been granted.
    fn needs_no_explanation(&self, operation: &Operation) -> bool {
        match operation.event {
            Event::Acquire { outcome: Acquired::Unknown, .. }
            | Event::Renew { outcome: Kept::Unknown, .. }
            | Event::Release { outcome: Kept::Unknown, .. } => true,
            Event::Acquire { mode, outcome: Acquired::Refused, .. } => {
                self.is_behind_phantom(mode, operation) || self.is_behind_waiter(mode, operation)
            }
            Event::Acquire { outcome: Acquired::Granted(_), .. }
            | Event::Renew { outcome: Kept::Done | Kept::Lost, .. }
            | Event::Release { outcome: Kept::Done | Kept::Lost, .. }
            | Event::Restart { .. } => false,
        }
    }

    fn is_behind_phantom(&self, mode: Mode, operation: &Operation) -> bool {
        self.phantoms.against(mode).any(|phantom| {
            phantom.until().is_some_and(|until| operation.invoked <= until + self.rules.late_max)
        })
    }

    fn is_behind_waiter(&self, mode: Mode, operation: &Operation) -> bool {
        let is_open = |other: Mode| {
            let mut open = self.open.iter().map(|&index| &self.operations[index]);
            open.any(|queued| queued != operation && queued_mode(queued) == Some(other))
        };
        let is_over = |other: Mode| self.queued_until.of(other) >= Some(operation.invoked);
        let mut others = MODES.into_iter().filter(|other| other.conflicts_with(mode));
        others.any(|other| is_over(other) || is_open(other))
    }

    fn close(&mut self, index: usize) {
        let operation = self.operations[index];
        self.open.retain(|&open| open != index);
        for configuration in &mut self.configurations {
            configuration.done.retain(|&done| done != index);
        }
        if let Some(mode) = queued_mode(&operation) {
            *self.queued_until.of_mut(mode) = Some(operation.returned);
        }
        if let Event::Acquire { outcome: Acquired::Granted(token), .. } = operation.event
            && let Some(Told::NotYet(early)) = self.tokens.insert(token, Told::Yes)
        {
            early.iter().for_each(|unknown| self.note_unknown(unknown));
        }
        self.forget_needless();
    }

    /// Keeps of several configurations only those that can explain something that no other one can. There may be thousands;
    /// only those that agree in what is done can be compared, so they are put side by side first.
    fn forget_needless(&mut self) {
        self.configurations.sort_by(|one, other| one.kin().cmp(&other.kin()));
        let mut kept: Vec<Configuration> = Vec::with_capacity(self.configurations.len());
        let mut first_of_kin = 0;
        for new in self.configurations.drain(..) {
            if kept.last().is_some_and(|last| last.kin() != new.kin()) {
                first_of_kin = kept.len();
            }
            if kept[first_of_kin..].iter().any(|old| old.is_better_than(&new)) {
                continue;
            }
            kept.extract_if(first_of_kin.., |old| new.is_better_than(old)).for_each(drop);
            kept.push(new);
        }
        self.configurations = kept;
    }

    fn unexplained(&self, index: usize, before: &[Configuration]) -> Fault {
        let operation = self.operations[index];
        let mut earlier: Vec<Operation> = self.operations.clone();
        earlier.retain(|other| other.invoked <= operation.returned && *other != operation);
        earlier.sort_by_key(|other| other.invoked);
        let before_len = earlier.len().saturating_sub(SHOWN_LEN);
        Fault::Unexplained {
            lock: self.lock,
            operation: Box::new(operation),
            held: before.first().map(|first| format!("{:?}", first.state)).unwrap_or_default(),
            before: earlier.split_off(before_len),
        }
    }
}

/// The tokens that were asked for after they were to be released.
fn asked_again(operations: &[Operation]) -> HashSet<Token> {
    let mut released: HashMap<Token, Moment> = HashMap::new();
    for operation in operations {
        if let Event::Release { token, outcome: Kept::Done } = operation.event {
            let first = released.entry(token).or_insert(operation.invoked);
            *first = operation.invoked.min(*first);
        }
    }
    let mut asked = HashMap::new();
    for operation in operations {
        if let Event::Renew { token, .. } | Event::Release { token, .. } = operation.event
            && released.get(&token).is_some_and(|&first| operation.invoked >= first)
        {
            *asked.entry(token).or_insert(0) += 1;
        }
    }
    // One of them is the release itself.
    asked.into_iter().filter(|(_, times)| *times > 1).map(|(token, _)| token).collect()
}

/// The token of a renewal or release that nobody got an answer to.
fn unknown_of(operation: &Operation) -> Option<Token> {
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
