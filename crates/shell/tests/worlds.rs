//! Hundreds of worlds, a process for each: see `crates/shell/src/entropy.rs` for why.

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many worlds every run lives through; `LEASEHOLD_SHELL_SEEDS` says otherwise, and `LEASEHOLD_SEED` which is the first.
const SEEDS: u64 = 240;

fn world(seed: u64, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-shell"));
    command.args(["--seed", &seed.to_string()]).args(args).output().expect("it can be started")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Adds up what a world counted: `name: number` in its last line.
fn add_counts(counts: &mut BTreeMap<String, u64>, line: &str) {
    for part in line.trim_end_matches([' ', '}', '\n']).split([',', '{']) {
        if let Some((name, number)) = part.split_once(": ")
            && let Ok(number) = number.trim().parse::<u64>()
        {
            *counts.entry(name.trim().into()).or_default() += number;
        }
    }
}

#[test]
fn many_worlds_keep_every_promise() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seeds = number("LEASEHOLD_SHELL_SEEDS").unwrap_or(SEEDS);
    let first = number("LEASEHOLD_SEED").unwrap_or(0);
    let next = AtomicU64::new(first);
    let (failed, counts) = (Mutex::new(Vec::new()), Mutex::new(BTreeMap::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + seeds {
                        return;
                    }
                    let output = world(seed, &[]);
                    if output.status.success() {
                        add_counts(&mut counts.lock().unwrap(), &said(&output));
                    } else {
                        failed.lock().unwrap().push((seed, said(&output)));
                    }
                }
            });
        }
    });
    let (mut failed, counts) = (failed.into_inner().unwrap(), counts.into_inner().unwrap());
    println!("{seeds} worlds: {counts:?}");
    failed.sort();
    if let Some((seed, what)) = failed.first() {
        let others: Vec<u64> = failed.iter().skip(1).map(|(seed, _)| *seed).collect();
        panic!(
            "{what}\nto see it happen:\n    cargo run -p leasehold-shell -- --seed {seed} --trace\nalso failed: {others:?}"
        );
    }
    // A simulation in which something never comes about cannot find anything there.
    for name in [
        "grants",
        "refusals",
        "not_applied",
        "unknown",
        "renewals",
        "restarts",
        "by_hand",
        "by_hand_not_applied",
        "faults",
        "blocks",
    ] {
        assert!(counts.get(name).is_some_and(|&number| number > seeds / 4), "{name}: {counts:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_world() {
    for seed in [3, 7, 24, 90] {
        let [one, other] = [world(seed, &["--trace"]), world(seed, &["--trace"])];
        assert!(one.stdout.len() > 1000, "{}", said(&one));
        assert_eq!(said(&one), said(&other), "seed {seed}");
        let another = world(seed + 1, &["--trace"]);
        assert_ne!(one.stdout, another.stdout);
    }
}
