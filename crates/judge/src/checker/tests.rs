//! The judge judged: clean histories pass, each planted fault does not.

use std::time::{Duration, Instant};

use super::*;
use crate::history::{Kept, Mode};
use crate::random::Random;

const TTL: Duration = Duration::from_millis(50);
const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    Nothing,
    GrantOfHeldLock,
    TokenAgain,
    TokenLower,
    RenewalAfterLoss,
    RenewalAfterRelease,
    GrantBeforeDeadline,
    LossBeforeDeadline,
    RefusalOfFreeLock,
    GrantLostByRestart,
}

/// A true lock service that writes down a history as its clients would see it.
struct World {
    random: Random,
    now: Moment,
    token: Token,
    locks: Vec<Vec<Lease>>,
    history: Vec<Operation>,
}

#[derive(Clone, Debug)]
struct Lease {
    token: Token,
    mode: Mode,
    deadline: Moment,
    /// When its client got an answer: before that nobody can renew or release it.
    known: Moment,
}

impl World {
    fn new(seed: u64, locks: usize) -> World {
        World {
            random: Random::new(seed),
            now: Moment(1_000_000_000),
            token: 0,
            locks: vec![Vec::new(); locks],
            history: Vec::new(),
        }
    }

    /// Writes down an operation that takes effect now; what clients know is only an interval around that.
    fn write(&mut self, lock: usize, event: Event) -> Moment {
        self.write_after(Moment::default(), lock, event)
    }

    /// The client asks only after `known`. Returns when it has the answer.
    fn write_after(&mut self, known: Moment, lock: usize, event: Event) -> Moment {
        let invoked = Moment((known.0 + 1).max(self.now.0 - self.random.below(400_000)));
        let mut returned = self.now + Duration::from_nanos(self.random.below(400_000));
        let is_unknown = match event {
            Event::Acquire { outcome, .. } => outcome == Acquired::Unknown,
            Event::Renew { outcome, .. } | Event::Release { outcome, .. } => {
                outcome == Kept::Unknown
            }
            Event::Restart { .. } => false,
        };
        if is_unknown && self.random.chance(50) {
            returned = Moment::NEVER;
        }
        let client = u32::try_from(self.history.len() % 32).expect("32 fits");
        let lock = u32::try_from(lock).expect("there are few locks");
        self.history.push(Operation { client, lock, invoked, returned, event });
        returned
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
    }

    /// Time in which nothing overlaps.
    fn quiet(&mut self) {
        self.pass(Duration::from_millis(2));
    }

    fn step(&mut self) {
        let nanos = self.random.below(300_000);
        self.pass(Duration::from_nanos(nanos + 1));
        if self.random.chance(1) {
            self.pass(TTL);
        }
        let lock = usize::try_from(self.random.below(self.locks.len() as u64)).expect("small");
        match self.random.below(100) {
            0 => self.restart(),
            1..=45 => self.acquire(lock),
            46..=65 => self.renew(lock),
            66..=69 => self.lose(lock),
            _ => self.release(lock),
        }
    }

    fn acquire(&mut self, lock: usize) {
        let mode = MODES[usize::from(self.random.chance(30))];
        let now = self.now;
        let waited = self.random.chance(10);
        let is_in_the_way =
            |lease: &Lease| lease.mode.conflicts_with(mode) && lease.deadline >= now;
        if self.locks[lock].iter().any(is_in_the_way) {
            let outcome = Acquired::Refused;
            self.write(lock, Event::Acquire { mode, ttl: TTL, waited, outcome });
            return;
        }
        let is_known = !self.random.chance(3);
        if !is_known && self.random.chance(50) {
            let outcome = Acquired::Unknown;
            self.write(lock, Event::Acquire { mode, ttl: TTL, waited, outcome });
            return;
        }
        self.grant(lock, mode, waited, is_known);
    }

    fn grant(&mut self, lock: usize, mode: Mode, waited: bool, is_known: bool) {
        self.locks[lock].retain(|lease| !lease.mode.conflicts_with(mode));
        self.token += 1 + self.random.below(3);
        let (token, deadline) = (self.token, self.now + TTL);
        let outcome = if is_known { Acquired::Granted(token) } else { Acquired::Unknown };
        let returned = self.write(lock, Event::Acquire { mode, ttl: TTL, waited, outcome });
        let known = if is_known { returned } else { Moment::NEVER };
        self.locks[lock].push(Lease { token, mode, deadline, known });
    }

    fn renew(&mut self, lock: usize) {
        let now = self.now;
        let mut leases = self.locks[lock].iter_mut();
        let Some(lease) = leases.find(|lease| lease.known < now && lease.deadline >= now) else {
            return;
        };
        lease.deadline = now + TTL;
        let (token, known) = (lease.token, lease.known);
        let outcome = if self.random.chance(3) { Kept::Unknown } else { Kept::Done };
        let known = self.write_after(known, lock, Event::Renew { token, ttl: TTL, outcome });
        let mut leases = self.locks[lock].iter_mut();
        if let Some(lease) = leases.find(|lease| lease.token == token) {
            lease.known = known;
        }
    }

    fn lose(&mut self, lock: usize) {
        let now = self.now;
        let mut leases = self.locks[lock].iter();
        let Some(at) = leases.position(|lease| lease.known < now && lease.deadline < now) else {
            return;
        };
        let Lease { token, known, .. } = self.locks[lock].remove(at);
        self.write_after(known, lock, Event::Renew { token, ttl: TTL, outcome: Kept::Lost });
    }

    fn release(&mut self, lock: usize) {
        let now = self.now;
        let Some(at) = self.locks[lock].iter().position(|lease| lease.known < now) else { return };
        let lease = self.locks[lock].remove(at);
        let outcome = match (lease.deadline < self.now, self.random.chance(3)) {
            (true, _) => Kept::Lost,
            (false, true) => Kept::Unknown,
            (false, false) => Kept::Done,
        };
        self.write_after(lease.known, lock, Event::Release { token: lease.token, outcome });
    }

    /// Every lease that still runs stands for its full length again.
    fn restart(&mut self) {
        self.quiet();
        let down = self.now;
        self.pass(Duration::from_millis(30));
        let now = self.now;
        for lease in self.locks.iter_mut().flatten().filter(|lease| lease.deadline >= down) {
            lease.deadline = now + TTL;
        }
        let (invoked, event) = (Moment(down.0 - 100_000), Event::Restart { down });
        self.history.push(Operation { client: 0, lock: 0, invoked, returned: now, event });
        self.quiet();
    }

    /// A lock that is held for certain, and by nobody else.
    fn hold(&mut self, lock: usize) -> Token {
        // Long enough that whatever is in the air is over.
        self.pass(TTL + TTL);
        self.quiet();
        self.grant(lock, Mode::Exclusive, false, true);
        self.quiet();
        self.token
    }

    fn plant(&mut self, plant: Plant) {
        let acquire =
            |outcome| Event::Acquire { mode: Mode::Exclusive, ttl: TTL, waited: false, outcome };
        match plant {
            Plant::Nothing => {}
            Plant::GrantOfHeldLock => {
                let token = self.hold(0) + 1;
                self.write(0, acquire(Acquired::Granted(token)));
            }
            Plant::TokenAgain => {
                let token = self.hold(0);
                self.pass(TTL + TTL);
                self.write(0, acquire(Acquired::Granted(token)));
            }
            Plant::TokenLower => {
                let token = self.hold(0);
                self.pass(TTL + TTL);
                self.write(0, acquire(Acquired::Granted(token + 9)));
                self.pass(TTL + TTL);
                self.write(0, acquire(Acquired::Granted(token + 8)));
            }
            Plant::RenewalAfterLoss => {
                let token = self.hold(0);
                self.pass(TTL + TTL);
                self.write(0, Event::Renew { token, ttl: TTL, outcome: Kept::Lost });
                self.quiet();
                self.write(0, Event::Renew { token, ttl: TTL, outcome: Kept::Done });
            }
            Plant::RenewalAfterRelease => {
                let token = self.hold(0);
                self.write(0, Event::Release { token, outcome: Kept::Done });
                self.quiet();
                self.write(0, Event::Renew { token, ttl: TTL, outcome: Kept::Done });
            }
            Plant::GrantBeforeDeadline => {
                let token = self.hold(0) + 1;
                // Renewed late in its life, then gone before the renewed deadline.
                self.pass(TTL / 2);
                self.write(0, Event::Renew { token: token - 1, ttl: TTL, outcome: Kept::Done });
                self.pass(TTL - Duration::from_millis(1));
                self.write(0, acquire(Acquired::Granted(token)));
            }
            Plant::LossBeforeDeadline => {
                let token = self.hold(0);
                self.write(0, Event::Renew { token, ttl: TTL, outcome: Kept::Lost });
            }
            Plant::RefusalOfFreeLock => {
                let token = self.hold(0);
                self.write(0, Event::Release { token, outcome: Kept::Done });
                self.quiet();
                self.write(0, acquire(Acquired::Refused));
            }
            Plant::GrantLostByRestart => {
                let token = self.hold(0) + 1;
                // The first deadline passes while the server is down; the lease stands again from then on.
                self.pass(TTL * 3 / 5);
                self.restart();
                self.write(0, acquire(Acquired::Granted(token)));
            }
        }
    }
}

fn history(seed: u64, locks: usize, operations: usize, plant: Plant) -> Vec<Operation> {
    let mut world = World::new(seed, locks);
    let planted_at = operations / 4 + usize::try_from(seed % 16).expect("below 16");
    while world.history.len() < operations {
        world.step();
        if world.history.len() >= planted_at && plant != Plant::Nothing {
            world.plant(plant);
            break;
        }
    }
    world.history
}

fn strict() -> Rules {
    // The planted refusal must not be excused by unknown grants that never returned.
    Rules { late_max: Duration::ZERO, ..Rules::default() }
}

/// One operation on the first lock, from one moment to another.
fn during(invoked: u64, returned: u64, event: Event) -> Operation {
    let (invoked, returned) = (Moment(invoked), Moment(returned));
    Operation { client: 0, lock: 0, invoked, returned, event }
}

/// One that is answered at once.
fn at(invoked: u64, event: Event) -> Operation {
    during(invoked, invoked + 1, event)
}

fn acquire(mode: Mode, outcome: Acquired) -> Event {
    Event::Acquire { mode, ttl: TTL, waited: false, outcome }
}

fn granted(mode: Mode, token: Token) -> Event {
    acquire(mode, Acquired::Granted(token))
}

fn released(token: Token) -> Event {
    Event::Release { token, outcome: Kept::Done }
}

#[test]
fn clean_histories_are_accepted() {
    for seed in 0..1000 {
        let history = history(seed, 2, 200, Plant::Nothing);
        if let Err(fault) = check(&history, strict()) {
            panic!("seed {seed}: {fault}");
        }
    }
}

/// The number of 300 histories with this fault that pass nevertheless.
fn passed(plant: Plant) -> Vec<u64> {
    (0..300).filter(|&seed| check(&history(seed, 1, 120, plant), strict()).is_ok()).collect()
}

#[test]
fn grant_of_a_held_lock_is_caught() {
    assert_eq!(passed(Plant::GrantOfHeldLock), [0; 0]);
}

#[test]
fn token_given_twice_is_caught() {
    assert_eq!(passed(Plant::TokenAgain), [0; 0]);
}

#[test]
fn lower_token_is_caught() {
    assert_eq!(passed(Plant::TokenLower), [0; 0]);
}

#[test]
fn renewal_after_loss_is_caught() {
    assert_eq!(passed(Plant::RenewalAfterLoss), [0; 0]);
}

#[test]
fn renewal_after_release_is_caught() {
    assert_eq!(passed(Plant::RenewalAfterRelease), [0; 0]);
}

#[test]
fn grant_before_the_deadline_is_caught() {
    assert_eq!(passed(Plant::GrantBeforeDeadline), [0; 0]);
}

#[test]
fn loss_before_the_deadline_is_caught() {
    assert_eq!(passed(Plant::LossBeforeDeadline), [0; 0]);
}

#[test]
fn lease_that_a_restart_cut_short_is_caught() {
    assert_eq!(passed(Plant::GrantLostByRestart), [0; 0]);
}

#[test]
fn refusal_of_a_free_lock_is_caught_unless_an_unknown_grant_may_hold_it() {
    // A grant nobody got an answer to may come at any later time, if nothing bounds it: that excuses refusals.
    let is_excused = |history: &[Operation]| {
        history.iter().any(|operation| {
            operation.returned == Moment::NEVER && matches!(operation.event, Event::Acquire { .. })
        })
    };
    let (mut caught, mut excused) = (0, 0);
    for seed in 0..300 {
        let history = history(seed, 1, 120, Plant::RefusalOfFreeLock);
        match check(&history, strict()) {
            Err(_) => caught += 1,
            Ok(_) => {
                assert!(is_excused(&history), "seed {seed}");
                excused += 1;
            }
        }
    }
    assert!(caught > 100, "{caught} caught, {excused} excused");
}

#[test]
fn lower_token_on_another_lock_is_caught() {
    let grant = |lock, when, token| Operation { lock, ..at(when, granted(Mode::Exclusive, token)) };
    assert!(check(&[grant(0, 10, 1), grant(1, 20, 2)], Rules::default()).is_ok());
    let fault = check(&[grant(0, 10, 2), grant(1, 20, 1)], Rules::default()).unwrap_err();
    assert!(matches!(fault, Fault::TokenLower { .. }), "{fault}");
}

#[test]
fn released_lock_may_come_back_with_a_restart_and_only_then() {
    let restart = at(30, Event::Restart { down: Moment(30) });
    let mut history = vec![
        at(10, granted(Mode::Exclusive, 1)),
        at(20, released(1)),
        restart,
        at(40, acquire(Mode::Exclusive, Acquired::Refused)),
    ];
    assert!(check(&history, strict()).is_ok());
    history.retain(|operation| *operation != restart);
    assert!(check(&history, strict()).is_err());
}

/// Leases that were released during a restart, and may be back: no client can tell, so the search must not follow all
/// combinations of them.
#[test]
fn shared_leases_released_during_many_restarts_need_few_explanations() {
    let mut history = Vec::new();
    for round in 1..30 {
        let (began, token) = (round * 1000, 2 * round);
        history.extend([
            during(began, began + 10, granted(Mode::Shared, token)),
            // It brings back what was released just before it, which is one lease or the other.
            during(began + 20, began + 500, Event::Restart { down: Moment(began + 20) }),
            during(began + 30, began + 40, released(token)),
            during(began + 50, began + 60, granted(Mode::Shared, token + 1)),
            during(began + 70, began + 80, released(token + 1)),
        ]);
    }
    let checked = check(&history, strict()).expect("a true service can do this");
    assert!(checked.configurations < 20, "{checked:?}");
}

#[test]
fn released_lease_that_a_restart_brought_back_may_be_renewed_and_no_other() {
    let renew = Event::Renew { token: 1, ttl: TTL, outcome: Kept::Done };
    let restart = Event::Restart { down: Moment(50) };
    let back =
        [at(10, granted(Mode::Shared, 1)), at(20, released(1)), at(50, restart), at(60, renew)];
    assert!(check(&back, strict()).is_ok());
    // The grant made the release durable; what the restart brings back is another one.
    let durable = [
        at(10, granted(Mode::Shared, 1)),
        at(20, released(1)),
        at(30, granted(Mode::Shared, 2)),
        at(40, released(2)),
        at(50, restart),
        at(60, renew),
    ];
    assert!(check(&durable, strict()).is_err());
}

#[test]
fn release_in_the_very_moment_of_the_answer_may_take_effect() {
    let unheard = Event::Release { token: 1, outcome: Kept::Unknown };
    let mut history = vec![
        during(10, 20, granted(Mode::Exclusive, 1)),
        Operation { returned: Moment::NEVER, ..at(20, unheard) },
        during(30, 40, granted(Mode::Exclusive, 2)),
    ];
    assert!(check(&history, strict()).is_ok());
    history.remove(1);
    assert!(check(&history, strict()).is_err());
}

#[test]
fn grant_that_nobody_knows_of_stands_again_if_it_may_not_have_ended_when_the_server_stopped() {
    let rules = Rules { late_max: TTL / 5, ..Rules::default() };
    let nanos = |length: Duration| u64::try_from(length.as_nanos()).expect("it is short");
    let is_explained = |stopped: u64| {
        let up = stopped + nanos(TTL * 3);
        let history = [
            during(10, 20, acquire(Mode::Exclusive, Acquired::Unknown)),
            during(stopped, up, Event::Restart { down: Moment(up - 1) }),
            during(up + 1, up + 2, acquire(Mode::Exclusive, Acquired::Refused)),
        ];
        check(&history, rules).is_ok()
    };
    let last = 20 + nanos(TTL + rules.late_max);
    assert!(is_explained(last));
    assert!(!is_explained(last + 1));
}

#[test]
fn speed_is_printed() {
    let operations = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    for locks in [1, 64] {
        let history = history(7, locks, operations, Plant::Nothing);
        let started = Instant::now();
        let checked = check(&history, Rules::default());
        println!("{locks} locks: {checked:?} in {:?}", started.elapsed());
        assert!(checked.is_ok());
    }
}
