//! The store itself, when it is named: whether it can be reached from here, how quickly, and which version it is.

use std::time::Instant;

use leasehold_server::{Store, open};

use super::{Finding, SLOW_COMMIT};

const CHECK: &str = "store";

pub(super) async fn of(store: &Store) -> Finding {
    match store {
        Store::Memory | Store::Sqlite(_) => {
            Finding::ok(CHECK, format!("{store}: its server looks at it, see `write`"))
        }
        Store::Postgres(_) | Store::Etcd(_) => of_server(store).await,
    }
}

async fn of_server(store: &Store) -> Finding {
    let advice = "look at its address and password, and whether it can be reached from here";
    let journal = match open(store, 0).await {
        Ok(journal) => journal,
        Err(error) => return Finding::bad(CHECK, error.to_string(), advice),
    };
    let start = Instant::now();
    if let Err(error) = journal.leader().await {
        return Finding::bad(CHECK, format!("{store}: {error}"), advice);
    }
    let took = start.elapsed();
    let about = match journal.about().await {
        Ok(about) => about,
        Err(error) => return Finding::bad(CHECK, format!("{store}: {error}"), advice),
    };
    let version = about.as_ref().map_or("of an unknown version", |about| about.version.as_str());
    let detail = format!("{store}: {version}, answers in {took:.1?}");
    match about.and_then(|about| about.warning) {
        Some(warning) => Finding::warning(CHECK, detail, warning),
        None if took > SLOW_COMMIT => {
            Finding::warning(CHECK, detail, "its network is slow: every new lock waits for it")
        }
        None => Finding::ok(CHECK, detail),
    }
}
