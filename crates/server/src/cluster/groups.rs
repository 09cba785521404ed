//! The groups of namespaces, and this server's part in each.
//!
//! A group is a journal, a leader and a fence counter of its own. Which group a namespace belongs to follows from its
//! name, so that every server agrees without asking.

use leasehold_core::Namespace;
use leasehold_engine::{Handle, Phase, Status};

/// This server's engines, one for each group.
#[derive(Debug)]
pub(crate) struct Groups {
    engines: Vec<Handle>,
}

impl Groups {
    /// At least one.
    pub(crate) fn new(engines: Vec<Handle>) -> Groups {
        assert!(!engines.is_empty(), "there is always a group");
        Groups { engines }
    }

    pub(crate) fn engine(&self, namespace: &Namespace) -> &Handle {
        &self.engines[group_of(namespace, self.engines.len())]
    }

    pub(crate) fn all(&self) -> &[Handle] {
        &self.engines
    }

    /// The engine that says how this server is doing: one that is not well, if there is one.
    pub(crate) fn worst(&self) -> &Handle {
        let mut engines = self.engines.iter();
        engines.find(|engine| !is_well(&engine.status())).unwrap_or(&self.engines[0])
    }
}

/// Whether an engine serves, or knows who does, and its store works.
fn is_well(status: &Status) -> bool {
    matches!(status.phase, Phase::Leading | Phase::Following) && status.store_failure.is_none()
}

/// The same for ever: what a namespace has stored stays with its group.
pub(crate) fn group_of(namespace: &Namespace, groups: usize) -> usize {
    // FNV-1a.
    let hash = namespace.as_str().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let groups = u64::try_from(groups).unwrap_or(1).max(1);
    usize::try_from(hash % groups).expect("less than the number of groups")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_stays_with_its_group() {
        let group = |name: &str, groups| group_of(&Namespace::new(name).expect("a name"), groups);
        assert_eq!(group("default", 1), 0);
        assert_eq!([group("default", 8), group("team-a", 8), group("team-b", 8)], [6, 6, 3]);
    }

    #[test]
    fn an_engine_is_well_while_it_serves_and_its_store_works() {
        let status = |phase, failure: Option<&str>| Status {
            phase,
            epoch: leasehold_core::Epoch(1),
            revision: leasehold_core::Revision(1),
            grace: None,
            store: "memory",
            store_failure: failure.map(Into::into),
            leader: None,
        };
        assert!(is_well(&status(Phase::Leading, None)));
        assert!(is_well(&status(Phase::Following, None)));
        assert!(!is_well(&status(Phase::Leading, Some("disk full"))));
        assert!(!is_well(&status(Phase::Doubtful, None)));
        assert!(!is_well(&status(Phase::Starting, None)));
    }

    #[test]
    fn namespaces_spread_over_the_groups() {
        let mut counts = [0; 8];
        for number in 0..800 {
            let name = Namespace::new(&format!("team-{number}")).expect("a name");
            counts[group_of(&name, 8)] += 1;
        }
        assert!(counts.iter().all(|count| (60..=140).contains(count)), "{counts:?}");
    }
}
