//! The audit log: an operator's request is told alike, whatever transport it came over.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use leasehold_api::grpc::inodes_client::InodesClient;
use leasehold_api::grpc::{BreakRequest, RemoveRequest};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::transports::Ways;

type Line = BTreeMap<String, String>;

/// Keeps the lines of the audit log.
#[derive(Clone, Default)]
struct Audit(Arc<Mutex<Vec<Line>>>);

struct Fields<'a>(&'a mut Line);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}"));
    }
}

impl Subscriber for Audit {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "leasehold::audit"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::new();
        event.record(&mut Fields(&mut line));
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn operators_requests_are_audited_over_each_transport() {
    let audit = Audit::default();
    tracing::subscriber::set_global_default(audit.clone()).unwrap();
    let ways = Ways::start().await;
    ways.world.acquire("over-http", "a").await;
    ways.world.acquire("over-grpc", "a").await;
    let reason = r#"{"reason":"it hangs"}"#;
    ways.world.post("/v1/locks/over-http/break", reason).await.ok();
    let asked = BreakRequest {
        lock: "over-grpc".into(),
        reason: "it hangs".into(),
        ..BreakRequest::default()
    };
    ways.locks().r#break(asked).await.unwrap();
    ways.world.acquire("inode:1@0..9", "a").await;
    ways.world.acquire("inode:2@0..9", "a").await;
    ways.world.delete("/v1/inodes/1").await.ok();
    let mut inodes = InodesClient::new(ways.channel());
    let asked = RemoveRequest { inode: 2, ..RemoveRequest::default() };
    inodes.remove(asked).await.unwrap();
    let lines = audit.0.lock().unwrap().clone();
    assert_eq!(lines.len(), 4, "{lines:#?}");
    for (pair, differs) in lines.chunks(2).zip(["lock", "inode"]) {
        let [http, grpc] = pair else { panic!("two at a time") };
        assert_eq!((&http["transport"][..], &grpc["transport"][..]), ("\"http\"", "\"grpc\""));
        assert!(http["request_id"] != grpc["request_id"] && http["peer"].starts_with("127."));
        let rest = |line: &Line| {
            let own = ["transport", "request_id", "peer", differs];
            line.clone().into_iter().filter(|(name, _)| !own.contains(&&name[..])).collect::<Line>()
        };
        assert_eq!(rest(http), rest(grpc));
        assert_eq!(rest(http)["principal"], "\"anonymous\"");
    }
    assert_eq!(lines[0]["message"], "a lock was broken");
    assert_eq!(lines[2]["message"], "a file was removed");
}
