//! Sessions: opened, kept alive, bound to a stream, closed.

use super::check::invalid;
use super::{Answered, Lease, LeaseState, Model, Session, millis};
use leasehold_core::*;

impl Model {
    pub(crate) fn open_session(&mut self, ask: &OpenSession) -> Answered {
        self.check_ttl(ask.ttl)?;
        let max = self.limits.disconnect_ttl_max;
        if let OnDisconnect::Keep(ttl) = ask.on_disconnect
            && ttl > max
        {
            return invalid(Invalid::DisconnectTtl { ttl, max });
        }
        self.check_metadata(ask.metadata.as_deref())?;
        if let Some(opened) = self.reopen(ask)? {
            return Ok(Answer::SessionOpened(Box::new(opened)));
        }
        self.check_sessions(&ask.adapter)?;
        if self.suspended {
            return Err(Refusal::Suspended);
        }
        self.check_namespace(&ask.namespace)?;
        self.check_new_id(&ask.namespace, ask.id)?;
        let ttl = millis(ask.ttl);
        let terms = SessionTerms {
            number: self.revision.0 + 1,
            adapter: ask.adapter.clone(),
            on_disconnect: ask.on_disconnect,
            request: ask.request_id.clone().map(|id| Request { id, digest: 0 }),
            metadata: ask.metadata.clone(),
        };
        self.record(Transition::SessionOpened(SessionOpened {
            namespace: ask.namespace.clone(),
            lease: ask.id,
            owner: ask.owner.clone(),
            ttl,
            opened_at: self.now,
            terms: terms.clone(),
        }));
        let news = News::SessionOpened {
            number: terms.number,
            owner: ask.owner.clone(),
            adapter: ask.adapter.clone(),
        };
        self.tell(&ask.namespace, news);
        let (number, deadline) = (terms.number, self.now.plus(ttl));
        self.leases.push(Lease {
            namespace: ask.namespace.clone(),
            id: ask.id,
            owner: ask.owner.clone(),
            ttl,
            deadline,
            state: LeaseState::Live,
            session: Some(Session {
                asked: ask.clone(),
                terms,
                opened_at: self.now,
                attached: false,
                kept: false,
            }),
        });
        let replayed = false;
        let opened = Opened { session: ask.id, number, ttl, deadline, replayed };
        Ok(Answer::SessionOpened(Box::new(opened)))
    }

    /// "Per adapter there is a limit on sessions."
    fn check_sessions(&self, adapter: &Adapter) -> Result<(), Refusal> {
        let max = self.limits.sessions_per_adapter_max;
        let open = self.leases.iter().filter(|lease| {
            let session = lease.session.as_ref();
            lease.state != LeaseState::Lapsed
                && session.is_some_and(|session| session.terms.adapter == *adapter)
        });
        if open.count() >= max {
            let adapter = adapter.clone();
            return Err(Refusal::Limit(Limit::Sessions { adapter, max }));
        }
        Ok(())
    }

    pub(crate) fn check_standing(
        &self,
        namespace: &Namespace,
        id: LeaseId,
        principal: &Principal,
    ) -> Result<&Lease, Refusal> {
        self.own_standing(namespace, id, principal).ok_or_else(|| {
            Refusal::SessionNotFound(Some(self.why_lease_is_gone(namespace, id, principal)))
        })
    }

    fn check_session(
        &self,
        namespace: &Namespace,
        id: LeaseId,
        principal: &Principal,
    ) -> Result<(), Refusal> {
        match self.check_standing(namespace, id, principal)?.session {
            Some(_) => Ok(()),
            None => Err(Refusal::SessionNotFound(Some(Gone::Unknown))),
        }
    }

    /// "One heartbeat renews them all."
    pub(crate) fn keep_alive(&mut self, ask: &KeepAlive) -> Answered {
        if let Some(ttl) = ask.ttl {
            self.check_ttl(ttl)?;
        }
        self.check_standing(&ask.namespace, ask.session, &ask.principal)?;
        Ok(self.renew_lease(&ask.namespace, ask.session, ask.ttl))
    }

    /// "Renewing sets deadline = now + ttl"; another ttl is a lasting change.
    pub(crate) fn renew_lease(
        &mut self,
        namespace: &Namespace,
        id: LeaseId,
        ttl: Option<std::time::Duration>,
    ) -> Answer {
        let lease = self.lease(namespace, id).expect("it was looked up").clone();
        if let Some(ttl) = ttl.map(millis).filter(|ttl| *ttl != lease.ttl) {
            self.record(Transition::TtlChanged { namespace: namespace.clone(), lease: id, ttl });
            self.tell(namespace, News::TtlChanged { owner: lease.owner, ttl });
            self.lease_mut(namespace, id).ttl = ttl;
        }
        self.revive(namespace, id);
        let lease = self.lease(namespace, id).expect("it was looked up");
        Answer::Renewed(Renewed { ttl: lease.ttl, deadline: lease.deadline })
    }

    /// "One close releases them all."
    pub(crate) fn close_session(&mut self, ask: &CloseSession) -> Answered {
        if let Err(gone) = self.check_standing(&ask.namespace, ask.session, &ask.principal) {
            let closed = |grants| Answer::SessionClosed { grants, replayed: true };
            return self.closed_before(ask).map(closed).ok_or(gone);
        }
        let grants = self.grants_under(&ask.namespace, ask.session).count();
        self.end_lease(&ask.namespace, ask.session, &Ending::Closed);
        Ok(Answer::SessionClosed { grants, replayed: false })
    }

    /// "Operators revoke": the holder hears of it at once, as of any ending it did not ask for.
    pub(crate) fn break_session(&mut self, ask: &BreakSession) -> Answered {
        let numbered = |lease: &&Lease| {
            let session = lease.session.as_ref();
            lease.namespace == ask.namespace
                && lease.state != LeaseState::Lapsed
                && session.is_some_and(|session| session.terms.number == ask.number)
        };
        let id = self.leases.iter().find(numbered).map(|lease| lease.id);
        let id = id.ok_or(Refusal::SessionNotFound(None))?;
        let grants = self.grants_under(&ask.namespace, id).count();
        let ending = Ending::Revoked(ask.reason.clone());
        self.tell_lost(&ask.namespace, id, None, &ending);
        self.end_lease(&ask.namespace, id, &ending);
        Ok(Answer::SessionClosed { grants, replayed: false })
    }

    pub(crate) fn attach(&mut self, ask: &Attach) -> Answered {
        self.check_session(&ask.namespace, ask.session, &ask.principal)?;
        let lease = self.lease_mut(&ask.namespace, ask.session);
        lease.session.as_mut().expect("it is a session").attached = true;
        Ok(self.renew_lease(&ask.namespace, ask.session, None))
    }

    /// "`release` (at once, the NFS habit) or `keep` for `disconnect_ttl_ms` (the SMB durable-handle habit)."
    pub(crate) fn disconnect(&mut self, ask: &Disconnect) -> Answered {
        self.check_session(&ask.namespace, ask.session, &ask.principal)?;
        let now = self.now;
        let lease = self.lease_mut(&ask.namespace, ask.session);
        let session = lease.session.as_mut().expect("it is a session");
        match session.terms.on_disconnect {
            OnDisconnect::Release => {
                self.end_lease(&ask.namespace, ask.session, &Ending::Disconnected);
                Ok(Answer::Disconnected { kept_until: None })
            }
            OnDisconnect::Keep(kept) => {
                session.attached = false;
                session.kept = true;
                lease.deadline = now.plus(millis(kept));
                let kept_until = Some(lease.deadline);
                for waiter in self.take_waiters_of(&ask.namespace, ask.session) {
                    self.tell_left(&waiter);
                    self.keep_place(waiter.clone());
                    self.refuse_waiter(&waiter, &Refusal::LeaseLost(None));
                }
                Ok(Answer::Disconnected { kept_until })
            }
        }
    }
}
