//! SDKs that are compiled before they can be driven: once for all tests of a run, with the tools of `cargo xtask needs`.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use leasehold_e2e::tools::{node_sdk, python_tool, tools_folder};

use super::harness::Sdk;

/// The SDK as it stands in the repository, compiled if it must be.
pub(crate) fn built(sdk: Sdk) -> Result<PathBuf> {
    let sources = sources(sdk);
    if !sdk.is_compiled() {
        return Ok(sources);
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdks");
    fs::create_dir_all(&folder)?;
    let name = sdk.folder();
    // One at a time: tests may be processes of their own.
    let turn = File::create(folder.join(format!("{name}.lock")))?;
    turn.lock()?;
    let copy = folder.join(format!("{name}-{:016x}", digest(&sources)?));
    if copy.join("complete").exists() {
        return Ok(copy);
    }
    for entry in fs::read_dir(&folder)? {
        let old = entry?.path();
        let is_ours = old.is_dir()
            && old.file_name().is_some_and(|own| own.to_string_lossy().starts_with(name));
        if is_ours {
            fs::remove_dir_all(&old)?;
        }
    }
    copied(&sources, &copy)?;
    compile(sdk, &copy)?;
    File::create(copy.join("complete"))?;
    Ok(copy)
}

pub(crate) fn sources(sdk: Sdk) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk").join(sdk.folder())
}

/// All of an SDK but what was built of it.
pub(crate) fn copied(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if ["node_modules", "dist"].iter().any(|built| name == *built) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            copied(&entry.path(), &to.join(name))?;
        } else {
            fs::copy(entry.path(), to.join(name))?;
        }
    }
    Ok(())
}

/// Compiles a copy where it lies.
pub(crate) fn compile(sdk: Sdk, copy: &Path) -> Result<()> {
    let mut command = match sdk {
        Sdk::Go => {
            let mut go = go()?;
            go.args(["build", "-o", "built/", "./conformance/driver", "./examples/..."]);
            fs::create_dir_all(copy.join("built"))?;
            go
        }
        Sdk::TypeScript => {
            let modules = node_sdk()?.join("node_modules");
            std::os::unix::fs::symlink(&modules, copy.join("node_modules"))?;
            let mut node = Command::new(python_tool("node")?);
            node.arg(modules.join("typescript/bin/tsc")).args(["-p", "."]);
            node
        }
        Sdk::Rust | Sdk::RustHttp | Sdk::PythonAsyncio | Sdk::PythonSync => return Ok(()),
    };
    let done = command.current_dir(copy).output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&done.stdout);
    let complained = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "{sdk:?} does not compile: {said}{complained}");
    Ok(())
}

/// Go as it is installed: no other one is fetched, and no module.
pub(crate) fn go() -> Result<Command> {
    let program = python_tool("go")?;
    let tools = tools_folder()?;
    let mut command = Command::new(program);
    command.env("GOTOOLCHAIN", "local").env("GOPROXY", "off").env("GOFLAGS", "");
    command.env("GOCACHE", tools.join("go-cache")).env("GOPATH", tools.join("go-path"));
    Ok(command)
}

fn digest(folder: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    digest_into(folder, &mut hasher)?;
    Ok(hasher.finish())
}

fn digest_into(folder: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let mut paths: Vec<_> = entries.collect::<Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.ends_with("node_modules") || path.ends_with("dist") {
            continue;
        }
        path.hash(hasher);
        if path.is_dir() {
            digest_into(&path, hasher)?;
        } else {
            fs::read(&path)?.hash(hasher);
        }
    }
    Ok(())
}
