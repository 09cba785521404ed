//! `leasehold renew`

use leasehold_api::RenewRequest;

use super::{Answered, default_owner, millis};
use crate::args::Renew;
use crate::asking::Server;
use crate::output::{short, shown};

pub(crate) async fn run(server: &Server, args: &Renew) -> Answered {
    let request = RenewRequest {
        owner_id: args.held.owner.clone().unwrap_or_else(default_owner),
        lease_id: args.held.lease.clone(),
        fencing_token: args.held.token,
        ttl_ms: args.ttl.map(millis),
    };
    let renewed = server.ask(server.client.api().renew(&args.lock, &request)).await?;
    server.out.answer(&renewed, |_| {
        format!("{} is yours for another {}\n", shown(&renewed.lock), short(renewed.expires_in_ms))
    });
    Ok(0)
}
