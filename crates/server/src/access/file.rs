//! `access.toml` on disk: read as a whole, refused as a whole, and looked at for changes.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use leasehold_access::{AccessFile, Fault};

use crate::stamp::Stamp;

/// More than that is not read.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The reason why an access file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} can be written by others than its owner (mode {mode:03o}): run chmod go-w", path.display())]
    WritableByOthers { path: PathBuf, mode: u32 },
    #[error("{} is larger than 16 MiB", path.display())]
    TooLarge { path: PathBuf },
    #[error("{}: {fault}", path.display())]
    Fault { path: PathBuf, fault: Fault },
    #[error("{}: {clash}", path.display())]
    Clash { path: PathBuf, clash: String },
}

/// Reads a file; the stamp is that of the bytes that were read.
pub(super) fn read(path: &Path) -> Result<(Stamp, AccessFile), FileError> {
    let failed = |source| FileError::Read { path: path.into(), source };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.mode() & 0o777;
    if mode & 0o022 != 0 {
        return Err(FileError::WritableByOthers { path: path.into(), mode });
    }
    let mut text = String::new();
    let len = file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if len as u64 > BYTES_MAX {
        return Err(FileError::TooLarge { path: path.into() });
    }
    let file =
        AccessFile::parse(&text).map_err(|fault| FileError::Fault { path: path.into(), fault })?;
    Ok((Stamp::of(&metadata), file))
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn file_that_others_can_write_is_refused_and_a_change_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.toml");
        assert!(matches!(read(&path), Err(FileError::Read { .. })) && Stamp::at(&path).is_none());
        write(&path, "[role.ops]\nrules = [{ verbs = [\"metrics\"] }]\n").unwrap();
        set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let (first, file) = read(&path).unwrap();
        assert!(file.roles.contains_key("ops"));
        assert_eq!(Stamp::at(&path), Some(first));
        write(&path, "[role.ops]\nrulez = []\n").unwrap();
        assert_ne!(Stamp::at(&path), Some(first));
        let said = read(&path).unwrap_err().to_string();
        assert!(said.contains("access.toml") && said.contains("line"), "{said}");
        for mode in [0o620, 0o602, 0o666] {
            set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let said = read(&path).unwrap_err().to_string();
            assert!(said.contains("can be written by others"), "{said}");
        }
    }
}
