//! The locks that this process holds, as `leasehold run` or its caller names them: in the environment, and the lease id on
//! stdin too. A lease id is a secret, and every user of a machine can see the arguments of a process.

use std::io::{BufRead, IsTerminal};

use crate::failure::{EXIT_USAGE, Failure};

pub(crate) const LOCK: &str = "LEASEHOLD_LOCK";
pub(crate) const LOCKS: &str = "LEASEHOLD_LOCKS";
pub(crate) const LEASE_ID: &str = "LEASEHOLD_LEASE_ID";
pub(crate) const FENCING_TOKEN: &str = "LEASEHOLD_FENCING_TOKEN";
pub(crate) const OWNER: &str = "LEASEHOLD_OWNER";

/// The locks that the environment names; none if it names none.
pub(crate) fn locks_of_environment() -> Vec<String> {
    let list = variable(LOCKS).and_then(|list| serde_json::from_str(&list).ok());
    list.unwrap_or_else(|| variable(LOCK).into_iter().collect())
}

/// The lock that was named, or those of the environment. The names of a set with blanks between them, as in
/// `LEASEHOLD_LOCK`, are those of the environment too.
pub(crate) fn locks(named: Option<&str>) -> Result<Vec<String>, Failure> {
    match named {
        Some(named) if variable(LOCK).as_deref() != Some(named) => Ok(vec![named.into()]),
        Some(_) | None => match locks_of_environment() {
            locks if locks.is_empty() => {
                let said = format!("no lock was named, and {LOCKS} is not set");
                Err(Failure::new(EXIT_USAGE, said).next("name the lock"))
            }
            locks => Ok(locks),
        },
    }
}

/// The lease id of the environment, or else the first line of stdin.
pub(crate) fn lease_id() -> Result<String, Failure> {
    if let Some(id) = variable(LEASE_ID) {
        return Ok(id);
    }
    let mut line = String::new();
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        stdin.lock().read_line(&mut line)?;
    }
    match line.trim() {
        "" => Err(Failure::new(EXIT_USAGE, "the lease id is missing").next(format!(
            "set {LEASE_ID} or write it to stdin; it is a secret, so it is not taken from the command line"
        ))),
        id => Ok(id.into()),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
