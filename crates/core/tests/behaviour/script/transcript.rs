//! From outcomes and effects to the lines of a transcript.

use std::time::Duration;

use leasehold_core::{
    Answer, CallId, Command, Effect, Event, Grant, LeaseId, News, Outcome, Refusal, Scope,
};

use super::World;
use super::shown;
use super::step::Wanted;

/// What the outcome's line has said already, so that the news of it need not.
pub(super) enum Said {
    /// That this was released.
    Released(Scope),
    /// That this session has ended.
    SessionEnded(LeaseId),
}

impl World {
    /// Tells how a command came out.
    pub(super) fn tell_outcome(
        &mut self,
        wanted: &Wanted<'_>,
        command: &Command,
        outcome: &Outcome,
    ) -> Option<Said> {
        let about = self.about(command);
        match outcome {
            Outcome::Refused(refusal) => {
                self.remember_place(command, refusal);
                self.say(&format!("{about} refused {}", shown::refusal(refusal)));
                None
            }
            Outcome::Queued(queued) => {
                if let Command::Acquire(acquire) = command {
                    self.memory.remember_ticket(acquire.call, queued.ticket);
                }
                let scopes = claimed(command);
                let (what, at) = (shown::scopes(&scopes), queued.position);
                self.say(&format!("{about} queued {what} at {at}"));
                None
            }
            Outcome::Answered(answer) => self.tell_answer(wanted, command, &about, answer),
        }
    }

    /// Whom or what a line is about: an owner, a session, a thing.
    fn about(&self, command: &Command) -> String {
        match command {
            Command::Acquire(acquire) => self.caller(acquire.call),
            Command::Renew(renew) => shown::owner(&renew.owner),
            Command::Release(release) => shown::owner(&release.owner),
            Command::ByOwner(ask) => shown::owner(&ask.owner),
            Command::Unlock(unlock) => shown::owner(&unlock.owner),
            Command::Cancel(cancel) => self.caller(cancel.call),
            Command::OpenSession(open) => self.memory.lease_name(open.id).into(),
            Command::KeepAlive(keep_alive) => self.memory.lease_name(keep_alive.session).into(),
            Command::CloseSession(close) => self.memory.lease_name(close.session).into(),
            Command::Attach(attach) => self.memory.lease_name(attach.session).into(),
            Command::Disconnect(disconnect) => self.memory.lease_name(disconnect.session).into(),
            Command::AcceptFence(accept) => format!("register {}", accept.register),
            Command::DeleteFence(delete) => format!("register {}", delete.register),
            Command::Break(breaking) => format!("break {}", breaking.scope),
            Command::BreakSession(breaking) => {
                format!("break {}", self.memory.session_name(breaking.number))
            }
            Command::RemoveFile(remove) => format!("file {}", remove.inode),
            Command::Withdraw(withdraw) => format!("grant fence={}", withdraw.fence),
            Command::BeginEpoch(begin) => format!("epoch {}", begin.epoch.0),
            Command::Jump(_) | Command::Suspend | Command::Resume | Command::Tick => {
                "server".into()
            }
        }
    }

    /// The owner of a call, with the call's name if it has one.
    fn caller(&self, call: CallId) -> String {
        let call = self.memory.call(call);
        match &call.name {
            Some(name) => format!("{} ({name})", shown::owner(&call.owner)),
            None => shown::owner(&call.owner),
        }
    }

    fn tell_answer(
        &mut self,
        wanted: &Wanted<'_>,
        command: &Command,
        about: &str,
        answer: &Answer,
    ) -> Option<Said> {
        let mut said = None;
        let line = match (answer, command) {
            (Answer::Granted(grant), Command::Acquire(acquire)) => {
                self.memory.remember_grant(acquire.call, grant);
                let waited = grant.waited > Duration::ZERO;
                self.granted(&claimed(command), grant, waited)
            }
            (Answer::Renewed(renewed), Command::Renew(renew)) => {
                format!("renewed {} until {}", renew.scope, shown::moment(renewed.deadline))
            }
            (Answer::Renewed(renewed), _) => {
                format!("renewed until {}", shown::moment(renewed.deadline))
            }
            (Answer::Released { held, replayed }, Command::Release(release)) => {
                said = Some(Said::Released(release.scope.clone()));
                let before = if *replayed { ", as before" } else { "" };
                format!("released {} held {}{before}", release.scope, shown::length(*held))
            }
            (Answer::Granted(grant), Command::ByOwner(ask)) => {
                shown::grant(&[Scope::Key(ask.key.clone())], grant)
            }
            (Answer::Released { held, .. }, Command::ByOwner(ask)) => {
                said = Some(Said::Released(Scope::Key(ask.key.clone())));
                format!("released {} held {}", ask.key, shown::length(*held))
            }
            (Answer::Unlocked { changed: true }, _) => "unlocked".into(),
            (Answer::Unlocked { changed: false }, _) => "unlocked nothing".into(),
            (Answer::Cancelled { waiting: true }, _) => "cancelled".into(),
            (Answer::Cancelled { waiting: false }, _) => "cancelled nothing".into(),
            (Answer::SessionOpened(opened), Command::OpenSession(open)) => {
                let until = shown::moment(opened.deadline);
                if opened.replayed {
                    let before = self.memory.lease_name(opened.session);
                    format!("opened until {until} again, as {before}")
                } else {
                    self.memory.number_session(opened.number, open.id);
                    format!("opened until {until}")
                }
            }
            (Answer::SessionClosed { grants, replayed }, Command::CloseSession(close)) => {
                said = Some(Said::SessionEnded(close.session));
                let before = if *replayed { ", as before" } else { "" };
                format!("closed grants={grants}{before}")
            }
            (Answer::SessionClosed { grants, .. }, Command::BreakSession(_)) => {
                format!("grants={grants}")
            }
            (Answer::Disconnected { kept_until }, Command::Disconnect(gone)) => {
                said = Some(Said::SessionEnded(gone.session));
                match kept_until {
                    None => "disconnected".into(),
                    Some(until) => format!("disconnected, kept until {}", shown::moment(*until)),
                }
            }
            (Answer::FenceAccepted { high_water }, _) => format!("accepted, mark {high_water}"),
            (Answer::FenceDeleted { high_water }, _) => format!("deleted, mark was {high_water}"),
            (Answer::Broken { grants, truncated }, _) => {
                format!("grants={grants}{}", shown::and_more(*truncated))
            }
            (Answer::FileRemoved { grants, waiters, truncated }, _) => {
                let more = shown::and_more(*truncated);
                format!("removed grants={grants} waiters={waiters}{more}")
            }
            (Answer::Withdrawn { found: true }, _) => "withdrawn".into(),
            (Answer::Withdrawn { found: false }, _) => "withdrawn, was not there".into(),
            (Answer::EpochBegun { recovering }, _) => format!("begun recovering={recovering}"),
            (Answer::Done, Command::Tick) => return None,
            (Answer::Done, Command::Suspend) => "suspended".into(),
            (Answer::Done, Command::Resume) => "resumed".into(),
            (Answer::Done, Command::Jump(jump)) => {
                format!("jumped to epoch {} fence {}", jump.epoch.0, jump.fence)
            }
            (answer, _) => wanted.fail(&format!("{answer:?} is no answer to that")),
        };
        self.say(&format!("{about} {line}"));
        said
    }

    fn granted(&self, scopes: &[Scope], grant: &Grant, waited: bool) -> String {
        let mut shown = shown::grant(scopes, grant);
        if waited {
            shown += &format!(" waited {}", shown::length(grant.waited));
        }
        if self.watching {
            for (inode, range) in &grant.gained {
                shown += &format!(" gained {}", Scope::range(*inode, *range));
            }
        }
        shown
    }

    fn remember_place(&mut self, command: &Command, refusal: &Refusal) {
        if let Command::Acquire(acquire) = command {
            self.remember_place_of(acquire.call, refusal);
        }
    }

    fn remember_place_of(&mut self, call: CallId, refusal: &Refusal) {
        let conflict = match refusal {
            Refusal::Held(conflict)
            | Refusal::ReclaimWindow(conflict)
            | Refusal::GracePeriodPlaceKept { conflict, .. } => Some(conflict),
            Refusal::GracePeriod { .. }
            | Refusal::NoGrace
            | Refusal::Deadlock { .. }
            | Refusal::LeaseLost(_)
            | Refusal::NotHolder { .. }
            | Refusal::NothingToReclaim(_)
            | Refusal::LimitMismatch { .. }
            | Refusal::RequestIdReused
            | Refusal::SessionNotFound(_)
            | Refusal::TicketNotFound(_)
            | Refusal::StaleFence { .. }
            | Refusal::RegisterNotFound(_)
            | Refusal::Limit(_)
            | Refusal::Invalid(_)
            | Refusal::FileRemoved(_)
            | Refusal::Suspended
            | Refusal::StaleEpoch { .. } => None,
        };
        if let Some(place) = conflict.and_then(|conflict| conflict.place) {
            self.memory.remember_ticket(call, place.ticket);
        }
    }

    pub(super) fn tell(&mut self, effects: &[Effect], said: Option<&Said>) {
        for effect in effects {
            if let Some(line) = self.line(effect, said) {
                self.say(&line);
            }
        }
    }

    fn line(&mut self, effect: &Effect, said: Option<&Said>) -> Option<String> {
        match effect {
            Effect::Granted { call, grant } => {
                self.memory.remember_grant(*call, grant);
                let granted = self.granted(&self.memory.call(*call).scopes, grant, true);
                Some(format!("{} {granted}", self.caller(*call)))
            }
            Effect::Refused { call, refusal } => {
                self.remember_place_of(*call, refusal);
                let who = self.caller(*call);
                Some(format!("{who} refused {}", shown::refusal(refusal)))
            }
            Effect::Lost { lease, fence, ending, .. } => self.watching.then(|| {
                let what = fence.map_or(String::new(), |fence| format!(" fence={fence}"));
                format!("{} told: lost{what}, {ending}", self.memory.lease_name(*lease))
            }),
            Effect::Wanted { lease, fence, scope, waiter, .. } => self.watching.then(|| {
                let name = self.memory.lease_name(*lease);
                format!("{name} told: {waiter} waits for {scope} behind fence={fence}")
            }),
            Effect::Event(event) => self.news(event, said),
        }
    }

    /// The line that is always there for endings nobody asked for; the rest is for watchers.
    fn news(&self, event: &Event, said: Option<&Said>) -> Option<String> {
        match &event.news {
            News::Ended { scope, owner, mode, fence, ending, window, .. }
                if !is_said(said, scope) || self.watching =>
            {
                let mode = shown::mode(*mode);
                let window = window.map_or(String::new(), |window| {
                    format!(", reclaim window {}", shown::length(window.as_duration()))
                });
                Some(format!("{owner} {ending} {scope}{mode} fence={fence}{window}"))
            }
            News::SessionEnded { number, owner, ending } => {
                let name = self.memory.session_name(*number);
                let known = said.is_some_and(|said| match said {
                    Said::SessionEnded(id) => self.memory.lease_name(*id) == name,
                    Said::Released(_) => false,
                });
                (!known || self.watching).then(|| format!("{name} of {owner} {ending}"))
            }
            News::GraceEnded => Some("grace over".into()),
            News::TtlChanged { owner, ttl } => {
                Some(format!("{owner} has ttl {}", shown::length(ttl.as_duration())))
            }
            News::Ended { .. }
            | News::EpochBegan { .. }
            | News::SessionOpened { .. }
            | News::Granted { .. }
            | News::FenceAccepted { .. }
            | News::FenceDeleted { .. }
            | News::Queued { .. }
            | News::Left { .. }
            | News::Deadlock { .. } => self.watching.then(|| self.for_watchers(event)),
        }
    }

    fn for_watchers(&self, event: &Event) -> String {
        let told = match &event.news {
            News::EpochBegan { epoch } => format!("epoch {} began", epoch.0),
            News::GraceEnded => "grace over".into(),
            News::SessionOpened { number, owner, adapter } => {
                let name = self.memory.session_name(*number);
                format!("{name} of {owner} opened by {adapter}")
            }
            News::Granted { scope, owner, mode, fence, ttl, .. } => {
                let (mode, ttl) = (shown::mode(*mode), shown::length(ttl.as_duration()));
                format!("{owner} granted {scope}{mode} fence={fence} ttl {ttl}")
            }
            News::FenceAccepted { register, fence } => format!("{register} accepted {fence}"),
            News::FenceDeleted { register, reason } => format!("{register} deleted: {reason}"),
            News::Queued { scopes, owner, .. } => {
                format!("{owner} queued {}", shown::scopes(scopes))
            }
            News::Left { scopes, owner, .. } => format!("{owner} left {}", shown::scopes(scopes)),
            News::Deadlock { victim, cycle } => {
                format!("{victim} deadlocked {}", shown::cycle(cycle))
            }
            News::SessionEnded { .. } | News::Ended { .. } | News::TtlChanged { .. } => {
                "told to everybody".into()
            }
        };
        format!("event {}: {told}", event.revision.0)
    }
}

fn is_said(said: Option<&Said>, scope: &Scope) -> bool {
    match said {
        Some(Said::Released(released)) => released == scope,
        Some(Said::SessionEnded(_)) | None => false,
    }
}

fn claimed(command: &Command) -> Vec<Scope> {
    match command {
        Command::Acquire(acquire) => {
            acquire.claims.iter().map(|claim| claim.scope.clone()).collect()
        }
        Command::Renew(_)
        | Command::Release(_)
        | Command::ByOwner(_)
        | Command::Unlock(_)
        | Command::Cancel(_)
        | Command::OpenSession(_)
        | Command::KeepAlive(_)
        | Command::CloseSession(_)
        | Command::Attach(_)
        | Command::Disconnect(_)
        | Command::AcceptFence(_)
        | Command::DeleteFence(_)
        | Command::Break(_)
        | Command::BreakSession(_)
        | Command::RemoveFile(_)
        | Command::Withdraw(_)
        | Command::BeginEpoch(_)
        | Command::Jump(_)
        | Command::Suspend
        | Command::Resume
        | Command::Tick => Vec::new(),
    }
}
