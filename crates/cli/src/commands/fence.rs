//! `leasehold fence`

use super::Answered;
use crate::args::FenceCommand;
use crate::asking::Server;
use crate::output::shown;

pub(crate) async fn run(server: &Server, command: &FenceCommand) -> Answered {
    match command {
        // A stale token is a refusal: exit code 1.
        FenceCommand::Accept(args) => {
            let api = server.client.api();
            let accepted = server.ask(api.accept_fence(&args.name, args.fencing_token)).await?;
            server.out.answer(&accepted, |_| {
                format!("accepted; the mark is at {}\n", accepted.high_water)
            });
        }
        FenceCommand::Get(args) => {
            let register = server.ask(server.client.api().get_fence(&args.name)).await?;
            server.out.answer(&register, |_| {
                format!("{} has seen {}\n", shown(&register.name), register.high_water)
            });
        }
    }
    Ok(0)
}
