//! `leasehold break`

use leasehold_api::BreakRequest;

use super::Answered;
use crate::args::Break;
use crate::asking::Server;
use crate::failure::EXIT_NO;
use crate::output::shown;

pub(crate) async fn run(server: &Server, args: &Break) -> Answered {
    let request = BreakRequest { reason: args.reason.clone(), fencing_token: args.fencing_token };
    let broken = server.ask(server.client.api().break_lock(&args.lock, &request)).await?;
    server.out.answer(&broken, |_| match broken.broken {
        0 => match args.fencing_token {
            Some(token) => format!("no holder of {} has token {token}\n", shown(&broken.lock)),
            None => format!("{} is not held\n", shown(&broken.lock)),
        },
        1 => format!("{} is broken\n", shown(&broken.lock)),
        many => format!("{} is broken: {many} held it\n", shown(&broken.lock)),
    });
    Ok(if broken.broken == 0 { EXIT_NO } else { 0 })
}
