//! The real table and the model, driven by the same random commands, agree in everything that can be seen.
//!
//! `LEASEHOLD_STEPS` says how many commands to try, `LEASEHOLD_SEED` which ones. A failure prints the line that
//! plays just that case again, and the shortest list of commands that still shows it.

mod model;
mod world;

use std::cell::RefCell;

use proptest::strategy::Strategy;
use proptest::test_runner::{
    Config, RngAlgorithm, TestCaseError, TestCaseResult, TestError, TestRng, TestRunner,
};
use proptest_state_machine::ReferenceStateMachine;

use world::{After, Cases, Coverage, Move, Setup, World};

const STEPS: u64 = 200_000;
const CASE_STEPS: u64 = 120;

#[test]
fn table_and_model_agree() {
    let (steps, seed) = (number("LEASEHOLD_STEPS").unwrap_or(STEPS), number("LEASEHOLD_SEED"));
    let seed = seed.unwrap_or(1);
    let coverage = RefCell::new(Coverage::default());
    if let Some(case) = number("LEASEHOLD_CASE") {
        return run_case(seed, case, &coverage);
    }
    let cases = steps.div_ceil(CASE_STEPS);
    for case in 0..cases {
        run_case(seed, case, &coverage);
    }
    let coverage = coverage.into_inner();
    println!("{} steps; rarest: {:?}", cases * CASE_STEPS, coverage.rarest(20));
    let missing = coverage.missing();
    assert!(missing.is_empty(), "never came about in {steps} steps: {missing:#?}");
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// Every case has random numbers of its own, so that it can be played alone.
fn run_case(seed: u64, case: u64, coverage: &RefCell<Coverage>) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&case.to_le_bytes());
    let config = Config {
        failure_persistence: None,
        max_shrink_iters: 20_000,
        max_shrink_time: 120_000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let size = usize::try_from(CASE_STEPS).expect("a few");
    let strategy = Cases::sequential_strategy(size..=size);
    let tree = strategy.new_tree(&mut runner).expect("every move is allowed");
    let result = runner.run_one(tree, |(setup, moves, seen)| {
        play(&setup, &moves, seen.as_deref(), &mut coverage.borrow_mut())
    });
    match result {
        Ok(_) => {}
        Err(TestError::Fail(_, (setup, moves, _))) => fail(seed, case, &setup, &moves),
        Err(TestError::Abort(reason)) => panic!("case {case} was given up: {reason}"),
    }
}

fn play(
    setup: &Setup,
    moves: &[(After, Move)],
    seen: Option<&std::sync::atomic::AtomicUsize>,
    coverage: &mut Coverage,
) -> TestCaseResult {
    let mut world = World::new(setup);
    for (after, what) in moves {
        if let Some(seen) = seen {
            seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        world.go(*after, what, coverage).map_err(TestCaseError::fail)?;
    }
    Ok(())
}

/// Tells the shortest failing case.
fn fail(seed: u64, case: u64, setup: &Setup, moves: &[(After, Move)]) -> ! {
    let moves = shortest(setup, moves);
    let (told, why) = tell(setup, &moves).expect("it failed before");
    panic!(
        "{setup:?}\n{told}\n\n{why}\n\nto play this case alone:\n    LEASEHOLD_SEED={seed} \
         LEASEHOLD_CASE={case} cargo test -p leasehold-core --test properties"
    );
}

/// Leaves out, or puts a tick in place of, every move that the failure can do without.
fn shortest(setup: &Setup, moves: &[(After, Move)]) -> Vec<(After, Move)> {
    let mut moves = moves.to_vec();
    loop {
        let before = moves.len();
        for place in (0..moves.len()).rev() {
            let mut fewer = moves.clone();
            let (after, _) = fewer.remove(place);
            if tell(setup, &fewer).is_some() {
                moves = fewer;
                continue;
            }
            fewer.insert(place, (after, Move::Tick));
            if tell(setup, &fewer).is_some() {
                moves = fewer;
            }
        }
        if moves.len() == before {
            return moves;
        }
    }
}

/// What was said and done, and what was wrong with it, if anything.
fn tell(setup: &Setup, moves: &[(After, Move)]) -> Option<(String, String)> {
    let mut world = World::new(setup);
    for (after, what) in moves {
        if let Err(why) = world.go(*after, what, &mut Coverage::default()) {
            return Some((world.transcript.join("\n"), why));
        }
    }
    None
}
