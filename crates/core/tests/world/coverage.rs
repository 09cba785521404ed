//! What a campaign must have seen at least once, or it shows nothing.

use std::collections::BTreeMap;

use leasehold_core::*;

/// How often each thing came about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    seen: BTreeMap<&'static str, usize>,
}

/// Names every variant of an enum: a function from a value to its name, and the list of all names.
macro_rules! variants {
    ($name:ident, $all:ident, $kind:ty, $label:literal: $($pattern:pat $(if $guard:expr)? => $text:literal,)*) => {
        fn $name(value: &$kind) -> &'static str {
            match value {
                $($pattern $(if $guard)? => concat!($label, " ", $text),)*
            }
        }
        const $all: &[&str] = &[$(concat!($label, " ", $text)),*];
    };
}

variants! { command_name, COMMANDS, Command, "command":
    Command::Acquire(_) => "acquire",
    Command::Renew(_) => "renew",
    Command::Release(_) => "release",
    Command::ByOwner(ask) if ask.action == OwnerAction::Release => "release by owner",
    Command::ByOwner(_) => "hold by owner",
    Command::Unlock(_) => "unlock",
    Command::Cancel(_) => "cancel",
    Command::OpenSession(_) => "open session",
    Command::KeepAlive(_) => "keep alive",
    Command::CloseSession(_) => "close session",
    Command::Attach(_) => "attach",
    Command::Disconnect(_) => "disconnect",
    Command::AcceptFence(_) => "accept fence",
    Command::DeleteFence(_) => "delete fence",
    Command::Break(_) => "break",
    Command::BreakSession(_) => "break session",
    Command::RemoveFile(_) => "remove file",
    Command::Withdraw(_) => "withdraw",
    Command::BeginEpoch(_) => "begin epoch",
    Command::Jump(_) => "jump",
    Command::Suspend => "suspend",
    Command::Resume => "resume",
    Command::Tick => "tick",
}

variants! { mode_name, MODES, Mode, "mode granted":
    Mode::Exclusive => "exclusive",
    Mode::Shared => "shared",
    Mode::Permits(_) => "permits",
}

variants! { scope_name, SCOPES, ScopeKind, "scope granted":
    ScopeKind::Named => "named",
    ScopeKind::Path => "path",
    ScopeKind::Subtree => "subtree",
    ScopeKind::Inode => "inode",
    ScopeKind::Range => "range",
}

variants! { answer_name, ANSWERS, Answer, "answer":
    Answer::Granted(grant) if grant.replayed => "granted before",
    Answer::Granted(_) => "granted",
    Answer::Renewed(_) => "renewed",
    Answer::Released { replayed: true, .. } => "released before",
    Answer::Released { .. } => "released",
    Answer::Unlocked { changed: true } => "unlocked",
    Answer::Unlocked { changed: false } => "unlocked nothing",
    Answer::Cancelled { waiting: true } => "cancelled",
    Answer::Cancelled { waiting: false } => "cancelled nothing",
    Answer::SessionOpened(opened) if opened.replayed => "session opened before",
    Answer::SessionOpened(_) => "session opened",
    Answer::SessionClosed { replayed: true, .. } => "session closed before",
    Answer::SessionClosed { .. } => "session closed",
    Answer::Disconnected { kept_until: Some(_) } => "disconnected and kept",
    Answer::Disconnected { kept_until: None } => "disconnected and released",
    Answer::FenceAccepted { .. } => "fence accepted",
    Answer::FenceDeleted { .. } => "fence deleted",
    Answer::Broken { grants: 0, .. } => "broken nothing",
    Answer::Broken { .. } => "broken",
    Answer::FileRemoved { .. } => "file removed",
    Answer::Withdrawn { found: true } => "withdrawn",
    Answer::Withdrawn { found: false } => "withdrawn nothing",
    Answer::EpochBegun { .. } => "epoch begun",
    Answer::Done => "done",
}

variants! { refusal_name, REFUSALS, Refusal, "refusal":
    Refusal::Held(_) => "held",
    Refusal::ReclaimWindow(_) => "reclaim window",
    Refusal::GracePeriod { .. } => "grace period",
    Refusal::GracePeriodPlaceKept { .. } => "grace period, place kept",
    Refusal::NoGrace => "no grace",
    Refusal::Deadlock { .. } => "deadlock",
    Refusal::LeaseLost(None) => "lease lost",
    Refusal::LeaseLost(Some(Gone::Unknown)) => "lease lost, unknown",
    Refusal::LeaseLost(Some(Gone::Expired)) => "lease lost, expired",
    Refusal::LeaseLost(Some(Gone::Released | Gone::OtherScope)) => "lease lost, released",
    Refusal::LeaseLost(Some(Gone::Superseded)) => "lease lost, superseded",
    Refusal::NotHolder { why: None, .. } => "not holder",
    Refusal::NotHolder { why: Some(Gone::Unknown), .. } => "not holder, unknown",
    Refusal::NotHolder { why: Some(Gone::Expired), .. } => "not holder, expired",
    Refusal::NotHolder { why: Some(Gone::Released), .. } => "not holder, released",
    Refusal::NotHolder { why: Some(Gone::OtherScope), .. } => "not holder, other scope",
    Refusal::NotHolder { why: Some(Gone::Superseded), .. } => "not holder, superseded",
    Refusal::NothingToReclaim(_) => "nothing to reclaim",
    Refusal::LimitMismatch { .. } => "limit mismatch",
    Refusal::RequestIdReused => "request id reused",
    Refusal::SessionNotFound(None | Some(Gone::Unknown | Gone::OtherScope)) => "session not found",
    Refusal::SessionNotFound(Some(Gone::Expired)) => "session not found, expired",
    Refusal::SessionNotFound(Some(Gone::Released)) => "session not found, released",
    Refusal::SessionNotFound(Some(Gone::Superseded)) => "session not found, superseded",
    Refusal::TicketNotFound(_) => "ticket not found",
    Refusal::StaleFence { .. } => "stale fence",
    Refusal::RegisterNotFound(_) => "register not found",
    Refusal::Limit(Limit::WaitersPerScope { .. }) => "limit waiters per scope",
    // Quotas have tests of their own: `quotas.rs`.
    Refusal::Limit(Limit::Waiters { .. } | Limit::TooTangled | Limit::Quota { .. }) => "limit waiters",
    Refusal::Limit(Limit::OwnRanges { .. }) => "limit own ranges",
    Refusal::Limit(Limit::LocksPerSession { .. }) => "limit locks per session",
    Refusal::Limit(Limit::WindowedLocksPerSession { .. }) => "limit locks with windows per session",
    Refusal::Limit(Limit::Sessions { .. }) => "limit sessions",
    Refusal::Limit(Limit::Registers { .. }) => "limit registers",
    Refusal::Limit(Limit::RegistersInAll { .. }) => "limit registers in all",
    Refusal::Limit(Limit::Namespaces { .. }) => "limit namespaces",
    Refusal::Limit(Limit::Tokens) => "limit tokens",
    Refusal::Invalid(Invalid::Ttl { .. }) => "invalid ttl",
    Refusal::Invalid(Invalid::DisconnectTtl { .. }) => "invalid disconnect ttl",
    Refusal::Invalid(Invalid::ReclaimWindow { .. }) => "invalid reclaim window",
    Refusal::Invalid(Invalid::Wait { .. }) => "invalid wait",
    Refusal::Invalid(Invalid::SetSize { .. }) => "invalid set size",
    Refusal::Invalid(Invalid::SetOverlap { .. }) => "invalid set overlap",
    Refusal::Invalid(Invalid::RangePermits(_)) => "invalid range permits",
    Refusal::Invalid(Invalid::Permits { .. }) => "invalid permits",
    Refusal::Invalid(Invalid::MetadataSize { .. }) => "invalid metadata size",
    Refusal::Invalid(Invalid::NotOneGrant) => "invalid reclaim of several grants",
    Refusal::Invalid(Invalid::FenceNotIssued { .. }) => "invalid token never issued",
    Refusal::Invalid(Invalid::LeaseIdInUse) => "invalid lease id in use",
    Refusal::FileRemoved(_) => "file removed",
    Refusal::Suspended => "suspended",
    Refusal::StaleEpoch { .. } => "stale epoch",
}

variants! { ending_name, ENDINGS, Ending, "ending":
    Ending::Released => "released",
    Ending::Closed => "closed",
    Ending::Expired => "expired",
    Ending::GraceExpired => "grace expired",
    Ending::Disconnected => "disconnected",
    Ending::Revoked(_) => "revoked",
    Ending::FileRemoved => "file removed",
    Ending::Replaced => "replaced",
    Ending::Withdrawn => "withdrawn",
    Ending::WindowOver => "window over",
    Ending::Reclaimed => "reclaimed",
}

variants! { news_name, NEWS, News, "news":
    News::EpochBegan { .. } => "epoch began",
    News::GraceEnded => "grace ended",
    News::SessionOpened { .. } => "session opened",
    News::SessionEnded { .. } => "session ended",
    News::Granted { .. } => "granted",
    News::Ended { window: None, .. } => "ended",
    News::Ended { window: Some(_), .. } => "ended, window open",
    News::TtlChanged { .. } => "ttl changed",
    News::FenceAccepted { .. } => "fence accepted",
    News::FenceDeleted { .. } => "fence deleted",
    News::Queued { .. } => "queued",
    News::Left { .. } => "left",
    News::Deadlock { .. } => "deadlock",
}

variants! { effect_name, EFFECTS, Effect, "effect":
    Effect::Granted { .. } => "granted",
    Effect::Refused { .. } => "refused",
    Effect::Lost { .. } => "lost",
    Effect::Wanted { .. } => "wanted",
    Effect::Event(_) => "event",
}

/// Shapes of states and requests that no variant stands for.
const SHAPES: &[&str] = &[
    "set granted",
    "set of keys and bytes granted",
    "waiter granted",
    "several waiters granted in one step",
    "waiter refused for a deadlock",
    "deadlock of one",
    "deadlock of two",
    "deadlock of three or more",
    "place kept",
    "place taken up",
    "several calls for one waiter answered",
];

impl Coverage {
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    pub(crate) fn command(&mut self, command: &Command) {
        self.count(command_name(command));
    }

    pub(crate) fn outcome(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Answered(answer) => self.count(answer_name(answer)),
            Outcome::Queued(_) => {}
            Outcome::Refused(refusal) => self.refusal(refusal),
        }
    }

    fn refusal(&mut self, refusal: &Refusal) {
        self.count(refusal_name(refusal));
        if let Refusal::Deadlock { cycle } = refusal {
            self.count(match cycle.len() {
                0 | 1 => "deadlock of one",
                2 => "deadlock of two",
                _ => "deadlock of three or more",
            });
        }
        if let Refusal::Held(conflict) = refusal
            && conflict.place.is_some()
        {
            self.count("place kept");
        }
    }

    pub(crate) fn step(&mut self, step: &Step) {
        let mut answered = Vec::new();
        for effect in &step.effects {
            self.count(effect_name(effect));
            match effect {
                Effect::Granted { grant, .. } => {
                    self.count("waiter granted");
                    answered.push(grant.fence);
                }
                Effect::Refused { refusal, .. } => {
                    self.refusal(refusal);
                    if matches!(refusal, Refusal::Deadlock { .. }) {
                        self.count("waiter refused for a deadlock");
                    }
                }
                Effect::Event(event) => self.news(&event.news),
                Effect::Lost { .. } | Effect::Wanted { .. } => {}
            }
        }
        let calls = answered.len();
        answered.dedup();
        if answered.len() < calls {
            self.count("several calls for one waiter answered");
        }
        if answered.len() > 1 {
            self.count("several waiters granted in one step");
        }
        for transition in &step.transitions {
            self.transition(transition);
        }
    }

    fn news(&mut self, news: &News) {
        self.count(news_name(news));
        if let News::Ended { ending, .. } | News::SessionEnded { ending, .. } = news {
            self.count(ending_name(ending));
        }
    }

    fn transition(&mut self, transition: &Transition) {
        let Transition::Granted(granted) = transition else {
            return;
        };
        let mut kinds: Vec<bool> = Vec::new();
        for claim in &granted.claims {
            self.count(mode_name(&claim.mode));
            self.count(scope_name(&claim.scope.kind()));
            kinds.push(matches!(claim.scope, Scope::Key(_)));
        }
        if kinds.len() > 1 {
            self.count("set granted");
        }
        if kinds.contains(&true) && kinds.contains(&false) {
            self.count("set of keys and bytes granted");
        }
    }

    /// Everything that never came about.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        [COMMANDS, MODES, SCOPES, ANSWERS, REFUSALS, ENDINGS, NEWS, EFFECTS, SHAPES]
            .into_iter()
            .flatten()
            .copied()
            .filter(|what| !self.seen.contains_key(what))
            .collect()
    }

    /// The rarest, for the curious.
    pub(crate) fn rarest(&self, len: usize) -> Vec<(usize, &'static str)> {
        let mut seen: Vec<_> = self.seen.iter().map(|(what, times)| (*times, *what)).collect();
        seen.sort_unstable();
        seen.truncate(len);
        seen
    }
}
