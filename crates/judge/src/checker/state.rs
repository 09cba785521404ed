//! The model: one lock, as a true service would have it.

use std::collections::HashSet;
use std::mem;
use std::time::Duration;

use crate::history::{Acquired, Event, Kept, Mode, Moment, Operation, Token};

pub(super) const MODES: [Mode; 2] = [Mode::Exclusive, Mode::Shared];

/// The state of the lock as far as it is known. Two states that are equal explain the same futures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// The last effect was not before this.
    now: Moment,
    /// The highest token given.
    token: Token,
    held: Vec<Held>,
    /// Released, with nothing known to be durable since: a restart may bring them back, and they are asked for again.
    released: Vec<Held>,
    /// The same, if nobody asks for them again.
    given_up: ByMode<Phantom>,
    /// Given up, and a restart may have brought them back.
    returned: ByMode<Phantom>,
}

/// The facts of the whole history.
pub(super) struct Known {
    /// See [`super::Rules`].
    pub(super) late_max: Duration,
    /// The tokens that were asked for again after they were released.
    pub(super) asked_again: HashSet<Token>,
}

/// A client may hold the lock without knowing it: the grant had no answer, or a restart brought back what was released.
/// Nobody asks for such a lease, so nothing but refusals can come of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Phantom {
    ttl: Duration,
    until: Option<Moment>,
}

/// Something for each mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ByMode<T> {
    exclusive: T,
    shared: T,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    token: Token,
    mode: Mode,
    ttl: Duration,
    /// It cannot end before this.
    deadline: Moment,
    /// Its deadline cannot be after this.
    deadline_latest: Moment,
    /// Whether it must be there: not if it may have been released, or if only a restart can have brought it back.
    is_certain: bool,
    /// A release without an answer may still take effect, whatever else its holder did meanwhile.
    may_be_released: bool,
}

impl State {
    /// The highest token given.
    pub(super) fn token(&self) -> Token {
        self.token
    }

    /// The state after the operation took effect, at the earliest possible moment. `None` if it cannot take effect in this
    /// state, or not up to `limit`.
    pub(super) fn after(
        &self,
        operation: &Operation,
        limit: Moment,
        known: &Known,
    ) -> Option<State> {
        let mut state = self.clone();
        state.now = state.now.max(operation.invoked);
        match operation.event {
            Event::Acquire { mode, ttl, outcome: Acquired::Granted(token), .. } => {
                state.grant(mode, ttl, token, operation.returned)?;
            }
            // A refusal takes no effect. What nobody got an answer to is noted when it is called.
            Event::Acquire { outcome: Acquired::Refused | Acquired::Unknown, .. }
            | Event::Renew { outcome: Kept::Unknown, .. }
            | Event::Release { outcome: Kept::Unknown, .. } => return None,
            Event::Renew { token, ttl, outcome: Kept::Done } => {
                state.renew(token, ttl, operation.returned)?;
            }
            Event::Release { token, outcome: Kept::Done } => {
                let mut released = state.take(token)?;
                if known.asked_again.contains(&token) {
                    released.make_uncertain();
                    state.released.push(released);
                } else {
                    let given_up = state.given_up.of_mut(released.mode);
                    given_up.may_last(released.ttl, released.deadline_latest);
                }
            }
            Event::Renew { token, outcome: Kept::Lost, .. }
            | Event::Release { token, outcome: Kept::Lost } => state.lose(token),
            Event::Restart { down } => state.restart(down, operation, known.late_max),
        }
        (state.now <= operation.returned.min(limit)).then_some(state)
    }

    /// Whether a request in this mode, made at `invoked`, can have been refused because of a holder.
    pub(super) fn is_in_the_way(&self, mode: Mode, invoked: Moment, late_max: Duration) -> bool {
        let may_last_until = |until: Moment| invoked <= until + late_max;
        let mut held = self.held.iter().filter(|held| held.mode.conflicts_with(mode));
        held.any(|held| may_last_until(held.deadline_latest))
            || self.returned.against(mode).any(|phantom| phantom.until.is_some_and(may_last_until))
    }

    /// Whether it explains all that the other explains. Earlier moments do, and so does what need not be there: it can
    /// explain a refusal or an answer to its holder, and stands in nobody's way.
    pub(super) fn is_better_than(&self, other: &State) -> bool {
        let has =
            |held: &[Held], wanted: &Held| held.iter().any(|held| held.is_better_than(wanted));
        let is_wanted = |held: &Held| other.held.iter().any(|other| other.token == held.token);
        self.now <= other.now
            && self.token == other.token
            && other.held.iter().all(|wanted| has(&self.held, wanted))
            && self.held.iter().all(|held| !held.is_certain || is_wanted(held))
            && other.released.iter().all(|wanted| has(&self.released, wanted))
            && MODES.into_iter().all(|mode| self.is_haunted_like(other, mode))
    }

    /// Whether as much may come back or have come back. What has come back, a restart brings back as well.
    fn is_haunted_like(&self, other: &State, mode: Mode) -> bool {
        let (returned, given_up) = (other.returned.of(mode), other.given_up.of(mode));
        self.returned.of(mode).lasts_like(returned)
            && (self.given_up.of(mode).lasts_like(given_up)
                || self.returned.of(mode).lasts_like(given_up))
    }

    fn grant(&mut self, mode: Mode, ttl: Duration, token: Token, returned: Moment) -> Option<()> {
        if token <= self.token {
            return None;
        }
        for held in self.held.iter().filter(|held| held.mode.conflicts_with(mode)) {
            if held.is_certain {
                self.now = self.now.max(held.deadline);
            }
        }
        self.held.retain(|held| !held.mode.conflicts_with(mode));
        for other in MODES.into_iter().filter(|other| other.conflicts_with(mode)) {
            *self.returned.of_mut(other) = Phantom::default();
        }
        // The grant is durable, and so is all that came before it.
        self.released.clear();
        self.given_up = ByMode::default();
        self.token = token;
        self.held.push(Held {
            token,
            mode,
            ttl,
            deadline: self.now + ttl,
            deadline_latest: returned + ttl,
            is_certain: true,
            may_be_released: false,
        });
        Some(())
    }

    fn renew(&mut self, token: Token, ttl: Duration, returned: Moment) -> Option<()> {
        let now = self.now;
        let held = self.held.iter_mut().find(|held| held.token == token)?;
        held.ttl = ttl;
        held.deadline_latest = held.deadline_latest.max(returned + ttl);
        if !held.may_be_released {
            held.deadline = now + ttl;
            held.is_certain = true;
        }
        Some(())
    }

    /// A client may renew it, up to `returned`. If so it lasts longer, but nobody can build on that.
    pub(super) fn may_be_renewed(&mut self, token: Token, ttl: Duration, returned: Moment) {
        for held in self.held.iter_mut().filter(|held| held.token == token) {
            held.deadline_latest = held.deadline_latest.max(returned + ttl);
        }
    }

    /// A client may release it, now or later: from here on it need not be there.
    pub(super) fn may_be_released(&mut self, token: Token) {
        for held in self.held.iter_mut().filter(|held| held.token == token) {
            held.make_uncertain();
            held.may_be_released = true;
        }
    }

    fn take(&mut self, token: Token) -> Option<Held> {
        let at = self.held.iter().position(|held| held.token == token)?;
        Some(self.held.remove(at))
    }

    /// A client was told that the lease is gone, so it is, for ever.
    fn lose(&mut self, token: Token) {
        self.released.retain(|held| held.token != token);
        if let Some(held) = self.take(token)
            && held.is_certain
        {
            self.now = self.now.max(held.deadline);
        }
    }

    /// Every lease that cannot have ended before the server went down stands for its full length again.
    fn restart(&mut self, down: Moment, operation: &Operation, late_max: Duration) {
        self.now = self.now.max(down);
        self.held.append(&mut self.released);
        for held in &mut self.held {
            if held.deadline > down {
                held.deadline = held.deadline.max(self.now + held.ttl);
            }
            // A renewal without an answer may still come.
            held.deadline_latest = held.deadline_latest.max(operation.returned + held.ttl);
        }
        self.held.sort_by_key(|held| held.token);
        for mode in MODES {
            let returned = self.returned.of_mut(mode);
            returned.restart(operation, late_max);
            let Phantom { ttl, until } = mem::take(self.given_up.of_mut(mode));
            if let Some(until) = until {
                returned.may_last(ttl, until.max(operation.returned + ttl));
            }
        }
    }
}

impl Phantom {
    /// There may be one of this length, until then.
    pub(super) fn may_last(&mut self, ttl: Duration, until: Moment) {
        self.ttl = self.ttl.max(ttl);
        self.until = self.until.max(Some(until));
    }

    /// Whether it can be there whenever the other can.
    fn lasts_like(&self, other: Phantom) -> bool {
        other.until.is_none() || (self.until >= other.until && self.ttl >= other.ttl)
    }

    /// A lease that may not have ended when the restart was called, the earliest stop of the server, stands in full again.
    pub(super) fn restart(&mut self, restart: &Operation, late_max: Duration) {
        if self.until.is_some_and(|until| until + late_max >= restart.invoked) {
            self.until = self.until.max(Some(restart.returned + self.ttl));
        }
    }

    /// Until when it may be there.
    pub(super) fn until(&self) -> Option<Moment> {
        self.until
    }
}

impl<T: Copy> ByMode<T> {
    pub(super) fn of(&self, mode: Mode) -> T {
        match mode {
            Mode::Exclusive => self.exclusive,
            Mode::Shared => self.shared,
        }
    }

    pub(super) fn of_mut(&mut self, mode: Mode) -> &mut T {
        match mode {
            Mode::Exclusive => &mut self.exclusive,
            Mode::Shared => &mut self.shared,
        }
    }

    /// Those of the modes that conflict with this one.
    pub(super) fn against(&self, mode: Mode) -> impl Iterator<Item = T> + '_ {
        MODES
            .into_iter()
            .filter(move |other| other.conflicts_with(mode))
            .map(|other| self.of(other))
    }
}

impl Held {
    fn is_better_than(&self, other: &Held) -> bool {
        self.token == other.token
            && self.deadline <= other.deadline
            && self.deadline_latest >= other.deadline_latest
            && (!self.is_certain || other.is_certain)
    }

    /// Nothing has to wait for the deadline of what need not be there.
    fn make_uncertain(&mut self) {
        self.is_certain = false;
        self.deadline = Moment::default();
    }
}
