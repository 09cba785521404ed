//! Leadership: one row, moved by comparing it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use leasehold_core::Epoch;

use super::connection::text_expression;
use super::{Inner, signed, unsigned};
use crate::error::{Conflict, Error};
use crate::journal::{Campaign, Candidate, Heartbeat, Leader, Leadership, Loaded, Seq};
use crate::stored::{check_jump, stored_batch};

/// The number of times a campaign looks again, when the row moves under it.
const TRIES: usize = 5;

/// The row of the group, as it was at some moment.
#[derive(Clone, Debug)]
pub(super) struct LeaderRow {
    pub(super) epoch: Epoch,
    leads: bool,
    beat: u64,
    pub(super) attempt: i64,
    pub(super) last: Seq,
    pub(super) snapshot: Option<Complete>,
    lease: Duration,
    name: String,
    address: String,
}

/// The snapshot that a load begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Complete {
    pub(super) id: i64,
    pub(super) as_of: Seq,
    pub(super) chunks: u32,
    pub(super) epoch: Epoch,
}

impl LeaderRow {
    fn leader(&self) -> Option<Leader> {
        self.leads.then(|| Leader {
            beat: Heartbeat { epoch: self.epoch, count: self.beat },
            name: self.name.clone(),
            address: self.address.clone(),
            lease: self.lease,
        })
    }

    pub(super) fn check_leader(&self, epoch: Epoch) -> Result<(), Conflict> {
        if self.leads && self.epoch == epoch {
            return Ok(());
        }
        Err(Conflict::Deposed { epoch, current: self.epoch })
    }
}

impl Inner {
    pub(super) async fn leader_row(&self, task: &str) -> Result<LeaderRow, Error> {
        let query = format!(
            "SELECT epoch, leads, beat, attempt, last_seq, snapshot, snapshot_as_of,
             snapshot_chunks, snapshot_epoch, lease_ms, name, address
             FROM {} WHERE group_id = $1",
            self.tables.leadership
        );
        let rows = self.others.read(&query, &[self.group.into()]).await;
        let rows = rows.map_err(|failure| failure.unavailable(task))?;
        let row = rows.first().ok_or_else(|| {
            Error::corrupt(format!("the row of group {} is missing in leadership", self.group))
        })?;
        let snapshot = row.get::<_, Option<i64>>(5).map(|id| Complete {
            id,
            as_of: Seq(unsigned(row.get::<_, Option<i64>>(6).unwrap_or(0))),
            chunks: u32::try_from(row.get::<_, Option<i32>>(7).unwrap_or(0)).unwrap_or(0),
            epoch: Epoch(unsigned(row.get::<_, Option<i64>>(8).unwrap_or(0))),
        });
        Ok(LeaderRow {
            epoch: Epoch(unsigned(row.get(0))),
            leads: row.get(1),
            beat: unsigned(row.get(2)),
            attempt: row.get(3),
            last: Seq(unsigned(row.get(4))),
            snapshot,
            lease: Duration::from_millis(unsigned(row.get(9))),
            name: row.get(10),
            address: row.get(11),
        })
    }

    /// The reason why a statement found nothing to move; `otherwise` if not for want of leadership.
    pub(super) async fn refused(&self, epoch: Epoch, otherwise: Conflict) -> Error {
        match self.leader_row("the leader cannot be read").await {
            Ok(leader_row) => match leader_row.check_leader(epoch) {
                Ok(()) => otherwise.into(),
                Err(conflict) => conflict.into(),
            },
            Err(error) => error,
        }
    }

    pub(super) async fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(self.leader_row("the leader cannot be read").await?.leader())
    }

    pub(super) async fn campaign(
        &self,
        candidate: Candidate,
        overdue: Option<Heartbeat>,
    ) -> Result<Campaign, Error> {
        for _ in 0..TRIES {
            if let Some(epoch) = self.try_to_lead(&candidate, overdue).await? {
                self.take_over(epoch).await?;
                let lease = Some(candidate.lease);
                return Ok(Campaign::Won(Leadership { epoch, lease }));
            }
            match self.leader().await? {
                Some(leader) if overdue != Some(leader.beat) => return Ok(Campaign::Lost(leader)),
                Some(_) | None => {}
            }
        }
        Err(Error::unavailable("others campaign in the same moment"))
    }

    /// A new attempt and a new number for snapshots: nothing that the last leader has sent can still take effect.
    async fn try_to_lead(
        &self,
        candidate: &Candidate,
        overdue: Option<Heartbeat>,
    ) -> Result<Option<Epoch>, Error> {
        let over = match overdue {
            Some(beat) => {
                format!("epoch = {} AND beat = {}", signed(beat.epoch.0), signed(beat.count))
            }
            None => "false".into(),
        };
        let lease_ms = i64::try_from(candidate.lease.as_millis()).unwrap_or(i64::MAX);
        let statement = format!(
            "UPDATE {} SET epoch = epoch + 1, leads = true, beat = 0, attempt = attempt + 1,
             snapshots_begun = snapshots_begun + 1, lease_ms = {lease_ms}, name = {}, address = {},
             confirmed_at = now()
             WHERE group_id = {} AND (NOT leads OR {over}) RETURNING epoch, attempt",
            self.tables.leadership,
            text_expression(&candidate.name),
            text_expression(&candidate.address),
            self.group,
        );
        let rows = self.others.write(&statement).await;
        let rows = rows.map_err(|failure| failure.unavailable("the epoch cannot be raised"))?;
        let Some(row) = rows.first() else { return Ok(None) };
        let number = |at| row.get(at).and_then(|text: &str| text.parse::<i64>().ok());
        let (Some(epoch), Some(attempt)) = (number(0), number(1)) else {
            return Err(Error::corrupt("the epoch is no number"));
        };
        self.attempt.store(attempt, Ordering::Release);
        Ok(Some(Epoch(unsigned(epoch))))
    }

    /// Looks whether the last record holds. If it does not, the next one takes its number.
    async fn take_over(&self, epoch: Epoch) -> Result<(), Error> {
        let task = "the last record cannot be read";
        let query = format!(
            "SELECT seq, record FROM {} WHERE group_id = $1 ORDER BY seq DESC LIMIT 1",
            self.tables.journal
        );
        let rows = self.others.read(&query, &[self.group.into()]).await;
        let rows = rows.map_err(|failure| failure.unavailable(task))?;
        let leader_row = self.leader_row(task).await?;
        leader_row.check_leader(epoch)?;
        let needed_after = leader_row.snapshot.map_or(Seq(0), |snapshot| snapshot.as_of);
        let torn = rows.first().and_then(|row| {
            let seq = Seq(unsigned(row.get(0)));
            let found = stored_batch(seq, row.get::<_, &[u8]>(1).into(), true);
            // Anything worse is told by the load.
            let is_torn = matches!(found, Ok(Loaded::Torn { .. }));
            (is_torn && seq > needed_after).then_some(seq)
        });
        if let Some(torn) = torn {
            let statement = format!(
                "UPDATE {} SET last_seq = {} WHERE group_id = {} AND leads AND epoch = {}",
                self.tables.leadership,
                signed(torn.0) - 1,
                self.group,
                signed(epoch.0)
            );
            let done = self.others.write(&statement).await;
            done.map_err(|failure| failure.unavailable(task))?;
        }
        self.known(|known| {
            known.torn = torn;
            known.open = None;
        });
        Ok(())
    }

    pub(super) async fn confirm(&self, epoch: Epoch) -> Result<(), Error> {
        self.move_row(epoch, "beat = beat + 1, confirmed_at = now()", "it cannot be confirmed")
            .await
    }

    pub(super) async fn resign(&self, epoch: Epoch) -> Result<(), Error> {
        self.move_row(epoch, "leads = false", "the leadership cannot be given up").await
    }

    pub(super) async fn jump_epoch(&self, epoch: Epoch, to: Epoch) -> Result<(), Error> {
        check_jump(epoch, to)?;
        self.known(|known| known.open = None);
        let change = format!("epoch = {}", signed(to.0));
        self.move_row(epoch, &change, "the epoch cannot be raised").await
    }

    async fn move_row(&self, epoch: Epoch, change: &str, task: &str) -> Result<(), Error> {
        let statement = format!(
            "UPDATE {} SET {change} WHERE group_id = {} AND leads AND epoch = {} RETURNING epoch",
            self.tables.leadership,
            self.group,
            signed(epoch.0)
        );
        let rows = self.others.write(&statement).await;
        if rows.map_err(|failure| failure.unavailable(task))?.is_empty() {
            self.leader_row(task).await?.check_leader(epoch)?;
            return Err(Error::unavailable(task));
        }
        Ok(())
    }
}
