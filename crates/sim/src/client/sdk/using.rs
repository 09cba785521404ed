//! The thread that uses it.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold_client::machine::{Ask, Key, Moment as Own, State, Wait as SdkWait};
use leasehold_core::{Namespace, RequestId};

use super::{ITEMS_MAX, Item, SDK_ACTIONS, Sdk, inode_of};
use crate::client::Due;
use crate::client::scopes::claim;
use crate::judge::{Attempt, Verdict};
use crate::rng::{Purpose, Rng};
use crate::world::World;

impl World {
    pub(in crate::client) fn sdk_think(&mut self, client: usize) -> Result<(), Verdict> {
        if self.clients[client].draining {
            return Ok(());
        }
        let own = self.own(client);
        self.clients[client].sdk_actions += 1;
        let action = self.clients[client].sdk_actions;
        let place = client + SDK_ACTIONS;
        let mut rng = Rng::new(self.plan.seed, Purpose::Work, place as u64, action);
        let think = rng.between(1, self.plan.work.think * 4);
        self.client_due(client, Due::SdkThink, self.now + think);
        if self.cut.actions.contains(&(place, action)) {
            return Ok(());
        }
        let Sdk { machine, keys, .. } = self.sdk(client);
        let keys: Vec<Key> = keys.iter().copied().collect();
        if keys.len() >= ITEMS_MAX || (!keys.is_empty() && rng.percent(25)) {
            let key = *rng.pick(&keys);
            if rng.percent(50) {
                machine.release(own, key);
            } else {
                machine.abandon(own, key);
            }
        } else {
            self.sdk_acquire(client, &mut rng);
        }
        self.drive_sdk(client)
    }

    fn sdk_acquire(&mut self, client: usize, rng: &mut Rng) {
        let (own, now, work, ttl) = (self.own(client), self.now, self.plan.work, self.plan.ttl);
        let (life, action) = (self.clients[client].life, self.clients[client].sdk_actions);
        let sdk = self.sdk(client);
        let lasts = Duration::from_millis(*rng.pick(&[ttl, ttl / 2, ttl * 2]) / 1000);
        let is_session = |key: &Key| {
            sdk.machine.data(*key).is_some_and(|item| item.claims.is_empty() && item.is_granted)
        };
        let session = sdk.keys.iter().copied().find(is_session);
        let opens = session.is_none() && rng.percent(work.sessions / 2);
        let session = session.filter(|_| !opens && rng.percent(70));
        let mut claims = vec![claim(rng, &work)];
        if rng.percent(work.sets) {
            let more = claim(rng, &work);
            if !claims[0].scope.overlaps(&more.scope) {
                claims.push(more);
            }
        }
        // Two requests of one owner for bytes of one file would be one lock: they merge, and each gives the other's back.
        let items = sdk.keys.iter().filter_map(|key| sdk.machine.data(*key));
        let held: BTreeSet<u64> =
            items.flat_map(|item| &item.claims).filter_map(inode_of).collect();
        claims.retain(|claim| inode_of(claim).is_none_or(|inode| !held.contains(&inode)));
        if opens {
            claims.clear();
        } else if claims.is_empty() {
            return;
        }
        let wait = if rng.percent(work.waits) {
            *rng.pick(&[SdkWait::Forever, SdkWait::UpTo(lasts), SdkWait::UpTo(lasts / 8)])
        } else {
            SdkWait::Never
        };
        let request_id =
            RequestId::new(&format!("sdk-{client}-{life}-{action}")).expect("a plain name");
        let attempt = Attempt {
            client,
            owner: sdk.owner.clone(),
            claims: claims.clone(),
            ttl: if session.is_some() { Duration::ZERO } else { lasts },
            waited: wait != SdkWait::Never,
            request_id: Some(request_id.clone()),
            leases: Vec::new(),
            invoked: now,
            returned: None,
            granted: None,
            is_refused: false,
        };
        let ask = match session {
            Some(session) => Ask::Under { session, wait },
            None => Ask::Lease { ttl: lasts, wait, is_kept: true },
        };
        let item = Item {
            claims,
            ttl: lasts,
            request_id,
            session,
            lease: None,
            fence: None,
            attempt,
            is_granted: false,
            confirmed: Own::ZERO,
        };
        let key = sdk.machine.acquire(own, item, ask);
        sdk.keys.insert(key);
    }

    /// Work is done: it writes, if it may, and gives the lock back.
    pub(in crate::client) fn sdk_release(
        &mut self,
        client: usize,
        key: u64,
    ) -> Result<(), Verdict> {
        let (own, key) = (self.own(client), Key::from_u64(key));
        let sdk = self.sdk(client);
        let Some(item) = sdk.machine.data(key).cloned() else { return Ok(()) };
        let is_valid =
            sdk.machine.window(key).is_some_and(|window| window.state(own) == State::Valid);
        sdk.machine.release(own, key);
        if let ([claim, ..], Some(fence), true) = (item.claims.as_slice(), item.fence, is_valid) {
            self.write_to(&Namespace::default(), claim, fence);
        }
        self.drive_sdk(client)
    }

    /// Everything is given back; what is still asked for may come.
    pub(in crate::client) fn sdk_drains(&mut self, client: usize) -> Result<(), Verdict> {
        let own = self.own(client);
        let Sdk { machine, keys, .. } = self.sdk(client);
        for key in keys.iter() {
            machine.release(own, *key);
        }
        self.drive_sdk(client)
    }
}
