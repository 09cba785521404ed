//! Holders and states as text, the same in every verb.

use leasehold_api::{Holder, LockState, Mode};

use crate::output::{short, shown};

pub(crate) const HOLDER_HEAD: [&str; 6] = ["HELD", "OWNER", "MODE", "TOKEN", "SINCE", "LEFT"];

pub(crate) fn holder_rows(holder: &Holder) -> Vec<String> {
    vec![
        shown(&holder.lock),
        shown(&holder.owner_id),
        mode(holder.mode, holder.permits),
        holder.fencing_token.to_string(),
        holder.acquired_at.clone(),
        short(holder.expires_in_ms),
    ]
}

pub(crate) const fn state(state: LockState) -> &'static str {
    match state {
        LockState::Free => "free",
        LockState::Held => "held",
        LockState::Recovering => "recovering",
        LockState::ReclaimWindow => "kept for its last owner",
    }
}

pub(crate) fn mode(mode: Mode, permits: Option<u32>) -> String {
    match (mode, permits) {
        (Mode::Exclusive, _) => "exclusive".into(),
        (Mode::Shared, _) => "shared".into(),
        (Mode::Permits, Some(permits)) => format!("1 of {permits}"),
        (Mode::Permits, None) => "permits".into(),
    }
}
