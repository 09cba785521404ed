//! Programs of others that judge the server. `cargo xtask needs` installs them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// A program of the folder of Python tools in the target folder of this very test.
pub fn python_tool(name: &str) -> Result<PathBuf> {
    tool(&tools_folder()?.join("python/bin").join(name))
}

/// A program of the folder of npm packages in the target folder of this very test.
pub fn npm_tool(name: &str) -> Result<PathBuf> {
    tool(&npm_folder()?.join("node_modules/.bin").join(name))
}

/// The folder below which npm packages are found.
pub fn npm_folder() -> Result<PathBuf> {
    Ok(tools_folder()?.join("npm"))
}

/// The folder with what the SDK for Node is built with.
pub fn node_sdk() -> Result<PathBuf> {
    Ok(tools_folder()?.join("node-sdk"))
}

/// The folder of all tools.
pub fn tools_folder() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(3).context("a test lies in target/<profile>/deps")?;
    Ok(target.join("tools"))
}

fn tool(path: &Path) -> Result<PathBuf> {
    ensure!(path.is_file(), "{} is missing: run `cargo xtask needs`", path.display());
    Ok(path.into())
}

/// Where the files for a tool lie.
pub fn files_of(tool: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(tool)
}
