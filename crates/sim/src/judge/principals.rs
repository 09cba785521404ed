//! A lease answers to its principal alone; to all others it is as one that never was.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "of many commands, answers and faults only a few matter here"
)]

use leasehold_core::{Command, Gone, LeaseId, Namespace, Principal, Refusal, Under};
use leasehold_engine::{CallError, Reply};

use super::{Judge, Verdict};
use crate::time::Moment;

impl Judge {
    /// Whether the command shows a lease of another principal.
    pub(super) fn is_foreign(&self, command: &Command) -> bool {
        shown(command).is_some_and(|(namespace, lease, principal)| {
            let known = self.log.lease(namespace, lease);
            known.is_some_and(|known| known.principal != principal)
        })
    }

    /// What a server answers to a client that shows a lease of another principal.
    pub(super) fn answered_to_foreign(
        now: Moment,
        reply: &Result<Reply, CallError>,
    ) -> Result<(), Verdict> {
        let tells = match reply {
            Ok(_) => true,
            Err(CallError::Refused(refusal)) => match refusal {
                Refusal::LeaseLost(why) | Refusal::SessionNotFound(why) => {
                    why.is_some_and(|why| why != Gone::Unknown)
                }
                Refusal::NotHolder { why, .. } => why.is_some_and(|why| why != Gone::Unknown),
                _ => false,
            },
            Err(_) => false,
        };
        if tells {
            let what = format!("to a lease of another principal a server says {reply:?}");
            return Err(Verdict::new(now, "a lease answers to its principal alone", what));
        }
        Ok(())
    }
}

/// The lease that a command shows, and the principal that shows it.
fn shown(command: &Command) -> Option<(&Namespace, LeaseId, Principal)> {
    Some(match command {
        Command::Acquire(ask) => match ask.under {
            Under::Session(lease) => (&ask.namespace, lease, ask.owner.principal()),
            Under::NewLease { .. } => return None,
        },
        Command::Renew(ask) => (&ask.namespace, ask.lease, ask.owner.principal()),
        Command::Release(ask) => (&ask.namespace, ask.lease, ask.owner.principal()),
        Command::Unlock(ask) => (&ask.namespace, ask.session, ask.owner.principal()),
        Command::KeepAlive(ask) => (&ask.namespace, ask.session, ask.principal.clone()),
        Command::CloseSession(ask) => (&ask.namespace, ask.session, ask.principal.clone()),
        Command::Attach(ask) => (&ask.namespace, ask.session, ask.principal.clone()),
        Command::Disconnect(ask) => (&ask.namespace, ask.session, ask.principal.clone()),
        _ => return None,
    })
}
