//! One file for each verb.

pub(crate) mod serve;
pub(crate) mod run;
pub(crate) mod elect;
pub(crate) mod acquire;
pub(crate) mod renew;
pub(crate) mod release;
pub(crate) mod unlock;
pub(crate) mod get;
pub(crate) mod test;
pub(crate) mod check;
pub(crate) mod breaking;
pub(crate) mod list;
pub(crate) mod watch;
mod webhook;
pub(crate) mod graph;
pub(crate) mod session;
pub(crate) mod fence;
pub(crate) mod audit;
pub(crate) mod auth;
pub(crate) mod init;
pub(crate) mod login;
pub(crate) mod cert;
pub(crate) mod cluster;
pub(crate) mod console;
pub(crate) mod top;
pub(crate) mod load;
pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod backup;
pub(crate) mod restore;
pub(crate) mod completions;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod version;

mod child_token;
mod scratch;
mod views;
mod waiting;

use std::time::Duration;

use crate::failure::Failure;

/// The exit code of a verb that was carried out.
pub(crate) type Answered = Result<u8, Failure>;

/// Rounded up: nothing is ever shorter than asked.
pub(crate) fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The default owner: `you@host`.
pub(crate) fn default_owner() -> String {
    let given = |name: &&str| std::env::var(name).ok().filter(|user| !user.is_empty());
    let user = ["USER", "LOGNAME"].iter().find_map(given).unwrap_or_else(user_of_process);
    format!("{user}@{}", host())
}

/// The name that /etc/passwd has for the user of this process, or the number.
fn user_of_process() -> String {
    let id = rustix::process::getuid().as_raw().to_string();
    let names = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = names.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number == id && !name.is_empty()).then(|| name.to_string())
    });
    name.unwrap_or_else(|| format!("uid-{id}"))
}

/// One run of a command: nobody else has the same name.
pub(crate) fn process_owner() -> String {
    let random = getrandom::u32().unwrap_or_default();
    format!("{}:{}:{random:08x}", host(), std::process::id())
}

fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_str().unwrap_or("host").into()
}
