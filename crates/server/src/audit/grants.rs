//! Audit lines from the engine: changes of leadership, and the fate of grants.

use leasehold_core::{Ending, Event, News, Owner};
use leasehold_engine::{Cursor, Handle, Phase, Published, Watch, Watched};
use tokio::sync::watch;

use super::{Audit, Class, Line};

/// Writes lines about a group until the server stops.
pub(crate) async fn follow(
    audit: Audit,
    engine: Handle,
    group: usize,
    mut stop: watch::Receiver<bool>,
) {
    let mut changes = engine.status_changes();
    let mut led = None;
    let mut events: Option<Watch> = None;
    loop {
        let status = changes.borrow_and_update().clone();
        let leads = match status.phase {
            Phase::Leading => Some(true),
            Phase::Following => Some(false),
            Phase::Starting | Phase::Doubtful | Phase::Draining | Phase::Stopped => None,
        };
        if leads.is_some() && leads != led {
            led = leads;
            let event = if leads == Some(true) { "server.leads" } else { "server.follows" };
            let line = Line::new(event, "ok").with("group", group).with("epoch", status.epoch.0);
            audit.note(Class::Server, || line);
        }
        if leads == Some(true) && events.is_none() && audit.has(Class::Grant) {
            let from = Cursor { epoch: None, revision: engine.events_after() };
            events = engine.watch(from).ok();
        }
        tokio::select! {
            _ = stop.wait_for(|stopped| *stopped) => return,
            changed = changes.changed() => if changed.is_err() {
                return;
            },
            told = next(&mut events) => match told {
                Watched::Event(published) => note(&audit, &published),
                Watched::Missed(missed) => {
                    audit.note(Class::Grant, || Line::new("grant.missed", "failed").with("events", missed));
                }
                Watched::End => events = None,
            },
        }
    }
}

async fn next(events: &mut Option<Watch>) -> Watched {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

fn note(audit: &Audit, published: &Published) {
    if let Some(line) = line(&published.event) {
        audit.note(Class::Grant, || line);
    }
}

fn line(event: &Event) -> Option<Line> {
    match &event.news {
        News::Granted { scope, owner, mode, fence, ttl, session, waited } => Some(
            of_owner(Line::new("grant.granted", "ok"), owner)
                .with("namespace", event.namespace.as_str())
                .with("lock", scope.to_string())
                .with("mode", mode.to_string())
                .with("fencing_token", fence.get())
                .with("ttl_ms", ttl.get())
                .with("waited_ms", u64::try_from(waited.as_millis()).unwrap_or(u64::MAX))
                .with_some("session", *session),
        ),
        News::Ended { ending, .. } => ended(event, word(ending)?),
        News::EpochBegan { .. }
        | News::GraceEnded
        | News::SessionOpened { .. }
        | News::SessionEnded { .. }
        | News::TtlChanged { .. }
        | News::FenceAccepted { .. }
        | News::FenceDeleted { .. }
        | News::Queued { .. }
        | News::Left { .. }
        | News::Deadlock { .. } => None,
    }
}

/// A grant that has ended, as a line of its own.
fn ended(event: &Event, name: &'static str) -> Option<Line> {
    let News::Ended { scope, owner, fence, session, ending, .. } = &event.news else { return None };
    let line = of_owner(Line::new(name, "ok"), owner);
    Some(
        line.with("namespace", event.namespace.as_str())
            .with("lock", scope.to_string())
            .with("fencing_token", fence.get())
            .with("ending", ending.as_str())
            .with_some("session", *session),
    )
}

fn of_owner(line: Line, owner: &Owner) -> Line {
    line.with("principal", owner.principal().as_str()).with("owner_id", owner.as_str())
}

/// The event for an end; `None` if nobody lost anything by it.
fn word(ending: &Ending) -> Option<&'static str> {
    match ending {
        Ending::Released | Ending::Closed | Ending::Replaced => Some("grant.released"),
        Ending::Expired | Ending::GraceExpired | Ending::Disconnected => Some("grant.expired"),
        Ending::Revoked(_) => Some("grant.broken"),
        Ending::FileRemoved => Some("grant.removed"),
        Ending::Withdrawn => Some("grant.withdrawn"),
        Ending::WindowOver | Ending::Reclaimed => None,
    }
}
