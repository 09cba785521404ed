//! The SDKs in other languages than Rust: whether they are in order by the tools of their language.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use crate::Chore;
use crate::cargo::run;
use crate::needs;

pub(crate) const CHORE: Chore = Chore {
    name: "sdk",
    args: "",
    about: "Lint, type-check, test and build the SDKs in other languages",
    help: "Python: ruff, mypy --strict, pyright, pytest (vectors, units, Celery and APScheduler), and the wheel. The tools are installed
first: see `cargo xtask needs --help`. How the SDKs fare with a real server is a test of leasehold-e2e,
`cargo test -p leasehold-e2e --test sdks`, which is a part of `cargo xtask test`.",
    run: |root, _| {
        needs::install()?;
        check(root)
    },
};

pub(crate) fn check(root: &Path) -> Result<()> {
    python(root)
}

/// Nothing is written into the repository: caches lie with what is built.
fn python(root: &Path) -> Result<()> {
    let tools = needs::tools_folder()?;
    let (sdk, programs) = (root.join("sdk/python"), tools.join("python/bin"));
    let python = programs.join("python");
    let call = |program: &str, args: &[&str]| {
        let mut command = Command::new(programs.join(program));
        command.args(args).current_dir(&sdk).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    run(&mut call("ruff", &["check", "--no-cache", "--quiet"]))?;
    run(&mut call("ruff", &["format", "--no-cache", "--quiet", "--check"]))?;
    run(call("mypy", &["--no-error-summary", "--cache-dir"]).arg(tools.join("mypy-cache")))?;
    let mut pyright = Command::new(tools.join("npm/node_modules/.bin/pyright"));
    run(pyright.arg("--pythonpath").arg(&python).current_dir(&sdk))?;
    run(&mut call("python", &["-m", "pytest", "-q", "-p", "no:cacheprovider"]))?;
    wheel(&tools.join("wheel"), call("python", &["-m", "hatchling", "build", "-t", "wheel", "-d"]))
}

/// One wheel for all platforms, with its types.
fn wheel(folder: &Path, mut build: Command) -> Result<()> {
    let _ = std::fs::remove_dir_all(folder);
    run(build.arg(folder))?;
    let files = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let wheels: Vec<_> = files.collect::<Result<_>>()?;
    ensure!(wheels.len() == 1, "there are {} wheels in place of one", wheels.len());
    let name = wheels[0].to_string_lossy().into_owned();
    let wanted = concat!("leasehold-", env!("CARGO_PKG_VERSION"), "-py3-none-any.whl");
    ensure!(name.ends_with(wanted), "{name} is not {wanted}: of our version, for all platforms");
    let listed = Command::new("python3").args(["-m", "zipfile", "-l", &name]).output()?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    for file in ["leasehold/py.typed", "leasehold/_machine/machine.py"] {
        ensure!(listed.contains(file), "{file} is not in the wheel");
    }
    Ok(())
}
