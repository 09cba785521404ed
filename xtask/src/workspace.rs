//! Where the workspace lies.

use std::path::{Path, PathBuf};

/// The folder of the workspace's own Cargo.toml.
pub(crate) fn root() -> PathBuf {
    // Asked at run time first: a binary built before the folder was moved must not look in the old place.
    let xtask = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    xtask.parent().map(Path::to_path_buf).expect("xtask lies inside the workspace")
}
