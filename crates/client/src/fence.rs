//! The side that is protected: turning stale writers away.
//!
//! A lock alone cannot stop a writer that was paused, lost its lease meanwhile, and goes on where it was. The thing that
//! is written to can: it remembers the highest fencing token it has seen and refuses any lower one. Here is that
//! comparison as a value, as SQL, on the Leasehold server ([`Register`]) and as a layer for HTTP
//! ([`FenceLayer`](crate::FenceLayer)).

use crate::client::Client;
use crate::error::{Error, Result};

/// The highest token seen so far.
///
/// ```
/// use leasehold_client::Fence;
///
/// let mut fence = Fence::new();
/// assert!(fence.accept(33).is_ok());
/// assert!(fence.accept(34).is_ok()); // the next holder
/// assert!(fence.accept(34).is_ok()); // writes again
/// assert!(fence.accept(33).is_err()); // the first one wakes up
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fence {
    high_water: u64,
}

/// The token is from an earlier holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fencing token {token} is stale: {high_water} was seen")]
pub struct Stale {
    pub token: u64,
    pub high_water: u64,
}

impl Fence {
    /// A mark that has seen nothing.
    pub const fn new() -> Fence {
        Fence { high_water: 0 }
    }

    /// A mark that was kept somewhere.
    pub const fn from_high_water(high_water: u64) -> Fence {
        Fence { high_water }
    }

    /// The highest token seen so far.
    pub const fn high_water(&self) -> u64 {
        self.high_water
    }

    /// Accepts or rejects a writer's token. It must be called in the same step as the write.
    pub const fn accept(&mut self, token: u64) -> std::result::Result<(), Stale> {
        if token < self.high_water {
            return Err(Stale { token, high_water: self.high_water });
        }
        self.high_water = token;
        Ok(())
    }
}

/// A register on the Leasehold server: see [`Client::fence`].
#[derive(Clone, Debug)]
pub struct Register {
    client: Client,
    name: String,
}

impl Register {
    pub(crate) fn new(client: Client, name: &str) -> Register {
        Register { client, name: name.into() }
    }

    /// Shows a token. A stale one is refused with `stale_fence`, one that was never issued with `invalid_request`.
    pub async fn accept(&self, token: u64) -> Result<u64> {
        Ok(self.client.api().accept_fence(&self.name, token).await?.high_water)
    }

    /// Removes the register: what it has seen is forgotten. Gives the highest token that was.
    pub async fn delete(&self, reason: &str) -> Result<u64> {
        let request = leasehold_api::DeleteFenceRequest { reason: reason.into() };
        Ok(self.client.api().delete_fence(&self.name, &request).await?.high_water)
    }

    /// The highest token seen; `None` if it has seen none.
    pub async fn high_water(&self) -> Result<Option<u64>> {
        match self.client.api().get_fence(&self.name).await {
            Ok(register) => Ok(Some(register.high_water)),
            Err(Error::Refused(problem)) if problem.code == leasehold_api::Code::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// SQL that keeps the mark inside the database, in the transaction of the write itself.
///
/// ```
/// use leasehold_client::sql;
///
/// # fn main() -> rusqlite::Result<()> {
/// let mut database = rusqlite::Connection::open_in_memory()?;
/// database.execute_batch(sql::SQLITE)?;
/// database.execute_batch("CREATE TABLE report (text TEXT)")?;
/// let mut write = |token: i64, text: &str| {
///     let transaction = database.transaction()?;
///     transaction.execute(sql::SQLITE_ACCEPT, ("report", token))?;
///     transaction.execute("INSERT INTO report VALUES (?1)", [text])?;
///     transaction.commit()
/// };
/// write(34, "by the next holder")?;
/// assert!(write(33, "by one that was paused").is_err());
/// # Ok(()) }
/// ```
pub mod sql {
    /// PostgreSQL: the table `leasehold_fences` and the function `leasehold_fence(name, token)`, to be called in the
    /// transaction of the write. It raises an exception with SQLSTATE `LH412` for a stale token, and makes writers of
    /// one name queue behind each other until they commit.
    pub const POSTGRES: &str = include_str!("../sql/postgres.sql");
    /// SQLite: the table `leasehold_fences` and a trigger on it. Run [`SQLITE_ACCEPT`] in the transaction of the write;
    /// a stale token fails it.
    pub const SQLITE: &str = include_str!("../sql/sqlite.sql");
    /// Parameters: the name of the fence and the token.
    pub const SQLITE_ACCEPT: &str = "INSERT INTO leasehold_fences (name, high_water) VALUES (?1, ?2) \
         ON CONFLICT (name) DO UPDATE SET high_water = excluded.high_water";
    /// The same for PostgreSQL.
    pub const POSTGRES_ACCEPT: &str = "SELECT leasehold_fence($1, $2)";
    /// Beginning of the message of a refused write, in both.
    pub const STALE: &str = "stale fencing token";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_until_a_higher_one_was_seen() {
        let mut fence = Fence::new();
        for token in [0, 5, 5, 9] {
            assert_eq!(fence.accept(token), Ok(()));
        }
        assert_eq!(fence.accept(8), Err(Stale { token: 8, high_water: 9 }));
        assert_eq!(fence.high_water(), 9);
        assert!(Fence::from_high_water(9).accept(8).is_err());
    }
}
