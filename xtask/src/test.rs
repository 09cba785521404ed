//! Runs the tests of all crates.

use std::path::Path;

use anyhow::Result;

use crate::Chore;
use crate::cargo::{cargo, run};
use crate::needs;

pub(crate) const CHORE: Chore = Chore {
    name: "test",
    args: "[ARGS]",
    about: "Run the tests of all crates",
    help: "ARGS go to `cargo test --workspace` as they are: a part of a test's name, or `-- --nocapture`.
What the tests need is installed first: see `cargo xtask needs --help`.",
    run: test,
};

pub(crate) fn test(root: &Path, args: &[String]) -> Result<()> {
    needs::install()?;
    run(cargo(root, &["test", "--workspace"]).args(args))
}
