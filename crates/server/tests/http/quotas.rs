//! Quotas of principals: one more than is allowed is refused with the numbers, and others are unaffected.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;

use leasehold_access::Token;
use leasehold_server::{AuthConfig, Config, QuotaConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::polling::eventually;
use crate::world::{Reply, World, config};

/// Two principals with the same small quotas, and one that has those that are usual.
struct Tenants {
    world: World,
    _folder: TempDir,
}

#[derive(Clone, Copy)]
enum Tenant {
    Red = 1,
    Blue = 2,
    Usual = 3,
}

fn token(tenant: Tenant) -> Token {
    let seed = tenant as u8;
    Token::mint(&std::array::from_fn(|at| {
        seed.wrapping_mul(37).wrapping_add(u8::try_from(at).expect("a short array"))
    }))
}

impl Tenants {
    /// `quota` is what the role of red and blue says.
    async fn start(quota: &str, config: Config) -> Tenants {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.toml");
        let rules = "rules = [{ verbs = [\"acquire\", \"read\", \"watch\", \"fence\"], namespace = \"*\", \
                     names = [\"*\"], fences = [\"*\"] }]";
        let mut text =
            format!("[role.small]\n{rules}\nquota = {{ {quota} }}\n[role.usual]\n{rules}\n");
        for (tenant, principal, role) in [
            (Tenant::Red, "red", "small"),
            (Tenant::Blue, "blue", "small"),
            (Tenant::Usual, "usual", "usual"),
        ] {
            let token = token(tenant);
            writeln!(
                text,
                "[[token]]\nid = \"{}\"\nprincipal = \"{principal}\"\nroles = [\"{role}\"]\nsha256 = \"{}\"",
                token.id(),
                token.hash()
            )
            .unwrap();
        }
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let auth = AuthConfig { enabled: true, access_file: Some(file), ..AuthConfig::default() };
        Tenants { world: World::with(Config { auth, ..config }).await, _folder: folder }
    }

    async fn ask(&self, tenant: Tenant, method: &str, path: &str, body: Option<Value>) -> Reply {
        let bearer = format!("Bearer {}", token(tenant).reveal());
        let mut headers = vec![("authorization", bearer.as_str())];
        if body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        let body = body.map(|body| body.to_string());
        self.world.send(method, path, &headers, body.as_deref()).await
    }

    async fn acquire(&self, tenant: Tenant, lock: &str, more: Value) -> Reply {
        let mut body = json!({ "owner_id": "w", "ttl_ms": 30_000 });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        self.ask(tenant, "POST", &format!("/v1/locks/{lock}"), Some(body)).await
    }
}

/// The refusal, with its numbers.
fn refused(reply: &Reply, quota: &str, of: &str, max: u64) {
    assert_eq!(reply.status, 429, "{}", reply.text);
    let problem = reply.problem("quota_exceeded");
    let told = (&problem["quota"], &problem["of"], &problem["max"]);
    assert_eq!(told, (&json!(quota), &json!(of), &json!(max)), "{problem}");
}

/// Attack 60, for locks, bytes, sessions, registers and namespaces.
#[tokio::test]
async fn one_more_than_a_quota_allows_is_refused_and_others_are_unaffected() {
    let quota = "locks = 2, bytes = 30, sessions = 1, registers = 1, namespaces = 2";
    let tenants = Tenants::start(quota, config()).await;
    for tenant in [Tenant::Red, Tenant::Blue] {
        let name = |lock: &str| format!("{}/{lock}", tenant as u8);
        let acquire = |lock: &str, query: &str| format!("{}/acquire{query}", name(lock));
        let none = || json!({});
        let first = tenants.acquire(tenant, &acquire("a", ""), none()).await.ok();
        let long = json!({ "metadata": { "m": "0123456789012345678901234567" } });
        refused(&tenants.acquire(tenant, &acquire("b", ""), long).await, "bytes", "principal", 30);
        tenants.acquire(tenant, &acquire("b", "?namespace=other"), none()).await.ok();
        let third = tenants.acquire(tenant, &acquire("c", ""), none()).await;
        refused(&third, "locks", "principal", 2);
        let third = tenants.acquire(tenant, &acquire("c", "?namespace=third"), none()).await;
        refused(&third, "namespaces", "principal", 2);
        let session = || Some(json!({ "owner_id": "s", "ttl_ms": 30_000 }));
        tenants.ask(tenant, "POST", "/v1/sessions", session()).await.ok();
        let second = tenants.ask(tenant, "POST", "/v1/sessions", session()).await;
        refused(&second, "sessions", "principal", 1);
        let accept = Some(json!({ "fencing_token": first["fencing_token"] }));
        let register = |name: &str| format!("/v1/fences/{name}-{}/accept", tenant as u8);
        tenants.ask(tenant, "POST", &register("tape"), accept.clone()).await.ok();
        let second = tenants.ask(tenant, "POST", &register("disk"), accept).await;
        refused(&second, "registers", "principal", 1);
        let release = json!({
            "owner_id": "w", "lease_id": first["lease_id"], "fencing_token": first["fencing_token"],
        });
        let path = format!("/v1/locks/{}/release", name("a"));
        tenants.ask(tenant, "POST", &path, Some(release)).await.ok();
        tenants.acquire(tenant, &acquire("c", ""), none()).await.ok();
    }
}

/// Attack 60, for waiters, with those of the namespace.
#[tokio::test]
async fn waiters_have_a_quota_of_their_principal_and_their_namespace() {
    let mut quota = QuotaConfig::default();
    quota.namespace.waiters = 2;
    let config = Config { quota, ..config() };
    let tenants = Tenants::start("waiters = 1", config).await;
    tenants.acquire(Tenant::Usual, "a/acquire", json!({})).await.ok();
    let wait = || json!({ "wait_ms": 20_000 });
    let waiting = async {
        tokio::join!(
            tenants.acquire(Tenant::Red, "a/acquire", wait()),
            tenants.acquire(Tenant::Blue, "a/acquire", wait()),
        )
    };
    let checks = async {
        eventually("both wait", async || {
            let view = tenants.ask(Tenant::Usual, "GET", "/v1/locks/a", None).await.ok();
            view["waiters_total"] == 2
        })
        .await;
        let second = tenants.acquire(Tenant::Red, "a/acquire", wait()).await;
        refused(&second, "waiters", "principal", 1);
        let third = tenants
            .acquire(Tenant::Usual, "a/acquire", json!({ "owner_id": "x", "wait_ms": 20_000 }))
            .await;
        refused(&third, "waiters", "namespace", 2);
    };
    tokio::select! {
        _ = waiting => panic!("the lock is held"),
        () = checks => {}
    }
}

/// Attack 64: a register in each of many namespaces. The one who makes them is stopped, and nobody else.
#[tokio::test]
async fn namespaces_with_a_register_each_stop_their_own_principal() {
    let tenants = Tenants::start("namespaces = 10", config()).await;
    let grant = tenants.acquire(Tenant::Usual, "a/acquire", json!({})).await.ok();
    let accept = || Some(json!({ "fencing_token": grant["fencing_token"] }));
    let path = |number: usize| format!("/v1/fences/tape/accept?namespace=n{number}");
    for number in 0..10 {
        tenants.ask(Tenant::Red, "POST", &path(number), accept()).await.ok();
    }
    let eleventh = tenants.ask(Tenant::Red, "POST", &path(10), accept()).await;
    refused(&eleventh, "namespaces", "principal", 10);
    tenants.ask(Tenant::Blue, "POST", &path(11), accept()).await.ok();
    tenants.acquire(Tenant::Blue, "a/acquire?namespace=n12", json!({})).await.ok();
}

/// Attack 65: namespaces that are empty again make room, and leave nothing behind.
#[tokio::test]
async fn acquire_and_release_in_a_namespace_of_its_own_leaves_nothing_behind() {
    let mut config = config();
    config.limits.namespaces_max = 20;
    let tenants = Tenants::start("namespaces = 2", config).await;
    for number in 0..100 {
        let path = format!("a/acquire?namespace=n{number}");
        let grant = tenants.acquire(Tenant::Red, &path, json!({})).await.ok();
        let release = json!({
            "owner_id": "w", "lease_id": grant["lease_id"], "fencing_token": grant["fencing_token"],
        });
        let path = format!("/v1/locks/a/release?namespace=n{number}");
        tenants.ask(Tenant::Red, "POST", &path, Some(release)).await.ok();
    }
}

/// Lengths that a role allows.
#[tokio::test]
async fn role_says_how_long_a_lease_may_be() {
    let quota = "ttl_max = \"10s\", wait_max = \"1s\", reclaim_max = \"1s\"";
    let tenants = Tenants::start(quota, config()).await;
    for (field, value) in [("ttl_ms", 10_001), ("wait_ms", 1001), ("reclaim_ms", 1001)] {
        let more = json!({ "ttl_ms": 5000, field: value });
        let reply = tenants.acquire(Tenant::Red, "a/acquire", more).await;
        let problem = reply.problem("invalid_request");
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
    }
    let most = json!({ "ttl_ms": 10_000, "wait_ms": 1000, "reclaim_ms": 1000 });
    tenants.acquire(Tenant::Red, "a/acquire", most).await.ok();
    tenants.acquire(Tenant::Usual, "b/acquire", json!({ "ttl_ms": 60_000 })).await.ok();
}

/// Watches, and requests a second.
#[tokio::test]
async fn watches_and_requests_have_quotas() {
    let tenants = Tenants::start("watches = 1", config()).await;
    let poll = "/v1/events?wait_ms=20000";
    tokio::select! {
        () = async {
            // Either of the two may come first.
            loop {
                let reply = tenants.ask(Tenant::Red, "GET", poll, None).await;
                assert_eq!(reply.status, 429, "nothing happens: {}", reply.text);
            }
        } => {}
        () = async {
            eventually("the first one watches", async || {
                let second = tenants.ask(Tenant::Red, "GET", "/v1/events?wait_ms=1", None).await;
                second.status == 429
            })
            .await;
            let second = tenants.ask(Tenant::Red, "GET", "/v1/events?wait_ms=1", None).await;
            refused(&second, "watches", "principal", 1);
            tenants.ask(Tenant::Blue, "GET", "/v1/events?wait_ms=1", None).await.ok();
        } => {}
    }
    let quota = QuotaConfig { requests_per_second: 1, requests_burst: 3, ..QuotaConfig::default() };
    let tenants = Tenants::start("", Config { quota, ..config() }).await;
    let mut statuses = Vec::new();
    for _ in 0..30 {
        statuses.push(tenants.ask(Tenant::Red, "GET", "/v1/locks/a", None).await.status);
    }
    assert_eq!(statuses[..3], [200; 3]);
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(tenants.ask(Tenant::Blue, "GET", "/v1/locks/a", None).await.status, 200);
}

/// A list that is closed, so that no client can have a limit to itself by making up a name.
#[tokio::test]
async fn adapters_are_a_closed_list() {
    let world = World::start().await;
    for adapter in ["http", "grpc", "fuse", "nlm", "nfs", "smb", "other"] {
        let body = format!(r#"{{"owner_id":"s","ttl_ms":30000,"adapter":"{adapter}"}}"#);
        world.post("/v1/sessions", &body).await.ok();
    }
    for adapter in ["mine", "HTTP", ""] {
        let body = format!(r#"{{"owner_id":"s","ttl_ms":30000,"adapter":"{adapter}"}}"#);
        let problem = world.post("/v1/sessions", &body).await.problem("invalid_request");
        assert_eq!(problem["errors"][0]["field"], "adapter");
    }
}
