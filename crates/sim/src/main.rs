//! Lives through many worlds, or through one with a trace.

use leasehold_sim::{Cut, run};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let from: u64 = args[1].parse().unwrap();
    let to: u64 = args[2].parse().unwrap();
    let lines = args.len() > 3;
    let start = std::time::Instant::now();
    let (mut events, mut simulated, mut failed) = (0, 0, 0);
    let mut coverage = leasehold_sim::Coverage::default();
    for seed in from..to {
        let run = run(seed, None, &Cut::default(), lines);
        events += run.events;
        simulated += run.simulated;
        coverage.add(&run.coverage);
        for line in &run.lines {
            println!("{line}");
        }
        if let Err(verdict) = run.verdict {
            failed += 1;
            println!("seed {seed}: {verdict}");
        }
    }
    let took = start.elapsed().as_secs_f64();
    println!("{failed} failed; {events} events, {:.0}/s; {:.1} h simulated, {:.0}x", events as f64 / took, simulated as f64 / 3.6e9, simulated as f64 / 1e6 / took);
    println!("{coverage}");
    println!("{:#?}", coverage.missing());
}
