//! Bugs put in on purpose. A test suite is believed when it finds them.
//!
//! Without the feature `planted` every hook below is the constant `false`. With it, the test harness picks one bug
//! by name; see `planted.txt` for what each of them does.

/// True where the named bug is the active one and the condition holds.
#[cfg(feature = "planted")]
macro_rules! planted {
    ($name:literal) => {
        $crate::planted::is_active($name)
    };
    ($name:literal, $condition:expr) => {
        ($condition) && $crate::planted::is_active($name)
    };
}

#[cfg(not(feature = "planted"))]
macro_rules! planted {
    ($name:literal) => {
        false
    };
    ($name:literal, $condition:expr) => {
        ($condition) && false
    };
}

#[cfg(feature = "planted")]
pub(crate) use hooks::is_active;
#[cfg(feature = "planted")]
pub use hooks::{ALL, activate};

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

    pub(crate) fn is_active(name: &str) -> bool {
        ACTIVE.get().is_some_and(|active| active == name)
    }
}
