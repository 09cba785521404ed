//! The SDK for Go.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use super::{Workshop, first_block, said};
use crate::cargo::run;

pub(super) fn check(at: &Workshop) -> Result<()> {
    let unformatted = said(at.program("gofmt").args(["-l", "."]))?;
    ensure!(unformatted.is_empty(), "gofmt would write anew:\n{unformatted}");
    run(go(at).args(["vet", "./..."]))?;
    // What comes in from the network alone takes a race to show.
    run(go(at).args(["test", "-race", "./..."]).env("CGO_ENABLED", "1"))?;
    only_std(at)?;
    depended_on(at)
}

/// A program of the SDK, built outside of the repository.
pub(crate) fn program(at: &Workshop, package: &str) -> Result<PathBuf> {
    let built = at.empty("go-built")?;
    run(go(at).arg("build").arg("-o").arg(format!("{}/", built.display())).arg(package))?;
    let name = package.rsplit('/').next().unwrap_or(package);
    Ok(built.join(name))
}

/// Go as it is installed: no other one is fetched, and no module.
fn go(at: &Workshop) -> Command {
    let mut command = at.program("go");
    command.env("GOTOOLCHAIN", "local").env("GOPROXY", "off").env("GOFLAGS", "");
    command.env("GOCACHE", at.tools.join("go-cache")).env("GOPATH", at.tools.join("go-path"));
    command
}

fn only_std(at: &Workshop) -> Result<()> {
    let list = ["list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "./..."];
    let named = said(go(at).args(list))?;
    let foreign: Vec<_> = named.lines().filter(|path| !path.starts_with("leasehold.")).collect();
    ensure!(foreign.is_empty(), "beside the standard library it needs {foreign:?}");
    Ok(())
}

/// What stands first in the README, in a module of somebody else.
fn depended_on(at: &Workshop) -> Result<()> {
    let folder = at.empty("go-user")?;
    let block = first_block(&at.sdk.join("README.md"), "go")?;
    let program = PROGRAM.replace("BLOCK", &block.replace('\n', "\n\t"));
    fs::write(folder.join("main.go"), program)?;
    let init = ["mod", "init", "user.example/program"];
    run(go(at).args(init).current_dir(&folder))?;
    let replace = format!("{}={}", MODULE, at.sdk.display());
    let require = format!("{MODULE}@v0.0.0");
    let edit = ["mod", "edit", "-require", &require, "-replace", &replace];
    run(go(at).args(edit).current_dir(&folder))?;
    run(go(at).args(["vet", "."]).current_dir(&folder))
}

const MODULE: &str = "leasehold.example/sdk/go";

const PROGRAM: &str = "package main

import (
	\"context\"
	\"errors\"
	\"log\"
	\"time\"

	leasehold \"leasehold.example/sdk/go\"
)

type database struct{}

func (database) Write(ctx context.Context, token uint64, rows []string) error { return nil }

func main() {
	ctx, store, rows := context.Background(), database{}, []string{}
	BLOCK
	if err != nil {
		log.Fatal(err)
	}
}
";
