//! Programs of others that judge the server. `cargo xtask needs` installs them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// A program of the folder of Python tools in the target folder of this very test.
pub fn python_tool(name: &str) -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let target = test.ancestors().nth(3).context("a test lies in target/<profile>/deps")?;
    let tool = target.join("tools/python/bin").join(name);
    ensure!(tool.is_file(), "{} is missing: run `cargo xtask needs`", tool.display());
    Ok(tool)
}

/// Where the files for a tool lie.
pub fn files_of(tool: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(tool)
}
