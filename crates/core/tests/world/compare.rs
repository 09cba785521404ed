//! Everything that can be seen of both sides after a step must be the same.

use std::fmt::Debug;

use leasehold_core::*;

use super::World;
use super::resolve::{KEYS, namespace_of};

/// An outcome and what else came of the same command.
type Result_<'a> = (&'a Outcome, &'a Step);

impl World {
    pub(super) fn compare(
        &mut self,
        expected: Result_<'_>,
        actual: Result_<'_>,
    ) -> Result<(), String> {
        same("outcome", &plain_outcome(expected.0), &plain_outcome(actual.0))?;
        same("answers", &answers(expected.1), &answers(actual.1))?;
        same("endings told to holders", &losses(expected.1), &losses(actual.1))?;
        same("wishes told to holders", &wishes(expected.1), &wishes(actual.1))?;
        same_order("changes", &changes(expected.1), &changes(actual.1))?;
        same("news", &news(expected.1), &news(actual.1))?;
        self.compare_state()?;
        if self.thorough || self.steps.is_multiple_of(3) { self.compare_reads() } else { Ok(()) }
    }

    fn compare_state(&self) -> Result<(), String> {
        same("stats", &self.model.stats(), &self.table.stats())?;
        same("grace", &self.model.grace_view(), &self.table.grace())?;
        self.compare_deadline()?;
        for namespace in (0..3).map(namespace_of) {
            for scope in everything() {
                let expected = self.model.get(&namespace, &scope);
                same("lock", &expected, &self.table.get(&namespace, &scope))?;
            }
            let sessions = self.table.sessions(&namespace, 0, usize::MAX);
            same("sessions", &self.model.session_views(&namespace), &sessions)?;
        }
        for namespace in (0..3).map(namespace_of) {
            let registers = self.table.registers(&namespace, None, usize::MAX);
            same("registers", &self.model.registers(&namespace), &registers)?;
        }
        Ok(())
    }

    /// The table may look again too early, never too late.
    fn compare_deadline(&self) -> Result<(), String> {
        let (expected, actual) = (self.model.next_deadline(), self.table.next_deadline());
        let fine = match (expected, actual) {
            (None, None) => true,
            (Some(expected), Some(actual)) => actual <= expected,
            (None, Some(_)) | (Some(_), None) => false,
        };
        if fine { Ok(()) } else { Err(format!("next deadline: {expected:?} expected, {actual:?}")) }
    }
}

/// Scopes that together overlap everything in the small world.
fn everything() -> impl Iterator<Item = Scope> {
    let keys = KEYS.iter().map(|key| Scope::parse(key).unwrap());
    keys.chain([Scope::inode(1), Scope::inode(2)])
}

pub(super) fn same<T: PartialEq + Debug>(
    what: &str,
    expected: &T,
    actual: &T,
) -> Result<(), String> {
    if expected == actual {
        return Ok(());
    }
    Err(format!("{what} differ\nexpected: {expected:#?}\n  actual: {actual:#?}"))
}

fn same_order(what: &str, expected: &[String], actual: &[String]) -> Result<(), String> {
    let (mut one, mut other) = (expected.to_vec(), actual.to_vec());
    one.sort();
    other.sort();
    let what = if one == other { &format!("order of {what}") } else { what };
    same(what, &expected, &actual)
}

fn plain_outcome(outcome: &Outcome) -> Outcome {
    match outcome {
        Outcome::Refused(refusal) => Outcome::Refused(plain(refusal)),
        Outcome::Answered(_) | Outcome::Queued(_) => outcome.clone(),
    }
}

/// A refusal without what may be told in more than one way: by which of the contenders a limit is in use.
fn plain(refusal: &Refusal) -> Refusal {
    let mut refusal = refusal.clone();
    if let Refusal::LimitMismatch { current: current @ Mode::Shared, .. } = &mut refusal {
        *current = Mode::Exclusive;
    }
    refusal
}

/// What waiting calls were told, in order.
fn answers(step: &Step) -> Vec<Effect> {
    let told = step.effects.iter().filter_map(|effect| match effect {
        Effect::Granted { .. } => Some(effect.clone()),
        Effect::Refused { call, refusal } => {
            Some(Effect::Refused { call: *call, refusal: plain(refusal) })
        }
        Effect::Lost { .. } | Effect::Wanted { .. } | Effect::Event(_) => None,
    });
    told.collect()
}

fn losses(step: &Step) -> Vec<String> {
    sorted(step.effects.iter().filter_map(|effect| match effect {
        Effect::Lost { namespace, lease, fence, ending } => {
            Some(format!("{namespace} lease-{} {fence:?} {ending:?}", lease.as_u128()))
        }
        Effect::Granted { .. }
        | Effect::Refused { .. }
        | Effect::Wanted { .. }
        | Effect::Event(_) => None,
    }))
}

fn wishes(step: &Step) -> Vec<String> {
    let mut wishes = sorted(step.effects.iter().filter_map(|effect| match effect {
        Effect::Wanted { namespace, lease, fence, scope, waiter } => {
            Some(format!("{namespace} lease-{} {fence} {scope} {waiter}", lease.as_u128()))
        }
        Effect::Granted { .. }
        | Effect::Refused { .. }
        | Effect::Lost { .. }
        | Effect::Event(_) => None,
    }));
    wishes.dedup();
    wishes
}

/// Transitions in order. How an ending is written down does not matter, only what it leaves; news tell that.
fn changes(step: &Step) -> Vec<String> {
    let ended = |namespace: &Namespace, lease: &LeaseId, ending: &Ending| {
        format!("{namespace} lease-{} {ending:?}", lease.as_u128())
    };
    let told = step.transitions.iter().map(|transition| match transition {
        Transition::LeaseEnded { namespace, lease, ending }
        | Transition::GrantEnded { namespace, lease, ending, .. }
        | Transition::KeyEnded { namespace, lease, ending, .. }
        | Transition::RangeEnded { namespace, lease, ending, .. } => {
            ended(namespace, lease, ending)
        }
        Transition::LeaseEnding { namespace, lease, ending } => {
            format!("{} ends", ended(namespace, lease, ending))
        }
        Transition::LeaseLapsed { namespace, lease, ending } => {
            format!("{} lapsed", ended(namespace, lease, ending))
        }
        Transition::Granted(granted) => {
            let mut granted = granted.clone();
            if let Some(request) = &mut granted.request {
                request.digest = 0;
            }
            format!("lease-{} {granted:?}", granted.lease.as_u128())
        }
        Transition::SessionOpened(opened) => {
            let mut opened = opened.clone();
            if let Some(request) = &mut opened.terms.request {
                request.digest = 0;
            }
            format!("lease-{} {opened:?}", opened.lease.as_u128())
        }
        Transition::TtlChanged { lease, .. } => {
            format!("lease-{} {transition:?}", lease.as_u128())
        }
        Transition::EpochBegan { .. }
        | Transition::Jumped { .. }
        | Transition::FenceAccepted { .. }
        | Transition::FenceDeleted { .. } => format!("{transition:?}"),
    });
    told.collect()
}

/// News in the order of the changes they are about; those about one change in any order, and so the ends of windows.
fn news(step: &Step) -> Vec<String> {
    sorted(step.effects.iter().filter_map(|effect| match effect {
        Effect::Event(event) => {
            let news = &event.news;
            let any_order =
                matches!(news, News::Ended { ending: Ending::WindowOver | Ending::Withdrawn, .. });
            let revision = if any_order { 0 } else { event.revision.0 };
            Some(format!("{revision:06} {} {} {news:?}", event.at, event.namespace))
        }
        Effect::Granted { .. }
        | Effect::Refused { .. }
        | Effect::Lost { .. }
        | Effect::Wanted { .. } => None,
    }))
}

fn sorted(texts: impl Iterator<Item = String>) -> Vec<String> {
    let mut texts: Vec<String> = texts.collect();
    texts.sort();
    texts
}
