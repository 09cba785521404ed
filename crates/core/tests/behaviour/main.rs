//! What the rules promise, told as scripts and transcripts: one file for each part of the contract.

mod script;

mod scopes;
mod leases;
mod sessions;
mod fences;
mod waiting;
mod tickets;
mod deadlock;
mod sets;
mod fcntl;
mod ranges;
mod reclaim_window;
mod recovery_grace;
mod strict_grace;
mod idempotence;
mod operator;
mod limits;
mod listing;
mod snapshot;
mod events;
