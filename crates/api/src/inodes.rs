//! Files that are gone.

use serde::{Deserialize, Serialize};

/// Everything that ended with the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Removed {
    pub inode: u64,
    pub released: u64,
    pub waiters: u64,
    /// Not all of it was ended, as there is too much or the server was interrupted: ask again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}
