//! The caller of a request: the first argument of every operation.

use std::net::SocketAddr;
use std::sync::Arc;

use leasehold_access::{Denied, NamespaceRights, Object, Operation, Rights};
use leasehold_api::Code;
use leasehold_core::{Claim, Namespace, Principal, Scope};
use leasehold_engine::Account;

use super::problems::Failure;
use crate::access::{Credential, Shown};
use crate::audit::{Audit, Line};
use crate::telemetry::metrics::Stopwatch;
use crate::telemetry::traces::TraceContext;

/// On whose behalf an operation is carried out, and how it came.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// Anonymous while authentication is off.
    pub(crate) principal: Principal,
    /// The kind of credential by which the principal is known.
    pub(crate) credential: Credential,
    /// The client's identity by its connection; a certificate has to stay good, whoever acts.
    pub(crate) shown: Shown,
    /// Its rights; `None` while authentication is off: all.
    pub(crate) rights: Option<Arc<Rights>>,
    /// The account of its calls in the engine: its queue, and its quotas.
    pub(crate) account: Arc<Account>,
    /// The rights in one namespace, for a stream, which asks often.
    pub(crate) resolved: Option<Arc<(Namespace, NamespaceRights)>>,
    pub(crate) peer: SocketAddr,
    /// The server that has let it in and sent it here, if that was another.
    pub(crate) through: Option<Arc<str>>,
    pub(crate) transport: Transport,
    /// The id under which the request is logged; that of the whole stream for its commands.
    pub(crate) request_id: Arc<str>,
    /// When the request began to come in.
    pub(crate) since: Stopwatch,
    /// The log of its denied requests.
    pub(crate) audit: Audit,
    /// The trace that the request is part of.
    pub(crate) trace: Option<TraceContext>,
}

impl Caller {
    /// A caller without a credential. It may do everything until authentication says otherwise.
    pub(crate) fn anonymous(
        peer: SocketAddr,
        shown: Shown,
        transport: Transport,
        request_id: Arc<str>,
        since: Stopwatch,
        audit: Audit,
    ) -> Caller {
        Caller {
            principal: Principal::ANONYMOUS,
            credential: Credential::None,
            shown,
            rights: None,
            account: Account::anonymous(),
            resolved: None,
            peer,
            through: None,
            transport,
            request_id,
            since,
            audit,
            trace: None,
        }
    }

    /// Refuses what the caller may not do. The object is the decoded one that is acted on afterwards, and nothing has been
    /// looked up yet: the refusal tells what was sent, and no more.
    pub(crate) fn may(&self, operation: Operation, object: Object<'_>) -> Result<(), Failure> {
        self.decide(operation, object).map_err(|denied| {
            self.audit.note_of(self.peer, || self.denial(operation, object));
            self.denied(object, &denied)
        })
    }

    /// Whether it is allowed, for what an answer has more of then.
    pub(crate) fn allows(&self, operation: Operation, object: Object<'_>) -> bool {
        self.decide(operation, object).is_ok()
    }

    fn decide(&self, operation: Operation, object: Object<'_>) -> Result<(), Denied> {
        let Some(rights) = &self.rights else { return Ok(()) };
        let decided = match (&self.resolved, namespace_of(object)) {
            (Some(resolved), Some(namespace)) if resolved.0 == *namespace => {
                resolved.1.decide(operation.needs(), object)
            }
            _ => rights.decide(operation, object),
        };
        decided.map(drop)
    }

    fn denial(&self, operation: Operation, object: Object<'_>) -> Line {
        let line = Line::new("auth.denied", "failed").by(self);
        let line = line.with("operation", format!("{operation:?}"));
        let line = line.with_some("namespace", namespace_of(object).map(Namespace::as_str));
        match object {
            Object::Scopes(_, scopes) => {
                line.with_some("lock", scopes.first().map(ToString::to_string))
            }
            Object::Register(_, register) => line.with("register", register.as_str()),
            Object::Server | Object::Namespace(_) => line,
        }
    }

    /// Refuses a set of which it may not have all.
    pub(crate) fn may_acquire(
        &self,
        namespace: &Namespace,
        claims: &[Claim],
    ) -> Result<(), Failure> {
        if self.rights.is_none() {
            return Ok(());
        }
        let scopes: Vec<&Scope> = claims.iter().map(|claim| &claim.scope).collect();
        self.may(Operation::Acquire, Object::Scopes(namespace, &scopes))
    }

    fn denied(&self, object: Object<'_>, denied: &Denied) -> Failure {
        let (principal, verbs) = (&self.principal, denied.verbs);
        let said = match object {
            Object::Server => format!("{principal} lacks {verbs}"),
            Object::Namespace(namespace) => {
                format!("{principal} lacks {verbs} in namespace {namespace}")
            }
            Object::Scopes(namespace, scopes) => match scopes.get(denied.claim) {
                Some(scope) => {
                    format!("{principal} lacks {verbs} on {scope} in namespace {namespace}")
                }
                None => format!("{principal} lacks {verbs} in namespace {namespace}"),
            },
            Object::Register(namespace, register) => {
                format!(
                    "{principal} lacks {verbs} on the register {register} in namespace {namespace}"
                )
            }
        };
        Failure::new(Code::PermissionDenied, said)
    }

    /// Keeps the rights in a namespace at hand.
    pub(crate) fn resolve(&mut self, namespace: &Namespace) {
        let in_namespace =
            |rights: &Arc<Rights>| Arc::new((namespace.clone(), rights.in_namespace(namespace)));
        self.resolved = self.rights.as_ref().map(in_namespace);
    }

    /// The same for the rights that it has by now.
    pub(crate) fn resolve_again(&mut self) {
        if let Some(resolved) = self.resolved.take() {
            self.resolve(&resolved.0);
        }
    }
}

fn namespace_of(object: Object<'_>) -> Option<&Namespace> {
    match object {
        Object::Server => None,
        Object::Namespace(namespace)
        | Object::Scopes(namespace, _)
        | Object::Register(namespace, _) => Some(namespace),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Http,
    Grpc,
}

impl Transport {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Transport::Http => "http",
            Transport::Grpc => "grpc",
        }
    }
}
