//! `leasehold fence`

use leasehold_api::{DeleteFenceRequest, RegisterPage};

use super::Answered;
use crate::args::{FenceCommand, Format};
use crate::asking::Server;
use crate::failure::Failure;
use crate::output::shown;

const PAGE_SIZE: u64 = 500;

pub(crate) async fn run(server: &Server, command: &FenceCommand) -> Answered {
    let api = server.client.api();
    match command {
        // A stale token is a refusal: exit code 1.
        FenceCommand::Accept(args) => {
            let accepted = server.ask(api.accept_fence(&args.name, args.fencing_token)).await?;
            server.out.answer(&accepted, |_| {
                format!("accepted; the mark is at {}\n", accepted.high_water)
            });
        }
        FenceCommand::Get(args) => {
            let register = server.ask(api.get_fence(&args.name)).await?;
            server.out.answer(&register, |_| {
                format!("{} has seen {}\n", shown(&register.name), register.high_water)
            });
        }
        FenceCommand::List => list(server).await?,
        FenceCommand::Delete(args) => {
            let request = DeleteFenceRequest { reason: args.reason.clone() };
            let deleted = server.ask(api.delete_fence(&args.name, &request)).await?;
            server.out.answer(&deleted, |_| {
                let name = shown(&deleted.name);
                format!("{name} is deleted; it had seen {}\n", deleted.high_water)
            });
        }
    }
    Ok(0)
}

async fn list(server: &Server) -> Result<(), Failure> {
    let mut whole = RegisterPage { fences: Vec::new(), next_page_token: None };
    loop {
        let token = whole.next_page_token.take();
        let api = server.client.api();
        let page = server.ask(api.list_fences(Some(PAGE_SIZE), token.as_deref())).await?;
        whole.fences.extend(page.fences);
        whole.next_page_token = page.next_page_token;
        if whole.next_page_token.is_none() {
            break;
        }
    }
    if server.out.format == Format::Jsonl {
        whole.fences.iter().for_each(|register| server.out.json_line(register));
    } else if server.out.is_json() {
        server.out.json(&whole);
    } else if whole.fences.is_empty() {
        server.out.say("no fence registers");
    } else {
        let rows: Vec<Vec<String>> = whole
            .fences
            .iter()
            .map(|register| vec![shown(&register.name), register.high_water.to_string()])
            .collect();
        server.out.text(&server.out.table(&["REGISTER", "HIGH WATER"], &rows));
    }
    Ok(())
}
