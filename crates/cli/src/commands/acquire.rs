//! `leasehold acquire`

use std::time::{Duration, Instant};

use leasehold_api::{AcquireRequest, AcquireSetRequest, Claim, Code, RequestOutcome};
use leasehold_client::Error;

use super::{Answered, default_owner, millis, waiting};
use crate::args::Acquire;
use crate::asking::Server;
use crate::failure::Failure;
use crate::output::{Output, short, shown};

/// The server waits no longer in one request; a ticket keeps the place for the next.
const WAIT_MAX: Duration = Duration::from_secs(50);
/// After a broken connection.
const ASK_AGAIN: Duration = Duration::from_millis(50);

pub(crate) async fn run(server: &Server, args: &Acquire) -> Answered {
    match args.locks.as_slice() {
        [lock] => one(server, args, lock).await,
        _ => set(server, args).await,
    }
}

async fn one(server: &Server, args: &Acquire, lock: &str) -> Answered {
    let request_id = request_id();
    let request = |wait: Duration, ticket| AcquireRequest {
        owner_id: owner(args),
        ttl_ms: ttl_ms(args),
        wait_ms: millis(wait),
        mode: args.mode.mode(),
        permits: args.mode.permits,
        session_id: args.session.clone(),
        request_id: Some(request_id.clone()),
        reclaim_ms: 0,
        reclaim: false,
        ticket,
        metadata: args.metadata.clone(),
    };
    let grant = in_line(server, args, async |wait: Duration, ticket| {
        let asked = until_answered(wait, async |wait| {
            server.client.api().acquire(lock, &request(wait, ticket.clone())).await
        });
        server.ask_waiting(asked, wait).await
    })
    .await?;
    server.out.answer(&grant, |out| {
        told(out, &grant.lock, &grant.lease_id, grant.fencing_token, &grant.owner_id, grant.ttl_ms)
    });
    Ok(0)
}

async fn set(server: &Server, args: &Acquire) -> Answered {
    let claim = |lock: &String| Claim {
        lock: lock.clone(),
        mode: args.mode.mode(),
        permits: args.mode.permits,
    };
    let request_id = request_id();
    let request = |wait: Duration, ticket| AcquireSetRequest {
        locks: args.locks.iter().map(claim).collect(),
        owner_id: owner(args),
        ttl_ms: ttl_ms(args),
        wait_ms: millis(wait),
        session_id: args.session.clone(),
        request_id: Some(request_id.clone()),
        reclaim_ms: 0,
        reclaim: false,
        ticket,
        metadata: args.metadata.clone(),
    };
    let grant = in_line(server, args, async |wait: Duration, ticket| {
        let asked = until_answered(wait, async |wait| {
            server.client.api().acquire_set(&request(wait, ticket.clone())).await
        });
        server.ask_waiting(asked, wait).await
    })
    .await?;
    let locks: Vec<&str> = grant.locks.iter().map(|claim| claim.lock.as_str()).collect();
    server.out.answer(&grant, |out| {
        let locks = locks.join(" ");
        told(out, &locks, &grant.lease_id, grant.fencing_token, &grant.owner_id, grant.ttl_ms)
    });
    Ok(0)
}

/// Under the same id a repeated request is the same one: it gets the same grant, or stands where it stood.
fn request_id() -> String {
    format!("cli-{:016x}", getrandom::u64().unwrap_or_default())
}

/// Asks again when the connection broke while there is time: the server keeps the place for a while.
async fn until_answered<T>(
    wait: Duration,
    ask: impl AsyncFn(Duration) -> leasehold_client::Result<T>,
) -> leasehold_client::Result<T> {
    let until = Instant::now() + wait;
    loop {
        match ask(until.saturating_duration_since(Instant::now())).await {
            Err(Error::Unreachable { outcome: RequestOutcome::Unknown, .. })
                if Instant::now() + ASK_AGAIN < until =>
            {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            answered => return answered,
        }
    }
}

fn owner(args: &Acquire) -> String {
    args.owner.clone().unwrap_or_else(default_owner)
}

fn ttl_ms(args: &Acquire) -> Option<u64> {
    args.session.is_none().then(|| millis(args.ttl))
}

/// Says on a terminal who is in the way meanwhile.
async fn in_line<T>(
    server: &Server,
    args: &Acquire,
    ask: impl AsyncFn(Duration, Option<String>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let owner = owner(args);
    tokio::select! {
        got = while_there_is_time(args, ask) => {
            got.map_err(|failure| failure.not_acquired(&args.locks, &owner))
        }
        () = waiting::show(server, &args.locks, &owner) => {
            unreachable!("it shows until it is dropped")
        }
    }
}

/// Asks again with the ticket while there is time.
async fn while_there_is_time<T>(
    args: &Acquire,
    ask: impl AsyncFn(Duration, Option<String>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let until = Instant::now() + args.wait.unwrap_or_default();
    let mut ticket = None;
    loop {
        let wait = until.saturating_duration_since(Instant::now()).min(WAIT_MAX);
        let refused = match ask(wait, ticket.take()).await {
            Err(failure) if Instant::now() < until => failure,
            done => return done,
        };
        match &refused.problem {
            Some(problem)
                if matches!(problem.code, Code::LockHeld | Code::ReclaimWindow)
                    && problem.ticket.is_some() =>
            {
                ticket.clone_from(&problem.ticket);
            }
            Some(_) | None => return Err(refused),
        }
    }
}

fn told(out: &Output, lock: &str, lease: &str, token: u64, owner: &str, ttl_ms: u64) -> String {
    out.fields(&[
        ("lock", shown(lock)),
        ("owner", shown(owner)),
        ("lease", lease.into()),
        ("token", token.to_string()),
        ("for", short(ttl_ms)),
    ])
}
