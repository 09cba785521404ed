//! Leadership: polling the leader, campaigning, heartbeats, and stepping down.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::planted;
use leasehold_core::{Epoch, Millis, Timestamp};
use leasehold_store::{Campaign, Error, Heartbeat, Leader, Leadership, with_cause};

use super::member::{Closing, Following, Lead, RETRY_AFTER, Role, part};
use super::{Lane, Loading, Member, Request, StartError};
use crate::calls::CallError;
use crate::writer::{Failed, Output};

/// The time that a stopping server has to write what is left.
const DRAIN_MAX: Millis = Millis::from_secs(3);
/// The time that it then has to resign.
const RESIGN_MAX: Millis = Millis::new(500);
/// The time after which callers are told to retry while no leader is known.
const LEADER_RETRY: Duration = Duration::from_millis(250);

impl Member {
    pub(super) fn ask_about_leadership(&mut self, now: Timestamp) {
        let request = match &mut self.role {
            Role::Following(following) => {
                let campaign_delay = self.campaign_delay;
                let overdue =
                    following.overdue_at().is_some_and(|at| at.plus(campaign_delay) < now);
                let may = self.campaign_at <= now || planted!("campaigns-in-a-loop");
                if overdue && may && self.is_free(Lane::Leadership) {
                    self.campaign()
                } else if self.leadership_due().is_none_or(|due| now < due) {
                    return;
                } else if self.caps.shared {
                    Request::Leader
                } else {
                    // Nobody else can have it open: the last leader is certainly gone.
                    self.campaign()
                }
            }
            Role::Loading(_) | Role::Leading(_) => {
                if self.leadership_due().is_none_or(|due| now < due) {
                    return;
                }
                Request::Confirm(self.epoch())
            }
            Role::Resigning { until, .. } => {
                if *until < now {
                    self.resigned(now);
                }
                return;
            }
            Role::Stopped => return,
        };
        let confirms = matches!(request, Request::Confirm(_));
        let pause = if confirms { self.confirm_every() } else { self.poll_every() };
        self.leadership_at = now.plus(pause);
        self.ask(now, request);
    }

    /// When there is something to ask about leadership. A question that is not answered for long is given up for a new
    /// one; not so in a store of one's own, where nothing is lost on the way.
    pub(super) fn leadership_due(&self) -> Option<Timestamp> {
        let way = self.lanes[Lane::Leadership as usize].as_ref();
        match &self.role {
            Role::Following(_) if !self.caps.shared => way.is_none().then_some(self.leadership_at),
            Role::Loading(lead) if lead.certain_until.is_none() => None,
            Role::Leading(lead) if lead.certain_until.is_none() => None,
            Role::Following(_) | Role::Loading(_) | Role::Leading(_) => {
                let patience = way.map(|way| way.sent.plus(self.confirm_every()));
                Some(patience.map_or(self.leadership_at, |until| until.max(self.leadership_at)))
            }
            Role::Resigning { .. } | Role::Stopped => None,
        }
    }

    /// The epoch that this server leads in, or is about to.
    pub(super) fn epoch(&self) -> Epoch {
        match &self.role {
            Role::Loading(lead) => lead.leadership.epoch,
            Role::Leading(lead) => lead.leadership.epoch,
            Role::Resigning { epoch, .. } => *epoch,
            Role::Following(_) | Role::Stopped => Epoch(0),
        }
    }

    fn campaign(&self) -> Request {
        let Role::Following(following) = &self.role else {
            unreachable!("only a follower asks to lead")
        };
        let overdue: Option<Heartbeat> = following.seen.as_ref().map(|(leader, _)| leader.beat);
        Request::Campaign { candidate: self.plan.candidate.clone(), overdue }
    }

    /// Often enough that three may be lost.
    fn confirm_every(&self) -> Millis {
        part(self.plan.candidate.lease, 4)
    }

    fn poll_every(&self) -> Millis {
        part(self.plan.candidate.lease, 15)
    }

    pub(super) fn poll_soon(&self) -> Millis {
        part(self.plan.candidate.lease, 150)
    }

    pub(super) fn leader_polled(&mut self, now: Timestamp, result: Result<Option<Leader>, Error>) {
        match result {
            Ok(leader) => {
                self.store_works();
                self.observe_leader(now, leader);
            }
            Err(error) => self.leadership_failed(now, &error),
        }
    }

    fn observe_leader(&mut self, now: Timestamp, leader: Option<Leader>) {
        let myself = &self.plan.candidate.name;
        let Role::Following(following) = &mut self.role else { return };
        following.polled = true;
        let Some(leader) = leader else {
            following.seen = None;
            let since = *following.vacant_since.get_or_insert(now);
            if since.plus(self.campaign_delay) <= now {
                let request = self.campaign();
                self.ask(now, request);
            }
            return;
        };
        following.vacant_since = None;
        let known = following.seen.take().filter(|(seen, _)| seen.beat == leader.beat);
        // A campaign of our own whose answer was lost: nobody has to be outlived.
        let is_me = leader.name == *myself;
        following.seen = Some(known.unwrap_or_else(|| (Arc::new(leader), now)));
        if is_me {
            let request = self.campaign();
            self.ask(now, request);
        }
    }

    pub(super) fn campaigned(
        &mut self,
        now: Timestamp,
        sent: Timestamp,
        result: Result<Campaign, Error>,
    ) {
        match result {
            Ok(Campaign::Won(leadership)) => {
                self.store_works();
                let lead = Lead::new(leadership, sent, Loading::new(self.plan.recovery.clone()));
                if self.stopping {
                    return self.resign(now, leadership.epoch);
                }
                self.role = Role::Loading(Box::new(lead));
                self.leadership_at = sent.plus(self.confirm_every());
                self.journal_at = now;
            }
            Ok(Campaign::Lost(leader)) => {
                self.store_works();
                self.observe_leader(now, Some(leader));
            }
            Err(error) => self.leadership_failed(now, &error),
        }
    }

    pub(super) fn confirmed(&mut self, now: Timestamp, sent: Timestamp, result: Result<(), Error>) {
        let sent = if planted!("leadership-counted-from-the-answer") { now } else { sent };
        match result {
            Ok(()) => match &mut self.role {
                Role::Loading(lead) => lead.confirmed(sent),
                Role::Leading(lead) => lead.confirmed(sent),
                Role::Following(_) | Role::Resigning { .. } | Role::Stopped => {}
            },
            Err(error @ (Error::Conflict(_) | Error::Corrupt { .. } | Error::Newer { .. })) => {
                self.lost(now, error)
            }
            Err(Error::Unavailable { .. } | Error::OutcomeUnknown { .. }) => {
                self.leadership_at = now.plus(part(self.plan.candidate.lease, 30));
            }
        }
    }

    fn leadership_failed(&mut self, now: Timestamp, error: &Error) {
        // A store that nobody else has open does not get better by waiting.
        if !self.caps.shared || matches!(error, Error::Corrupt { .. } | Error::Newer { .. }) {
            return self.give_up(error.clone().into());
        }
        let why = with_cause(error);
        if self.store_failure.is_none() {
            tracing::warn!(error = why, "cannot read the leader from the store");
        }
        self.store_failure = Some(why.into());
        self.leadership_at = now.plus(RETRY_AFTER);
        self.campaign_at = self.leadership_at;
    }

    /// Leads no longer. Another server does, or this one cannot go on.
    pub(super) fn lost(&mut self, now: Timestamp, error: Error) {
        if self.caps.shared && matches!(error, Error::Conflict(_)) {
            tracing::warn!(error = %error, "another server leads");
            self.follow(now);
        } else {
            tracing::error!(error = with_cause(&error), "the store is no longer ours");
            self.give_up(error.into());
        }
    }

    fn follow(&mut self, now: Timestamp) {
        self.abandon();
        self.role = match self.stopping {
            true => Role::Stopped,
            false => Role::Following(Following::default()),
        };
        self.leadership_at = now;
    }

    pub(super) fn give_up(&mut self, fault: StartError) {
        self.abandon();
        self.store_failure = Some(with_cause(&fault).into());
        self.fault = Some(fault);
        self.role = Role::Stopped;
    }

    /// Every waiting caller is told, and nothing more is asked in the name of this leadership.
    fn abandon(&mut self) {
        let why = self.not_leader();
        let under_way = !self.is_free(Lane::Journal);
        if let Role::Leading(lead) = &mut self.role {
            let unknown = under_way || lead.work.outcome_unknown;
            let outcome = if unknown { Failed::Unknown } else { Failed::Unwritten };
            let outputs = lead.work.engine.abandon(&why, outcome);
            self.outputs.extend(outputs);
            self.outputs.push(Output::Ended);
        }
        self.lanes = [const { None }; 3];
    }

    pub(super) fn not_leader(&self) -> CallError {
        let leader = match &self.role {
            Role::Following(Following { seen: Some((leader, _)), .. }) => Some(leader),
            Role::Following(_)
            | Role::Loading(_)
            | Role::Leading(_)
            | Role::Resigning { .. }
            | Role::Stopped => None,
        };
        let leader = leader.map(|leader| leader.address.clone());
        CallError::NotLeader { leader, retry_after: LEADER_RETRY }
    }

    // Giving up.

    pub(super) fn close(&mut self, now: Timestamp, why: &CallError) {
        let Role::Leading(lead) = &mut self.role else { return };
        lead.work.engine.close(now, why);
        let until = lead.work.closing.map_or(now.plus(DRAIN_MAX), |closing| closing.until);
        lead.work.closing = Some(Closing { until });
    }

    /// Everything is written.
    pub(super) fn resign_if_drained(&mut self, now: Timestamp) {
        let Role::Leading(lead) = &self.role else { return };
        if lead.work.closing.is_some() && lead.work.engine.unwritten_len() == 0 {
            self.resign(now, self.epoch());
        }
    }

    /// It has been tried for long enough: the next leader brings back what is not written.
    pub(super) fn resign_if_out_of_time(&mut self, now: Timestamp) {
        let Role::Leading(lead) = &self.role else { return };
        if lead.work.closing.is_some_and(|closing| closing.until < now) {
            self.resign(now, self.epoch());
        }
    }

    pub(super) fn resign(&mut self, now: Timestamp, epoch: Epoch) {
        self.abandon();
        self.role = Role::Resigning { epoch, until: now.plus(RESIGN_MAX) };
        self.ask(now, Request::Resign(epoch));
    }

    pub(super) fn resigned(&mut self, now: Timestamp) {
        if let Role::Resigning { .. } = self.role {
            self.lanes = [const { None }; 3];
            self.follow(now);
            // Others first.
            self.leadership_at = now.plus(self.poll_every()).plus(self.poll_every());
        }
    }
}

impl Following {
    /// When the leader that was seen has certainly run out of time, if it does not move.
    pub(super) fn overdue_at(&self) -> Option<Timestamp> {
        let (leader, since) = self.seen.as_ref()?;
        Some(since.plus(part(leader.lease, 1)))
    }
}

impl<T> Lead<T> {
    pub(super) fn new(leadership: Leadership, sent: Timestamp, work: T) -> Lead<T> {
        let mut lead = Lead { leadership, certain_until: None, work };
        lead.confirmed(sent);
        lead
    }

    /// Counted from before the request that confirmed it was sent.
    pub(super) fn confirmed(&mut self, sent: Timestamp) {
        let lease = self.leadership.lease;
        self.certain_until = lease.map(|lease| sent.plus(part(lease * 9, 10)));
    }

    pub(super) fn is_certain(&self, now: Timestamp) -> bool {
        self.certain_until.is_none_or(|until| now <= until)
            || planted!("answers-after-leadership-ran-out")
    }
}
