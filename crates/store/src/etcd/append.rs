//! The one thing that has to be fast, and certain.
//!
//! An append is one transaction. It compares that the record before is there, that its own key is not, and that the
//! leader's key is as this server has last written it.
//!
//! # Why a late append does no harm
//!
//! An append whose answer was lost may still be on its way. `read_back` writes the leader's key again, with the value
//! it has, and reads the record in the same transaction. Either the append came first: then the record is there. Or
//! it comes later: then the leader's key was written since, and its comparison fails. For ever: revisions only rise.

use leasehold_core::Epoch;

use super::keys::{get, is_absent, is_there, last, put, range, written_at};
use super::leadership::{Mandate, kvs, revision};
use super::proto::TxnRequest;
use super::{Inner, Known, RECORD_BYTES_MAX};
use crate::error::{Conflict, Error};
use crate::journal::{Loaded, Seq};
use crate::record::Batch;
use crate::stored::stored_batch;

impl Inner {
    pub(super) async fn append(&self, batch: Batch, known: Known) -> Result<(), Error> {
        let mandate = match known.mandate {
            Some(mandate) if mandate.epoch == batch.epoch() => mandate,
            Some(_) | None => self.mandate(batch.epoch()).await?,
        };
        if batch.bytes().len() > RECORD_BYTES_MAX {
            return Err(Error::unavailable("the record is too large"));
        }
        let key = self.keys.record(batch.seq());
        let is_next = match known.torn {
            Some((torn, written)) if torn == batch.seq() => written_at(&key, written),
            Some(_) | None => is_absent(key.clone()),
        };
        let before = self.keys.record(Seq(batch.seq().0.wrapping_sub(1)));
        let mut compare =
            vec![written_at(&self.keys.leader, mandate.revision), is_there(before), is_next];
        if known.torn.is_some_and(|(torn, _)| torn < batch.seq()) {
            // The torn record is no record, so nothing follows it: this is never so.
            compare.push(is_absent(self.keys.leader.clone()));
        }
        let success = vec![put(&key, batch.bytes())];
        let txn = TxnRequest { compare, success, failure: Vec::new() };
        let answer = self.client.txn_once(txn).await.map_err(|failure| failure.of_append())?;
        self.saw(revision(&answer));
        if !answer.succeeded {
            let torn = known.torn.map(|(torn, _)| torn);
            return Err(self.why_refused(&batch, &mandate, torn).await);
        }
        self.known(|known| {
            known.torn = None;
            known.written = known.written.max(batch.seq());
        });
        Ok(())
    }

    /// Finds out why a comparison failed. Nothing was written, whatever comes of this.
    async fn why_refused(&self, batch: &Batch, mandate: &Mandate, torn: Option<Seq>) -> Error {
        let mut records = last(self.keys.record(Seq(0)), self.keys.records_end());
        records.keys_only = true;
        let success = vec![get(&self.keys.leader), range(records)];
        let look = TxnRequest { compare: Vec::new(), success, failure: Vec::new() };
        let answer = match self.client.txn(look).await {
            Ok(answer) => answer,
            Err(failure) => return failure.unavailable("the record was refused"),
        };
        self.saw(revision(&answer));
        let leader = kvs(&answer, 0);
        if let Err(conflict) = self.check_mandate(mandate, leader) {
            return conflict.into();
        }
        if let Some(leader) = leader.first()
            && leader.mod_revision != mandate.revision
        {
            // A `read_back` that was given up has arrived late. All appends made before this one have an older
            // revision and are refused for ever, so the next one may go on from here.
            self.renewed(mandate.epoch, leader.mod_revision);
            return Error::unavailable("the record was sent before a record was read back");
        }
        let last = kvs(&answer, 1).first().and_then(|found| self.keys.seq_of(&found.key));
        let next = torn.unwrap_or(last.unwrap_or_default().next());
        Conflict::OutOfOrder { seq: batch.seq(), next }.into()
    }

    /// The leader's key was written again, at this revision.
    fn renewed(&self, epoch: Epoch, revision: i64) {
        self.known(|known| {
            if let Some(mandate) = known.mandate.as_mut().filter(|known| known.epoch == epoch) {
                mandate.revision = mandate.revision.max(revision);
            }
        });
    }

    pub(super) async fn read_back(&self, epoch: Epoch, seq: Seq) -> Result<Option<Batch>, Error> {
        let task = "the record cannot be read back";
        let mandate = self.mandate(epoch).await?;
        let again = vec![put(&self.keys.leader, &mandate.value), get(&self.keys.record(seq))];
        let answer = self.as_leader(&mandate, Vec::new(), again, task).await?;
        let answer = answer.ok_or_else(|| Error::unavailable(task))?;
        let revision = revision(&answer);
        self.renewed(epoch, revision);
        let Some(found) = kvs(&answer, 1).first().filter(|_| seq != Seq(0)) else {
            return Ok(None);
        };
        // A record that was found torn is there until one has taken its place.
        let may_be_torn = self.known(|known| known.torn.is_some_and(|(torn, _)| torn == seq));
        match stored_batch(seq, found.value.as_slice().into(), may_be_torn)? {
            Loaded::Batch(batch) => {
                self.known(|known| known.torn = known.torn.filter(|(torn, _)| *torn != seq));
                Ok(Some(batch))
            }
            Loaded::Torn { .. } | Loaded::Chunk(_) => Ok(None),
        }
    }
}
