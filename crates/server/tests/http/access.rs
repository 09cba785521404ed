//! Credentials and rights: who is let in, and what is refused before anything is looked up.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use leasehold_access::Token;
use leasehold_server::{AuthConfig, Config};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::polling::eventually;
use crate::world::{Reply, World, config};

/// A server with tokens: `admin`, `billing` (everything in its namespace), `app1` (names below `app1/`), `nobody`.
pub(crate) struct Doors {
    pub(crate) world: World,
    file: PathBuf,
    _folder: TempDir,
}

pub(crate) fn token(seed: u8) -> Token {
    Token::mint(&std::array::from_fn(|at| {
        seed.wrapping_mul(41).wrapping_add(u8::try_from(at).expect("a short array"))
    }))
}

pub(crate) const ADMIN: u8 = 1;
pub(crate) const BILLING: u8 = 2;
const APP1: u8 = 3;
pub(crate) const NOBODY: u8 = 4;
const FILES: u8 = 5;
pub(crate) const OTHER: u8 = 6;

pub(crate) fn access_file(tokens: &[(u8, &str, &str)]) -> String {
    let mut text = String::from(
        "[role.app1]\nrules = [{ verbs = [\"acquire\", \"read\"], namespace = \"default\", names = [\"app1/\"] }]\n\
         [role.files]\nrules = [{ verbs = [\"acquire\"], namespace = \"default\", paths = [\"/a/**\"] }]\n",
    );
    for (seed, principal, roles) in tokens {
        let token = token(*seed);
        let roles: Vec<_> = roles.split_whitespace().map(|role| format!("\"{role}\"")).collect();
        writeln!(
            text,
            "[[token]]\nid = \"{}\"\nprincipal = \"{principal}\"\nroles = [{}]\nsha256 = \"{}\"",
            token.id(),
            roles.join(", "),
            token.hash()
        )
        .unwrap();
    }
    text
}

const ALL: [(u8, &str, &str); 6] = [
    (ADMIN, "root", "admin"),
    (BILLING, "billing", "client:billing"),
    (APP1, "app1", "app1"),
    (NOBODY, "nobody", ""),
    (FILES, "files", "files"),
    (OTHER, "other", "client:billing"),
];

pub(crate) fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

pub(crate) fn all_tokens() -> Vec<(u8, &'static str, &'static str)> {
    ALL.to_vec()
}

impl Doors {
    pub(crate) async fn start() -> Doors {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.toml");
        write(&file, &access_file(&ALL));
        let auth =
            AuthConfig { enabled: true, access_file: Some(file.clone()), ..AuthConfig::default() };
        let world = World::with(Config { auth, ..config() }).await;
        Doors { world, file, _folder: folder }
    }

    pub(crate) async fn ask(
        &self,
        seed: u8,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> Reply {
        let bearer = format!("Bearer {}", token(seed).reveal());
        let mut headers = vec![("authorization", bearer.as_str())];
        if body.is_some() {
            headers.push(("content-type", "application/json"));
        }
        self.world.send(method, path, &headers, body).await
    }

    pub(crate) async fn acquire(
        &self,
        seed: u8,
        lock: &str,
        namespace: &str,
        owner: &str,
    ) -> Reply {
        let body = format!(r#"{{"owner_id":"{owner}","ttl_ms":30000}}"#);
        let path = format!("/v1/locks/{lock}/acquire?namespace={namespace}");
        self.ask(seed, "POST", &path, Some(&body)).await
    }
}

/// An answer without what differs each time.
fn bare(reply: &Reply) -> (u16, String) {
    let id = reply.header("x-request-id").unwrap();
    (reply.status, reply.text.replace(id, "ID"))
}

/// Attacks 1 and 3 to 5.
#[tokio::test]
async fn nothing_is_answered_without_one_good_credential() {
    let doors = Doors::start().await;
    let world = &doors.world;
    for path in
        ["/v1/locks", "/metrics", "/v1/cluster", "/healthz", "/readyz?verbose", "/lock", "/no/such"]
    {
        let refused = world.get(path).await;
        assert_eq!(refused.status, 401, "{path}");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"), "{path}");
        refused.problem("unauthenticated");
    }
    for path in ["/livez", "/readyz", "/openapi.json", "/v1/version", "/"] {
        assert_eq!(world.get(path).await.status, 200, "{path}");
    }
    // Before the body: it never comes.
    let mut stream = world.connect().await;
    let head =
        "POST /v1/locks/a/acquire HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
    let good = format!("Bearer {}", token(ADMIN).reveal());
    let long = format!("Bearer {}", "x".repeat(10 * 1024));
    for bad in ["Basic YTpi", "Bearer", "Bearer lk_", long.as_str(), &good.replace("lk_", "lk-")] {
        let refused = world.send("GET", "/v1/locks", &[("authorization", bad)], None).await;
        assert_eq!(refused.status, 401, "{bad}");
        assert_eq!(
            refused.problem("unauthenticated")["detail"],
            world.get("/v1/locks").await.json()["detail"]
        );
    }
    let twice = [("authorization", good.as_str()), ("authorization", good.as_str())];
    world.send("GET", "/v1/locks", &twice, None).await.problem("invalid_request");
    for query in ["token=lk_x", "access_token=lk_x", "a=1&t%6fken=lk_x"] {
        let path = format!("/v1/locks?{query}");
        let refused = world.send("GET", &path, &twice[..1], None).await;
        assert!(!refused.text.contains("lk_x"), "{refused:?}");
        refused.problem("invalid_request");
    }
    assert_eq!(doors.ask(ADMIN, "GET", "/v1/locks", None).await.status, 200);
    doors.ask(ADMIN, "GET", "/no/such", None).await.problem("not_found");
}

/// Attack 10.
#[tokio::test]
async fn whoever_guesses_has_to_wait_and_whoever_knows_does_not() {
    let doors = Doors::start().await;
    let guess = format!("Bearer {}", token(99).reveal());
    for _ in 0..10 {
        let refused =
            doors.world.send("GET", "/v1/locks", &[("authorization", &guess)], None).await;
        refused.problem("unauthenticated");
    }
    let refused = doors.world.send("GET", "/v1/locks", &[("authorization", &guess)], None).await;
    refused.problem("rate_limited");
    assert!(refused.header("retry-after").is_some());
    assert_eq!(doors.ask(ADMIN, "GET", "/v1/locks", None).await.status, 200);
}

/// Attacks 20 to 25, and 38.
#[tokio::test]
async fn what_is_not_allowed_is_refused_before_anything_is_looked_up() {
    let doors = Doors::start().await;
    assert_eq!(doors.acquire(ADMIN, "held", "default", "a").await.status, 200);
    let free = bare(&doors.acquire(BILLING, "held", "default", "b").await);
    assert_eq!(free.0, 403);
    let text = free.1.replace("held", "LOCK");
    for (lock, namespace) in [("free", "default"), ("held", "nowhere")] {
        let (status, other) = bare(&doors.acquire(BILLING, lock, namespace, "b").await);
        let other = other.replace(lock, "LOCK").replace("nowhere", "default");
        assert_eq!((status, other), (403, text.clone()));
    }
    for path in [
        "/v1/locks/held",
        "/v1/locks",
        "/v1/graph",
        "/v1/watch",
        "/v1/events",
        "/v1/tree",
        "/v1/history",
        "/v1/overview",
    ] {
        let refused = doors.ask(BILLING, "GET", path, None).await;
        assert_eq!(refused.problem("permission_denied")["status"], 403, "{path}");
    }
    assert_eq!(doors.acquire(BILLING, "held", "billing", "b").await.status, 200);
    for path in ["/metrics", "/v1/cluster", "/v1/limits", "/healthz", "/readyz?verbose"] {
        doors.ask(BILLING, "GET", path, None).await.problem("permission_denied");
        assert_eq!(doors.ask(ADMIN, "GET", path, None).await.status, 200, "{path}");
    }
    for (lock, status) in [
        ("app1/x", 200),
        ("app10/x", 403),
        ("app1", 403),
        ("APP1/x", 403),
        ("app1%2Fy", 200),
        ("app1%2F..%2Fapp2", 400),
    ] {
        let reply = doors.acquire(APP1, lock, "default", "w").await;
        assert_eq!(reply.status, status, "{lock}: {reply:?}");
    }
    for (lock, status) in
        [("path:%2F**", 403), ("path:%2Fa", 200), ("path:%2Fa%2Fb%2F**", 409), ("path:%2Fab", 403)]
    {
        let reply = doors.acquire(FILES, lock, "default", lock).await;
        assert!(
            reply.status == status || (status == 409 && reply.status == 200),
            "{lock}: {reply:?}"
        );
    }
    let set = r#"{"owner_id":"w","ttl_ms":30000,"locks":[{"lock":"app1/s"},{"lock":"secret"}]}"#;
    doors.ask(APP1, "POST", "/v1/sets/acquire", Some(set)).await.problem("permission_denied");
    let free = doors.ask(ADMIN, "GET", "/v1/locks/app1%2Fs", None).await.ok();
    assert_eq!(free["state"], "free", "nothing of the set is held");
    for (path, status) in [
        ("/v1/locks/a/acquire?namespac%65=billing", 200),
        ("/v1/locks/a/acquire?namespace=billing&namespace=default", 400),
        ("/v1/locks/a/acquire?namespace=default&namespac%65=billing", 400),
        ("/v1/locks/a/acquire?namespace=leasehold.simple", 403),
    ] {
        let reply =
            doors.ask(BILLING, "POST", path, Some(r#"{"owner_id":"q","ttl_ms":30000}"#)).await;
        assert_eq!(reply.status, status, "{path}: {reply:?}");
    }
}

/// Attacks 26 to 29, and 39.
#[tokio::test]
async fn what_belongs_to_another_principal_is_not_there() {
    let doors = Doors::start().await;
    let held = doors.acquire(BILLING, "a", "billing", "same").await.ok();
    let (lease, fence) =
        (held["lease_id"].as_str().unwrap(), held["fencing_token"].as_u64().unwrap());
    doors.acquire(OTHER, "a", "billing", "same").await.problem("lock_held");
    let body = format!(r#"{{"owner_id":"same","lease_id":"{lease}","fencing_token":{fence}}}"#);
    for verb in ["renew", "release"] {
        let path = format!("/v1/locks/a/{verb}?namespace=billing");
        assert_eq!(doors.ask(OTHER, "POST", &path, Some(&body)).await.status, 409, "{verb}");
    }
    let session = format!("/v1/sessions/{lease}?namespace=billing");
    for method in ["GET", "DELETE"] {
        doors.ask(OTHER, method, &session, None).await.problem("session_not_found");
    }
    let renewed =
        doors.ask(BILLING, "POST", "/v1/locks/a/renew?namespace=billing", Some(&body)).await;
    assert_eq!(renewed.status, 200);
    for (method, path) in [
        ("GET", "/v1/locks/a"),
        ("POST", "/v1/locks/a/break"),
        ("DELETE", "/v1/inodes/1"),
        ("GET", "/v1/fences/f"),
        ("DELETE", "/v1/fences/f"),
        ("POST", "/v1/sessions/1/break"),
        ("GET", "/lock"),
    ] {
        let body = (method != "GET").then_some(r#"{"reason":"because"}"#);
        let body = if path.starts_with("/v1/inodes") { None } else { body };
        doors.ask(NOBODY, method, path, body).await.problem("permission_denied");
    }
}

/// Attacks 7, 8 and 57.
#[tokio::test]
async fn token_that_is_taken_out_of_the_file_is_refused_and_its_wait_ends() {
    let doors = Doors::start().await;
    assert_eq!(doors.acquire(ADMIN, "a", "billing", "first").await.status, 200);
    let bearer = format!("Bearer {}", token(BILLING).reveal());
    let body = r#"{"owner_id":"w","ttl_ms":30000,"wait_ms":30000}"#;
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let waiting =
        doors.world.send("POST", "/v1/locks/a/acquire?namespace=billing", &headers, Some(body));
    let watching = doors.world.send("GET", "/v1/watch?namespace=billing", &headers[..1], None);
    let polling =
        doors.world.send("GET", "/v1/events?namespace=billing&wait_ms=30000", &headers[..1], None);
    let revoking = async {
        let waiters =
            async || doors.ask(ADMIN, "GET", "/v1/cluster", None).await.ok()["waiters"] == 1;
        eventually("it waits", waiters).await;
        // What is not right changes nothing.
        write(&doors.file, "[role.x]\nrules = [{ verbs = [\"fly\"] }]\n");
        doors.world.server.reload();
        let mut left = ALL.to_vec();
        left.retain(|(seed, ..)| *seed != BILLING);
        assert_eq!(
            doors.ask(BILLING, "GET", "/v1/locks?namespace=billing", None).await.status,
            200
        );
        write(&doors.file, &access_file(&left));
        doors.world.server.reload();
    };
    let (waited, watched, polled, ()) = tokio::join!(waiting, watching, polling, revoking);
    waited.problem("unauthenticated");
    assert_eq!(watched.status, 200, "it had begun, and ended");
    polled.problem("unauthenticated");
    doors.ask(BILLING, "GET", "/v1/locks?namespace=billing", None).await.problem("unauthenticated");
}

impl Doors {
    /// As somebody with this bearer token.
    pub(crate) async fn by(
        &self,
        bearer: &str,
        method: &str,
        path: &str,
        body: Option<&str>,
    ) -> Reply {
        let bearer = format!("Bearer {bearer}");
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        self.world.send(method, path, &headers, body).await
    }
}

#[tokio::test]
async fn tokens_are_made_narrowed_rotated_and_revoked() {
    let doors = Doors::start().await;
    let who = doors.ask(BILLING, "GET", "/v1/auth/self", None).await.ok();
    assert_eq!(
        (&who["principal"], &who["roles"][0]),
        (&"billing".into(), &"client:billing".into())
    );
    let asked = r#"{"principal":"alice","roles":["client:alice"],"note":"laptop"}"#;
    doors.ask(BILLING, "POST", "/v1/auth/tokens", Some(asked)).await.problem("permission_denied");
    let made = doors.ask(ADMIN, "POST", "/v1/auth/tokens", Some(asked)).await;
    assert_eq!(made.header("cache-control"), Some("no-store"));
    let made = made.ok();
    let (id, alice) = (made["id"].as_str().unwrap(), made["token"].as_str().unwrap());
    assert!(made["expires_at"].is_string() && made["created_by"] == "root");
    let lock = r#"{"owner_id":"a","ttl_ms":30000}"#;
    let path = "/v1/locks/x/acquire?namespace=alice";
    assert_eq!(doors.by(alice, "POST", path, Some(lock)).await.status, 200);
    let list = doors.ask(ADMIN, "GET", "/v1/auth/tokens", None).await;
    assert!(
        !list.text.contains("sha256") && !list.text.contains(&alice[17..]),
        "no secret, no hash"
    );
    assert_eq!(list.json()["tokens"].as_array().unwrap().len(), ALL.len() + 1);

    // One that may only read one lock of it, and nothing that it could not do before.
    let narrow =
        r#"{"ttl_ms":60000,"rules":[{"verbs":["read"],"namespace":"alice","names":["x"]}]}"#;
    let narrow = doors.by(alice, "POST", "/v1/auth/tokens", Some(narrow)).await.ok();
    let small = narrow["token"].as_str().unwrap();
    assert_eq!(narrow["parent"], id);
    assert_eq!(doors.by(small, "GET", "/v1/locks/x?namespace=alice", None).await.status, 200);
    doors.by(small, "GET", "/v1/locks/y?namespace=alice", None).await.problem("permission_denied");
    doors.by(small, "POST", path, Some(lock)).await.problem("permission_denied");
    doors.by(small, "POST", "/v1/auth/tokens", Some("{}")).await.problem("permission_denied");
    for wider in [r#"{"roles":["admin"]}"#, r#"{"ttl_ms":99999999999}"#] {
        doors.by(alice, "POST", "/v1/auth/tokens", Some(wider)).await.problem("permission_denied");
    }

    let rotate = format!("/v1/auth/tokens/{id}/rotate");
    let rotated = doors.ask(ADMIN, "POST", &rotate, Some(r#"{"overlap_ms":60000}"#)).await.ok();
    let next = rotated["token"].as_str().unwrap();
    for good in [alice, next] {
        let own = doors.by(good, "GET", "/v1/auth/self", None).await.ok();
        assert_eq!(own["principal"], "alice");
    }
    let gone = doors.ask(ADMIN, "DELETE", &format!("/v1/auth/tokens/{id}"), None).await.ok();
    assert_eq!(gone["revoked"], true);
    // With it goes what was made of it; what was rotated stays.
    for bad in [alice, small] {
        doors.by(bad, "GET", "/v1/auth/self", None).await.problem("unauthenticated");
    }
    assert_eq!(doors.by(next, "GET", "/v1/auth/self", None).await.status, 200);
    doors.ask(ADMIN, "DELETE", &format!("/v1/auth/tokens/{id}"), None).await.problem("not_found");
    let in_file = format!("/v1/auth/tokens/{}", token(BILLING).id());
    doors.ask(ADMIN, "DELETE", &in_file, None).await.problem("invalid_request");
    for path in ["/v1/auth/tokens", "/v1/auth/roles", "/v1/auth/roles/admin"] {
        doors.ask(BILLING, "GET", path, None).await.problem("permission_denied");
    }
}

/// Attacks 34 and 58.
#[tokio::test]
async fn role_that_is_changed_counts_at_once_and_one_of_two_admins_is_refused() {
    let doors = Doors::start().await;
    let role =
        r#"{"rules":[{"verbs":["read","watch","acquire"],"namespace":"ops","names":["*"]}]}"#;
    let made = doors.ask(ADMIN, "PUT", "/v1/auth/roles/ops", Some(role)).await;
    let version = made.header("etag").unwrap().to_string();
    assert_eq!(made.ok()["source"], "store");
    let asked = r#"{"principal":"bob","roles":["ops"]}"#;
    let made = doors.ask(ADMIN, "POST", "/v1/auth/tokens", Some(asked)).await.ok();
    let bob = made["token"].as_str().unwrap();
    let test = r#"{"principal":"bob","verb":"acquire","namespace":"ops","lock":"a"}"#;
    let tested = doors.ask(ADMIN, "POST", "/v1/auth/test", Some(test)).await.ok();
    assert_eq!((&tested["allowed"], &tested["by"]), (&true.into(), &"rule 1 of role ops".into()));

    let bearer = format!("Bearer {bob}");
    let headers = [("authorization", bearer.as_str())];
    let watching =
        doors.world.send("GET", "/v1/events?namespace=ops&wait_ms=30000", &headers, None);
    let less = r#"{"rules":[{"verbs":["acquire"],"namespace":"ops","names":["*"]}]}"#;
    let admin = format!("Bearer {}", token(ADMIN).reveal());
    let put = |version: String| {
        let (admin, doors) = (admin.clone(), &doors);
        async move {
            let headers = [
                ("authorization", admin.as_str()),
                ("content-type", "application/json"),
                ("if-match", version.as_str()),
            ];
            doors.world.send("PUT", "/v1/auth/roles/ops", &headers, Some(less)).await.status
        }
    };
    let both = async { tokio::join!(put(version.clone()), put(version.clone())) };
    let (watched, (one, other)) = tokio::join!(watching, both);
    assert_eq!([one.min(other), one.max(other)], [200, 412]);
    watched.problem("permission_denied");
    doors.by(bob, "GET", "/v1/watch?namespace=ops", None).await.problem("permission_denied");
    let lock = r#"{"owner_id":"a","ttl_ms":30000}"#;
    assert_eq!(
        doors.by(bob, "POST", "/v1/locks/a/acquire?namespace=ops", Some(lock)).await.status,
        200
    );
    for wrong in [r#"{"rules":[{"verbs":["fly"]}]}"#, r#"{"rulez":[]}"#, "{}"] {
        doors.ask(ADMIN, "PUT", "/v1/auth/roles/ops", Some(wrong)).await.problem("invalid_request");
    }
    for fixed in ["admin", "app1"] {
        let path = format!("/v1/auth/roles/{fixed}");
        doors.ask(ADMIN, "PUT", &path, Some(role)).await.problem("invalid_request");
    }
    assert_eq!(doors.ask(ADMIN, "DELETE", "/v1/auth/roles/ops", None).await.ok()["deleted"], true);
    doors
        .by(bob, "POST", "/v1/locks/b/acquire?namespace=ops", Some(lock))
        .await
        .problem("permission_denied");
}

/// Attacks 31, 32, 35 and 37.
#[tokio::test]
async fn what_may_not_be_seen_is_in_no_answer() {
    let doors = Doors::start().await;
    let role = r#"{"rules":[{"verbs":["read","watch","acquire"],"namespace":"default","names":["b/"],"paths":["/b/**"]}]}"#;
    doors.ask(ADMIN, "PUT", "/v1/auth/roles/bees", Some(role)).await.ok();
    let asked = r#"{"principal":"bee","roles":["bees"]}"#;
    let made = doors.ask(ADMIN, "POST", "/v1/auth/tokens", Some(asked)).await.ok();
    let bee = made["token"].as_str().unwrap();
    for lock in ["a/secret", "a/hidden", "b/1", "b/2", "z/secret", "path:%2F**"] {
        assert_eq!(doors.acquire(ADMIN, lock, "default", "topsecret").await.status, 200, "{lock}");
    }
    let mut names = Vec::new();
    let mut path = "/v1/locks?page_size=1".to_string();
    loop {
        let reply = doors.by(bee, "GET", &path, None).await;
        assert_eq!(reply.header("leasehold-filtered"), Some("true"));
        let page = reply.ok();
        assert_eq!(page["filtered"], true);
        names.extend(page["locks"].as_array().unwrap().iter().map(|lock| lock["lock"].clone()));
        let Some(next) = page["next_page_token"].as_str() else { break };
        let decoded: Vec<u8> = (0..next.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&next[at..at + 2], 16).unwrap())
            .collect();
        let decoded = String::from_utf8(decoded).unwrap();
        assert!(!decoded.contains("secret") && !decoded.contains("hidden"), "{decoded}");
        path = format!("/v1/locks?page_size=1&page_token={next}");
    }
    assert_eq!(names, ["b/1", "b/2"]);
    let start = doors.ask(ADMIN, "GET", "/v1/history", None).await.ok()["events_after"].clone();
    let events = format!("/v1/events?after={start}");
    let forged: String = "0 a/hidden".bytes().map(|byte| format!("{byte:02x}")).collect();
    let refused = doors.by(bee, "GET", &format!("/v1/locks?page_token={forged}"), None).await;
    refused.problem("invalid_request");

    let lock = r#"{"owner_id":"w","ttl_ms":30000}"#;
    let refused = doors.by(bee, "POST", "/v1/locks/path:%2Fb%2Fx/acquire", Some(lock)).await;
    let problem = refused.problem("lock_held");
    let holder = &problem["holders"][0];
    assert_eq!((&holder["hidden"], &holder["mode"]), (&true.into(), &"exclusive".into()));
    assert!(problem.get("current_owner_id").is_none());
    assert!(!refused.text.contains("topsecret") && !refused.text.contains("/**"), "{refused:?}");
    for path in ["/v1/graph", "/v1/history", "/v1/sessions", "/v1/locks/b%2F1", &events] {
        let told = doors.by(bee, "GET", path, None).await;
        assert_eq!(told.status, 200, "{path}: {told:?}");
        for word in ["a/secret", "hidden\"", "z/secret", "path:/**"] {
            assert!(!told.text.contains(word), "{path}: {told:?}");
        }
    }
    for path in ["/v1/tree", "/v1/overview"] {
        doors.by(bee, "GET", path, None).await.problem("permission_denied");
    }
    let fence =
        doors.ask(ADMIN, "GET", "/v1/locks/a%2Fsecret", None).await.ok()["last_fencing_token"]
            .clone();
    let unknown = doors.by(bee, "GET", "/v1/tokens/999999999", None).await;
    let of_other = doors.by(bee, "GET", &format!("/v1/tokens/{fence}"), None).await;
    assert_eq!((unknown.status, of_other.status), (404, 404));
}

/// Attack 59.
#[tokio::test]
async fn last_administrator_is_not_removed_by_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let bootstrap = folder.path().join("token");
    std::fs::write(&bootstrap, token(ADMIN).reveal()).unwrap();
    let auth = AuthConfig {
        enabled: true,
        bootstrap_token_file: Some(bootstrap),
        ..AuthConfig::default()
    };
    let world = World::with(Config { auth, ..config() }).await;
    let doors = Doors { world, file: PathBuf::new(), _folder: folder };
    let own = doors.ask(ADMIN, "GET", "/v1/auth/self", None).await.ok();
    assert_eq!(own["principal"], "root");
    let path = format!("/v1/auth/tokens/{}", token(ADMIN).id());
    doors.ask(ADMIN, "DELETE", &path, None).await.problem("permission_denied");
    assert_eq!(doors.ask(ADMIN, "DELETE", &format!("{path}?force=true"), None).await.status, 200);
    doors.ask(ADMIN, "GET", "/v1/auth/self", None).await.problem("unauthenticated");
}
