//! Fence registers.

use leasehold_api::Code;
use leasehold_core::{
    AcceptFence, Answer, Command, DeleteFence, FencingToken, Namespace, RegisterName, RegisterView,
};
use leasehold_engine::{Query, View};

use super::app::App;
use super::audit;
use super::caller::Caller;
use super::problems::{Failure, unexpected};
use crate::audit::Line;
use crate::telemetry::metrics::Op;

/// A page of registers by name.
#[derive(Clone, Debug)]
pub(crate) struct Registers {
    pub(crate) namespace: Namespace,
    pub(crate) after: Option<RegisterName>,
    pub(crate) len_max: usize,
}

impl App {
    /// Returns the highest token that the register has accepted.
    pub(crate) async fn accept_fence(
        &self,
        caller: &Caller,
        asked: Result<AcceptFence, Failure>,
    ) -> Result<FencingToken, Failure> {
        let accepting = async {
            let Answer::FenceAccepted { high_water } =
                self.command(caller, Command::AcceptFence(asked?)).await?
            else {
                return Err(unexpected());
            };
            Ok(high_water)
        };
        self.counted(caller, Op::Fence, accepting).await
    }

    pub(crate) async fn register(
        &self,
        caller: &Caller,
        asked: Result<(Namespace, RegisterName), Failure>,
    ) -> Result<RegisterView, Failure> {
        let (namespace, name) = asked?;
        let query = Query::Register { namespace, register: name.clone() };
        let View::Register(found) = self.query(caller, query).await? else {
            return Err(unexpected());
        };
        let unknown = "not found: this register has accepted no token";
        let high_water = found.ok_or_else(|| Failure::new(Code::NotFound, unknown))?;
        Ok(RegisterView { name, high_water })
    }

    pub(crate) async fn registers(
        &self,
        caller: &Caller,
        asked: Result<Registers, Failure>,
    ) -> Result<Vec<RegisterView>, Failure> {
        let Registers { namespace, mut after, len_max } = asked?;
        let query = |after| Query::Registers { namespace: namespace.clone(), after, len_max };
        self.admit_query(caller, &query(None))?;
        let sight = caller.sight(&namespace);
        if after.as_ref().is_some_and(|after| !sight.shows_register(after)) {
            return Err(Failure::field("page_token", "is not a valid page token"));
        }
        let mut seen = Vec::new();
        // A page of what may be seen takes as many of what there is as it takes.
        loop {
            let View::Registers(found) = self.look(caller, query(after.take())).await? else {
                return Err(unexpected());
            };
            let is_last = found.len() < len_max;
            after = found.last().map(|last| last.name.clone());
            let shown = found.into_iter().filter(|found| sight.shows_register(&found.name));
            seen.extend(shown.take(len_max - seen.len()));
            if is_last || seen.len() == len_max {
                return Ok(seen);
            }
        }
    }

    /// Returns the highest token that the register had accepted.
    pub(crate) async fn delete_fence(
        &self,
        caller: &Caller,
        asked: Result<DeleteFence, Failure>,
    ) -> Result<RegisterView, Failure> {
        let asked = asked?;
        let command = Command::DeleteFence(asked.clone());
        self.admit(caller, &command)?;
        let (register, namespace) = (asked.register.as_str(), asked.namespace.as_str());
        let deleting = async {
            let Answer::FenceDeleted { high_water } = self.command(caller, command).await? else {
                return Err(unexpected());
            };
            let of = (register, namespace);
            audit::fence_deleted(self, caller, of, &asked.reason, high_water.get());
            Ok(high_water)
        };
        let line = Line::new("fence.delete", "asked").with("namespace", namespace);
        let line = line.with("register", register).with("reason", &*asked.reason);
        let high_water = self
            .audited(caller, line, deleting, |line, high| line.with("high_water", high.get()))
            .await?;
        Ok(RegisterView { name: asked.register, high_water })
    }
}
