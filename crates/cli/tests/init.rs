//! A server that `leasehold init` set up, and the ways to it: as a new user goes, step by step.
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{BINARY, Server, at_home, fed, free_port, plain, text};

fn by(home: &Path, words: &[&str]) -> Output {
    let mut command = plain(words);
    at_home(&mut command, home);
    command.output().unwrap()
}

fn init(home: &Path, dir: &str, port: u16) -> Output {
    let listen = format!("0.0.0.0:{port}");
    let words = ["init", "--dir", dir, "--name", "locks.example", "--listen", &listen];
    let done = by(home, &words);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    done
}

/// All files below a directory, with their bytes and modes.
fn files(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (path, about) = (entry.path(), entry.metadata().unwrap());
        if about.is_dir() {
            found.append(&mut files(&path));
        } else {
            found.insert(
                path.clone(),
                (about.permissions().mode() & 0o777, fs::read(path).unwrap()),
            );
        }
    }
    found
}

#[test]
fn second_init_changes_nothing_and_no_directory_of_everybody_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let first = init(folder.path(), dir.to_str().unwrap(), 8443);
    assert_eq!(text(&first.stdout).lines().count(), 3);
    assert!(!text(&first.stdout).contains("lk_"), "secrets are for terminals");
    let before = files(folder.path());
    for (path, (mode, bytes)) in &before {
        let is_secret = path.extension().is_some_and(|kind| kind == "key")
            || path.ends_with("access.toml")
            || path.ends_with("tokens/default");
        assert_eq!(*mode, if is_secret { 0o600 } else { 0o644 }, "{}", path.display());
        let is_told = String::from_utf8_lossy(bytes).contains("lk_");
        assert_eq!(is_told, path.ends_with("tokens/default"), "{}", path.display());
    }
    let second = init(folder.path(), dir.to_str().unwrap(), 8443);
    assert_eq!(second.stdout, first.stdout);
    assert_eq!(files(folder.path()), before);

    let open = folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = by(folder.path(), &["init", "--dir", open.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(78));
    assert!(text(&refused.stderr).contains("chmod 700"), "{}", text(&refused.stderr));
}

#[test]
fn new_user_reaches_the_server_and_each_wrong_way_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (port, data) = (free_port(), at("data"));
    let said = text(&init(folder.path(), &data, port).stdout);
    let lines: Vec<&str> = said.lines().collect();
    let mut serve = Command::new(BINARY);
    serve.args(lines[0].split(' ').skip(1));
    let address = format!("https://localhost:{port}");
    let server = Server::start_by(serve, address.clone(), folder.path());
    let who = text(&by(folder.path(), &["whoami"]).stdout);
    assert!(who.starts_with("root"), "{who}");

    let create = ["token", "create", "--principal", "billing", "--role", "client"];
    let token = text(&by(folder.path(), &create).stdout);
    let ca = at("ca.pem");
    fs::write(&ca, by(folder.path(), &["cert", "ca", "show", "--dir", &data]).stdout).unwrap();
    let path = format!("{address}/v1/auth/self");
    let curl = |words: &[&str]| {
        let output =
            Command::new("curl").args(["-sS", "--cacert", &ca, &path]).args(words).output();
        text(&output.unwrap().stdout)
    };
    let shown = curl(&["-H", &format!("Authorization: Bearer {}", token.trim())]);
    assert!(shown.contains("\"principal\":\"billing\""), "{shown}");
    assert!(curl(&[]).contains("unauthenticated"));
    let issued = by(
        folder.path(),
        &["cert", "issue", "--dir", &data, "--principal", "ann", "--out", &at("ann")],
    );
    assert_eq!(issued.status.code(), Some(0), "{}", text(&issued.stderr));
    let (cert, key) = (at("ann/client.pem"), at("ann/client.key"));
    let shown = curl(&["--cert", &cert, "--key", &key]);
    assert!(shown.contains("\"principal\":\"ann\""), "{shown}");

    let record = fs::read_to_string(at("ann/client.json")).unwrap();
    let record: serde_json::Value = serde_json::from_str(&record).unwrap();
    let revoke = by(folder.path(), &["cert", "revoke", record["serial"].as_str().unwrap()]);
    assert_eq!(revoke.status.code(), Some(0), "{}", text(&revoke.stderr));
    assert!(curl(&["--cert", &cert, "--key", &key]).contains("unauthenticated"));

    // Somebody else, on another machine.
    let join = lines[1].split(' ').nth(2).unwrap().replace("locks.example", "localhost");
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    let login = |to: &str, token: &str| {
        let mut command = plain(&["login", to]);
        at_home(&mut command, &home);
        fed(command, token)
    };
    let done = login(&join, &token);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(by(&home, &["acquire", "job"]).status.code(), Some(0));
    let forbidden = by(&home, &["acquire", "job", "--namespace", "other"]);
    assert_eq!(forbidden.status.code(), Some(77));
    assert!(text(&forbidden.stderr).contains("`leasehold whoami`"), "{}", text(&forbidden.stderr));

    // Wrong ways: each says what to do, and none sends or shows the token.
    init(&home, &at("other"), port);
    let other = text(&init(&home, &at("other"), port).stdout);
    let other = other.split(' ').find(|word| word.starts_with("lkj1.")).unwrap();
    let other = other.lines().next().unwrap().replace("locks.example", "localhost");
    let unknown = login(&other, &token);
    assert_eq!(unknown.status.code(), Some(69));
    assert!(text(&unknown.stderr).contains("`leasehold login`"), "{}", text(&unknown.stderr));
    let strange = by(folder.path(), &["--addr", &format!("https://127.0.0.1:{port}"), "list"]);
    assert_eq!(strange.status.code(), Some(69));
    assert!(text(&strange.stderr).contains("join string"), "{}", text(&strange.stderr));
    let nameless = format!("https://127.0.0.2:{port}");
    let nameless = by(folder.path(), &["--cacert", &ca, "--addr", &nameless, "list"]);
    assert_eq!(nameless.status.code(), Some(69));
    assert!(text(&nameless.stderr).contains("--hosts"), "{}", text(&nameless.stderr));
    let wrong = text(&plain(&["token", "new", "--offline"]).output().unwrap().stdout);
    let refused = login(&join, &wrong);
    assert_eq!(refused.status.code(), Some(77));
    assert!(!text(&refused.stderr).contains(wrong.trim()), "{}", text(&refused.stderr));
    drop(server);
}

#[test]
fn server_with_tls_by_itself_and_one_for_development_need_no_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let (port, data) = (free_port(), folder.path().join("data"));
    let mut serve = plain(&["serve", "--tls", "auto", "--data", data.to_str().unwrap()]);
    serve.args(["--listen", &format!("127.0.0.1:{port}")]);
    at_home(&mut serve, folder.path());
    let server = Server::start_by(serve, format!("https://localhost:{port}"), folder.path());
    let who = by(folder.path(), &["whoami", "-o", "json"]);
    assert!(text(&who.stdout).contains("\"principal\":\"root\""), "{}", text(&who.stderr));
    drop(server);

    let port = free_port();
    let mut serve = plain(&["serve", "--dev", "--listen", &format!("127.0.0.1:{port}")]);
    serve.env("LEASEHOLD_STORE", "sqlite:/no/such/folder/x.db").current_dir(folder.path());
    let before = files(folder.path());
    let server = Server::start_by(serve, format!("http://127.0.0.1:{port}"), folder.path());
    assert_eq!(server.run(&["acquire", "job"]).status.code(), Some(0));
    assert_eq!(files(folder.path()), before);
    let exposed = plain(&["serve", "--dev", "--listen", "0.0.0.0:1"]).output().unwrap();
    assert_eq!(exposed.status.code(), Some(78));
}

#[test]
fn server_that_others_can_reach_wants_tls_and_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    init(folder.path(), data.to_str().unwrap(), 8443);
    let whole = fs::read_to_string(data.join("leasehold.toml")).unwrap();
    let (before, after) = whole.split_once("[tls]").unwrap();
    let (tls, auth) = after.split_once("[auth]").unwrap();
    let config = folder.path().join("leasehold.toml");
    let check = |text: &str| {
        fs::write(&config, text).unwrap();
        plain(&["serve", "--check-config", "--config", config.to_str().unwrap()]).output().unwrap()
    };
    assert_eq!(check(&whole).status.code(), Some(0));
    for (text, missing) in [
        (before.to_owned(), ["--insecure-http", "--insecure-anonymous"]),
        (format!("{before}[auth]{auth}"), ["--insecure-http"; 2]),
        (
            format!("{before}[tls]{}", tls.split("# Every").next().unwrap()),
            ["--insecure-anonymous"; 2],
        ),
    ] {
        let refused = check(&text);
        assert_eq!(refused.status.code(), Some(78), "{text}");
        let said = text_of(&refused);
        assert!(said.contains("leasehold init"), "{said}");
        assert!(missing.iter().all(|flag| said.contains(flag)), "{said}");
    }
}

fn text_of(output: &Output) -> String {
    text(&output.stderr)
}
