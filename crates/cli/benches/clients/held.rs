//! A server on which many locks are held while others come and go.

use std::ops::Range;
use std::time::Duration;

use leasehold_api::grpc::{
    Command, OpenRequest, StreamAcquire, attach, command::Ask, length, reply::Answer,
};
use leasehold_client::Client;

use crate::link::Link;
use crate::load::Load;
use crate::process::{Folder, cpu_time};
use crate::{WORKERS, sdk, stream};

/// Longer than any measurement: nobody renews.
const TTL: Duration = Duration::from_secs(60 * 60);
/// Below `limits.locks_per_session_max`.
const LOCKS_OF_A_SESSION: usize = 90_000;
const MESSAGE: usize = 1_000;
/// A server is idle if it used no more than a twentieth of a processor for that long.
const IDLE_LOOK: Duration = Duration::from_millis(500);
const IDLE_LOOKS: usize = 60;

/// Pairs through the SDK while so many other locks are held.
pub(crate) async fn pairs(folder: &Folder, held: usize) -> Result<Load, String> {
    let (server, port) = stream::serve(folder, "sqlite").await?;
    let mut sessions = Vec::new();
    for first in (0..held).step_by(LOCKS_OF_A_SESSION) {
        let locks = first..held.min(first + LOCKS_OF_A_SESSION);
        sessions.push(hold(port, locks).await?);
    }
    until_idle(server.id()).await;
    let address = format!("http://127.0.0.1:{port}");
    let client = Client::connect(&address).await.map_err(|error| error.to_string())?;
    sdk::drive(vec![client], server.id(), WORKERS, false).await
}

/// So much that was stored is written together once more in the background, which is not what is measured.
async fn until_idle(server: u32) {
    for _ in 0..IDLE_LOOKS {
        let before = cpu_time(server);
        tokio::time::sleep(IDLE_LOOK).await;
        if cpu_time(server) - before <= IDLE_LOOK / 20 {
            break;
        }
    }
}

/// The locks of these numbers, under a session that lasts as long as its stream.
async fn hold(port: u16, locks: Range<usize>) -> Result<Link, String> {
    let owner_id = format!("holder-{}", locks.start);
    let open = OpenRequest { owner_id, ttl: Some(length(TTL)), ..OpenRequest::default() };
    let mut link = Link::open(port, Some(attach::Session::Open(open))).await?;
    for first in locks.clone().step_by(MESSAGE) {
        let numbers = first..locks.end.min(first + MESSAGE);
        let mut missing = numbers.len();
        link.say(numbers.map(acquire).collect());
        while missing > 0 {
            for reply in link.hear().await?.replies {
                match reply.answer {
                    Some(Answer::Granted(_)) => missing -= 1,
                    other => return Err(format!("unexpected: {other:?}")),
                }
            }
        }
    }
    Ok(link)
}

fn acquire(number: usize) -> Command {
    let lock = format!("held/{number}");
    let acquire = StreamAcquire { lock, ..StreamAcquire::default() };
    Command { id: number as u64, ask: Some(Ask::Acquire(Box::new(acquire))) }
}
