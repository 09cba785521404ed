//! The SDKs beside the Redis locks of their languages: pairs of acquire and release, and the processor time of a pair.
//!
//! Contenders take turns, so that a slow minute of the machine hits all of them. Neither server writes to a disk.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::cargo::{cargo, run};
use crate::needs;
use crate::sdk::{self, Workshop};

/// How many threads, goroutines or loops ask at once.
const WORKERS: [u32; 2] = [1, 16];

struct Contender {
    language: &'static str,
    /// By which its program knows it.
    name: &'static str,
    /// For people.
    shown: &'static str,
}

const CONTENDERS: [Contender; 6] = [
    Contender { language: "python", name: "leasehold", shown: "Leasehold, Python" },
    Contender { language: "python", name: "redis", shown: "redis-py `Lock`" },
    Contender { language: "go", name: "leasehold", shown: "Leasehold, Go" },
    Contender { language: "go", name: "redis", shown: "Go, bare `SET NX EX` and `EVAL`" },
    Contender { language: "typescript", name: "leasehold", shown: "Leasehold, Node" },
    Contender { language: "typescript", name: "redis", shown: "redlock over ioredis" },
];

pub(super) fn bench(root: &Path, languages: &[String]) -> Result<()> {
    needs::install()?;
    let server = match std::env::var_os("LEASEHOLD_BIN") {
        Some(binary) => PathBuf::from(binary),
        None => {
            run(&mut cargo(
                root,
                &["build", "--release", "--locked", "--package", "leasehold-cli"],
            ))?;
            sdk::release(root)
        }
    };
    let all = || CONTENDERS.iter();
    let is_chosen =
        |one: &&Contender| languages.is_empty() || languages.iter().any(|own| own == one.language);
    let chosen: Vec<_> = all().filter(is_chosen).collect();
    ensure!(!chosen.is_empty(), "there are python, go and typescript");
    let (turns, seconds) = (setting("TURNS", 5)?, setting("SECONDS", 2)?);
    let programs = Programs::built(root, &server)?;
    let leasehold = Server::of_leasehold(&server)?;
    let redis = Server::of_redis()?;
    println!(
        "| workers | | pairs a second: median | min | max | processor a pair: median | min | max |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for workers in WORKERS {
        let mut measured: Vec<Vec<Turn>> = chosen.iter().map(|_| Vec::new()).collect();
        for _ in 0..turns {
            for (turns, contender) in measured.iter_mut().zip(&chosen) {
                let at = if contender.name == "redis" { &redis } else { &leasehold };
                turns.push(programs.turn(contender, at, seconds, workers)?);
            }
        }
        for (turns, contender) in measured.iter().zip(&chosen) {
            println!("| {workers} | {} | {} |", contender.shown, row(turns));
        }
    }
    Ok(())
}

fn setting(name: &str, otherwise: u64) -> Result<u64> {
    let name = format!("LEASEHOLD_BENCH_{name}");
    match std::env::var(&name) {
        Ok(text) => text.parse().with_context(|| format!("{name} is a number")),
        Err(_) => Ok(otherwise),
    }
}

/// What one turn came to.
#[derive(Clone, Copy, Debug)]
struct Turn {
    pairs_a_second: f64,
    micros_a_pair: f64,
}

fn row(turns: &[Turn]) -> String {
    let spread = |of: fn(&Turn) -> f64| {
        let mut all: Vec<f64> = turns.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        (all[all.len() / 2], all[0], all[all.len() - 1])
    };
    let (median, min, max) = spread(|turn| turn.pairs_a_second);
    let (cpu, cpu_min, cpu_max) = spread(|turn| turn.micros_a_pair);
    format!("{median:.0} | {min:.0} | {max:.0} | {cpu:.0} µs | {cpu_min:.0} µs | {cpu_max:.0} µs")
}

/// The programs of the three languages, ready to start.
struct Programs {
    python: Workshop,
    go: PathBuf,
    node: PathBuf,
    modules: PathBuf,
}

impl Programs {
    fn built(root: &Path, server: &Path) -> Result<Programs> {
        let python = Workshop::of(root, "python", server)?;
        let go = sdk::go::program(&Workshop::of(root, "go", server)?, "./conformance/bench")?;
        let node = sdk::node::compiled(&Workshop::of(root, "typescript", server)?)?;
        let modules = python.tools.join("npm");
        Ok(Programs { python, go, node, modules })
    }

    fn turn(&self, what: &Contender, at: &Server, seconds: u64, workers: u32) -> Result<Turn> {
        let mut program = match what.language {
            "python" => self.by("python", &self.python.sdk.join("conformance/bench.py")),
            "go" => Command::new(&self.go),
            _ => self.by("node", &self.node.join("conformance/bench.js")),
        };
        program.env("LEASEHOLD_BENCH_MODULES", &self.modules);
        let said = sdk::said(
            program.arg(what.name).arg(&at.url).arg(seconds.to_string()).arg(workers.to_string()),
        )?;
        let figures: Vec<f64> =
            said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [pairs, took, used] = figures[..] else { bail!("{}: it says {said}", what.shown) };
        Ok(Turn { pairs_a_second: pairs / took, micros_a_pair: used / pairs * 1e6 })
    }

    fn by(&self, interpreter: &str, file: &Path) -> Command {
        let mut command = self.python.program(interpreter);
        command.arg(file);
        command
    }
}

/// A server of our own on a free port, ended with this.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn of_leasehold(binary: &Path) -> Result<Server> {
        let address = free_address()?;
        let mut command = Command::new(binary);
        command.args(["serve", "--store", "memory", "--listen"]).arg(address.to_string());
        Server::started(&mut command, address, format!("http://{address}"))
    }

    fn of_redis() -> Result<Server> {
        let address = free_address()?;
        let mut command = Command::new("redis-server");
        command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1", "--port"]);
        command.arg(address.port().to_string());
        Server::started(&mut command, address, format!("redis://{address}"))
    }

    fn started(command: &mut Command, address: SocketAddr, url: String) -> Result<Server> {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.with_context(|| format!("cannot start {command:?}"))?;
        let server = Server { child, url };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            ensure!(began.elapsed() < Duration::from_secs(30), "{command:?} does not listen");
            std::thread::yield_now();
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_and_the_bounds() {
        let turn = |pairs_a_second| Turn { pairs_a_second, micros_a_pair: 1e6 / pairs_a_second };
        let said = row(&[turn(2000.0), turn(1000.0), turn(4000.0)]);
        assert_eq!(said, "2000 | 1000 | 4000 | 500 µs | 250 µs | 1000 µs");
    }
}
