//! `leasehold check`

use leasehold_api::CheckRequest;

use super::Answered;
use crate::args::Check;
use crate::asking::Server;
use crate::failure::EXIT_NO;
use crate::output::{short, shown};

pub(crate) async fn run(server: &Server, args: &Check) -> Answered {
    let request = CheckRequest { fencing_token: args.token, lease_id: args.lease.clone() };
    let checked = server.ask(server.client.api().check(&args.lock, &request)).await?;
    server.out.answer(&checked, |_| match &checked.holder {
        Some(holder) if checked.valid => format!(
            "token {} holds {} as {} for another {}\n",
            checked.fencing_token,
            shown(&checked.lock),
            shown(&holder.owner_id),
            short(holder.expires_in_ms)
        ),
        Some(_) | None => {
            format!("token {} does not hold {}\n", checked.fencing_token, shown(&checked.lock))
        }
    });
    Ok(if checked.valid { 0 } else { EXIT_NO })
}
