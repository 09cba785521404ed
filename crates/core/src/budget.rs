//! A bound on the work of one search. Time cannot be measured here, so steps are counted: each looks at one holder or
//! waiter and takes well under a microsecond.

/// The budget of a look at locks, in steps: holders, waiters, queues.
pub(crate) const LOOK_STEPS: usize = 10_000;

/// The steps that a search may still take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: usize,
}

/// A search was given up before it had seen everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut;

impl Budget {
    pub(crate) const fn new(steps: usize) -> Budget {
        Budget { left: steps }
    }

    /// Takes so many steps, unless there are fewer left.
    pub(crate) fn take(&mut self, steps: usize) -> Result<(), Cut> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(Cut)
            }
        }
    }

    pub(crate) fn left(&self) -> usize {
        self.left
    }
}
