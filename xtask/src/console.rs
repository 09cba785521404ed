//! The console: whether its types hold, and pictures of its pages.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::Chore;
use crate::cargo::{cargo, run};

/// Pinned: what it finds must not change from one day to the next.
const TYPESCRIPT: &str = "typescript@5.9.3";

pub(crate) const SCREENSHOTS: Chore = Chore {
    name: "screenshots",
    args: "",
    about: "Take pictures of every page of the console",
    help: "Starts a server with a few programs at work, looks at every page in light and dark with a real Chromium, and writes
what it sees to docs/images.",
    run: |root, _| screenshots(root),
};

fn screenshots(root: &Path) -> Result<()> {
    crate::needs::install()?;
    let args = ["test", "--package", "leasehold-e2e", "--test", "console"];
    let images = root.join("docs/images");
    std::fs::create_dir_all(&images).context("cannot make docs/images")?;
    let mut command = cargo(root, &args);
    command.args(["every_page_has_its_picture", "--", "--ignored", "--exact", "--nocapture"]);
    run(command.env("LEASEHOLD_SCREENSHOTS", images))
}

/// Checks the types in the comments of the scripts. The compiler is kept with what is built, never in the repository.
pub(crate) fn types(root: &Path) -> Result<()> {
    if !is_there("npm") || !is_there("node") {
        eprintln!("npm is not installed: the types of the console were not checked");
        return Ok(());
    }
    let tools = target(root).join("tools/typescript");
    let compiler = tools.join("node_modules/typescript/bin/tsc");
    if !compiler.is_file() {
        let mut install = Command::new("npm");
        install.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]);
        if run(install.arg(&tools).arg(TYPESCRIPT)).is_err() {
            eprintln!("npm cannot install {TYPESCRIPT}: the types of the console were not checked");
            return Ok(());
        }
    }
    run(Command::new("node").current_dir(root).arg(compiler).args(["--project", "console"]))
}

fn target(root: &Path) -> std::path::PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into)
}

fn is_there(program: &str) -> bool {
    let mut probe = Command::new(program);
    let found = probe.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}
