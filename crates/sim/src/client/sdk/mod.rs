//! The real machine of the SDK, with a simulated connection, clock and thread that uses it.
//!
//! A connection carries everything or breaks: when one of its messages is lost, both sides find out in their time, and
//! the machine is told that the connection is down.

mod asking;
mod using;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use leasehold_api::{Code, Problem};
use leasehold_client::machine::{
    Action, Answer, CallId, Ended, HeartbeatInterval, Key, LeaseWindow, LinkId, Machine,
    Moment as Own, News, Settings,
};
use leasehold_core::{
    Answer as Told, Claim, Command, FencingToken, LeaseId, Namespace, Owner, Refusal, RequestId,
    Scope, SecretTicket,
};
use leasehold_engine::{Call, CallError, Reply};
use leasehold_judge::history::Kept;

use super::Due;
use crate::judge::{self, Attempt, Belief, Verdict};
use crate::plan::{Node, Plan};
use crate::rng::{Purpose, Rng};
use crate::server::Wire;
use crate::time::{Micros, Moment};
use crate::world::World;
use words::{problem_of, ticket_text, word_for};

/// More than that it does not hold or want at a time.
const ITEMS_MAX: usize = 4;
/// The SDK's thread counts as a client of its own where actions are numbered.
pub(crate) const SDK_ACTIONS: usize = 1000;

/// One client's SDK.
#[derive(Debug)]
pub(crate) struct Sdk {
    machine: Machine<Item>,
    keys: BTreeSet<Key>,
    owner: Owner,
    link: Option<Link>,
    /// Requests on their way, by the number of their exchange.
    calls: BTreeMap<u64, Exchange>,
    wakes_at: Option<Moment>,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    id: LinkId,
    server: usize,
    is_up: bool,
}

#[derive(Debug)]
pub(super) struct Exchange {
    call: CallId,
    key: Key,
    link: LinkId,
    sent: Moment,
    what: Rc<Call>,
    /// What histories are told of: the grants that it is about.
    about: Vec<(Vec<Claim>, FencingToken, Duration)>,
}

/// What is asked for or held.
#[derive(Clone, Debug)]
struct Item {
    /// Nothing if it is a session.
    claims: Vec<Claim>,
    ttl: Duration,
    request_id: RequestId,
    session: Option<Key>,
    lease: Option<LeaseId>,
    fence: Option<FencingToken>,
    attempt: Attempt,
    is_granted: bool,
    /// By its own clock: when the last request was sent that has kept it.
    confirmed: Own,
}

impl Sdk {
    pub(crate) fn new(plan: &Plan, client: usize, life: u64, now: Own) -> Sdk {
        let part = |parts: u64| Duration::from_micros((plan.ttl / parts).max(1000));
        let mut rng = Rng::new(plan.seed, Purpose::Client, client as u64, life + (8 << 32));
        let intervals = [HeartbeatInterval::Third, HeartbeatInterval::Sixth];
        let settings = Settings {
            patience: part(1),
            answer_timeout: part(3),
            connect_timeout: part(8),
            backoff_first: part(400),
            backoff_max: part(20),
            heartbeat: *rng.pick(&intervals),
        };
        let mut servers: Vec<String> = (0..plan.servers).map(|s| format!("server-{s}")).collect();
        servers.rotate_left(client % plan.servers);
        let seed = Rng::new(plan.seed, Purpose::Client, client as u64, life + (7 << 32)).number();
        Sdk {
            machine: Machine::new(now, servers, settings, seed),
            keys: BTreeSet::new(),
            owner: crate::client::owner_of(client, "sdk"),
            link: None,
            calls: BTreeMap::new(),
            wakes_at: None,
        }
    }

    /// How much it has under way, and how much it keeps or wants.
    pub(crate) fn lens(&self) -> (usize, usize) {
        (self.calls.len(), self.keys.len())
    }

    pub(crate) fn unfinished(&self) -> Option<String> {
        let key = *self.keys.first()?;
        let item = self.machine.data(key)?;
        Some(format!("what its SDK wants: {:?}", item.claims))
    }

    pub(crate) fn wires(&self, client: usize, life: u64, server: usize) -> Vec<Wire> {
        let link = self.link.filter(|link| link.server == server);
        let on_it = |exchange: &&Exchange| link.is_some_and(|link| link.id == exchange.link);
        let numbers = self.calls.iter().filter(|(_, exchange)| on_it(exchange));
        numbers.map(|(&number, _)| Wire { client, life, number, tries: 0 }).collect()
    }

    pub(super) fn follows(&self, server: usize, lease: LeaseId) -> bool {
        self.link.is_some_and(|link| link.is_up && link.server == server)
            && self.holder_of(lease, None).is_some()
    }

    /// The process ends: what it had under way, and what it still wanted, which others may have stood behind.
    pub(super) fn unfinished_business(self) -> (Vec<Exchange>, Vec<Attempt>) {
        let items = self.keys.iter().filter_map(|key| self.machine.data(*key));
        let wanted = items.filter(|item| !item.is_granted && !item.claims.is_empty());
        let attempts = wanted.map(|item| item.attempt.clone()).collect();
        (self.calls.into_values().collect(), attempts)
    }

    /// The grants that a renewal or release is about. Of one that nobody was told of, histories know nothing.
    fn about(&self, call: &Call) -> Vec<(Vec<Claim>, FencingToken, Duration)> {
        let (lease, only) = match call {
            Call::Command(Command::Renew(renew)) => (renew.lease, None),
            Call::Command(Command::KeepAlive(keep)) => (keep.session, None),
            Call::Command(Command::Release(release)) => (release.lease, Some(release.fence)),
            Call::Command(Command::CloseSession(close)) => (close.session, None),
            Call::Command(_) | Call::Query(_) => return Vec::new(),
        };
        // What is being given back says nothing of its lease any more.
        let is_kept = |key: &&Key| only.is_some() || self.machine.window(**key).is_some();
        let items = self.keys.iter().filter(is_kept).filter_map(|key| self.machine.data(*key));
        let of_lease = items.filter(|item| item.lease == Some(lease) && item.is_granted);
        let grants = of_lease.filter_map(|item| Some((item.claims.clone(), item.fence?, item.ttl)));
        grants.filter(|(_, fence, _)| only.is_none_or(|only| only == *fence)).collect()
    }

    /// Who holds this lease here.
    fn holder_of(&self, lease: LeaseId, fence: Option<FencingToken>) -> Option<Key> {
        self.keys.iter().copied().find(|key| {
            self.machine.data(*key).is_some_and(|item| {
                item.lease == Some(lease) && (fence.is_none() || fence == item.fence)
            })
        })
    }
}

/// What the machine's clock shows when the client's shows this.
pub(crate) fn own(shows: Micros) -> Own {
    Own::from_nanos(shows.saturating_mul(1000))
}

fn micros_of(moment: Own) -> Micros {
    moment.as_nanos() / 1000
}

impl World {
    fn own(&self, client: usize) -> Own {
        own(self.clients[client].clock.at(self.now))
    }

    fn sdk(&mut self, client: usize) -> &mut Sdk {
        self.clients[client].sdk.as_mut().expect("a client that is up has an SDK")
    }

    /// Does what the machine wants done, and asks when to wake it.
    pub(crate) fn drive_sdk(&mut self, client: usize) -> Result<(), Verdict> {
        while let Some(action) = self.sdk(client).machine.next_action() {
            self.do_action(client, action)?;
        }
        let Some(wake) = self.sdk(client).machine.next_wake() else { return Ok(()) };
        let clock = self.clients[client].clock;
        let wake = clock.when(wake.as_nanos().div_ceil(1000)).max(self.now + 1);
        let sdk = self.sdk(client);
        if sdk.wakes_at.is_none_or(|wakes_at| wake < wakes_at) {
            sdk.wakes_at = Some(wake);
            self.client_due(client, Due::SdkWake, wake);
        }
        Ok(())
    }

    pub(super) fn sdk_wake(&mut self, client: usize) -> Result<(), Verdict> {
        let (now, own) = (self.now, self.own(client));
        let sdk = self.sdk(client);
        if sdk.wakes_at.is_some_and(|wakes_at| wakes_at > now) {
            return Ok(());
        }
        sdk.wakes_at = None;
        sdk.machine.wake(own);
        self.drive_sdk(client)
    }

    fn do_action(&mut self, client: usize, action: Action<Item>) -> Result<(), Verdict> {
        match action {
            Action::Connect { link, address } => self.connect(client, link, &address),
            Action::Send { call, key, request } => self.sdk_send(client, call, key, &request),
            Action::Cancel { call, .. } => self.sdk_cancel(client, call),
            Action::Tell { key, news } => return self.sdk_news(client, key, news),
            Action::End { key, data, how } => self.sdk_end(client, key, data, &how),
        }
        Ok(())
    }

    // Answers.

    /// True if the exchange was the SDK's.
    pub(super) fn sdk_told(
        &mut self,
        client: usize,
        number: u64,
        left: Duration,
        reply: &Result<Reply, CallError>,
    ) -> Result<bool, Verdict> {
        let Some(exchange) = self.sdk(client).calls.remove(&number) else { return Ok(false) };
        self.sdk_history(client, &exchange, reply);
        let own = self.own(client);
        let sdk = self.sdk(client);
        let answer = match reply {
            Ok(Reply::Answer(Told::Granted(grant))) => {
                if let Some(item) = sdk.machine.data_mut(exchange.key) {
                    item.lease = Some(grant.lease);
                    item.fence = Some(grant.fence);
                }
                Answer::Granted { ttl: grant.ttl.as_duration(), left }
            }
            Ok(Reply::Answer(Told::SessionOpened(opened))) => {
                if let Some(item) = sdk.machine.data_mut(exchange.key) {
                    item.lease = Some(opened.session);
                }
                Answer::Granted { ttl: opened.ttl.as_duration(), left }
            }
            Ok(Reply::Answer(Told::Renewed(renewed))) => {
                Answer::Renewed { ttl: renewed.ttl.as_duration(), left }
            }
            Ok(_) => Answer::Released,
            Err(error) => Answer::Refused(Box::new(problem_of(error))),
        };
        let kept = match answer {
            Answer::Granted { ttl, .. } | Answer::Renewed { ttl, .. } => Some(ttl),
            Answer::Released | Answer::Refused(_) => None,
        };
        sdk.machine.answer(own, exchange.call, answer);
        if let Some(ttl) = kept {
            self.judge_counting(client, &exchange, ttl)?;
        }
        self.drive_sdk(client)?;
        Ok(true)
    }

    /// A lease counts from before it was asked for, and at half of that its work is told to stop.
    fn judge_counting(
        &mut self,
        client: usize,
        exchange: &Exchange,
        ttl: Duration,
    ) -> Result<(), Verdict> {
        let (now, sent) = (self.now, own(self.clients[client].clock.at(exchange.sent)));
        let sdk = self.sdk(client);
        let Some(item) = sdk.machine.data_mut(exchange.key) else { return Ok(()) };
        item.confirmed = item.confirmed.max(sent);
        let (confirmed, of_session) = (item.confirmed, item.session.is_some());
        let Some(window) = sdk.machine.window(exchange.key) else { return Ok(()) };
        let is_right = window.jeopardy_at() <= confirmed.plus(ttl / 2)
            && window.lapses_at() <= confirmed.plus(ttl);
        if of_session || is_right {
            return Ok(());
        }
        let what = format!("client-{client} counts from {:?}, asked at {confirmed:?}", window);
        Err(Verdict::new(now, "a client counts from before it asked", what))
    }

    /// A server said that a request stands in the queue.
    pub(crate) fn sdk_queued(
        &mut self,
        client: usize,
        number: u64,
        ticket: SecretTicket,
    ) -> Result<(), Verdict> {
        let own = self.own(client);
        let sdk = self.sdk(client);
        if let Some(exchange) = sdk.calls.get(&number) {
            let call = exchange.call;
            sdk.machine.queued(own, call, ticket_text(ticket));
        }
        self.drive_sdk(client)
    }

    /// A server said, unasked, that a lease is gone.
    pub(crate) fn sdk_notice(
        &mut self,
        client: usize,
        lease: LeaseId,
        fence: Option<FencingToken>,
    ) -> Result<(), Verdict> {
        let own = self.own(client);
        let sdk = self.sdk(client);
        if let Some(key) = sdk.holder_of(lease, fence) {
            let problem = Problem::new(Code::LeaseLost, "the server said so");
            sdk.machine.lost(own, key, Box::new(problem));
        }
        self.drive_sdk(client)
    }

    // What its thread is told.

    fn sdk_news(&mut self, client: usize, key: Key, news: News) -> Result<(), Verdict> {
        match news {
            News::Granted(window) => self.sdk_granted(client, key, window),
            News::Renewed(window) => {
                let of_session = |item: &Item| item.session == Some(key);
                let sdk = self.clients[client].sdk.as_ref().expect("it is up");
                let under = sdk
                    .keys
                    .iter()
                    .copied()
                    .filter(|k| sdk.machine.data(*k).is_some_and(of_session));
                let keys: Vec<Key> = under.chain([key]).collect();
                let (stops, lost) =
                    (micros_of(window.jeopardy_at()), micros_of(window.lapses_at()));
                for key in keys {
                    self.judge.beliefs.go_on(client, key.to_u64(), stops, lost);
                }
                Ok(())
            }
            News::Jeopardy => {
                self.coverage.mark("belief ended by jeopardy");
                self.trace.line(self.now, Node::Client(client), format_args!("sdk: jeopardy"));
                // Nothing is renewed any more: the thread gives it up.
                let own = self.own(client);
                self.sdk(client).machine.release(own, key);
                self.drive_sdk(client)
            }
            News::GaveUp => Ok(()),
        }
    }

    fn sdk_granted(&mut self, client: usize, key: Key, window: LeaseWindow) -> Result<(), Verdict> {
        let now = self.now;
        let own = self.own(client);
        let Some(item) = self.sdk(client).machine.data_mut(key) else { return Ok(()) };
        item.is_granted = true;
        item.attempt.returned = Some(now);
        item.attempt.granted = item.fence;
        let item = item.clone();
        self.trace.line(
            now,
            Node::Client(client),
            format_args!("sdk: granted, {:?}", window.state(own)),
        );
        if !item.claims.is_empty() {
            let belief = Belief {
                namespace: Namespace::default(),
                lease: item.lease,
                fence: item.fence,
                claims: item.claims.clone(),
                stops_at: micros_of(window.jeopardy_at()),
                lost_at: micros_of(window.lapses_at()),
            };
            if !self.judge.is_overruled(item.fence) {
                self.judge.beliefs.begin(client, key.to_u64(), belief);
            }
            let shown = self.clocks();
            self.forget_what_is_given_back();
            self.judge.believed(now, client, key.to_u64(), &shown)?;
            self.judge.history.attempt(item.attempt.clone());
            if let (Some(_), Some(fence)) = (item.session, item.fence) {
                let when = (now + 1, Some(now + 2));
                self.judge.history.renewed(
                    client,
                    &item.claims,
                    when,
                    fence,
                    window.ttl(),
                    Kept::Unknown,
                );
            }
        }
        if self.clients[client].draining {
            self.sdk(client).machine.release(own, key);
            return self.drive_sdk(client);
        }
        let mut rng =
            Rng::new(self.plan.seed, Purpose::Client, client as u64, key.to_u64() ^ now.0);
        let held = self.now + rng.spread(self.plan.ttl / 20, self.plan.ttl * 2);
        self.client_due(client, Due::SdkRelease(key.to_u64()), held);
        Ok(())
    }

    /// What each client's clock shows.
    pub(crate) fn clocks(&self) -> Vec<Option<Micros>> {
        self.clients.iter().map(|client| client.shows(self.now)).collect()
    }

    /// Whoever gives a lock back believes in it no longer.
    pub(crate) fn forget_what_is_given_back(&mut self) {
        let clients = &self.clients;
        self.judge.beliefs.retain(|client, key| {
            if let Some(hold) = super::raw_client::hold_of_belief(key) {
                return clients[client].holds.contains_key(&hold);
            }
            let sdk = clients[client].sdk.as_ref();
            sdk.is_some_and(|sdk| sdk.machine.window(Key::from_u64(key)).is_some())
        });
    }

    fn sdk_end(&mut self, client: usize, key: Key, item: Item, how: &Ended) {
        self.sdk(client).keys.remove(&key);
        if self.judge.beliefs.end(client, key.to_u64()) && matches!(how, Ended::Lost(_)) {
            self.coverage.mark("belief ended by loss");
        }
        self.trace.line(
            self.now,
            Node::Client(client),
            format_args!("sdk: end of {:?}: {}", item.claims, word_for(how)),
        );
        if !item.is_granted && !item.claims.is_empty() {
            self.judge.history.attempt(item.attempt);
        }
    }

    // Histories.

    fn sdk_history(
        &mut self,
        client: usize,
        exchange: &Exchange,
        reply: &Result<Reply, CallError>,
    ) {
        let outcome = match reply {
            // It was released before, by a request that had no answer.
            Ok(Reply::Answer(Told::Released { replayed: true, .. })) => Kept::Unknown,
            Ok(_) => Kept::Done,
            Err(CallError::Refused(Refusal::LeaseLost(_) | Refusal::SessionNotFound(_))) => {
                Kept::Lost
            }
            Err(_) => Kept::Unknown,
        };
        let said = match reply {
            Ok(Reply::Answer(Told::Renewed(renewed))) => Some(renewed.ttl.as_duration()),
            Ok(_) | Err(_) => None,
        };
        let when = (exchange.sent, (outcome != Kept::Unknown).then_some(self.now));
        let renews =
            matches!(&*exchange.what, Call::Command(Command::Renew(_) | Command::KeepAlive(_)));
        let closes = matches!(&*exchange.what, Call::Command(Command::CloseSession(_)));
        // A renewal that was not applied is none, unless another copy of it is under way.
        let is_none = |error: &CallError| {
            !judge::is_unknown(error) && outcome != Kept::Lost && self.plan.network.double_ppm == 0
        };
        if renews && reply.as_ref().is_err_and(is_none) {
            return;
        }
        // That a lease goes on does not say that all is still there that stood under it.
        let named = match &*exchange.what {
            Call::Command(Command::Renew(renew)) => Some(&renew.scope),
            Call::Command(Command::Release(release)) => Some(&release.scope),
            Call::Command(_) | Call::Query(_) => None,
        };
        for (claims, fence, ttl) in &exchange.about {
            if let (true, Kept::Done) = (renews, outcome) {
                let (when, what) = ((exchange.sent, self.now), (*fence, said.unwrap_or(*ttl)));
                self.judge.renewed_with(client, claims, when, what, named);
                continue;
            }
            if let (false, Kept::Done, Some(named)) = (renews, outcome, named) {
                let when = (exchange.sent, self.now);
                self.judge.released_with(client, claims, when, *fence, named);
                continue;
            }
            let history = &mut self.judge.history;
            // Not all that stood under a session need have been there when it was closed.
            if closes {
                history.released(client, claims, (exchange.sent, None), *fence, Kept::Unknown);
            } else if renews {
                history.renewed(client, claims, when, *fence, said.unwrap_or(*ttl), outcome);
            } else {
                history.released(client, claims, when, *fence, outcome);
                if outcome == Kept::Unknown {
                    history.may_last(client, claims, when.0, *fence);
                }
            }
        }
    }

    pub(super) fn sdk_unanswered(&mut self, client: usize, exchange: &Exchange) {
        self.sdk_history(client, exchange, &Err(CallError::Stopped));
    }
}

/// The lock of a set by which all of it is released: a release of bytes of a file ends those bytes alone.
fn ends_all(claims: &[Claim]) -> &Scope {
    let mut scopes = claims.iter().map(|claim| &claim.scope);
    scopes.find(|scope| matches!(scope, Scope::Key(_))).unwrap_or(&claims[0].scope)
}

fn inode_of(claim: &Claim) -> Option<u64> {
    match claim.scope {
        Scope::Range { inode, .. } => Some(inode),
        Scope::Key(_) => None,
    }
}
