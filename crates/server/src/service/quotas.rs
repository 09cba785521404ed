//! Quotas of the server itself: watches, and requests a second. Those of locks are counted by the core.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use leasehold_api::Code;
use leasehold_core::{Namespace, Principal, Timestamp};
use parking_lot::Mutex;

use super::caller::Caller;
use super::problems::Failure;
use crate::net::limits::{ConnectionLimiter, ConnectionPermit, Full};
use crate::quota::QuotaConfig;

/// So many principals have a rate remembered; with more, all rates begin anew.
const RATES_MAX: usize = 20_000;

/// The counts of principals and namespaces outside the core. Nothing is counted while authentication is off.
#[derive(Debug)]
pub(crate) struct ServerQuotas {
    config: QuotaConfig,
    by_principal: Arc<ConnectionLimiter<Principal>>,
    by_namespace: Arc<ConnectionLimiter<Namespace>>,
    rates: Mutex<HashMap<Principal, Arc<Rate>>>,
}

/// The place of one watch among those of its principal and its namespace.
#[derive(Debug)]
#[expect(dead_code, reason = "held, never read")]
pub(crate) struct WatchPermit(ConnectionPermit<Principal>, ConnectionPermit<Namespace>);

impl ServerQuotas {
    pub(crate) fn new(config: QuotaConfig) -> ServerQuotas {
        ServerQuotas {
            config,
            by_principal: ConnectionLimiter::new(usize::MAX, config.watches_per_principal),
            by_namespace: ConnectionLimiter::new(usize::MAX, config.watches_per_namespace),
            rates: Mutex::default(),
        }
    }

    /// A place for one watch more; none is needed without credentials.
    pub(crate) fn watch(
        &self,
        caller: &Caller,
        namespace: &Namespace,
    ) -> Result<Option<WatchPermit>, Failure> {
        let Some(rights) = &caller.rights else { return Ok(None) };
        let max = rights.quota().watches.map(|max| usize::try_from(max).unwrap_or(usize::MAX));
        let max = max.unwrap_or(self.config.watches_per_principal);
        let principal = self.by_principal.enter_up_to(Some(caller.principal.clone()), max);
        let principal = principal.map_err(|full| exceeded("watches", "principal", full))?;
        let max = self.config.watches_per_namespace;
        let namespace = self.by_namespace.enter_up_to(Some(namespace.clone()), max);
        let namespace = namespace.map_err(|full| exceeded("watches", "namespace", full))?;
        Ok(Some(WatchPermit(principal, namespace)))
    }

    /// Counts one request of a principal. Off unless it is set.
    pub(crate) fn count_request(&self, now: Timestamp, caller: &Caller) -> Result<(), Failure> {
        let QuotaConfig { requests_per_second, requests_burst, .. } = self.config;
        if requests_per_second == 0 || caller.rights.is_none() {
            return Ok(());
        }
        let rate = {
            let mut rates = self.rates.lock();
            if rates.len() >= RATES_MAX && !rates.contains_key(&caller.principal) {
                rates.clear();
            }
            rates.entry(caller.principal.clone()).or_default().clone()
        };
        rate.take(now, requests_per_second, requests_burst).map_err(|after| {
            let said = format!(
                "the principal may send {requests_per_second} requests a second and no more"
            );
            Failure::new(Code::RateLimited, said).retried_after(after)
        })
    }
}

fn exceeded(quota: &'static str, of: &'static str, full: Full) -> Failure {
    let (Full::InAll(max) | Full::OfPeer(max)) = full;
    let said = format!("the {of} may have {max} {quota} and no more");
    let failure = Failure::new(Code::QuotaExceeded, said).retried_soon();
    failure.with_quota(quota, of, max as u64)
}

/// A rate, as the moment at which all that was sent would have been due had it come evenly spread (GCRA), in nanoseconds.
#[derive(Debug, Default)]
struct Rate(AtomicU64);

impl Rate {
    /// Takes one; or how long to wait for it.
    fn take(&self, now: Timestamp, per_second: u32, burst: u32) -> Result<(), Duration> {
        let now = now.as_millis().saturating_mul(1_000_000);
        let each = 1_000_000_000 / u64::from(per_second.max(1));
        let ahead_max = each.saturating_mul(u64::from(burst.max(1)));
        let step = |due: u64| {
            let next = due.max(now) + each;
            (next - now <= ahead_max).then_some(next)
        };
        match self.0.fetch_update(Relaxed, Relaxed, step) {
            Ok(_) => Ok(()),
            Err(due) => Err(Duration::from_nanos(due.max(now) + each - now - ahead_max)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + ms)
    }

    #[test]
    fn burst_is_let_through_and_then_the_rate() {
        let rate = Rate::default();
        let taken =
            |ms, times: usize| (0..times).filter(|_| rate.take(at(ms), 100, 20).is_ok()).count();
        assert_eq!(taken(0, 50), 20);
        assert_eq!(taken(10, 50), 1);
        assert_eq!(taken(1_010, 500), 20, "no more than a burst is saved up");
        let wait = rate.take(at(1_010), 100, 20).unwrap_err();
        assert_eq!(wait, Duration::from_millis(10));
        assert_eq!(taken(1_020, 5), 1);
    }
}
