//! The description of the interface and the interface are the same thing: schemathesis reads the one and tries the other,
//! linters find nothing wrong with it, and clients that others generate from it work.
//!
//! 200 calls an operation, half of them wrong on purpose, always the same ones. No call may end in a server error, in a
//! status or a type that is not described, or in an answer of another shape; and what breaks the schema must be refused.

use std::process::Command;

use anyhow::{Result, bail};
use leasehold_e2e::server::Server;
use leasehold_e2e::tools::{files_of, npm_folder, npm_tool, python_tool};

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

#[tokio::test]
async fn linters_find_no_error() -> Result<()> {
    let server = Server::start_with(&["--store", "memory"]).await?;
    let scratch = tempfile::tempdir()?;
    let rules = files_of("openapi").join("spectral.yaml");
    let mut spectral = Command::new(npm_tool("spectral")?);
    spectral.args(["lint", "--fail-severity", "warn", "--ruleset"]).arg(rules);
    run(spectral.arg(description(&server)).current_dir(scratch.path()))?;
    let mut redocly = Command::new(npm_tool("redocly")?);
    redocly.args(["lint", "--extends", "recommended", "--max-problems", "20"]);
    redocly.env("REDOCLY_TELEMETRY", "off").env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true");
    run(redocly.arg(description(&server)).current_dir(scratch.path()))
}

#[tokio::test]
async fn generated_python_client_works() -> Result<()> {
    let server = Server::start_with(&["--store", "memory"]).await?;
    let scratch = tempfile::tempdir()?;
    let mut generate = Command::new(python_tool("openapi-python-client")?);
    generate.args(["generate", "--fail-on-warning", "--meta", "none", "--config"]);
    generate.arg(files_of("openapi").join("python-client.yaml"));
    generate.args(["--output-path", "generated", "--url", &description(&server)]);
    run(generate.current_dir(scratch.path()))?;
    let mut client = Command::new(python_tool("python")?);
    client.arg(files_of("openapi").join("client.py")).arg(scratch.path());
    run(client.arg(format!("http://{}", server.address())))
}

#[tokio::test]
async fn generated_typescript_types_compile_and_fit() -> Result<()> {
    let server = Server::start_with(&["--store", "memory"]).await?;
    // Below the packages, where their imports are found.
    let scratch = tempfile::tempdir_in(npm_folder()?)?;
    let mut generate = Command::new(npm_tool("openapi-typescript")?);
    generate.args([&description(&server), "--output", "generated.d.ts"]);
    run(generate.current_dir(scratch.path()))?;
    std::fs::copy(files_of("openapi").join("client.mts"), scratch.path().join("client.mts"))?;
    let mut compile = Command::new(npm_tool("tsc")?);
    compile.args(["--strict", "--noUnusedLocals", "--skipLibCheck", "--target", "es2022"]);
    compile.args(["--lib", "es2022,dom", "--module", "nodenext", "client.mts"]);
    run(compile.current_dir(scratch.path()))?;
    let mut client = Command::new("node");
    client.args(["client.mjs", &format!("http://{}", server.address())]);
    run(client.current_dir(scratch.path()))
}

fn description(server: &Server) -> String {
    format!("http://{}/openapi.json", server.address())
}

/// Runs a program of others, and tells what it said if it is not content.
fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    bail!("{command:?}\n{}\n{}", shortened(&said), String::from_utf8_lossy(&output.stderr));
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
