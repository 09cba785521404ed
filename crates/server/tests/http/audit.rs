//! The audit log: what is in it of each class, that nothing is done without it, and that a client cannot write into it.

use std::path::PathBuf;

use leasehold_server::{AuditConfig, AuditTo, AuthConfig, Config, verify_audit};
use serde_json::Value;
use tempfile::TempDir;

use crate::access::{ADMIN, BILLING, NOBODY, access_file, all_tokens, token, write};
use crate::polling::eventually;
use crate::world::{Reply, World, config};

/// A server with tokens and an audit log.
struct Audited {
    world: World,
    folder: TempDir,
}

impl Audited {
    async fn start(change: impl FnOnce(&mut AuditConfig)) -> Audited {
        let folder = tempfile::tempdir().unwrap();
        let access = folder.path().join("access.toml");
        write(&access, &access_file(&all_tokens()));
        let auth = AuthConfig { enabled: true, access_file: Some(access), ..AuthConfig::default() };
        let to = Some(AuditTo::File(folder.path().join("audit.jsonl")));
        let mut audit = AuditConfig { to, ..AuditConfig::default() };
        change(&mut audit);
        let world = World::with(Config { auth, audit, ..config() }).await;
        Audited { world, folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("audit.jsonl")
    }

    fn lines(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.file()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn of(&self, event: &str) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["event"] == event).collect()
    }

    /// What is not required is written soon.
    async fn wait_for(&self, event: &str) -> Vec<Value> {
        eventually(event, async || !self.of(event).is_empty()).await;
        self.of(event)
    }

    async fn ask(&self, seed: u8, method: &str, path: &str, body: Option<&str>) -> Reply {
        let bearer = format!("Bearer {}", token(seed).reveal());
        let mut headers = vec![("authorization", bearer.as_str())];
        if body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        self.world.send(method, path, &headers, body).await
    }

    async fn acquire(&self, seed: u8, lock: &str, namespace: &str, owner: &str) -> Reply {
        let body = serde_json::json!({ "owner_id": owner, "ttl_ms": 30000 }).to_string();
        let path = format!("/v1/locks/{lock}/acquire?namespace={namespace}");
        self.ask(seed, "POST", &path, Some(&body)).await
    }

    fn verify(&self) {
        let verified = verify_audit(&[self.file()]).unwrap();
        assert_eq!(verified.faults, [""; 0]);
        let text = std::fs::read_to_string(self.file()).unwrap();
        for seed in 0..200 {
            assert!(!text.contains(token(seed).reveal()), "a token is in it");
        }
    }
}

fn outcomes(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn what_operators_do_is_asked_ended_and_done() {
    let audited = Audited::start(|_| {}).await;
    audited.acquire(BILLING, "job", "billing", "worker-7").await.ok();
    let reason = Some(r#"{"reason":"stuck since ten"}"#);
    let path = "/v1/locks/job/break?namespace=billing";
    audited.ask(ADMIN, "POST", path, reason).await.ok();
    let lines = audited.of("lock.break");
    assert_eq!(outcomes(&lines), ["asked", "ended", "ok"]);
    let admin = token(ADMIN).id().to_string();
    for line in &lines {
        assert_eq!(line["principal"], "root", "{line}");
        assert_eq!((&line["via"], &line["credential"]), (&"token".into(), &admin.clone().into()));
        assert_eq!((&line["namespace"], &line["lock"]), (&"billing".into(), &"job".into()));
        assert_eq!(line["reason"], "stuck since ten");
        assert!(line["peer"].as_str().unwrap().starts_with("127."), "{line}");
        assert!(line["v"] == 1 && line["server"].is_string() && line["request_id"].is_string());
    }
    assert_eq!((&lines[1]["owner_id"], &lines[1]["of"]), (&"worker-7".into(), &"billing".into()));
    assert!(lines[1]["fencing_token"].is_u64());
    assert_eq!(lines[2]["grants"], 1);
    // A file: each piece that ended has its line.
    audited.acquire(BILLING, "inode:7@0..9", "billing", "a").await.ok();
    audited.acquire(BILLING, "inode:7@20..29", "billing", "b").await.ok();
    audited.ask(ADMIN, "DELETE", "/v1/inodes/7?namespace=billing", None).await.ok();
    let lines = audited.of("inode.remove");
    assert_eq!(outcomes(&lines), ["asked", "ended", "ended", "ok"]);
    assert_eq!(lines[3]["grants"], 2);
    // A session, by its number.
    let body = Some(r#"{"owner_id":"c","ttl_ms":30000}"#);
    let opened = audited.ask(BILLING, "POST", "/v1/sessions?namespace=billing", body).await.ok();
    let path = format!("/v1/sessions/{}/break?namespace=billing", opened["session"]);
    audited.ask(ADMIN, "POST", &path, reason).await.ok();
    assert_eq!(outcomes(&audited.of("session.break")), ["asked", "ok"]);
    audited.verify();
}

#[tokio::test]
async fn what_administrators_do_is_asked_and_done() {
    let audited = Audited::start(|_| {}).await;
    let role = Some(r#"{"rules":[{"verbs":["metrics"]}]}"#);
    audited.ask(ADMIN, "PUT", "/v1/auth/roles/scraper", role).await.ok();
    let wanted = Some(r#"{"principal":"scraper","roles":["scraper"]}"#);
    let made = audited.ask(ADMIN, "POST", "/v1/auth/tokens", wanted).await.ok();
    let path = format!("/v1/auth/tokens/{}", made["id"].as_str().unwrap());
    audited.ask(ADMIN, "POST", &format!("{path}/rotate"), None).await.ok();
    audited.ask(ADMIN, "DELETE", &path, None).await.ok();
    audited.ask(ADMIN, "DELETE", "/v1/auth/roles/scraper", None).await.ok();
    let accept = Some(r#"{"fencing_token":1}"#);
    audited.ask(ADMIN, "POST", "/v1/fences/r/accept", accept).await;
    audited.acquire(ADMIN, "x", "default", "a").await.ok();
    for (event, of) in [
        ("role.put", "scraper"),
        ("token.create", "scraper"),
        ("token.rotate", ""),
        ("token.revoke", ""),
        ("role.delete", "scraper"),
    ] {
        let lines = audited.of(event);
        assert_eq!(outcomes(&lines), ["asked", "ok"], "{event}");
        assert!(lines.iter().all(|line| line["principal"] == "root"));
        if !of.is_empty() {
            assert!(lines[0]["role"] == of || lines[0]["of"] == of, "{lines:?}");
        }
    }
    // One that is refused on the way says so.
    audited.ask(ADMIN, "DELETE", &path, None).await.problem("not_found");
    let lines = audited.of("token.revoke");
    assert_eq!((&lines[3]["outcome"], &lines[3]["code"]), (&"failed".into(), &"not_found".into()));
    audited.verify();
}

/// Attack 6, as the log has it, and the limit of lines from one address.
#[tokio::test]
async fn true_reason_of_a_refused_credential_is_in_the_log_alone() {
    let audited = Audited::start(|_| {}).await;
    let world = &audited.world;
    let mut wrong = token(ADMIN).reveal().to_owned();
    let unknown = token(99).reveal().to_owned();
    wrong.replace_range(20..21, if &wrong[20..21] == "x" { "y" } else { "x" });
    for shown in [&wrong, &unknown] {
        let bearer = format!("Bearer {shown}");
        let refused = world.send("GET", "/v1/locks", &[("authorization", &bearer)], None).await;
        assert!(!refused.text.contains("unknown"), "{refused:?}");
        refused.problem("unauthenticated");
    }
    world.get("/v1/locks").await.problem("unauthenticated");
    eventually("three lines", async || audited.of("auth.failure").len() == 3).await;
    let lines = audited.of("auth.failure");
    let reasons: Vec<&str> = lines.iter().map(|line| line["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons, ["malformed", "unknown", "none_shown"]);
    assert_eq!(lines[1]["shown_id"], token(99).id().to_string());
    assert!(lines[0]["shown"].as_str().unwrap().starts_with("hmac:"));
    audited.ask(BILLING, "GET", "/v1/locks?namespace=billing", None).await.ok();
    audited.ask(BILLING, "GET", "/v1/locks?namespace=billing", None).await.ok();
    audited.ask(NOBODY, "GET", "/v1/locks", None).await.problem("permission_denied");
    let denied = audited.wait_for("auth.denied").await;
    assert_eq!(
        (&denied[0]["principal"], &denied[0]["operation"]),
        (&"nobody".into(), &"ListLocks".into())
    );
    let used = audited.of("auth.use");
    assert_eq!(used.iter().filter(|line| line["principal"] == "billing").count(), 1);
    for _ in 0..40 {
        world.get("/v1/locks").await;
    }
    let more = audited.wait_for("auth.more").await;
    assert!(more[0]["lines"].as_u64().unwrap() >= 1 && more[0]["peer"] == "127.0.0.1");
    audited.verify();
}

#[tokio::test]
async fn grants_are_told_if_they_are_asked_for_and_the_server_tells_of_itself() {
    let audited = Audited::start(|audit| audit.grant = true).await;
    audited.acquire(BILLING, "job", "billing", "worker-7").await.ok();
    audited.acquire(BILLING, "job", "billing", "worker-8").await.problem("lock_held");
    let granted = audited.wait_for("grant.granted").await;
    assert_eq!(
        (&granted[0]["principal"], &granted[0]["owner_id"]),
        (&"billing".into(), &"worker-7".into())
    );
    let refused = audited.wait_for("grant.refused").await;
    assert_eq!(
        (&refused[0]["principal"], &refused[0]["code"]),
        (&"billing".into(), &"lock_held".into())
    );
    let brief = Some(r#"{"owner_id":"c","ttl_ms":100}"#);
    audited.ask(BILLING, "POST", "/v1/locks/brief/acquire?namespace=billing", brief).await.ok();
    assert_eq!(audited.wait_for("grant.expired").await[0]["lock"], "brief");
    assert_eq!(audited.wait_for("server.leads").await[0]["group"], 0);
    assert_eq!(audited.of("server.start").len(), 1);
    let Audited { world, folder } = audited;
    world.server.stop().await;
    let text = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    assert!(text.lines().last().unwrap().contains("\"event\":\"server.stop\""));
}

/// Attack 41.
#[tokio::test]
async fn nothing_is_done_that_cannot_be_written_down() {
    let folder = tempfile::tempdir().unwrap();
    let key = Some(folder.path().join("audit.key"));
    let full = Audited::start(|audit| {
        audit.to = Some(AuditTo::File("/dev/full".into()));
        audit.key = key;
    })
    .await;
    full.acquire(BILLING, "job", "billing", "worker-7").await.ok();
    let reason = Some(r#"{"reason":"stuck"}"#);
    let path = "/v1/locks/job/break?namespace=billing";
    full.ask(NOBODY, "POST", path, reason).await.problem("permission_denied");
    let refused = full.ask(ADMIN, "POST", path, reason).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.problem("audit_unavailable")["outcome"], "not_applied");
    full.acquire(BILLING, "inode:7@0..9", "billing", "a").await.ok();
    full.ask(NOBODY, "DELETE", "/v1/inodes/7?namespace=billing", None)
        .await
        .problem("permission_denied");
    let inode = "/v1/inodes/7?namespace=billing";
    full.ask(ADMIN, "DELETE", inode, None).await.problem("audit_unavailable");
    let role = Some(r#"{"rules":[{"verbs":["metrics"]}]}"#);
    full.ask(ADMIN, "PUT", "/v1/auth/roles/x", role).await.problem("audit_unavailable");
    full.ask(ADMIN, "GET", "/v1/auth/roles/x", None).await.problem("not_found");
    for lock in ["job", "inode:7@0..9"] {
        let path = format!("/v1/locks/{lock}?namespace=billing");
        let view = full.ask(ADMIN, "GET", &path, None).await.ok();
        assert_eq!(view["state"], "held", "{view}");
    }
    let metrics = full.ask(ADMIN, "GET", "/metrics", None).await.text;
    assert!(metrics.contains("leasehold_audit_refused_total 3\n"), "{metrics}");
    // What is not required is lost, and counted.
    assert!(!metrics.contains("leasehold_audit_lines_lost_total 0\n"));
}

/// Attack 67.
#[tokio::test]
async fn client_cannot_write_lines_of_its_own() {
    let audited = Audited::start(|_| {}).await;
    let owner = "x\",\"event\":\"admin\"}";
    audited.acquire(BILLING, "job", "billing", owner).await.ok();
    for nasty in ["\n{\"event\":\"admin\"}", "\u{1b}[2J", "\u{202e}desrever"] {
        let refused = audited.acquire(BILLING, "y", "billing", nasty).await;
        refused.problem("invalid_request");
    }
    let path = "/v1/locks/job/break?namespace=billing";
    let reason = serde_json::json!({ "reason": "nosaer\", \"event\":\"admin\"" }).to_string();
    audited.ask(ADMIN, "POST", path, Some(&reason)).await.ok();
    let lines = audited.of("lock.break");
    assert!(lines.iter().any(|line| line["owner_id"] == owner), "{lines:?}");
    assert!(audited.lines().iter().all(|line| line["event"] != "admin"));
    let text = std::fs::read_to_string(audited.file()).unwrap();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
    audited.verify();
}
