//! Lives through one world: `leasehold-shell --seed 42 [--trace] [--log]`.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

fn main() -> Result<ExitCode> {
    let (mut seed, mut is_traced) = (None, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seed" => seed = Some(args.next().context("--seed takes a number")?.parse::<u64>()?),
            "--trace" => is_traced = true,
            // What server and client have to say, in the words of their logs.
            "--log" => tracing_subscriber::fmt().with_writer(std::io::stderr).init(),
            other => bail!("{other} is not known: --seed N [--trace] [--log]"),
        }
    }
    let seed = seed.context("name a world: --seed N")?;
    leasehold_shell::seed(seed);
    // A thread of its own: nothing has asked for randomness there yet.
    let world = std::thread::spawn(move || leasehold_shell::run(seed));
    let Ok(run) = world.join() else {
        println!("seed {seed}: panicked");
        return Ok(ExitCode::FAILURE);
    };
    if is_traced {
        run.trace.iter().for_each(|line| println!("{line}"));
    }
    match run.verdict {
        Ok(()) => {
            println!("seed {seed}: {:?}", run.counts);
            Ok(ExitCode::SUCCESS)
        }
        Err(what) => {
            println!("seed {seed}: {what}");
            Ok(ExitCode::FAILURE)
        }
    }
}
