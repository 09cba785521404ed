//! Writes what was measured into the documentation, between markers.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::growth::Growth;
use crate::load::{self, Load, Row};
use crate::process::Folder;
use crate::{machine, plot, run};

const PAGE: &str = "docs/benchmarks.md";
const README: &str = "README.md";
/// The folder of the page, below which the plots are.
const PLOTS: &str = "docs";
/// What the README shows.
const README_ROWS: [&str; 8] =
    ["sdk", "http", "redis-durable", "redis", "etcd", "raw", "redis-bare-durable", "redis-bare"];

/// What limits everybody on this machine.
pub(crate) struct Limits {
    sync: Option<Duration>,
    loopback: Option<Duration>,
}

impl Limits {
    pub(crate) fn measure(folder: &Folder) -> Limits {
        let sync = machine::fdatasync(&folder.fresh("sync")).ok();
        Limits { sync, loopback: machine::loopback().ok() }
    }

    pub(crate) fn sentence(&self) -> String {
        let micros = |took: Option<Duration>| {
            took.map_or("unknown".into(), |took| format!("{:.0} µs", took.as_secs_f64() * 1e6))
        };
        let processors = std::thread::available_parallelism().map_or(0, usize::from);
        format!(
            "{processors} processors; p50 of an `fdatasync` of 8 KiB {}, of a round trip over loopback {}; {} turns of {} s.",
            micros(self.sync),
            micros(self.loopback),
            load::turns(),
            run().as_secs()
        )
    }
}

/// p50 and p99, in µs.
pub(crate) fn waits(load: &Load) -> String {
    if load.p50.is_zero() {
        return String::new();
    }
    format!("{} / {}", micros(load.p50), micros(load.p99))
}

/// The same, and p99.9.
fn all_waits(load: &Load) -> String {
    format!("{} / {}", waits(load), micros(load.p999))
}

fn micros(took: Duration) -> f64 {
    (took.as_secs_f64() * 1e6).round()
}

/// 12 345 as a reader likes it.
fn number(rate: f64) -> String {
    let digits = format!("{rate:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn rates(row: &Row) -> Option<String> {
    Some(row.rates()?.map(number).join(" | "))
}

fn table(rows: &[(&str, Row)]) -> String {
    let mut table = "| | min | median | max | p50 / p99 µs | CPU µs, server + client |\n|---|---|---|---|---|---|\n".to_owned();
    for (_, row) in rows {
        if let (Some(rates), Some(load)) = (rates(row), row.median()) {
            let (waits, cpu) = (waits(&load), load.processor());
            let _ = writeln!(table, "| {} | {rates} | {waits} | {cpu} |", row.name);
        }
    }
    table
}

fn growth_table(growth: &Growth) -> String {
    let what = growth.what;
    let mut table = format!(
        "| | {what} | pairs a second | p50 / p99 / p99.9 µs | CPU µs, server + client |\n|---|---|---|---|---|\n"
    );
    for (name, step, row) in growth.rows() {
        if let Some(load) = row.median() {
            let (step, rate) = (number(step as f64), number(load.rate()));
            let (waits, cpu) = (all_waits(&load), load.processor());
            let _ = writeln!(table, "| {name} | {step} | {rate} | {waits} | {cpu} |");
        }
    }
    table
}

fn readme(rows: &[(&str, Row)], limits: &Limits) -> String {
    let mut table = format!(
        "64 workers, each acquiring and releasing locks of its own, pairs a second; client and server share the machine: {}\n\n",
        limits.sentence()
    );
    table.push_str("| | min | median | max |\n|---|---|---|---|\n");
    for (key, row) in rows {
        if README_ROWS.contains(key)
            && let Some(rates) = rates(row)
        {
            let _ = writeln!(table, "| {} | {rates} |", row.name);
        }
    }
    table
}

/// Writes the tables and the plots below this folder, as far as they were measured.
pub(crate) fn write(root: &Path, rows: &[(&str, Row)], growths: &[Growth], limits: &Limits) {
    if !rows.is_empty() {
        replace(&root.join(PAGE), "clients", &format!("{}\n\n{}", limits.sentence(), table(rows)));
        replace(&root.join(README), "clients", &readme(rows, limits));
    }
    for growth in growths {
        let mut text = format!("{}\n\n{}", limits.sentence(), growth_table(growth));
        for plot in plot::of(growth) {
            let _ = write!(text, "\n![{}]({})\n", plot.title, plot.path);
            std::fs::write(root.join(PLOTS).join(&plot.path), plot.svg)
                .expect("the plot can be written");
        }
        replace(&root.join(PAGE), growth.key, &text);
    }
}

/// Replaces the text between the two markers of that name.
fn replace(page: &Path, name: &str, with: &str) {
    let text = std::fs::read_to_string(page).expect("the page is there");
    let (begin, end) = (format!("<!-- bench {name} -->\n"), format!("<!-- /bench {name} -->"));
    let (before, rest) = text.split_once(&begin).expect("the page has the first marker");
    let (_, after) = rest.split_once(&end).expect("the page has the second marker");
    let text = format!("{before}{begin}{with}{end}{after}");
    std::fs::write(page, text).expect("the page can be written");
    eprintln!("written: {}", page.display());
}
