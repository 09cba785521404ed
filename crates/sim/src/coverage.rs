//! What came about in all the worlds together: a campaign that never saw something was not looking for it.

use std::collections::BTreeMap;
use std::fmt;

use leasehold_core::{Command, Invalid, Limit, Refusal};
use leasehold_engine::{Call, CallError, Query};

use crate::plan::FAULT_NAMES;

/// Which faults are on, as bits in the order of their names.
pub type Faults = u32;

#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// By command, answer and fault: `none` if nothing was wrong.
    seen: BTreeMap<(&'static str, &'static str), [u64; FAULTS]>,
    /// Other things worth having come about.
    marks: BTreeMap<&'static str, u64>,
}

const FAULTS: usize = FAULT_NAMES.len() + 1;

/// Everything that clients can ask.
pub const COMMANDS: [&str; 28] = [
    "acquire",
    "renew",
    "release",
    "unlock",
    "cancel",
    "open",
    "keep-alive",
    "close",
    "attach",
    "disconnect",
    "accept-fence",
    "delete-fence",
    "break",
    "remove-file",
    "get",
    "test",
    "check",
    "list",
    "session",
    "sessions",
    "register",
    "registers",
    "graph",
    "overview",
    "tree",
    "stats",
    "break-session",
    "by-owner",
];

/// Every way to say no that a client can hear, and the command that must have heard it.
pub const REFUSALS: [(&str, &str); 49] = [
    ("acquire", "held"),
    ("acquire", "reclaim-window"),
    ("acquire", "grace-period"),
    ("acquire", "no-grace"),
    ("acquire", "deadlock"),
    ("acquire", "lease-lost"),
    ("acquire", "nothing-to-reclaim"),
    ("acquire", "limit-mismatch"),
    ("acquire", "request-id-reused"),
    ("acquire", "session-not-found"),
    ("acquire", "ticket-not-found"),
    ("acquire", "limit-waiters-per-scope"),
    ("acquire", "limit-waiters"),
    ("acquire", "limit-locks-per-session"),
    ("acquire", "limit-namespaces"),
    ("acquire", "invalid-ttl"),
    ("acquire", "invalid-reclaim-window"),
    ("acquire", "invalid-wait"),
    ("acquire", "invalid-set-size"),
    ("acquire", "invalid-set-overlap"),
    ("acquire", "invalid-range-permits"),
    ("acquire", "invalid-permits"),
    ("acquire", "invalid-metadata"),
    ("acquire", "invalid-not-one-grant"),
    ("acquire", "file-removed"),
    ("acquire", "store-unavailable"),
    ("acquire", "store-unknown"),
    ("acquire", "not-leader"),
    ("acquire", "draining"),
    ("open", "limit-sessions"),
    ("open", "invalid-ttl"),
    ("open", "invalid-disconnect-ttl"),
    ("open", "store-unavailable"),
    ("renew", "lease-lost"),
    ("renew", "not-holder"),
    ("renew", "invalid-ttl"),
    ("renew", "not-leader"),
    ("release", "not-holder"),
    ("keep-alive", "session-not-found"),
    ("close", "session-not-found"),
    ("attach", "session-not-found"),
    ("unlock", "session-not-found"),
    ("by-owner", "held"),
    ("by-owner", "reclaim-window"),
    ("by-owner", "not-holder"),
    ("accept-fence", "stale-fence"),
    ("accept-fence", "limit-registers"),
    ("accept-fence", "invalid-token-not-issued"),
    ("delete-fence", "register-not-found"),
];

/// Other things that must have come about.
pub const MARKS: [&str; 20] = [
    "epoch began",
    "leader changed",
    "snapshot committed",
    "record torn",
    "record doubled",
    "everything forgotten",
    "history judged",
    "grant withdrawn",
    "grant replayed",
    "waiter granted",
    "place taken up",
    "lease reclaimed",
    "lease recovered",
    "belief ended by jeopardy",
    "belief ended by loss",
    "stale write refused",
    "write accepted",
    "set granted",
    "unknown append settled",
    "holder told of loss",
];

impl Coverage {
    pub fn answered(&mut self, command: &'static str, answer: &'static str, faults: Faults) {
        let row = self.seen.entry((command, answer)).or_insert([0; FAULTS]);
        if faults == 0 {
            row[FAULTS - 1] += 1;
        }
        for (fault, count) in row.iter_mut().enumerate().take(FAULTS - 1) {
            *count += u64::from(faults >> fault & 1);
        }
    }

    pub fn mark(&mut self, what: &'static str) {
        *self.marks.entry(what).or_insert(0) += 1;
    }

    pub fn add(&mut self, other: &Coverage) {
        for (key, row) in &other.seen {
            let sums = self.seen.entry(*key).or_insert([0; FAULTS]);
            sums.iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
        }
        for (mark, count) in &other.marks {
            *self.marks.entry(mark).or_insert(0) += count;
        }
    }

    fn total(&self, command: &str, answer: Option<&str>) -> [u64; FAULTS] {
        let mut sums = [0; FAULTS];
        for ((seen, said), row) in &self.seen {
            if *seen == command && answer.is_none_or(|answer| answer == *said) {
                sums.iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
            }
        }
        sums
    }

    /// What should have come about and did not: every command under every fault, every refusal, every refusal under
    /// some fault, every mark.
    pub fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for command in COMMANDS {
            let row = self.total(command, None);
            for (fault, count) in row.iter().enumerate() {
                if *count == 0 {
                    let fault = FAULT_NAMES.get(fault).unwrap_or(&"no fault");
                    missing.push(format!("{command} under {fault}"));
                }
            }
        }
        for (command, refusal) in REFUSALS {
            if self.total(command, Some(refusal)).iter().all(|count| *count == 0) {
                missing.push(format!("{command} refused with {refusal}"));
            }
        }
        for mark in MARKS {
            if !self.marks.contains_key(mark) {
                missing.push(mark.to_string());
            }
        }
        missing
    }

    /// How many of the combinations of command, answer and fault there were.
    pub fn combinations(&self) -> usize {
        self.seen.values().flatten().filter(|count| **count > 0).count()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut command = "";
        for ((asked, answer), row) in &self.seen {
            if *asked != command {
                command = asked;
                write!(f, "\n  {asked:<13}")?;
            }
            let (calm, faulty) = (row[FAULTS - 1], row[..FAULTS - 1].iter().max());
            write!(f, " {answer} {calm}+{}", faulty.unwrap_or(&0))?;
        }
        write!(f, "\n ")?;
        for (mark, count) in &self.marks {
            write!(f, " {mark} {count};")?;
        }
        Ok(())
    }
}

pub fn name_of(call: &Call) -> &'static str {
    match call {
        Call::Command(command) => name_of_command(command),
        Call::Query(query) => match query {
            Query::Get { .. } => "get",
            Query::Test { .. } => "test",
            Query::Check { .. } => "check",
            Query::List(_) => "list",
            Query::Session { .. } => "session",
            Query::Sessions { .. } => "sessions",
            Query::Register { .. } => "register",
            Query::Registers { .. } => "registers",
            Query::Token { .. } => "token",
            Query::Graph { .. } => "graph",
            Query::Overview { .. } => "overview",
            Query::Tree(_) => "tree",
            Query::Stats => "stats",
        },
    }
}

fn name_of_command(command: &Command) -> &'static str {
    match command {
        Command::Acquire(_) => "acquire",
        Command::Renew(_) => "renew",
        Command::Release(_) => "release",
        Command::ByOwner(_) => "by-owner",
        Command::Unlock(_) => "unlock",
        Command::Cancel(_) => "cancel",
        Command::OpenSession(_) => "open",
        Command::KeepAlive(_) => "keep-alive",
        Command::CloseSession(_) => "close",
        Command::Attach(_) => "attach",
        Command::Disconnect(_) => "disconnect",
        Command::AcceptFence(_) => "accept-fence",
        Command::DeleteFence(_) => "delete-fence",
        Command::Break(_) => "break",
        Command::BreakSession(_) => "break-session",
        Command::RemoveFile(_) => "remove-file",
        Command::Withdraw(_)
        | Command::BeginEpoch(_)
        | Command::Jump(_)
        | Command::Suspend
        | Command::Resume
        | Command::Tick => "own",
    }
}

pub fn word_for(error: &CallError) -> &'static str {
    match error {
        CallError::Refused(refusal) => word_for_refusal(refusal),
        CallError::StoreUnavailable { outcome_unknown: true, .. } => "store-unknown",
        CallError::StoreUnavailable { .. } => "store-unavailable",
        CallError::NotLeader { .. } => "not-leader",
        CallError::Draining => "draining",
        CallError::Busy => "busy",
        CallError::Stopped => "stopped",
    }
}

fn word_for_refusal(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Held(_) => "held",
        Refusal::ReclaimWindow(_) => "reclaim-window",
        Refusal::GracePeriod { .. } | Refusal::GracePeriodPlaceKept { .. } => "grace-period",
        Refusal::NoGrace => "no-grace",
        Refusal::Deadlock { .. } => "deadlock",
        Refusal::LeaseLost(_) => "lease-lost",
        Refusal::NotHolder { .. } => "not-holder",
        Refusal::NothingToReclaim(_) => "nothing-to-reclaim",
        Refusal::LimitMismatch { .. } => "limit-mismatch",
        Refusal::RequestIdReused => "request-id-reused",
        Refusal::SessionNotFound(_) => "session-not-found",
        Refusal::TicketNotFound(_) => "ticket-not-found",
        Refusal::StaleFence { .. } => "stale-fence",
        Refusal::RegisterNotFound(_) => "register-not-found",
        Refusal::Limit(limit) => match limit {
            Limit::WaitersPerScope { .. } => "limit-waiters-per-scope",
            Limit::Waiters { .. } => "limit-waiters",
            Limit::TooTangled => "limit-deadlock-check",
            Limit::LocksPerSession { .. } => "limit-locks-per-session",
            Limit::WindowedLocksPerSession { .. } => "limit-windowed-locks-per-session",
            Limit::Sessions { .. } => "limit-sessions",
            Limit::Registers { .. } => "limit-registers",
            Limit::RegistersInAll { .. } => "limit-registers-in-all",
            Limit::Namespaces { .. } => "limit-namespaces",
            Limit::Quota { .. } => "limit-quota",
            Limit::Tokens => "limit-tokens",
            Limit::OwnRanges { .. } => "limit-own-ranges",
        },
        Refusal::Invalid(invalid) => match invalid {
            Invalid::Ttl { .. } => "invalid-ttl",
            Invalid::DisconnectTtl { .. } => "invalid-disconnect-ttl",
            Invalid::ReclaimWindow { .. } => "invalid-reclaim-window",
            Invalid::Wait { .. } => "invalid-wait",
            Invalid::SetSize { .. } => "invalid-set-size",
            Invalid::SetOverlap { .. } => "invalid-set-overlap",
            Invalid::RangePermits(_) => "invalid-range-permits",
            Invalid::Permits { .. } => "invalid-permits",
            Invalid::MetadataSize { .. } => "invalid-metadata",
            Invalid::NotOneGrant => "invalid-not-one-grant",
            Invalid::FenceNotIssued { .. } => "invalid-token-not-issued",
            Invalid::LeaseIdInUse => "invalid-lease-id",
        },
        Refusal::FileRemoved(_) => "file-removed",
        Refusal::Suspended => "suspended",
        Refusal::StaleEpoch { .. } => "stale-epoch",
    }
}
