//! A journal that takes its time, fails, and does not always say whether it has written.
//!
//! What it keeps is a [`MemoryJournal`], so that epochs, beats, numbers and snapshots mean what the port says. Around it
//! are the delays and failures that a disk or a database across a network has. A call takes effect when it *arrives*; that
//! is also when it is durable. Its answer comes later, or not at all.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use leasehold_core::{Epoch, planted};
use leasehold_engine::{Request, Response};
use leasehold_store::{
    Batch, Campaign, Error, Journal, JournalCaps, Leader, Loaded, MemoryJournal, Position, Seq,
    conformance::{Corruption, FaultyJournal, InjectedFault, JournalEffect},
};

use crate::plan::Store as Profile;
use crate::rng::{Purpose, Rng};
use crate::time::{Micros, Moment};

/// How long a server waits for an answer before it takes it for lost.
const ANSWER_MAX: Micros = 1_000_000;

/// The store, and all that is on its way to it.
#[derive(Debug)]
pub struct Store {
    seed: u64,
    profile: Profile,
    journal: MemoryJournal,
    calls: BTreeMap<u64, Call>,
    last_call: u64,
    trouble: Trouble,
    calm: bool,
    /// What was written, for the judges, until they take it.
    written: Vec<Batch>,
    /// What was committed as a snapshot, for them too.
    snapshots: Vec<(Seq, Vec<Loaded>)>,
}

/// What is wrong with it at present; faults may overlap.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trouble {
    pub down: u32,
    pub full: u32,
    pub slow: u32,
    pub mute: u32,
}

/// A call on its way.
#[derive(Debug)]
pub struct Call {
    pub server: usize,
    /// Which life of the server made it: an answer to an earlier life is not heard.
    pub life: u64,
    /// The server's own number for it.
    pub id: u64,
    request: Option<Request>,
    fate: Fate,
    response: Option<Response>,
    /// The server has heard that no answer came, or will hear nothing.
    is_given_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Fine,
    /// Fails before anything is done.
    Unavailable,
    /// Never arrives, and nobody is told so.
    LostBefore,
    /// Takes effect, and the answer is lost.
    LostAfter,
    /// Takes effect when nobody waits for it any more, unless it was barred: given up long since, or come a second time.
    Late,
}

/// When a call arrives and when its answer is there.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub call: u64,
    pub arrives: Moment,
    pub answered: Moment,
    /// The same call comes a second time, under a number of its own.
    pub again: Option<(u64, Moment)>,
}

/// What a server that died left on its way to a disk of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    Nothing,
    Written,
    Torn,
}

/// Links between a server and the store, as they are now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Links {
    pub to_store_cut: bool,
    pub from_store_cut: bool,
}

impl Store {
    pub fn new(seed: u64, profile: Profile) -> Store {
        let journal = if profile.shared { MemoryJournal::shared() } else { MemoryJournal::new() };
        Store {
            seed,
            profile,
            journal,
            calls: BTreeMap::new(),
            last_call: 0,
            trouble: Trouble::default(),
            calm: false,
            written: Vec::new(),
            snapshots: Vec::new(),
        }
    }

    pub fn caps(&self) -> JournalCaps {
        let record_bytes_max = 1 << 16;
        let lasting = !self.profile.forgets;
        JournalCaps { name: "simulated", lasting, record_bytes_max, ..self.journal.caps() }
    }

    pub fn trouble(&mut self) -> &mut Trouble {
        &mut self.trouble
    }

    pub fn calm_down(&mut self) {
        self.calm = true;
        self.trouble = Trouble::default();
    }

    /// What was written since the last time.
    pub fn take_written(&mut self) -> Vec<Batch> {
        std::mem::take(&mut self.written)
    }

    pub fn take_snapshots(&mut self) -> Vec<(Seq, Vec<Loaded>)> {
        std::mem::take(&mut self.snapshots)
    }

    /// A server makes a call.
    pub fn call(
        &mut self,
        now: Moment,
        (server, life, id): (usize, u64, u64),
        request: Request,
        links: Links,
    ) -> Schedule {
        self.last_call += 1;
        let number = self.last_call;
        let mut rng = Rng::new(self.seed, Purpose::Store, number, 0);
        let fate = self.fate(&mut rng, &request, links);
        let mut arrives = now + self.delay(&mut rng);
        let answered = match fate {
            Fate::Fine | Fate::Unavailable => arrives + self.delay(&mut rng),
            Fate::LostBefore | Fate::LostAfter | Fate::Late => arrives + ANSWER_MAX,
        };
        if fate == Fate::Late {
            arrives = answered + rng.between(1, ANSWER_MAX);
        }
        let doubled = matches!(request, Request::Append { .. })
            && fate == Fate::Fine
            && !self.calm
            && rng.ppm(self.profile.double_ppm);
        let again = doubled.then(|| {
            let (request, fate) = (Some(request.clone()), Fate::Late);
            let again = self.last_call + 1;
            let call = Call { server, life, id, request, fate, response: None, is_given_up: true };
            self.last_call = again;
            self.calls.insert(again, call);
            (again, arrives + self.delay(&mut rng))
        });
        let (request, is_given_up) = (Some(request), false);
        let call = Call { server, life, id, request, fate, response: None, is_given_up };
        self.calls.insert(number, call);
        Schedule { call: number, arrives, answered, again }
    }

    fn fate(&self, rng: &mut Rng, request: &Request, links: Links) -> Fate {
        let profile = &self.profile;
        let rolls = (rng.ppm(profile.unavailable_ppm), rng.ppm(profile.unknown_ppm));
        let after = rng.percent(50);
        if links.to_store_cut {
            return Fate::LostBefore;
        }
        if links.from_store_cut {
            return Fate::LostAfter;
        }
        let trouble = &self.trouble;
        let writes = matches!(request, Request::Append { .. } | Request::PutChunk(_));
        if self.calm {
            Fate::Fine
        } else if trouble.down > 0
            || (trouble.full > 0 && writes)
            || self.may_fail(request, rolls.0)
        {
            Fate::Unavailable
        } else if trouble.mute > 0 || self.may_fail(request, rolls.1) {
            let is_append = matches!(request, Request::Append { .. });
            match (after, rng.percent(50)) {
                (true, true) if is_append && profile.shared => Fate::Late,
                (true, _) => Fate::LostAfter,
                (false, _) => Fate::LostBefore,
            }
        } else {
            Fate::Fine
        }
    }

    /// A disk of one's own either opens or does not: then a server gives up, and is started again.
    fn may_fail(&self, request: &Request, rolled: bool) -> bool {
        let at_start = matches!(
            request,
            Request::Leader | Request::Campaign { .. } | Request::Load { .. } | Request::Confirm(_)
        );
        rolled && (self.profile.shared || !at_start)
    }

    fn delay(&self, rng: &mut Rng) -> Micros {
        let profile = &self.profile;
        let usual = rng.between(profile.delay / 2, profile.delay);
        let is_slow = rng.ppm(profile.slow_ppm) || self.trouble.slow > 0;
        if is_slow && !self.calm { usual + rng.between(0, profile.slow) } else { usual }
    }

    /// A call arrives: it takes effect now, or never. Says what was asked, for the trace.
    pub fn arrive(&mut self, number: u64) -> Option<(usize, &'static str)> {
        let call = self.calls.get_mut(&number)?;
        let request = call.request.take()?;
        let (server, fate, name) = (call.server, call.fate, name_of(&request));
        let fault = match fate {
            Fate::Late if call.is_given_up => {
                self.calls.remove(&number);
                None
            }
            Fate::Fine => None,
            Fate::Unavailable => Some(InjectedFault::Unavailable),
            Fate::LostBefore => Some(InjectedFault::LostRequest),
            // A server that stands still has not heard yet that no answer came.
            Fate::LostAfter | Fate::Late => Some(InjectedFault::LostAnswer),
        };
        let response = self.carry_out(server, request, fault);
        if let Some(call) = self.calls.get_mut(&number) {
            call.response = Some(response);
        }
        Some((server, name))
    }

    /// The answer gets to the server.
    pub fn answer(&mut self, number: u64) -> Option<(Call, Response)> {
        // One that is still on its way stays there.
        if let Some(late) = self.calls.get_mut(&number)
            && let Some(request) = &late.request
        {
            late.is_given_up = true;
            let response = unanswered(&self.journal, request.clone());
            let Call { server, life, id, fate, is_given_up, .. } = *late;
            let call = Call { server, life, id, request: None, fate, response: None, is_given_up };
            return Some((call, response));
        }
        let mut call = self.calls.remove(&number)?;
        let response = call.response.take()?;
        Some((call, response))
    }

    fn carry_out(
        &mut self,
        server: usize,
        request: Request,
        fault: Option<InjectedFault>,
    ) -> Response {
        let journal = FaultyJournal::new(Arc::new(self.journal.clone()));
        journal.fail_next(fault);
        let response = done(request.put_to(&journal));
        for effect in journal.take_effects() {
            match effect {
                JournalEffect::Appended(batch) => self.written.push(batch),
                JournalEffect::ReadBack { epoch, seq } => self.bar(server, epoch, seq),
                JournalEffect::SnapshotCommitted { epoch, as_of } => {
                    let items = loaded(&self.journal, epoch);
                    self.snapshots.extend(items.map(|items| (as_of, items)));
                }
            }
        }
        response
    }

    /// Once a server has asked whether a record is there, an append of it that is still on its way comes to nothing.
    fn bar(&mut self, server: usize, epoch: Epoch, seq: Seq) {
        if planted!("late-append-after-read-back") {
            return;
        }
        for call in self.calls.values_mut().filter(|call| call.server == server) {
            let is_barred = match &call.request {
                Some(Request::Append { batch, .. }) => (batch.epoch(), batch.seq()) == (epoch, seq),
                Some(_) | None => false,
            };
            if is_barred {
                call.fate = Fate::LostBefore;
            }
        }
    }

    /// A server is gone. What it had on its way to a shared store still arrives; a disk of its own has what the moment of
    /// the crash left on it.
    pub fn crashed(&mut self, server: usize, remains: Remains) -> Option<Seq> {
        if self.profile.shared {
            return None;
        }
        let own: Vec<u64> = self
            .calls
            .iter()
            .filter(|(_, call)| call.server == server)
            .map(|(&number, _)| number)
            .collect();
        if self.profile.forgets {
            self.calls.retain(|_, call| call.server != server);
            self.journal = MemoryJournal::new();
            return None;
        }
        let mut torn = None;
        for number in own {
            let Some(Call { request: Some(request), .. }) = self.calls.remove(&number) else {
                continue;
            };
            let Request::Append { batch, .. } = &request else { continue };
            let seq = batch.seq();
            match remains {
                Remains::Nothing => {}
                Remains::Written => drop(self.carry_out(server, request, None)),
                Remains::Torn => {
                    if done(self.journal.append(batch.clone())).is_ok() {
                        self.journal.corrupt(Corruption::CutRecord(seq));
                        torn = Some(seq);
                    }
                }
            }
        }
        torn
    }

    /// Who leads, by the word of the store.
    pub fn leader(&self) -> Option<Leader> {
        done(self.journal.leader()).ok().flatten()
    }

    pub fn calls_len(&self) -> usize {
        self.calls.len()
    }
}

/// What a server hears when no answer comes.
fn unanswered(journal: &MemoryJournal, request: Request) -> Response {
    let journal = FaultyJournal::new(Arc::new(journal.clone()));
    journal.fail_next(Some(InjectedFault::LostRequest));
    done(request.put_to(&journal))
}

/// All that a leader would load.
fn loaded(journal: &MemoryJournal, epoch: Epoch) -> Option<Vec<Loaded>> {
    let (mut items, mut from) = (Vec::new(), Some(Position::Start));
    while let Some(position) = from {
        let page = done(journal.load(epoch, position)).ok()?;
        items.extend(page.items);
        from = page.next;
    }
    Some(items)
}

/// The memory store answers at once.
fn done<T>(mut answer: impl Future<Output = T> + Unpin) -> T {
    match Pin::new(&mut answer).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("the memory store never waits"),
    }
}

pub fn name_of(request: &Request) -> &'static str {
    match request {
        Request::Leader => "leader?",
        Request::Campaign { .. } => "campaign",
        Request::Confirm(_) => "confirm",
        Request::Resign(_) => "resign",
        Request::Load { .. } => "load",
        Request::Append { .. } => "append",
        Request::ReadBack { .. } => "read back",
        Request::PutChunk(_) => "put chunk",
        Request::CommitSnapshot { .. } => "commit snapshot",
        Request::Prune(_) => "prune",
    }
}

/// What the store said, in a few words.
pub fn shown(response: &Response) -> String {
    fn word<T>(result: &Result<T, Error>) -> String {
        match result {
            Ok(_) => "ok".into(),
            Err(error) => error.to_string(),
        }
    }
    match response {
        Response::Leader(Ok(leader)) => {
            let name =
                |leader: &Leader| format!("{} in epoch {}", leader.name, leader.beat.epoch.0);
            format!("leader: {}", leader.as_ref().map_or("nobody".into(), name))
        }
        Response::Campaigned(Ok(Campaign::Won(won))) => format!("won epoch {}", won.epoch.0),
        Response::Campaigned(Ok(Campaign::Lost(to))) => format!("lost to {}", to.name),
        Response::Leader(result) => format!("leader: {}", word(result)),
        Response::Campaigned(result) => format!("campaign: {}", word(result)),
        Response::Confirmed(result) => format!("confirm: {}", word(result)),
        Response::Resigned(result) => format!("resign: {}", word(result)),
        Response::Loaded(result) => format!("load: {}", word(result)),
        Response::Appended(result) => format!("append: {}", word(result)),
        Response::ReadBack(Ok(found)) => {
            format!("read back: {}", if found.is_some() { "there" } else { "not there" })
        }
        Response::ReadBack(result) => format!("read back: {}", word(result)),
        Response::ChunkPut(result) => format!("chunk: {}", word(result)),
        Response::SnapshotCommitted(result) => format!("snapshot: {}", word(result)),
        Response::Pruned(result) => format!("prune: {}", word(result)),
    }
}
