//! What the rules promise, told as scripts and transcripts: a few files for each part of the contract.

mod script;

// What a lock covers.
mod scopes;
mod modes;

// How long it is held.
mod leases;
mod sessions;
mod disconnect;
mod principals;

// Why a stale writer cannot win.
mod fences;
mod fence_check;

// Waiting.
mod waiting;
mod leaving;
mod refused_tries;
mod tickets;
mod idempotence;

// Deadlock.
mod deadlock;
mod no_deadlock;

// Sets.
mod sets;

// POSIX ranges.
mod fcntl_lock;
mod fcntl_unlock;
mod quotas;
mod ranges;
mod range_upgrades;
mod range_tokens;
mod files;

// Two kinds of grace.
mod reclaim_window;
mod windows_of_kinds;
mod by_owner;
mod coming_back;
mod recovery_grace;
mod strict_grace;

// What operators do, how much is taken, and what can be read.
mod operator;
mod limits;
mod invalid;
mod overload;
mod listing;
mod snapshot;
mod endings;
mod events;
