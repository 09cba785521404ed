//! `leasehold watch --post`: events to a receiver over HTTP, signed, and tried again until it has them.
//!
//! It stands on the public watch, so it goes on where it was after restarts of the server, of the receiver and, with a file
//! for the cursor, its own. It holds one batch at a time: while the receiver is away the server remembers what happens, as
//! long as its own limit lets it, and what was forgotten meanwhile is told as one event of type `resync`.

mod post;
mod signature;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use leasehold_api::{Cursor, Event};
use leasehold_client::{Error, Watch};
use serde::Serialize;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Answered;
use crate::args::{Watch as Args, Webhook};
use crate::asking::Server;
use crate::failure::{EXIT_CONFIG, EXIT_IO, EXIT_UNREACHABLE, Failure};
use post::{Receiver, Refused};

/// Events in one request at most.
const BATCH_LEN_MAX: usize = 100;
/// Between two tries: doubled each time, and less by chance, so that many senders do not come at once.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(60)];
const SECRET_BYTES_MIN: usize = 16;

/// The body of a request to the receiver.
#[derive(Debug, Serialize)]
struct Delivery<'a> {
    events: &'a [Event],
}

pub(crate) async fn run(server: &Server, args: &Args, hook: &Webhook, to: &str) -> Answered {
    let secret = hook.secret_file.as_deref().map(secret).transpose()?;
    let receiver = Receiver::new(to, hook, secret, server.timeout())?;
    let place = hook.cursor_file.as_deref().map(Place);
    let kept = place.as_ref().map(Place::read).transpose()?.flatten();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut watch = server.client.watch(&args.prefix, kept.or(args.after)).await?;
    loop {
        let (events, end) = tokio::select! {
            batch = next(&mut watch) => batch,
            _ = terminate.recv() => return Ok(0),
        };
        if !events.is_empty() {
            if delivered(server, &receiver, &events, &mut terminate).await?.is_none() {
                return Ok(0);
            }
            let cursor = events.iter().rev().find_map(|event| event.cursor);
            if let (Some(place), Some(cursor)) = (&place, cursor) {
                place.write(cursor)?;
            }
        }
        match end {
            None => {}
            Some(None) => return Ok(0),
            Some(Some(error)) => return Err(error.into()),
        }
    }
}

/// The next event with all that lie ready behind it, and how the watch ended, if it has.
async fn next(watch: &mut Watch) -> (Vec<Event>, Option<Option<Error>>) {
    let mut events = Vec::new();
    let mut came = watch.next().await;
    loop {
        match came {
            Some(Ok(event)) => events.push(event),
            Some(Err(error)) => return (events, Some(Some(error))),
            None => return (events, Some(None)),
        }
        if events.len() == BATCH_LEN_MAX {
            return (events, None);
        }
        match pin!(watch.next()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => came = next,
            Poll::Pending => return (events, None),
        }
    }
}

/// Tries until the receiver has it; `None` if we are to end before that.
async fn delivered(
    server: &Server,
    receiver: &Receiver,
    events: &[Event],
    terminate: &mut Signal,
) -> Result<Option<()>, Failure> {
    let body = serde_json::to_vec(&Delivery { events });
    let body = body.map_err(|error| Failure::new(EXIT_IO, error.to_string()))?;
    let id = format!("{:032x}", random());
    let [mut pause, pause_max] = PAUSES;
    let since = Instant::now();
    loop {
        let refused = tokio::select! {
            posted = receiver.post(&id, &body, now()) => match posted {
                Ok(()) => return Ok(Some(())),
                Err(refused) => refused,
            },
            _ = terminate.recv() => return Ok(None),
        };
        let wait = match &refused {
            Refused { after: Some(after), .. } => (*after).min(pause_max),
            Refused { after: None, .. } => less_by_chance(pause),
        };
        if receiver.give_up.is_some_and(|longest| since.elapsed() + wait > longest) {
            let said = format!("the receiver does not take the events: {}", refused.said);
            let next = "nothing after the cursor that is kept has come to it";
            return Err(Failure::new(EXIT_UNREACHABLE, said).next(next));
        }
        let said =
            format!("not delivered, tried again in {:.1} s: {}", wait.as_secs_f64(), refused.said);
        server.out.say(&format!("leasehold: {said}"));
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = terminate.recv() => return Ok(None),
        }
        pause = (pause * 2).min(pause_max);
    }
}

fn less_by_chance(pause: Duration) -> Duration {
    let part = f64::from(getrandom::u32().unwrap_or(u32::MAX)) / f64::from(u32::MAX);
    pause.mul_f64(0.5 + part / 2.0)
}

fn random() -> u128 {
    let mut bytes = [0; 16];
    // Without randomness ids are equal, which a receiver takes for the same delivery: it then looks at the cursors.
    let _ = getrandom::fill(&mut bytes);
    u128::from_ne_bytes(bytes)
}

/// For the signature, so that a receiver can turn away old ones.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn secret(file: &Path) -> Result<Vec<u8>, Failure> {
    let wrong = |why: String| {
        let said = format!("there is no secret in {}: {why}", file.display());
        Failure::new(EXIT_CONFIG, said).next("`openssl rand -hex 32` makes one")
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let secret = text.trim().as_bytes().to_vec();
    if secret.len() < SECRET_BYTES_MIN {
        return Err(wrong(format!("it has fewer than {SECRET_BYTES_MIN} characters")));
    }
    Ok(secret)
}

/// Where the cursor of the last delivered event is kept.
struct Place<'a>(&'a Path);

impl Place<'_> {
    fn read(&self) -> Result<Option<Cursor>, Failure> {
        let text = match std::fs::read_to_string(self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.fault(&error.to_string())),
        };
        text.trim().parse().map(Some).map_err(|_| self.fault("there is no cursor in it"))
    }

    /// The old one or the new one is there at any time.
    fn write(&self, cursor: Cursor) -> Result<(), Failure> {
        let mut name = self.0.as_os_str().to_os_string();
        name.push(".new");
        let new = PathBuf::from(name);
        let written = std::fs::write(&new, format!("{cursor}\n"));
        let moved = written.and_then(|()| std::fs::rename(&new, self.0));
        moved.map_err(|error| self.fault(&error.to_string()))
    }

    fn fault(&self, why: &str) -> Failure {
        Failure::new(EXIT_IO, format!("the cursor cannot be kept in {}: {why}", self.0.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_at_least_half_of_what_it_says() {
        for _ in 0..100 {
            let pause = less_by_chance(Duration::from_secs(2));
            assert!((1.0..=2.0).contains(&pause.as_secs_f64()), "{pause:?}");
        }
    }
}
