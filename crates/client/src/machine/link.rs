//! The one connection to a server, and what happens when it breaks.

use super::entry::{Entry, Phase};
use super::jitter::doubled;
use super::machine::{Action, Call, Failure, Machine, Request};
use super::slab::{CallId, Key};
use super::time::Moment;

/// Names one connection, or one try to make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

#[derive(Clone, Copy, Debug)]
pub(super) enum Link {
    /// The next try is due then.
    Down {
        until: Moment,
    },
    Connecting {
        id: LinkId,
        until: Moment,
    },
    /// The last message came at `heard`.
    Up {
        id: LinkId,
        heard: Moment,
    },
}

impl<T> Machine<T> {
    /// The connection stands; requests can be sent over it.
    pub fn up(&mut self, now: Moment, link: LinkId) {
        self.work_off(now);
        match self.link {
            Link::Connecting { id, .. } if id == link => {}
            Link::Connecting { .. } | Link::Down { .. } | Link::Up { .. } => return,
        }
        self.link = Link::Up { id: link, heard: now };
        if planted!("release-on-reconnect") {
            let held = |phase: &Phase| matches!(phase, Phase::Held(_));
            let entries = self.entries.iter().filter(|(_, entry)| held(&entry.phase));
            for key in entries.map(|(key, _)| key).collect::<Vec<Key>>() {
                self.send(now, key, Request::Release);
            }
        }
        self.send_what_is_in_line(now);
    }

    /// The connection broke, or could not be made.
    pub fn down(&mut self, now: Moment, link: LinkId) {
        self.work_off(now);
        match self.link {
            Link::Connecting { id, .. } | Link::Up { id, .. } if id == link => {
                self.servers.rotate();
                self.drop_link(now);
            }
            Link::Connecting { .. } | Link::Up { .. } | Link::Down { .. } => {}
        }
    }

    /// Replaces the connection, because another thread or task drives the machine from here on. The next one is made at
    /// once, to the same server, and what was sent over this one is sent again.
    pub fn relink(&mut self, now: Moment) {
        let (Link::Up { id, .. } | Link::Connecting { id, .. }) = self.link else {
            self.work_off(now);
            return;
        };
        // Nothing that is due must go out over it.
        self.link = Link::Down { until: now };
        self.work_off(now);
        self.fail_calls_of(now, id);
    }

    /// Sends heartbeats and releases first: many waiters must not cost a holder its lease.
    fn send_what_is_in_line(&mut self, now: Moment) {
        let line: Vec<Key> = self.line.drain(..).collect();
        let (keeping, others): (Vec<Key>, Vec<Key>) =
            line.into_iter().partition(|&key| match self.entries.get(key).map(|e| &e.phase) {
                Some(Phase::Held(_) | Phase::Confirming(..) | Phase::Releasing(_)) => true,
                Some(
                    Phase::Acquiring(_) | Phase::Jeopardy(_) | Phase::Joined | Phase::Abandoned(_),
                )
                | None => false,
            });
        for key in keeping.into_iter().chain(others) {
            let Some(entry) = self.entries.get_mut(key) else { continue };
            if std::mem::take(&mut entry.is_in_line) {
                self.send_again(now, key);
                self.rearm(key);
            }
        }
    }

    /// Gives the connection up and makes the next one, to the server that is then the current one.
    pub(super) fn drop_link(&mut self, now: Moment) {
        let was_up = matches!(self.link, Link::Up { .. });
        let id = match self.link {
            Link::Up { id, .. } | Link::Connecting { id, .. } => Some(id),
            Link::Down { .. } => None,
        };
        let tries = self.link_tries;
        self.link_tries = tries.saturating_add(1).min(1 << 20);
        // Each server gets one try at once; then it is their turn to come back.
        let rounds = (tries + 1) / u32::try_from(self.servers.len()).unwrap_or(1);
        let until = if (was_up && tries == 0) || rounds == 0 {
            now
        } else {
            let pause = doubled(self.settings.backoff_first, rounds - 1, self.settings.backoff_max);
            now.plus(self.jitter.spread(pause))
        };
        self.link = Link::Down { until };
        if let Some(id) = id {
            self.fail_calls_of(now, id);
        }
        self.reconnect_if_due(now);
    }

    fn fail_calls_of(&mut self, now: Moment, link: LinkId) {
        let failed: Vec<Key> =
            self.calls.iter().filter(|(_, call)| call.link == link).map(|(id, _)| id).collect();
        for id in failed {
            if let Some(call) = self.calls.remove(id) {
                self.call_failed(now, id, call, Failure::Unknown);
            }
        }
    }

    pub(super) fn reconnect_if_due(&mut self, now: Moment) {
        match self.link {
            Link::Down { until } if until <= now => {
                self.links += 1;
                let link = LinkId(self.links);
                let until = now.plus(self.settings.connect_timeout);
                self.link = Link::Connecting { id: link, until };
                let address = self.servers.current().to_string();
                self.actions.push_back(Action::Connect { link, address });
            }
            Link::Connecting { until, .. } if until <= now => {
                self.servers.rotate();
                self.drop_link(now);
            }
            Link::Down { .. } | Link::Connecting { .. } | Link::Up { .. } => {}
        }
    }

    /// Notes that a request beside the machine failed: another server may do better, if there is one.
    pub fn suspect(&mut self, now: Moment) {
        self.work_off(now);
        if let Link::Up { id, .. } = self.link {
            self.try_another(now, id);
        }
    }

    /// The same, unless something is held: then its heartbeats decide, since a session can end with its connection.
    pub fn suspect_if_idle(&mut self, now: Moment) {
        let is_held = |entry: &Entry<T>| matches!(entry.phase, Phase::Held(_));
        if !self.entries.iter().any(|(_, entry)| is_held(entry)) {
            self.suspect(now);
        }
    }

    /// The answer to a request is overdue. A server that answers others is slow. One without any answer is gone, and
    /// another may be there. If something is held, its heartbeats decide that: a session can end with its connection.
    pub(super) fn overdue(&mut self, now: Moment, call: CallId) {
        let Some(&Call { sent, link, .. }) = self.calls.get(call.0) else { return };
        let is_silent = matches!(self.link, Link::Up { heard, .. } if heard <= sent);
        let is_held = |entry: &Entry<T>| matches!(entry.phase, Phase::Held(_));
        if is_silent && !self.entries.iter().any(|(_, entry)| is_held(entry)) {
            self.try_another(now, link);
        }
    }

    /// Another server may do better.
    pub(super) fn try_another(&mut self, now: Moment, link: LinkId) {
        if self.servers.len() > 1 && self.is_current(link) {
            self.servers.rotate();
            self.drop_link(now);
        }
    }

    pub(super) fn follow(&mut self, now: Moment, link: LinkId, hint: Option<&str>) {
        match hint {
            Some(hint) if self.is_current(link) => {
                if self.servers.follow(hint) {
                    self.drop_link(now);
                }
            }
            Some(_) => {}
            None => self.try_another(now, link),
        }
    }

    fn is_current(&self, link: LinkId) -> bool {
        match self.link {
            Link::Up { id, .. } | Link::Connecting { id, .. } => id == link,
            Link::Down { .. } => false,
        }
    }

    pub(super) fn heard(&mut self, now: Moment, link: LinkId) {
        if let Link::Up { id, heard } = &mut self.link
            && *id == link
        {
            *heard = now;
            // Only what answers is a server: one that accepts and closes is tried as rarely as one that is not there.
            self.link_tries = 0;
        }
    }
}
