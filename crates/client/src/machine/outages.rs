//! Longest outage that a lease survives, for every beginning between two heartbeats.

use std::ops::Range;
use std::time::Duration;

use super::*;

const TTL: u64 = 30_000;
/// There and back.
const ROUND_TRIP: u64 = 40;
/// Behaviour of TCP on a connection without answers.
const RETRANSMISSION: u64 = 1000;
/// The pause before a reconnect at most: a retransmission, and what is left of the client's own pause.
const RECONNECT: u64 = 1500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// All packets are lost without a notice.
    Silent,
    /// Connections break at its beginning, and each new one is refused.
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Up(LinkId),
    Down(LinkId),
    Granted(CallId),
    Renewed(CallId),
}

/// A client, a server and what is between them, on a clock in milliseconds.
struct World {
    machine: Machine<()>,
    now: u64,
    kind: Kind,
    outage: Range<u64>,
    link: LinkId,
    due: Vec<(u64, Event)>,
    is_in_jeopardy: bool,
}

impl World {
    fn new(interval: HeartbeatInterval, kind: Kind, outage: Range<u64>, seed: u64) -> World {
        let settings = Settings { heartbeat: interval, ..Settings::default() };
        let machine = Machine::new(Moment::ZERO, vec!["http://a:1".into()], settings, seed);
        let (link, due) = (LinkId(0), Vec::new());
        World { machine, now: 0, kind, outage, link, due, is_in_jeopardy: false }
    }

    fn moment(&self) -> Moment {
        Moment::from_millis(self.now)
    }

    /// A message that leaves now is answered a round trip later, unless the outage takes either.
    fn answered_at(&self, sent: u64) -> Option<u64> {
        let back = sent + ROUND_TRIP;
        let is_lost = |at: &u64| self.outage.contains(at);
        (!is_lost(&sent) && !is_lost(&back)).then_some(back)
    }

    fn carry_out(&mut self, action: Action<()>) {
        match action {
            Action::Connect { link, .. } => {
                self.link = link;
                let tries = [self.now, self.now + RETRANSMISSION];
                let up = tries.into_iter().find_map(|sent| self.answered_at(sent));
                let is_refused = self.kind == Kind::Broken && self.outage.contains(&self.now);
                match up {
                    _ if is_refused => self.due.push((self.now + 1, Event::Down(link))),
                    Some(at) => self.due.push((at, Event::Up(link))),
                    None => {}
                }
            }
            Action::Send { call, request, .. } => {
                let answer = match request {
                    Request::Acquire { .. } => Event::Granted(call),
                    Request::Renew => Event::Renewed(call),
                    Request::Release => panic!("nobody gives it back"),
                };
                if let Some(at) = self.answered_at(self.now) {
                    self.due.push((at, answer));
                }
            }
            Action::Tell { news: News::Jeopardy, .. } => self.is_in_jeopardy = true,
            Action::Tell { .. } | Action::Cancel { .. } => {}
            Action::End { how, .. } => panic!("it ended: {how:?}"),
        }
    }

    fn happens(&mut self, event: Event) {
        let lease = Duration::from_millis(TTL);
        let now = self.moment();
        match event {
            Event::Up(link) => self.machine.up(now, link),
            Event::Down(link) => self.machine.down(now, link),
            Event::Granted(call) => {
                self.machine.answer(now, call, Answer::Granted { ttl: lease, left: lease });
            }
            Event::Renewed(call) => {
                self.machine.answer(now, call, Answer::Renewed { ttl: lease, left: lease });
            }
        }
    }

    /// Says whether the work could go on all the time.
    fn survives(mut self) -> bool {
        let ask = Ask::Lease { ttl: Duration::from_millis(TTL), wait: Wait::Never, is_kept: true };
        self.machine.acquire(self.moment(), (), ask);
        let mut breaks = (self.kind == Kind::Broken).then_some(self.outage.start);
        let end = self.outage.end + TTL;
        while self.now < end && !self.is_in_jeopardy {
            while let Some(action) = self.machine.next_action() {
                self.carry_out(action);
            }
            self.due.sort_unstable();
            let wake = self.machine.next_wake().map_or(end, |at| at.as_nanos().div_ceil(1_000_000));
            let first = self.due.first().map_or(end, |(at, _)| *at);
            self.now = self.now.max(wake.min(first).min(breaks.unwrap_or(end)));
            if breaks.is_some_and(|at| at <= self.now) {
                breaks = None;
                self.due.retain(|(_, event)| matches!(event, Event::Up(_)));
                self.machine.down(self.moment(), self.link);
            } else if self.due.first().is_some_and(|(at, _)| *at <= self.now) {
                let (_, event) = self.due.remove(0);
                self.happens(event);
            } else {
                self.machine.wake(self.moment());
            }
        }
        !self.is_in_jeopardy
    }
}

/// The beginnings, after the first heartbeats, at which an outage of that length makes the work stop.
fn fatal(interval: HeartbeatInterval, kind: Kind, length: u64) -> Vec<(u64, u64)> {
    let beginnings = (TTL..TTL * 3 / 2).step_by(97);
    let worlds = beginnings.flat_map(|from| (0..8).map(move |seed| (from, seed)));
    worlds
        .filter(|&(from, seed)| !World::new(interval, kind, from..from + length, seed).survives())
        .collect()
}

#[test]
fn an_outage_of_a_ninth_of_the_ttl_is_survived_wherever_it_begins() {
    for kind in [Kind::Silent, Kind::Broken] {
        let length = TTL / 9 - ROUND_TRIP - RECONNECT;
        assert_eq!(fatal(HeartbeatInterval::Third, kind, length), [], "{kind:?}");
    }
}

#[test]
fn with_a_heartbeat_every_sixth_of_the_ttl_it_is_a_quarter() {
    for kind in [Kind::Silent, Kind::Broken] {
        let length = TTL / 4 - ROUND_TRIP - RECONNECT;
        assert_eq!(fatal(HeartbeatInterval::Sixth, kind, length), [], "{kind:?}");
    }
}

#[test]
fn an_outage_from_right_before_a_heartbeat_to_half_of_the_ttl_is_not_survived() {
    let to_half_from = |part| TTL / 2 - TTL / part;
    for kind in [Kind::Silent, Kind::Broken] {
        let stopped = fatal(HeartbeatInterval::Third, kind, to_half_from(3));
        assert!(!stopped.is_empty(), "{kind:?}");
        let stopped = fatal(HeartbeatInterval::Sixth, kind, to_half_from(6));
        assert!(!stopped.is_empty(), "{kind:?}");
    }
}

#[test]
fn an_outage_of_nearly_half_of_the_ttl_is_survived_right_after_a_heartbeat() {
    let length = TTL / 2 - TTL / 18 - RECONNECT - ROUND_TRIP;
    for interval in [HeartbeatInterval::Third, HeartbeatInterval::Sixth] {
        let beginnings = (TTL..TTL * 3 / 2).step_by(97).count() * 8;
        assert!(fatal(interval, Kind::Silent, length).len() < beginnings, "{interval:?}");
    }
}
