//! Counters, gauges and samples.

pub(crate) mod access_log;
pub(crate) mod metrics;
pub(crate) mod readings;
pub(crate) mod samples;
pub(crate) mod traces;
pub(crate) mod usage;
