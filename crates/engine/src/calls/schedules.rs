//! Reply queue, replies and inbox under thousands of schedules: no wake-up is lost, and whatever is given is taken or undone,
//! once.
//!
//! `cargo test -p leasehold-engine --features shuttle --lib schedules`. Shuttle changes from one thread to another at each
//! lock and says so when all of them wait for ever.

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;

use leasehold_core::{CloseSession, Command, LeaseId, Namespace, Principal};

use super::{Account, Call, CallError, Content, Inbox, Port, PortEvent, Replies, call_id, inbox};
use crate::events::{HistoryLimits, Publisher};
use crate::writer::{Output, Undo};

const PORT: u32 = 1;
const CALLS: u32 = 5;
const SCHEDULES: usize = 3000;

/// A reply to a call, which can be told from the others by what undoes it.
fn reply(number: u32) -> Output {
    let session = LeaseId::from_u128(u128::from(number));
    let undo = Undo::Session(Box::new(CloseSession {
        namespace: Namespace::default(),
        principal: Principal::ANONYMOUS,
        session,
    }));
    Output::Reply { call: call_id(PORT, number), reply: Err(CallError::Busy), undo: Some(undo) }
}

fn number_of(undo: &Undo) -> u128 {
    match undo {
        Undo::Session(close) => close.session.as_u128(),
        Undo::Grant(_) | Undo::RetryableGrant(_) | Undo::RetryableSession(_) => {
            panic!("not given here")
        }
    }
}

/// The engine's side, as its task does it.
struct Engine {
    inbox: Inbox,
    replies: Replies,
    publisher: Publisher,
    asked: VecDeque<u32>,
    undone: Vec<u128>,
}

impl Engine {
    fn new(inbox: Inbox) -> Engine {
        let publisher = Publisher::new(16, HistoryLimits::default());
        let (replies, asked, undone) = (Replies::default(), VecDeque::new(), Vec::new());
        Engine { inbox, replies, publisher, asked, undone }
    }

    fn take_in(&mut self) {
        let mut taken = Vec::new();
        self.inbox.take_at_once(true, &mut taken);
        for inbound in taken {
            match inbound.content {
                Content::Calls(calls) => {
                    self.replies.heard_of(&calls);
                    self.asked.extend(calls.calls.iter().map(|(number, _)| *number));
                }
                Content::Closed { port, undo } => {
                    self.replies.closed(port);
                    self.undone.extend(undo.iter().map(number_of));
                }
                Content::Call(_) | Content::Undelivered(_) => panic!("only the port asks"),
            }
        }
    }

    /// Answers so many calls, handing them over together.
    fn answer(&mut self, count: usize) {
        for number in self.asked.drain(..count.min(self.asked.len())) {
            let undo = self.replies.give(reply(number), &self.publisher);
            self.undone.extend(undo.iter().map(number_of));
        }
        let undone = self.replies.flush(&self.publisher);
        self.undone.extend(undone.iter().map(number_of));
    }

    fn answer_all(&mut self, at_once: usize) {
        self.take_in();
        while !self.asked.is_empty() {
            self.answer(at_once);
            self.take_in();
        }
    }
}

fn asked() -> (Port, Engine) {
    let (into, inbox, _) = inbox();
    let mut port = Port::new(into, Account::anonymous(), PORT);
    for number in 0..CALLS {
        port.ask(number, Call::Command(Command::Tick));
    }
    port.send(|number, error| panic!("{number} was not taken: {error}"));
    (port, Engine::new(inbox))
}

fn numbers(taken: VecDeque<PortEvent>) -> Vec<u32> {
    let number = |reply| match reply {
        PortEvent::Reply { number, .. } => number,
        PortEvent::Queued { .. } | PortEvent::Notice { .. } => panic!("nobody sends notices"),
    };
    taken.into_iter().map(number).collect()
}

#[test]
fn no_wake_up_is_lost_and_the_end_is_heard() {
    for at_once in [1, 2, CALLS as usize] {
        let schedule = move || {
            let (mut port, mut engine) = asked();
            let engine = shuttle::thread::spawn(move || {
                engine.answer_all(at_once);
                assert_eq!(engine.undone, [0; 0]);
            });
            let mut got = Vec::new();
            shuttle::future::block_on(async {
                let mut taken = VecDeque::new();
                while poll_fn(|cx| port.poll_take(cx, &mut taken)).await {
                    got.extend(numbers(std::mem::take(&mut taken)));
                }
            });
            assert_eq!(got, (0..CALLS).collect::<Vec<_>>());
            engine.join().unwrap();
        };
        shuttle::check_random(schedule, SCHEDULES);
    }
}

#[test]
fn what_is_given_is_taken_or_undone_once_whenever_the_port_goes() {
    for takes in 0..3 {
        let schedule = move || {
            let (mut port, engine) = asked();
            let engine = shuttle::thread::spawn(move || {
                let mut engine = engine;
                engine.answer_all(2);
                engine
            });
            let mut got = Vec::new();
            shuttle::future::block_on(async {
                let mut taken = VecDeque::new();
                for _ in 0..takes {
                    if poll_fn(|cx| port.poll_take(cx, &mut taken)).await {
                        got.extend(numbers(std::mem::take(&mut taken)));
                    }
                    if got.len() == CALLS as usize {
                        break;
                    }
                }
            });
            drop(port);
            let mut engine = engine.join().unwrap();
            engine.take_in();
            let mut ends: BTreeMap<u128, usize> = BTreeMap::new();
            for number in got.into_iter().map(u128::from).chain(engine.undone.drain(..)) {
                *ends.entry(number).or_default() += 1;
            }
            let once: BTreeMap<u128, usize> = (0..CALLS).map(|n| (u128::from(n), 1)).collect();
            assert_eq!(ends, once);
        };
        shuttle::check_random(schedule, SCHEDULES);
    }
}
