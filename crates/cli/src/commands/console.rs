//! `leasehold console`

use std::io::IsTerminal;
use std::process::{Command, Stdio};

use leasehold_api::{LoginCode, WhoAmI};
use leasehold_client::Method;

use super::Answered;
use super::auth::{NOTHING, ask};
use crate::asking::Server;

/// The programs that open a page, in the order in which they are tried.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

pub(crate) async fn run(server: &Server) -> Answered {
    let who: WhoAmI = ask(server, Method::GET, "/v1/auth/self", NOTHING).await?;
    let address = server.addresses.split(',').next().unwrap_or_default().trim_end_matches('/');
    let link = match &*who.credential {
        "none" => format!("{address}/"),
        _ => {
            let path = "/v1/auth/exchange";
            let made: LoginCode = ask(server, Method::POST, path, NOTHING).await?;
            // In the fragment: it is in no log, and no other site is told of it.
            format!("{address}/#/login?code={}", made.code)
        }
    };
    server.out.answer(&serde_json::json!({ "url": link }), |_| format!("{link}\n"));
    if std::io::stdout().is_terminal() && !server.out.is_json() {
        open(&link);
    }
    Ok(0)
}

/// Opens the link if something here can; it was printed in any case.
fn open(link: &str) {
    for opener in OPENERS {
        let mut command = Command::new(opener);
        command.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if command.spawn().is_ok() {
            return;
        }
    }
}
