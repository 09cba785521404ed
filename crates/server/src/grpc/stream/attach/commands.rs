//! Commands of a client: each is decoded, checked and sent to the engine, under a slot for its answer.

use leasehold_api::Code;
use leasehold_api::grpc::command::Ask;
use leasehold_api::grpc::reply::Answer as Answered;
use leasehold_api::grpc::{self, Cancelled, Command as Asked, StreamAcquire};
use leasehold_core::{
    self as core, Cancel, CloseSession, Command, KeepAlive, LeaseId, Namespace, Owner, Release,
    Renew, Under,
};
use leasehold_engine::{Call, Query};

use super::{Attached, Bound, IN_FLIGHT_MAX, LIGHT_BYTES, MESSAGE_BYTES, QUERIES_IN_FLIGHT_MAX};
use crate::convert;
use crate::grpc::stream::slots::{Slot, Traced, Work};
use crate::grpc::{fences, read};
use crate::service::operation;
use crate::service::problems::{Failure, unexpected};
use crate::service::views::{CheckToken, Test};
use crate::telemetry::metrics::{Op, Stopwatch};
use crate::telemetry::traces::TraceContext;

impl Attached {
    /// Asks what was read, as long as there is room for answers that are known at once.
    pub(super) fn ask_some(&mut self) {
        while self.weight < MESSAGE_BYTES
            && let Some((_, command)) = self.asked.front()
        {
            let is_query = matches!(command.ask, Some(Ask::Test(_) | Ask::Check(_) | Ask::Get(_)));
            if is_query && self.queries >= QUERIES_IN_FLIGHT_MAX {
                return;
            }
            let Some((watch, command)) = self.asked.pop_front() else { return };
            let (id, op) = (command.id, command.ask.as_ref().and_then(op_of));
            if let Err(failure) = self.ask(watch, command) {
                if let Some(op) = op {
                    self.app.count(op, watch.until(self.answered), Err(failure.code()));
                }
                self.refuse(id, &failure);
            }
        }
    }

    /// Lays one command ready for the engine.
    fn ask(&mut self, watch: Stopwatch, command: Asked) -> Result<(), Failure> {
        let id = command.id;
        let missing = || Failure::field("ask", "is missing: a command has a request");
        let ask = command.ask.ok_or_else(missing)?;
        if self.slots.len() >= IN_FLIGHT_MAX {
            let said = format!("more than {IN_FLIGHT_MAX} commands are in flight on this stream");
            return Err(Failure::new(Code::QuotaExceeded, said));
        }
        let mut traced = None;
        let (work, call) = match ask {
            Ask::Acquire(body) => return self.ask_acquire(id, watch, &body),
            Ask::Cancel(body) => {
                self.ask_cancel(id, watch, body.command_id);
                return Ok(());
            }
            Ask::Release(body) => {
                let release = self.release(&body)?;
                let trace = body.traceparent.as_deref().and_then(TraceContext::parse);
                let releasing =
                    self.app.tracer.releasing(trace, &release.namespace, &release.scope);
                traced = releasing.map(|releasing| Box::new(Traced::Release(releasing)));
                (Work::Release(release.lease), Call::Command(Command::Release(release)))
            }
            Ask::Renew(body) => {
                let renew = self.renew(&body)?;
                (Work::Renew(renew.lease), Call::Command(Command::Renew(renew)))
            }
            Ask::Heartbeat(body) => {
                let keep = self.heartbeat(&body)?;
                (Work::Renew(keep.session), Call::Command(Command::KeepAlive(keep)))
            }
            Ask::Close(body) => {
                let session = self.lease("session_id", &body.session_id)?;
                let (namespace, principal) =
                    (self.namespace.clone(), self.caller.principal.clone());
                let close = CloseSession { namespace, principal, session };
                (Work::Close(session), Call::Command(Command::CloseSession(close)))
            }
            Ask::Unlock(body) => {
                let (lock, unlock) = self.unlock(&body)?;
                (Work::Unlock { lock }, Call::Command(Command::Unlock(unlock)))
            }
            Ask::Accept(body) => {
                let accept = {
                    let namespace = self.in_namespace(&body.namespace)?;
                    fences::asked(&self.caller, &body, namespace)?
                };
                (Work::Accept, Call::Command(Command::AcceptFence(accept)))
            }
            Ask::Test(body) => {
                let test = self.test(&body)?;
                let lock = test.claim.scope.to_string();
                (Work::Test { lock }, Call::Query(test.into()))
            }
            Ask::Check(body) => {
                let check = self.check(&body)?;
                let lock = check.scope.to_string();
                let work = Work::Check { lock, fencing_token: body.fencing_token };
                (work, Call::Query(check.into()))
            }
            Ask::Get(body) => {
                let namespace = self.in_namespace(&body.namespace)?;
                let scope = read::scope(&body.lock)?;
                (Work::Get, Call::Query(Query::Get { namespace, scope }))
            }
        };
        match &call {
            Call::Command(command) => self.app.admit(&self.caller, command)?,
            Call::Query(query) => {
                self.app.admit_query(&self.caller, query)?;
                self.queries += 1;
            }
        }
        let number = self.slots.put(Slot { id, watch, work, traced });
        self.port.ask(number, call);
        Ok(())
    }

    fn ask_acquire(
        &mut self,
        id: u64,
        watch: Stopwatch,
        body: &StreamAcquire,
    ) -> Result<(), Failure> {
        let command = Command::Acquire(self.acquire(body)?);
        self.app.admit(&self.caller, &command)?;
        let Command::Acquire(mut acquire) = command else { return Err(unexpected()) };
        let waits = acquire.wait != core::Wait::Never;
        if waits && self.waiting.contains_key(&id) {
            return Err(Failure::field("id", "is that of a request in flight"));
        }
        let work = Work::Acquire {
            kind: operation::kind(&acquire.claims),
            // A lease of its own needs a ttl, a session has one.
            in_session: body.ttl.is_none(),
            respelled: respelled(body, &acquire),
        };
        let trace = body.traceparent.as_deref().and_then(TraceContext::parse);
        let traced =
            self.app.tracer.sampled(trace).map(|parent| {
                Box::new(Traced::Acquire { parent, claims: acquire.claims.to_vec() })
            });
        let number = self.slots.put(Slot { id, watch, work, traced });
        if waits {
            self.waiting.insert(id, number);
        }
        acquire.call = self.port.call_id(number);
        self.port.ask(number, Call::Command(Command::Acquire(acquire)));
        Ok(())
    }

    fn acquire(&self, body: &StreamAcquire) -> Result<core::Acquire, Failure> {
        let claims = if body.locks.is_empty() {
            vec![read::claim(&body.lock, body.mode, body.permits)?]
        } else if body.lock.is_empty() && body.mode == 0 && body.permits.is_none() {
            read::claims(&body.locks)?
        } else {
            return Err(Failure::field("locks", "stand instead of lock, mode and permits"));
        };
        let under = match (&body.session_id, &body.ttl) {
            (None, None) => Under::Session(self.session()?.binding.session()),
            (session, ttl) => read::under(session.as_deref(), *ttl)?,
        };
        let terms = read::Terms {
            owner: self.owner(&body.owner_id)?,
            under,
            wait: body.wait,
            wait_forever: body.wait_forever,
            request_id: body.request_id.as_deref(),
            reclaim_window: body.reclaim_window,
            reclaim: body.reclaim,
            ticket: body.ticket.as_deref(),
            metadata: body.metadata.as_ref(),
        };
        read::acquire(self.namespace.clone(), claims, terms)
    }

    fn release(&self, body: &grpc::StreamRelease) -> Result<Release, Failure> {
        Ok(Release {
            namespace: self.namespace.clone(),
            scope: read::scope(&body.lock)?,
            owner: self.owner(&body.owner_id)?,
            lease: self.lease("lease_id", &body.lease_id)?,
            fence: convert::fence(body.fencing_token)?,
        })
    }

    fn unlock(&self, body: &grpc::UnlockRequest) -> Result<(String, core::Unlock), Failure> {
        let scope = read::scope(&body.lock)?;
        let namespace = self.in_namespace(&body.namespace)?;
        let owner = self.owner(&body.owner_id)?;
        let session = self.lease("session_id", &body.session_id)?;
        Ok((scope.to_string(), convert::unlock(namespace, &scope, owner, session)?))
    }

    fn renew(&self, body: &grpc::StreamRenew) -> Result<Renew, Failure> {
        Ok(Renew {
            namespace: self.namespace.clone(),
            scope: read::scope(&body.lock)?,
            owner: self.owner(&body.owner_id)?,
            lease: self.lease("lease_id", &body.lease_id)?,
            fence: convert::fence(body.fencing_token)?,
            ttl: read::length("ttl", body.ttl)?,
        })
    }

    fn heartbeat(&self, body: &grpc::Heartbeat) -> Result<KeepAlive, Failure> {
        Ok(KeepAlive {
            namespace: self.namespace.clone(),
            principal: self.caller.principal.clone(),
            session: self.lease("session_id", &body.session_id)?,
            ttl: read::length("ttl", body.ttl)?,
        })
    }

    fn test(&self, body: &grpc::TestRequest) -> Result<Test, Failure> {
        let claim = read::claim(&body.lock, body.mode, body.permits)?;
        let namespace = self.in_namespace(&body.namespace)?;
        let owner = self.owner(&body.owner_id)?;
        let session = body.session_id.as_deref().unwrap_or_default();
        let named = !session.is_empty() || self.bound.is_some();
        let lease = named.then(|| self.lease("session_id", session)).transpose()?;
        Ok(Test { namespace, owner, lease, claim })
    }

    pub(super) fn check(&self, body: &grpc::CheckRequest) -> Result<CheckToken, Failure> {
        let lease = body.lease_id.as_deref().map(|id| convert::lease_id("lease_id", id));
        Ok(CheckToken {
            namespace: self.in_namespace(&body.namespace)?,
            scope: read::scope(&body.lock)?,
            fence: convert::fence(body.fencing_token)?,
            lease: lease.transpose()?,
        })
    }

    fn ask_cancel(&mut self, id: u64, watch: Stopwatch, of: u64) {
        let Some(&waiter) = self.waiting.get(&of) else {
            // Answered by now, or never one that waits.
            let answer = Answered::Cancelled(Cancelled { waiting: false });
            return self.push(id, answer, LIGHT_BYTES);
        };
        let number = self.slots.put(Slot {
            id,
            watch,
            work: Work::Cancel { waiter, told: true },
            traced: None,
        });
        self.cancel(number, waiter, false);
    }

    pub(super) fn session(&self) -> Result<&Bound, Failure> {
        self.bound.as_ref().ok_or_else(|| {
            Failure::field("ttl", "is missing, and the stream is not bound to a session")
        })
    }

    pub(super) fn owner(&self, text: &str) -> Result<Owner, Failure> {
        match &self.bound {
            Some(bound) if text.is_empty() => Ok(bound.owner.clone()),
            Some(_) | None => convert::owner(&self.caller.principal, text),
        }
    }

    /// A lease by its id, or the stream's session.
    pub(super) fn lease(&self, field: &str, text: &str) -> Result<LeaseId, Failure> {
        match &self.bound {
            Some(bound) if text.is_empty() => Ok(bound.binding.session()),
            Some(_) | None => convert::lease_id(field, text),
        }
    }

    fn in_namespace(&self, text: &str) -> Result<Namespace, Failure> {
        if text.is_empty() || text == self.namespace.as_str() {
            return Ok(self.namespace.clone());
        }
        Err(Failure::field("namespace", "is the stream's: leave it out"))
    }

    /// The client says nothing more: what waits leaves the queue, and may come back on another stream.
    pub(super) fn cancel_all(&mut self) {
        for (_, waiter) in std::mem::take(&mut self.waiting) {
            let work = Work::Cancel { waiter, told: false };
            let slot = Slot { id: 0, watch: Stopwatch::start(), work, traced: None };
            let number = self.slots.put(slot);
            self.cancel(number, waiter, true);
        }
    }

    pub(super) fn cancel(&mut self, number: u32, waiter: u32, keep_place: bool) {
        let (namespace, call) = (self.namespace.clone(), self.port.call_id(waiter));
        let cancel = Cancel { namespace, call, keep_place };
        self.port.ask(number, Call::Command(Command::Cancel(cancel)));
    }
}

/// The operation that a command is counted as, though it could not be decoded.
fn op_of(ask: &Ask) -> Option<Op> {
    Some(match ask {
        Ask::Acquire(_) => Op::Acquire,
        Ask::Release(_) | Ask::Unlock(_) => Op::Release,
        Ask::Renew(_) | Ask::Heartbeat(_) => Op::Renew,
        Ask::Test(_) => Op::Test,
        Ask::Check(_) => Op::Check,
        Ask::Get(_) => Op::Get,
        Ask::Accept(_) => Op::Fence,
        Ask::Close(_) => Op::Session,
        Ask::Cancel(_) => return None,
    })
}

/// The lock in its canonical spelling, if it was asked for in another.
pub(super) fn respelled(body: &StreamAcquire, acquire: &core::Acquire) -> Option<Box<str>> {
    let [claim] = &acquire.claims[..] else { return None };
    if let core::Scope::Key(key) = &claim.scope
        && key.text().as_bytes() == body.lock.as_bytes()
    {
        return None;
    }
    let text = claim.scope.to_string();
    (text != body.lock).then(|| text.into())
}
