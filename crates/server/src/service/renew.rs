//! Renewing a lock's lease, a session, or any lease by its id.

use leasehold_core::{Answer, Command, KeepAlive, Renew, Renewed};

use super::app::App;
use super::caller::Caller;
use super::problems::{Failure, unexpected};
use crate::telemetry::metrics::Op;

impl App {
    pub(crate) async fn renew(
        &self,
        caller: &Caller,
        asked: Result<Renew, Failure>,
    ) -> Result<(Renew, Renewed), Failure> {
        let renewing = async {
            let renew = asked?;
            let Answer::Renewed(renewed) =
                self.command(caller, Command::Renew(renew.clone())).await?
            else {
                return Err(unexpected());
            };
            Ok((renew, renewed))
        };
        self.counted(caller, Op::Renew, renewing).await
    }

    /// Renews a session or lease, with the epoch in which that was done.
    pub(crate) async fn keep_alive(
        &self,
        caller: &Caller,
        asked: Result<KeepAlive, Failure>,
    ) -> Result<(u64, Renewed), Failure> {
        let keeping = async {
            let keep = asked?;
            let epoch = self.epoch(&keep.namespace);
            let Answer::Renewed(renewed) = self.command(caller, Command::KeepAlive(keep)).await?
            else {
                return Err(unexpected());
            };
            Ok((epoch, renewed))
        };
        self.counted(caller, Op::Renew, keeping).await
    }
}
