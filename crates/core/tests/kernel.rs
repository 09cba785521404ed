//! The kernel as oracle: real processes lock byte ranges of a real file, owners do the same in a `LockTable`, and after
//! every step the two must agree.
//!
//! Compared are: granted, EAGAIN, waits, EDEADLK; who is woken; whether `F_GETLK` finds anything, and that what it finds
//! is in the table; and after each step the whole lock table, merged and split, against `/proc/locks`: every piece,
//! every waiting request, every flock.
//!
//! Where the contract decides otherwise than Linux does, steps are left out and counted, so that the rest can be
//! compared without exception:
//!
//! * We are first come, first served. Linux grants a new request that only waiters are in the way of (a reader passes a
//!   waiting writer), and lets a waiter go before an earlier one that waits for something else besides.
//! * When several waiters that exclude each other wake up at once, we take the first; so does Linux if the others stand
//!   behind it in its own list, otherwise chance decides there, and the step is left out.
//! * Our deadlock graph is complete. Linux goes from an owner to one of those who hold what it waits for, ten times at
//!   most, and never to a request that waits in front. A deadlock that it cannot see is left out. Where it depends on
//!   which holder Linux happens to look at, both answers are right; if it waits, the request is interrupted. Every
//!   circle that we report must be a true one, and every deadlock that Linux sees we must see too.
//!
//! A process that ends, or closes any descriptor of the file, drops all its locks: for the table that is an unlock of
//! everything or the end of the session. A flock is the named lock `flock:<inode>` and never meets the ranges.
//!
//! `LEASEHOLD_KERNEL_STEPS` and `LEASEHOLD_KERNEL_SEED` ask for more steps, or others. The same seed gives the same
//! scripts but for steps that the kernel leaves to chance.
#![cfg(target_os = "linux")]

#[path = "kernel/chance.rs"]
mod chance;
#[path = "kernel/fleet.rs"]
mod fleet;
#[path = "kernel/judge.rs"]
mod judge;
#[path = "kernel/locks.rs"]
mod locks;
#[path = "kernel/mirror.rs"]
mod mirror;
#[path = "kernel/step.rs"]
mod step;
#[path = "kernel/wire.rs"]
mod wire;
#[path = "kernel/worker.rs"]
mod worker;

use std::collections::BTreeMap;

use chance::Chance;
use fleet::Fleet;
use judge::{Compared, Difference, compare_answers, compare_tables, difference};
use mirror::{Mirror, Verdict};
use step::{Act, Step};
use wire::{Kind, Order, Reply, Span};

/// The test that a worker is started as.
const WORKER: &str = "random_scripts_go_as_in_the_kernel";

const PROCESSES: usize = 6;
const STEPS_PER_SCRIPT: usize = 80;
const STEPS: usize = 20_000;

/// What was seen, for the people who ask how much was covered.
#[derive(Debug, Default)]
struct Tally {
    steps: usize,
    waits: usize,
    wakes: usize,
    conflicts: usize,
    deadlocks: usize,
    deadlocks_seen_by_us_alone: usize,
    left_out: BTreeMap<Difference, usize>,
}

#[test]
fn random_scripts_go_as_in_the_kernel() {
    if worker::served() {
        return;
    }
    activate_planted();
    let steps = variable("LEASEHOLD_KERNEL_STEPS").unwrap_or(STEPS);
    let mut seed = variable("LEASEHOLD_KERNEL_SEED").unwrap_or(1);
    let mut fleet = Fleet::start("kernel", PROCESSES);
    let mut tally = Tally::default();
    while tally.steps < steps {
        Script::new(seed, &mut fleet).run(&mut tally);
        fleet.reset();
        seed += 1;
    }
    println!("{tally:?}");
    let alone = tally.deadlocks_seen_by_us_alone;
    assert!(2 * alone < tally.deadlocks, "most deadlocks are seen by both");
}

#[test]
fn flock_and_ranges_of_one_file_do_not_meet() {
    activate_planted();
    let mut fleet = Fleet::start("flock", 2);
    let mut script = Script::new(0, &mut fleet);
    let orders = [
        (0, Order::Flock(Some(Kind::Write))),
        (1, Order::Flock(Some(Kind::Write))),
        (1, Order::Lock { wait: false, kind: Kind::Write, span: Span::ALL }),
        (0, Order::Test { kind: Kind::Read, span: Span::ALL }),
        (0, Order::Lock { wait: false, kind: Kind::Read, span: Span::ALL }),
        (1, Order::Flock(Some(Kind::Read))),
        (0, Order::Flock(Some(Kind::Read))),
        (1, Order::Flock(Some(Kind::Read))),
        (0, Order::Flock(None)),
        (1, Order::Unlock(Span::ALL)),
    ];
    let mut tally = Tally::default();
    for (process, order) in orders {
        let act = Act::Order(order);
        script.take(Step { process, act }, &mut tally);
    }
    assert_eq!((tally.steps, tally.conflicts), (10, 3), "{tally:?}");
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().ok().expect("the variable is a number"))
}

fn activate_planted() {
    #[cfg(feature = "planted")]
    if let Ok(name) = std::env::var("LEASEHOLD_PLANTED") {
        leasehold_core::planted::activate(&name);
    }
}

/// One script: an empty table, an unlocked file, and steps taken in both.
struct Script<'a> {
    seed: u64,
    chance: Chance,
    fleet: &'a mut Fleet,
    mirror: Mirror,
    taken: Vec<Step>,
}

impl Script<'_> {
    fn new(seed: u64, fleet: &mut Fleet) -> Script<'_> {
        let mut chance = Chance::new(seed);
        let one_session = chance.below(2) == 0;
        Script {
            seed,
            chance,
            mirror: Mirror::new(fleet.inode, fleet.len(), one_session),
            fleet,
            taken: Vec::new(),
        }
    }

    fn run(&mut self, tally: &mut Tally) {
        for _ in 0..STEPS_PER_SCRIPT {
            let step = self.chance.step(&self.mirror);
            self.take(step, tally);
        }
    }

    /// Takes a step in the table and in the kernel, unless they are known to differ.
    fn take(&mut self, step: Step, tally: &mut Tally) {
        self.taken.push(step);
        let mut after = self.mirror.clone();
        let said = after.apply(step);
        if let Some(known) = difference(&self.mirror, &after, &said, step, self.fleet) {
            self.taken.pop();
            *tally.left_out.entry(known).or_default() += 1;
            return;
        }
        let replies = self.take_in_kernel(step);
        match compare_answers(&self.mirror, &said, step, &replies, self.fleet) {
            Compared::Same => {}
            Compared::DeadlockSeenByUsAlone => {
                tally.deadlocks_seen_by_us_alone += 1;
                self.fleet.interrupt(step.process);
                self.fleet.settle();
            }
            Compared::Differ(how) => panic!("table and kernel differ: {how}"),
        }
        self.mirror = after;
        if let Some(how) = compare_tables(&self.mirror, self.fleet) {
            panic!("table and kernel differ: {how}");
        }
        tally.steps += 1;
        tally.wakes += said.woken.len();
        match said.verdict {
            Verdict::Waits => tally.waits += 1,
            Verdict::Conflict => tally.conflicts += 1,
            Verdict::Deadlock(_) => tally.deadlocks += 1,
            Verdict::Done | Verdict::Tested { .. } | Verdict::Gone => {}
        }
    }

    fn take_in_kernel(&mut self, step: Step) -> BTreeMap<usize, Reply> {
        match step.act {
            Act::Order(order) => self.fleet.order(step.process, order),
            Act::Interrupt => self.fleet.interrupt(step.process),
            Act::Exit => self.fleet.replace(step.process, false),
            Act::Kill => self.fleet.replace(step.process, true),
        }
        self.fleet.settle()
    }
}

impl Drop for Script<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (seed, sessions) = (self.seed, self.mirror.sessions());
            eprintln!("it went wrong at the last step of this script, seed {seed}, {sessions}:");
            for step in &self.taken {
                eprintln!("  {step}");
            }
        }
    }
}
