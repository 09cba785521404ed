//! The lock of a reply queue: the standard library's, or shuttle's where every order of steps is tried.

#[cfg(all(test, feature = "shuttle"))]
pub(crate) use shuttle::sync::{Mutex, MutexGuard};
#[cfg(not(all(test, feature = "shuttle")))]
pub(crate) use std::sync::{Mutex, MutexGuard};
