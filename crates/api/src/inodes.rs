//! Files that are gone.

use serde::{Deserialize, Serialize};

/// What ended with the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Removed {
    pub inode: u64,
    pub released: u64,
    pub waiters: u64,
}
