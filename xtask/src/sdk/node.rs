//! The SDK for Node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Workshop, first_block, said};
use crate::cargo::run;

/// What the tests and the package need, beside the compiler's output. `node_modules` lie there already.
const COPIED: [&str; 8] = [
    "src",
    "test",
    "examples",
    "conformance",
    "package.json",
    "package-lock.json",
    "tsconfig.json",
    "README.md",
];

pub(super) fn check(at: &Workshop) -> Result<()> {
    let copy = compiled(at)?;
    let mut tests = at.program("node");
    run(tests
        .args(["--test", "--test-reporter=dot", "--test-timeout=60000", "test/*.test.js"])
        .current_dir(&copy))?;
    installed(at, &copy)
}

/// A copy of the SDK with what the compiler makes of it.
pub(crate) fn compiled(at: &Workshop) -> Result<PathBuf> {
    let copy = at.tools.join("node-sdk");
    copy_anew(&at.sdk, &copy)?;
    let mut compiler = at.program("node");
    compiler.arg(copy.join("node_modules/typescript/bin/tsc")).args(["-p", "."]);
    run(compiler.current_dir(&copy))?;
    Ok(copy)
}

/// The compiler writes beside its sources: those are a copy.
fn copy_anew(from: &Path, to: &Path) -> Result<()> {
    for name in COPIED.iter().chain(&["dist"]) {
        let old = to.join(name);
        let _ = fs::remove_dir_all(&old).or_else(|_| fs::remove_file(&old));
    }
    for name in COPIED {
        let done = Command::new("cp").arg("-r").arg(from.join(name)).arg(to).status()?;
        ensure!(done.success(), "{name} cannot be copied");
    }
    Ok(())
}

/// The package as npm packs it, in a project that has nothing else: its types hold, and it runs.
fn installed(at: &Workshop, copy: &Path) -> Result<()> {
    let project = at.empty("node-user")?;
    let npm = |args: &[&str]| {
        let mut command = Command::new("npm");
        command.args(args).args(["--ignore-scripts", "--no-audit", "--no-fund", "--silent"]);
        command
    };
    let packed = said(npm(&["pack"]).arg("--pack-destination").arg(&project).current_dir(copy))?;
    let tarball = packed.lines().last().context("npm names what it has packed")?;
    ensure!(tarball == concat!("leasehold-", env!("CARGO_PKG_VERSION"), ".tgz"), "{tarball}");
    fs::write(project.join("package.json"), "{\"private\":true,\"type\":\"module\"}\n")?;
    let file = format!("./{tarball}");
    let mut lint = at.program("node");
    lint.arg(copy.join("node_modules/publint/src/cli.js")).args(["--strict", &file]);
    run(lint.current_dir(&project))?;
    let mut resolve = at.program("node");
    resolve.arg(copy.join("node_modules/@arethetypeswrong/cli/dist/index.js"));
    run(resolve.args([&file, "--profile", "esm-only", "--quiet"]).current_dir(&project))?;
    run(npm(&["install", "--offline", &file]).current_dir(&project))?;
    let block = first_block(&copy.join("README.md"), "ts")?;
    fs::write(project.join("program.ts"), format!("{BEFORE}{block}"))?;
    fs::write(project.join("using.mjs"), USING)?;
    let mut types = at.program("node");
    types.arg(copy.join("node_modules/typescript/bin/tsc")).current_dir(&project);
    types.args(["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022"]);
    types.args([
        "--lib",
        "es2022,esnext.disposable,dom",
        "program.ts",
        "--types",
        "node",
        "--typeRoots",
    ]);
    run(types.arg(copy.join("node_modules/@types")))?;
    let mut using = at.program("node");
    using.arg("using.mjs").arg(copy.join("test/server.js")).current_dir(&project);
    let holders = said(&mut using)?;
    ensure!(holders.split_whitespace().eq(["1", "0"]), "holders in the block and after: {holders}");
    Ok(())
}

const BEFORE: &str = "declare const batches: string[];
declare const store: { write(rows: string, how: { token: number; signal: AbortSignal }): Promise<void> };
";

/// `await using` as this Node has it: at the end of the block the lock is free again.
const USING: &str = "import { Client } from \"leasehold\";
const { startServer } = await import(process.argv[2]);
const server = await startServer();
{
  await using client = new Client(server.url);
  const holders = async () => (await client.api.get(\"a\")).holders.length;
  {
    await using lease = await client.lock(\"a\", { ttl: \"30s\" }).acquire();
    lease.check();
    console.log(await holders());
  }
  console.log(await holders());
}
await server.stop();
";
