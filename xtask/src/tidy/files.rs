//! The files that tidy looks at: every text in the repository that is not built.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Neither ours to judge nor kept: git's own files, and what builds leave behind.
const SKIPPED: &[&str] = &[".git", "target", "node_modules"];

/// A text file; its path is relative to the root and has `/` between its parts.
#[derive(Debug)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) text: String,
}

impl File {
    pub(super) fn new(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// All text files below `root`, in the order of their paths.
pub(super) fn read(root: &Path) -> Result<Vec<File>> {
    let mut files = Vec::new();
    gather(root, "", &mut files)?;
    files.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(files)
}

fn gather(folder: &Path, prefix: &str, files: &mut Vec<File>) -> Result<()> {
    let shown = || format!("could not read {}", folder.display());
    for entry in fs::read_dir(folder).with_context(shown)? {
        let entry = entry.with_context(shown)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().with_context(shown)?;
        if SKIPPED.contains(&name.as_str()) {
            continue;
        } else if kind.is_dir() {
            gather(&entry.path(), &format!("{path}/"), files)?;
        } else if kind.is_file() {
            files.extend(read_text(&entry.path(), &path)?);
        }
    }
    Ok(())
}

/// `None` if the file is not text.
fn read_text(place: &Path, path: &str) -> Result<Option<File>> {
    let bytes = fs::read(place).with_context(|| format!("could not read {path}"))?;
    Ok(std::str::from_utf8(&bytes).ok().map(|text| File::new(path, text)))
}
