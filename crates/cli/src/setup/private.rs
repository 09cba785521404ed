//! Files that nobody else may read, in directories that nobody else may write to.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::failure::{EXIT_CONFIG, EXIT_IO, Failure};

const WRITABLE_BY_ALL: u32 = 0o002;
/// The mode of secrets.
pub(crate) const SECRET: u32 = 0o600;
/// The mode of what others may read, if they get that far.
pub(crate) const PUBLIC: u32 = 0o644;

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(EXIT_IO, format!("{}: {error}", path.display()))
}

/// Makes a directory with mode 0700 if there is none. One that everybody may write to is refused.
pub(crate) fn directory(path: &Path) -> Result<(), Failure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| failed(path, &error))?;
    let mode = fs::metadata(path).map_err(|error| failed(path, &error))?.mode();
    if mode & WRITABLE_BY_ALL != 0 {
        let said = format!(
            "{} can be written to by everybody on this machine (mode {:03o}): secrets are not put there",
            path.display(),
            mode & 0o777
        );
        return Err(Failure::new(EXIT_CONFIG, said)
            .next(format!("chmod 700 {}, or choose another directory", path.display())));
    }
    Ok(())
}

/// Writes a file as a whole: who reads it meanwhile sees the old one or the new one.
pub(crate) fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = Path::new(&beside);
    let _ = fs::remove_file(beside);
    let written = || {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(beside)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(beside, path)?;
        File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
    };
    written().map_err(|error| {
        let _ = fs::remove_file(beside);
        failed(path, &error)
    })
}

pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| failed(path, &error))
}

/// True if the file is there already, whole, as all that `write` makes are.
pub(crate) fn is_there(path: &Path) -> bool {
    path.exists()
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(path, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_ours_alone_and_never_lie_where_all_can_write() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        directory(&inner).unwrap();
        assert_eq!(fs::metadata(&inner).unwrap().mode() & 0o777, 0o700);
        let file = inner.join("secret");
        for text in ["first", "second"] {
            write(&file, text, SECRET).unwrap();
            assert_eq!(read(&file).unwrap(), text);
            assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1);
        remove(&file).unwrap();
        remove(&file).unwrap();
        assert!(!is_there(&file));
        fs::set_permissions(&inner, fs::Permissions::from_mode(0o777)).unwrap();
        let refused = directory(&inner).unwrap_err();
        assert!(refused.said.contains("can be written to by everybody"), "{}", refused.said);
    }
}
