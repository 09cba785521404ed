//! Retries: a request that came before gets the grant, or the place, that it has.

use std::time::Duration;

use crate::command::{Acquire, Wait};
use crate::effect::{Answer, Grant, Outcome};
use crate::fencing_token::FencingToken;
use crate::id::Ticket;
use crate::lease::LeaseIdx;
use crate::namespace::{Known, NamespaceIdx};
use crate::owners::OwnerIdx;
use crate::refusal::Refusal;
use crate::table::LockTable;

impl LockTable {
    /// The same request came before: its grant again, or its place in the queue.
    pub(super) fn retried(
        &mut self,
        space: NamespaceIdx,
        request: &Acquire,
        digest: u64,
    ) -> Result<Option<Outcome>, Refusal> {
        let at = self.space(space);
        let Some(id) = &request.request_id else { return Ok(None) };
        let Some(owner) = at.owners.find(&request.owner) else { return Ok(None) };
        let known = match at.requests.get(&(owner, id.clone())) {
            Some(known) if !planted!("request-id-grants-twice") => *known,
            Some(_) | None => return Ok(None),
        };
        match known {
            Known::Granted { lease, fence, .. } if !self.still_holds(space, lease, fence) => {
                Ok(None)
            }
            Known::Granted { digest: before, .. } if before != digest => {
                Err(Refusal::RequestIdReused)
            }
            Known::Opened { .. } => Err(Refusal::RequestIdReused),
            Known::Kept(_) => Ok(None),
            Known::Granted { lease, fence, .. } => {
                let grant = self.grant_again(space, lease, owner, fence);
                Ok(Some(Outcome::Answered(Answer::Granted(Box::new(grant)))))
            }
            Known::Waiting(ticket) => self.join_waiter(space, ticket, request, digest),
        }
    }

    fn join_waiter(
        &mut self,
        space: NamespaceIdx,
        ticket: Ticket,
        request: &Acquire,
        digest: u64,
    ) -> Result<Option<Outcome>, Refusal> {
        let at = self.space_mut(space);
        let waiter = at.waiters.get_mut(&ticket).expect("a known waiter is there");
        if waiter.digest != digest {
            return Err(Refusal::RequestIdReused);
        }
        if request.wait == Wait::Never {
            let asker = self.asker(space, request, ticket, false);
            return Err(self.refusal_for(space, request, asker, None, self.now));
        }
        waiter.calls.push(request.call);
        let deadline = waiter.deadline;
        at.calls.insert(request.call, ticket);
        self.wait_longer(space, ticket, deadline, request.wait);
        Ok(Some(Outcome::Queued(self.queued(space, ticket))))
    }

    /// Whether anything that was granted with this token is still held under its lease.
    pub(super) fn still_holds(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        fence: FencingToken,
    ) -> bool {
        let held = self.space(space).lease(lease);
        if held.is_over() {
            return false;
        }
        let bytes = held.held.byte_request(fence).is_some_and(|request| {
            let owner = request.owner;
            let mut ranges = request.ranges.iter();
            ranges.any(|&(inode, range)| {
                !self.honouring(space, lease, owner, inode, range, fence).is_empty()
            })
        });
        bytes || !held.held.stamped(fence).is_empty()
    }

    /// A grant made before, as its holder sees it now.
    pub(super) fn grant_again(
        &self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        owner: OwnerIdx,
        fence: FencingToken,
    ) -> Grant {
        let at = self.space(space);
        let held = at.lease(lease);
        let granted_at = self.granted_at(space, lease, owner, fence);
        Grant {
            lease: held.id,
            owner: at.owners.name(owner).clone(),
            fence,
            ttl: held.ttl,
            deadline: held.deadline,
            granted_at,
            waited: Duration::ZERO,
            replayed: true,
            gained: Vec::new(),
        }
    }
}
