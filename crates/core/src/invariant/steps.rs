//! Promises about the way from one table to the next.

use super::{Checked, Earlier, ensure};
use crate::effect::Step;
use crate::id::LeaseId;
use crate::table::LockTable;
use crate::transition::Transition;

pub fn invariant_fences_only_rise(
    before: &impl Earlier,
    after: &LockTable,
    step: &Step,
) -> Checked {
    let mut last = before.last_fence();
    for transition in &step.transitions {
        if let Transition::Granted(granted) = transition {
            ensure(granted.fence > last, "every fence is above all before it", || {
                format!("{} after {last}", granted.fence)
            })?;
            last = granted.fence;
        }
    }
    ensure(after.fence >= last, "every fence is above all before it", || {
        format!("counter {} after {last}", after.fence)
    })
}

pub fn invariant_epochs_only_rise(before: &impl Earlier, after: &LockTable) -> Checked {
    ensure(after.epoch >= before.last_epoch(), "the epoch only rises", || {
        format!("{:?} after {:?}", after.epoch, before.last_epoch())
    })
}

/// Unless an operator has deleted it.
pub fn invariant_registers_only_rise(
    before: &impl Earlier,
    after: &LockTable,
    step: &Step,
) -> Checked {
    for (namespace, register, mark) in before.marks() {
        let now = after.register(namespace, register);
        let deleted = step.transitions.iter().any(|transition| {
            matches!(transition, Transition::FenceDeleted { namespace: n, register: r, .. }
                if (n, r) == (namespace, register))
        });
        ensure(
            deleted || now.is_some_and(|now| now >= mark),
            "a fence register only rises",
            || format!("{register}: {now:?} after {mark}"),
        )?;
    }
    Ok(())
}

pub fn invariant_revision_counts_transitions(
    before: &impl Earlier,
    after: &LockTable,
    step: &Step,
) -> Checked {
    let expected = before.last_revision().0 + step.transitions.len() as u64;
    // After a restore it goes on well above anything seen since the backup.
    let jumped = step.transitions.iter().any(|t| matches!(t, Transition::Jumped { .. }));
    let counted = after.revision.0 == expected || (jumped && after.revision.0 > expected);
    ensure(counted, "the revision counts every change", || {
        format!("{} instead of {expected}", after.revision.0)
    })
}

/// A lease that lapsed had a deadline, and it had passed.
pub fn invariant_leases_never_end_early(
    before: &impl Earlier,
    after: &LockTable,
    step: &Step,
) -> Checked {
    let lapsed = |ending: &crate::transition::Ending| {
        use crate::transition::Ending::{Expired, GraceExpired};
        matches!(ending, Expired | GraceExpired)
    };
    for transition in &step.transitions {
        let (namespace, lease): (_, LeaseId) = match transition {
            Transition::LeaseLapsed { namespace, lease, .. } => (namespace, *lease),
            Transition::LeaseEnding { namespace, lease, ending }
            | Transition::LeaseEnded { namespace, lease, ending }
                if lapsed(ending) =>
            {
                (namespace, *lease)
            }
            Transition::EpochBegan { .. }
            | Transition::Jumped { .. }
            | Transition::SessionOpened(_)
            | Transition::Granted(_)
            | Transition::TtlChanged { .. }
            | Transition::LeaseEnding { .. }
            | Transition::LeaseEnded { .. }
            | Transition::GrantEnded { .. }
            | Transition::KeyEnded { .. }
            | Transition::RangeEnded { .. }
            | Transition::FenceAccepted { .. }
            | Transition::FenceDeleted { .. } => continue,
        };
        let due = before.deadline_of(namespace, lease);
        ensure(due.is_some_and(|due| due < after.now), "a lease never lapses early", || {
            format!("at {}, due at {due:?}", after.now)
        })?;
    }
    Ok(())
}

/// The transitions of the step, replayed onto the table before it, give the table after it.
pub fn invariant_replay_gives_the_same_table(
    before: &LockTable,
    after: &LockTable,
    step: &Step,
) -> Checked {
    let mut replayed = before.clone();
    for transition in &step.transitions {
        if let Err(unfit) = replayed.apply(transition) {
            return ensure(false, "transitions replay", || unfit.to_string());
        }
    }
    ensure(replayed.digest() == after.digest(), "transitions replay to the same table", || {
        format!("{:?}", step.transitions)
    })
}
