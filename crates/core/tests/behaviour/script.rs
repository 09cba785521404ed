//! Behaviour told as a script, and what came of it as a transcript. This is the one place that knows the API.
//!
//! A script is a list of steps, one a line or separated by `|`. A step is a time (that of the step before it if there
//! is none), for most verbs an owner, a verb, what it is about, and options:
//!
//! ```text
//! 0s  a acquire job/x ttl=10s
//! 1s  b acquire {job/x shared, path:/srv/**} wait=5s
//! 12s tick
//! ```
//!
//! | verb | about | options |
//! |---|---|---|
//! | `O acquire` | a scope or a `{set}` | `shared permits=N ttl=D wait wait=D keep ticket ticket=N id=R window=D reclaim session=NAME lease=NAME meta=TEXT as=NAME call=NAME` |
//! | `O renew` `O release` `O check` `O withdraw` | a scope | `fence=N lease=NAME of=OWNER grant=NAME`, `ttl=D` to renew, `leased` to check with the lease |
//! | `O unlock` | a byte range | `session=NAME` |
//! | `O cancel`, or `O break-off` if its connection broke | a scope | `call=NAME` |
//! | `O open` | a new session's name | `ttl=D adapter=NAME keep=D meta=TEXT lease=NAME` |
//! | `keepalive` `close` `attach` `disconnect` `session` | a session or lease by name | `ttl=D` to keep alive |
//! | `accept` | a register and a fence | |
//! | `delete` | a register | `reason=TEXT` |
//! | `break` | a scope | `fence=N reason=TEXT` |
//! | `remove-file` | an inode | |
//! | `epoch` | `conflicting`, `strict` or `strict-unknown` | `grace=D number=N` |
//! | `jump` | | `epoch=N fence=N` |
//! | `suspend` `resume` `tick` `restart` `watch` | | |
//! | `O test` `get` `register` | a scope, or a register | `shared session=NAME` to test |
//! | `token` | a fencing token | |
//! | `spell` | any text | |
//! | `list` | | `prefix=T owner=O session=NAME inode=N state=S len=N looks=N next` |
//! | `graph` `sessions` `registers` `grace` `stats` `deadline` | | `after=NAME len=N` |
//! | `snapshot` | `begin`, `next` or `finish` | `len=N` |
//!
//! Every step takes `in=NAMESPACE`. Leases have names (`as=`, or the session's), so that no script has an id in it. A
//! holder is remembered by owner and scope, and shows the lease and fence it was granted last unless told otherwise.
//! `watch` adds to the transcript what is told to watchers and holders. After every step all invariants are checked.

mod command;
mod memory;
mod reading;
mod shown;
mod step;
mod transcript;

use expect_test::Expect;
use leasehold_core::{
    Command, Effect, Limits, LockTable, Outcome, Quotas, Step, Timestamp, invariant,
};

use memory::Memory;
use step::{Steps, Wanted};

/// Runs a script under the usual limits and compares its transcript.
#[expect(clippy::needless_pass_by_value, reason = "so that `expect![…]` can stand as an argument")]
pub(crate) fn check(script: &str, expected: Expect) {
    expected.assert_eq(&run(Limits::default(), script));
}

/// Runs a script under limits of its own and compares its transcript.
#[expect(clippy::needless_pass_by_value, reason = "so that `expect![…]` can stand as an argument")]
pub(crate) fn check_with(limits: impl FnOnce(&mut Limits), script: &str, expected: Expect) {
    let mut changed = Limits::default();
    limits(&mut changed);
    expected.assert_eq(&run(changed, script));
}

/// Runs a script under quotas and compares its transcript.
#[expect(clippy::needless_pass_by_value, reason = "so that `expect![…]` can stand as an argument")]
pub(crate) fn check_within(quotas: impl FnOnce(&mut Quotas), script: &str, expected: Expect) {
    let mut world = World::new(Limits::default());
    quotas(&mut world.quotas);
    world.run_all(script);
    expected.assert_eq(&world.transcript.concat());
}

/// The transcript of a script, for tests that make it up themselves.
pub(crate) fn transcript(script: &str) -> String {
    run(Limits::default(), script)
}

/// The same for a script of so many steps that checking every promise after each of them would take too long.
pub(crate) fn transcript_of_many(script: &str) -> String {
    let mut world = World::new(Limits::default());
    world.checking = false;
    world.run_all(script);
    world.transcript.concat()
}

fn run(limits: Limits, script: &str) -> String {
    let mut world = World::new(limits);
    world.run_all(script);
    world.transcript.concat()
}

#[cfg(feature = "planted")]
fn activate_planted_bug() {
    if let Ok(name) = std::env::var("LEASEHOLD_PLANTED") {
        leasehold_core::planted::activate(&name);
    }
}

#[cfg(not(feature = "planted"))]
fn activate_planted_bug() {}

/// A table, what has been said about it so far, and the names that the script knows things by.
struct World {
    table: LockTable,
    quotas: Quotas,
    memory: Memory,
    now: Timestamp,
    transcript: Vec<String>,
    /// Whether the transcript has what watchers and holders are told.
    watching: bool,
    /// Whether every promise is checked after every step.
    checking: bool,
}

impl World {
    fn new(limits: Limits) -> World {
        activate_planted_bug();
        World {
            table: LockTable::new(limits, 7),
            quotas: Quotas::UNLIMITED,
            memory: Memory::default(),
            now: Timestamp::ZERO,
            transcript: Vec::new(),
            watching: false,
            checking: true,
        }
    }

    fn run_all(&mut self, script: &str) {
        for wanted in Steps::of(script) {
            self.run(wanted);
        }
    }

    fn run(&mut self, mut wanted: Wanted<'_>) {
        self.now = wanted.time.unwrap_or(self.now);
        if !self.read(&mut wanted) {
            let command = self.command(&mut wanted);
            self.carry_out(&wanted, &command);
        }
        wanted.finish();
    }

    fn say(&mut self, what: &str) {
        let line = format!("{} {what}\n", shown::moment(self.now));
        self.transcript.push(line);
    }

    /// Carries out a command and tells what came of it: what was due before it, its outcome, what followed from it.
    fn carry_out(&mut self, wanted: &Wanted<'_>, command: &Command) {
        let mut step = Step::new();
        let mut due = Vec::new();
        let outcome = if self.checking {
            due = self.what_is_due();
            self.handle_and_check(wanted, command, &mut step)
        } else {
            self.table.handle_within(self.now, command.clone(), &self.quotas, &mut step)
        };
        let (before, after) = step.effects.split_at(same_beginning(&due, &step.effects));
        // After a restart nothing is due before the new epoch has begun.
        let exempt = matches!(command, Command::BeginEpoch(_));
        if before != due && !exempt {
            wanted.fail(&format!("{due:?} was due, not {before:?}"));
        }
        self.tell(before, None);
        let told = self.tell_outcome(wanted, command, &outcome);
        self.tell(after, told.as_ref());
    }

    /// What happens at this time whatever the command.
    fn what_is_due(&self) -> Vec<Effect> {
        let mut step = Step::new();
        let mut table = self.table.clone();
        table.handle(self.now, Command::Tick, &mut step);
        step.effects
    }

    fn handle_and_check(
        &mut self,
        wanted: &Wanted<'_>,
        command: &Command,
        step: &mut Step,
    ) -> Outcome {
        let before = self.table.clone();
        let outcome = self.table.handle_within(self.now, command.clone(), &self.quotas, step);
        let kept = invariant::check_all(&self.table)
            .and_then(|()| invariant::check_step(&before, &self.table, step));
        if let Err(broken) = kept {
            let so_far = self.transcript.concat();
            let effects = &step.effects;
            wanted.fail(&format!(
                "{broken}\nso far:\n{so_far}outcome: {outcome:?}\neffects: {effects:#?}"
            ));
        }
        outcome
    }
}

fn same_beginning(one: &[Effect], other: &[Effect]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::transcript;

    #[test]
    #[should_panic(expected = "step 2 `1s a juggle job/x`: there is no verb `juggle`")]
    fn unknown_verb_fails_with_its_place() {
        transcript("0s tick | 1s a juggle job/x");
    }

    #[test]
    #[should_panic(expected = "step 1 `0s a release job/x`: a was never granted job/x")]
    fn release_of_what_was_never_granted_fails_with_its_place() {
        transcript("0s a release job/x");
    }

    #[test]
    #[should_panic(expected = "step 1 `0s keepalive s`: there is no lease named `s`")]
    fn unknown_session_fails_with_its_place() {
        transcript("0s keepalive s");
    }
}
