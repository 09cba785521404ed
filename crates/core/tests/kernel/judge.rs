//! Tells what the kernel decides differently on purpose, and finds everything else that differs.

use std::collections::{BTreeMap, BTreeSet};

use leasehold_core::{ByteRange, Mode, Scope, Ticket, WaitEdge};

use super::fleet::Fleet;
use super::locks::KernelLocks;
use super::mirror::{Mirror, Said, Verdict, Wanted};
use super::step::{Act, Step};
use super::wire::{Errno, Kind, Order, Reply};

/// Why a step is not taken: the contract and the kernel part ways there, or the kernel leaves it to chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    /// A new request that nobody but a waiter is in the way of: the kernel grants it, we are first come, first served.
    PassesAWaiter,
    /// After the step a waiter would be blocked by nobody but an earlier waiter: the kernel would let it go first.
    WaiterBehindAWaiter,
    /// A deadlock that the kernel cannot see: its circle goes through a request that waits in front of another.
    DeadlockThroughAWaiter,
    /// Two waiters that exclude each other would wake up at once; the kernel takes whichever runs first.
    Race,
}

pub(crate) fn difference(
    before: &Mirror,
    after: &Mirror,
    said: &Said,
    step: Step,
    kernel: &Fleet,
) -> Option<Difference> {
    let mut bare = before.without_waiters();
    let unhindered = bare.apply(step).verdict;
    if let Act::Order(Order::Lock { kind, span, .. }) = step.act
        && unhindered == Verdict::Done
        && said.verdict != Verdict::Done
        && is_behind_a_waiter(before, step.process, span.bytes(), kind.mode(), None)
    {
        return Some(Difference::PassesAWaiter);
    }
    if let Verdict::Deadlock(cycle) = &said.verdict {
        let wrong = false_cycle(before, step, cycle);
        assert_eq!(wrong, None, "a deadlock is a circle: {step}, {cycle:?}");
        if kernel_walk(before, step) == Walk::Ends {
            return Some(Difference::DeadlockThroughAWaiter);
        }
    }
    let held = after.pieces();
    if after.waiting().iter().any(|(&who, wanted)| {
        let Wanted { range, mode, ticket } = *wanted;
        is_free(who, wanted, &held) && is_behind_a_waiter(after, who, range, mode, Some(ticket))
    }) {
        return Some(Difference::WaiterBehindAWaiter);
    }
    is_race(before, after, &bare.pieces(), said, kernel).then_some(Difference::Race)
}

type Held = (usize, ByteRange, Mode);

fn is_free(who: usize, wanted: &Wanted, held: &[Held]) -> bool {
    !held.iter().any(|&(holder, range, mode)| {
        holder != who && range.overlaps(wanted.range) && mode.conflicts_with(wanted.mode)
    })
}

/// Whether an earlier waiter is in the way, as first come, first served has it. Those who hold all they ask for already
/// do not queue behind others.
fn is_behind_a_waiter(
    mirror: &Mirror,
    who: usize,
    range: ByteRange,
    mode: Mode,
    ticket: Option<Ticket>,
) -> bool {
    let mut missing = vec![range];
    for (own, _) in mirror.pieces_of(who) {
        let rests = missing.into_iter().map(|part| part.without(own));
        missing = rests.flat_map(|(before, after)| [before, after]).flatten().collect();
    }
    let wanted = Wanted { range, mode, ticket: ticket.unwrap_or(Ticket(u64::MAX)) };
    let mut others = mirror.waiting().into_iter().filter(|(other, _)| *other != who);
    let ahead = |other: &Wanted| other.ticket < wanted.ticket && exclude(other, &wanted);
    !missing.is_empty() && others.any(|(_, other)| ahead(&other))
}

fn exclude(one: &Wanted, other: &Wanted) -> bool {
    one.range.overlaps(other.range) && one.mode.conflicts_with(other.mode)
}

/// Whether the kernel might wake another waiter than the table does. One that stands behind another goes after it.
fn is_race(before: &Mirror, after: &Mirror, held: &[Held], said: &Said, kernel: &Fleet) -> bool {
    let all = before.waiting();
    let left: BTreeSet<usize> = after.waiting().into_keys().collect();
    // A wake-up that turns a write lock of its own into a read lock can free still others.
    let frees = said.woken.iter().any(|woken| {
        let own = held.iter().filter(|(holder, ..)| holder == woken);
        let mut written = own.filter(|(.., mode)| *mode == Mode::Exclusive);
        let wanted = &all[woken];
        wanted.mode == Mode::Shared && written.any(|(_, range, _)| range.overlaps(wanted.range))
    });
    let others = all.iter().filter(|(who, _)| left.contains(who));
    let mut candidates = others.filter(|(who, wanted)| frees || is_free(**who, wanted, held));
    candidates.any(|(&other, wanted)| {
        let mut rivals = said.woken.iter().filter(|&woken| exclude(&all[woken], wanted));
        rivals.any(|&woken| !kernel.locks.is_behind(kernel.pid(other), kernel.pid(woken)))
    })
}

/// How the answers of the kernel and the table compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    Same,
    /// The table sees a deadlock that the kernel has not found.
    DeadlockSeenByUsAlone,
    Differ(String),
}

pub(crate) fn compare_answers(
    before: &Mirror,
    said: &Said,
    step: Step,
    replies: &BTreeMap<usize, Reply>,
    kernel: &Fleet,
) -> Compared {
    let mut woken: Vec<usize> = replies.keys().copied().collect();
    woken.retain(|&process| process != step.process);
    if woken != said.woken {
        return Compared::Differ(format!("kernel wakes {woken:?}, table wakes {:?}", said.woken));
    }
    if let Some(process) = woken.iter().find(|who| replies[who] != Reply::Done) {
        return Compared::Differ(format!("process {process} wakes to {}", replies[process]));
    }
    let reply = replies.get(&step.process).copied();
    if let (Verdict::Deadlock(_), None) = (&said.verdict, reply)
        && kernel_walk(before, step) == Walk::Depends
    {
        return Compared::DeadlockSeenByUsAlone;
    }
    if is_same(before, said, step, reply, kernel) {
        Compared::Same
    } else {
        let kernel = reply.map_or("waits".to_string(), |reply| reply.to_string());
        Compared::Differ(format!("kernel: {kernel}, table: {:?}", said.verdict))
    }
}

fn is_same(before: &Mirror, said: &Said, step: Step, reply: Option<Reply>, kernel: &Fleet) -> bool {
    match (&said.verdict, reply) {
        (Verdict::Done, Some(Reply::Done)) => true,
        (Verdict::Conflict, Some(Reply::Failed(Errno(libc::EAGAIN | libc::EACCES)))) => true,
        (Verdict::Waits, None) => true,
        (Verdict::Deadlock(_), Some(Reply::Failed(Errno(libc::EDEADLK)))) => true,
        (Verdict::Tested { free: true }, Some(Reply::Free)) => true,
        (Verdict::Tested { free: false }, Some(Reply::Conflict { pid, kind, span })) => {
            let Act::Order(Order::Test { kind: asked, span: over }) = step.act else {
                return false;
            };
            let holder = (0..kernel.len()).find(|&process| kernel.pid(process) == pid);
            let known = before.conflicting(step.process, asked, over.bytes());
            holder.is_some_and(|holder| known.contains(&(holder, span.bytes(), kind)))
        }
        // A new process has said nothing yet; an interrupted one says so.
        (Verdict::Gone, None) => matches!(step.act, Act::Exit | Act::Kill),
        (Verdict::Gone, Some(Reply::Failed(Errno(libc::EINTR)))) => step.act == Act::Interrupt,
        _ => false,
    }
}

/// Where the kernel gets to that goes from a request to one of those who hold what it wants, to what that one waits
/// for, to one of those who hold that, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    /// Back to the request: a deadlock.
    Returns,
    /// To somebody who waits for nothing.
    Ends,
    /// It depends on which of several holders it goes to.
    Depends,
}

fn kernel_walk(before: &Mirror, step: Step) -> Walk {
    const STEPS_MAX: usize = 10;
    let Act::Order(Order::Lock { kind, span, .. }) = step.act else {
        return Walk::Ends;
    };
    let waiting = before.waiting();
    let (mut at, mut kind, mut range) = (step.process, kind, span.bytes());
    for _ in 0..=STEPS_MAX {
        let holders = before.conflicting(at, kind, range);
        let holders: BTreeSet<usize> = holders.into_iter().map(|(holder, ..)| holder).collect();
        match (holders.len(), holders.first()) {
            (1, Some(&holder)) if holder == step.process => return Walk::Returns,
            (1, Some(&holder)) => at = holder,
            _ => return Walk::Depends,
        }
        let Some(wanted) = waiting.get(&at) else {
            return Walk::Ends;
        };
        (kind, range) = (Kind::of(wanted.mode), wanted.range);
    }
    Walk::Depends
}

/// What is wrong with a circle that the table reports; nothing if each waits for the next indeed.
fn false_cycle(before: &Mirror, step: Step, cycle: &[WaitEdge]) -> Option<String> {
    let Act::Order(Order::Lock { kind, span, .. }) = step.act else {
        return Some("nothing was asked".into());
    };
    let waiting = before.waiting();
    let asked = (span.bytes(), kind.mode());
    let mut next = step.process;
    for edge in cycle {
        let (waiter, blocker) = (before.process_of(&edge.waiter), before.process_of(&edge.blocker));
        let wanted = if waiter == step.process {
            Some(asked)
        } else {
            waiting.get(&waiter).map(|wanted| (wanted.range, wanted.mode))
        };
        let Some((range, mode)) = wanted.filter(|_| waiter == next) else {
            return Some(format!("{edge:?} does not follow"));
        };
        let at = Scope::Range { inode: before.inode(), range };
        let holds = before.conflicting(waiter, Kind::of(mode), range);
        let holds = holds.iter().any(|&(holder, ..)| holder == blocker);
        let ahead = waiting.get(&blocker).is_some_and(|other| {
            let earlier = waiting.get(&waiter).is_none_or(|own| other.ticket < own.ticket);
            earlier && other.range.overlaps(range) && other.mode.conflicts_with(mode)
        });
        if edge.scope != at || !(holds || ahead) {
            return Some(format!("{edge:?} is not so"));
        }
        next = blocker;
    }
    let closed = !cycle.is_empty() && next == step.process;
    (!closed).then(|| "it does not close".into())
}

/// Where the table and the kernel's own list differ: who holds which bytes, who waits for which, who has a flock.
pub(crate) fn compare_tables(mirror: &Mirror, kernel: &Fleet) -> Option<String> {
    let pid = |process| kernel.pid(process);
    let held = mirror.pieces().into_iter();
    let pieces: BTreeSet<_> =
        held.map(|(who, range, mode)| (pid(who), range, Kind::of(mode))).collect();
    let waiting: BTreeMap<_, _> = mirror
        .waiting()
        .into_iter()
        .map(|(who, wanted)| (pid(who), (wanted.range, Kind::of(wanted.mode))))
        .collect();
    let flocks: BTreeSet<_> =
        mirror.flocks().into_iter().map(|(who, kind)| (pid(who), kind)).collect();
    let KernelLocks { pieces: held, flocks: flocked, waiting: blocked } = &kernel.locks;
    let blocked: BTreeMap<_, _> =
        blocked.iter().map(|(&pid, w)| (pid, (w.range, w.kind))).collect();
    if pieces != *held {
        Some(format!("kernel holds {held:?}\n table holds {pieces:?}"))
    } else if waiting != blocked {
        Some(format!("kernel: waiting {blocked:?}\n table: waiting {waiting:?}"))
    } else if flocks != *flocked {
        Some(format!("kernel: flocks {flocked:?}\n table: flocks {flocks:?}"))
    } else {
        None
    }
}
