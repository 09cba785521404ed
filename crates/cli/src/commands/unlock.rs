//! `leasehold unlock`

use leasehold_api::UnlockRequest;

use super::{Answered, default_owner};
use crate::args::Unlock;
use crate::asking::Server;
use crate::held;
use crate::output::shown;

pub(crate) async fn run(server: &Server, args: &Unlock) -> Answered {
    let request = UnlockRequest {
        owner_id: args.owner.clone().unwrap_or_else(default_owner),
        session_id: args.session.clone().map_or_else(held::lease_id, Ok)?,
    };
    let unlocked = server.ask(server.client.api().unlock(&args.lock, &request)).await?;
    server.out.answer(&unlocked, |_| match unlocked.changed {
        true => format!("{} is unlocked\n", shown(&unlocked.lock)),
        false => format!("{} was not held\n", shown(&unlocked.lock)),
    });
    Ok(0)
}
