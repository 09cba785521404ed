//! `leasehold doctor` on the machine of a server: certificates and stores that are named.
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod common;

use std::path::Path;
use std::process::Command;

use common::Server;
use serde_json::Value;

/// A certificate that is valid for so many days from now on.
fn certificate(folder: &Path, days: &str) -> String {
    let [key, file] = ["key.pem", "cert.pem"].map(|name| folder.join(format!("{days}-{name}")));
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]);
    openssl.args(["-subj", "/CN=locks.example", "-days", days]).arg("-keyout").arg(key);
    let made = openssl.arg("-out").arg(&file).output().unwrap();
    assert!(made.status.success(), "{}", common::text(&made.stderr));
    file.display().to_string()
}

fn findings(server: &Server, args: &[&str]) -> (Vec<Value>, i32) {
    let (said, code) = server.says(&[&["doctor", "-o", "json"], args].concat());
    (serde_json::from_str(&said).unwrap(), code)
}

/// Verdict and detail of the findings of one check.
fn of<'a>(findings: &'a [Value], check: &str) -> Vec<(&'a str, &'a str)> {
    let of_check = findings.iter().filter(|finding| finding["check"] == check);
    let shown = |field: &'a Value| field.as_str().unwrap();
    of_check.map(|finding| (shown(&finding["verdict"]), shown(&finding["detail"]))).collect()
}

#[test]
fn certificates_are_looked_at() {
    let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let [short, long] = ["3", "400"].map(|days| certificate(folder.path(), days));
    let (found, code) = findings(&server, &["--certificate", &short, "--certificate", &long]);
    let certificates = of(&found, "certificate");
    assert_eq!(code, 0, "{certificates:?}");
    assert_eq!(certificates[0].0, "ok", "it is short, and new");
    // The last second of a day may be over.
    let is_for = |found: &str, days: u32| {
        [days - 1, days].iter().any(|days| found.ends_with(&format!("is valid for {days} days")))
    };
    assert!(is_for(certificates[0].1, 3), "{certificates:?}");
    assert_eq!(certificates[1].0, "ok");
    assert!(is_for(certificates[1].1, 400), "{certificates:?}");

    let nothing = folder.path().join("nothing.pem").display().to_string();
    let (found, code) = findings(&server, &["--certificate", &nothing]);
    assert_eq!((of(&found, "certificate")[0].0, code), ("bad", 1));
}

#[test]
fn store_that_cannot_be_reached_is_bad() {
    let server = Server::start();
    let (found, code) = findings(&server, &["--store", "postgres://locks@127.0.0.1:1/locks"]);
    assert_eq!((of(&found, "store")[0].0, code), ("bad", 1), "{found:?}");

    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("leasehold.toml");
    std::fs::write(&config, "store = \"sqlite:/srv/locks.db\"\n").unwrap();
    let (found, code) = findings(&server, &["--config", &config.display().to_string()]);
    assert_eq!((of(&found, "store")[0].0, code), ("ok", 0), "{found:?}");
}
