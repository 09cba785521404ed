//! `leasehold watch`

use leasehold_api::{Event, News};

use super::views::mode;
use super::{Answered, webhook};
use crate::args::Watch;
use crate::asking::Server;
use crate::failure::Failure;
use crate::output::{Output, Style, short, shown};

pub(crate) async fn run(server: &Server, args: &Watch) -> Answered {
    if let Some(to) = &args.webhook.post {
        return webhook::run(server, args, &args.webhook, to).await;
    }
    let mut watch = server.client.watch(&args.prefix, args.after).await.map_err(Failure::from)?;
    while let Some(event) = watch.next().await {
        let event = event.map_err(Failure::from)?;
        if server.out.is_json() {
            server.out.json_line(&event);
        } else {
            server.out.line(&told(&server.out, &event));
        }
    }
    Ok(0)
}

fn told(out: &Output, event: &Event) -> String {
    let head = out.styled(Style::Faint, &format!("{} {:>8}", event.at, event.revision));
    format!("{head}  {}", news(&event.news))
}

fn news(news: &News) -> String {
    match news {
        News::EpochBegan { epoch } => format!("epoch {epoch} begins"),
        News::GraceEnded => "the recovery grace is over".into(),
        News::SessionOpened { session, owner_id, adapter } => {
            format!("session {session} of {} opened over {}", shown(owner_id), shown(adapter))
        }
        News::SessionEnded { session, owner_id, reason } => {
            format!("session {session} of {} ended: {}", shown(owner_id), shown(reason))
        }
        News::Granted { lock, owner_id, mode: held, permits, fencing_token, ttl_ms } => format!(
            "{} granted to {}, {}, token {fencing_token}, for {}",
            shown(lock),
            shown(owner_id),
            mode(*held, *permits),
            short(*ttl_ms)
        ),
        News::Ended { lock, owner_id, fencing_token, reason, note, .. } => {
            let note =
                note.as_deref().map(|note| format!(" ({})", shown(note))).unwrap_or_default();
            format!(
                "{} of {}, token {fencing_token}, ended: {}{note}",
                shown(lock),
                shown(owner_id),
                shown(reason)
            )
        }
        News::TtlChanged { owner_id, ttl_ms } => {
            format!("a lease of {} is {} long from here on", shown(owner_id), short(*ttl_ms))
        }
        News::FenceAccepted { register, fencing_token } => {
            format!("register {} has seen {fencing_token}", shown(register))
        }
        News::FenceDeleted { register, note } => {
            format!("register {} deleted ({})", shown(register), shown(note))
        }
        News::Queued { locks, owner_id } => {
            format!("{} waits for {}", shown(owner_id), shown(&locks.join(", ")))
        }
        News::Left { locks, owner_id } => {
            format!("{} no longer waits for {}", shown(owner_id), shown(&locks.join(", ")))
        }
        News::Deadlock { owner_id, cycle } => {
            let circle: Vec<String> = cycle.iter().map(|step| shown(&step.waiter)).collect();
            format!(
                "deadlock refused: {} would have closed the cycle {}",
                shown(owner_id),
                circle.join(" -> ")
            )
        }
        News::Bookmark => "nothing new".into(),
        News::Resync => "events were missed here: list the locks again".into(),
    }
}
