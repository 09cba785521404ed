//! `leasehold test`

use leasehold_api::TestRequest;

use super::{Answered, default_owner};
use crate::args::Test;
use crate::asking::Server;
use crate::failure::EXIT_NO;
use crate::output::{short, shown};

pub(crate) async fn run(server: &Server, args: &Test) -> Answered {
    let request = TestRequest {
        owner_id: args.owner.clone().unwrap_or_else(default_owner),
        mode: args.mode.mode(),
        permits: args.mode.permits,
        session_id: None,
    };
    let tested = server.ask(server.client.api().test(&args.lock, &request)).await?;
    server.out.answer(&tested, |_| match &tested.conflict {
        None if tested.free => format!("{} is free\n", shown(&tested.lock)),
        None => format!("{} is not free: others wait for it\n", shown(&tested.lock)),
        Some(holder) => format!(
            "{} is not free: {} holds {} for another {}\n",
            shown(&tested.lock),
            shown(&holder.owner_id),
            shown(&holder.lock),
            short(holder.expires_in_ms)
        ),
    });
    Ok(if tested.free { 0 } else { EXIT_NO })
}
