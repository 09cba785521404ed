//! Sessions: a lease opened first, under which a client takes any number of grants.

use crate::command::{Attach, CloseSession, Disconnect, KeepAlive, OnDisconnect, OpenSession};
use crate::digest::digest_of_opening;
use crate::effect::{Answer, Opened, Step};
use crate::id::{LeaseId, Namespace, Principal};
use crate::lease::LeaseIdx;
use crate::namespace::{Known, NamespaceIdx};
use crate::quota::Quotas;
use crate::refusal::{Gone, Invalid, Limit, Refusal};
use crate::table::LockTable;
use crate::time::Millis;
use crate::transition::{Ending, Request, SessionOpened, SessionTerms, Transition};

impl LockTable {
    pub(super) fn open(
        &mut self,
        open: OpenSession,
        quotas: &Quotas,
        step: &mut Step,
    ) -> super::Handled {
        let ttl = self.check_ttl(open.ttl, quotas)?;
        self.check_terms(&open, quotas)?;
        let digest = || digest_of_opening(&open);
        let request = open.request_id.clone().map(|id| Request { id, digest: digest() });
        if let Some(request) = &request
            && let Some(opened) = self.opened_before(&open, request)?
        {
            return Ok(Answer::SessionOpened(Box::new(opened)));
        }
        self.check_sessions(&open)?;
        if self.suspended {
            return Err(Refusal::Suspended);
        }
        let principal = open.owner.principal();
        self.check_namespace_quota(self.namespace_idx(&open.namespace), &principal, quotas)?;
        let space = self.space_to_fill(&open.namespace)?;
        let bytes = open.metadata.as_ref().map_or(0, |metadata| metadata.len());
        self.check_session_quota(space, &open.owner, quotas, bytes)?;
        if self.space(space).lease_no(open.id).is_some() {
            return Err(Refusal::Invalid(Invalid::LeaseIdInUse));
        }
        let number = self.revision.0 + 1;
        let opened = SessionOpened {
            namespace: open.namespace,
            lease: open.id,
            owner: open.owner,
            ttl,
            opened_at: self.now,
            terms: SessionTerms {
                number,
                adapter: open.adapter,
                on_disconnect: open.on_disconnect,
                request,
                metadata: open.metadata,
            },
        };
        self.enact(Transition::SessionOpened(opened), step);
        let (deadline, replayed) = (self.now.plus(ttl), false);
        let opened = Opened { session: open.id, number, ttl, deadline, replayed };
        Ok(Answer::SessionOpened(Box::new(opened)))
    }

    /// The same request came before: its session again, as it stands now.
    fn opened_before(
        &self,
        open: &OpenSession,
        request: &Request,
    ) -> Result<Option<Opened>, Refusal> {
        let Some(at) = self.space_named(&open.namespace) else { return Ok(None) };
        let Some(owner) = at.owners.find(&open.owner) else { return Ok(None) };
        match at.requests.get(&(owner, request.id.clone())).copied() {
            None | Some(Known::Kept(_)) => Ok(None),
            Some(Known::Granted { lease, .. }) if at.lease(lease).is_over() => Ok(None),
            Some(Known::Opened { lease, digest }) if digest == request.digest => {
                let held = at.lease(lease);
                let session = held.session.as_ref().expect("a session was opened");
                Ok(Some(Opened {
                    session: held.id,
                    number: session.terms.number,
                    ttl: held.ttl,
                    deadline: held.deadline,
                    replayed: true,
                }))
            }
            Some(Known::Opened { .. } | Known::Granted { .. } | Known::Waiting(_)) => {
                Err(Refusal::RequestIdReused)
            }
        }
    }

    fn check_terms(&self, open: &OpenSession, quotas: &Quotas) -> Result<(), Refusal> {
        let max = self.limits.disconnect_ttl_max.min(quotas.ttl_max);
        if let OnDisconnect::Keep(ttl) = open.on_disconnect
            && ttl > max
        {
            return Err(Refusal::Invalid(Invalid::DisconnectTtl { ttl, max }));
        }
        let len = open.metadata.as_ref().map_or(0, |metadata| metadata.len());
        if len > self.limits.metadata_bytes_max {
            let max = self.limits.metadata_bytes_max;
            return Err(Refusal::Invalid(Invalid::MetadataSize { len, max }));
        }
        Ok(())
    }

    fn check_sessions(&self, open: &OpenSession) -> Result<(), Refusal> {
        let max = self.limits.sessions_per_adapter_max;
        if self.sessions.get(&open.adapter).is_some_and(|open| *open >= max) {
            return Err(Refusal::Limit(Limit::Sessions { adapter: open.adapter.clone(), max }));
        }
        Ok(())
    }

    pub(super) fn keep_alive(
        &mut self,
        keep: &KeepAlive,
        quotas: &Quotas,
        step: &mut Step,
    ) -> super::Handled {
        let ttl = keep.ttl.map(|ttl| self.check_ttl(ttl, quotas)).transpose()?;
        let (space, lease) =
            self.find_live(&keep.namespace, keep.session, &keep.principal, step)?;
        self.renew_lease(space, lease, ttl, step)
    }

    pub(super) fn close(&mut self, close: &CloseSession, step: &mut Step) -> super::Handled {
        let CloseSession { namespace, session, principal } = close;
        let (space, lease) = match self.find_live(namespace, *session, principal, step) {
            Ok(found) => found,
            Err(refusal) => {
                let before = self.closed_before(namespace, *session, principal);
                let closed = |grants| Answer::SessionClosed { grants, replayed: true };
                return before.map(closed).ok_or(refusal);
            }
        };
        let grants = self.end_whole(space, lease, Ending::Closed, step);
        Ok(Answer::SessionClosed { grants, replayed: false })
    }

    /// Ends a lease with its waiters and everything under it; says how much that was.
    pub(super) fn end_whole(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        ending: Ending,
        step: &mut Step,
    ) -> usize {
        let grants = self.space(space).lease(lease).held.len();
        self.end_now_or_in_turns(space, lease, ending, step);
        grants
    }

    pub(super) fn attach(&mut self, attach: &Attach, step: &mut Step) -> super::Handled {
        let (space, lease) =
            self.find_session(&attach.namespace, attach.session, &attach.principal, step)?;
        if let Some(session) = &mut self.space_mut(space).lease_mut(lease).session {
            session.attached = true;
        }
        self.renew_lease(space, lease, None, step)
    }

    pub(super) fn disconnect(&mut self, gone: &Disconnect, step: &mut Step) -> super::Handled {
        let (space, lease) =
            self.find_session(&gone.namespace, gone.session, &gone.principal, step)?;
        let session = self.space_mut(space).lease_mut(lease).session.as_mut();
        let session = session.expect("it was found to be a session");
        session.attached = false;
        match session.terms.on_disconnect {
            OnDisconnect::Release => {
                self.end_whole(space, lease, Ending::Disconnected, step);
                Ok(Answer::Disconnected { kept_until: None })
            }
            OnDisconnect::Keep(length) => {
                session.kept = true;
                self.keep_session_places(space, lease, step);
                let length = Millis::from_duration(length).unwrap_or(Millis::new(u32::MAX));
                let deadline = self.now.plus(length);
                self.set_deadline(space, lease, deadline);
                Ok(Answer::Disconnected { kept_until: Some(deadline) })
            }
        }
    }

    pub(super) fn find_live(
        &mut self,
        namespace: &Namespace,
        id: LeaseId,
        principal: &Principal,
        step: &mut Step,
    ) -> Result<(NamespaceIdx, LeaseIdx), Refusal> {
        let found = self.namespace_idx(namespace).and_then(|space| {
            let lease = self.own_lease(space, id, principal, step)?;
            Some((space, lease))
        });
        let why = || self.why_lease_is_gone(namespace, id, principal);
        found.ok_or_else(|| Refusal::SessionNotFound(Some(why())))
    }

    fn find_session(
        &mut self,
        namespace: &Namespace,
        id: LeaseId,
        principal: &Principal,
        step: &mut Step,
    ) -> Result<(NamespaceIdx, LeaseIdx), Refusal> {
        let (space, lease) = self.find_live(namespace, id, principal, step)?;
        match self.space(space).lease(lease).session {
            Some(_) => Ok((space, lease)),
            None => Err(Refusal::SessionNotFound(Some(Gone::Unknown))),
        }
    }
}
