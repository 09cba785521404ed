//! `leasehold release`

use leasehold_api::ReleaseRequest;
use leasehold_client::Transport;

use super::{Answered, default_owner};
use crate::args::{Global, Release};
use crate::asking::Server;
use crate::held;
use crate::output::{short, shown};

pub(crate) async fn run(global: &Global, args: &Release) -> Answered {
    let (locks, lease_id) = (held::locks(args.lock.as_deref())?, held::lease_id()?);
    let server = Server::connect(global, Transport::Http).await?;
    let [lock] = locks.as_slice() else {
        let closed = server.ask(server.client.api().close_session(&lease_id)).await?;
        server.out.answer(&closed, |_| format!("{} are released\n", shown(&locks.join(" "))));
        return Ok(0);
    };
    let request = ReleaseRequest {
        owner_id: args.held.owner.clone().unwrap_or_else(default_owner),
        lease_id,
        fencing_token: args.held.fencing_token,
    };
    let released = server.ask(server.client.api().release(lock, &request)).await?;
    server.out.answer(&released, |_| {
        let done = if released.replayed { "was released before," } else { "is released" };
        format!("{} {done} after {}\n", shown(lock), short(released.held_ms))
    });
    Ok(0)
}
