//! Lives through simulated worlds.

use std::path::Path;

use anyhow::Result;

use crate::Chore;
use crate::cargo::{cargo, run};

pub(crate) const CHORE: Chore = Chore {
    name: "sim",
    args: "[ARGS]",
    about: "Live through simulated worlds, many or one",
    help: "Many worlds, on all cores:
  cargo xtask sim --seeds 0..2000               each as long as its seed says
  cargo xtask sim --seeds 0..20000 --hours 8766 a year, shared out among the seeds

At the end it prints simulated hours, events a second, and what came about; it fails if a promise was broken,
or if something that should have come about never did (with 1500 seeds or more). The first world that failed
is cut down as far as a minute allows, and the command that lives through it again is printed.

One world, with a trace:
  cargo xtask sim --seed 42 [--length MICROS] [--cut CUT] [--quiet]

Other options: --jobs N, how many threads. With the variable LEASEHOLD_PLANTED and the feature `planted` of
leasehold-sim, one of the planted bugs is there: see `cargo xtask planted --help`.",
    run: sim,
};

fn sim(root: &Path, args: &[String]) -> Result<()> {
    // Many worlds are worth a better compiled simulator; one is lived through with every assertion in place.
    let profile = if args.iter().any(|arg| arg == "--seeds") { "release" } else { "dev" };
    let simulator = ["run", "--quiet", "--profile", profile, "--package", "leasehold-sim", "--"];
    run(cargo(root, &simulator).args(args))
}
