//! A long history through an SDK, over a network that breaks now and then, judged lock by lock.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use leasehold_e2e::checker::{Rules, check};
use leasehold_e2e::driver::Came;
use leasehold_e2e::history::{Acquired, Event, Kept, LockIndex, Mode, Operation, Recorder, Token};
use leasehold_e2e::proxy::Network;
use leasehold_e2e::random::Random;
use leasehold_e2e::seed;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::harness::{Stage, Store};

pub(crate) const STORE: Store = Store::Sqlite;

const OPERATIONS: usize = 20_000;
const WORKERS: u32 = 16;
const LOCKS: u64 = 12;
/// Nothing lapses: what a renewal in the background does to a deadline is not in the history.
const TTL_MS: u64 = 600_000;
const CUT_EVERY: usize = OPERATIONS / 8;

pub(crate) async fn a_long_history_can_have_happened(stage: Stage) -> Result<()> {
    let proxy = stage.connect_by_proxy().await?;
    let recorder = Recorder::default();
    let stage = Arc::new(stage);
    let mut workers = JoinSet::new();
    for id in 0..WORKERS {
        workers.spawn(worker(stage.clone(), id, recorder.clone()));
    }
    for round in 1..OPERATIONS / CUT_EVERY {
        while recorder.len() < round * CUT_EVERY {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if let Some(early) = workers.try_join_next() {
                early??;
            }
        }
        proxy.set(if round % 2 == 0 { Network::Resets } else { Network::Stalls });
        tokio::time::sleep(Duration::from_millis(50)).await;
        proxy.set(Network::Works);
    }
    while let Some(done) = workers.join_next().await {
        done??;
    }
    let history = recorder.take();
    let checked = check(&history, Rules::default())?;
    println!("{} operations in a history: {checked:?}", history.len());
    ensure!(history.len() >= OPERATIONS && checked.grants > OPERATIONS / 10, "{checked:?}");
    ensure!(checked.refusals > OPERATIONS / 1000, "too little was fought for: {checked:?}");
    ensure!(checked.unknown == 0, "the network was never away for long: {checked:?}");
    Ok(())
}

/// Takes locks and gives them back, one after the other, as an owner of its own.
async fn worker(stage: Arc<Stage>, id: u32, recorder: Recorder) -> Result<()> {
    let mut random = Random::new(seed(u64::from(id)));
    while recorder.len() < OPERATIONS {
        let lock = LockIndex::try_from(random.below(LOCKS))?;
        let mode = if random.chance(20) { Mode::Shared } else { Mode::Exclusive };
        let wait_ms = if random.chance(30) { 2000 } else { 0 };
        let line = json!({
            "op": "acquire", "lock": format!("h/{lock}"), "owner": format!("w{id}"), "wait_ms": wait_ms,
            "ttl_ms": TTL_MS, "shared": mode == Mode::Shared,
        });
        let invoked = recorder.now();
        let came = stage.driver.send(line)?.came().await?;
        let returned = recorder.now();
        let (outcome, lease) = acquired(&came)?;
        let note = |event, invoked, returned| {
            recorder.record(Operation { client: id, lock, invoked, returned, event });
        };
        note(
            Event::Acquire {
                mode,
                ttl: Duration::from_millis(TTL_MS),
                waited: wait_ms > 0,
                outcome,
            },
            invoked,
            returned,
        );
        let Acquired::Granted(token) = outcome else { continue };
        let invoked = recorder.now();
        let line = json!({"op": "release", "lease": lease});
        let came = stage.driver.send(line)?.came().await?;
        note(Event::Release { token, outcome: released(&came)? }, invoked, recorder.now());
    }
    Ok(())
}

fn acquired(came: &Came) -> Result<(Acquired, Value)> {
    match came {
        Ok(held) => {
            let token: Token = held["token"].as_u64().context("a lease has a token")?;
            Ok((Acquired::Granted(token), held["lease"].clone()))
        }
        Err(error) if error["kind"] == "held" => Ok((Acquired::Refused, Value::Null)),
        Err(error) if error["kind"] == "unreachable" => Ok((Acquired::Unknown, Value::Null)),
        Err(error) => bail!("an acquire came to {error}"),
    }
}

fn released(came: &Came) -> Result<Kept> {
    match came {
        Ok(_) => Ok(Kept::Done),
        Err(error) if error["kind"] == "lease_lost" => Ok(Kept::Lost),
        Err(error) if error["kind"] == "unreachable" => Ok(Kept::Unknown),
        Err(error) => bail!("a release came to {error}"),
    }
}
