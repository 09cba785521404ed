//! `leasehold elect`

use leasehold_api::Metadata;

use super::Answered;
use super::run::{Done, Got, Work, by_signal};
use crate::args::Elect;
use crate::asking::Server;
use crate::supervise::Signals;

/// Where observers of elections look.
const VALUE: &str = "value";

pub(crate) async fn run(server: &Server, signals: &Signals, args: &Elect) -> Answered {
    let work = Work::of(server, signals, &args.supervision, vec![args.name.clone()]);
    loop {
        let lease = match work.acquire(server.client.lock(&args.name), metadata(args)).await? {
            Got::Lease(lease) => lease,
            Got::Signal(signal) => return Ok(by_signal(signal)),
        };
        server.out.say(&format!("leasehold: elected, token {}", lease.fencing_token()));
        match work.run(lease).await? {
            Done::Exited(code) => return Ok(code),
            Done::Lost(why) => {
                server.out.say(&format!("leasehold: no longer elected: {why}; standing again"));
            }
        }
    }
}

fn metadata(args: &Elect) -> Option<Metadata> {
    let mut metadata = args.supervision.metadata.clone().unwrap_or_default();
    if let Some(advertise) = &args.advertise {
        metadata.insert(VALUE.into(), advertise.clone().into());
    }
    (!metadata.is_empty()).then_some(metadata)
}
