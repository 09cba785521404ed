//! Lives through many worlds, or through one with a trace.
//!
//! `cargo xtask sim --help` tells how it is called.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use leasehold_sim::{Campaign, Cut, Micros, Plan, replay_command, run, shrink};

const USAGE: &str = "\
leasehold-sim --seeds 0..2000 [--hours H] [--jobs N]   live through many worlds
leasehold-sim --seed N [--length MICROS] [--cut CUT]   live through one, with a trace
leasehold-sim --vectors FOLDER                         write what ports of the SDK are held to

  --hours H    simulated hours, shared out evenly among the seeds
  --jobs N     threads; all cores if it is not given
  --cut CUT    what is left out of the world, as the shrinker has said it
  --quiet      no trace, only the verdict";

const SHRINK_TIME: Duration = Duration::from_secs(60);
/// With fewer seeds than that, not everything can be expected to have come about.
const SEEDS_FOR_COVERAGE: u64 = 1500;

#[derive(Debug, Default)]
struct Args {
    seeds: Option<std::ops::Range<u64>>,
    seed: Option<u64>,
    hours: Option<f64>,
    length: Option<Micros>,
    jobs: Option<usize>,
    cut: Cut,
    quiet: bool,
    vectors: Option<PathBuf>,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)).and_then(|args| start(&args)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Args> {
    let mut args = Args::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--seeds" => args.seeds = Some(range(&value()?)?),
            "--seed" => args.seed = Some(value()?.parse().context("--seed is a number")?),
            "--hours" => args.hours = Some(value()?.parse().context("--hours is a number")?),
            "--length" => args.length = Some(value()?.parse().context("--length is a number")?),
            "--jobs" => args.jobs = Some(value()?.parse().context("--jobs is a number")?),
            "--cut" => args.cut = value()?.parse()?,
            "--quiet" => args.quiet = true,
            "--vectors" => args.vectors = Some(value()?.into()),
            _ => bail!("there is no option {word}"),
        }
    }
    Ok(args)
}

fn range(text: &str) -> Result<std::ops::Range<u64>> {
    let (from, to) = text.split_once("..").with_context(|| format!("{text:?} is not FROM..TO"))?;
    Ok(from.parse().context("FROM is a number")?..to.parse().context("TO is a number")?)
}

fn start(args: &Args) -> Result<bool> {
    if let Some(folder) = &args.vectors {
        leasehold_sim::vectors::write(folder)?;
        return Ok(true);
    }
    leasehold_sim::activate_planted_bug();
    match (args.seed, &args.seeds) {
        (Some(seed), None) => Ok(live_once(seed, args)),
        (None, Some(seeds)) => Ok(live_often(seeds.clone(), args)),
        _ => bail!("name a --seed or --seeds"),
    }
}

/// One world, line by line.
fn live_once(seed: u64, args: &Args) -> bool {
    let run = run(seed, args.length, &args.cut, !args.quiet);
    run.lines.iter().for_each(|line| println!("{line}"));
    let plan = Plan::new(seed, args.length);
    println!(
        "\n{} servers, {} clients, ttl {} ms, {} faults",
        plan.servers,
        plan.clients,
        plan.ttl / 1000,
        run.faults
    );
    println!("{} events, hash {:016x}", run.events, run.hash);
    match &run.verdict {
        Ok(()) => println!("seed {seed}: every promise was kept"),
        Err(verdict) => println!("seed {seed}: {verdict}"),
    }
    run.verdict.is_ok()
}

fn live_often(seeds: std::ops::Range<u64>, args: &Args) -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let len = seeds.end.saturating_sub(seeds.start).max(1);
    let each = args.hours.map(|hours| {
        let micros = hours * 3.6e9 / len as f64;
        format!("{micros:.0}").parse().unwrap_or(0)
    });
    let length = args.length.or(each);
    let campaign = Campaign {
        seeds,
        time: None,
        length,
        threads: args.jobs.unwrap_or(cores),
        is_loud: true,
        is_hasty: false,
    };
    let tally = campaign.run();
    println!(
        "coverage: {} combinations of command, answer and fault{}",
        tally.coverage.combinations(),
        tally.coverage
    );
    println!("at most: {}", tally.peaks);
    let missing =
        if tally.seeds < SEEDS_FOR_COVERAGE { Vec::new() } else { tally.coverage.missing() };
    for what in &missing {
        println!("never came about: {what}");
    }
    for (seed, verdict) in tally.failed.iter().skip(1) {
        println!("seed {seed}: {verdict}\n    {}", replay_command(*seed, length, &Cut::default()));
    }
    if let Some((seed, verdict)) = tally.failed.first() {
        let cut = shrink(*seed, length, &Cut::default(), SHRINK_TIME);
        println!("seed {seed}: {verdict}\n    {}", replay_command(*seed, length, &cut));
    }
    println!("{}", tally.line(tally.took));
    tally.failed.is_empty() && missing.is_empty()
}
