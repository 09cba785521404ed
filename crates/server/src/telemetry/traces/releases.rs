//! The releases of late that were part of a trace: whoever waited for one is linked to it.

use std::collections::VecDeque;

use leasehold_core::{Claim, Namespace, Scope};
use parking_lot::Mutex;

use super::TraceContext;
use crate::telemetry::metrics::Stopwatch;

/// Beyond them the oldest is forgotten.
const LEN_MAX: usize = 1024;
/// A wait for a set can have ended by so many.
const LINKS_MAX: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Releases(Mutex<VecDeque<Release>>);

#[derive(Debug)]
struct Release {
    namespace: Namespace,
    scope: Scope,
    at: Stopwatch,
    context: TraceContext,
}

impl Releases {
    pub(super) fn remember(&self, namespace: &Namespace, scope: &Scope, context: TraceContext) {
        let (namespace, scope) = (namespace.clone(), scope.clone());
        let mut releases = self.0.lock();
        if releases.len() == LEN_MAX {
            releases.pop_front();
        }
        releases.push_back(Release { namespace, scope, at: Stopwatch::start(), context });
    }

    /// The last release of each of these since then, the newest first.
    pub(super) fn since(
        &self,
        namespace: &Namespace,
        claims: &[Claim],
        began: Stopwatch,
    ) -> Vec<TraceContext> {
        let releases = self.0.lock();
        let recent = || releases.iter().rev().take_while(|release| release.at >= began);
        let of = |claim: &Claim| {
            let mut found = recent().filter(|release| release.namespace == *namespace);
            found.find(|release| release.scope == claim.scope).map(|release| release.context)
        };
        claims.iter().filter_map(of).take(LINKS_MAX).collect()
    }
}
