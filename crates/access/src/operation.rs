//! All that can be asked of a server, and what each needs.
//!
//! The enum is exhaustive on purpose: a request without an operation is refused, and a new operation does not compile until it
//! says what it needs.

use crate::verb::{Verb, Verbs};

/// One thing that a client can ask for, whichever way it comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// One lock or a set, plain, on a stream, or by owner as `POST /lock`.
    Acquire,
    /// A session, or a stream that opens one.
    OpenSession,
    /// Renew, release, keep alive, close, look at and attach to what is one's own; cancel one's own wait.
    UseLease,
    Unlock,
    GetLock,
    TestLock,
    CheckLock,
    ListLocks,
    Tree,
    History,
    Graph,
    Overview,
    Watch,
    ListSessions,
    AcceptFence,
    GetFence,
    ListFences,
    DeleteFence,
    BreakLock,
    BreakSession,
    RemoveInode,
    /// The grant behind a fencing token: its scope is known only when it is found.
    FindToken,
    ListNamespaces,
    DeleteNamespace,
    Metrics,
    /// Members, limits, and the details of health and readiness.
    Cluster,
    Reflection,
    /// The credential's own principal, roles and verbs.
    WhoAmI,
    Logout,
    UseConsole,
    NarrowToken,
    /// Tokens, roles and revocations of others, and a copy of everything.
    Administer,
    /// Liveness, readiness, version, the OpenAPI document, the console's files, and the way to log in.
    Public,
}

/// A permission to be checked: the verb, and the object it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Need {
    Nothing,
    /// An authenticated principal; what it names by a secret id is its own or not there.
    Principal,
    /// One of these verbs on each scope that is named.
    Scopes(Verbs),
    /// One of these verbs on the fence register.
    Register(Verbs),
    /// A rule with one of these verbs somewhere in the namespace; then each item on its own.
    SomewhereIn(Verbs),
    /// The verb on all of the namespace.
    AllOf(Verb),
    /// The verb, which is about the server.
    Server(Verb),
}

const READ: Verbs = Verbs::of(&[Verb::Read]);
const READ_OR_ACQUIRE: Verbs = Verbs::of(&[Verb::Read, Verb::Acquire]);
const READ_OR_FENCE: Verbs = Verbs::of(&[Verb::Read, Verb::Fence]);

impl Operation {
    pub const ALL: [Operation; 33] = [
        Operation::Acquire,
        Operation::OpenSession,
        Operation::UseLease,
        Operation::Unlock,
        Operation::GetLock,
        Operation::TestLock,
        Operation::CheckLock,
        Operation::ListLocks,
        Operation::Tree,
        Operation::History,
        Operation::Graph,
        Operation::Overview,
        Operation::Watch,
        Operation::ListSessions,
        Operation::AcceptFence,
        Operation::GetFence,
        Operation::ListFences,
        Operation::DeleteFence,
        Operation::BreakLock,
        Operation::BreakSession,
        Operation::RemoveInode,
        Operation::FindToken,
        Operation::ListNamespaces,
        Operation::DeleteNamespace,
        Operation::Metrics,
        Operation::Cluster,
        Operation::Reflection,
        Operation::WhoAmI,
        Operation::Logout,
        Operation::UseConsole,
        Operation::NarrowToken,
        Operation::Administer,
        Operation::Public,
    ];

    pub const fn needs(self) -> Need {
        match self {
            Operation::Acquire | Operation::Unlock => Need::Scopes(Verbs::of(&[Verb::Acquire])),
            Operation::OpenSession => Need::SomewhereIn(Verbs::of(&[Verb::Acquire])),
            Operation::UseLease
            | Operation::ListSessions
            | Operation::WhoAmI
            | Operation::Logout
            | Operation::Reflection => Need::Principal,
            Operation::GetLock | Operation::TestLock | Operation::CheckLock => {
                Need::Scopes(READ_OR_ACQUIRE)
            }
            Operation::FindToken => Need::Scopes(READ),
            Operation::ListLocks
            | Operation::Tree
            | Operation::History
            | Operation::Graph
            | Operation::Overview => Need::SomewhereIn(READ),
            Operation::Watch => Need::SomewhereIn(Verbs::of(&[Verb::Watch])),
            Operation::AcceptFence => Need::Register(Verbs::of(&[Verb::Fence])),
            Operation::GetFence => Need::Register(READ_OR_FENCE),
            Operation::ListFences => Need::SomewhereIn(READ_OR_FENCE),
            Operation::BreakLock => Need::Scopes(Verbs::of(&[Verb::Break])),
            Operation::BreakSession => Need::AllOf(Verb::Break),
            Operation::RemoveInode => Need::Scopes(Verbs::of(&[Verb::Remove])),
            Operation::Metrics => Need::Server(Verb::Metrics),
            Operation::Cluster => Need::Server(Verb::Cluster),
            Operation::UseConsole => Need::Server(Verb::Console),
            Operation::NarrowToken => Need::Server(Verb::TokenSelf),
            Operation::DeleteFence
            | Operation::ListNamespaces
            | Operation::DeleteNamespace
            | Operation::Administer => Need::Server(Verb::Admin),
            Operation::Public => Need::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_stand_where_their_objects_are() {
        for operation in Operation::ALL {
            let (verbs, is_about_server) = match operation.needs() {
                Need::Nothing | Need::Principal => continue,
                Need::Scopes(verbs) | Need::Register(verbs) | Need::SomewhereIn(verbs) => {
                    (verbs, false)
                }
                Need::AllOf(verb) => (Verbs::of(&[verb]), false),
                Need::Server(verb) => (Verbs::of(&[verb]), true),
            };
            assert!(!verbs.is_empty(), "{operation:?}");
            for verb in verbs.iter() {
                assert_eq!(verb.is_about_server(), is_about_server, "{operation:?} {verb}");
            }
        }
    }

    #[test]
    fn only_what_is_public_needs_nothing() {
        let open =
            Operation::ALL.into_iter().filter(|operation| operation.needs() == Need::Nothing);
        assert!(open.eq([Operation::Public]));
    }
}
