//! Commands and answers as lines that a person can read.

use leasehold_core::*;

pub(crate) fn line(now: Timestamp, command: &Command) -> String {
    format!("{now} {}", said(command))
}

fn said(command: &Command) -> String {
    match command {
        Command::Acquire(ask) => acquire(ask),
        Command::Renew(ask) => {
            let Renew { namespace, scope, owner, lease, fence, ttl } = ask;
            let lease = id(*lease);
            format!("renew {namespace} {scope} {owner} {lease} fence={fence} ttl={ttl:?}")
        }
        Command::Release(ask) => {
            let Release { namespace, scope, owner, lease, fence } = ask;
            format!("release {namespace} {scope} {owner} {} fence={fence}", id(*lease))
        }
        Command::Unlock(ask) => {
            let Unlock { namespace, session, owner, inode, range } = ask;
            format!("unlock {namespace} inode:{inode}@{range} {owner} {}", id(*session))
        }
        Command::Cancel(ask) => format!("cancel {} call={}", ask.namespace, ask.call.0),
        Command::OpenSession(ask) => format!(
            "open-session {} {} {} ttl={:?} {} {:?} {:?}",
            ask.namespace,
            id(ask.id),
            ask.owner,
            ask.ttl,
            ask.adapter,
            ask.on_disconnect,
            ask.request_id
        ),
        Command::KeepAlive(ask) => {
            format!("keep-alive {} {} ttl={:?}", ask.namespace, id(ask.session), ask.ttl)
        }
        Command::CloseSession(ask) => {
            format!("close-session {} {}", ask.namespace, id(ask.session))
        }
        Command::Attach(ask) => format!("attach {} {}", ask.namespace, id(ask.session)),
        Command::Disconnect(ask) => format!("disconnect {} {}", ask.namespace, id(ask.session)),
        Command::AcceptFence(ask) => {
            format!("accept-fence {} {} {}", ask.namespace, ask.register, ask.fence)
        }
        Command::DeleteFence(ask) => format!("delete-fence {} {}", ask.namespace, ask.register),
        Command::Break(ask) => {
            format!("break {} {} fence={:?}", ask.namespace, ask.scope, ask.fence)
        }
        Command::BreakSession(ask) => format!("break-session {} {}", ask.namespace, ask.number),
        Command::RemoveFile(ask) => format!("remove-file {} inode:{}", ask.namespace, ask.inode),
        Command::Withdraw(ask) => {
            format!("withdraw {} {} fence={}", ask.namespace, id(ask.lease), ask.fence)
        }
        Command::ByOwner(_)
        | Command::BeginEpoch(_)
        | Command::Jump(_)
        | Command::Suspend
        | Command::Resume
        | Command::Tick => format!("{command:?}"),
    }
}

fn acquire(ask: &Acquire) -> String {
    let claims = ask.claims.iter().map(|claim| format!("{} {}", claim.scope, claim.mode));
    let claims = claims.collect::<Vec<_>>().join(", ");
    let mut line = format!("acquire {} {} {{{claims}}}", ask.namespace, ask.owner);
    line += &match ask.under {
        Under::NewLease { id: lease, ttl } => format!(" new {} ttl={ttl:?}", id(lease)),
        Under::Session(session) => format!(" under {}", id(session)),
    };
    line += &match ask.wait {
        Wait::Never => String::new(),
        Wait::UpTo(wait) => format!(" wait={wait:?}"),
        Wait::Forever => " wait=forever".into(),
    };
    line += &format!(" call={}", ask.call.0);
    if let Some(ticket) = ask.ticket {
        line += &format!(" ticket={}", ticket.ticket.0);
    }
    if let Some(request) = &ask.request_id {
        line += &format!(" {request}");
    }
    if !ask.reclaim_window.is_zero() {
        line += &format!(" window={:?}", ask.reclaim_window);
    }
    for (flag, said) in [(ask.keep_place, " keep-place"), (ask.reclaim, " reclaim")] {
        line += if flag { said } else { "" };
    }
    line + &ask.metadata.as_ref().map_or(String::new(), |text| format!(" metadata={text}"))
}

fn id(lease: LeaseId) -> String {
    match lease.as_u128() {
        u128::MAX => "lease-nobody".into(),
        number => format!("lease-{number}"),
    }
}

pub(crate) fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Answered(Answer::Granted(grant)) => {
            format!("granted fence={} deadline={}", grant.fence, grant.deadline)
        }
        Outcome::Queued(queued) => {
            format!("queued {} at {}", queued.ticket.ticket.0, queued.position)
        }
        Outcome::Refused(refusal) => format!("refused: {refusal}"),
        Outcome::Answered(answer) => format!("{answer:?}"),
    }
}
