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

use std::sync::atomic::Ordering;

use leasehold_core::{Mode, Scope};
use model::{Config, Seen};
use stateright::{Checker, HasDiscoveries, Model};

/// Two clients that want these locks, one each.
fn world_of(one: (&str, Mode), other: (&str, Mode)) -> Config {
    let lock = |(text, mode)| (Scope::parse(text).expect("a good scope"), mode);
    Config {
        locks: vec![vec![lock(one)], vec![lock(other)]],
        ttl: 1,
        ttl_raised: None,
        wait: 1,
        reclaim_window: 0,
        request_ids: true,
        late: false,
        stops: false,
        crashes: true,
        writes: false,
        requests_max: 2,
        seen: Seen::default(),
    }
}

/// Searches the whole world and says how many states it has.
fn search(name: &str, config: Config) -> usize {
    activate_planted_bug();
    let checker = config.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs();
    let checker = checker.join();
    println!("{name}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
    let seen = &checker.model().seen;
    let happened = [
        ("grants", &seen.grants),
        ("waits", &seen.waits),
        ("wakes", &seen.wakes),
        ("cancels", &seen.cancels),
        ("lapses", &seen.lapses),
        ("recoveries", &seen.recoveries),
        ("renewals", &seen.renewals),
        ("stale renewals", &seen.stale_renewals),
    ];
    for (what, count) in happened {
        assert!(count.load(Ordering::Relaxed) > 0, "{name}: a search without {what} proves little");
    }
    checker.unique_state_count()
}

#[test]
fn two_owners_of_one_name_never_believe_at_once() {
    search("one name", world_of(("job", Mode::Exclusive), ("job", Mode::Exclusive)));
}

#[test]
fn a_path_and_the_subtree_above_it_never_meet() {
    let config = world_of(("path:/a/b", Mode::Exclusive), ("path:/a/**", Mode::Exclusive));
    search("a path and a subtree", Config { requests_max: 1, ..config });
}

#[test]
fn a_stopped_clock_hurts_nobody_who_checks_the_fence() {
    let config = world_of(("job", Mode::Exclusive), ("job", Mode::Exclusive));
    search("a stopped clock", Config { stops: true, writes: true, requests_max: 1, ..config });
}

#[test]
fn a_world_of_over_a_million_states_has_no_way_to_break_a_promise() {
    let config = world_of(("job", Mode::Exclusive), ("job", Mode::Exclusive));
    let states = search("the larger world", Config { stops: true, writes: true, ..config });
    assert!(states >= 1_000_000, "{states} states are not the larger world");
}

/// The bug that `cargo xtask planted` chose for this run.
#[cfg(feature = "planted")]
fn activate_planted_bug() {
    if let Ok(name) = std::env::var("LEASEHOLD_PLANTED") {
        leasehold_core::planted::activate(&name);
    }
}

#[cfg(not(feature = "planted"))]
fn activate_planted_bug() {}
