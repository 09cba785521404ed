//! The binding of streams to sessions. A later stream takes over from an earlier one.

use std::collections::HashMap;
use std::sync::Arc;

use leasehold_core::{Attach, Command, Disconnect, LeaseId, Namespace, Principal};
use leasehold_engine::{Call, Phase, Port};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::app::App;
use super::caller::Caller;

/// All sessions that a stream is bound to.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<Bound>);

#[derive(Debug, Default)]
struct Bound {
    by_session: HashMap<LeaseId, Entry>,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    /// Dropped when another stream takes over.
    _hold: oneshot::Sender<()>,
}

impl Streams {
    fn bound(&self) -> MutexGuard<'_, Bound> {
        self.0.lock()
    }
}

/// A session is bound to this stream until this is dropped; then its disconnect policy applies.
#[derive(Debug)]
pub(crate) struct Binding {
    app: Arc<App>,
    namespace: Namespace,
    principal: Principal,
    session: LeaseId,
    number: u64,
    /// Ready when another stream has taken over.
    pub(crate) replaced: oneshot::Receiver<()>,
}

impl Binding {
    /// Binds a session. The answer, whether it is there at all, comes through the port under this number.
    pub(crate) fn new(
        app: &Arc<App>,
        caller: &Caller,
        port: &mut Port,
        reply_number: u32,
        (namespace, session): (Namespace, LeaseId),
    ) -> Binding {
        let principal = caller.principal.clone();
        let (hold, replaced) = oneshot::channel();
        let mut bound = app.streams.bound();
        bound.next += 1;
        let number = bound.next;
        bound.by_session.insert(session, Entry { number, _hold: hold });
        // While nobody else can: the engine sees attachments and disconnects in the order in which they are noted here.
        let attach = Attach { namespace: namespace.clone(), principal: principal.clone(), session };
        port.ask(reply_number, Call::Command(Command::Attach(attach)));
        port.follow(session);
        port.send(|_, _| {});
        drop(bound);
        Binding { app: app.clone(), namespace, principal, session, number, replaced }
    }

    pub(crate) fn session(&self) -> LeaseId {
        self.session
    }
}

impl Drop for Binding {
    fn drop(&mut self) {
        let mut bound = self.app.streams.bound();
        let is_ours =
            bound.by_session.get(&self.session).is_some_and(|entry| entry.number == self.number);
        if !is_ours {
            return;
        }
        bound.by_session.remove(&self.session);
        // A server that stops or no longer leads has not been left by its clients: their sessions go on elsewhere.
        let engine = self.app.engine(&self.namespace);
        if engine.status().phase == Phase::Leading {
            engine.tell(Command::Disconnect(Disconnect {
                namespace: self.namespace.clone(),
                principal: self.principal.clone(),
                session: self.session,
            }));
        }
    }
}
