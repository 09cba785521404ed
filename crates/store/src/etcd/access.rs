//! Access documents: a key each, and one with their version that each change compares and moves.

use super::keys::{delete, end_of, get, holds, is_absent, put, range};
use super::leadership::kvs;
use super::proto::{KeyValue, RangeRequest, TxnRequest};
use super::{EtcdJournal, Inner};
use crate::access::{
    AccessChange, AccessStore, Changed, DOCUMENTS_MAX, Document, DocumentId, Documents,
};
use crate::error::Error;
use crate::journal::Pending;

impl AccessStore for EtcdJournal {
    fn version(&self) -> Pending<u64> {
        self.0.call(|inner| async move { inner.access_version().await })
    }

    fn documents(&self) -> Pending<Documents> {
        self.0.call(|inner| async move { inner.access_documents().await })
    }

    fn change(&self, expected: u64, change: AccessChange) -> Pending<Changed> {
        self.0.call(|inner| async move { inner.change_access(expected, &change).await })
    }
}

impl Inner {
    async fn access_version(&self) -> Result<u64, Error> {
        let key = self.keys.access_version.clone();
        let found = self.client.range(RangeRequest { key, ..RangeRequest::default() }).await;
        let task = "the version of the access documents cannot be read";
        version_of(&found.map_err(|failure| failure.unavailable(task))?.kvs)
    }

    /// The version, and the documents or their keys, as of one revision.
    async fn all_access(&self, keys_only: bool) -> Result<(u64, Vec<KeyValue>), Error> {
        let key = self.keys.access.clone().into_bytes();
        let range_end = end_of(&key);
        let all = RangeRequest { key, range_end, keys_only, ..RangeRequest::default() };
        let success = vec![get(&self.keys.access_version), range(all)];
        let answer = self.client.txn(TxnRequest { success, ..TxnRequest::default() }).await;
        let task = "the access documents cannot be read";
        let answer = answer.map_err(|failure| failure.unavailable(task))?;
        Ok((version_of(kvs(&answer, 0))?, kvs(&answer, 1).to_vec()))
    }

    async fn access_documents(&self) -> Result<Documents, Error> {
        let (version, found) = self.all_access(false).await?;
        let document = |pair: &KeyValue| {
            let id = self.document_of(&pair.key)?;
            Document::new(DocumentId::new(id)?, std::str::from_utf8(&pair.value).ok()?)
        };
        let all = found.iter().map(|pair| {
            let key = || String::from_utf8_lossy(&pair.key).into_owned();
            document(pair).ok_or_else(|| Error::corrupt(format!("access document {:?}", key())))
        });
        Ok(Documents { version, all: all.collect::<Result<_, Error>>()? })
    }

    fn document_of<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(key.strip_prefix(self.keys.access.as_bytes())?).ok()
    }

    async fn change_access(&self, expected: u64, change: &AccessChange) -> Result<Changed, Error> {
        // What is counted here is what the change meets, or the version is another one by then.
        let (version, found) = self.all_access(true).await?;
        if version != expected {
            return Ok(Changed::Conflict { version });
        }
        let is_there = |id: &str| found.iter().any(|pair| self.document_of(&pair.key) == Some(id));
        let new = change.puts().iter().filter(|document| !is_there(document.id().as_str()));
        if found.len() + new.count() > DOCUMENTS_MAX {
            return Ok(Changed::Full);
        }
        let version = &self.keys.access_version;
        let is_expected = match expected {
            0 => is_absent(version.clone()),
            expected => holds(version, expected.to_string().as_bytes()),
        };
        let key = |id: &DocumentId| format!("{}{id}", self.keys.access).into_bytes();
        let mut success = vec![put(version, (expected + 1).to_string().as_bytes())];
        let puts = change.puts().iter();
        success.extend(puts.map(|document| put(&key(document.id()), document.body().as_bytes())));
        success.extend(change.removes().iter().map(|id| {
            let key = key(id);
            let end = [key.as_slice(), b"\0"].concat();
            delete(key, end)
        }));
        let failure = vec![get(version)];
        let txn = TxnRequest { compare: vec![is_expected], success, failure };
        let answer = self.client.txn_once(txn).await.map_err(|failure| failure.of_append())?;
        if answer.succeeded {
            return Ok(Changed::To(expected + 1));
        }
        Ok(Changed::Conflict { version: version_of(kvs(&answer, 0))? })
    }
}

fn version_of(found: &[KeyValue]) -> Result<u64, Error> {
    let Some(pair) = found.first() else { return Ok(0) };
    let digits = std::str::from_utf8(&pair.value).ok();
    let version = digits.and_then(|digits| digits.parse().ok());
    version.ok_or_else(|| Error::corrupt("the version of the access documents is no number"))
}
