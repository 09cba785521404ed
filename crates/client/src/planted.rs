//! Bugs put in on purpose, as in the core: the simulator is believed when it finds them.
//!
//! Without the feature `planted` every hook is the constant `false`. The simulator's `planted.txt` says what each does.

#[cfg(feature = "planted")]
macro_rules! planted {
    ($name:literal) => {
        $crate::planted::is_active($name)
    };
}

#[cfg(not(feature = "planted"))]
macro_rules! planted {
    ($name:literal) => {
        false
    };
}

#[cfg(feature = "planted")]
pub use hooks::activate;
#[cfg(feature = "planted")]
pub(crate) use hooks::is_active;

#[cfg(feature = "planted")]
mod hooks {
    use std::sync::OnceLock;

    static ACTIVE: OnceLock<String> = OnceLock::new();

    /// Picks the bug that is to be there from now on; the first call in a process decides.
    pub fn activate(name: &str) {
        ACTIVE.get_or_init(|| name.to_owned());
    }

    pub(crate) fn is_active(name: &str) -> bool {
        ACTIVE.get().is_some_and(|active| active == name)
    }
}
