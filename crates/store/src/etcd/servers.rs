//! The number of groups, and the list of servers.

use super::keys::{delete, get, is_absent, put};
use super::proto::response_op::Response;
use super::proto::{RangeRequest, RangeResponse, TxnRequest};
use super::{Inner, version};
use crate::error::Error;
use crate::journal::{About, Peer};

impl Inner {
    /// Not every user may ask for the version.
    pub(super) async fn about(&self) -> Result<Option<About>, Error> {
        let Ok(version) = self.client.version().await else { return Ok(None) };
        let warning = version::warning(&version);
        Ok(Some(About { version: format!("etcd {version}"), warning }))
    }

    pub(super) async fn groups(&self, wanted: u32) -> Result<u32, Error> {
        let key = &self.keys.groups;
        let txn = TxnRequest {
            compare: vec![is_absent(key.clone())],
            success: vec![put(key, wanted.to_string().as_bytes())],
            failure: vec![get(key)],
        };
        let answer = self.client.txn(txn).await;
        let answer = answer.map_err(|failure| failure.unavailable("the groups cannot be read"))?;
        if answer.succeeded {
            return Ok(wanted);
        }
        let found = answer.responses.into_iter().find_map(|response| match response.response {
            Some(Response::ResponseRange(range)) => number(&range),
            Some(_) | None => None,
        });
        found.ok_or_else(|| Error::corrupt("the number of groups is not a number"))
    }

    // The count comes first: neither it nor the address has a space.
    pub(super) async fn announce(&self, server: &Peer) -> Result<(), Error> {
        let value = format!("{} {}", server.count, server.address);
        let put = put(&self.keys.server(&server.name), value.as_bytes());
        self.at_once(vec![put], "the server cannot be announced").await
    }

    pub(super) async fn forget_server(&self, name: &str) -> Result<(), Error> {
        let key = self.keys.server(name);
        let end = [key.as_slice(), b"\0"].concat();
        self.at_once(vec![delete(key, end)], "a server cannot be forgotten").await
    }

    async fn at_once(
        &self,
        success: Vec<super::proto::RequestOp>,
        task: &str,
    ) -> Result<(), Error> {
        let txn = TxnRequest { success, ..TxnRequest::default() };
        self.client.txn(txn).await.map(|_| ()).map_err(|failure| failure.unavailable(task))
    }

    pub(super) async fn servers(&self) -> Result<Vec<Peer>, Error> {
        let (key, range_end) = self.keys.all_servers();
        let range = RangeRequest { key, range_end, ..RangeRequest::default() };
        let found = self.client.range(range).await;
        let found = found.map_err(|failure| failure.unavailable("the servers cannot be read"))?;
        let server = |pair: &super::proto::KeyValue| {
            let (count, address) = std::str::from_utf8(&pair.value).ok()?.split_once(' ')?;
            Some(Peer {
                name: self.keys.server_of(&pair.key)?.into(),
                address: address.into(),
                count: count.parse().ok()?,
            })
        };
        Ok(found.kvs.iter().filter_map(server).collect())
    }
}

fn number(range: &RangeResponse) -> Option<u32> {
    std::str::from_utf8(&range.kvs.first()?.value).ok()?.parse().ok()
}
