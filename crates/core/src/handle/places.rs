//! Places in the queue that are kept for callers who are away and may come back.
//!
//! A caller that is away is no waiter: its place stands in no queue, blocks no other, counts against no limit on waiters and
//! is granted nothing. It is found again by its ticket, which is secret, or by the request id.

use crate::command::{Acquire, Under};
use crate::effect::{Effect, Step};
use crate::id::{CallId, LeaseId, SecretTicket, Ticket};
use crate::lease::LeaseIdx;
use crate::namespace::{Known, NamespaceIdx};
use crate::queue::KeptPlace;
use crate::refusal::{Place, Refusal};
use crate::table::LockTable;
use crate::time::Millis;

impl LockTable {
    /// The kept place that a request comes back for, by its request id or its ticket; `None` if it comes for none.
    pub(super) fn find_place(
        &mut self,
        space: NamespaceIdx,
        request: &Acquire,
        digest: u64,
        step: &mut Step,
    ) -> Result<Option<Ticket>, Refusal> {
        let by_id = self.place_by_request_id(space, request, digest);
        let Some(shown) = request.ticket.filter(|_| by_id.is_none()) else { return Ok(by_id) };
        let secret_fits = |secret| shown.secret == secret || planted!("ticket-without-its-secret");
        let at = self.space(space);
        if let Some(place) = at.kept.get(&shown.ticket) {
            let fits = secret_fits(place.secret)
                && place.digest == digest
                && place.until >= self.now
                && *at.owners.name(place.owner) == request.owner;
            return if fits { Ok(Some(shown.ticket)) } else { Err(not_found(shown)) };
        }
        let still_waits = at.waiters.get(&shown.ticket).is_some_and(|waiter| {
            secret_fits(waiter.secret)
                && waiter.digest == digest
                && waiter.request.owner == request.owner
        });
        if !still_waits || self.limits.kept_places_max == 0 {
            return Err(not_found(shown));
        }
        // The caller has noticed before us that its connection broke.
        self.tell_left(space, shown.ticket, step);
        for call in self.keep_place(space, shown.ticket) {
            step.effects.push(Effect::Refused { call, refusal: not_found(shown) });
        }
        Ok(Some(shown.ticket))
    }

    fn place_by_request_id(
        &self,
        space: NamespaceIdx,
        request: &Acquire,
        digest: u64,
    ) -> Option<Ticket> {
        let at = self.space(space);
        let id = request.request_id.as_ref()?;
        let owner = at.owners.find(&request.owner)?;
        let Some(Known::Kept(ticket)) = at.requests.get(&(owner, id.clone())) else { return None };
        let place = at.kept.get(ticket)?;
        (place.digest == digest && place.until >= self.now).then_some(*ticket)
    }

    /// Takes a waiter out of the queues and keeps its place for a while, if places are kept at all. Gives back the calls
    /// that awaited an answer.
    pub(super) fn keep_place(&mut self, space: NamespaceIdx, ticket: Ticket) -> Vec<CallId> {
        let waiter = self.remove_waiter(space, ticket);
        let owner = self.mention(space, &waiter.request.owner);
        let place = KeptPlace {
            owner,
            digest: waiter.digest,
            secret: waiter.secret,
            request_id: waiter.request.request_id,
            since: waiter.since,
            until: self.now,
        };
        self.put_by(space, ticket, place);
        waiter.calls
    }

    /// Keeps a place for its full time from now; with one too many the oldest is forgotten.
    fn put_by(&mut self, space: NamespaceIdx, ticket: Ticket, mut place: KeptPlace) {
        let kept = Millis::from_duration(self.limits.ticket_kept).unwrap_or_default();
        place.until = self.now.plus(kept);
        let (until, id) = (place.until, place.request_id.clone());
        let at = self.space_mut(space);
        if let Some(id) = id {
            let key = (place.owner, id);
            let is_free = matches!(at.requests.get(&key), None | Some(Known::Kept(_)));
            if is_free {
                at.requests.insert(key, Known::Kept(ticket));
            } else {
                place.request_id = None;
            }
        }
        at.kept.insert(ticket, place);
        self.place_timers.insert((until, ticket, space));
        while self.place_timers.len() > self.limits.kept_places_max
            && let Some(&(_, oldest, of)) = self.place_timers.first()
        {
            self.forget_place(of, oldest);
        }
    }

    /// Keeps a place a while longer, for a caller that came back only to look.
    pub(super) fn keep_place_on(&mut self, space: NamespaceIdx, ticket: Ticket) {
        let at = self.space_mut(space);
        // So that the owner is not forgotten with its place.
        at.owners.mention_again(at.kept[&ticket].owner);
        let place = self.forget_place(space, ticket);
        self.put_by(space, ticket, place);
    }

    /// A kept place as its caller is told of it; `None` if it is not kept after all.
    pub(super) fn place_shown(
        &self,
        space: NamespaceIdx,
        ticket: Ticket,
        position: usize,
    ) -> Option<Place> {
        let secret = self.space(space).kept.get(&ticket)?.secret;
        Some(Place { ticket: SecretTicket { ticket, secret }, position })
    }

    pub(super) fn forget_place(&mut self, space: NamespaceIdx, ticket: Ticket) -> KeptPlace {
        let at = &mut self.spaces[space.0];
        let place = at.kept.remove(&ticket).expect("only places that are kept are forgotten");
        if let Some(id) = &place.request_id {
            let key = (place.owner, id.clone());
            if at.requests.get(&key) == Some(&Known::Kept(ticket)) {
                at.requests.remove(&key);
            }
        }
        self.forget_owner(space, place.owner);
        self.place_timers.remove(&(place.until, ticket, space));
        place
    }

    /// The stream of a session broke, and the session is kept: so are the places of those who wait under it.
    pub(super) fn keep_session_places(
        &mut self,
        space: NamespaceIdx,
        lease: LeaseIdx,
        step: &mut Step,
    ) {
        for ticket in self.space(space).waits_under(lease).collect::<Vec<_>>() {
            self.tell_left(space, ticket, step);
            for call in self.keep_place(space, ticket) {
                step.effects.push(Effect::Refused { call, refusal: Refusal::LeaseLost(None) });
            }
        }
    }
}

fn not_found(shown: SecretTicket) -> Refusal {
    Refusal::TicketNotFound(shown.ticket)
}

/// The random id that a request brought.
pub(super) fn id_of(request: &Acquire) -> LeaseId {
    match request.under {
        Under::NewLease { id, .. } | Under::Session(id) => id,
    }
}
