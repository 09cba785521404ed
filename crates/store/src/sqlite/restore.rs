//! Restoring a backup, and why no fencing token is issued twice.
//!
//! After the backup was taken the server went on: it granted locks, and issued fencing tokens that the backup knows
//! nothing of. A server that starts from the backup must only issue higher ones, and lead under a higher epoch.
//! How many were handed out is unknown, but there is a bound: one writer issues them, and time has passed. So the restore
//! jumps ahead:
//!
//! ```text
//!   fence + max(2^32, seconds since the backup × 2^23)      epoch + max(2^10, seconds × 2^10)
//! ```
//!
//! One writer does well below a million grants a second and cannot start a thousand times a second, so this is
//! above everything handed out since, as long as the wall clock of this machine is not hours behind that of the one
//! where the backup was taken: 2^32 fences alone are more than an hour of a million grants a second. Even a year
//! costs 2^48 of the 2^53 fencing tokens there are, and a restore that would leave fewer than 2^32 of them is refused. A
//! backup that seems older than 400 days is more likely a wrong clock, and is refused unless the caller names a token to
//! stay above.
//!
//! A plain copy of the file, made while no server ran, can be restored in the same way: the time
//! then counts from the last start, snapshot or backup that the file tells of, which is earlier and so on the safe
//! side.

use std::path::Path;
use std::time::Duration;

use leasehold_core::{Epoch, FencingToken, Transition};
use rusqlite::{Connection, OpenFlags, params};

use super::audit::{Audit, audit};
use super::backup::{Copy, refuse_existing};
use super::lock::FileLock;
use super::schema;
use super::writer::{signed, unsigned, wall_clock_ms};
use crate::error::Error;
use crate::journal::Seq;
use crate::record::Batch;

const FENCE_JUMP_MIN: u64 = 1 << 32;
const FENCES_PER_SECOND: u64 = 1 << 23;
const EPOCH_JUMP_MIN: u64 = 1 << 10;
const EPOCHS_PER_SECOND: u64 = 1 << 10;
const AGE_MAX: Duration = Duration::from_secs(400 * 24 * 60 * 60);

/// The position from which a restored store goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Epochs and fences go on above these.
    pub epoch: Epoch,
    pub fence: FencingToken,
    /// The last record of the backup.
    pub last: Seq,
    /// The age of the backup, by the wall clock.
    pub age: Duration,
}

/// The number of tokens in a backup: whoever restores it has to say whether they are good again.
pub fn tokens_in(from: &Path) -> Result<u64, Error> {
    let failed = |error| Error::unavailable("the backup cannot be read").because(error);
    let connection =
        Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    let count =
        connection.query_row("SELECT count(*) FROM access WHERE id LIKE 'token/%'", [], |row| {
            row.get::<_, i64>(0)
        });
    match count {
        Ok(count) => Ok(unsigned(count)),
        // What is wrong with it is told by the restore, which reads all of it.
        Err(_) => Ok(0),
    }
}

/// The treatment of the tokens of a backup: some may have been revoked since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldTokens {
    Keep,
    Revoke,
}

/// Makes the new file `to` from the backup `from`, with epoch and fences jumped ahead. The backup stays as it is.
///
/// `fence_above` is a fence that the caller knows to have been handed out. The restored store goes on above it in
/// any case.
pub fn restore(
    from: &Path,
    to: &Path,
    fence_above: Option<FencingToken>,
    tokens: OldTokens,
) -> Result<Restored, Error> {
    check_headroom(fence_above.map_or(0, FencingToken::get))?;
    let to = schema::resolve_new(to).map_err(|error| {
        Error::unavailable("the file to restore to cannot be made").because(error)
    })?;
    let _lock = FileLock::take(&to)
        .map_err(|error| Error::unavailable("the file to restore to is taken").because(error))?;
    refuse_existing(&to)?;
    let copy = Copy::of(from, &to)?;
    let found = audit(&copy.connection)?;
    let restored = jump(&found, fence_above)?;
    write_jump(&copy.connection, &found, &restored, tokens)
        .map_err(|error| schema::failed("the jump cannot be written", error))?;
    let audited = audit(&copy.connection)?;
    copy.finish(audited)?;
    Ok(restored)
}

fn jump(found: &Audit, fence_above: Option<FencingToken>) -> Result<Restored, Error> {
    let age = wall_clock_ms().saturating_sub(found.written_at_ms);
    let age = Duration::from_millis(unsigned(age));
    if age > AGE_MAX && fence_above.is_none() {
        return Err(Error::unavailable(format!(
            "by this machine's clock the backup is {} days old: if that is so, name a fencing token to stay above",
            age.as_secs() / (24 * 60 * 60)
        )));
    }
    let seconds = age.min(AGE_MAX).as_secs() + 1;
    let fence_jump = FENCE_JUMP_MIN.max(seconds * FENCES_PER_SECOND);
    let epoch_jump = EPOCH_JUMP_MIN.max(seconds * EPOCHS_PER_SECOND);
    let fence = found.fence.get() + fence_jump;
    let fence = fence.max(fence_above.map_or(0, FencingToken::get));
    Ok(Restored {
        epoch: Epoch(found.epoch.0.saturating_add(epoch_jump)),
        fence: check_headroom(fence)?,
        last: found.last,
        age,
    })
}

/// A server must be able to go on above a token for long.
fn check_headroom(token: u64) -> Result<FencingToken, Error> {
    match FencingToken::new(token).filter(|fence| *fence <= FencingToken::JUMP_MAX) {
        Some(fence) => Ok(fence),
        None => Err(Error::unavailable(format!(
            "fencing tokens would go on above {token}, which leaves too few: {} is the highest to go on above",
            FencingToken::JUMP_MAX
        ))),
    }
}

/// Writes the jump as a record of its own, and an empty one behind it: only a last record may be found torn and left
/// out, and the jump must never be that one.
fn write_jump(
    connection: &Connection,
    found: &Audit,
    to: &Restored,
    tokens: OldTokens,
) -> rusqlite::Result<()> {
    let jumped = Transition::Jumped { epoch: to.epoch, fence: to.fence };
    let jump = Batch::new(to.epoch, found.last.next(), [&jumped]);
    let empty = Batch::new(to.epoch, jump.seq().next(), []);
    let transaction = connection.unchecked_transaction()?;
    if let Some(torn) = found.torn {
        transaction.execute("DELETE FROM journal WHERE seq = ?1", [signed(torn.0)])?;
    }
    for batch in [jump, empty] {
        transaction.execute(
            "INSERT INTO journal (seq, epoch, record) VALUES (?1, ?2, ?3)",
            params![signed(batch.seq().0), signed(batch.epoch().0), batch.bytes()],
        )?;
    }
    transaction.execute(
        "UPDATE leadership SET epoch = ?1, leads = 0, written_at_ms = ?2",
        [signed(to.epoch.0), wall_clock_ms()],
    )?;
    if tokens == OldTokens::Revoke {
        transaction.execute("DELETE FROM access WHERE id LIKE 'token/%'", [])?;
        transaction.execute("UPDATE access_version SET version = version + 1", [])?;
    }
    transaction.commit()
}
