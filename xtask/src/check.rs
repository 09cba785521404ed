//! Everything that must hold before a change is merged. It only reads.

use std::path::Path;

use anyhow::Result;

use crate::Chore;
use crate::cargo::{cargo, run};
use crate::{console, deps, docs, needs, sdk, test, tidy};

pub(crate) const CHORE: Chore = Chore {
    name: "check",
    args: "",
    about: "Format, tidy, clippy, tests and docs; changes no file of the repository",
    help: "Runs, and stops at the first that fails:
  format    cargo fmt --check
  deps      licences, sources and known weaknesses of the dependencies: see `cargo xtask deps --help`
  tidy      the rules of the repository itself: see `cargo xtask tidy --help`
  types     those in the comments of the console's scripts, only where npm is installed
  clippy    over all targets, warnings are errors
  tests     cargo test --workspace, after installing what it needs: see `cargo xtask needs --help`
  sdk       those in other languages than Rust: see `cargo xtask sdk --help`
  pages     the runnable blocks of the documentation: see `cargo xtask docs --help`
  docs      cargo doc, warnings are errors

Cargo.lock must be up to date: nothing is resolved anew.",
    run: |root, _| check(root),
};

fn check(root: &Path) -> Result<()> {
    // First, though only the tests want it: what cannot be installed should not cost a build to find out.
    needs::install()?;
    run(&mut cargo(root, &["fmt", "--all", "--check"]))?;
    // A workspace of its own.
    run(&mut cargo(&root.join("fuzz"), &["fmt", "--check"]))?;
    deps::check(root)?;
    tidy::tidy(root)?;
    console::types(root)?;
    clippy(root)?;
    test::test(root, &["--locked".into()])?;
    sdk::check(root)?;
    docs::run_pages(root, &test::server(root), &[])?;
    api_docs(root)
}

fn clippy(root: &Path) -> Result<()> {
    let args = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    run(&mut cargo(root, &args))
}

fn api_docs(root: &Path) -> Result<()> {
    let mut command = cargo(root, &["doc", "--locked", "--workspace", "--no-deps"]);
    run(command.env("RUSTDOCFLAGS", "-D warnings"))
}
