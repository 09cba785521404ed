//! Opens a store wherever it is.

use std::sync::Arc;

use crate::error::OpenError;
use crate::journal::Journal;
use crate::location::Location;
use crate::memory::MemoryJournal;

/// Opens the journal of a group of namespaces. A file has one group, number 0.
///
/// A server that cannot be reached, a password that is wrong, a file that another server has: all that is told at
/// once, without trying for long. Needs a tokio runtime, which stores behind a network go on to use.
pub async fn open(location: &Location, group: u32) -> Result<Arc<dyn Journal>, OpenError> {
    match location {
        Location::Sqlite(_) if group > 0 => {
            Err(failed(location, "a file has only one group".into()))
        }
        Location::Memory => Ok(Arc::new(MemoryJournal::new())),
        Location::Sqlite(path) => open_sqlite(location, path.clone()).await,
        Location::Postgres(_) => open_postgres(location, group).await,
        Location::Etcd(_) => open_etcd(location, group).await,
    }
}

fn failed(location: &Location, what: String) -> OpenError {
    OpenError::Failed { store: location.to_string(), what, cause: None }
}

#[cfg(feature = "sqlite")]
async fn open_sqlite(
    location: &Location,
    path: std::path::PathBuf,
) -> Result<Arc<dyn Journal>, OpenError> {
    use std::os::unix::fs::DirBuilderExt as _;

    use crate::sqlite::{Options, SqliteJournal};
    let opening = move || {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(
                |error| OpenError::Failed {
                    store: path.display().to_string(),
                    what: "its folder cannot be made".into(),
                    cause: Some(Arc::new(error)),
                },
            )?;
        }
        SqliteJournal::open(&path, Options::default())
    };
    let opened = tokio::task::spawn_blocking(opening).await;
    let journal = opened.map_err(|_| failed(location, "the runtime has ended".into()))??;
    Ok(Arc::new(journal))
}

#[cfg(feature = "postgres")]
async fn open_postgres(location: &Location, group: u32) -> Result<Arc<dyn Journal>, OpenError> {
    let Location::Postgres(location) = location else { unreachable!("it was looked at") };
    Ok(Arc::new(crate::postgres::PostgresJournal::open(location, group).await?))
}

#[cfg(feature = "etcd")]
async fn open_etcd(location: &Location, group: u32) -> Result<Arc<dyn Journal>, OpenError> {
    let Location::Etcd(location) = location else { unreachable!("it was looked at") };
    Ok(Arc::new(crate::etcd::EtcdJournal::open(location, group).await?))
}

#[cfg(not(feature = "sqlite"))]
async fn open_sqlite(
    location: &Location,
    _path: std::path::PathBuf,
) -> Result<Arc<dyn Journal>, OpenError> {
    Err(failed(location, "this build has no SQLite".into()))
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(location: &Location, _group: u32) -> Result<Arc<dyn Journal>, OpenError> {
    Err(failed(location, "this build has no PostgreSQL".into()))
}

#[cfg(not(feature = "etcd"))]
async fn open_etcd(location: &Location, _group: u32) -> Result<Arc<dyn Journal>, OpenError> {
    Err(failed(location, "this build has no etcd".into()))
}
