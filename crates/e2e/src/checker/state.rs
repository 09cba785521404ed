//! The model: one lock, as a true service would have it.

use std::time::Duration;

use crate::history::{Acquired, Event, Kept, Mode, Moment, Operation, Token};

/// What is known about the lock. Two states that are equal explain the same futures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// The last effect was not before this.
    now: Moment,
    /// The highest token given.
    token: Token,
    held: Vec<Held>,
    /// Released, with nothing known to be durable since: a restart may bring them back.
    released: Vec<Held>,
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
}

impl State {
    /// The state after the operation took effect, at the earliest possible moment. `None` if it cannot take effect in this
    /// state, or not up to `limit`.
    pub(super) fn after(&self, operation: &Operation, limit: Moment) -> Option<State> {
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
                let released = state.take(token)?;
                state.released.push(released);
            }
            Event::Renew { token, outcome: Kept::Lost, .. }
            | Event::Release { token, outcome: Kept::Lost } => state.lose(token),
            Event::Restart { down } => state.restart(down, operation.returned),
        }
        (state.now <= operation.returned.min(limit)).then_some(state)
    }

    /// Whether a request in this mode, made at `invoked`, can have been refused because of a holder.
    pub(super) fn is_in_the_way(&self, mode: Mode, invoked: Moment, late_max: Duration) -> bool {
        self.held
            .iter()
            .any(|held| held.mode.conflicts_with(mode) && invoked <= held.deadline_latest + late_max)
    }

    /// Whether it differs from the other in nothing but earlier moments. Then it explains all that the other explains.
    pub(super) fn is_earlier_than(&self, other: &State) -> bool {
        let is_earlier = |held: &[Held], others: &[Held]| {
            held.len() == others.len() && held.iter().zip(others).all(|(a, b)| a.is_earlier_than(b))
        };
        self.now <= other.now
            && self.token == other.token
            && is_earlier(&self.held, &other.held)
            && is_earlier(&self.released, &other.released)
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
        // The grant is durable, and so is all that came before it.
        self.released.clear();
        self.token = token;
        self.held.push(Held {
            token,
            mode,
            ttl,
            deadline: self.now + ttl,
            deadline_latest: returned + ttl,
            is_certain: true,
        });
        Some(())
    }

    fn renew(&mut self, token: Token, ttl: Duration, returned: Moment) -> Option<()> {
        let now = self.now;
        let held = self.held.iter_mut().find(|held| held.token == token)?;
        held.ttl = ttl;
        held.deadline = now + ttl;
        held.deadline_latest = held.deadline_latest.max(returned + ttl);
        held.is_certain = true;
        Some(())
    }

    /// Somebody may renew it, up to `returned`. If so it lasts longer, but nobody can build on that.
    pub(super) fn may_be_renewed(&mut self, token: Token, ttl: Duration, returned: Moment) {
        for held in self.held.iter_mut().filter(|held| held.token == token) {
            held.deadline_latest = held.deadline_latest.max(returned + ttl);
        }
    }

    /// Somebody may release it, now or later: from here on it need not be there.
    pub(super) fn may_be_released(&mut self, token: Token) {
        for held in self.held.iter_mut().filter(|held| held.token == token) {
            held.is_certain = false;
        }
    }

    fn take(&mut self, token: Token) -> Option<Held> {
        let at = self.held.iter().position(|held| held.token == token)?;
        Some(self.held.remove(at))
    }

    /// Somebody was told that the lease is gone, so it is, for ever.
    fn lose(&mut self, token: Token) {
        self.released.retain(|held| held.token != token);
        if let Some(held) = self.take(token)
            && held.is_certain
        {
            self.now = self.now.max(held.deadline);
        }
    }

    /// Every lease that cannot have ended before the server went down stands for its full length again.
    fn restart(&mut self, down: Moment, returned: Moment) {
        self.now = self.now.max(down);
        let back = self.released.drain(..).map(|held| Held { is_certain: false, ..held });
        self.held.extend(back);
        for held in &mut self.held {
            if held.deadline > down {
                held.deadline = held.deadline.max(self.now + held.ttl);
            }
            held.deadline_latest = returned + held.ttl;
        }
        self.held.sort_by_key(|held| held.token);
    }
}

impl Held {
    fn is_earlier_than(&self, other: &Held) -> bool {
        self.deadline <= other.deadline && *self == Held { deadline: self.deadline, ..*other }
    }
}
