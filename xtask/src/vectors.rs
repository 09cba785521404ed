//! Writes what ports of the SDK are held to.

use std::path::Path;

use anyhow::Result;

use crate::Chore;
use crate::cargo::{cargo, run};

pub(crate) const CHORE: Chore = Chore {
    name: "vectors",
    args: "",
    about: "Write sdk/vectors from the machine of the Rust SDK",
    help: "Rules of the machine, random walks through it, and the tables of names, durations, codes and
problems: what SDKs in other languages must do alike. See sdk/README.md. A test of leasehold-sim
fails when the files are not those of the machine.",
    run: |root, _| vectors(root),
};

fn vectors(root: &Path) -> Result<()> {
    let simulator = ["run", "--quiet", "--package", "leasehold-sim", "--", "--vectors"];
    run(cargo(root, &simulator).arg("sdk/vectors"))
}
