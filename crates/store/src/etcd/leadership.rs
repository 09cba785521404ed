//! Leadership: one key, moved by comparing it.
//!
//! The value of the key is the mandate: it names the epoch, which never comes twice. That the key still holds it is
//! what all calls of a leader compare. An append compares more: the revision at which the key was last written, which
//! `read_back` moves; see `append.rs`.
//!
//! A leader that confirms itself also says how far the records have come by then. etcd finds the last of many keys only by
//! going through all of them, so whoever takes over looks from there on.

use std::time::Duration;

use leasehold_core::Epoch;
use prost::Message;

use super::client::Failure;
use super::keys::{get, holds, is_absent, last, put, written_at};
use super::proto::response_op::Response;
use super::proto::{
    Compare, KeyValue, RangeResponse, RequestOp, StoredLeader, StoredSnapshot, TxnRequest,
    TxnResponse,
};
use super::{Inner, Known, SCHEMA, version};
use crate::error::{Conflict, Error, OpenError};
use crate::journal::{Campaign, Candidate, Heartbeat, Leader, Leadership, Loaded, Seq};
use crate::stored::{check_jump, stored_batch};

/// The number of times a campaign looks again, when the keys move under it.
const TRIES: usize = 5;

/// The right to write, as it stands in the store.
#[derive(Clone, Debug)]
pub(super) struct Mandate {
    pub(super) epoch: Epoch,
    /// The value of the leader's key.
    pub(super) value: Vec<u8>,
    /// When it was last written.
    pub(super) revision: i64,
}

/// The keys of leadership, as they were at some moment.
struct LeaderKeys {
    leader: Option<(StoredLeader, i64)>,
    beat: i64,
    /// The position of the records, at least; 0 if it was never told.
    written: Seq,
}

impl LeaderKeys {
    fn leader(&self) -> Option<Leader> {
        let (leader, _) = self.leader.as_ref().filter(|(leader, _)| leader.leads)?;
        Some(Leader {
            beat: Heartbeat {
                epoch: Epoch(leader.epoch),
                count: u64::try_from(self.beat).unwrap_or(0),
            },
            name: leader.name.clone(),
            address: leader.address.clone(),
            lease: Duration::from_millis(leader.lease_ms),
        })
    }

    fn epoch(&self) -> u64 {
        self.leader.as_ref().map_or(0, |(leader, _)| leader.epoch)
    }
}

impl Inner {
    /// Looks whether the layout is ours, and at the version of etcd.
    pub(super) async fn prepare(&self) -> Result<(), OpenError> {
        let failed = |failure: Failure| failure.of_opening(&self.name);
        let mark = TxnRequest {
            compare: vec![is_absent(self.keys.schema.clone())],
            success: vec![put(&self.keys.schema, SCHEMA.to_string().as_bytes())],
            failure: vec![get(&self.keys.schema)],
        };
        let answer = self.client.txn(mark).await.map_err(failed)?;
        if let Some(found) = kvs(&answer, 0).first() {
            let found = std::str::from_utf8(&found.value).ok().and_then(|text| text.parse().ok());
            match found {
                Some(found) if found > SCHEMA => {
                    let store = self.name.clone();
                    return Err(OpenError::NewerSchema { store, found, known: SCHEMA });
                }
                Some(_) => {}
                None => {
                    let what = "its key for the layout holds something else".into();
                    return Err(OpenError::Foreign { store: self.name.clone(), what });
                }
            }
        }
        match self.client.version().await {
            Ok(version) => {
                if let Some(warning) = version::warning(&version) {
                    tracing::warn!(store = %self.name, "{warning}");
                }
            }
            // Not every user may ask for it.
            Err(failure) => {
                tracing::info!(store = %self.name, "the version of etcd is unknown: {failure}");
            }
        }
        Ok(())
    }

    /// The mandate of this epoch. One that was never won here is answered by the store.
    pub(super) async fn mandate(&self, epoch: Epoch) -> Result<Mandate, Error> {
        let found = self.known(|known| known.mandate.clone());
        match found {
            Some(mandate) if mandate.epoch == epoch => Ok(mandate),
            Some(_) | None => {
                let leader_keys = self.leader_keys("the leader cannot be read").await?;
                Err(Conflict::Deposed { epoch, current: Epoch(leader_keys.epoch()) }.into())
            }
        }
    }

    pub(super) fn is_mandated(&self, mandate: &Mandate) -> Compare {
        holds(&self.keys.leader, &mandate.value)
    }

    /// A transaction of the leader, which may be done twice. `None` if what it compares beside the mandate is not so.
    pub(super) async fn as_leader(
        &self,
        mandate: &Mandate,
        mut compare: Vec<Compare>,
        success: Vec<RequestOp>,
        task: &str,
    ) -> Result<Option<TxnResponse>, Error> {
        compare.push(self.is_mandated(mandate));
        let txn = TxnRequest { compare, success, failure: vec![get(&self.keys.leader)] };
        let answer = self.client.txn(txn).await.map_err(|failure| failure.unavailable(task))?;
        self.saw(revision(&answer));
        if answer.succeeded {
            return Ok(Some(answer));
        }
        self.check_mandate(mandate, kvs(&answer, 0))?;
        Ok(None)
    }

    /// Whether the leader's key, as it was found, holds the mandate.
    pub(super) fn check_mandate(
        &self,
        mandate: &Mandate,
        found: &[KeyValue],
    ) -> Result<(), Conflict> {
        match found.first() {
            Some(found) if found.value == mandate.value => Ok(()),
            found => {
                let current = found.and_then(|found| StoredLeader::decode(&*found.value).ok());
                let current = Epoch(current.map_or(0, |leader| leader.epoch));
                Err(Conflict::Deposed { epoch: mandate.epoch, current })
            }
        }
    }

    async fn leader_keys(&self, task: &str) -> Result<LeaderKeys, Error> {
        let success = vec![get(&self.keys.leader), get(&self.keys.beat)];
        let txn = TxnRequest { success, ..TxnRequest::default() };
        let answer = self.client.txn(txn).await.map_err(|failure| failure.unavailable(task))?;
        self.saw(revision(&answer));
        let leader = match kvs(&answer, 0).first() {
            Some(found) => {
                let leader = StoredLeader::decode(&*found.value).map_err(|error| {
                    Error::corrupt("the key of the leader cannot be read").because(error)
                })?;
                Some((leader, found.mod_revision))
            }
            None => None,
        };
        let beat = kvs(&answer, 1).first();
        Ok(LeaderKeys {
            leader,
            beat: beat.map_or(0, |found| found.mod_revision),
            written: beat.map_or(Seq(0), |found| parse_written(&found.value)),
        })
    }

    pub(super) async fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(self.leader_keys("the leader cannot be read").await?.leader())
    }

    pub(super) async fn campaign(
        &self,
        candidate: Candidate,
        overdue: Option<Heartbeat>,
    ) -> Result<Campaign, Error> {
        for _ in 0..TRIES {
            let leader_keys = self.leader_keys("the leader cannot be read").await?;
            match leader_keys.leader() {
                Some(leader) if overdue != Some(leader.beat) => return Ok(Campaign::Lost(leader)),
                Some(_) | None => {}
            }
            if let Some(mandate) = self.try_to_lead(&candidate, &leader_keys).await? {
                let epoch = mandate.epoch;
                self.take_over(mandate, leader_keys.written).await?;
                let lease = Some(candidate.lease);
                return Ok(Campaign::Won(Leadership { epoch, lease }));
            }
        }
        Err(Error::unavailable("others campaign in the same moment"))
    }

    async fn try_to_lead(
        &self,
        candidate: &Candidate,
        leader_keys: &LeaderKeys,
    ) -> Result<Option<Mandate>, Error> {
        let epoch = leader_keys.epoch().saturating_add(1);
        let value = StoredLeader {
            epoch,
            leads: true,
            name: candidate.name.clone(),
            address: candidate.address.clone(),
            lease_ms: u64::try_from(candidate.lease.as_millis()).unwrap_or(u64::MAX),
        }
        .encode_to_vec();
        let found = leader_keys.leader.as_ref().map_or(0, |(_, revision)| *revision);
        let compare = vec![
            written_at(&self.keys.leader, found),
            written_at(&self.keys.beat, leader_keys.beat),
        ];
        let mut success = vec![put(&self.keys.leader, &value), self.beat(leader_keys.written)];
        if leader_keys.leader.is_none() {
            // Each record follows one that is there; the first one follows this.
            success.push(put(&self.keys.record(Seq(0)), b""));
        }
        let txn = TxnRequest { compare, success, failure: Vec::new() };
        let answer = self.client.txn_once(txn).await;
        let answer = answer.map_err(|failure| failure.unavailable("the epoch cannot be raised"))?;
        let revision = revision(&answer);
        self.saw(revision);
        Ok(answer.succeeded.then_some(Mandate { epoch: Epoch(epoch), value, revision }))
    }

    fn beat(&self, written: Seq) -> RequestOp {
        put(&self.keys.beat, written.0.to_string().as_bytes())
    }

    /// The last record as of this revision; `from` is one that it does not come before.
    async fn last_record(&self, from: Seq, at: i64) -> Result<Option<KeyValue>, Error> {
        let mut records = last(self.keys.record(from), self.keys.records_end());
        records.revision = at;
        let found = self.client.range(records).await;
        let found = found.map_err(|failure| failure.unavailable("the last record cannot be read"));
        Ok(found?.kvs.pop())
    }

    /// Looks whether the last record holds. If it does not, the next one takes its number.
    async fn take_over(&self, mandate: Mandate, written: Seq) -> Result<(), Error> {
        let mut found = self.last_record(written.max(Seq(1)), mandate.revision).await?;
        if found.is_none() && written > Seq(1) {
            found = self.last_record(Seq(1), mandate.revision).await?;
        }
        let snapshot = self.complete(mandate.revision).await?;
        let needed_after = snapshot.map_or(0, |snapshot| snapshot.as_of);
        let written = found.as_ref().and_then(|found| self.keys.seq_of(&found.key));
        let torn = found.and_then(|found| {
            let seq = written?;
            let held = stored_batch(seq, found.value.as_slice().into(), true);
            // Anything worse is told by the load.
            let is_torn = matches!(held, Ok(Loaded::Torn { .. }));
            (is_torn && seq.0 > needed_after).then_some((seq, found.mod_revision))
        });
        self.known(|known| {
            let forget_to = known.forget_to;
            let (mandate, written) = (Some(mandate), written.unwrap_or_default());
            *known = Known { mandate, torn, written, forget_to, ..Known::default() };
        });
        Ok(())
    }

    /// The snapshot that counted at this revision.
    pub(super) async fn complete(&self, at: i64) -> Result<Option<StoredSnapshot>, Error> {
        let mut key = super::keys::first(self.keys.snapshot.clone(), Vec::new(), 1);
        key.revision = at;
        let found = self.client.range(key).await;
        let found = found.map_err(|failure| failure.unavailable("the snapshot cannot be read"))?;
        let Some(found) = found.kvs.first() else { return Ok(None) };
        let snapshot = StoredSnapshot::decode(&*found.value);
        let snapshot = snapshot.map_err(|error| {
            Error::corrupt("the key of the snapshot cannot be read").because(error)
        })?;
        Ok(Some(snapshot))
    }

    pub(super) async fn confirm(&self, epoch: Epoch) -> Result<(), Error> {
        let task = "it cannot be confirmed";
        let mandate = self.mandate(epoch).await?;
        let beat = vec![self.beat(self.known(|known| known.written))];
        self.as_leader(&mandate, Vec::new(), beat, task).await?;
        Ok(())
    }

    pub(super) async fn resign(&self, epoch: Epoch) -> Result<(), Error> {
        let mandate = self.mandate(epoch).await?;
        let resigned = StoredLeader { epoch: epoch.0, leads: false, ..StoredLeader::default() };
        let put = vec![put(&self.keys.leader, &resigned.encode_to_vec())];
        let task = "the leadership cannot be given up";
        self.as_leader(&mandate, Vec::new(), put, task).await?;
        Ok(())
    }

    pub(super) async fn jump_epoch(&self, epoch: Epoch, to: Epoch) -> Result<(), Error> {
        let task = "the epoch cannot be raised";
        check_jump(epoch, to)?;
        let mandate = self.mandate(epoch).await?;
        let mut leader = StoredLeader::decode(&*mandate.value)
            .map_err(|error| Error::corrupt("the mandate cannot be read").because(error))?;
        leader.epoch = to.0;
        let value = leader.encode_to_vec();
        let put = vec![put(&self.keys.leader, &value)];
        let answer = self.as_leader(&mandate, Vec::new(), put, task).await?;
        let answer = answer.ok_or_else(|| Error::unavailable(task))?;
        let mandate = Mandate { epoch: to, value, revision: revision(&answer) };
        self.known(|known| {
            known.mandate = Some(mandate);
            known.open = None;
            known.begun = 0;
        });
        Ok(())
    }
}

/// The position of the records in a heartbeat. Older servers leave it out.
fn parse_written(beat: &[u8]) -> Seq {
    let number = std::str::from_utf8(beat).ok().and_then(|text| text.parse().ok());
    Seq(number.unwrap_or(0))
}

pub(super) fn revision(answer: &TxnResponse) -> i64 {
    answer.header.as_ref().map_or(0, |header| header.revision)
}

/// The result of the operation at this place.
pub(super) fn kvs(answer: &TxnResponse, at: usize) -> &[KeyValue] {
    found(answer, at).map_or(&[], |found| &found.kvs)
}

pub(super) fn found(answer: &TxnResponse, at: usize) -> Option<&RangeResponse> {
    match answer.responses.get(at)?.response.as_ref()? {
        Response::ResponseRange(found) => Some(found),
        Response::ResponsePut(_) | Response::ResponseDeleteRange(_) => None,
    }
}
