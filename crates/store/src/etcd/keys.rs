//! The keys, and the requests that are made of them.

use super::proto::compare::{CompareResult, CompareTarget, TargetUnion};
use super::proto::range_request::{SortOrder, SortTarget};
use super::proto::request_op::Request;
use super::proto::{Compare, DeleteRangeRequest, PutRequest, RangeRequest, RequestOp};
use crate::journal::Seq;

/// Everything that a group has.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) schema: Vec<u8>,
    pub(super) leader: Vec<u8>,
    pub(super) beat: Vec<u8>,
    pub(super) begun: Vec<u8>,
    pub(super) snapshot: Vec<u8>,
    pub(super) groups: Vec<u8>,
    pub(super) access_version: Vec<u8>,
    /// The prefix of the keys of access documents, for all groups.
    pub(super) access: String,
    servers: String,
    records: String,
    chunks: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, group: u32) -> Keys {
        let key = |name: &str| format!("{prefix}/{group}/{name}").into_bytes();
        Keys {
            schema: format!("{prefix}/schema").into_bytes(),
            leader: key("leader"),
            beat: key("beat"),
            begun: key("begun"),
            snapshot: key("snapshot"),
            groups: key("groups"),
            access_version: format!("{prefix}/access-version").into_bytes(),
            access: format!("{prefix}/access/"),
            servers: format!("{prefix}/{group}/server/"),
            records: format!("{prefix}/{group}/record/"),
            chunks: format!("{prefix}/{group}/chunk/"),
        }
    }

    pub(super) fn record(&self, seq: Seq) -> Vec<u8> {
        format!("{}{:016x}", self.records, seq.0).into_bytes()
    }

    pub(super) fn server(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.servers).into_bytes()
    }

    pub(super) fn all_servers(&self) -> (Vec<u8>, Vec<u8>) {
        (self.servers.clone().into_bytes(), end_of(self.servers.as_bytes()))
    }

    pub(super) fn server_of<'a>(&self, key: &'a [u8]) -> Option<&'a str> {
        std::str::from_utf8(key.strip_prefix(self.servers.as_bytes())?).ok()
    }

    /// Behind all records.
    pub(super) fn records_end(&self) -> Vec<u8> {
        end_of(self.records.as_bytes())
    }

    pub(super) fn seq_of(&self, key: &[u8]) -> Option<Seq> {
        let digits = key.strip_prefix(self.records.as_bytes())?;
        u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok().map(Seq)
    }

    pub(super) fn chunk(&self, id: &str, index: u32, part: usize) -> Vec<u8> {
        format!("{}{id}/{index:08x}/{part:04x}", self.chunks).into_bytes()
    }

    /// Behind all chunks of this snapshot.
    pub(super) fn chunks_end(&self, id: &str) -> Vec<u8> {
        end_of(format!("{}{id}/", self.chunks).as_bytes())
    }

    /// All chunks of this snapshot come from here on.
    pub(super) fn chunks_start(&self, id: &str) -> Vec<u8> {
        format!("{}{id}/", self.chunks).into_bytes()
    }

    /// All chunks of all snapshots.
    pub(super) fn all_chunks(&self) -> (Vec<u8>, Vec<u8>) {
        (self.chunks.clone().into_bytes(), end_of(self.chunks.as_bytes()))
    }

    /// The snapshot and the number of a chunk, from its key.
    pub(super) fn chunk_of<'a>(&self, key: &'a [u8]) -> Option<(&'a str, u32)> {
        let rest = std::str::from_utf8(key.strip_prefix(self.chunks.as_bytes())?).ok()?;
        let mut parts = rest.split('/');
        let id = parts.next()?;
        Some((id, u32::from_str_radix(parts.next()?, 16).ok()?))
    }
}

/// The first key that does not begin with this.
pub(super) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

pub(super) fn written_at(key: &[u8], revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key: key.into(),
        target_union: Some(TargetUnion::ModRevision(revision)),
    }
}

pub(super) fn holds(key: &[u8], value: &[u8]) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Value.into(),
        key: key.into(),
        target_union: Some(TargetUnion::Value(value.into())),
    }
}

pub(super) fn is_there(key: Vec<u8>) -> Compare {
    created(key, CompareResult::NotEqual)
}

pub(super) fn is_absent(key: Vec<u8>) -> Compare {
    created(key, CompareResult::Equal)
}

fn created(key: Vec<u8>, result: CompareResult) -> Compare {
    Compare {
        result: result.into(),
        target: CompareTarget::Create.into(),
        key,
        target_union: Some(TargetUnion::CreateRevision(0)),
    }
}

pub(super) fn put(key: &[u8], value: &[u8]) -> RequestOp {
    let put = PutRequest { key: key.into(), value: value.into() };
    RequestOp { request: Some(Request::RequestPut(put)) }
}

pub(super) fn get(key: &[u8]) -> RequestOp {
    range(RangeRequest { key: key.into(), ..RangeRequest::default() })
}

pub(super) fn range(range: RangeRequest) -> RequestOp {
    RequestOp { request: Some(Request::RequestRange(range)) }
}

pub(super) fn delete(from: Vec<u8>, to: Vec<u8>) -> RequestOp {
    let delete = DeleteRangeRequest { key: from, range_end: to };
    RequestOp { request: Some(Request::RequestDeleteRange(delete)) }
}

/// The last key before `to`. etcd goes through all from `from` on.
pub(super) fn last(from: Vec<u8>, to: Vec<u8>) -> RangeRequest {
    RangeRequest {
        key: from,
        range_end: to,
        limit: 1,
        sort_order: SortOrder::Descend.into(),
        sort_target: SortTarget::Key.into(),
        ..RangeRequest::default()
    }
}

/// The first keys from `from` on.
pub(super) fn first(from: Vec<u8>, to: Vec<u8>, limit: i64) -> RangeRequest {
    RangeRequest { key: from, range_end: to, limit, ..RangeRequest::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_as_their_numbers_do() {
        let keys = Keys::new("leasehold", 0);
        assert!(keys.record(Seq(9)) < keys.record(Seq(10)));
        assert!(keys.record(Seq(u64::MAX)) < keys.records_end());
        assert!(keys.chunk("a", 9, 1) < keys.chunk("a", 16, 0));
        assert!(keys.chunk("a", u32::MAX, 9) < keys.chunks_end("a"));
    }

    #[test]
    fn groups_do_not_overlap() {
        let (one, ten) = (Keys::new("leasehold", 1), Keys::new("leasehold", 10));
        assert!(ten.record(Seq(0)) < one.record(Seq(0)) || ten.record(Seq(0)) > one.records_end());
        assert_eq!(one.seq_of(&ten.record(Seq(1))), None);
    }

    #[test]
    fn numbers_come_back_out_of_keys() {
        let keys = Keys::new("a/b", 3);
        assert_eq!(keys.seq_of(&keys.record(Seq(77))), Some(Seq(77)));
        assert_eq!(keys.chunk_of(&keys.chunk("id-1", 5, 2)), Some(("id-1", 5)));
    }
}
