//! Runs the tests of all crates.

use std::path::{Path, PathBuf};

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
    // The server that the tests start is built along with them. Built by itself it would want its dependencies with other
    // features, and most of them a second time.
    run(&mut cargo(root, &["test", "--locked", "--workspace", "--no-run"]))?;
    run(cargo(root, &["test", "--workspace"]).args(args).env("LEASEHOLD_BIN", server(root)))
}

/// The binary that a build leaves in the target folder.
pub(crate) fn server(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    target.join("debug").join(format!("leasehold{}", std::env::consts::EXE_SUFFIX))
}
