//! What the locks are for: a resource per lock that compares fences, as a disk or a database would.

use std::collections::BTreeMap;

use leasehold_core::{FencingToken, Mode, Namespace, Scope};

use super::{Judge, Verdict};
use crate::coverage::Coverage;
use crate::time::Moment;

/// The highest fence that each resource has seen.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    seen: BTreeMap<(Namespace, Scope), FencingToken>,
}

impl Judge {
    /// A holder writes to what its lock guards, with the fence of its grant. The resource takes nothing lower than it has
    /// seen; and it must never be the rightful holder that is turned away.
    pub fn write(
        &mut self,
        now: Moment,
        (namespace, scope): (&Namespace, &Scope),
        fence: FencingToken,
        coverage: &mut Coverage,
    ) -> Result<(), Verdict> {
        let seen = self
            .resources
            .seen
            .entry((namespace.clone(), scope.clone()))
            .or_insert(FencingToken::ZERO);
        if fence >= *seen {
            *seen = fence;
            coverage.mark("write accepted");
            return Ok(());
        }
        coverage.mark("stale write refused");
        let (seen, grant) = (*seen, self.log.grant(fence));
        let holds = grant.is_some_and(|grant| {
            let mine = grant.granted.claims.iter().find(|claim| claim.scope == *scope);
            grant.over.is_none() && mine.is_some_and(|claim| claim.mode == Mode::Exclusive)
        });
        if holds {
            let what = format!("{scope} was written with fence {seen}, its holder has {fence}");
            return Err(Verdict::new(now, "a stale writer cannot win", what));
        }
        Ok(())
    }
}
