//! Everything that must hold before a change is merged. It only reads.

use std::path::Path;
use std::process::Stdio;

use anyhow::Result;

use crate::Chore;
use crate::cargo::{cargo, run};
use crate::{console, docs, needs, sdk, test, tidy};

pub(crate) const CHORE: Chore = Chore {
    name: "check",
    args: "",
    about: "Format, tidy, clippy, tests and docs; changes no file of the repository",
    help: "Runs, and stops at the first that fails:
  format    cargo fmt --check
  tidy      the rules of the repository itself: see `cargo xtask tidy --help`
  types     those in the comments of the console's scripts, only where npm is installed
  clippy    over all targets, warnings are errors
  tests     cargo test --workspace, after installing what it needs: see `cargo xtask needs --help`
  sdk       those in other languages than Rust: see `cargo xtask sdk --help`
  pages     the runnable blocks of the documentation: see `cargo xtask docs --help`
  docs      cargo doc, warnings are errors
  deny      licences and sources of the dependencies, only where cargo-deny is installed

Cargo.lock must be up to date: nothing is resolved anew.",
    run: |root, _| check(root),
};

fn check(root: &Path) -> Result<()> {
    // First, though only the tests want it: what cannot be installed should not cost a build to find out.
    needs::install()?;
    run(&mut cargo(root, &["fmt", "--all", "--check"]))?;
    tidy::tidy(root)?;
    console::types(root)?;
    clippy(root)?;
    test::test(root, &["--locked".into()])?;
    sdk::check(root)?;
    docs::run_pages(root, &test::server(root), &[])?;
    api_docs(root)?;
    deny(root)
}

fn clippy(root: &Path) -> Result<()> {
    let args = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    run(&mut cargo(root, &args))
}

fn api_docs(root: &Path) -> Result<()> {
    let mut command = cargo(root, &["doc", "--locked", "--workspace", "--no-deps"]);
    run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// A machine with nothing but the toolchain must pass, so this is skipped where the tool is missing.
fn deny(root: &Path) -> Result<()> {
    let mut probe = cargo(root, &["deny", "--version"]);
    let found = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        eprintln!("cargo-deny is not installed: licences and sources were not checked");
        return Ok(());
    }
    run(&mut cargo(root, &["deny", "check", "licenses", "bans", "sources"]))
}
