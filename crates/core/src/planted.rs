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
pub use hooks::{activate, is_active};

#[cfg(feature = "planted")]
mod hooks {
    use std::sync::OnceLock;

    static ACTIVE: OnceLock<String> = OnceLock::new();

    /// Picks the bug that is to be there from now on; the first call in a process decides.
    pub fn activate(name: &str) {
        ACTIVE.get_or_init(|| name.to_owned());
    }

    /// Whether this is the bug that was picked.
    pub fn is_active(name: &str) -> bool {
        ACTIVE.get().is_some_and(|active| active == name)
    }
}
