//! Several servers around one store: what clients notice when the leader goes, stands still or is cut off.

mod attached;
mod clients;
mod groups;
mod paused;
mod rolling;
mod storm;
