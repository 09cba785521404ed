//! `leasehold get`

use leasehold_api::{Lock, LockState};

use super::Answered;
use super::views::{HOLDER_HEAD, holder_rows};
use crate::args::Get;
use crate::asking::Server;
use crate::output::{Output, Style, short, shown};

pub(crate) async fn run(server: &Server, args: &Get) -> Answered {
    let lock = server.ask(server.client.api().get(&args.lock)).await?;
    server.out.answer(&lock, |out| told(out, &lock));
    Ok(0)
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
