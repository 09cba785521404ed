//! `leasehold elect`

mod board;

use leasehold_api::Metadata;
use leasehold_client::Lease;

use self::board::Board;
use super::Answered;
use super::run::{Done, Got, Work, by_signal};
use crate::args::{Elect, shell};
use crate::asking::Server;
use crate::failure::{EXIT_LOST, Failure};
use crate::supervise::Signals;

/// The key of the metadata that observers of elections read.
const VALUE: &str = "value";

pub(crate) async fn run(server: &Server, signals: &Signals, args: &Elect) -> Answered {
    let work = Work::of(server, signals, &args.supervision, vec![args.name.clone()]);
    let name = args.advertise.as_deref().unwrap_or(work.owner());
    let board = Board::new(server.client.election(&args.name), name);
    if let Some(address) = args.serve {
        board.serve(address).await?;
    }
    loop {
        let lease = match work.acquire(server.client.lock(&args.name), metadata(args)).await? {
            Got::Lease(lease) => lease,
            Got::Signal(signal) => return Ok(by_signal(signal)),
        };
        server.out.say(&format!("leasehold: elected, token {}", lease.fencing_token()));
        board.elected(lease.handle().clone());
        let done = lead(&work, args, &lease).await;
        board.over();
        if let Some(line) = &args.on_loss {
            let cleaned = work.clean_up(&lease, &shell(line)).await;
            if !matches!(cleaned, Ok(Done::Exited(0))) {
                server.out.say("leasehold: the command of --on-loss failed");
            }
        }
        work.give_back(*lease).await;
        match done? {
            Done::Exited(code) => return Ok(code),
            Done::Lost(why) if args.what.words().is_none() => {
                return Err(Failure::new(EXIT_LOST, format!("no longer elected: {why}")));
            }
            Done::Lost(why) => {
                server.out.say(&format!("leasehold: no longer elected: {why}; standing again"));
            }
        }
    }
}

/// The work that is done while this process leads.
async fn lead(work: &Work<'_>, args: &Elect, lease: &Lease) -> Result<Done, Failure> {
    if let Some(line) = &args.on_gain {
        match work.supervise(lease, &shell(line)).await? {
            Done::Exited(0) => {}
            failed @ (Done::Exited(_) | Done::Lost(_)) => return Ok(failed),
        }
    }
    match args.what.words() {
        Some(command) => work.supervise(lease, &command).await,
        None => Ok(work.hold(lease).await),
    }
}

fn metadata(args: &Elect) -> Option<Metadata> {
    let mut metadata = args.supervision.metadata.clone().unwrap_or_default();
    if let Some(advertise) = &args.advertise {
        metadata.insert(VALUE.into(), advertise.clone().into());
    }
    (!metadata.is_empty()).then_some(metadata)
}
