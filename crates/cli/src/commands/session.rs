//! `leasehold session`

use leasehold_api::{BreakSessionRequest, KeepAliveRequest, OpenRequest, SessionPage};

use super::{Answered, default_owner, millis};
use crate::args::SessionCommand;
use crate::asking::Server;
use crate::failure::Failure;
use crate::held;
use crate::output::{counted, short, shown};

const HEAD: [&str; 7] = ["NUMBER", "OWNER", "ADAPTER", "LOCKS", "WAITERS", "LEFT", "OPENED"];

pub(crate) async fn run(server: &Server, command: &SessionCommand) -> Answered {
    match command {
        SessionCommand::Open(args) => {
            let request = OpenRequest {
                owner_id: args.owner.clone().unwrap_or_else(default_owner),
                ttl_ms: millis(args.ttl),
                adapter: args.adapter.clone(),
                on_disconnect: args.on_disconnect(),
                disconnect_ttl_ms: args.disconnect_ttl.map(millis),
                request_id: None,
                metadata: args.metadata.clone(),
            };
            let opened = server.ask(server.client.api().open_session(&request)).await?;
            server.out.answer(&opened, |out| {
                out.fields(&[
                    ("session", opened.session_id.clone()),
                    ("owner", shown(&opened.owner_id)),
                    ("for", short(opened.ttl_ms)),
                ])
            });
        }
        SessionCommand::KeepAlive(args) => {
            let request = KeepAliveRequest { ttl_ms: args.ttl.map(millis) };
            let id = id(args.id.as_ref())?;
            let kept = server.ask(server.client.api().keep_alive(&id, &request)).await?;
            server.out.answer(&kept, |_| {
                format!("it stands for another {}\n", short(kept.expires_in_ms))
            });
        }
        SessionCommand::List => list(server).await?,
        SessionCommand::Close(args) => {
            let id = id(args.id.as_ref())?;
            let closed = server.ask(server.client.api().close_session(&id)).await?;
            server.out.answer(&closed, |_| {
                format!("closed; {} released with it\n", counted(closed.released, "lock"))
            });
        }
        SessionCommand::Break(args) => {
            let request = BreakSessionRequest { reason: args.reason.clone() };
            let asked = server.client.api();
            let broken = server.ask(asked.break_session(args.number, &request)).await?;
            server.out.answer(&broken, |_| {
                format!("broken; {} released with it\n", counted(broken.released, "lock"))
            });
        }
    }
    Ok(0)
}

/// The id that was named, or that of the environment or stdin.
fn id(named: Option<&String>) -> Result<String, Failure> {
    named.map_or_else(held::lease_id, |id| Ok(id.clone()))
}

async fn list(server: &Server) -> Result<(), Failure> {
    let mut whole: Option<SessionPage> = None;
    loop {
        let token = whole.as_ref().and_then(|page| page.next_page_token.clone());
        let asked = server.client.api();
        let page = server.ask(asked.list_sessions(None, token.as_deref())).await?;
        match &mut whole {
            None => whole = Some(page),
            Some(whole) => {
                whole.sessions.extend(page.sessions);
                whole.next_page_token = page.next_page_token;
            }
        }
        if whole.as_ref().is_none_or(|page| page.next_page_token.is_none()) {
            break;
        }
    }
    let Some(whole) = whole else { return Ok(()) };
    if server.out.format == crate::args::Format::Jsonl {
        whole.sessions.iter().for_each(|session| server.out.json_line(session));
    } else if server.out.is_json() {
        server.out.json(&whole);
    } else if whole.sessions.is_empty() {
        server.out.say("no session is open");
    } else {
        let rows: Vec<Vec<String>> = whole
            .sessions
            .iter()
            .map(|session| {
                vec![
                    session.session.to_string(),
                    shown(&session.owner_id),
                    shown(&session.adapter),
                    session.locks.to_string(),
                    session.waiters.to_string(),
                    short(session.expires_in_ms),
                    session.opened_at.clone(),
                ]
            })
            .collect();
        server.out.text(&server.out.table(&HEAD, &rows));
    }
    Ok(())
}
