//! Bugs put in on purpose. A test suite is believed when it finds them.
//!
//! Without the feature `planted` every hook below is the constant `false`. With it, the test harness picks one bug
//! by name; see `planted.txt` for what each of them does. The crates above plant theirs with the same macro: those are
//! listed in the simulator's `planted.txt`.

/// True where the named bug is the active one and the condition holds.
#[cfg(feature = "planted")]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        $crate::planted::is_active($name)
    };
    ($name:literal, $condition:expr) => {
        ($condition) && $crate::planted::is_active($name)
    };
}

/// Never true: no bugs are planted in this build.
#[cfg(not(feature = "planted"))]
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        false
    };
    ($name:literal, $condition:expr) => {{
        let _ = $condition;
        false
    }};
}

#[cfg(feature = "planted")]
pub use hooks::{ALL, activate, is_active};

#[cfg(feature = "planted")]
mod hooks {
    use std::sync::OnceLock;

    static ACTIVE: OnceLock<String> = OnceLock::new();

    /// Every planted bug: its name and what goes wrong.
    pub static ALL: &str = include_str!("../planted.txt");

    /// Picks the bug that is to be there from now on; the first call in a process decides.
    pub fn activate(name: &str) {
        ACTIVE.get_or_init(|| name.to_owned());
    }

    /// Whether this is the bug that was picked.
    pub fn is_active(name: &str) -> bool {
        ACTIVE.get().is_some_and(|active| active == name)
    }
}

#[cfg(all(test, feature = "planted"))]
mod tests {
    #[test]
    fn every_hook_is_described_and_every_description_has_its_hook() {
        let described: std::collections::BTreeSet<&str> = super::ALL
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| Some(line.split_once(": ")?.0))
            .collect();
        let sources = [
            include_str!("change.rs"),
            include_str!("conflict.rs"),
            include_str!("graph/mod.rs"),
            include_str!("lease.rs"),
            include_str!("queue.rs"),
            include_str!("snapshotting.rs"),
            include_str!("namespace.rs"),
            include_str!("tokens.rs"),
            include_str!("handle/acquire.rs"),
            include_str!("handle/deadlines.rs"),
            include_str!("handle/fences.rs"),
            include_str!("handle/release.rs"),
            include_str!("handle/renew.rs"),
            include_str!("handle/waiting.rs"),
        ];
        let hooks: std::collections::BTreeSet<&str> = sources
            .iter()
            .flat_map(|source| source.split("planted!(\"").skip(1))
            .filter_map(|rest| rest.split('"').next())
            .collect();
        assert_eq!(hooks, described);
    }
}
