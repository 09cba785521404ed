//! Rewrites what a tool can put right.

use std::path::Path;

use anyhow::Result;

use crate::Chore;
use crate::cargo::{cargo, run};

pub(crate) const CHORE: Chore = Chore {
    name: "fix",
    args: "",
    about: "Let clippy and rustfmt put right what they can",
    help: "Runs cargo clippy --fix and cargo fmt over the whole workspace. Changes that are not
committed yet are no hindrance: look at the difference afterwards.",
    run: |root, _| fix(root),
};

// Clippy first: what it writes is seldom formatted.
fn fix(root: &Path) -> Result<()> {
    let fixes = ["clippy", "--fix", "--allow-dirty", "--allow-staged"];
    run(cargo(root, &fixes).args(["--workspace", "--all-targets"]))?;
    run(&mut cargo(root, &["fmt", "--all"]))?;
    // A workspace of its own.
    run(&mut cargo(&root.join("fuzz"), &["fmt"]))
}
