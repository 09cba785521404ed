//! Notices that another owner waits for the lock.
//!
//! ```text
//!  stream: the server says so at once, and with each heartbeat it is asked whether nothing was missed
//!  HTTP:   the queue is watched; whatever happens in it is a reason to ask
//! ```

use std::time::Duration;

use leasehold_api::News;

use crate::api::ListQuery;
use crate::client::Transport;
use crate::driver::Order;
use crate::lease::{Change, LeaseHandle};

/// After a watch that could not be had.
const PAUSE: Duration = Duration::from_secs(1);

impl LeaseHandle {
    /// Ends when another owner waits for what this lease holds, or for a part of it: a good moment to release it
    /// early. The waiter may have left again meanwhile. Of a session, it ends when anything under it is wanted.
    ///
    /// ```no_run
    /// # async fn example(lease: leasehold_client::Lease) -> leasehold_client::Result<()> {
    /// tokio::select! {
    ///     () = index_everything() => {}
    ///     () = lease.jeopardy() => {}
    ///     () = lease.wanted() => {} // the rest another time
    /// }
    /// lease.release().await?;
    /// # async fn index_everything() {}
    /// # Ok(()) }
    /// ```
    pub async fn wanted(&self) {
        tokio::select! {
            () = self.view().until_wanted() => {}
            () = self.find_out() => self.view().wanted(),
        }
    }

    async fn find_out(&self) {
        match self.client().shared.transport {
            Transport::Stream => self.ask_with_each_heartbeat().await,
            Transport::Http => self.follow_the_queue().await,
        }
    }

    /// Follows notices of waiters, and asks with each heartbeat: a notice may be lost with its connection, and there is none of earlier waiters.
    async fn ask_with_each_heartbeat(&self) {
        let _ = self.client().order(Order::Listen(self.key()));
        let mut changes = self.changes();
        loop {
            if self.is_waited_for().await {
                return;
            }
            match changes.next().await {
                Change::Renewed(_) => {}
                Change::Jeopardy | Change::Lost(_) => std::future::pending().await,
            }
        }
    }

    async fn follow_the_queue(&self) {
        let prefix = prefix_of_all(self.locks().iter().map(|claim| claim.lock.as_str()));
        loop {
            // Watched before it is looked at, so that no waiter is missed.
            if let Ok(mut watch) = self.client().watch(prefix, None).await {
                let mut is_news = true;
                while is_news {
                    if self.is_waited_for().await {
                        return;
                    }
                    is_news = loop {
                        match watch.next().await {
                            Some(Ok(event))
                                if matches!(event.news, News::Queued { .. } | News::Resync) =>
                            {
                                break true;
                            }
                            Some(Ok(_)) => {}
                            Some(Err(_)) | None => break false,
                        }
                    };
                }
            }
            let clock = &self.client().shared.clock;
            let _ = self.client().sleep_until(clock.now().plus(PAUSE)).await;
        }
    }

    /// Asks the server. No answer is no reason to give anything back.
    async fn is_waited_for(&self) -> bool {
        let api = self.client().api();
        if self.locks().is_empty() {
            let session_id = Some(self.lease_id().to_string());
            let under = api.list(&ListQuery { session_id, ..ListQuery::default() }).await;
            return under.is_ok_and(|page| page.locks.iter().any(|lock| lock.waiters_total > 0));
        }
        for claim in self.locks() {
            if api.get(&claim.lock).await.is_ok_and(|lock| lock.waiters_total > 0) {
                return true;
            }
        }
        false
    }
}

/// Longest common prefix of all names that could conflict with these locks.
fn prefix_of_all<'a>(mut locks: impl Iterator<Item = &'a str>) -> &'a str {
    let Some(first) = locks.next() else { return "" };
    locks.fold(prefix_of(first), |prefix, lock| {
        let lock = prefix_of(lock);
        let same = prefix.char_indices().zip(lock.chars()).find(|((_, one), other)| one != other);
        let end = same.map_or(prefix.len().min(lock.len()), |((at, _), _)| at);
        &prefix[..end]
    })
}

fn prefix_of(lock: &str) -> &str {
    if lock.starts_with("path:") {
        "path:/"
    } else if lock.starts_with("inode:") {
        lock.split_once('@').map_or(lock, |(inode, _)| inode)
    } else {
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_sees_all_that_could_be_in_conflict() {
        let prefix = |locks: &[&'static str]| prefix_of_all(locks.iter().copied());
        assert_eq!(prefix(&["job/x"]), "job/x");
        assert_eq!(prefix(&["job/x", "job/y", "job/xy"]), "job/");
        assert_eq!(prefix(&["path:/srv/a"]), "path:/");
        assert_eq!(prefix(&["inode:42@0..10", "inode:42@20.."]), "inode:42");
        assert_eq!(prefix(&["a", "b"]), "");
        assert_eq!(prefix(&["ä", "å"]), "");
        assert_eq!(prefix(&[]), "");
    }
}
