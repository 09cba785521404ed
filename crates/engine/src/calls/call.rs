//! The calls of an engine, and their replies.

use std::time::Duration;

use leasehold_core::{
    Answer, Check, Claim, Command, FencingToken, Graph, LeaseId, ListQuery, LockView, Namespace,
    Overview, Owner, Page, Principal, Refusal, RegisterName, RegisterView, Scope, SessionView,
    Stats, Tested, TokenView, Tree, TreeQuery,
};

/// One caller's request.
#[derive(Clone, Debug)]
pub enum Call {
    Command(Command),
    Query(Query),
}

/// Something to read. Reads never change anything and never show what could still be lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    Get {
        namespace: Namespace,
        scope: Scope,
    },
    Test {
        namespace: Namespace,
        owner: Owner,
        lease: Option<LeaseId>,
        claim: Claim,
    },
    Check {
        namespace: Namespace,
        scope: Scope,
        fence: FencingToken,
        lease: Option<LeaseId>,
    },
    List(ListQuery),
    Session {
        namespace: Namespace,
        principal: Principal,
        id: LeaseId,
    },
    Sessions {
        namespace: Namespace,
        after: u64,
        len_max: usize,
    },
    Register {
        namespace: Namespace,
        register: RegisterName,
    },
    /// The grant that carries a token, in whatever namespace of the group that this one is in.
    Token {
        namespace: Namespace,
        fence: FencingToken,
    },
    Registers {
        namespace: Namespace,
        after: Option<RegisterName>,
        len_max: usize,
    },
    Graph {
        namespace: Namespace,
        waits_max: usize,
    },
    Overview {
        namespace: Namespace,
        len_max: usize,
    },
    Tree(TreeQuery),
    Stats,
}

impl Query {
    /// The namespace it is about; `None` if it is about all of them.
    pub fn namespace(&self) -> Option<&Namespace> {
        match self {
            Query::Get { namespace, .. }
            | Query::Test { namespace, .. }
            | Query::Check { namespace, .. }
            | Query::Session { namespace, .. }
            | Query::Sessions { namespace, .. }
            | Query::Register { namespace, .. }
            | Query::Registers { namespace, .. }
            | Query::Token { namespace, .. }
            | Query::Graph { namespace, .. }
            | Query::Overview { namespace, .. } => Some(namespace),
            Query::Tree(query) => Some(&query.namespace),
            Query::List(query) => Some(&query.namespace),
            Query::Stats => None,
        }
    }
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    Lock(Box<LockView>),
    Tested(Box<Tested>),
    Checked(Box<Check>),
    Page(Box<Page>),
    Session(Option<Box<SessionView>>),
    Sessions(Vec<SessionView>),
    Register(Option<FencingToken>),
    Registers(Vec<RegisterView>),
    Token(Option<Box<TokenView>>),
    Graph(Box<Graph>),
    Overview(Box<Overview>),
    Tree(Box<Tree>),
    Stats(Box<Stats>),
}

/// The reply to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Answer(Answer),
    View(View),
}

/// The reason why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The rules say no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store cannot keep anything for now. What was asked for was taken back, or will not be done; if the store did
    /// not say what it has written, a crash before it is taken back may bring it to light until its ttl is over.
    #[error("the store is unavailable; try again in {} ms", retry_after.as_millis())]
    StoreUnavailable { retry_after: Duration, outcome_unknown: bool },
    /// Another server decides.
    #[error("this server is not the leader")]
    NotLeader { leader: Option<String>, retry_after: Duration },
    /// The server is about to stop and grants nothing more.
    #[error("the server is stopping")]
    Draining,
    /// Too many calls are waiting to be looked at.
    #[error("the server is busy")]
    Busy,
    /// The engine is gone; whether the call was carried out is unknown.
    #[error("the engine has stopped")]
    Stopped,
}
