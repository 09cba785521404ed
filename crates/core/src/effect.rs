//! Effects: the answers that others were waiting for, and events for watchers.
//!
//! Nothing of this may be seen before the transitions of the same step are durable.

use std::sync::Arc;
use std::time::Duration;

use crate::fencing_token::FencingToken;
use crate::id::{
    Adapter, CallId, Epoch, LeaseId, Namespace, Owner, RegisterName, Revision, SecretTicket, Ticket,
};
use crate::mode::Mode;
use crate::range::ByteRange;
use crate::refusal::{Refusal, WaitEdge};
use crate::scope::Scope;
use crate::time::{Millis, Timestamp};
use crate::transition::{Ending, Transition};

/// The answer to the command itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Answered(Answer),
    /// The request waits; its answer will be an effect.
    Queued(Queued),
    Refused(Refusal),
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted(Box<Grant>),
    Renewed(Renewed),
    /// The time it was held, and whether it was released before, by the same owner under the same lease.
    Released {
        held: Duration,
        replayed: bool,
    },
    /// Whether any byte of the range was held.
    Unlocked {
        changed: bool,
    },
    /// Whether the call was still waiting.
    Cancelled {
        waiting: bool,
    },
    SessionOpened(Box<Opened>),
    /// The number of grants that ended with it, and whether it was closed before.
    SessionClosed {
        grants: usize,
        replayed: bool,
    },
    Disconnected {
        kept_until: Option<Timestamp>,
    },
    FenceAccepted {
        high_water: FencingToken,
    },
    /// The high-water mark that the register had.
    FenceDeleted {
        high_water: FencingToken,
    },
    /// `truncated`: there is more than one command ends, and the next one goes on.
    Broken {
        grants: usize,
        truncated: bool,
    },
    /// `truncated` as above.
    FileRemoved {
        grants: usize,
        waiters: usize,
        truncated: bool,
    },
    Withdrawn {
        found: bool,
    },
    EpochBegun {
        recovering: usize,
    },
    Done,
}

impl Answer {
    /// Whether the same command, given again, would go on with what this one began.
    pub fn is_truncated(&self) -> bool {
        matches!(
            self,
            Answer::Broken { truncated: true, .. } | Answer::FileRemoved { truncated: true, .. }
        )
    }

    /// The answer to a command and to the same command, given again to go on with it.
    #[must_use]
    pub fn and(self, more: Answer) -> Answer {
        match (self, more) {
            (Answer::Broken { grants, .. }, Answer::Broken { grants: more, truncated }) => {
                Answer::Broken { grants: grants + more, truncated }
            }
            (
                Answer::FileRemoved { grants, waiters, .. },
                Answer::FileRemoved { grants: more, waiters: others, truncated },
            ) => {
                let (grants, waiters) = (grants + more, waiters + others);
                Answer::FileRemoved { grants, waiters, truncated }
            }
            (_, more) => more,
        }
    }
}

/// A grant as its holder sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    pub lease: LeaseId,
    pub owner: Owner,
    pub fence: FencingToken,
    pub ttl: Millis,
    pub deadline: Timestamp,
    pub granted_at: Timestamp,
    pub waited: Duration,
    /// The same request was granted before; this is that grant.
    pub replayed: bool,
    /// Bytes of files that the owner did not hold before: what goes if the grant is withdrawn.
    pub gained: Vec<(u64, ByteRange)>,
}

/// A session as the one who opened it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    pub session: LeaseId,
    pub number: u64,
    pub ttl: Millis,
    pub deadline: Timestamp,
    /// The same request opened it before; this is that session.
    pub replayed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    pub ttl: Millis,
    pub deadline: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    pub ticket: SecretTicket,
    /// The number of waiters before it in its longest queue, plus one.
    pub position: usize,
}

/// Something to do about a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A waiting call has its grant.
    Granted { call: CallId, grant: Box<Grant> },
    /// A waiting call will not be granted.
    Refused { call: CallId, refusal: Refusal },
    /// The holder should hear at once that the whole lease, or the grant with this fence, is gone.
    Lost { namespace: Namespace, lease: LeaseId, fence: Option<FencingToken>, ending: Ending },
    /// A request has begun to wait, and the grant with this fence is in the way.
    Wanted {
        namespace: Namespace,
        lease: LeaseId,
        fence: FencingToken,
        scope: Scope,
        waiter: Owner,
    },
    /// Something for those who watch.
    Event(Arc<Event>),
}

/// Something that watchers are told of.
///
/// Changes that last raise the revision; news of the queues do not, and carry that of the last change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub revision: Revision,
    pub at: Timestamp,
    pub namespace: Namespace,
    pub news: News,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    EpochBegan {
        epoch: Epoch,
    },
    GraceEnded,
    SessionOpened {
        number: u64,
        owner: Owner,
        adapter: Adapter,
    },
    SessionEnded {
        number: u64,
        owner: Owner,
        ending: Ending,
    },
    Granted {
        scope: Scope,
        owner: Owner,
        mode: Mode,
        fence: FencingToken,
        ttl: Millis,
        /// The number of its session, if it stands under one.
        session: Option<u64>,
        /// The time that it was waited for.
        waited: Duration,
    },
    /// `window` is set when the last owner may still take it back.
    Ended {
        scope: Scope,
        owner: Owner,
        mode: Mode,
        fence: FencingToken,
        /// When it was granted.
        since: Timestamp,
        ending: Ending,
        window: Option<Millis>,
        /// The number of its session, if it stood under one.
        session: Option<u64>,
        /// Its session was only kept for a while because its stream had broken.
        disconnected: bool,
    },
    TtlChanged {
        owner: Owner,
        ttl: Millis,
    },
    FenceAccepted {
        register: RegisterName,
        fence: FencingToken,
    },
    FenceDeleted {
        register: RegisterName,
        reason: Arc<str>,
    },
    Queued {
        scopes: Vec<Scope>,
        owner: Owner,
        ticket: Ticket,
    },
    /// A waiter left without a grant.
    Left {
        scopes: Vec<Scope>,
        owner: Owner,
        ticket: Ticket,
    },
    Deadlock {
        victim: Owner,
        cycle: Arc<[WaitEdge]>,
    },
}

/// The effects of one command besides its outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    pub transitions: Vec<Transition>,
    pub effects: Vec<Effect>,
}

impl Step {
    pub fn new() -> Step {
        Step::default()
    }

    pub fn clear(&mut self) {
        self.transitions.clear();
        self.effects.clear();
    }
}
