//! Sessions: leases that are opened first.

use leasehold_api::Code;
use leasehold_core::{
    Answer, BreakSession, CloseSession, Command, LeaseId, Namespace, OpenSession, Opened,
    SessionView,
};
use leasehold_engine::{Query, Undo, View};

use super::app::App;
use super::audit;
use super::caller::Caller;
use super::delivery::DeliveryGuard;
use super::problems::{Failure, unexpected};
use crate::audit::Line;
use crate::telemetry::metrics::Op;

/// So many sessions or registers a list has if nothing else is asked, and at most.
pub(crate) const PAGE_SIZE: usize = 100;
pub(crate) const PAGE_SIZE_MAX: usize = 1000;

/// A session is named by its id, which is a secret, or by its number, which everybody sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionName {
    Number(u64),
    Id(LeaseId),
}

/// A session on its way to its caller.
#[derive(Debug)]
pub(crate) struct SessionOpened {
    pub(crate) asked: OpenSession,
    pub(crate) opened: Opened,
    pub(crate) epoch: u64,
    /// Goes with the reply; none if a retry can find the session.
    pub(crate) guard: Option<DeliveryGuard>,
}

/// A page of sessions by number.
#[derive(Clone, Debug)]
pub(crate) struct Sessions {
    pub(crate) namespace: Namespace,
    pub(crate) after: u64,
    pub(crate) len_max: usize,
}

impl App {
    pub(crate) async fn open_session(
        &self,
        caller: &Caller,
        asked: Result<OpenSession, Failure>,
    ) -> Result<SessionOpened, Failure> {
        let opening = async {
            let asked = asked?;
            let (opened, undo) = self.open(caller, asked.clone()).await?;
            let guard = DeliveryGuard::of(&self.engine_for(caller, &asked.namespace), undo);
            Ok(SessionOpened { epoch: self.epoch(&asked.namespace), asked, opened, guard })
        };
        self.counted(caller, Op::Session, opening).await
    }

    /// Opens a session as part of another operation.
    pub(crate) async fn open(
        &self,
        caller: &Caller,
        asked: OpenSession,
    ) -> Result<(Opened, Option<Undo>), Failure> {
        let engine = self.engine_for(caller, &asked.namespace);
        self.admit(caller, &Command::OpenSession(asked.clone()))?;
        Ok(engine.open_to_deliver(asked).await?)
    }

    /// Ends a session or lease. Returns how many grants ended with it, and whether it had been closed before.
    pub(crate) async fn close_session(
        &self,
        caller: &Caller,
        asked: Result<CloseSession, Failure>,
    ) -> Result<(usize, bool), Failure> {
        let closing = async {
            let Answer::SessionClosed { grants, replayed } =
                self.command(caller, Command::CloseSession(asked?)).await?
            else {
                return Err(unexpected());
            };
            Ok((grants, replayed))
        };
        self.counted(caller, Op::Session, closing).await
    }

    /// Ends another owner's session. Returns how many grants ended with it.
    pub(crate) async fn break_session(
        &self,
        caller: &Caller,
        asked: Result<BreakSession, Failure>,
    ) -> Result<usize, Failure> {
        let asked = asked?;
        let command = Command::BreakSession(asked.clone());
        self.admit(caller, &command)?;
        let breaking = async {
            let Answer::SessionClosed { grants, .. } = self.command(caller, command).await? else {
                return Err(unexpected());
            };
            let of = (asked.number, asked.namespace.as_str());
            audit::session_broken(self, caller, of, &asked.reason, grants);
            Ok(grants)
        };
        let line = Line::new("session.break", "asked").with("broken_session", asked.number);
        self.audited_endings(
            caller,
            (&asked.namespace, line.with("reason", &*asked.reason)),
            |event| audit::is_broken_session(event, asked.number),
            breaking,
            |line, grants| line.with("grants", *grants),
        )
        .await
    }

    pub(crate) async fn session(
        &self,
        caller: &Caller,
        namespace: Namespace,
        id: LeaseId,
    ) -> Result<Box<SessionView>, Failure> {
        let principal = caller.principal.clone();
        let query = Query::Session { namespace, principal, id };
        let View::Session(found) = self.query(caller, query).await? else {
            return Err(unexpected());
        };
        found.ok_or_else(|| Failure::new(Code::SessionNotFound, "session not found"))
    }

    pub(crate) async fn sessions(
        &self,
        caller: &Caller,
        asked: Result<Sessions, Failure>,
    ) -> Result<Vec<SessionView>, Failure> {
        let Sessions { namespace, mut after, len_max } = asked?;
        self.admit_query(
            caller,
            &Query::Sessions { namespace: namespace.clone(), after, len_max },
        )?;
        let sight = caller.sight(&namespace);
        let mut seen = Vec::new();
        // A page of what may be seen takes as many of what there is as it takes.
        loop {
            let query = Query::Sessions { namespace: namespace.clone(), after, len_max };
            let View::Sessions(found) = self.look(caller, query).await? else {
                return Err(unexpected());
            };
            let is_last = found.len() < len_max;
            after = found.last().map_or(after, |last| last.number);
            let shown = found.into_iter().filter(|found| sight.shows_session_of(&found.owner));
            seen.extend(shown.take(len_max - seen.len()));
            if is_last || seen.len() == len_max {
                return Ok(seen);
            }
        }
    }

    pub(super) async fn session_number(
        &self,
        caller: &Caller,
        namespace: &Namespace,
        name: SessionName,
    ) -> Result<u64, Failure> {
        match name {
            SessionName::Number(number) => Ok(number),
            SessionName::Id(id) => {
                self.session(caller, namespace.clone(), id).await.map(|found| found.number)
            }
        }
    }
}
