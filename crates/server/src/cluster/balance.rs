//! The groups are shared among the servers: whoever leads two more than another lets one go.
//!
//! Only the server that leads most acts, one group at a time, so that nobody has to agree on anything. When it does, those who
//! lead more than the least delay their campaign, so that the least gets it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use leasehold_engine::{Handle, Phase};
use leasehold_store::{Journal, Peer};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::service::app::App;

/// A server that has not moved for so many announcements is gone.
const MISSED_MAX: u32 = 4;
/// A server that has been gone for so many is taken off the list.
const FORGOTTEN_AFTER: u32 = 40;
/// Between two groups that are let go there are so many: the first has to find its new leader.
const PAUSE: u32 = 5;

/// The servers around the store, as this one sees them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Servers {
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// A server on the list.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) server: Peer,
    /// When its count last moved.
    pub(crate) moved: Instant,
}

impl Servers {
    pub(crate) fn all(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// Whether another server is at this address: limits by address are not for it, as it stands for many clients.
    pub(crate) fn are_at(&self, address: IpAddr) -> bool {
        let is_at = |seen: &Seen| host_of(&seen.server.address) == Some(address);
        self.seen.lock().iter().any(is_at)
    }

    /// Takes in the list as it is now.
    fn look(&self, now: Instant, list: Vec<Peer>) {
        let mut seen = self.seen.lock();
        let known: BTreeMap<String, Seen> =
            seen.drain(..).map(|seen| (seen.server.name.clone(), seen)).collect();
        seen.extend(list.into_iter().map(|server| {
            let moved = match known.get(&server.name) {
                Some(seen) if seen.server.count == server.count => seen.moved,
                Some(_) | None => now,
            };
            Seen { server, moved }
        }));
    }
}

/// The address that a server is reached at, if it is one and no name.
fn host_of(url: &str) -> Option<IpAddr> {
    let (_, authority) = url.split_once("://")?;
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Keeps this server on the list, and its share of the groups fair. Ends when `stop` turns true.
pub(crate) async fn keep(
    app: Arc<App>,
    journal: Arc<dyn Journal>,
    mut stop: watch::Receiver<bool>,
) {
    let every = app.config.cluster.leadership_ttl / 3;
    let mut count = 0;
    let mut let_go = Instant::now();
    loop {
        count += 1;
        let (name, address) = (app.name.clone(), app.address.clone());
        let announced = journal.announce(Peer { name, address, count }).await;
        match announced.and(journal.servers().await) {
            Ok(list) => {
                app.servers.look(Instant::now(), list);
                forget_the_gone(&app.servers, &*journal, every).await;
                if balance(&app, every, let_go) {
                    let_go = Instant::now();
                }
            }
            Err(error) => tracing::debug!(error = %error, "the list of servers cannot be read"),
        }
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            _ = stop.wait_for(|stopped| *stopped) => break,
        }
    }
    let _ = journal.forget(app.name.clone()).await;
}

async fn forget_the_gone(servers: &Servers, journal: &dyn Journal, every: Duration) {
    for seen in servers.all() {
        if seen.moved.elapsed() > every * FORGOTTEN_AFTER {
            let _ = journal.forget(seen.server.name).await;
        }
    }
}

/// Whether a group was let go.
fn balance(app: &App, every: Duration, let_go: Instant) -> bool {
    let engines = app.groups.all();
    let mut led: BTreeMap<String, usize> = BTreeMap::new();
    for seen in app.servers.all() {
        if seen.moved.elapsed() < every * MISSED_MAX {
            led.insert(seen.server.name, 0);
        }
    }
    for engine in engines {
        if let Some(count) = leader_of(app, engine).and_then(|leader| led.get_mut(&leader)) {
            *count += 1;
        }
    }
    let share = Share::of(&led, &app.name);
    let delay = if share.delays { every / 2 } else { Duration::ZERO };
    engines.iter().for_each(|engine| engine.delay_campaign(delay));
    if !share.lets_go || let_go.elapsed() < every * PAUSE {
        return false;
    }
    let led_here = engines.iter().rev().find(|engine| engine.status().phase == Phase::Leading);
    if let Some(engine) = led_here {
        tracing::info!("handing a group over: another server leads fewer");
        engine.step_down();
    }
    led_here.is_some()
}

fn leader_of(app: &App, engine: &Handle) -> Option<String> {
    let status = engine.status();
    match status.phase {
        Phase::Leading => Some(app.name.clone()),
        Phase::Starting | Phase::Doubtful | Phase::Following | Phase::Draining | Phase::Stopped => {
            status.leader.map(|leader| leader.name.clone())
        }
    }
}

/// The fair share of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    delays: bool,
    lets_go: bool,
}

impl Share {
    /// By how many groups each server leads.
    fn of(led: &BTreeMap<String, usize>, me: &str) -> Share {
        let mine = led.get(me).copied().unwrap_or(0);
        let least = led.values().copied().min().unwrap_or(0);
        // Of those that lead most the first by name.
        let most = led.iter().max_by(|(a, x), (b, y)| x.cmp(y).then(b.cmp(a)));
        let is_most = most.is_some_and(|(name, _)| name == me);
        Share { delays: mine > least, lets_go: is_most && mine >= least + 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(led: &[(&str, usize)], me: &str) -> (bool, bool) {
        let led = led.iter().map(|(name, count)| ((*name).to_string(), *count)).collect();
        let share = Share::of(&led, me);
        (share.delays, share.lets_go)
    }

    #[test]
    fn server_is_known_by_the_address_that_it_names() {
        for (url, host) in [
            ("http://10.0.0.1:8080", Some("10.0.0.1")),
            ("https://[fd00::1]:8080", Some("fd00::1")),
            ("http://locks-1:8080", None),
            ("10.0.0.1", None),
        ] {
            assert_eq!(host_of(url), host.map(|host| host.parse().unwrap()), "{url}");
        }
    }

    #[test]
    fn whoever_leads_two_more_than_another_lets_one_go() {
        assert_eq!(share(&[("a", 4), ("b", 0)], "a"), (true, true));
        assert_eq!(share(&[("a", 4), ("b", 0)], "b"), (false, false));
        assert_eq!(share(&[("a", 2), ("b", 2), ("c", 0)], "a"), (true, true));
        assert_eq!(share(&[("a", 2), ("b", 2), ("c", 0)], "b"), (true, false), "one at a time");
    }

    #[test]
    fn a_difference_of_one_is_fair() {
        assert_eq!(share(&[("a", 2), ("b", 1), ("c", 1)], "a"), (true, false));
        assert_eq!(share(&[("a", 1), ("b", 0), ("c", 0)], "a"), (true, false));
        assert_eq!(share(&[("a", 3)], "a"), (false, false), "alone it leads all");
    }
}
