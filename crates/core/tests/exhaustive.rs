//! A small world searched to the end: every order in which a few clients can ask, renew, release and give up, while
//! messages get lost, repeated and late, time passes, a clock stands still and the server crashes.
#[path = "exhaustive/fingerprint.rs"]
mod fingerprint;
#[path = "exhaustive/model.rs"]
mod model;
#[path = "exhaustive/properties.rs"]
mod properties;
#[path = "exhaustive/server.rs"]
mod server;
#[path = "exhaustive/steps.rs"]
mod steps;
#[path = "exhaustive/world.rs"]
mod world;

use leasehold_core::{Mode, Scope};
use model::{Config, Seen};
use stateright::{Checker, HasDiscoveries, Model};

fn lock(scope: &str, mode: Mode) -> (Scope, Mode) {
    (Scope::parse(scope).expect("a scope"), mode)
}

fn names() -> Config {
    use Mode::Exclusive;
    Config {
        locks: vec![vec![lock("job", Exclusive)], vec![lock("job", Exclusive)]],
        ttl: num("TTL", 2),
        ttl_raised: None,
        wait: num("WAIT", 1),
        reclaim_window: num("WINDOW", 0),
        request_ids: num("IDS", 1) == 1,
        late: num("LATE", 0) == 1,
        stops: num("STOPS", 0) == 1,
        crashes: num("CRASHES", 1) == 1,
        writes: num("WRITES", 0) == 1,
        requests_max: num("REQ", 2) as usize,
        seen: Seen::default(),
    }
}

fn search(config: Config) -> usize {
    let peek: usize = std::env::var("PEEK").map_or(usize::MAX, |t| t.parse().unwrap());
    let checker = config
        .checker()
        .threads(2)
        .target_state_count(peek)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs();
    let checker = checker.join();
    println!(
        "{} states, {} unique, depth {}",
        checker.state_count(),
        checker.unique_state_count(),
        checker.max_depth()
    );
    println!("{:?}", checker.model().seen);
    checker.assert_properties();
    checker.unique_state_count()
}

#[test]
fn names_test() {
    search(names());
}

fn num(n: &str, d: u32) -> u32 {
    std::env::var(n).map_or(d, |t| t.parse().unwrap())
}

#[test]
fn walk() {
    let c = names();
    let mut x: u64 = 12345;
    let mut hist = std::collections::BTreeMap::<String, usize>::new();
    for _ in 0..300 {
        let mut w = c.init_states().remove(0);
        for _ in 0..60 {
            let mut a = Vec::new();
            c.actions(&w, &mut a);
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let i = (x >> 33) as usize % a.len();
            w = c.next_state(&w, a[i]).unwrap();
        }
        let kinds: Vec<String> = w
            .packets
            .iter()
            .map(|p| format!("{:?}", p.packet).split(' ').next().unwrap().to_string())
            .collect();
        *hist
            .entry(format!("{kinds:?} calls {} held {}", w.calls.len(), w.server.0.view.held.len()))
            .or_default() += 1;
    }
    let mut h: Vec<_> = hist.into_iter().map(|(k, v)| (v, k)).collect();
    h.sort();
    for (v, k) in h.iter().rev().take(40) {
        println!("{v} {k}");
    }
}

#[test]
fn levels() {
    use std::hash::{Hash, Hasher};
    let c = names();
    let mut seen = std::collections::HashSet::new();
    let mut level = c.init_states();
    let fp = |w: &world::World| {
        let mut h = std::collections::hash_map::DefaultHasher::new();
        w.hash(&mut h);
        h.finish()
    };
    let mut d = 0;
    while !level.is_empty() && seen.len() < 3_000_000 {
        let mut next = Vec::new();
        for w in &level {
            let mut a = Vec::new();
            c.actions(w, &mut a);
            for a in a {
                let n = c.next_state(w, a).unwrap();
                if seen.insert(fp(&n)) {
                    next.push(n);
                }
            }
        }
        d += 1;
        println!("{d} {} {}", next.len(), seen.len());
        if d % 10 == 0 {
            println!("{:?}", next.get(next.len() / 2));
        }
        level = next;
    }
}
