//! How things of the table are spelled in a transcript.

use std::time::Duration;

use leasehold_core::{
    Conflict, Gone, Grant, Holder, HolderState, Limit, LockState, Mode, Owner, Principal, Refusal,
    Scope, Timestamp, WaitEdge,
};

pub(super) fn moment(moment: Timestamp) -> String {
    length(Duration::from_millis(moment.as_millis()))
}

/// In seconds, with no more digits than it needs.
pub(super) fn length(length: Duration) -> String {
    let (secs, millis) = (length.as_secs(), length.subsec_millis());
    if millis == 0 {
        return format!("{secs}s");
    }
    let digits = format!("{millis:03}");
    format!("{secs}.{}s", digits.trim_end_matches('0'))
}

pub(super) fn scopes(scopes: &[Scope]) -> String {
    match scopes {
        [scope] => scope.to_string(),
        several => {
            let texts: Vec<String> = several.iter().map(Scope::to_string).collect();
            format!("{{{}}}", texts.join(", "))
        }
    }
}

/// Nothing for the usual one.
pub(super) fn mode(mode: Mode) -> String {
    match mode {
        Mode::Exclusive => String::new(),
        Mode::Shared => " shared".into(),
        Mode::Permits(limit) => format!(" permits={limit}"),
    }
}

pub(super) fn state(state: LockState) -> &'static str {
    match state {
        LockState::Free => "free",
        LockState::Held => "held",
        LockState::Recovering => "recovering",
        LockState::ReclaimWindow => "reclaim_window",
    }
}

pub(super) fn grant(scope: &[Scope], grant: &Grant) -> String {
    let again = if grant.replayed {
        format!(" again, as at {}", moment(grant.granted_at))
    } else {
        String::new()
    };
    format!(
        "granted {} fence={} until {}{again}",
        scopes(scope),
        grant.fence,
        moment(grant.deadline)
    )
}

/// A holder of something of `asked`: its own scope is only said where it is another.
pub(super) fn holder(asked: Option<&Scope>, holder: &Holder) -> String {
    let mut shown = owner(&holder.owner);
    if asked != Some(&holder.scope) {
        shown += &format!(" {}", holder.scope);
    }
    shown += &mode(holder.mode);
    shown += &format!(
        " fence={} since {} until {}",
        holder.fence,
        moment(holder.since),
        moment(holder.deadline)
    );
    shown += match holder.state {
        HolderState::Held => "",
        HolderState::Recovering => " recovering",
        HolderState::ReclaimWindow => " in its reclaim window",
    };
    if let Some(metadata) = &holder.metadata {
        shown += &format!(" meta={metadata}");
    }
    shown
}

pub(super) fn holders(asked: Option<&Scope>, holders: &[Holder]) -> String {
    let shown: Vec<String> = holders.iter().map(|one| holder(asked, one)).collect();
    shown.join(" and ")
}

fn conflict(conflict: &Conflict) -> String {
    let mut shown = match conflict.holders.as_slice() {
        [] => format!("{} without a holder", conflict.scope),
        some => format!("{} by {}", conflict.scope, holders(Some(&conflict.scope), some)),
    };
    if conflict.waiters > 0 {
        shown += &format!(", {} waiting", conflict.waiters);
    }
    if conflict.waited > Duration::ZERO {
        shown += &format!(", waited {}", length(conflict.waited));
    }
    if let Some(place) = conflict.place {
        shown += &format!(", place {} kept", place.position);
    }
    shown
}

/// `a -(job/x)-> b -(job/y)-> a`
pub(super) fn cycle(edges: &[WaitEdge]) -> String {
    let mut shown = edges.first().map_or(String::new(), |edge| edge.waiter.to_string());
    for (at, edge) in edges.iter().enumerate() {
        let follows = at == 0 || edges[at - 1].blocker == edge.waiter;
        if !follows {
            // The middle of a long one is left out.
            assert_eq!((at, edges.len()), (63, 64), "{edges:?} is no circle");
            shown += &format!(" … {}", edge.waiter);
        }
        shown += &format!(" -({})-> {}", edge.scope, edge.blocker);
    }
    shown
}

/// Why something is not good any more, behind what is not.
pub(super) fn gone(why: Option<Gone>) -> String {
    why.map_or(String::new(), |why| format!(" ({})", why.as_str()))
}

/// The name of a refusal, and what it tells.
pub(super) fn refusal(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Held(why) => format!("held: {}", conflict(why)),
        Refusal::ReclaimWindow(why) => format!("reclaim_window: {}", conflict(why)),
        Refusal::GracePeriod { ends_in } => {
            format!("grace_period: {} more", length(*ends_in))
        }
        Refusal::GracePeriodPlaceKept { ends_in, conflict: why } => {
            format!("grace_period: {} more, {}", length(*ends_in), conflict(why))
        }
        Refusal::NoGrace => "no_grace".into(),
        Refusal::Deadlock { cycle: edges } => format!("deadlock: {}", cycle(edges)),
        Refusal::LeaseLost(why) => format!("lease_lost{}", gone(*why)),
        Refusal::NotHolder { scope, why } => format!("not_holder{}: {scope}", gone(*why)),
        Refusal::NothingToReclaim(scope) => format!("not_holder: nothing to reclaim on {scope}"),
        Refusal::LimitMismatch { scope, current, asked } => {
            format!("limit_mismatch: {scope} is {current}, not {asked}")
        }
        Refusal::RequestIdReused => "request_id_reused".into(),
        Refusal::SessionNotFound(why) => format!("session_not_found{}", gone(*why)),
        Refusal::TicketNotFound(_) => "ticket_not_found".into(),
        Refusal::StaleFence { presented, high_water } => {
            format!("stale_fence: {presented} below {high_water}")
        }
        Refusal::RegisterNotFound(_) => "not_found".into(),
        Refusal::Limit(reached) => limit(reached),
        Refusal::Invalid(fault) => format!("invalid: {fault}"),
        Refusal::FileRemoved(inode) => format!("file_removed: inode {inode}"),
        Refusal::Suspended => "suspended".into(),
        Refusal::StaleEpoch { presented, current } => {
            format!("stale_epoch: {} after {}", presented.0, current.0)
        }
    }
}

fn limit(limit: &Limit) -> String {
    let name = match limit {
        Limit::WaitersPerScope { .. } => "waiters_per_scope",
        Limit::Waiters { .. } => "waiters",
        Limit::TooTangled => "deadlock check",
        Limit::OwnRanges { .. } => "own_ranges",
        Limit::LocksPerSession { .. } => "locks_per_session",
        Limit::WindowedLocksPerSession { .. } => "locks_per_session",
        Limit::Sessions { .. } => "session_limit",
        Limit::Registers { .. } => "registers",
        Limit::RegistersInAll { .. } => "registers in all",
        Limit::Namespaces { .. } => "namespaces",
        Limit::Quota { .. } => "quota",
        Limit::Tokens => "tokens",
    };
    format!("{name}: {limit}")
}

/// `a`, or `a@team` for that owner id of the principal `team`.
pub(super) fn owner(owner: &Owner) -> String {
    match owner.principal() {
        Principal::ANONYMOUS => owner.to_string(),
        principal => format!("{owner}@{principal}"),
    }
}

/// That an answer was cut short.
pub(crate) fn and_more(truncated: bool) -> &'static str {
    if truncated { " and more" } else { "" }
}
