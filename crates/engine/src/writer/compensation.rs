//! How what a caller never hears of is taken back.

use leasehold_core::{CloseSession, Command, Grant, Namespace, Opened, Withdraw};

/// How to take back something that its caller will never hear of. Boxed: it goes with an answer that is moved about a
/// lot, and is hardly ever used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undo {
    Grant(Box<Withdraw>),
    /// A grant that a retry can find by its request id: kept unless the commit failed.
    KnownGrant(Box<Withdraw>),
    Session(Box<CloseSession>),
    /// The same for a session.
    KnownSession(Box<CloseSession>),
}

/// What an answer will be about, so that it can be taken back.
#[derive(Debug)]
pub(super) enum About {
    Grant { namespace: Namespace, known: bool },
    Session { close: CloseSession, known: bool },
    Other,
}

impl About {
    pub(super) fn of(command: &Command) -> About {
        if let Command::Acquire(acquire) = command {
            let (namespace, known) = (acquire.namespace.clone(), acquire.request_id.is_some());
            About::Grant { namespace, known }
        } else if let Command::ByOwner(ask) = command {
            // A retry finds it by the owner's name.
            About::Grant { namespace: ask.namespace.clone(), known: true }
        } else if let Command::OpenSession(open) = command {
            let principal = open.owner.principal();
            let close =
                CloseSession { namespace: open.namespace.clone(), principal, session: open.id };
            About::Session { close, known: open.request_id.is_some() }
        } else {
            About::Other
        }
    }

    /// A grant that was made before is not this answer's to take back.
    pub(super) fn undo(self, grant: &Grant) -> Option<Undo> {
        match self {
            About::Grant { namespace, known } if !grant.replayed => {
                let withdraw = Box::new(Withdraw::of(&namespace, grant));
                Some(if known { Undo::KnownGrant(withdraw) } else { Undo::Grant(withdraw) })
            }
            About::Grant { .. } | About::Session { .. } | About::Other => None,
        }
    }

    pub(super) fn undo_session(self, opened: &Opened) -> Option<Undo> {
        match self {
            About::Session { close, known } if !opened.replayed => {
                let close = Box::new(close);
                Some(if known { Undo::KnownSession(close) } else { Undo::Session(close) })
            }
            About::Grant { .. } | About::Session { .. } | About::Other => None,
        }
    }
}
