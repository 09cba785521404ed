//! `leasehold check`

use leasehold_api::{CheckRequest, Checked, Gone};
use leasehold_client::Transport;

use super::Answered;
use crate::args::{Check, Global};
use crate::asking::Server;
use crate::failure::EXIT_NO;
use crate::held;
use crate::output::{short, shown};

pub(crate) async fn run(global: &Global, args: &Check) -> Answered {
    let request = CheckRequest { fencing_token: args.fencing_token, ..CheckRequest::default() };
    let locks = held::locks(args.lock.as_deref())?;
    let server = Server::connect(global, Transport::Http).await?;
    let mut all = Vec::new();
    for lock in locks {
        all.push(server.ask(server.client.api().check(&lock, &request)).await?);
    }
    match all.as_slice() {
        [checked] => server.out.answer(checked, |_| told(checked)),
        _ => server.out.answer(&all, |_| all.iter().map(told).collect()),
    }
    Ok(if all.iter().all(|checked| checked.valid) { 0 } else { EXIT_NO })
}

fn told(checked: &Checked) -> String {
    let (token, lock) = (checked.fencing_token, shown(&checked.lock));
    match &checked.holder {
        Some(holder) if checked.valid => format!(
            "token {token} holds {lock} as {} for another {}\n",
            shown(&holder.owner_id),
            short(holder.expires_in_ms)
        ),
        Some(_) | None => format!("token {token} does not hold {lock}{}\n", why(checked.reason)),
    }
}

fn why(reason: Option<Gone>) -> &'static str {
    match reason {
        None | Some(Gone::Unknown) => "",
        Some(Gone::Expired) => ": its lease has expired",
        Some(Gone::Released) => ": it was released",
        Some(Gone::OtherScope) => ": it belongs to another lock",
        Some(Gone::Superseded) => ": the lock has been granted with a later token",
    }
}
