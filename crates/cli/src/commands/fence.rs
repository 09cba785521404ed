//! `leasehold fence`

use leasehold_api::Code;

use super::Answered;
use crate::args::FenceCommand;
use crate::asking::Server;
use crate::failure::EXIT_NO;
use crate::output::shown;

pub(crate) async fn run(server: &Server, command: &FenceCommand) -> Answered {
    match command {
        FenceCommand::Accept(args) => {
            let asked = server.ask(server.client.api().accept_fence(&args.name, args.token)).await;
            let accepted = match asked {
                Ok(accepted) => accepted,
                Err(refused) => match refused.problem {
                    Some(problem) if problem.code == Code::StaleFence && server.out.is_json() => {
                        server.out.json(&problem);
                        return Ok(EXIT_NO);
                    }
                    problem => return Err(crate::failure::Failure { problem, ..refused }),
                },
            };
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
