//! `leasehold list`

use leasehold_api::{LockPage, LockSummary};
use leasehold_client::ListQuery;

use super::Answered;
use super::views::{mode, state};
use crate::args::{Format, List};
use crate::asking::Server;
use crate::output::{short, shown};

const PAGE_SIZE: u64 = 500;
const HEAD: [&str; 7] = ["LOCK", "STATE", "OWNER", "MODE", "TOKEN", "LEFT", "WAITERS"];
/// Of the columns, those for a narrow terminal.
const NARROW: [usize; 4] = [0, 2, 4, 5];
const NARROW_BELOW: usize = 80;

pub(crate) async fn run(server: &Server, args: &List) -> Answered {
    let mut rows = Vec::new();
    let mut whole: Option<LockPage> = None;
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut token = None;
    while left > 0 {
        let page = page(server, args, left.min(PAGE_SIZE), token).await?;
        left = left.saturating_sub(page.locks.len() as u64);
        token = page.next_page_token.clone();
        match server.out.format {
            Format::Table => rows.extend(page.locks.iter().flat_map(summary_rows)),
            Format::Jsonl => page.locks.iter().for_each(|lock| server.out.json_line(lock)),
            Format::Json => match &mut whole {
                None => whole = Some(page),
                Some(whole) => {
                    whole.locks.extend(page.locks);
                    whole.next_page_token = page.next_page_token;
                }
            },
        }
        if token.is_none() {
            break;
        }
    }
    if let Some(whole) = whole {
        server.out.json(&whole);
    }
    if server.out.format == Format::Table {
        if rows.is_empty() {
            server.out.say(&none(args));
        } else {
            server.out.text(&table(server, &rows));
        }
        if token.is_some() {
            server.out.say("there are more: raise --limit, or narrow the prefix");
        }
    }
    Ok(0)
}

/// A narrow terminal has room for some of the columns only.
fn table(server: &Server, rows: &[Vec<String>]) -> String {
    if server.out.width().is_none_or(|width| width >= NARROW_BELOW) {
        return server.out.table(&HEAD, rows);
    }
    let picked = |row: &Vec<String>| NARROW.iter().map(|&at| row[at].clone()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(picked).collect();
    server.out.table(&NARROW.map(|at| HEAD[at]), &rows)
}

fn none(args: &List) -> String {
    if args.state.is_some() || args.owner.is_some() {
        return "no held lock matches".into();
    }
    match args.prefix.as_str() {
        "" => "no lock is held".into(),
        prefix => format!("no lock is held whose name begins with {}", shown(prefix)),
    }
}

async fn page(
    server: &Server,
    args: &List,
    size: u64,
    token: Option<String>,
) -> Result<LockPage, crate::failure::Failure> {
    let query = ListQuery {
        prefix: Some(args.prefix.clone()),
        state: args.state.clone(),
        owner_id: args.owner.clone(),
        session_id: None,
        page_size: Some(size),
        page_token: token,
    };
    server.ask(server.client.api().list(&query)).await
}

/// A line for each holder that is told of; the lock's name only on the first.
pub(crate) fn summary_rows(lock: &LockSummary) -> Vec<Vec<String>> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for holder in &lock.holders {
        let is_first = rows.is_empty();
        rows.push(vec![
            if is_first { shown(&lock.lock) } else { String::new() },
            if is_first { state(lock.state).into() } else { String::new() },
            shown(&holder.owner_id),
            mode(holder.mode, holder.permits),
            holder.fencing_token.to_string(),
            short(holder.expires_in_ms),
            if is_first { lock.waiters_total.to_string() } else { String::new() },
        ]);
    }
    rows
}
