//! `leasehold get`

use leasehold_api::{Lock, LockState, PastHolder, TokenState, TokenView};

use super::Answered;
use super::views::{HOLDER_HEAD, holder_rows};
use crate::args::Get;
use crate::asking::Server;
use crate::output::{Output, Style, short, shown};

pub(crate) async fn run(server: &Server, args: &Get) -> Answered {
    if let Some(token) = args.fencing_token {
        return grant_of(server, token).await;
    }
    let lock = args.lock.as_deref().unwrap_or_default();
    let lock = server.ask(server.client.api().get(lock)).await?;
    server.out.answer(&lock, |out| told(out, &lock));
    Ok(0)
}

async fn grant_of(server: &Server, token: u64) -> Answered {
    let view = server.ask(server.client.api().get_token(token)).await?;
    server.out.answer(&view, |out| told_of_token(out, &view));
    Ok(0)
}

fn told_of_token(out: &Output, view: &TokenView) -> String {
    let state = match view.state {
        TokenState::Held => "is held",
        TokenState::Recovering => "is recovering",
        TokenState::ReclaimWindow => "is kept for its last owner",
        TokenState::Ended => "has ended",
    };
    let mut text = format!("the grant of token {} {state}\n", view.fencing_token);
    if !view.holders.is_empty() {
        let rows: Vec<Vec<String>> = view.holders.iter().map(holder_rows).collect();
        text += &format!("\n{}", out.table(&HOLDER_HEAD, &rows));
    }
    if !view.ended.is_empty() {
        let rows: Vec<Vec<String>> = view.ended.iter().map(ended_row).collect();
        let head = ["ENDED", "OWNER", "MODE", "HOW", "HELD FOR", "AGO"];
        text += &format!("\n{}", out.table(&head, &rows));
    }
    text
}

fn ended_row(ended: &PastHolder) -> Vec<String> {
    vec![
        shown(&ended.lock),
        shown(&ended.owner_id),
        super::views::mode(ended.mode, ended.permits),
        ended.reason.replace('_', " "),
        short(ended.held_ms),
        short(ended.ended_ms_ago),
    ]
}

fn told(out: &Output, lock: &Lock) -> String {
    let state = super::views::state(lock.state);
    let style = if lock.state == LockState::Free { Style::Good } else { Style::Plain };
    let mut text = format!("{} is {}\n", shown(&lock.lock), out.styled(style, state));
    if !lock.holders.is_empty() {
        let rows: Vec<Vec<String>> = lock.holders.iter().map(holder_rows).collect();
        text += &format!("\n{}", out.table(&HOLDER_HEAD, &rows));
        text += &more(lock.holders_total, lock.holders.len());
        for holder in lock.holders.iter().filter(|holder| !holder.metadata.is_empty()) {
            let metadata = serde_json::Value::from(holder.metadata.clone()).to_string();
            text += &format!("{} says {}\n", shown(&holder.owner_id), shown(&metadata));
        }
    }
    if !lock.waiters.is_empty() {
        let rows: Vec<Vec<String>> = lock
            .waiters
            .iter()
            .map(|waiter| {
                vec![
                    waiter.position.to_string(),
                    shown(&waiter.owner_id),
                    super::views::mode(waiter.mode, waiter.permits),
                    short(waiter.waiting_ms),
                    waiter.gives_up_in_ms.map_or_else(|| "never".into(), short),
                ]
            })
            .collect();
        text += &format!(
            "\n{}",
            out.table(&["PLACE", "WAITER", "MODE", "WAITS", "GIVES UP IN"], &rows)
        );
        text += &more(lock.waiters_total, lock.waiters.len());
    }
    text
}

fn more(total: u64, listed: usize) -> String {
    match total.saturating_sub(listed as u64) {
        0 => String::new(),
        rest => format!("and {rest} more\n"),
    }
}
