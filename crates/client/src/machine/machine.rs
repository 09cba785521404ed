//! One client: its leases, its requests on their way, its connection.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use leasehold_api::Problem;

use super::entry::{Ask, Entry, Phase, Wait};
use super::jitter::Jitter;
use super::link::{Link, LinkId};
use super::servers::Servers;
use super::slab::{CallId, Key, Slab};
use super::time::Moment;
use super::window::{HeartbeatInterval, LeaseWindow, SLACK_PART};

/// Timeouts of a client.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Duration for which a request is tried before its caller is told that no server could be reached. A wait in the queue is not
    /// part of it.
    pub patience: Duration,
    /// Timeout of an answer, beyond the wait, after which the request is sent again.
    pub answer_timeout: Duration,
    pub connect_timeout: Duration,
    /// The pause between two tries: doubled each time, and jittered.
    pub backoff_first: Duration,
    pub backoff_max: Duration,
    pub heartbeat: HeartbeatInterval,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            patience: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(2),
            backoff_first: Duration::from_millis(20),
            backoff_max: Duration::from_millis(500),
            heartbeat: HeartbeatInterval::default(),
        }
    }
}

const SLACK_MAX: Duration = Duration::from_secs(1);

/// Action for the driver.
#[derive(Debug)]
pub enum Action<T> {
    /// Make a connection to this server, say `up` or `down`, and let the one before go.
    Connect { link: LinkId, address: String },
    /// Send this on the connection; `answer` or `failed` must follow, unless the connection breaks.
    Send { call: CallId, key: Key, request: Request },
    /// The answer is of no interest any more, so the request should not wait any longer. One must follow all the same.
    Cancel { call: CallId, key: Key },
    /// A change that the caller is told of.
    Tell { key: Key, news: News },
    /// It is over, and the machine has forgotten the key.
    End { key: Key, data: T, how: Ended },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Always under the same request id for one key.
    Acquire {
        wait: Wait,
        ticket: Option<String>,
    },
    Renew,
    Release,
}

/// News of a lease that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    Granted(LeaseWindow),
    Renewed(LeaseWindow),
    /// Stop.
    Jeopardy,
    /// No answer came to an acquire. Whether it was granted is unknown; what it may have got is being given back.
    GaveUp,
}

/// End of a lease or a request.
#[derive(Debug)]
pub enum Ended {
    /// The server said no to an acquire.
    Refused(Box<Problem>),
    /// No server could be asked.
    Unreachable,
    Lost(Loss),
    /// The session that it was to stand under is over, and no server had been asked yet.
    NeverAsked(Loss),
    Released,
    /// The server said that there was nothing to release: the lease was over before.
    NotReleased(Box<Problem>),
    /// No answer came to the release before the lease was over by itself.
    ReleaseUnanswered,
    /// An abandoned acquire has left nothing behind.
    Forgotten,
}

impl Ended {
    fn of_what_stood_under(&self) -> Loss {
        match self {
            Ended::Lost(Loss::Lapsed) => Loss::Lapsed,
            Ended::Lost(Loss::Told(problem)) => Loss::Told(problem.clone()),
            Ended::Lost(Loss::SessionClosed)
            | Ended::NeverAsked(_)
            | Ended::Refused(_)
            | Ended::Unreachable
            | Ended::Released
            | Ended::NotReleased(_)
            | Ended::ReleaseUnanswered
            | Ended::Forgotten => Loss::SessionClosed,
        }
    }
}

#[derive(Debug)]
pub enum Loss {
    /// The ttl is over.
    Lapsed,
    /// The server said so.
    Told(Box<Problem>),
    /// The session it stood under was closed.
    SessionClosed,
}

/// Answer of a server.
#[derive(Debug)]
pub enum Answer {
    /// To an acquire or the opening of a session. `left` is how long the lease still stands.
    Granted {
        ttl: Duration,
        left: Duration,
    },
    Renewed {
        ttl: Duration,
        left: Duration,
    },
    Released,
    Refused(Box<Problem>),
}

/// The reason why no answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request never left.
    Unsent,
    /// It may have been carried out.
    Unknown,
}

/// A request on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) key: Key,
    pub(super) sent: Moment,
    pub(super) link: LinkId,
}

/// One client. `T` is whatever the one who drives it wants to keep with each lease.
#[derive(Debug)]
pub struct Machine<T> {
    pub(super) settings: Settings,
    pub(super) servers: Servers,
    pub(super) link: Link,
    pub(super) links: u64,
    pub(super) link_tries: u32,
    pub(super) entries: Slab<Entry<T>>,
    pub(super) calls: Slab<Call>,
    pub(super) timers: BTreeSet<(Moment, Key)>,
    /// Entries that have a request to send and no connection.
    pub(super) line: Vec<Key>,
    pub(super) actions: VecDeque<Action<T>>,
    pub(super) jitter: Jitter,
    /// The shortest ttl of a lease since there was none.
    pub(super) ttl_least: Duration,
}

impl<T> Machine<T> {
    /// A client of these servers; it connects to the first one at once.
    pub fn new(now: Moment, servers: Vec<String>, settings: Settings, seed: u64) -> Machine<T> {
        Machine::with_jitter(now, servers, settings, Jitter::Seeded(seed))
    }

    /// The same with other jitter than that of a seed.
    pub fn with_jitter(
        now: Moment,
        servers: Vec<String>,
        settings: Settings,
        jitter: Jitter,
    ) -> Machine<T> {
        let mut machine = Machine {
            settings,
            servers: Servers::new(servers),
            link: Link::Down { until: now },
            links: 0,
            link_tries: 0,
            entries: Slab::new(),
            calls: Slab::new(),
            timers: BTreeSet::new(),
            line: Vec::new(),
            actions: VecDeque::new(),
            jitter,
            ttl_least: Duration::MAX,
        };
        machine.reconnect_if_due(now);
        machine
    }

    /// Takes the next action; `None` when all is done for now.
    pub fn next_action(&mut self) -> Option<Action<T>> {
        self.actions.pop_front()
    }

    /// Latest moment of the next call of `wake`.
    pub fn next_wake(&self) -> Option<Moment> {
        let lease = self.timers.first().map(|(at, _)| *at);
        match (lease, self.link_due()) {
            (Some(lease), Some(link)) => Some(lease.min(link)),
            (lease, link) => lease.or(link),
        }
    }

    /// Delay of a wake after which the driver of the machine counts as stopped. Twice that after a heartbeat was due there is
    /// still time to send it over another connection.
    pub fn slack(&self) -> Duration {
        (self.ttl_least / SLACK_PART).min(SLACK_MAX)
    }

    /// Moment of the next action. A wake is asked for then or earlier: a timer may be left of an entry that has changed since.
    pub fn next_due(&self) -> Option<Moment> {
        let entries = self.entries.iter().filter_map(|(_, entry)| entry.due_at());
        entries.chain(self.link_due()).min()
    }

    fn link_due(&self) -> Option<Moment> {
        match self.link {
            Link::Down { until } | Link::Connecting { until, .. } => Some(until),
            Link::Up { .. } => None,
        }
    }

    /// It is that late.
    pub fn wake(&mut self, now: Moment) {
        self.work_off(now);
    }

    /// Key that a request on its way belongs to.
    pub fn key_of(&self, call: CallId) -> Option<Key> {
        self.calls.get(call.0).map(|call| call.key)
    }

    pub fn data(&self, key: Key) -> Option<&T> {
        self.entries.get(key).map(|entry| &entry.data)
    }

    pub fn data_mut(&mut self, key: Key) -> Option<&mut T> {
        self.entries.get_mut(key).map(|entry| &mut entry.data)
    }

    /// The lease that the key's grant stands under, while it is held.
    pub fn window(&self, key: Key) -> Option<LeaseWindow> {
        let entry = self.entries.get(key)?;
        match (&entry.phase, entry.ask) {
            (Phase::Joined, Ask::Under { session, .. }) => self.entries.get(session)?.window(),
            _ => entry.window(),
        }
    }

    /// Number of keys in use.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// All keys in use.
    pub fn keys(&self) -> Vec<Key> {
        self.entries.iter().map(|(key, _)| key).collect()
    }

    /// Number of known servers.
    pub fn servers_len(&self) -> usize {
        self.servers.len()
    }

    /// The server that is in use or about to be.
    pub fn server(&self) -> &str {
        self.servers.current()
    }

    /// An answer came.
    pub fn answer(&mut self, now: Moment, call: CallId, answer: Answer) {
        self.work_off(now);
        let Some(sent) = self.calls.remove(call.0) else { return };
        self.heard(now, sent.link);
        let Some(entry) = self.entries.get_mut(sent.key) else { return };
        let is_latest = entry.call == Some(call);
        if is_latest {
            entry.call = None;
        }
        match answer {
            Answer::Granted { ttl, left } => self.granted(now, sent, ttl, left),
            Answer::Renewed { ttl, left } => self.renewed(now, sent, ttl, left),
            Answer::Released => self.released(now, sent.key),
            Answer::Refused(problem) => self.refused(now, sent, is_latest, problem),
        }
        self.rearm(sent.key);
    }

    /// A request stands in the queue; the ticket leads back to its place should the connection break.
    pub fn queued(&mut self, now: Moment, call: CallId, ticket: String) {
        self.work_off(now);
        let Some(&Call { key, link, .. }) = self.calls.get(call.0) else { return };
        self.heard(now, link);
        if let Some(entry) = self.entries.get_mut(key)
            && entry.call == Some(call)
            && let Phase::Acquiring(acquiring) = &mut entry.phase
        {
            acquiring.ticket = Some(ticket);
        }
    }

    /// No answer came, though the connection may go on.
    pub fn failed(&mut self, now: Moment, call: CallId, failure: Failure) {
        self.work_off(now);
        let Some(sent) = self.calls.remove(call.0) else { return };
        self.try_another(now, sent.link);
        self.call_failed(now, call.0, sent, failure);
    }

    /// The server said, unasked, that a lease or a grant is over.
    pub fn lost(&mut self, now: Moment, key: Key, problem: Box<Problem>) {
        self.work_off(now);
        let Some(entry) = self.entries.get(key) else { return };
        match entry.phase {
            Phase::Held(_) | Phase::Jeopardy(_) | Phase::Joined => {
                self.lose(key, Loss::Told(problem));
            }
            Phase::Acquiring(_)
            | Phase::Confirming(..)
            | Phase::Releasing(_)
            | Phase::Abandoned(_) => {}
        }
    }

    pub(super) fn call_failed(&mut self, now: Moment, id: Key, call: Call, failure: Failure) {
        let Some(entry) = self.entries.get_mut(call.key) else { return };
        if let (Phase::Acquiring(acquiring), Failure::Unknown) = (&mut entry.phase, failure) {
            acquiring.is_in_doubt = true;
        }
        // Another one was sent since: that one counts.
        if entry.call != Some(CallId(id)) {
            return;
        }
        entry.call = None;
        match entry.phase {
            Phase::Acquiring(_) => self.acquire_failed(now, call.key),
            Phase::Confirming(..) | Phase::Held(_) => self.beat_failed(now, call.key, None),
            Phase::Releasing(_) => self.release_failed(now, call.key, failure),
            Phase::Abandoned(_) => self.abandoned_failed(now, call.key),
            Phase::Jeopardy(_) | Phase::Joined => {}
        }
        self.rearm(call.key);
    }

    /// A refusal of a request that was sent again since says nothing, except that a lease is over.
    fn refused(&mut self, now: Moment, call: Call, is_latest: bool, problem: Box<Problem>) {
        if problem.code == leasehold_api::Code::NotLeader {
            self.follow(now, call.link, problem.leader.as_deref());
        }
        let Some(entry) = self.entries.get(call.key) else { return };
        match entry.phase {
            Phase::Confirming(..) => self.confirm_refused(now, call.key, &problem),
            Phase::Held(_) | Phase::Jeopardy(_) => self.renewal_refused(now, call.key, problem),
            Phase::Acquiring(_) if is_latest => self.acquire_refused(now, call.key, problem),
            Phase::Releasing(_) if is_latest => self.release_refused(now, call.key, problem),
            Phase::Abandoned(_) if is_latest => self.abandoned_refused(now, call.key, &problem),
            Phase::Acquiring(_) | Phase::Releasing(_) | Phase::Abandoned(_) | Phase::Joined => {}
        }
    }

    /// Does what is due, the oldest first.
    pub(super) fn work_off(&mut self, now: Moment) {
        while let Some(&(at, key)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            let entry = self.entries.get_mut(key).expect("who has a timer is there");
            entry.timer = None;
            // It was set for something that has happened meanwhile.
            if entry.due_at().is_none_or(|due| due > now) {
                self.rearm(key);
                continue;
            }
            match entry.phase {
                Phase::Acquiring(_) => self.acquiring_due(now, key),
                Phase::Confirming(..) => self.confirming_due(now, key),
                Phase::Held(_) => self.held_due(now, key),
                Phase::Jeopardy(_) => self.lapse(key),
                Phase::Joined => {}
                Phase::Releasing(_) => self.releasing_due(now, key),
                Phase::Abandoned(_) => self.abandoned_due(now, key),
            }
            self.rearm(key);
        }
        self.reconnect_if_due(now);
    }

    /// Sends what the entry has to send now.
    pub(super) fn send_again(&mut self, now: Moment, key: Key) {
        let Some(entry) = self.entries.get(key) else { return };
        match entry.phase {
            Phase::Acquiring(_) => self.send_acquire(now, key),
            Phase::Confirming(..) | Phase::Held(_) => self.send_beat(now, key),
            Phase::Releasing(_) => self.send_release(now, key),
            Phase::Abandoned(_) => self.send_to_find_out(now, key),
            Phase::Jeopardy(_) | Phase::Joined => {}
        }
    }

    /// Sends, or stands in the queue for a connection; true if it was sent.
    pub(super) fn send(&mut self, now: Moment, key: Key, request: Request) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };
        let Link::Up { id: link, .. } = self.link else {
            if !std::mem::replace(&mut entry.is_in_line, true) {
                self.line.push(key);
            }
            return false;
        };
        let call = CallId(self.calls.insert(Call { key, sent: now, link }));
        entry.call = Some(call);
        self.actions.push_back(Action::Send { call, key, request });
        true
    }

    pub(super) fn tell(&mut self, key: Key, news: News) {
        self.actions.push_back(Action::Tell { key, news });
    }

    /// Sees to it that there is a timer when the entry is next due, or earlier: most leases are given back before any
    /// of their timers fires, and looking once too often costs less than setting each anew.
    pub(super) fn rearm(&mut self, key: Key) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Some(due) = entry.due_at() else { return };
        if entry.timer.is_some_and(|timer| timer <= due) {
            return;
        }
        if let Some(before) = entry.timer.replace(due) {
            self.timers.remove(&(before, key));
        }
        self.timers.insert((due, key));
    }

    /// Forgets the entry, and ends what stands under it.
    pub(super) fn end(&mut self, key: Key, how: Ended) {
        let Some(entry) = self.entries.remove(key) else { return };
        if let Some(timer) = entry.timer {
            self.timers.remove(&(timer, key));
        }
        if let Ask::Under { session, .. } = entry.ask
            && let Some(session) = self.entries.get_mut(session)
        {
            session.members.remove(&key);
        }
        for member in entry.members {
            self.end(member, Ended::Lost(how.of_what_stood_under()));
        }
        if self.is_empty() {
            self.ttl_least = Duration::MAX;
        }
        let how = if let Ended::Lost(loss) = how {
            if was_never_asked(&entry.phase, entry.call) {
                Ended::NeverAsked(loss)
            } else {
                Ended::Lost(loss)
            }
        } else {
            how
        };
        self.actions.push_back(Action::End { key, data: entry.data, how });
    }

    pub(super) fn lose(&mut self, key: Key, loss: Loss) {
        self.end(key, Ended::Lost(loss));
    }

    /// Ends a lease whose ttl is over.
    pub(super) fn lapse(&mut self, key: Key) {
        if let Some(loss) = self.entries.get_mut(key).map(Entry::lapse) {
            self.lose(key, loss);
        }
    }
}

/// True if no server can have seen the acquire.
fn was_never_asked(phase: &Phase, call: Option<CallId>) -> bool {
    match phase {
        Phase::Acquiring(acquiring) => call.is_none() && !acquiring.is_in_doubt,
        Phase::Confirming(..)
        | Phase::Held(_)
        | Phase::Jeopardy(_)
        | Phase::Joined
        | Phase::Releasing(_)
        | Phase::Abandoned(_) => false,
    }
}
