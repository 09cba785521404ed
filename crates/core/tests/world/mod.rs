//! A small world for the table and the model to disagree in: few owners, few scopes, short times, low limits.

mod compare;
mod coverage;
mod moves;
mod reads;
mod resolve;
mod shadow;
mod transcript;

use std::panic;
use std::sync::mpsc;
use std::time::Duration;

use leasehold_core::*;
use proptest::prelude::*;
use proptest_state_machine::ReferenceStateMachine;

pub(crate) use coverage::Coverage;
pub(crate) use moves::{After, Move};

use crate::model::Model;
use shadow::Shadows;

/// What a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Focus {
    All,
    Keys,
    Ranges,
    Permits,
    /// Few locks that everybody wants.
    Names,
}

/// How a case begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) focus: Focus,
    /// Limits so low that requests run into them.
    pub(crate) tight: bool,
    /// More is due than one step works off. In which order is the table's own affair, so it is not compared with the
    /// model; but its promises hold.
    pub(crate) hurried: bool,
}

/// The table, the model, and what the moves are resolved against.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) focus: Focus,
    hurried: bool,
    pub(crate) model: Model,
    pub(crate) table: LockTable,
    last_lease: u128,
    last_call: u64,
    /// Requests with an id that can be sent again, newest first.
    recent: Vec<Acquire>,
    /// Grants that somebody was told of, newest first.
    grants: Vec<(Namespace, Grant)>,
    shadows: Shadows,
    steps: usize,
    /// Compares everything after every step, not just after some.
    pub(crate) thorough: bool,
    pub(crate) times: Vec<Timestamp>,
    /// What was said and done.
    pub(crate) transcript: Vec<String>,
}

impl World {
    pub(crate) fn new(setup: &Setup) -> World {
        let limits = setup.limits();
        let mut table = LockTable::new(limits.clone(), 7);
        table.keep_undo();
        World {
            focus: setup.focus,
            hurried: setup.hurried,
            model: Model::new(limits),
            table,
            last_lease: 0,
            last_call: 0,
            recent: Vec::new(),
            grants: Vec::new(),
            shadows: Shadows::default(),
            steps: 0,
            thorough: false,
            times: Vec::new(),
            transcript: Vec::new(),
        }
    }

    /// Does one move on both sides; says where they part.
    pub(crate) fn go(
        &mut self,
        after: After,
        what: &Move,
        coverage: &mut Coverage,
    ) -> Result<(), String> {
        let now = self.moment(after);
        let command = self.command(what);
        self.times.push(now);
        self.transcript.push(transcript::line(now, &command));
        coverage.command(&command);
        let (expected, expected_step) = self.model.handle(now, &command);
        let mut step = Step::new();
        let before = self.table.clone();
        let table = &mut self.table;
        let outcome = without_panic(|| table.handle(now, command.clone(), &mut step))?;
        self.transcript.push(format!("    => {}", transcript::outcome(&expected)));
        coverage.outcome(&expected);
        if let Command::Acquire(Acquire { ticket: Some(_), .. }) = &command
            && !matches!(expected, Outcome::Refused(_))
        {
            coverage.count("place taken up");
        }
        coverage.step(&expected_step);
        self.remember_grants(&command, &outcome, &step);
        self.steps += 1;
        if !self.hurried {
            self.compare((&expected, &expected_step), (&outcome, &step))?;
        }
        invariant::check_all(&self.table).map_err(|broken| broken.to_string())?;
        invariant::check_step(&before, &self.table, &step).map_err(|broken| broken.to_string())?;
        self.shadows.follow(self.steps, &mut self.table, &step)
    }

    fn remember_grants(&mut self, command: &Command, outcome: &Outcome, step: &Step) {
        if let (Command::Acquire(ask), Outcome::Answered(Answer::Granted(grant))) =
            (command, outcome)
        {
            self.grants.insert(0, (ask.namespace.clone(), Grant::clone(grant)));
        }
        for effect in &step.effects {
            if let Effect::Granted { grant, .. } = effect {
                let lease = self.model.leases.iter().find(|lease| lease.id == grant.lease);
                let namespace = lease.map(|lease| lease.namespace.clone()).unwrap_or_default();
                self.grants.insert(0, (namespace, Grant::clone(grant)));
            }
        }
        self.grants.truncate(5);
    }
}

/// What `run` gives, or what it panicked with: a panic of the table is a finding like any other.
fn without_panic<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    let before = panic::take_hook();
    let (told, hears) = mpsc::channel();
    panic::set_hook(Box::new(move |panicked| drop(told.send(panicked.to_string()))));
    let result = panic::catch_unwind(panic::AssertUnwindSafe(run));
    panic::set_hook(before);
    result.map_err(|_| format!("the table {}", hears.try_recv().unwrap_or_default()))
}

impl Setup {
    fn limits(self) -> Limits {
        let ms = Duration::from_millis;
        let room = if self.tight { 1 } else { 4 };
        Limits {
            lease_ttl_min: ms(10),
            lease_ttl_max: ms(150),
            disconnect_ttl_max: ms(100),
            reclaim_window_max: ms(100),
            wait_max: ms(100),
            set_len_max: 3,
            permits_max: 4,
            metadata_bytes_max: 8,
            waiters_per_scope_max: 3 * room,
            waiters_max: 5 * room,
            waiter_bytes_max: 1 << 20,
            locks_max: 1 << 20,
            bytes_max: 1 << 20,
            sessions_max: 1 << 20,
            locks_per_session_max: 5 * room,
            sessions_per_adapter_max: 3 * room,
            registers_per_namespace_max: 2 * room,
            registers_max: 4 * room,
            namespaces_max: 2,
            ticket_kept: ms(15),
            kept_places_max: 2 * room,
            endings_max: 10_000,
            deadlines_per_step_max: if self.hurried { 2 } else { 1000 },
            endings_per_step_max: if self.hurried { 2 } else { 1000 },
            windowed_locks_per_session_max: 3 * room,
            own_ranges_per_step_max: room,
        }
    }
}

/// Cases: how each begins, and what moves are made. Moves are told relative to the state they meet, so every
/// sequence of them is a case.
#[derive(Debug)]
pub(crate) struct Cases;

impl ReferenceStateMachine for Cases {
    type State = Setup;
    type Transition = (After, Move);

    fn init_state() -> BoxedStrategy<Setup> {
        let focus = prop_oneof![
            2 => Just(Focus::All),
            2 => Just(Focus::Keys),
            2 => Just(Focus::Ranges),
            2 => Just(Focus::Permits),
            2 => Just(Focus::Names),
        ];
        (focus, any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(focus, tight, hurried)| Setup { focus, tight, hurried })
            .boxed()
    }

    fn transitions(_: &Setup) -> BoxedStrategy<(After, Move)> {
        moves::steps()
    }

    fn apply(setup: Setup, _: &(After, Move)) -> Setup {
        setup
    }
}
