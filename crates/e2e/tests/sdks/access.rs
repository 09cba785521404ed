//! Whom an SDK trusts, and to whom it shows its token.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use leasehold_e2e::gate::{Away, Gate};
use leasehold_e2e::tls::{Authority, Certificate, TlsProxy};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::harness::{LATE_MAX, LONG, Noise, Stage, Store};

pub(crate) const STORE: Store = Store::Memory;

const TOKEN: &str = "lk_1_geheim";
const TTL: Duration = Duration::from_secs(3);

pub(crate) async fn tls_and_tokens_are_spoken(stage: Stage) -> Result<()> {
    let gate = Gate::before(stage.server.address(), TOKEN, Away::Unauthorized).await?;
    let authority = Authority::new()?;
    let proxy = TlsProxy::before(gate.address(), &authority, Certificate::Good).await?;
    let servers = format!("https://localhost:{}", proxy.port());
    let connect = |token: &str, cacert: &Authority| {
        json!({
            "op": "connect", "servers": servers, "patience_ms": 3000, "token": token, "cacert": cacert.file(),
        })
    };
    stage.driver.ask(connect(TOKEN, &authority)).await?;
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 900})).await?;
    stage.driver.ask(json!({"op": "watch", "prefix": "a"})).await?;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    stage.driver.ask(json!({"op": "check", "lease": lease})).await?;
    stage.driver.ask(json!({"op": "release", "lease": lease})).await?;
    stage.driver.event(json!({"event": "news", "type": "ended", "lock": "a"}), LONG).await?;
    // With another token it is not let in, and told so.
    stage.driver.ask(connect("lk_1_wrong", &authority)).await?;
    let error = stage.driver.refused(json!({"op": "acquire", "lock": "a"})).await?;
    assert_eq!(
        (&error["kind"], &error["code"], &error["outcome"]),
        (&"refused".into(), &"unauthenticated".into(), &"not_applied".into())
    );
    // Servers of other authorities, for other names, or of yesterday, are not trusted.
    let other = Authority::new()?;
    for (cacert, certificate) in [
        (&other, Certificate::Good),
        (&authority, Certificate::ForAnotherName),
        (&authority, Certificate::Expired),
    ] {
        let proxy = TlsProxy::before(gate.address(), &authority, certificate).await?;
        let mut line = connect(TOKEN, cacert);
        line["servers"] = format!("https://localhost:{}", proxy.port()).into();
        line["patience_ms"] = 500.into();
        stage.driver.ask(line).await?;
        let error = stage.driver.refused(json!({"op": "acquire", "lock": "a"})).await?;
        assert_eq!(
            (&error["kind"], &error["outcome"]),
            (&"unreachable".into(), &"not_applied".into())
        );
        let said = error["detail"].as_str().unwrap_or_default().to_lowercase();
        ensure!(said.contains("certificate") && !said.contains("geheim"), "{error}");
    }
    Ok(())
}

pub(crate) async fn a_token_goes_unencrypted_to_this_machine_alone(stage: Stage) -> Result<()> {
    let line = |servers: &str| json!({"op": "connect", "servers": servers, "token": TOKEN});
    for elsewhere in ["http://192.0.2.1:1", "https://192.0.2.1:1,http://192.0.2.1:1"] {
        let error = stage.driver.refused(line(elsewhere)).await?;
        assert_eq!(error["kind"], "usage", "{error}");
        ensure!(!error.to_string().contains("geheim"), "{error}");
    }
    stage.driver.ask(line(&stage.url())).await?;
    let lease = stage.acquire(json!({"lock": "a"})).await?;
    stage.driver.ask(json!({"op": "release", "lease": lease})).await.map(drop)
}

pub(crate) async fn a_leader_that_was_not_named_is_not_followed(stage: Stage) -> Result<()> {
    if !stage.is_over_http() {
        return Ok(());
    }
    let elsewhere = TcpListener::bind(("127.0.0.1", 0)).await?;
    let evil = Away::NotLeader(elsewhere.local_addr()?);
    let deposed = Gate::before(stage.server.address(), "nobody's", evil).await?;
    let line = |servers: String| json!({"op": "connect", "servers": servers, "token": TOKEN, "patience_ms": 700});
    stage.driver.ask(line(format!("http://{}", deposed.address()))).await?;
    let error = stage.driver.refused(json!({"op": "acquire", "lock": "a"})).await?;
    assert_eq!((&error["kind"], &error["code"]), (&"refused".into(), &"not_leader".into()));
    let came = tokio::time::timeout(Duration::from_millis(50), elsewhere.accept()).await;
    ensure!(came.is_err(), "it went where it was sent");
    // One that was named is, right away.
    let named = Away::NotLeader(stage.server.address());
    let deposed = Gate::before(stage.server.address(), "nobody's", named).await?;
    stage.driver.ask(line(format!("http://{},{}", deposed.address(), stage.url()))).await?;
    stage.acquire(json!({"lock": "a"})).await.map(drop)
}

pub(crate) async fn a_token_file_is_read_again(stage: Stage) -> Result<()> {
    if !stage.driver.can("token_file") {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("token");
    fs::write(&file, "first\n")?;
    let gate = Gate::before(stage.server.address(), "first", Away::Unauthorized).await?;
    let servers = format!("http://{}", gate.address());
    let line =
        json!({"op": "connect", "servers": servers, "patience_ms": 3000, "token_file": file});
    stage.driver.ask(line).await?;
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 1500})).await?;
    for token in ["second", "third"] {
        let next = folder.path().join("next");
        fs::write(&next, token)?;
        gate.rotate(token);
        fs::rename(&next, &file)?;
        tokio::time::sleep(Duration::from_millis(1200)).await;
        stage.driver.ask(json!({"op": "check", "lease": lease})).await?;
    }
    ensure!(stage.driver.take(&json!({"event": "jeopardy"})).is_none());
    stage.driver.ask(json!({"op": "release", "lease": lease})).await?;
    ensure!(stage.is_free("a").await?);
    Ok(())
}

pub(crate) async fn who_is_not_let_in_any_more_keeps_its_lease_as_if_cut_off(
    stage: Stage,
) -> Result<()> {
    if !stage.is_over_http() {
        return Ok(());
    }
    let gate = Gate::before(stage.server.address(), TOKEN, Away::Unauthorized).await?;
    let servers = format!("http://{}", gate.address());
    let line = json!({"op": "connect", "servers": servers, "patience_ms": 3000, "token": TOKEN});
    stage.driver.ask(line).await?;
    let lease = stage.acquire(json!({"lock": "a", "ttl_ms": 3000})).await?;
    // A mistake at the door that is mended soon costs nothing.
    gate.rotate("another");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    gate.rotate(TOKEN);
    tokio::time::sleep(Duration::from_millis(900)).await;
    stage.driver.ask(json!({"op": "check", "lease": lease})).await?;
    let noise = Noise::listen();
    let shut = Instant::now();
    gate.rotate("another");
    let jeopardy = json!({"event": "jeopardy", "lease": lease});
    let (told, _) = stage.driver.event(jeopardy, LONG).await?;
    let took = told.saturating_duration_since(shut);
    ensure!(took <= TTL / 2 + LATE_MAX + noise.allowance(), "told {took:?} after it was shut out");
    let lost = json!({"event": "lost", "lease": lease, "by": "server"});
    stage.driver.event(lost, LONG).await?;
    let refused = stage.driver.refused(json!({"op": "check", "lease": lease})).await?;
    assert_eq!(refused["code"], Value::from("unauthenticated"), "{refused}");
    stage.until_free("a", LONG).await
}
