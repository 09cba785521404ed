//! Runs the benchmarks, all or one.

mod sdks;

use std::path::Path;

use anyhow::{Result, bail};

use crate::Chore;
use crate::cargo::{cargo, run};

pub(crate) const CHORE: Chore = Chore {
    name: "bench",
    args: "[--write] [NAME [ARGS]]",
    about: "Run the benchmarks, or the one that is named",
    help: "NAME is one of:
  core      the rules alone, in one thread
  store     records: encoding them, writing them to this disk, loading a million locks
  cluster   the journals in PostgreSQL and etcd; then servers on them, beside what those two offer for locks
            themselves, and how long a change of leader takes; ARGS name parts: etcd postgres three
  service   the server as a process, over HTTP, with SQLite and in memory
  clients   the server as a process, through the SDK, over HTTP and over its bare stream, beside Redis, etcd and
            PostgreSQL; ARGS name measurements: sdk http redis-durable redis etcd through libraries, raw session memory
            redis-bare-durable redis-bare without, lone-sdk lone-http lone-redis with one worker, hot-sdk hot hot-postgres
            with one lock, renew; token-sdk token-http token-raw with authentication, tls-sdk with TLS too; growth for 1 to
            1024 workers, growth-held for 1 000 to 1 000 000 held locks, growth-groups for 1, 2 and 4 groups
  sdks      the SDKs for Python, Go and Node over HTTP, each beside a Redis lock of its language; ARGS name languages.
            LEASEHOLD_BIN names the server to measure, or it is built

Without a NAME all but sdks run, one after the other. ARGS go to the benchmark as they are. With --write, clients runs and
writes its figures into docs/benchmarks.md and README.md, between their markers, and the plots of growth into docs/images.
What is compared in clients, cluster and sdks takes LEASEHOLD_BENCH_TURNS turns (5) of LEASEHOLD_BENCH_SECONDS seconds (2),
and the median counts.",
    run: bench,
};

const WRITE: &str = "--write";
/// The benchmark whose figures are in the documentation.
const WRITTEN: &str = "clients";

/// A target of cargo. Several may have one name: they run one after the other.
struct Bench {
    name: &'static str,
    package: &'static str,
}

/// A new one is a line here and a line in the help.
const BENCHES: &[Bench] = &[
    Bench { name: "core", package: "leasehold-core" },
    Bench { name: "store", package: "leasehold-store" },
    Bench { name: "cluster", package: "leasehold-store" },
    Bench { name: "cluster", package: "leasehold-e2e" },
    Bench { name: "service", package: "leasehold-cli" },
    Bench { name: "clients", package: "leasehold-cli" },
];

fn bench(root: &Path, args: &[String]) -> Result<()> {
    let (args, is_written) = without_write(args)?;
    if let Some((name, languages)) = args.split_first()
        && name == "sdks"
    {
        return sdks::bench(root, languages);
    }
    let (chosen, rest) = choose(&args)?;
    for bench in chosen {
        let target = ["bench", "--package", bench.package, "--bench", bench.name, "--"];
        let mut command = cargo(root, &target);
        if is_written {
            command.env("LEASEHOLD_BENCH_WRITE", root);
        }
        run(command.args(rest))?;
    }
    Ok(())
}

/// The arguments without `--write`, and whether it was there. It stands for the one benchmark that writes.
fn without_write(args: &[String]) -> Result<(Vec<String>, bool)> {
    let mut rest: Vec<String> = args.iter().filter(|arg| *arg != WRITE).cloned().collect();
    if rest.len() == args.len() {
        return Ok((rest, false));
    }
    match rest.first().map(String::as_str) {
        None => rest.push(WRITTEN.into()),
        Some(WRITTEN) => {}
        Some(other) => bail!("{other} writes nothing: {WRITE} is for {WRITTEN}"),
    }
    Ok((rest, true))
}

fn choose(args: &[String]) -> Result<(&'static [Bench], &[String])> {
    let Some((name, rest)) = args.split_first() else {
        return Ok((BENCHES, &[]));
    };
    let of_that_name = |bench: &Bench| bench.name == name;
    match BENCHES.iter().position(of_that_name) {
        Some(first) => {
            let count = BENCHES.iter().filter(|bench| of_that_name(bench)).count();
            Ok((&BENCHES[first..first + count], rest))
        }
        None => bail!("there is no benchmark {name:?}; there are: {}", names()),
    }
}

fn names() -> String {
    let mut names: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
    names.dedup();
    names.push("sdks");
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_name_all_run() {
        let (chosen, rest) = choose(&[]).unwrap();
        assert_eq!((chosen.len(), rest.len()), (BENCHES.len(), 0));
    }

    #[test]
    fn what_follows_the_name_goes_to_the_benchmark() {
        let args = ["core".to_string(), "acquire".to_string()];
        let (chosen, rest) = choose(&args).unwrap();
        assert_eq!((chosen[0].name, rest), ("core", &args[1..]));
    }

    #[test]
    fn writing_stands_for_the_benchmark_that_writes() {
        let text = |args: &[&str]| args.iter().map(|arg| (*arg).to_string()).collect::<Vec<_>>();
        let clients = text(&["clients"]);
        assert_eq!(without_write(&text(&["--write"])).unwrap(), (clients.clone(), true));
        let some = text(&["clients", "sdk"]);
        assert_eq!(without_write(&text(&["clients", "--write", "sdk"])).unwrap(), (some, true));
        assert_eq!(without_write(&clients).unwrap(), (clients, false));
        assert!(without_write(&text(&["core", "--write"])).is_err());
    }

    #[test]
    fn all_of_one_name_run() {
        let (chosen, _) = choose(&["cluster".to_string()]).unwrap();
        let packages: Vec<&str> = chosen.iter().map(|bench| bench.package).collect();
        assert_eq!(packages, ["leasehold-store", "leasehold-e2e"]);
    }

    #[test]
    fn unknown_name_is_refused_with_the_known_ones() {
        let fault = choose(&["cores".to_string()]).err().unwrap().to_string();
        assert_eq!(
            fault,
            "there is no benchmark \"cores\"; there are: core, store, cluster, service, clients, sdks"
        );
    }

    #[test]
    fn every_benchmark_is_in_the_help() {
        for bench in BENCHES {
            assert!(CHORE.help.contains(&format!("\n  {} ", bench.name)), "{}", bench.name);
        }
    }
}
