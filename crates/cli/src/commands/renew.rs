//! `leasehold renew`

use leasehold_api::{KeepAliveRequest, RenewRequest};
use leasehold_client::Transport;

use super::{Answered, default_owner, millis};
use crate::args::{Global, Renew};
use crate::asking::Server;
use crate::held;
use crate::output::{short, shown};

pub(crate) async fn run(global: &Global, args: &Renew) -> Answered {
    let (locks, lease_id) = (held::locks(args.lock.as_deref())?, held::lease_id()?);
    let server = Server::connect(global, Transport::Http).await?;
    let ttl_ms = args.ttl.map(millis);
    let [lock] = locks.as_slice() else {
        let request = KeepAliveRequest { ttl_ms };
        let kept = server.ask(server.client.api().keep_alive(&lease_id, &request)).await?;
        server.out.answer(&kept, |_| {
            let locks = shown(&locks.join(" "));
            format!("{locks} renewed: lease expires in {}\n", short(kept.expires_in_ms))
        });
        return Ok(0);
    };
    let request = RenewRequest {
        owner_id: args.held.owner.clone().unwrap_or_else(default_owner),
        lease_id,
        fencing_token: args.held.fencing_token,
        ttl_ms,
    };
    let renewed = server.ask(server.client.api().renew(lock, &request)).await?;
    server.out.answer(&renewed, |_| {
        format!(
            "{} renewed: lease expires in {}\n",
            shown(&renewed.lock),
            short(renewed.expires_in_ms)
        )
    });
    Ok(0)
}
