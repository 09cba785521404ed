//! What the rules promise, told as scripts and transcripts: one file for each part of the contract.

mod script;

mod scopes;
mod leases;
mod sessions;
mod fences;
mod waiting;
mod tickets;
