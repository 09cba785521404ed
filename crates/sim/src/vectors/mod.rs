//! What ports of the SDK to other languages are held to, written from the real machine.
//!
//! ```text
//!  rules, walks ──► recorder ──► sdk/vectors/machine/*.jsonl     one line a step: what goes in, what comes out
//!                      │ real Machine, no jitter
//!  core, api ──► tables ──► names, durations, codes, problems
//! ```
//!
//! `sdk/README.md` says how the files are read. A test compares them with what is written here.

mod lines;
mod recorder;
mod rules;
mod walks;
mod tables;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// All files by their path below `sdk/vectors`.
pub fn all() -> BTreeMap<String, String> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for (name, text) in rules::all() {
        let before = files.insert(format!("machine/{name}.jsonl"), text);
        assert!(before.is_none(), "two vectors are called {name}");
    }
    files.insert("machine/walks.jsonl".into(), walks::all());
    files.insert("names.jsonl".into(), tables::names());
    files.insert("durations.jsonl".into(), tables::durations());
    files.insert("codes.jsonl".into(), tables::codes());
    files.insert("problems.jsonl".into(), tables::problems());
    files
}

/// Writes all of them, and removes what is none of them.
pub fn write(folder: &Path) -> Result<()> {
    for path in present(folder)? {
        if !all().contains_key(&path) {
            fs::remove_file(folder.join(path))?;
        }
    }
    fs::create_dir_all(folder.join("machine"))?;
    for (path, text) in all() {
        fs::write(folder.join(&path), text).with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}

/// What is in the folder, by path.
pub fn present(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (inside, before) in [(folder.to_path_buf(), ""), (folder.join("machine"), "machine/")] {
        let Ok(entries) = fs::read_dir(&inside) else { continue };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_file() {
                found.push(format!("{before}{}", entry.file_name().to_string_lossy()));
            }
        }
    }
    Ok(found)
}
