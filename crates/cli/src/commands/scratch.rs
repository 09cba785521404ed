//! A folder for as long as a verb is at work.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::failure::{EXIT_IO, Failure};

/// Removed when dropped, with all in it. Nobody else can look into it: a backup has secrets.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// In the folder of this file.
    pub(super) fn beside(file: &Path) -> Result<Scratch, Failure> {
        let name = format!(".leasehold-{:08x}", getrandom::u32().unwrap_or_default());
        let path = file.with_file_name(name);
        DirBuilder::new().mode(0o700).create(&path).map_err(|error| {
            Failure::new(EXIT_IO, format!("cannot make {}: {error}", path.display()))
        })?;
        Ok(Scratch(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed does no harm, and the verb has done its work.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
