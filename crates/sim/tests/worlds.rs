//! Worlds that are lived through in every test run.
//!
//! `LEASEHOLD_SIM_SECONDS` says for how long new worlds begin, `LEASEHOLD_SIM_SEEDS` with which seed they end.

use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold_sim::{Campaign, Cut, activate_planted_bug, replay_command, run, shrink};

const SEEDS: u64 = 2000;
const SECONDS: u64 = 60;
/// However slow the machine: so many worlds are enough for everything to come about.
const SEEDS_LEAST: u64 = 500;

#[test]
fn same_seed_gives_the_same_world_twice() {
    activate_planted_bug();
    for seed in 0..8 {
        let (one, other) =
            (run(seed, None, &Cut::default(), false), run(seed, None, &Cut::default(), true));
        assert_eq!((one.hash, one.events), (other.hash, other.events), "seed {seed}");
        assert!(one.events > 100, "nothing happens in the world of seed {seed}");
    }
    let (one, other) = (run(1, None, &Cut::default(), false), run(2, None, &Cut::default(), false));
    assert_ne!(one.hash, other.hash);
}

/// Every file in `seeds/` is a bug that was found: `seed`, perhaps `length` and `cut`, and a sentence.
#[test]
fn worlds_that_once_failed_keep_every_promise() {
    activate_planted_bug();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("seeds/ is there")
        .map(|file| file.expect("readable").path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let text = fs::read_to_string(&file).expect("a text");
        let value =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let seed = value("seed").and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| panic!("{} names no seed", file.display()));
        let length = value("length").map(|length| length.parse().expect("a number"));
        let cut: Cut = value("cut").unwrap_or_default().parse().expect("a cut");
        if let Err(verdict) = run(seed, length, &cut, false).verdict {
            panic!("{}: {verdict}\n    {}", file.display(), replay_command(seed, length, &cut));
        }
    }
}

#[test]
fn many_worlds_keep_every_promise() {
    activate_planted_bug();
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seconds = number("LEASEHOLD_SIM_SECONDS").unwrap_or(SECONDS);
    let campaign = Campaign {
        seeds: 0..number("LEASEHOLD_SIM_SEEDS").unwrap_or(SEEDS),
        time: Some((Duration::from_secs(seconds), SEEDS_LEAST)),
        length: None,
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        is_loud: false,
        is_hasty: true,
    };
    let tally = campaign.run();
    println!("{}", tally.line(tally.took));
    if let Some((seed, verdict)) = tally.failed.first() {
        // A planted bug need not be told in few words.
        let is_planted = std::env::var("LEASEHOLD_PLANTED").is_ok();
        let time = Duration::from_secs(if is_planted { 0 } else { 60 });
        let cut = shrink(*seed, None, &Cut::default(), time);
        panic!(
            "seed {seed}: {verdict}\nto see it happen:\n    {}",
            replay_command(*seed, None, &cut)
        );
    }
    let missing = tally.coverage.missing();
    assert!(missing.is_empty(), "never came about in {} worlds: {missing:#?}", tally.seeds);
}
