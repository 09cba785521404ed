//! What happens to a server as something grows: workers, locks that are held, groups.

use crate::load::{Load, Row};
use crate::process::Folder;
use crate::{groups, held, page, pairs};

/// One thing that grows.
pub(crate) struct Growth {
    /// In the arguments, in the markers of the page, and in the names of the plots.
    pub(crate) key: &'static str,
    /// What there is more and more of.
    pub(crate) what: &'static str,
    pub(crate) contenders: Vec<Contender>,
}

/// A contender, with a row for each step.
pub(crate) struct Contender {
    key: &'static str,
    pub(crate) name: &'static str,
    pub(crate) rows: Vec<(usize, Row)>,
}

type Names = &'static [(&'static str, &'static str)];

const GROWTHS: [(&str, &str, &[usize], Names); 3] = [
    (
        "growth",
        "workers",
        &[1, 4, 16, 64, 256, 1024],
        &[
            ("sdk", "Leasehold, SDK for Rust"),
            ("http", "Leasehold, HTTP and JSON"),
            ("redis-durable", "Redis, appendfsync always"),
            ("redis", "Redis, not durable"),
        ],
    ),
    ("growth-held", "held locks", &[1_000, 100_000, 1_000_000], &[("held", "SDK, SQLite")]),
    ("growth-groups", "groups", &[1, 2, 4], &[("groups", "SDK, PostgreSQL")]),
];

impl Growth {
    /// Those that are wanted, with nothing measured yet.
    pub(crate) fn all(wants: impl Fn(&str) -> bool) -> Vec<Growth> {
        let wanted = GROWTHS.into_iter().filter(|(key, ..)| wants(key));
        wanted
            .map(|(key, what, steps, names)| {
                let rows = |name| steps.iter().map(|step| (*step, Row::new(name))).collect();
                let contender = |(key, name)| Contender { key, name, rows: rows(name) };
                Growth { key, what, contenders: names.iter().copied().map(contender).collect() }
            })
            .collect()
    }

    /// One turn: contenders take turns at each step.
    pub(crate) async fn measure(&mut self, folder: &Folder) {
        for number in 0..self.contenders.first().map_or(0, |first| first.rows.len()) {
            for Contender { key, rows, .. } in &mut self.contenders {
                let (step, row) = &mut rows[number];
                if row.fault.is_none() {
                    row.take(one(key, folder, *step).await);
                }
            }
        }
    }

    pub(crate) fn show(&self) {
        println!("more {}", self.what);
        for (name, step, row) in self.rows() {
            let Some(load) = row.median() else {
                let why = row.fault.as_deref().unwrap_or("no turns");
                println!("{name:<40} {step:>11} skipped: {why}");
                continue;
            };
            let (rate, waits, cpu) = (load.rate(), page::waits(&load), load.processor());
            println!("{name:<40} {step:>11} {rate:>9.0} {waits:>33} {cpu:>19}");
        }
    }

    /// Each contender's name, what its row has so many of, and the row.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&'static str, usize, &Row)> {
        self.contenders.iter().flat_map(|contender| {
            contender.rows.iter().map(|(step, row)| (contender.name, *step, row))
        })
    }
}

async fn one(key: &str, folder: &Folder, step: usize) -> Result<Load, String> {
    match key {
        "held" => held::pairs(folder, step).await,
        "groups" => groups::pairs(folder, step).await,
        _ => pairs(key, folder, step).await,
    }
}
