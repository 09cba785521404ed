//! Random walks through the machine: inputs in any order, at any time, also late.
//!
//! A rule says what one step must do. A walk finds where a port does something else when many things happen at once.

use leasehold_api::{Code, Problem};
use leasehold_client::machine::Failure;

use super::lines::Said;
use super::recorder::{Recorder, Setup, refusal};
use super::tables::codes_for_workers;
use crate::rng::{Purpose, Rng};

const WALKS: u64 = 200;
const STEPS: usize = 40;
const ALIVE_MAX: usize = 5;
/// Late enough that nothing counts from before the clock began.
const START: u64 = 1_000_000;

pub(super) fn all() -> String {
    (0..WALKS).map(walk).collect()
}

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Turn {
    Acquire,
    Answer,
    Fail,
    Up,
    Down,
    Release,
    Abandon,
    Renew,
    StartHeartbeat,
    Lost,
    Suspect,
    Due,
    Pass,
    Sleep,
}

const TURNS: [(u64, Turn); 14] = [
    (16, Turn::Acquire),
    (30, Turn::Answer),
    (5, Turn::Fail),
    (10, Turn::Up),
    (3, Turn::Down),
    (7, Turn::Release),
    (4, Turn::Abandon),
    (3, Turn::Renew),
    (2, Turn::StartHeartbeat),
    (1, Turn::Lost),
    (1, Turn::Suspect),
    (24, Turn::Due),
    (8, Turn::Pass),
    (2, Turn::Sleep),
];

struct Walk {
    hands: Recorder,
    rng: Rng,
    ttl: u64,
    named: usize,
    /// Leases of their own, under which others may stand.
    sessions: Vec<String>,
}

fn walk(number: u64) -> String {
    let mut rng = Rng::new(number, Purpose::Client, 0, 0);
    let servers = ["http://a:1", "http://b:1", "http://c:1"];
    let count = rng.between(1, 3);
    let setup = Setup {
        is_full: number.is_multiple_of(2),
        servers: servers
            .into_iter()
            .take(usize::try_from(count).unwrap_or(1))
            .map(String::from)
            .collect(),
        at: START,
        ..Setup::new(&format!("walk {number}"))
    };
    // All parts of it are whole milliseconds, also when they are jittered.
    let ttl = 360 * rng.between(1, 200);
    let mut walk = Walk { hands: Recorder::new(setup), rng, ttl, named: 0, sessions: Vec::new() };
    while walk.hands.steps < STEPS {
        walk.turn();
    }
    walk.hands.finish()
}

impl Walk {
    fn turn(&mut self) {
        let turn = self.rng.weighted(&TURNS);
        let calls = self.hands.calls.len();
        match turn {
            Turn::Acquire if self.hands.names().len() < ALIVE_MAX => self.acquire(),
            Turn::Answer if calls > 0 => self.answer(),
            Turn::Fail if calls > 0 => {
                let call = self.rng.index(calls);
                let failure = *self.rng.pick(&[Failure::Unsent, Failure::Unknown]);
                self.hands.fail_at(call, failure);
            }
            Turn::Up => self.hands.up(),
            Turn::Down => self.hands.down(),
            Turn::Release | Turn::Abandon | Turn::Renew | Turn::StartHeartbeat | Turn::Lost => {
                let names = self.hands.names();
                if !names.is_empty() {
                    let name = self.rng.pick(&names).clone();
                    self.with(turn, &name);
                }
            }
            Turn::Suspect if self.rng.percent(50) => self.hands.suspect(),
            Turn::Suspect => self.hands.suspect_if_idle(),
            Turn::Due => {
                if let Some(due) = self.hands.next_due() {
                    self.hands.at(due.max(self.hands.now()));
                    self.hands.wake();
                }
            }
            Turn::Pass => {
                // What comes next may come at a moment at which something else is due.
                let now = self.hands.now();
                let until = self.hands.next_due().unwrap_or(now + 1000).max(now);
                let at = self.rng.between(now, until);
                self.hands.at(at);
            }
            Turn::Sleep => {
                let slept = self.rng.between(self.ttl / 4, self.ttl * 2);
                self.hands.at(self.hands.now() + slept);
            }
            Turn::Acquire | Turn::Answer | Turn::Fail => {}
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only those about one lease come here")]
    fn with(&mut self, turn: Turn, name: &str) {
        match turn {
            Turn::Release => self.hands.release(name),
            Turn::Abandon => self.hands.abandon(name),
            Turn::Renew => self.hands.renew(name),
            Turn::StartHeartbeat => self.hands.start_heartbeat(name),
            _ => self.hands.lost(name, Code::LeaseLost),
        }
    }

    fn acquire(&mut self) {
        self.named += 1;
        let name = format!("k{}", self.named);
        let wait = match self.rng.below(3) {
            0 => Some(0),
            1 => Some(self.rng.between(1, 90_000)),
            _ => None,
        };
        let alive = self.hands.names();
        self.sessions.retain(|session| alive.contains(session));
        if !self.sessions.is_empty() && self.rng.percent(40) {
            let session = self.rng.pick(&self.sessions).clone();
            self.hands.acquire_under(&name, &session, wait);
            return;
        }
        let is_kept = self.rng.percent(85);
        self.hands.acquire_as(&name, self.ttl, wait, is_kept);
        self.sessions.push(name);
    }

    fn answer(&mut self) {
        let newest = self.hands.calls.len() - 1;
        let call = if self.rng.percent(70) { newest } else { self.rng.index(newest + 1) };
        let kind = self.hands.calls[call].kind;
        if self.rng.percent(25) {
            let said = Said::Refused(refusal(&self.problem()));
            self.hands.answer(call, &said);
            return;
        }
        let ttl_ms = self.ttl;
        let left_ms = match self.rng.below(4) {
            0 => ttl_ms - self.rng.below(ttl_ms),
            1 => ttl_ms - 1,
            _ => ttl_ms,
        };
        let said = match kind {
            "acquire" => Said::Granted { ttl_ms, left_ms },
            "renew" => Said::Renewed { ttl_ms, left_ms },
            _ => Said::Released(true),
        };
        self.hands.answer(call, &said);
    }

    fn problem(&mut self) -> Problem {
        let often = [Code::LockHeld, Code::NotHolder, Code::NotLeader, Code::StoreUnavailable];
        let code = if self.rng.percent(60) {
            *self.rng.pick(&often)
        } else {
            *self.rng.pick(&codes_for_workers())
        };
        let mut problem = Problem::new(code, "");
        if code == Code::LockHeld && self.rng.percent(60) {
            problem.ticket = Some(format!("t{}", self.rng.below(100)));
        }
        if code == Code::NotLeader && self.rng.percent(50) {
            problem.leader = Some((*self.rng.pick(&["http://b:1", "c:1", "http://d:1/"])).into());
        }
        if code.is_retryable() && self.rng.percent(40) {
            problem.recommended_retry_ms = Some(self.rng.between(1, 20_000));
        }
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_can_come_of_a_lease_comes_about() {
        let text = all();
        let ends = [
            "refused",
            "unreachable",
            "lost",
            "released",
            "not_released",
            "release_unanswered",
            "forgotten",
        ];
        for how in ends {
            assert!(text.contains(&format!("\"how\":\"{how}\"")), "nothing ends as {how}");
        }
        for by in ["lapse", "server", "session"] {
            assert!(text.contains(&format!("\"by\":\"{by}\"")), "nothing is lost by {by}");
        }
        for news in ["granted", "renewed", "jeopardy", "gave_up"] {
            assert!(text.contains(&format!("\"news\":\"{news}\"")), "nobody is told {news}");
        }
        for output in ["connect", "cancel", "ticket", "\"outcome\":\"unknown\""] {
            assert!(text.contains(output), "{output} never comes about");
        }
    }
}
