//! The SDK for Python.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use super::{Workshop, first_block, said};
use crate::cargo::run;

/// Stands before what the README begins with, whose types are then checked as strictly as they can be.
const BEFORE: &str = "class Store:
    def write(self, rows: str, token: int) -> None: ...


store, batches = Store(), [\"rows\"]
";

pub(super) fn check(at: &Workshop) -> Result<()> {
    let call = |program: &str, args: &[&str]| {
        let mut command = at.program(program);
        command.args(args);
        command
    };
    run(&mut call("ruff", &["check", "--no-cache", "--quiet"]))?;
    run(&mut call("ruff", &["format", "--no-cache", "--quiet", "--check"]))?;
    let cache = at.tools.join("mypy-cache");
    run(call("mypy", &["--no-error-summary", "--cache-dir"]).arg(&cache))?;
    let mut pyright = call("node", &[]);
    pyright.arg(at.tools.join("npm/node_modules/pyright/index.js")).arg("--pythonpath");
    run(pyright.arg(at.tools.join("python/bin/python")))?;
    run(&mut call("python", &["-m", "pytest", "-q", "-p", "no:cacheprovider"]))?;
    let wheel = wheel(at)?;
    installed(at, &wheel, &cache)
}

/// One wheel for all platforms, with its types.
fn wheel(at: &Workshop) -> Result<PathBuf> {
    let folder = at.empty("wheel")?;
    let mut build = at.program("python");
    run(build.args(["-m", "hatchling", "build", "-t", "wheel", "-d"]).arg(&folder))?;
    let files = fs::read_dir(&folder)?.map(|entry| Ok(entry?.path()));
    let mut wheels: Vec<_> = files.collect::<Result<_>>()?;
    ensure!(wheels.len() == 1, "there are {} wheels in place of one", wheels.len());
    let wheel = wheels.remove(0);
    let wanted = concat!("leasehold-", env!("CARGO_PKG_VERSION"), "-py3-none-any.whl");
    ensure!(wheel.ends_with(wanted), "{} is not {wanted}", wheel.display());
    Ok(wheel)
}

/// The wheel in an environment that has nothing else, for a program that lies elsewhere.
fn installed(at: &Workshop, wheel: &Path, cache: &Path) -> Result<()> {
    let folder = at.empty("wheel-user")?;
    let environment = folder.join("venv");
    run(at.program("python").args(["-m", "venv"]).arg(&environment))?;
    let python = environment.join("bin/python");
    let mut pip = at.program("python");
    pip.args(["-m", "pip", "--disable-pip-version-check", "--python"]).arg(&python);
    run(pip.args(["install", "--quiet", "--no-index"]).arg(wheel))?;
    let mut user = Command::new(&python);
    user.args(["-c", "import leasehold; print(leasehold.__file__)"]).current_dir(&folder);
    let lies = said(&mut user)?;
    ensure!(lies.contains("site-packages/leasehold"), "it is not the wheel that was used: {lies}");
    let program = folder.join("program.py");
    let block = first_block(&at.sdk.join("README.md"), "python")?;
    fs::write(&program, format!("{BEFORE}{block}"))?;
    let mut types = at.program("mypy");
    types.current_dir(&folder).args(["--strict", "--no-error-summary", "--python-executable"]);
    run(types.arg(&python).arg("--cache-dir").arg(cache).arg(&program))
}
