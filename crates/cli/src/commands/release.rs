//! `leasehold release`

use leasehold_api::ReleaseRequest;

use super::{Answered, default_owner};
use crate::args::Release;
use crate::asking::Server;
use crate::output::{short, shown};

pub(crate) async fn run(server: &Server, args: &Release) -> Answered {
    let request = ReleaseRequest {
        owner_id: args.held.owner.clone().unwrap_or_else(default_owner),
        lease_id: args.held.lease.clone(),
        fencing_token: args.held.token,
    };
    let released = server.ask(server.client.api().release(&args.lock, &request)).await?;
    server.out.answer(&released, |_| {
        format!("{} is released after {}\n", shown(&args.lock), short(released.held_ms))
    });
    Ok(0)
}
