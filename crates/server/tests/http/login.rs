//! The console's way in: a cookie that only its own pages can use, and that dies with its token.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::Pair;
use crate::polling::eventually;
use crate::world::{Reply, World};

const JSON: (&str, &str) = ("content-type", "application/json");
const OWN: (&str, &str) = ("sec-fetch-site", "same-origin");

async fn login(world: &World, token: &str, more: &[(&str, &str)]) -> Reply {
    let body = json!({ "token": token }).to_string();
    let headers: Vec<_> = [JSON].iter().chain(more).copied().collect();
    world.send("POST", "/v1/auth/login", &headers, Some(&body)).await
}

/// Name and value, as a browser sends them back.
fn cookie(reply: &Reply) -> String {
    reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

/// A request of a page with a session.
async fn page(
    world: &World,
    method: &str,
    path: &str,
    cookie: &str,
    more: &[(&str, &str)],
) -> Reply {
    let mut headers = vec![("cookie", cookie)];
    headers.extend(more);
    let body = (method == "POST").then_some(r#"{"reason":"test"}"#);
    if body.is_some() {
        headers.push(JSON);
    }
    world.send(method, path, &headers, body).await
}

/// Attack 47, and what else a page may not do.
#[tokio::test]
async fn session_is_for_the_pages_of_the_console_alone() {
    let pair = Pair::start().await;
    let world = &pair.leader;
    let (operator, _) = pair.token("alice", "operator").await;
    let (billing, _) = pair.token("billing", "client:billing").await;
    // Logging in.
    for foreign in [("origin", "http://evil.example"), ("sec-fetch-site", "cross-site")] {
        assert_eq!(login(world, &operator, &[foreign]).await.status, 403, "{foreign:?}");
    }
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let asked = world.send("POST", "/v1/auth/login", &form, Some("token=x")).await;
    assert_eq!(asked.status, 415, "{asked:?}");
    login(world, "lk_x", &[]).await.problem("unauthenticated");
    // Without the verb `console`.
    login(world, &billing, &[]).await.problem("permission_denied");
    let logged_in = login(world, &operator, &[("origin", "http://localhost")]).await;
    let who = logged_in.ok();
    assert_eq!((&who["principal"], &who["credential"]), (&"alice".into(), &"console".into()));
    let set = logged_in.header("set-cookie").unwrap();
    for part in ["leasehold=v1.", "; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age=43200"]
    {
        assert!(set.contains(part), "{set}");
    }
    assert!(!logged_in.text.contains(&operator) && !set.contains(&operator));
    let (session, csrf) = (cookie(&logged_in), who["csrf"].as_str().unwrap().to_owned());
    let csrf = ("x-leasehold-csrf", csrf.as_str());
    // Over HTTPS, as the browser says.
    let secure = login(world, &operator, &[("origin", "https://localhost")]).await;
    let set = secure.header("set-cookie").unwrap();
    assert!(set.starts_with("__Host-leasehold=v1.") && set.contains("; Secure"), "{set}");
    page(world, "GET", "/v1/auth/self", &cookie(&secure), &[OWN]).await.ok();
    // Reading.
    page(world, "GET", "/v1/locks", &session, &[OWN]).await.ok();
    page(world, "GET", "/v1/locks", &session, &[("origin", "http://localhost")]).await.ok();
    for foreign in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "none"),
    ] {
        for method in ["GET", "POST"] {
            let path = if method == "GET" { "/v1/locks" } else { "/v1/locks/x/break" };
            let refused = page(world, method, path, &session, &[foreign, csrf]).await;
            assert_eq!(refused.status, 401, "{method} {foreign:?}: {refused:?}");
        }
    }
    assert_eq!(page(world, "GET", "/v1/locks", &session, &[]).await.status, 401);
    // Changing.
    for wrong in [("x-leasehold-csrf", ""), ("x-leasehold-csrf", "00"), ("x-other", "")] {
        let refused = page(world, "POST", "/v1/locks/x/break", &session, &[OWN, wrong]).await;
        assert_eq!(refused.status, 403, "{wrong:?}: {refused:?}");
    }
    page(world, "POST", "/v1/locks/x/break", &session, &[OWN, csrf]).await.ok();
    let text = [("cookie", session.as_str()), OWN, csrf, ("content-type", "text/plain")];
    let refused = world.send("POST", "/v1/locks/x/break", &text, Some(r#"{"reason":"x"}"#)).await;
    assert_eq!(refused.status, 415, "{refused:?}");
    // With a token beside it, or changed.
    let bearer = format!("Bearer {operator}");
    let both = page(world, "GET", "/v1/locks", &session, &[OWN, ("authorization", &bearer)]).await;
    assert_eq!(both.status, 400, "{both:?}");
    for at in [12, session.len() / 2, session.len() - 1] {
        let other = if session.as_bytes()[at] == b'A' { "B" } else { "A" };
        let mut changed = session.clone();
        changed.replace_range(at..=at, other);
        assert_eq!(page(world, "GET", "/v1/locks", &changed, &[OWN]).await.status, 401, "{at}");
    }
    // The page itself comes with any cookie, and so does the way in.
    assert_eq!(page(world, "GET", "/", "leasehold=v1.x.y", &[]).await.status, 200);
    let out = page(world, "POST", "/v1/auth/logout", &session, &[OWN, csrf]).await;
    assert!(
        out.header("set-cookie").unwrap().starts_with("leasehold=; Path=/; Max-Age=0"),
        "{out:?}"
    );
}

/// Attack 49, at both servers of a cluster.
#[tokio::test]
async fn session_is_good_everywhere_and_dies_with_its_token() {
    let pair = Pair::start().await;
    let (operator, id) = pair.token("alice", "operator").await;
    let session = cookie(&login(&pair.leader, &operator, &[]).await);
    for world in [&pair.leader, &pair.follower] {
        eventually("it is known", async || {
            page(world, "GET", "/v1/locks", &session, &[OWN]).await.status == 200
        })
        .await;
    }
    pair.revoke(&pair.leader, &id).await;
    tokio::time::timeout(Duration::from_secs(1), async {
        for world in [&pair.leader, &pair.follower] {
            eventually("it is over", async || {
                page(world, "GET", "/v1/locks", &session, &[OWN]).await.status == 401
            })
            .await;
        }
    })
    .await
    .expect("it is over within a second");
}

/// Attack 48; that it is over after a minute is tested where the time can be chosen.
#[tokio::test]
async fn code_is_good_once_at_any_server() {
    let pair = Pair::start().await;
    let (operator, _) = pair.token("alice", "operator").await;
    let (billing, _) = pair.token("billing", "client:billing").await;
    let exchange = "/v1/auth/exchange";
    pair.ask(&pair.leader, &billing, "POST", exchange, None).await.problem("permission_denied");
    pair.leader.send("POST", exchange, &[], None).await.problem("unauthenticated");
    let made = pair.ask(&pair.leader, &operator, "POST", exchange, None).await.ok();
    assert_eq!(made["expires_in_ms"], 60_000);
    let code = made["code"].as_str().unwrap();
    assert!(code.starts_with("lkc_") && code != operator);
    let show = async |world: &World, code: &str| {
        let body = json!({ "code": code }).to_string();
        world.send("POST", exchange, &[JSON, OWN], Some(&body)).await
    };
    show(&pair.follower, "lkc_x").await.problem("unauthenticated");
    let mut wrong = code.to_owned();
    let other = if wrong.ends_with('0') { "1" } else { "0" };
    wrong.replace_range(wrong.len() - 1.., other);
    show(&pair.follower, &wrong).await.problem("unauthenticated");
    let logged_in = show(&pair.follower, code).await;
    assert_eq!(logged_in.ok()["principal"], "alice");
    for world in [&pair.leader, &pair.follower] {
        show(world, code).await.problem("unauthenticated");
    }
    page(&pair.leader, "GET", "/v1/locks", &cookie(&logged_in), &[OWN]).await.ok();
}

#[tokio::test]
async fn every_answer_tells_a_browser_what_it_may_do_with_it() {
    let world = World::start().await;
    for path in ["/", "/console/app.js", "/v1/locks", "/metrics", "/no/such"] {
        let reply = world.get(path).await;
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{path}");
        }
        let is_file = path == "/" || path.starts_with("/console/");
        let cache = if is_file { "no-cache" } else { "no-store" };
        assert_eq!(reply.header("cache-control"), Some(cache), "{path}");
    }
    let policy = world.get("/").await.header("content-security-policy").unwrap().to_owned();
    assert_eq!(
        policy,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src 'self' data:; worker-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'; require-trusted-types-for 'script'"
    );
    // Without authentication nobody logs in, and nothing is asked.
    let body = json!({ "token": "x" }).to_string();
    let refused = world.send("POST", "/v1/auth/login", &[JSON], Some(&body)).await;
    refused.problem("invalid_request");
    let who: Value = world.get("/v1/auth/self").await.ok();
    assert_eq!((&who["principal"], &who["credential"]), (&"anonymous".into(), &"none".into()));
}
