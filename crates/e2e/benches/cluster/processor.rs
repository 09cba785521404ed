//! Where client and server run.

/// As long as this is there, this thread stays on one processor, and so does what it starts. Where that cannot be had they are
/// moved about as before.
#[derive(Default)]
pub(crate) struct OneProcessor {
    #[cfg(target_os = "linux")]
    before: Option<rustix::thread::CpuSet>,
}

impl OneProcessor {
    #[cfg(target_os = "linux")]
    pub(crate) fn keep() -> OneProcessor {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let Ok(before) = sched_getaffinity(None) else { return OneProcessor::default() };
        let mut one = CpuSet::new();
        if let Some(first) = (0..CpuSet::MAX_CPU).find(|&number| before.is_set(number)) {
            one.set(first);
        }
        let is_kept = sched_setaffinity(None, &one).is_ok();
        OneProcessor { before: is_kept.then_some(before) }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn keep() -> OneProcessor {
        OneProcessor::default()
    }
}

#[cfg(target_os = "linux")]
impl Drop for OneProcessor {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // It was allowed before.
            let _ = rustix::thread::sched_setaffinity(None, before);
        }
    }
}
