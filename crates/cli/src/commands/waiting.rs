//! The progress line while a lock is waited for: one line on the terminal, kept up to date.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use leasehold_api::{Lock, LockState};

use crate::asking::Server;
use crate::output::{short, shown, talk};

/// Those who get the lock at once see nothing.
const PATIENCE: Duration = Duration::from_millis(300);
const EVERY: Duration = Duration::from_secs(1);

/// Shows who is in the way until it is dropped. On a terminal alone, unless more was asked for.
pub(super) async fn show(server: &Server, locks: &[String], owner: &str) {
    let out = &server.out;
    let is_terminal = std::io::stderr().is_terminal();
    if out.quiet || !(is_terminal || out.verbose) {
        return std::future::pending().await;
    }
    tokio::time::sleep(PATIENCE).await;
    let since = Instant::now();
    let line = Line { is_terminal };
    loop {
        if let Some(text) = in_the_way(server, locks, owner, since.elapsed() + PATIENCE).await {
            line.write(&text);
        }
        if !is_terminal {
            return std::future::pending().await;
        }
        tokio::time::sleep(EVERY).await;
    }
}

/// Wiped when it is no longer needed.
struct Line {
    is_terminal: bool,
}

impl Line {
    fn write(&self, text: &str) {
        if self.is_terminal {
            overwrite(text);
        } else {
            talk(&format!("leasehold: {text}"));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.is_terminal {
            overwrite("");
        }
    }
}

fn overwrite(text: &str) {
    let mut stderr = std::io::stderr();
    let _ = write!(stderr, "\r\u{1b}[K{text}").and_then(|()| stderr.flush());
}

async fn in_the_way(
    server: &Server,
    locks: &[String],
    owner: &str,
    waited: Duration,
) -> Option<String> {
    for lock in locks {
        let lock = server.ask(server.client.api().get(lock)).await.ok()?;
        if lock.state != LockState::Free {
            return Some(told(&lock, owner, waited));
        }
    }
    None
}

fn told(lock: &Lock, owner: &str, waited: Duration) -> String {
    let waited = short(u64::try_from(waited.as_millis()).unwrap_or(u64::MAX));
    let mut text = format!("waiting for {} ({waited})", shown(&lock.lock));
    if let Some(holder) = lock.holders.first() {
        let (who, token) = (shown(&holder.owner_id), holder.fencing_token);
        let left = short(holder.expires_in_ms);
        text += &format!(": held by {who}, token {token}, {left} left");
        if lock.holders_total > 1 {
            text += &format!(" and {} more", lock.holders_total - 1);
        }
    }
    if let Some(place) = lock.waiters.iter().find(|waiter| waiter.owner_id == owner) {
        text += &format!(", place {} of {} in the queue", place.position, lock.waiters_total);
    }
    text
}
