//! The console in a real browser: what it shows is what is, and it shows nothing else.

mod console {
    pub(crate) mod scene;
}

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use console::scene::{Scene, acquire, hold};
use leasehold_e2e::browser::{Browser, Colours};
use leasehold_e2e::client::Http;
use leasehold_e2e::server::Server;
use serde_json::{Value, json};

/// Whether the page says that it is live.
const IS_LIVE: &str = "return document.querySelector('[data-live]')?.dataset.live === 'live'";

fn url(server: &Server, hash: &str) -> String {
    format!("http://{}/#{hash}", server.address())
}

/// A script that says whether the list has a row for this lock.
fn has_row(lock: &str) -> String {
    let lock = Value::from(lock);
    format!(
        "return [...document.querySelectorAll('[data-row]')].some((row) => row.dataset.lock === {lock})"
    )
}

async fn nothing_to_complain(browser: &mut Browser) -> Result<()> {
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
    Ok(())
}

#[tokio::test]
async fn lock_comes_counts_down_and_goes_without_a_reload() -> Result<()> {
    let server = Server::start_with(&["--store", "memory"]).await?;
    let mut http = Http::new(server.address());
    let mut browser = Browser::start().await?;
    browser.open(&url(&server, "/overview")).await?;
    // Nothing is there yet: the page says how to begin.
    browser.wait_for_text("Nothing has been locked yet").await?;
    browser.open(&url(&server, "/locks")).await?;
    browser.wait_for("live", IS_LIVE).await?;
    browser.run("window.isTheSamePage = true").await?;

    let grant =
        acquire(&mut http, "job/nightly", &json!({ "owner_id": "worker-a", "ttl_ms": 60_000 }))
            .await?;
    browser.wait_for("the row", &has_row("job/nightly")).await?;
    browser.wait_for_text("worker-a").await?;
    let left = "return parseFloat(document.querySelector('[data-row] [data-until]').textContent)";
    let first = browser.run(left).await?.as_f64().context("a number")?;
    ensure!((1.0..=60.0).contains(&first), "{first}");

    let script = format!("return (() => {{ {left} }})() < {}", first - 0.9);
    browser.wait_for("the countdown falls", &script).await?;

    let release = json!({ "owner_id": "worker-a", "lease_id": grant["lease_id"], "fencing_token": grant["fencing_token"] });
    let released = http.post("/v1/locks/job/nightly/release", &release).await?;
    ensure!(released.status == 200);
    browser
        .wait_for("no row", &format!("return !(() => {{ {} }})()", has_row("job/nightly")))
        .await?;
    ensure!(browser.run("return window.isTheSamePage").await? == true, "the page was loaded again");
    nothing_to_complain(&mut browser).await
}

#[tokio::test]
async fn name_that_looks_like_markup_is_only_text() -> Result<()> {
    const NAME: &str = "<img src=x onerror=\"document.title='owned'\">";
    let server = Server::start_with(&["--store", "memory"]).await?;
    let mut http = Http::new(server.address());
    let body = json!({ "owner_id": "<b>bold</b>", "ttl_ms": 60_000, "metadata": { "<i>": "<script>document.title='owned'</script>" } });
    acquire(&mut http, NAME, &body).await?;
    let mut browser = Browser::start().await?;
    for page in ["/locks", "/overview", "/events", &format!("/lock?name={}", hash_of(NAME))] {
        browser.open(&url(&server, page)).await?;
        browser.wait_for_text("<img src=x onerror=").await?;
        browser.wait_for_text("<b>bold</b>").await?;
        let found = browser.run("return [document.querySelectorAll('#page img, #page b b, #page i, #page script').length, document.title]").await?;
        ensure!(found[0] == 0, "{page}: markup was made of a name");
        ensure!(found[1].as_str().is_some_and(|title| !title.starts_with("owned")), "{found}");
    }
    nothing_to_complain(&mut browser).await
}

/// A name as it is written into an address.
fn hash_of(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[tokio::test]
async fn break_wants_the_name_and_a_reason() -> Result<()> {
    let server = Server::start_with(&["--store", "memory"]).await?;
    let mut http = Http::new(server.address());
    acquire(&mut http, "db/migrate", &json!({ "owner_id": "worker-a", "ttl_ms": 60_000 })).await?;
    let mut browser = Browser::start().await?;
    browser.open(&url(&server, "/lock?name=db/migrate")).await?;
    browser.click(".page-head .danger").await?;
    let is_barred = "return document.querySelector('dialog button[type=submit]').disabled";
    ensure!(browser.run(is_barred).await? == true, "it can be done without asking");
    browser.type_into("dialog input[name=reason]", "the host is gone").await?;
    browser.type_into("dialog input[name=word]", "db/migrat").await?;
    ensure!(browser.run(is_barred).await? == true, "another name will do");
    ensure!(state_of(&mut http, "db/migrate").await? == "held");
    browser.type_into("dialog input[name=word]", "e").await?;
    browser
        .wait_for(
            "the button",
            "return !document.querySelector('dialog button[type=submit]').disabled",
        )
        .await?;
    browser.click("dialog button[type=submit]").await?;
    browser.wait_for_text("The next request is granted.").await?;
    ensure!(state_of(&mut http, "db/migrate").await? == "free");
    // The timeline remembers it, with its token and the reason.
    browser.click("details summary").await?;
    browser.wait_for_text("the host is gone").await?;
    browser.wait_for_text("revoked").await?;
    nothing_to_complain(&mut browser).await
}

/// Every way to ask for this lock from a program names it, the server and the namespace.
#[tokio::test]
async fn lock_can_be_copied_for_every_sdk() -> Result<()> {
    let server = Server::start_with(&["--store", "memory"]).await?;
    let mut browser = Browser::start().await?;
    let said = "return [...document.querySelectorAll('[role=tab]')].map((tab) => tab.textContent)";
    for (how, calls) in [
        ("Rust", ".lock(\"job/it's\")"),
        ("Python", "client.lock(\"job/it's\", ttl=30, wait=10)"),
        ("Go", "c.Lock(\"job/it's\", leasehold.TTL(30*time.Second)"),
        ("TypeScript", "client.lock(\"job/it's\", { ttl: \"30s\", wait: \"10s\" }).run("),
    ] {
        let page = format!("/lock?name={}&how={how}&ns=team", hash_of("job/it's"));
        browser.open(&url(&server, &page)).await?;
        browser.wait_for_text(calls).await?;
        browser.wait_for_text(&format!("\"http://{}\"", server.address())).await?;
        browser.wait_for_text("\"team\"").await?;
        let tabs = browser.run(said).await?;
        ensure!(tabs == json!(["curl", "CLI", "Rust", "Python", "Go", "TypeScript"]), "{tabs}");
    }
    nothing_to_complain(&mut browser).await
}

async fn state_of(http: &mut Http, lock: &str) -> Result<String> {
    let lock: Value = http.get(&format!("/v1/locks/{lock}")).await?.json()?;
    Ok(lock["state"].as_str().unwrap_or_default().to_string())
}

#[tokio::test]
async fn cross_wait_is_drawn_as_a_red_circle_with_both_names() -> Result<()> {
    let server = Server::start_with(&["--store", "memory"]).await?;
    let mut browser = Browser::start().await?;
    browser.open(&url(&server, "/graph")).await?;
    browser.wait_for_text("No waiters.").await?;
    browser.wait_for("live", IS_LIVE).await?;
    let scene = Scene::cross_wait(&server).await?;
    // In the live graph: both owners and both locks are red, and the victim is named.
    let red = "const red = [...document.querySelectorAll('.node.bad')].map((node) => node.dataset.node).sort().join(' ');
        return red === 'lock:billing/close lock:db/migrate owner:worker-a owner:worker-b' && red";
    browser.wait_for("the red circle", red).await?;
    browser.wait_for("the victim", "return document.querySelector('.victim')?.parentNode.dataset.node === 'owner:worker-b'").await?;
    browser
        .wait_for(
            "the refused edge",
            "return document.querySelector('.edge-refused text')?.textContent.startsWith('refused')",
        )
        .await?;
    browser
        .wait_for(
            "the wait in seconds",
            r"return /waits \d+\.\d s/.test(document.querySelector('.edge-waits text').textContent)",
        )
        .await?;
    let colour = "return getComputedStyle(document.querySelector('.node.bad .box')).stroke";
    let [plain, bad] = [colour.replace(".node.bad .box", ".legend-box"), colour.to_string()];
    ensure!(browser.run(&plain).await? != browser.run(&bad).await?, "bad looks like good");
    // Afterwards, as a snapshot, step by step.
    drop(scene);
    browser.click(".deadlock-line a.button").await?;
    browser.wait_for_text("Deadlock of").await?;
    for text in ["worker-a", "worker-b", "VICTIM", "asked, was refused", "with token #"] {
        let found =
            format!("return document.getElementById('page').textContent.includes('{text}')");
        browser.wait_for(text, &found).await?;
    }
    let address = browser.run("return location.hash").await?;
    ensure!(address.as_str().is_some_and(|hash| hash.contains("deadlock=")), "{address}");
    browser.click(".story button:nth-of-type(2)").await?;
    browser
        .wait_for("one step back", "return document.querySelectorAll('.edge.faint').length === 1")
        .await?;
    nothing_to_complain(&mut browser).await
}

#[tokio::test]
async fn dropped_stream_is_said_and_recovered_from() -> Result<()> {
    let mut server = Server::start_with(&["--access-log", "all"]).await?;
    let mut http = Http::new(server.address());
    acquire(&mut http, "job/one", &json!({ "owner_id": "worker-a", "ttl_ms": 600_000 })).await?;
    let mut browser = Browser::start().await?;
    browser.open(&url(&server, "/events")).await?;
    browser.wait_for("live", IS_LIVE).await?;
    browser.open_window(&url(&server, "/locks")).await?;
    browser.wait_for("live", IS_LIVE).await?;
    browser.wait_for("the row", &has_row("job/one")).await?;
    let streams = server.log().matches("\"/v1/watch\"").count();
    ensure!(streams == 1, "two tabs share one stream, not {streams}");

    server.kill()?;
    browser.wait_for_text("Stale, reconnecting.").await?;
    // Clocks stand still: going on would be a guess.
    let left = "return document.querySelector('[data-row] [data-until]').textContent";
    let stopped = browser.run(left).await?;
    tokio::time::sleep(Duration::from_millis(700)).await;
    ensure!(browser.run(left).await? == stopped, "time goes on while nobody knows");
    ensure!(browser.run("return document.querySelector('main').className").await? == "is-stale");

    server.start_again().await?;
    browser.wait_for("no banner", "return document.querySelector('.banner') === null").await?;
    browser.wait_for("live", IS_LIVE).await?;
    let mut http = Http::new(server.address());
    acquire(&mut http, "job/two", &json!({ "owner_id": "worker-b", "ttl_ms": 600_000 })).await?;
    browser.wait_for("the new row", &has_row("job/two")).await?;
    browser.wait_for("the old row", &has_row("job/one")).await?;
    // The tab is as good as a new one: other pages open in it, and nothing of the banner is left.
    for (key, title) in [("s", "Sessions"), ("l", "Locks")] {
        browser.type_into("body", &format!("g{key}")).await?;
        let headings =
            "return [...document.querySelectorAll('main h1')].map((h) => h.textContent).join()";
        browser.wait_for(title, &format!("{headings} === '{title}'")).await?;
    }
    let page = browser.run("return document.querySelector('main').innerText").await?;
    ensure!(page.as_str().is_some_and(|text| !text.contains("Stale")), "{page}");
    let complaints = browser.complaints().await?;
    let others: Vec<&String> =
        complaints.iter().filter(|said| !said.contains("net::ERR")).collect();
    ensure!(others.is_empty(), "the browser complains: {others:#?}");
    Ok(())
}

#[tokio::test]
async fn keyboard_and_address_lead_everywhere() -> Result<()> {
    let server = Server::start_with(&["--store", "memory"]).await?;
    let scene = Scene::small(&server).await?;
    let mut browser = Browser::start().await?;
    browser.open(&url(&server, "/overview")).await?;
    browser.wait_for_text("About to expire").await?;
    for (key, title) in [
        ("l", "Locks"),
        ("g", "Wait-for graph"),
        ("s", "Sessions"),
        ("e", "Events"),
        ("v", "Server"),
        ("o", "Overview"),
    ] {
        browser.type_into("body", &format!("g{key}")).await?;
        let script = format!("return document.querySelector('h1')?.textContent === '{title}'");
        browser.wait_for(title, &script).await?;
    }
    browser.type_into("body", "?").await?;
    browser
        .wait_for("the keys", "return document.querySelector('dialog.help[open]') !== null")
        .await?;
    browser.click("dialog.help button").await?;
    browser.type_into("body", "gl").await?;
    browser
        .wait_for("the search", "return document.querySelector('[data-search]') !== null")
        .await?;
    browser.type_into("body", "/").await?;
    browser.wait_for("the focus", "return document.activeElement.matches('[data-search]')").await?;
    browser.type_into("[data-search]", "owner:store-1").await?;
    let only = "const rows = [...document.querySelectorAll('[data-row]')];
        return rows.length > 0 && rows.every((row) => row.textContent.includes('store-1')) && location.hash.includes('store-1')";
    browser.wait_for("only what it holds", only).await?;
    // The address alone brings the same page back.
    let address = browser.run("return location.href").await?;
    browser.open("about:blank").await?;
    browser.open(address.as_str().context("an address")?).await?;
    browser.wait_for("the same again", only).await?;
    for page in [
        "/server?tab=api",
        "/server?tab=limits",
        "/sessions",
        "/lock?name=inode:4711",
        "/lock?name=path:/srv/www/**",
    ] {
        browser.open(&url(&server, page)).await?;
        browser.wait_for(page, "return document.querySelector('#page .card') !== null").await?;
    }
    // A session over plain HTTP has no connection that could be cut.
    let body = json!({ "owner_id": "cron", "ttl_ms": 600_000 });
    let opened = Http::new(server.address()).post("/v1/sessions", &body).await?;
    ensure!(opened.status == 201, "{opened:?}");
    browser.open(&url(&server, "/sessions")).await?;
    browser.wait_for_text("ends with its ttl").await?;
    // On a phone nothing is wider than the screen, and what one comes for is in sight.
    browser.resize(390, 844).await?;
    for (page, wanted) in [
        ("/overview", ".side [aria-current]"),
        ("/locks", ".row .badge.wait"),
        ("/graph", ".canvas .nodes"),
        ("/sessions", "tr[data-row] button.danger"),
        ("/events", ".side [aria-current]"),
        ("/server", ".side [aria-current]"),
    ] {
        browser.open("about:blank").await?;
        browser.open(&url(&server, page)).await?;
        browser
            .wait_for(page, "return document.querySelector('#page .card, #page .tile') !== null")
            .await?;
        let wide = browser.run("return document.documentElement.scrollWidth").await?;
        ensure!(wide.as_u64().is_some_and(|wide| wide <= 390), "{page} is {wide} wide");
        browser.wait_for(&format!("{wanted} of {page} in sight"), &is_in_sight(wanted)).await?;
        browser.wait_for("the active tab in sight", &is_in_sight(".side [aria-current]")).await?;
    }
    drop(scene);
    nothing_to_complain(&mut browser).await
}

/// A script that says whether the first element that matches is wholly between the sides of the screen.
fn is_in_sight(selector: &str) -> String {
    format!(
        "const box = document.querySelector({})?.getBoundingClientRect();
        return box !== undefined && box.width > 0 && box.left >= 0 && box.right <= innerWidth",
        Value::from(selector)
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_thousand_locks_are_listed_at_once() -> Result<()> {
    const LOCKS: usize = 100_000;
    let server = Server::start_with(&["--store", "memory"]).await?;
    let begun = Instant::now();
    hold(&server, LOCKS).await?;
    println!("{LOCKS} locks taken in {:.1} s", begun.elapsed().as_secs_f64());
    let mut browser = Browser::start().await?;
    browser.open(&url(&server, "/locks")).await?;
    let shown = "return performance.getEntriesByName('locks-shown')[0]?.startTime";
    let first = browser.wait_for("the first rows", shown).await?.as_f64().context("a time")?;
    browser
        .wait_for(
            "the number",
            "return document.querySelector('.page-head p').textContent.startsWith('100,000')",
        )
        .await?;
    let rows = browser.run("return document.querySelectorAll('[data-row]').length").await?;
    ensure!(
        rows.as_u64().is_some_and(|rows| rows < 200),
        "only what is in sight is in the page: {rows}"
    );
    // Far down: it comes, and the list goes on being smooth.
    let begun = Instant::now();
    browser
        .run("const list = document.querySelector('.list'); list.scrollTop = list.scrollHeight")
        .await?;
    browser.wait_for("the last row", &has_row("load/0099/099999")).await?;
    println!(
        "first rows after {first:.0} ms, the last of {LOCKS} after {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    nothing_to_complain(&mut browser).await
}

/// Every page, in light and dark, written to the folder that `LEASEHOLD_SCREENSHOTS` names.
#[tokio::test]
#[ignore = "writes to docs/images: cargo xtask screenshots"]
async fn every_page_has_its_picture() -> Result<()> {
    let folder = std::env::var_os("LEASEHOLD_SCREENSHOTS").context("LEASEHOLD_SCREENSHOTS")?;
    let server = Server::start().await?;
    let scene = Scene::small(&server).await?;
    let churn = tokio::spawn(console::scene::churn(server.address()));
    // Charts, and heartbeats, need a past.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let mut http = Http::new(server.address());
    let history: Value = http.get("/v1/history").await?.json()?;
    let deadlock = format!(
        "{} {}",
        history["deadlocks"][0]["at"].as_str().unwrap_or_default(),
        history["deadlocks"][0]["victim"].as_str().unwrap_or_default()
    );
    let mut browser = Browser::start().await?;
    for (colours, named) in [(Colours::Light, "light"), (Colours::Dark, "dark")] {
        browser.set_colours(colours).await?;
        for (page, hash, seconds) in [
            ("overview", "/overview".to_string(), 2),
            ("locks", "/locks?prefix=job/".into(), 2),
            ("lock", "/lock?name=db/migrate".into(), 2),
            ("graph", "/graph?select=lock:db/migrate".into(), 3),
            ("deadlock", format!("/graph?deadlock={}", hash_of(&deadlock)), 2),
            ("sessions", "/sessions".into(), 14),
            ("events", "/events".into(), 3),
            ("server", "/server".into(), 2),
        ] {
            browser.open("about:blank").await?;
            browser.open(&url(&server, &hash)).await?;
            browser.wait_for("live", IS_LIVE).await?;
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            let place = std::path::Path::new(&folder).join(format!("console-{page}-{named}.png"));
            std::fs::write(&place, browser.screenshot().await?)?;
            println!("{}", place.display());
        }
    }
    churn.abort();
    drop(scene);
    nothing_to_complain(&mut browser).await
}

/// A `leasehold` that asks this server with a token, and what it prints.
fn cli(server: &Server, token: &std::path::Path, words: &[&str]) -> Result<String> {
    let output = std::process::Command::new(leasehold_e2e::server::binary()?)
        .args(words)
        .env("LEASEHOLD_ADDR", format!("http://{}", server.address()))
        .env("LEASEHOLD_TOKEN_FILE", token)
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_string();
    ensure!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(said)
}

#[tokio::test]
async fn page_asks_who_one_is_and_hides_what_one_may_not_do() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (config, root) = (folder.path().join("leasehold.toml"), folder.path().join("root.token"));
    std::fs::write(&config, "[auth]\nenabled = true\n")?;
    let made = std::process::Command::new(leasehold_e2e::server::binary()?)
        .args(["token", "new", "--offline"])
        .output()?;
    std::fs::write(&root, made.stdout)?;
    let bootstrap = format!("LEASEHOLD_BOOTSTRAP_TOKEN_FILE={}", root.display());
    let config = config.display().to_string();
    let flags = ["--config", &config, "--store", "memory"];
    let server = Server::start_under(&["env", &bootstrap], &flags).await?;
    let token =
        cli(&server, &root, &["token", "create", "--principal", "eve", "--role", "reader"])?;
    cli(&server, &root, &["acquire", "job/nightly", "--owner", "worker-a", "--ttl", "5m"])?;

    let mut browser = Browser::start().await?;
    browser.open(&url(&server, "/lock?name=job/nightly")).await?;
    browser.type_into("input[name=token]", "lk_nothing").await?;
    browser.click("button[type=submit]").await?;
    browser.wait_for_text("The server does not know this").await?;
    browser.type_into("input[name=token]", &token).await?;
    browser.click("button[type=submit]").await?;
    browser
        .wait_for("who it is", "return document.querySelector('[data-who=eve]') !== null")
        .await?;
    browser.wait_for("live", IS_LIVE).await?;
    browser.open(&url(&server, "/lock?name=job/nightly")).await?;
    browser.wait_for_text("worker-a").await?;
    let has_break = "return document.querySelector('.page-head .danger') !== null";
    ensure!(browser.run(has_break).await? == false, "a reader is shown how to break");
    let kept = "return JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}])";
    let kept = browser.run(kept).await?;
    ensure!(!kept.to_string().contains("lk_"), "the page keeps the token: {kept}");
    // What the browser complains of so far is that it was not let in at first.
    browser.complaints().await?;
    browser.click(".who button").await?;
    browser
        .wait_for("the way in", "return document.querySelector('input[name=token]') !== null")
        .await?;
    browser.complaints().await?;

    let link = cli(&server, &root, &["console"])?;
    ensure!(link.contains("/#/login?code=lkc_"), "{link}");
    browser.open("about:blank").await?;
    browser.open(&link).await?;
    browser
        .wait_for("who it is", "return document.querySelector('[data-who=root]') !== null")
        .await?;
    browser.wait_for("no code", "return !location.href.includes('lkc_')").await?;
    browser.complaints().await?;
    browser.open(&url(&server, "/lock?name=job/nightly")).await?;
    browser.click(".page-head .danger").await?;
    browser.type_into("dialog input[name=reason]", "the host is gone").await?;
    browser.type_into("dialog input[name=word]", "job/nightly").await?;
    browser.click("dialog button[type=submit]").await?;
    browser.wait_for_text("The next request is granted.").await?;
    nothing_to_complain(&mut browser).await
}
