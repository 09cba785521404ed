//! Deadlines: waits that run out, leases that expire, reclaim windows and the recovery grace that end.
//!
//! Nothing is ever swept: the timers are one ordered set, and a command works off a bounded number of them, so that a
//! million leases lapsing at once do not stop the service. A lease that is due but not yet worked off is over all the
//! same: whoever runs into it works it off on the spot.

use crate::change::Window;
use crate::effect::{Effect, News, Step};
use crate::id::{LeaseId, Namespace, Principal, Ticket};
use crate::inode::Party;
use crate::lease::{LeaseIdx, LeaseState};
use crate::namespace::NamespaceIdx;
use crate::refusal::Refusal;
use crate::table::LockTable;
use crate::transition::{Ending, Transition};

impl LockTable {
    /// Whether a deadline has passed that has not been worked off.
    pub(super) fn anything_due(&self) -> bool {
        self.lease_timers.first().is_some_and(|&(moment, ..)| moment < self.now)
            || self.wait_timers.first().is_some_and(|&(moment, ..)| moment < self.now)
            || self.place_timers.first().is_some_and(|&(moment, ..)| moment < self.now)
    }

    pub(super) fn process_due(&mut self, step: &mut Step) {
        if self.anything_due() {
            self.work_off_timers(step);
        }
        self.end_grace_if_over(step);
    }

    fn work_off_timers(&mut self, step: &mut Step) {
        let mut budget = self.limits.deadlines_per_step_max;
        while budget > 0
            && let Some(&(moment, ticket, space)) = self.wait_timers.first()
            && moment < self.now
        {
            budget -= 1;
            self.expire_waiter(space, ticket, step);
            self.wake_waiters(step);
        }
        while budget > 0
            && let Some(&(moment, ticket, space)) = self.place_timers.first()
            && moment < self.now
        {
            budget -= 1;
            self.forget_place(space, ticket);
        }
        let mut endings = self.limits.endings_per_step_max;
        while budget > 0 && endings > 0 {
            let due = self.due_leases(budget);
            if due.is_empty() {
                break;
            }
            for (space, lease, id) in due {
                if self.space(space).leases.get(lease.0).is_some_and(|held| held.id == id) {
                    let ended = self.work_off_lease(space, lease, endings, step);
                    endings = endings.saturating_sub(ended);
                    self.wake_waiters(step);
                }
                budget -= 1;
                if endings == 0 {
                    break;
                }
            }
        }
    }

    /// The next leases whose timer has passed, in the order they are to be worked off.
    fn due_leases(&mut self, len_max: usize) -> Vec<(NamespaceIdx, LeaseIdx, LeaseId)> {
        let now = self.now;
        let due = self.lease_timers.iter().take_while(|&&(moment, ..)| moment < now).take(len_max);
        let mut due: Vec<_> = due
            .map(|&(moment, space, lease)| {
                let held = self.space(space).lease(lease);
                let moment = if held.is_over() { moment } else { held.deadline };
                (held.is_over(), moment, held.id, space, lease)
            })
            .collect();
        // Leases before windows: a lease that lapses late may open a window that is over before another one.
        due.sort_unstable();
        let leases = due.iter().take_while(|(is_over, ..)| !is_over).count();
        if leases > 0 {
            due.truncate(leases);
        }
        due.into_iter().map(|(_, _, id, space, lease)| (space, lease, id)).collect()
    }

    /// Ends what is over of a lease whose timer has passed: all of it, or so many reclaim windows. Says how much it was.
    fn work_off_lease(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        len_max: usize,
        step: &mut Step,
    ) -> usize {
        let held = self.space(space).lease(lease);
        if held.is_over() {
            self.end_windows(space, lease, len_max, step)
        } else if held.is_due(self.now) {
            let len = held.held.len();
            self.lapse_lease(space, lease, step);
            len
        } else {
            // It was renewed meanwhile: look again when that is over.
            let deadline = held.deadline;
            self.arm(space, lease, deadline);
            0
        }
    }

    /// The lease is over, because nobody renewed it in time.
    pub(super) fn lapse_lease(&mut self, space: NamespaceIdx, lease: LeaseIdx, step: &mut Step) {
        let at = self.space(space);
        let held = at.lease(lease);
        let ending = match held.state {
            LeaseState::Recovering => Ending::GraceExpired,
            LeaseState::Live | LeaseState::Lapsed(_) | LeaseState::Ending => Ending::Expired,
        };
        let has_window = at.has_window(lease);
        let (namespace, id) = (at.name.clone(), held.id);
        if !has_window {
            self.tell_lost(namespace, id, None, &ending, step);
            return self.end_now_or_in_turns(space, lease, ending, step);
        }
        self.refuse_session_waiters(space, lease, step);
        self.tell_lost(namespace.clone(), id, None, &ending, step);
        self.enact(Transition::LeaseLapsed { namespace, lease: id, ending }, step);
    }

    pub(super) fn tell_lost(
        &self,
        namespace: Namespace,
        lease: LeaseId,
        fence: Option<crate::fencing_token::FencingToken>,
        ending: &Ending,
        step: &mut Step,
    ) {
        step.effects.push(Effect::Lost { namespace, lease, fence, ending: ending.clone() });
    }

    /// A waiter's place depends on its session or lease: when that goes, it goes.
    pub(super) fn refuse_session_waiters(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        step: &mut Step,
    ) {
        if planted!("session-end-leaves-waiters") {
            return;
        }
        let waiting: Vec<Ticket> = self.space(space).waits_under(lease).collect();
        for ticket in waiting {
            self.refuse_waiter(space, ticket, &Refusal::LeaseLost(None), step);
        }
    }

    fn end_windows(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        len_max: usize,
        step: &mut Step,
    ) -> usize {
        let at = self.space(space);
        let (namespace, id) = (at.name.clone(), at.lease(lease).id);
        let due: Vec<Window> = self
            .windows(space, lease)
            .into_iter()
            .filter(|&(end, _)| end < self.now)
            .map(|(_, window)| window)
            .take(len_max)
            .collect();
        let ended = due.len();
        for window in due {
            if !self.is_window(space, id, window) {
                continue;
            }
            let ending = Ending::WindowOver;
            let over = match window {
                Window::Grant(fence) => Transition::GrantEnded {
                    namespace: namespace.clone(),
                    lease: id,
                    fence,
                    ending,
                },
                Window::Piece(owner, inode, range) => Transition::RangeEnded {
                    namespace: namespace.clone(),
                    lease: id,
                    owner: self.space(space).owners.name(owner).clone(),
                    inode,
                    range,
                    ending,
                },
            };
            self.enact(over, step);
        }
        if self.space(space).lease_no(id) == Some(lease) {
            self.arm_window(space, lease);
        }
        ended
    }

    /// Whether a window is still there: a set's ranges end with its keys, and the last ending takes the lease along.
    fn is_window(&self, space: NamespaceIdx, id: LeaseId, window: Window) -> bool {
        let at = self.space(space);
        let Some(lease) = at.lease_no(id) else { return false };
        match window {
            Window::Grant(fence) => !at.lease(lease).held.stamped(fence).is_empty(),
            Window::Piece(owner, inode, range) => at.inodes.get(&inode).is_some_and(|inode| {
                !inode.own_overlapping(Party { owner, lease }, range).is_empty()
            }),
        }
    }

    /// A lease whose holder may still act on it; one that is due is worked off on the spot.
    pub(super) fn live_lease(
        &mut self,
        space: NamespaceIdx,
        id: LeaseId,
        step: &mut Step,
    ) -> Option<LeaseIdx> {
        let lease = self.space(space).live_lease(id)?;
        if self.space(space).lease(lease).is_due(self.now) {
            self.lapse_lease(space, lease, step);
            return None;
        }
        Some(lease)
    }

    /// The same for a lease that a client named. One of another principal is as one that never was.
    pub(super) fn own_lease(
        &mut self,
        space: NamespaceIdx,
        id: LeaseId,
        principal: &Principal,
        step: &mut Step,
    ) -> Option<LeaseIdx> {
        let at = self.space(space);
        let lease = at.live_lease(id)?;
        let is_own = at.is_of(lease, principal) || planted!("principal-not-compared");
        if is_own { self.live_lease(space, id, step) } else { None }
    }

    /// The holder has been heard of: its lease runs anew, and is no longer in doubt after a restart.
    pub(super) fn touch_lease(&mut self, space: NamespaceIdx, lease: LeaseIdx, step: &mut Step) {
        let deadline = self.now.plus(self.space(space).lease(lease).ttl);
        self.mark_reclaimed(space, lease);
        if let Some(session) = &mut self.spaces[space.0].lease_mut(lease).session {
            session.kept = false;
        }
        self.set_deadline(space, lease, deadline);
        // Waiters are granted then, some of them perhaps under this very lease.
        self.end_grace_if_over(step);
    }

    /// The lease is no longer in doubt after a restart.
    pub(super) fn mark_reclaimed(&mut self, space: NamespaceIdx, lease: LeaseIdx) {
        let held = self.spaces[space.0].lease_mut(lease);
        if held.state == LeaseState::Recovering {
            held.state = LeaseState::Live;
            self.recovering -= 1;
        }
    }

    pub(super) fn end_grace_if_over(&mut self, step: &mut Step) {
        use crate::command::GracePolicy;
        let Some(grace) = self.grace else { return };
        let all_back = match grace.policy {
            GracePolicy::Conflicting | GracePolicy::Strict => self.recovering == 0,
            GracePolicy::StrictUnknown => false,
        };
        let timer_over = grace.ends_at < self.now && !planted!("grace-never-ends");
        if all_back || timer_over {
            self.grace = None;
            self.tell(Namespace::default(), News::GraceEnded, step);
            self.free_every_queue();
            self.wake_waiters(step);
        }
    }
}
