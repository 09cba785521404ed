//! Calls, answers and changes in a few words, for the trace.

use leasehold_core::{Acquire, Answer, Claim, Command, LeaseId, Transition, Under, Wait};
use leasehold_engine::{Call, CallError, Query, Reply};

use crate::coverage;

/// Lease ids are secrets elsewhere. Here they are nobody's, and one has to tell them apart.
fn lease(id: LeaseId) -> String {
    format!("lease-{:04x}", id.as_u128() & 0xffff)
}

fn claims(claims: &[Claim]) -> String {
    let shown: Vec<String> =
        claims.iter().map(|claim| format!("{} {}", claim.scope, claim.mode)).collect();
    shown.join(" + ")
}

pub fn call(call: &Call) -> String {
    match call {
        Call::Command(command) => shown_command(command),
        Call::Query(Query::Get { scope, .. }) => format!("get {scope}"),
        Call::Query(Query::Test { claim, .. }) => {
            format!("test {}", claims(std::slice::from_ref(claim)))
        }
        Call::Query(Query::Check { scope, fence, .. }) => format!("check {scope} fence {fence}"),
        Call::Query(_) => coverage::name_of(call).into(),
    }
}

fn shown_command(command: &Command) -> String {
    match command {
        Command::Acquire(acquire) => shown_acquire(acquire),
        Command::Renew(renew) => {
            let ttl = renew.ttl.map(|ttl| format!(" ttl {ttl:?}")).unwrap_or_default();
            format!("renew {} {} fence {}{ttl}", renew.scope, lease(renew.lease), renew.fence)
        }
        Command::Release(release) => {
            format!("release {} {} fence {}", release.scope, lease(release.lease), release.fence)
        }
        Command::Unlock(unlock) => {
            let range = unlock.range;
            format!(
                "unlock inode {} {}..={} {}",
                unlock.inode,
                range.start(),
                range.last(),
                lease(unlock.session)
            )
        }
        Command::OpenSession(open) => {
            format!("open session {} ttl {:?} {:?}", lease(open.id), open.ttl, open.on_disconnect)
        }
        Command::KeepAlive(keep) => {
            let ttl = keep.ttl.map(|ttl| format!(" ttl {ttl:?}")).unwrap_or_default();
            format!("keep alive {}{ttl}", lease(keep.session))
        }
        Command::CloseSession(close) => format!("close {}", lease(close.session)),
        Command::Attach(attach) => format!("attach {}", lease(attach.session)),
        Command::Disconnect(gone) => format!("disconnect {}", lease(gone.session)),
        Command::AcceptFence(accept) => {
            format!("accept fence {} at {}", accept.fence, accept.register)
        }
        Command::DeleteFence(delete) => format!("delete {}", delete.register),
        Command::Break(broken) => format!("break {}", broken.scope),
        Command::BreakSession(broken) => format!("break session {}", broken.number),
        Command::RemoveFile(remove) => format!("remove file {}", remove.inode),
        Command::ByOwner(_)
        | Command::Cancel(_)
        | Command::Withdraw(_)
        | Command::BeginEpoch(_)
        | Command::Jump(_)
        | Command::Suspend
        | Command::Resume
        | Command::Tick => format!("{command:?}"),
    }
}

fn shown_acquire(acquire: &Acquire) -> String {
    let under = match acquire.under {
        Under::NewLease { id, ttl } => format!("new {} ttl {ttl:?}", lease(id)),
        Under::Session(id) => format!("under {}", lease(id)),
    };
    let wait = match acquire.wait {
        Wait::Never => String::new(),
        Wait::UpTo(wait) => format!(", waits {wait:?}"),
        Wait::Forever => ", waits".into(),
    };
    let id = acquire.request_id.as_ref().map(|id| format!(", id {id}")).unwrap_or_default();
    let ticket =
        acquire.ticket.map(|ticket| format!(", ticket {}", ticket.ticket.0)).unwrap_or_default();
    let reclaim = if acquire.reclaim { ", reclaims" } else { "" };
    let window = if acquire.reclaim_window.is_zero() {
        String::new()
    } else {
        format!(", window {:?}", acquire.reclaim_window)
    };
    format!(
        "acquire {} by {} {under}{wait}{id}{ticket}{reclaim}{window}",
        claims(&acquire.claims),
        acquire.owner
    )
}

pub fn reply(call: &Call, reply: &Result<Reply, CallError>) -> String {
    match reply {
        Ok(Reply::Answer(Answer::Granted(grant))) => {
            let again = if grant.replayed { " again" } else { "" };
            format!(
                "granted{again}: fence {} {} until {}",
                grant.fence,
                lease(grant.lease),
                grant.deadline
            )
        }
        Ok(Reply::Answer(answer)) => format!("{answer:?}"),
        Ok(Reply::View(_)) => format!("{}: seen", coverage::name_of(call)),
        Err(error) => format!("{}: {error}", coverage::word_for(error)),
    }
}

pub fn transition(transition: &Transition) -> String {
    match transition {
        Transition::Granted(granted) => format!(
            "granted {} to {} {} fence {}",
            claims(&granted.claims),
            granted.owner,
            lease(granted.lease),
            granted.fence
        ),
        Transition::LeaseEnded { lease: id, ending, .. } => format!("{} {ending}", lease(*id)),
        Transition::LeaseEnding { lease: id, ending, .. } => {
            format!("{} is over and ends in turns, {ending}", lease(*id))
        }
        Transition::LeaseLapsed { lease: id, ending, .. } => {
            format!("{} lapsed, {ending}", lease(*id))
        }
        Transition::GrantEnded { lease: id, fence, ending, .. } => {
            format!("fence {fence} of {} {ending}", lease(*id))
        }
        Transition::KeyEnded { lease: id, fence, key, ending, .. } => {
            format!("{} with fence {fence} of {} {ending}", key.as_str(), lease(*id))
        }
        Transition::RangeEnded { lease: id, inode, range, ending, .. } => {
            format!("inode {inode} {}..={} of {} {ending}", range.start(), range.last(), lease(*id))
        }
        Transition::SessionOpened(opened) => format!("session {} opened", lease(opened.lease)),
        Transition::TtlChanged { lease: id, ttl, .. } => format!("{} ttl {ttl}", lease(*id)),
        Transition::FenceAccepted { register, fence, .. } => format!("{register} at {fence}"),
        Transition::FenceDeleted { register, .. } => format!("{register} deleted"),
        Transition::EpochBegan { epoch } => format!("epoch {} began", epoch.0),
        Transition::Jumped { epoch, fence } => format!("jumped to epoch {} fence {fence}", epoch.0),
    }
}
