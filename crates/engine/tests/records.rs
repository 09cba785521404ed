//! What goes into which record.

mod common;

use std::time::Duration;

use common::acquire;
use leasehold_core::{
    Acquire, CallId, Command, Epoch, GracePolicy, Limits, Timestamp, Transition, Wait,
};
use leasehold_engine::{Call, Engine, Failed, Loading, Output, Recovered, Recovery, Settings};
use leasehold_store::Batch;

const NOW: Timestamp = Timestamp::from_millis(1_000);

/// An engine with nothing left to write.
fn engine(record_bytes_max: usize) -> Engine {
    let recovery = Recovery {
        limits: Limits::default(),
        seed: 7,
        grace: GracePolicy::Conflicting,
        grace_length: Duration::from_secs(30),
        fence_floor: None,
    };
    let Recovered { table, next_seq, unwritten, .. } =
        Loading::new(recovery).begin(Epoch(1), Timestamp::ZERO);
    let settings = Settings { record_bytes_max, store_retry_after: Duration::from_secs(1) };
    let mut engine = Engine::new(settings, table, next_seq, unwritten);
    engine.seal().expect("the epoch is to be written");
    engine.appended(NOW);
    answered(&mut engine);
    engine
}

fn ask(engine: &mut Engine, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let wanted = acquire("a", &format!("job/{number}"), Wait::Never);
        let command = Command::Acquire(Acquire { call: CallId(number), ..wanted });
        engine.submit(NOW, CallId(number), Call::Command(command));
    }
}

/// Who was answered, in order.
fn answered(engine: &mut Engine) -> Vec<u64> {
    let mut outputs = Vec::new();
    engine.take_outputs(&mut outputs);
    let call = |output| if let Output::Reply { call, .. } = output { Some(call.0) } else { None };
    outputs.into_iter().filter_map(call).collect()
}

fn locks(batch: &Batch) -> Vec<String> {
    let mut locks = Vec::new();
    for transition in batch.transitions() {
        if let Transition::Granted(granted) = transition.expect("it was just encoded") {
            locks.push(granted.claims[0].scope.to_string());
        }
    }
    locks
}

fn jobs(numbers: std::ops::Range<u64>) -> Vec<String> {
    numbers.map(|number| format!("job/{number}")).collect()
}

#[test]
fn record_has_all_that_was_decided_before_it_is_sealed() {
    let mut engine = engine(1 << 20);
    ask(&mut engine, 0..4);
    let first = engine.seal().unwrap();
    assert_eq!(locks(&first), jobs(0..4));
    ask(&mut engine, 4..9);
    engine.draft_next();
    engine.appended(NOW);
    assert_eq!(answered(&mut engine), [0, 1, 2, 3]);
    let second = engine.seal().unwrap();
    assert_eq!(locks(&second), jobs(4..9));
    engine.appended(NOW);
    assert_eq!(answered(&mut engine), [4, 5, 6, 7, 8]);
    assert_eq!(engine.seal(), None);
}

#[test]
fn record_is_the_same_whether_it_was_drafted_or_not() {
    let (mut drafted, mut plain) = (engine(1 << 20), engine(1 << 20));
    let mut records = Vec::new();
    for engine in [&mut drafted, &mut plain] {
        ask(engine, 0..3);
        engine.seal().unwrap();
    }
    for (engine, drafts) in [(&mut drafted, true), (&mut plain, false)] {
        for numbers in [3..5, 5..6, 6..9] {
            ask(engine, numbers);
            if drafts {
                engine.draft_next();
            }
        }
        engine.appended(NOW);
        records.push(locks(&engine.seal().unwrap()));
    }
    assert_eq!(records[0], jobs(3..9));
    assert_eq!(records[0], records[1]);
}

#[test]
fn record_that_was_drafted_while_none_was_under_way_has_all_that_came_later() {
    let (mut drafted, mut plain) = (engine(1 << 20), engine(1 << 20));
    let mut records = Vec::new();
    for (engine, drafts) in [(&mut drafted, true), (&mut plain, false)] {
        for numbers in [0..0, 0..2, 2..5] {
            ask(engine, numbers);
            if drafts {
                engine.draft_next();
            }
        }
        ask(engine, 5..6);
        let record = engine.seal().unwrap();
        engine.appended(NOW);
        assert_eq!(answered(engine), [0, 1, 2, 3, 4, 5]);
        assert_eq!(engine.seal(), None);
        records.push(record);
    }
    let [drafted, plain] = &records[..] else { panic!("there are two") };
    assert_eq!(drafted.seq(), plain.seq());
    assert_eq!(locks(drafted), jobs(0..6));
    assert_eq!(locks(drafted), locks(plain));
}

#[test]
fn draft_is_forgotten_with_the_record_that_it_was_to_follow() {
    let mut engine = engine(1 << 20);
    ask(&mut engine, 0..3);
    let first = engine.seal().unwrap();
    ask(&mut engine, 3..5);
    engine.draft_next();
    engine.append_failed(NOW, Failed::Unwritten);
    engine.unseal();
    let again = engine.seal().unwrap();
    assert_eq!(again.seq(), first.seq());
    assert_eq!(locks(&again), jobs(0..0), "what was undone is in no record");
}

#[test]
fn draft_is_no_larger_than_a_record_may_be() {
    let mut engine = engine(1_000);
    ask(&mut engine, 0..1);
    engine.seal().unwrap();
    ask(&mut engine, 1..60);
    engine.draft_next();
    let mut seen = Vec::new();
    loop {
        engine.appended(NOW);
        let Some(batch) = engine.seal() else { break };
        assert!(batch.bytes().len() <= 1_000, "{} bytes", batch.bytes().len());
        engine.draft_next();
        seen.extend(locks(&batch));
    }
    assert_eq!(seen, jobs(1..60));
}
