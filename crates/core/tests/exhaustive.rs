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
        ttl: 2,
        ttl_raised: None,
        wait: 1,
        reclaim_window: 0,
        request_ids: true,
        late: false,
        stops: true,
        crashes: true,
        writes: true,
        requests_max: 2,
        seen: Seen::default(),
    }
}

fn search(config: Config) -> usize {
    let checker = config.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs();
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
