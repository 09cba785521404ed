//! The locks as of the latest snapshot, as rows for people with a SQL prompt: `SELECT * FROM locks`.
//!
//! It is a view for reading and nothing more; no server ever reads it. Lease ids are left out: they are secrets.

use leasehold_core::{Entry, FencingToken, LeaseEntry, Millis, Mode, Owner, Scope, Timestamp};
use rusqlite::{CachedStatement, Transaction, params};

use super::writer::signed;

/// The number of rows so far, and of locks that did not fit in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LockRows {
    pub(super) written: u32,
    pub(super) left_out: u32,
}

/// The columns that a grant and a piece of a file have in common.
struct Lock<'a> {
    scope: String,
    owner: &'a Owner,
    mode: Mode,
    fence: FencingToken,
    granted_at: Timestamp,
    reclaim_window: Millis,
    metadata: Option<&'a str>,
}

/// Adds the locks among these entries.
pub(super) fn insert_lock_rows(
    transaction: &Transaction<'_>,
    snapshot: i64,
    so_far: LockRows,
    entries: &[Entry],
    rows_max: u32,
) -> rusqlite::Result<LockRows> {
    let mut statement = transaction.prepare_cached(
        "INSERT INTO lock_rows (snapshot, number, namespace, lock, owner, principal, mode, fence, granted_at_ms,
         ttl_ms, reclaim_ms, state, session, metadata)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?;
    let mut rows = so_far;
    for lease in entries.iter().filter_map(lease) {
        for lock in locks(lease) {
            if rows.written >= rows_max {
                rows.left_out += 1;
                continue;
            }
            insert(&mut statement, snapshot, rows.written, lease, &lock)?;
            rows.written += 1;
        }
    }
    Ok(rows)
}

fn lease(entry: &Entry) -> Option<&LeaseEntry> {
    match entry {
        // What ends in turns is held no more.
        Entry::Lease(lease) => Some(&**lease).filter(|lease| lease.ending.is_none()),
        Entry::Counters { .. } | Entry::Register { .. } => None,
    }
}

fn locks(lease: &LeaseEntry) -> impl Iterator<Item = Lock<'_>> {
    let grants = lease.grants.iter().map(|grant| Lock {
        scope: grant.key.to_string(),
        owner: &grant.owner,
        mode: grant.mode,
        fence: grant.fence,
        granted_at: grant.granted_at,
        reclaim_window: grant.reclaim_window,
        metadata: grant.metadata.as_deref(),
    });
    let pieces = lease.pieces.iter().map(|piece| Lock {
        scope: Scope::range(piece.inode, piece.range).to_string(),
        owner: &piece.owner,
        mode: piece.mode,
        fence: piece.tokens.last().copied().unwrap_or(FencingToken::ZERO),
        granted_at: piece.granted_at,
        reclaim_window: piece.reclaim_window,
        metadata: piece.metadata.as_deref(),
    });
    grants.chain(pieces)
}

fn insert(
    statement: &mut CachedStatement<'_>,
    snapshot: i64,
    number: u32,
    lease: &LeaseEntry,
    lock: &Lock<'_>,
) -> rusqlite::Result<()> {
    let state = match lease.lapsed {
        None => "held",
        Some(_) => "reclaim_window",
    };
    let session = lease.session.as_ref();
    statement.execute(params![
        snapshot,
        number,
        lease.namespace.as_str(),
        lock.scope,
        lock.owner.as_str(),
        lock.owner.principal().as_str(),
        lock.mode.to_string(),
        signed(lock.fence.get()),
        signed(lock.granted_at.as_millis()),
        lease.ttl.get(),
        lock.reclaim_window.get(),
        state,
        session.map(|session| signed(session.terms.number)),
        lock.metadata,
    ])?;
    Ok(())
}
