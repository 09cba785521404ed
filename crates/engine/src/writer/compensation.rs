//! Compensation for grants that their callers never hear of.

use leasehold_core::{CloseSession, Command, Grant, Namespace, Opened, Withdraw};

/// The command that takes back a grant which its caller will never hear of. Boxed: it goes with an answer that is moved about a
/// lot, and is hardly ever used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    Grant(Box<Withdraw>),
    /// A grant that a retry can find by its request id: kept unless the commit failed.
    RetryableGrant(Box<Withdraw>),
    Session(Box<CloseSession>),
    /// The same for a session.
    RetryableSession(Box<CloseSession>),
}

/// The subject of an answer to come, so that it can be compensated.
#[derive(Debug)]
pub(super) enum Compensation {
    Grant { namespace: Namespace, known: bool },
    Session { close: CloseSession, known: bool },
    Other,
}

impl Compensation {
    pub(super) fn of(command: &Command) -> Compensation {
        if let Command::Acquire(acquire) = command {
            let (namespace, known) = (acquire.namespace.clone(), acquire.request_id.is_some());
            Compensation::Grant { namespace, known }
        } else if let Command::ByOwner(ask) = command {
            // A retry finds it by the owner's name.
            Compensation::Grant { namespace: ask.namespace.clone(), known: true }
        } else if let Command::OpenSession(open) = command {
            let principal = open.owner.principal();
            let close =
                CloseSession { namespace: open.namespace.clone(), principal, session: open.id };
            Compensation::Session { close, known: open.request_id.is_some() }
        } else {
            Compensation::Other
        }
    }

    /// A grant that was made before is not this answer's to take back.
    pub(super) fn undo(self, grant: &Grant) -> Option<Undo> {
        match self {
            Compensation::Grant { namespace, known } if !grant.replayed => {
                let withdraw = Box::new(Withdraw::of(&namespace, grant));
                Some(if known { Undo::RetryableGrant(withdraw) } else { Undo::Grant(withdraw) })
            }
            Compensation::Grant { .. } | Compensation::Session { .. } | Compensation::Other => None,
        }
    }

    pub(super) fn undo_session(self, opened: &Opened) -> Option<Undo> {
        match self {
            Compensation::Session { close, known } if !opened.replayed => {
                let close = Box::new(close);
                Some(if known { Undo::RetryableSession(close) } else { Undo::Session(close) })
            }
            Compensation::Grant { .. } | Compensation::Session { .. } | Compensation::Other => None,
        }
    }
}
