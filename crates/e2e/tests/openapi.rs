//! The description of the interface and the interface are the same thing: schemathesis reads the one and tries the other.
//!
//! 200 calls an operation, half of them wrong on purpose, always the same ones. No call may end in a server error, in a
//! status or a type that is not described, or in an answer of another shape; and what breaks the schema must be refused.

use std::process::Command;

use anyhow::{Result, bail};
use leasehold_e2e::server::Server;
use leasehold_e2e::tools::{files_of, python_tool};

const SAID_MAX: usize = 6000;

// In two halves, because each is the work of one thread of Python's.
#[tokio::test]
async fn every_answer_about_locks_is_one_that_is_described() -> Result<()> {
    try_out(&["--include-tag", "locks"]).await
}

#[tokio::test]
async fn every_other_answer_is_one_that_is_described() -> Result<()> {
    try_out(&["--exclude-tag", "locks"]).await
}

/// Calls the operations that were chosen on a server of its own.
async fn try_out(which: &[&str]) -> Result<()> {
    let server = Server::start_with(&["--store", "memory"]).await?;
    let scratch = tempfile::tempdir()?;
    let output = Command::new(python_tool("schemathesis")?)
        .arg("--config-file")
        .arg(files_of("schemathesis").join("schemathesis.toml"))
        .args(["run", "--no-color", &format!("http://{}/openapi.json", server.address())])
        .args(which)
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .env("PYTHONPATH", files_of("schemathesis"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(scratch.path())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("{}\n{}", shortened(&said), String::from_utf8_lossy(&output.stderr));
    }
    let tried = said.lines().rev().find(|line| line.contains("generated"));
    println!("{}", tried.unwrap_or_default().trim());
    Ok(())
}

/// Where something is wrong, schemathesis has a lot to say; the beginning tells what, the end how much.
fn shortened(said: &str) -> String {
    let chars: Vec<char> = said.chars().collect();
    if chars.len() <= 2 * SAID_MAX {
        return said.into();
    }
    let (first, last) = (&chars[..SAID_MAX], &chars[chars.len() - SAID_MAX..]);
    format!("{}\n…\n{}", String::from_iter(first), String::from_iter(last))
}
