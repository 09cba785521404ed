//! Acquiring one lock or a set of them.

use leasehold_core::{Acquire, Claim, Command, Grant};

use super::app::App;
use super::caller::Caller;
use super::delivery::DeliveryGuard;
use super::operation::{kind, outcome};
use super::problems::Failure;
use crate::telemetry::metrics::{Acquires, Op};
use crate::telemetry::traces::Acquired;

/// A grant on its way to its caller.
#[derive(Debug)]
pub(crate) struct Granted {
    /// The locks that were asked for, in that order.
    pub(crate) claims: Vec<Claim>,
    pub(crate) grant: Grant,
    pub(crate) epoch: u64,
    /// Goes with the reply; none if a retry can find the grant.
    pub(crate) guard: Option<DeliveryGuard>,
}

impl App {
    /// Waits for a grant as long as the request says. Dropping the future leaves the queue.
    pub(crate) async fn acquire(
        &self,
        caller: &Caller,
        asked: Result<Acquire, Failure>,
    ) -> Result<Granted, Failure> {
        let admitted = asked.and_then(|acquire| {
            let command = Command::Acquire(acquire);
            self.admit(caller, &command)?;
            let Command::Acquire(acquire) = command else { unreachable!("it was made above") };
            Ok(acquire)
        });
        let acquire = admitted.inspect_err(|failure| {
            self.count(Op::Acquire, caller.since.took(), Err(failure.code()));
        })?;
        let (namespace, claims) = (acquire.namespace.clone(), acquire.claims.clone());
        let engine = self.engine_for(caller, &namespace);
        let granted = tokio::select! {
            biased;
            granted = engine.acquire_to_deliver(acquire) => {
                granted.map_err(|error| caller.sight(&namespace).failure(error))
            }
            failure = self.may_no_more(caller, |caller| {
                caller.may_acquire(&namespace, &claims)
            }) => Err(failure),
        };
        let waited = match &granted {
            Ok((grant, _)) => grant.waited,
            Err(failure) => failure.waited(),
        };
        let took = caller.since.took();
        let (mut acquires, kind) = (Acquires::new(&namespace), kind(&claims));
        let outcome = outcome(&granted);
        self.count_acquire(caller, &mut acquires, kind, (took, waited), outcome);
        if let Some(parent) = self.tracer.sampled(caller.trace) {
            let (namespace, claims) = (&namespace, &claims[..]);
            let since = caller.since;
            let acquired = Acquired { namespace, claims, kind, since, took, waited, outcome };
            self.tracer.acquired(caller, parent, &acquired);
        }
        let (grant, undo) = granted?;
        let guard = DeliveryGuard::of(&engine, undo);
        Ok(Granted { epoch: self.epoch(&namespace), claims, grant, guard })
    }
}
