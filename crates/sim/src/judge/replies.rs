//! What servers say, compared with what is durable the moment they say it.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

use leasehold_core::{
    Acquire, Answer, ByOwner, Command, Conflict, Disconnect, FencingToken, Holder, HolderState,
    Invalid, LeaseId, Millis, Namespace, OnDisconnect, Owner, OwnerAction, Refusal, Scope, Under,
};
use leasehold_engine::{Call, CallError, Query, Reply, View};

use super::{Answered, Judge, Verdict};
use crate::plan::micros;
use crate::time::Moment;

impl Judge {
    /// A call comes in at a server that is up.
    pub fn asked(&mut self, now: Moment, call: &Call) {
        if let Call::Command(command) = call
            && self.is_foreign(command)
        {
            return;
        }
        self.asks.asked(call);
        let Call::Command(command) = call else { return };
        self.repeats.asked(command);
        if let Command::Renew(renew) = command {
            if let Some(ttl) = renew.ttl {
                self.shorten(now, &renew.namespace, renew.lease, micros(ttl));
            }
        } else if let Command::KeepAlive(keep) = command {
            if let Some(ttl) = keep.ttl {
                self.shorten(now, &keep.namespace, keep.session, micros(ttl));
            }
        } else if let Command::ByOwner(ask) = command
            && let OwnerAction::Hold { ttl, .. } = ask.action
        {
            for lease in self.held_by_name(ask) {
                self.shorten(now, &ask.namespace, lease, micros(ttl));
            }
            self.simple.entry(ask.owner.clone()).or_default().push((now, ttl));
        } else if let Command::Disconnect(gone) = command {
            self.disconnected(now, gone);
        } else if let Command::Break(broken) = command {
            self.beliefs.overrule(&broken.namespace, &broken.scope);
        } else if let Command::BreakSession(broken) = command {
            if let Some(lease) = self.log.session(&broken.namespace, broken.number) {
                self.beliefs.overrule_lease(lease);
            }
        } else if let Command::RemoveFile(removed) = command {
            self.beliefs.overrule(&removed.namespace, &Scope::inode(removed.inode));
        }
    }

    /// The stream of a session is gone: it is kept for as long as it was said to be, and that may be short.
    pub fn disconnected(&mut self, now: Moment, gone: &Disconnect) {
        let Disconnect { namespace, principal, session } = gone;
        let session = *session;
        let view = self.log.table().session(namespace, session, principal);
        let length = match view.map(|view| view.on_disconnect) {
            Some(OnDisconnect::Keep(length)) => micros(length),
            Some(OnDisconnect::Release) | None => 0,
        };
        self.shorten(now, namespace, session, length);
        self.asks.disconnected(namespace, session);
        self.history.disconnected(now, session);
    }

    /// A server answers.
    pub(crate) fn replied(&mut self, answered: &Answered<'_>) -> Result<(), Verdict> {
        let &Answered { now, asked, call, reply, .. } = answered;
        if let Call::Command(command) = call
            && self.is_foreign(command)
        {
            return Judge::answered_to_foreign(now, reply);
        }
        self.asks.replied(answered, &self.log)?;
        if let (Call::Command(command), Err(error)) = (call, reply)
            && !super::asks::is_unknown(error)
        {
            self.not_applied(asked, command);
        }
        match (call, reply) {
            (Call::Query(query), Ok(Reply::View(view))) => {
                self.viewed(now, view)?;
                self.all_shown(now, asked, query, view)
            }
            (Call::Command(_), Ok(Reply::View(_))) => Ok(()),
            (Call::Command(command), Ok(Reply::Answer(answer))) => {
                self.repeats.answered(now, command, answer)?;
                self.answered(now, asked, command, answer)
            }
            (Call::Command(command), Err(CallError::Refused(refusal))) => {
                self.refused(now, asked, command, refusal)
            }
            (Call::Command(_) | Call::Query(_), Err(_))
            | (Call::Query(_), Ok(Reply::Answer(_))) => Ok(()),
        }
    }

    /// A lease is as long as it was before another length was asked for.
    fn not_applied(&mut self, asked: Moment, command: &Command) {
        if let Command::Renew(renew) = command
            && renew.ttl.is_some()
        {
            self.not_shortened(asked, &renew.namespace, renew.lease);
        } else if let Command::KeepAlive(keep) = command
            && keep.ttl.is_some()
        {
            self.not_shortened(asked, &keep.namespace, keep.session);
        } else if let Command::ByOwner(ask) = command {
            for lease in self.held_by_name(ask) {
                self.not_shortened(asked, &ask.namespace, lease);
            }
        }
    }

    /// The leases under which the owner holds the key, as far as it is durable.
    fn held_by_name(&self, ask: &ByOwner) -> Vec<LeaseId> {
        let scope = Scope::Key(ask.key.clone());
        let held = self.log.table().get(&ask.namespace, &scope).holders;
        let own = held.iter().filter(|held| held.owner == ask.owner);
        own.filter_map(|own| Some(self.log.grant(own.fence)?.granted.lease)).collect()
    }

    fn answered(
        &mut self,
        now: Moment,
        asked: Moment,
        command: &Command,
        answer: &Answer,
    ) -> Result<(), Verdict> {
        match (command, answer) {
            (Command::Acquire(acquire), Answer::Granted(grant)) => {
                let known = self.log.grant(grant.fence);
                let is_known = known.is_some_and(|known| {
                    (&known.granted.owner, known.granted.lease) == (&acquire.owner, grant.lease)
                });
                if !is_known {
                    let what =
                        format!("fence {} for {} is not durable", grant.fence, acquire.owner);
                    return Err(Verdict::new(now, "durable before the reply", what));
                }
                let is_new = matches!(acquire.under, Under::NewLease { .. });
                if known.is_some_and(|known| !grant.replayed && known.at < asked) {
                    let what = format!("fence {} was granted before it was asked for", grant.fence);
                    return Err(Verdict::new(now, "a grant answers its own request", what));
                }
                self.log.told_of(now, grant.fence);
                if is_new && !grant.replayed {
                    self.promise(&acquire.namespace, grant.lease, asked, grant.ttl);
                }
                Ok(())
            }
            (Command::OpenSession(open), Answer::SessionOpened(opened)) => {
                let Some(lease) = self.log.lease(&open.namespace, opened.session) else {
                    return Err(Verdict::new(
                        now,
                        "durable before the reply",
                        "a session is not durable",
                    ));
                };
                // What was opened before promises nothing new.
                if !opened.replayed {
                    let ttl = lease.ttl;
                    self.promise(&open.namespace, opened.session, asked, ttl);
                }
                Ok(())
            }
            (Command::Renew(renew), Answer::Renewed(renewed)) => {
                self.issued_to(now, renew.fence, renew.lease, &renew.owner)?;
                self.renewed(now, asked, &renew.namespace, renew.lease, renewed.ttl)
            }
            // What is not held succeeds: of bytes only those that are held tell of a token.
            (Command::Release(release), Answer::Released { held, .. })
                if matches!(release.scope, Scope::Key(_)) || !held.is_zero() =>
            {
                self.issued_to(now, release.fence, release.lease, &release.owner)
            }
            (Command::ByOwner(ask), Answer::Granted(grant)) => {
                self.issued_to(now, grant.fence, grant.lease, &ask.owner)?;
                self.log.told_of(now, grant.fence);
                // Another who says the same name may have made it shorter before it was durable.
                let asks = self.simple.get(&ask.owner).into_iter().flatten();
                let since = asks.filter(|(at, _)| *at >= asked).map(|(_, ttl)| *ttl);
                let ttl = since.filter_map(Millis::from_duration).min();
                let ttl = ttl.map_or(grant.ttl, |ttl| ttl.min(grant.ttl));
                self.renewed(now, asked, &ask.namespace, grant.lease, ttl)
            }
            (Command::KeepAlive(keep), Answer::Renewed(renewed)) => {
                self.renewed(now, asked, &keep.namespace, keep.session, renewed.ttl)
            }
            (Command::Attach(attach), Answer::Renewed(renewed)) => {
                self.renewed(now, asked, &attach.namespace, attach.session, renewed.ttl)
            }
            (Command::AcceptFence(accept), Answer::FenceAccepted { high_water }) => {
                // It may have been deleted since.
                let durable = self.log.mark(&accept.namespace, &accept.register);
                if durable < Some(*high_water) {
                    let what = format!(
                        "register {} at {high_water}, durable {durable:?}",
                        accept.register
                    );
                    return Err(Verdict::new(now, "durable before the reply", what));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// With the right owner and lease, only a token that was issued to that lease is good.
    fn issued_to(
        &self,
        now: Moment,
        fence: FencingToken,
        lease: LeaseId,
        owner: &Owner,
    ) -> Result<(), Verdict> {
        // One that is not durable yet is known to nobody, but can be guessed.
        let granted = self.log.grant(fence).map(|grant| &grant.granted);
        if granted.is_none_or(|granted| (granted.lease, &granted.owner) == (lease, owner)) {
            return Ok(());
        }
        let what = format!("token {fence} passed for {owner}, to whom it was not issued");
        Err(Verdict::new(now, "a token is good for the lease it was issued to", what))
    }

    fn renewed(
        &mut self,
        now: Moment,
        asked: Moment,
        namespace: &Namespace,
        lease: LeaseId,
        ttl: Millis,
    ) -> Result<(), Verdict> {
        let Some(known) = self.log.lease(namespace, lease) else {
            return Err(Verdict::new(
                now,
                "durable before the reply",
                "renewed a lease that is not durable",
            ));
        };
        if known.told_over {
            return Err(Verdict::new(
                now,
                "who was told that it is over never renews",
                "a renewal",
            ));
        }
        if known.ttl_most < ttl {
            let what = format!("a renewal says {ttl}, durable is {}", known.ttl);
            return Err(Verdict::new(now, "a raised ttl is durable first", what));
        }
        self.promise(namespace, lease, asked, ttl);
        Ok(())
    }

    fn refused(
        &mut self,
        now: Moment,
        asked: Moment,
        command: &Command,
        refusal: &Refusal,
    ) -> Result<(), Verdict> {
        let gone = match (command, refusal) {
            (Command::Renew(renew), Refusal::LeaseLost(_)) => Some((&renew.namespace, renew.lease)),
            (Command::Release(release), Refusal::LeaseLost(_)) => {
                Some((&release.namespace, release.lease))
            }
            (Command::KeepAlive(keep), Refusal::SessionNotFound(_)) => {
                Some((&keep.namespace, keep.session))
            }
            (Command::CloseSession(close), Refusal::SessionNotFound(_)) => {
                Some((&close.namespace, close.session))
            }
            _ => None,
        };
        if let Some((namespace, lease)) = gone
            && self.log.lease(namespace, lease).is_some()
        {
            if !self.log.is_gone(namespace, lease) {
                let what = "told that a lease is over, which it is not in the log";
                return Err(Verdict::new(now, "an ending is durable before it is shown", what));
            }
            if let Some(known) = self.log.lease_mut(namespace, lease) {
                known.told_over = true;
            }
        }
        match refusal {
            // The last token only rises.
            Refusal::Invalid(Invalid::FenceNotIssued { presented, .. })
                if self.log.grant(*presented).is_some_and(|grant| grant.at < asked) =>
            {
                let what = format!("token {presented}");
                Err(Verdict::new(now, "a register knows every token that was issued", what))
            }
            Refusal::Held(conflict) => {
                if let Command::Acquire(acquire) = command {
                    self.not_in_its_own_way(now, acquire, conflict)?;
                }
                self.all_there(now, asked, conflict)?;
                self.all_durable(now, conflict)
            }
            Refusal::ReclaimWindow(conflict) | Refusal::GracePeriodPlaceKept { conflict, .. } => {
                self.all_durable(now, conflict)
            }
            _ => Ok(()),
        }
    }

    /// As long as anything is left of what a request was granted, it is that grant again.
    fn not_in_its_own_way(
        &self,
        now: Moment,
        acquire: &Acquire,
        conflict: &Conflict,
    ) -> Result<(), Verdict> {
        let Some(id) = &acquire.request_id else { return Ok(()) };
        for holder in &conflict.holders {
            let Some(grant) = self.log.grant(holder.fence) else { continue };
            let whose = (&grant.granted.namespace, &grant.granted.owner);
            let is_its = grant.granted.request.as_ref().is_some_and(|request| request.id == *id);
            if is_its && whose == (&acquire.namespace, &acquire.owner) {
                let what = format!("{} by its own token {}", holder.scope, holder.fence);
                return Err(Verdict::new(now, "no request is refused because of its grant", what));
            }
        }
        Ok(())
    }

    /// Whoever was in the way was there at some moment between the question and the answer.
    fn all_there(&self, now: Moment, asked: Moment, conflict: &Conflict) -> Result<(), Verdict> {
        // Bytes move from lease to lease and carry their fences with them: only names and paths are as simple as that.
        let is_plain =
            |held: &&Holder| held.state == HolderState::Held && matches!(held.scope, Scope::Key(_));
        for holder in conflict.holders.iter().filter(is_plain) {
            let over = self.log.grant(holder.fence).and_then(|grant| grant.over);
            if let Some(over) = over.filter(|over| *over < asked) {
                let what = format!("fence {} was over at {over}", holder.fence);
                return Err(Verdict::new(now, "nobody is refused because of who is gone", what));
            }
        }
        Ok(())
    }

    fn all_durable(&self, now: Moment, conflict: &Conflict) -> Result<(), Verdict> {
        conflict.holders.iter().try_for_each(|holder| self.holder_durable(now, holder))
    }

    fn holder_durable(&self, now: Moment, holder: &Holder) -> Result<(), Verdict> {
        self.fence_durable(now, holder.fence)
    }

    fn fence_durable(&self, now: Moment, fence: FencingToken) -> Result<(), Verdict> {
        if self.log.grant(fence).is_none() {
            let what = format!("a holder with fence {fence} is shown");
            return Err(Verdict::new(now, "nothing is shown that could still be lost", what));
        }
        Ok(())
    }

    /// What a holder was told of, and is durably held all the time, is shown to every client that asks for it.
    fn all_shown(
        &self,
        now: Moment,
        asked: Moment,
        query: &Query,
        view: &View,
    ) -> Result<(), Verdict> {
        let (Query::Get { namespace, scope }, View::Lock(lock)) = (query, view) else {
            return Ok(());
        };
        // Bytes carry the newest token of all that merged into them.
        if !matches!(scope, Scope::Key(_)) {
            return Ok(());
        }
        for held in self.log.table().get(namespace, scope).holders {
            let is_known = self.log.grant(held.fence).is_some_and(|grant| {
                grant.told.is_some_and(|told| told < asked) && grant.over.is_none()
            });
            let is_shown = lock.holders.iter().any(|shown| shown.fence == held.fence);
            if is_known && !is_shown {
                let what = format!("{} is held with token {}", held.scope, held.fence);
                return Err(Verdict::new(now, "what is durable is shown", what));
            }
        }
        Ok(())
    }

    fn viewed(&self, now: Moment, view: &View) -> Result<(), Verdict> {
        match view {
            View::Lock(lock) => {
                lock.holders.iter().try_for_each(|holder| self.holder_durable(now, holder))
            }
            View::Tested(tested) => {
                tested.conflict.iter().try_for_each(|holder| self.holder_durable(now, holder))
            }
            View::Checked(check) => {
                check.holder.iter().try_for_each(|holder| self.holder_durable(now, holder))
            }
            View::Page(page) => {
                let mut holders = page.locks.iter().flat_map(|lock| &lock.holders);
                holders.try_for_each(|holder| self.holder_durable(now, holder))
            }
            View::Graph(graph) => {
                graph.holds.iter().try_for_each(|holder| self.holder_durable(now, holder))
            }
            View::Overview(overview) => overview
                .next_to_lapse
                .iter()
                .try_for_each(|holder| self.holder_durable(now, holder)),
            View::Token(token) => {
                let mut holders = token.iter().flat_map(|token| &token.holders);
                holders.try_for_each(|holder| self.holder_durable(now, holder))
            }
            View::Register(_)
            | View::Registers(_)
            | View::Session(_)
            | View::Sessions(_)
            | View::Tree(_)
            | View::Stats(_) => Ok(()),
        }
    }
}
