//! The fencing token that a store which forgets goes on from.
//!
//! Microseconds since 1970 are above every token that was issued before, as long as fewer than a million were issued a
//! second and the clock never goes back. A note in the data directory says how far both have come: a clock behind it
//! would make tokens fall, so the server does not start. Without a data directory the clock is all there is.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold_core::FencingToken;
use tokio::sync::watch;

use crate::server::StartError;

const FILE: &str = "token-seed";
/// The interval at which the note is written.
const NOTE_EVERY: Duration = Duration::from_secs(5);
/// More tokens than are issued between two notes.
const RESERVE: u64 = 2 * 5_000_000;

/// A note of how far clock and tokens have come.
#[derive(Debug)]
pub(crate) struct TokenSeed {
    path: PathBuf,
    first: u64,
    began: Instant,
}

/// The first token above all that were issued, by the clock alone.
pub(crate) fn by_clock() -> FencingToken {
    fence(clock())
}

fn fence(value: u64) -> FencingToken {
    FencingToken::new(value).unwrap_or(FencingToken::MAX)
}

fn clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl TokenSeed {
    /// Reads the note of the last start and makes a new one.
    pub(crate) fn open(data: &Path) -> Result<TokenSeed, StartError> {
        let path = data.join(FILE);
        let fault = |source| StartError::TokenSeed { path: data.join(FILE), source };
        std::fs::create_dir_all(data).map_err(fault)?;
        let now = clock();
        let first = match std::fs::read_to_string(&path) {
            Ok(text) => {
                let (noted, token) = parse(&text).map_err(fault)?;
                if now < noted {
                    let behind = Duration::from_secs((noted - now).div_ceil(1_000_000));
                    return Err(StartError::ClockBehind { path, behind });
                }
                now.max(token.saturating_add(RESERVE))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => now,
            Err(error) => return Err(fault(error)),
        };
        let seed = TokenSeed { path, first, began: Instant::now() };
        seed.note().map_err(fault)?;
        Ok(seed)
    }

    pub(crate) fn first(&self) -> FencingToken {
        fence(self.first)
    }

    /// Keeps the note up to date until the server stops.
    pub(crate) async fn keep(self, mut stopped: watch::Receiver<bool>) {
        loop {
            let stops = tokio::time::timeout(NOTE_EVERY, stopped.wait_for(|stopped| *stopped));
            let is_over = stops.await.is_ok();
            if let Err(error) = self.note() {
                tracing::warn!(error = %error, path = %self.path.display(), "cannot note the clock");
            }
            if is_over {
                return;
            }
        }
    }

    /// Replaces the note as a whole: a torn one would keep the server from starting.
    fn note(&self) -> io::Result<()> {
        let issued = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let text = format!("{} {}\n", clock(), self.first.saturating_add(issued));
        let written = self.path.with_extension("new");
        std::fs::write(&written, text)?;
        std::fs::File::open(&written)?.sync_all()?;
        std::fs::rename(&written, &self.path)
    }
}

fn parse(text: &str) -> io::Result<(u64, u64)> {
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(clock)), Some(Ok(token))) => Ok((clock, token)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it does not hold two numbers")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_rise_over_restarts_and_a_clock_that_went_back_is_refused() {
        let data = tempfile::tempdir().unwrap();
        let first = TokenSeed::open(data.path()).unwrap().first();
        let second = TokenSeed::open(data.path()).unwrap().first();
        assert!(second.get() >= first.get() + RESERVE, "{first} {second}");
        let noted = clock() + 3_600_000_000;
        std::fs::write(data.path().join(FILE), format!("{noted} {noted}\n")).unwrap();
        let refused = TokenSeed::open(data.path());
        assert!(matches!(refused, Err(StartError::ClockBehind { .. })), "{refused:?}");
        std::fs::write(data.path().join(FILE), "torn").unwrap();
        assert!(matches!(TokenSeed::open(data.path()), Err(StartError::TokenSeed { .. })));
    }
}
