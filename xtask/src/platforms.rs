//! Whether what runs on laptops compiles for them.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::Chore;
use crate::cargo::{cargo, run};

pub(crate) const CHORE: Chore = Chore {
    name: "platforms",
    args: "",
    about: "Compile leasehold-api and leasehold-client for macOS and Windows",
    help: "Runs cargo check for aarch64-apple-darwin and x86_64-pc-windows-gnu, without the feature `tls`, whose C parts want a
compiler for those machines. The standard library of a target is added with rustup where it can be had; where it cannot, a
line says so. docs/operate/platforms.md tells what works where.",
    run: |root, _| check(root),
};

const TARGETS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-pc-windows-gnu"];

pub(crate) fn check(root: &Path) -> Result<()> {
    for target in TARGETS {
        if !is_there(root, target)? {
            eprintln!(
                "the standard library of {target} cannot be had: nothing was compiled for it"
            );
            continue;
        }
        let args =
            ["check", "--locked", "--quiet", "-p", "leasehold-api", "-p", "leasehold-client"];
        run(cargo(root, &args).args(["--no-default-features", "--target", target]))?;
    }
    Ok(())
}

/// Whether the target's standard library is installed, or can be.
fn is_there(root: &Path, target: &str) -> Result<bool> {
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", target]);
    let libraries = rustc.current_dir(root).output()?;
    let folder = String::from_utf8_lossy(&libraries.stdout);
    if libraries.status.success() && Path::new(folder.trim()).is_dir() {
        return Ok(true);
    }
    let mut add = Command::new("rustup");
    add.args(["target", "add", target]).current_dir(root).stdout(Stdio::null());
    Ok(add.stderr(Stdio::null()).status().is_ok_and(|status| status.success()))
}
