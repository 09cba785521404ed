//! What must be true of every state of the small world.

use leasehold_core::Scope;
use leasehold_core::invariant::check_all;
use stateright::Property;

use super::model::Config;
use super::world::{Fault, Place, Slot, World};

pub(crate) fn all() -> Vec<Property<Config>> {
    vec![
        Property::always("the table keeps its promises", |_, world: &World| {
            check_all(&world.server.0.table).is_ok()
        }),
        Property::always("nobody believes to hold what another believes to hold", beliefs_agree),
        Property::always("fences only rise, across crashes too", |_, world: &World| {
            !matches!(world.fault, Some(Fault::FenceNotRising(_)))
        }),
        Property::always("a stale renewal or release changes nothing", |_, world: &World| {
            !matches!(world.fault, Some(Fault::StaleRequestCounts(_)))
        }),
        Property::always("a request that is in time counts", |_, world: &World| {
            !matches!(world.fault, Some(Fault::GoodRequestRefused(_)))
        }),
        Property::always(
            "a register takes no stale write after a newer one",
            |_, world: &World| !matches!(world.fault, Some(Fault::StaleWriteAccepted(_))),
        ),
        Property::always(
            "nobody is granted anything who does not wait for it",
            |_, world: &World| !matches!(world.fault, Some(Fault::GrantToNobody(_))),
        ),
        Property::always("a retry gets the same grant", |_, world: &World| {
            !matches!(world.fault, Some(Fault::GrantedTwice(_)))
        }),
        Property::always("every step keeps its promises", |_, world: &World| {
            !matches!(world.fault, Some(Fault::StepBreaksAPromise(_)))
        }),
    ]
}

/// Among clients whose clocks went on, no two count on locks that exclude each other.
fn beliefs_agree(config: &Config, world: &World) -> bool {
    let places = world.places();
    let believing: Vec<Place> = places.into_iter().filter(|at| believes(world.slot(*at))).collect();
    believing.iter().enumerate().all(|(at, one)| {
        believing[..at].iter().all(|other| {
            let ((scope, mode), (other_scope, other_mode)) =
                (config.lock(*one), config.lock(*other));
            let own_bytes = one.client == other.client && matches!(scope, Scope::Range { .. });
            own_bytes || !scope.overlaps(other_scope) || !mode.conflicts_with(*other_mode)
        })
    })
}

fn believes(slot: Slot) -> bool {
    match slot {
        Slot::Idle | Slot::Asking { .. } => false,
        Slot::Holding { age, ttl, doubtful, .. } => !doubtful && age <= ttl,
    }
}
