//! Histories of lock clients, and a judge that says whether one can have happened.
//!
//! Histories come from real servers (`e2e`) and from simulated ones (`sim`). The judge knows neither: it has the word of
//! the clients and nothing else.

pub mod history;
pub mod checker;
pub mod random;
