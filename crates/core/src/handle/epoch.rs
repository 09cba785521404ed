//! A new authority takes over: every grant is in doubt until its holder is heard of again.

use crate::command::{BeginEpoch, GracePolicy, Jump};
use crate::effect::{Answer, Step};
use crate::lease::{LeaseIdx, LeaseState};
use crate::namespace::NamespaceIdx;
use crate::refusal::Refusal;
use crate::table::{Grace, LockTable};
use crate::time::Millis;
use crate::transition::Transition;

impl LockTable {
    pub(super) fn begin_epoch(&mut self, begin: &BeginEpoch, step: &mut Step) -> super::Handled {
        if begin.epoch <= self.epoch {
            let (presented, current) = (begin.epoch, self.epoch);
            return Err(Refusal::StaleEpoch { presented, current });
        }
        self.enact(Transition::EpochBegan { epoch: begin.epoch }, step);
        self.forget_waiters();
        self.put_leases_in_doubt();
        let length = Millis::from_duration(begin.grace_length).unwrap_or(Millis::new(u32::MAX));
        let on = match begin.grace {
            GracePolicy::Conflicting | GracePolicy::Strict => self.recovering > 0,
            GracePolicy::StrictUnknown => true,
        };
        let ends_at = self.now.plus(length);
        self.grace = on.then_some(Grace { policy: begin.grace, ends_at });
        Ok(Answer::EpochBegun { recovering: self.recovering })
    }

    /// Those who waited asked another authority; they will ask again.
    fn forget_waiters(&mut self) {
        let waiting: Vec<_> = self
            .spaces_by_name()
            .flat_map(|(space, at)| at.waiters.keys().map(move |&ticket| (space, ticket)))
            .collect();
        for (space, ticket) in waiting {
            self.remove_waiter(space, ticket);
        }
        while let Some(&(_, ticket, space)) = self.place_timers.first() {
            self.forget_place(space, ticket);
        }
        self.freed.clear();
        self.forget_candidates();
    }

    /// No grace ever cuts a lease short: each runs in full from now.
    fn put_leases_in_doubt(&mut self) {
        let leases: Vec<(NamespaceIdx, LeaseIdx)> = self
            .spaces_by_name()
            .flat_map(|(space, at)| at.leases.iter().map(move |(no, _)| (space, LeaseIdx(no))))
            .collect();
        self.recovering = 0;
        for (space, lease) in leases {
            if self.space(space).lease(lease).is_over() {
                if self.space(space).lease(lease).is_lapsed() {
                    self.restart_windows(space, lease);
                }
                continue;
            }
            let deadline = self.now.plus(self.space(space).lease(lease).kept_for());
            let held = self.space_mut(space).lease_mut(lease);
            held.state = LeaseState::Recovering;
            held.deadline = deadline;
            if let Some(session) = &mut held.session {
                session.attached = false;
            }
            self.arm(space, lease, deadline);
            self.recovering += 1;
        }
    }

    fn restart_windows(&mut self, space: NamespaceIdx, lease: LeaseIdx) {
        self.space_mut(space).lease_mut(lease).deadline = self.now;
        self.arm_window(space, lease);
    }

    pub(super) fn jump(&mut self, jump: &Jump, step: &mut Step) -> super::Handled {
        let (epoch, fence) = (jump.epoch, jump.fence);
        self.enact(Transition::Jumped { epoch, fence }, step);
        Ok(Answer::Done)
    }
}
