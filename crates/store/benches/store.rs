//! How fast records are encoded, written and loaded on this machine.
//!
//! `cargo bench -p leasehold-store [-- encode|append|load]`. SQLite writes to a folder of its own below the one that
//! `LEASEHOLD_BENCH_DIR` names, or the one for temporary files: the numbers are those of that disk.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_core::{
    Claim, Ending, Entry, Epoch, FencingToken, GrantEntry, Granted, LeaseEntry, LeaseId, Millis,
    Mode, Namespace, Owner, Scope, Timestamp, Transition,
};
use leasehold_store::conformance::block_on;
use leasehold_store::sqlite::{Options, SqliteJournal};
use leasehold_store::{
    Batch, Campaign, Candidate, Chunk, ChunkWriter, Journal, Loaded, MemoryJournal, Position,
    Pruned, Seq,
};

fn main() {
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let parts: [(&str, fn()); 3] = [("encode", encode), ("append", append), ("load", load)];
    for (name, part) in parts {
        if chosen.is_empty() || chosen.iter().any(|chosen| chosen == name) {
            part();
        }
    }
}

fn encode() {
    println!("## records of 64 plain grants");
    let grants: Vec<Transition> = (0..64).map(granted).collect();
    let batch = Batch::new(Epoch(1), Seq(1), &grants);
    let bytes = batch.bytes().len() / grants.len();
    println!("{bytes} bytes a grant");
    rate("encode and seal", "transitions", 64, || {
        black_box(Batch::new(Epoch(1), Seq(1), black_box(&grants)));
    });
    rate("check and decode", "transitions", 64, || {
        let batch = Batch::parse(batch.bytes()).expect("it was written just now");
        for transition in batch.transitions() {
            black_box(transition.expect("it was written just now"));
        }
    });
    let ends: Vec<Transition> = (0..64).map(ended).collect();
    rate("encode ends", "transitions", 64, || {
        black_box(Batch::new(Epoch(1), Seq(1), black_box(&ends)));
    });
}

/// Runs the work for about a second, three times, and prints the best.
fn rate(what: &str, unit: &str, each: u32, mut work: impl FnMut()) {
    let mut best = 0.0_f64;
    for _ in 0..3 {
        let start = Instant::now();
        let mut rounds = 0_u32;
        while start.elapsed() < Duration::from_millis(700) {
            for _ in 0..100 {
                work();
            }
            rounds += 100;
        }
        let done = f64::from(rounds) * f64::from(each) / start.elapsed().as_secs_f64();
        best = best.max(done);
    }
    println!("{what}: {:.1} M {unit}/s", best / 1e6);
}

fn append() {
    println!("## appends, each durable before the next");
    let folder = folder();
    sync_alone(&folder);
    for per_record in [1, 64, 512] {
        let journal = SqliteJournal::open(&folder.join("append.db"), Options::default());
        let journal: Arc<dyn Journal> = Arc::new(journal.expect("the file can be opened"));
        appends("sqlite", &journal, per_record, 5000);
        drop(journal);
        std::fs::remove_dir_all(&folder).expect("the folder is ours");
        std::fs::create_dir(&folder).expect("the folder is ours");
    }
    let memory: Arc<dyn Journal> = Arc::new(MemoryJournal::new());
    appends("memory", &memory, 64, 5000);
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

/// The floor under every append: the same bytes to a plain file.
fn sync_alone(folder: &std::path::Path) {
    use std::io::{Seek, Write};
    let mut file = std::fs::File::create(folder.join("plain")).expect("it can be made");
    file.write_all(&vec![0; 8 << 20]).expect("there is room");
    file.sync_all().expect("it can be synced");
    file.rewind().expect("it is a plain file");
    let page = [1; 4096];
    let mut times: Vec<Duration> = (0..2000)
        .map(|_| {
            let start = Instant::now();
            file.write_all(&page).expect("there is room");
            file.sync_data().expect("it can be synced");
            start.elapsed()
        })
        .collect();
    print_times("4 KiB written in place and synced, without a store", &mut times, 1);
}

fn appends(store: &str, journal: &Arc<dyn Journal>, per_record: u64, count: u64) {
    let epoch = lead(journal);
    let warm_up = 1500;
    let mut times = Vec::new();
    for seq in 1..=warm_up + count {
        let grants: Vec<Transition> = (0..per_record).map(granted).collect();
        let start = Instant::now();
        let batch = Batch::new(epoch, Seq(seq), &grants);
        block_on(journal.append(batch)).expect("it can be written");
        if seq > warm_up {
            times.push(start.elapsed());
        }
    }
    print_times(&format!("{store}, {per_record} transitions a record"), &mut times, per_record);
}

fn print_times(what: &str, times: &mut [Duration], each: u64) {
    times.sort();
    let total: Duration = times.iter().sum();
    let at = |share: usize| times[(times.len() - 1) * share / 1000];
    let rate = times.len() as f64 * each as f64 / total.as_secs_f64();
    println!(
        "{what}: p50 {:?}, p99 {:?}, p99.9 {:?}, {:.0} transitions/s",
        at(500),
        at(990),
        at(999),
        rate
    );
}

fn load() {
    println!("## a snapshot of a million locks, and loading it");
    let folder = folder();
    for rows in [0, 100_000] {
        let options = Options { locks_rows_max: rows, ..Options::default() };
        let path = folder.join(format!("load-{rows}.db"));
        let journal = SqliteJournal::open(&path, options).expect("the file can be opened");
        let journal: Arc<dyn Journal> = Arc::new(journal);
        let epoch = lead(&journal);
        block_on(journal.append(Batch::new(epoch, Seq(1), []))).expect("it can be written");
        write_snapshot(&journal, epoch, rows);
        drop(journal);
        let start = Instant::now();
        let journal = SqliteJournal::open(&path, Options::default());
        let journal: Arc<dyn Journal> = Arc::new(journal.expect("the file can be opened"));
        let found = read_all(&journal, lead(&journal));
        println!("opened, loaded and decoded {found} leases in {:?}", start.elapsed());
    }
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

fn write_snapshot(journal: &Arc<dyn Journal>, epoch: Epoch, rows: u32) {
    let start = Instant::now();
    let mut index = 0;
    let mut writer = ChunkWriter::new(epoch, Seq(1), index);
    let mut times = Vec::new();
    let mut put = |chunk: Chunk| {
        let start = Instant::now();
        block_on(journal.put_chunk(chunk)).expect("it can be written");
        times.push(start.elapsed());
    };
    for number in 0..1_000_000 {
        writer.push(&lease_entry(number));
        if writer.is_full() {
            index += 1;
            let full = std::mem::replace(&mut writer, ChunkWriter::new(epoch, Seq(1), index));
            put(full.seal());
        }
    }
    put(writer.seal());
    block_on(journal.commit_snapshot(epoch, Seq(1), index + 1)).expect("it can be committed");
    while block_on(journal.prune(epoch)).expect("it can be pruned") == Pruned::Partial {}
    println!("snapshot with {rows} rows in the table of locks: {:?}", start.elapsed());
    times.sort();
    println!("a chunk: p50 {:?}, max {:?}", times[times.len() / 2], times[times.len() - 1]);
}

fn read_all(journal: &Arc<dyn Journal>, epoch: Epoch) -> usize {
    let mut found = 0;
    let mut next = Some(Position::Start);
    while let Some(position) = next {
        let page = block_on(journal.load(epoch, position)).expect("it can be loaded");
        for item in &page.items {
            match item {
                Loaded::Chunk(chunk) => found += chunk.entries().filter(Result::is_ok).count(),
                Loaded::Batch(_) | Loaded::Torn { .. } => {}
            }
        }
        next = page.next;
    }
    found
}

fn lead(journal: &Arc<dyn Journal>) -> Epoch {
    let candidate =
        Candidate { name: "bench".into(), address: String::new(), lease: Duration::from_secs(10) };
    match block_on(journal.campaign(candidate, None)).expect("a campaign can be held") {
        Campaign::Won(leadership) => leadership.epoch,
        Campaign::Lost(leader) => panic!("{leader:?} leads"),
    }
}

fn folder() -> PathBuf {
    let parent =
        std::env::var_os("LEASEHOLD_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = parent.join(format!("leasehold-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    folder
}

fn lease_id(number: u64) -> LeaseId {
    // Spread like random ones.
    LeaseId::from_u128(u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))
}

fn granted(number: u64) -> Transition {
    Transition::Granted(Granted {
        namespace: Namespace::default(),
        lease: lease_id(number),
        opens: Some(Millis::from_secs(30)),
        owner: owner(number),
        claims: vec![Claim {
            scope: Scope::parse(&format!("job/{number}")).expect("it is a scope"),
            mode: Mode::Exclusive,
        }],
        fence: FencingToken::new(1_000_000 + number).expect("it is small"),
        granted_at: Timestamp::from_millis(1_700_000_000_000),
        reclaim_window: Millis::ZERO,
        request: None,
        metadata: None,
    })
}

fn ended(number: u64) -> Transition {
    Transition::LeaseEnded {
        namespace: Namespace::default(),
        lease: lease_id(number),
        ending: Ending::Released,
    }
}

fn owner(number: u64) -> Owner {
    Owner::new(&format!("worker-{}", number % 100)).expect("it is a name")
}

fn lease_entry(number: u64) -> Entry {
    let Ok(Scope::Key(key)) = Scope::parse(&format!("job/{number}")) else {
        unreachable!("it is a name")
    };
    Entry::Lease(Box::new(LeaseEntry {
        namespace: Namespace::default(),
        lease: lease_id(number),
        owner: owner(number),
        ttl: Millis::from_secs(30),
        session: None,
        lapsed: None,
        ending: None,
        grants: vec![GrantEntry {
            key,
            owner: owner(number),
            mode: Mode::Exclusive,
            fence: FencingToken::new(1_000_000 + number).expect("it is small"),
            granted_at: Timestamp::from_millis(1_700_000_000_000),
            reclaim_window: Millis::ZERO,
            request: None,
            metadata: None,
        }],
        pieces: Vec::new(),
        sets: Vec::new(),
        requests: Vec::new(),
    }))
}
