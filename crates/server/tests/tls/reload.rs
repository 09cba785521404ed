//! Certificates that are replaced while the server runs: attack 53.

use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use leasehold_server::{ClientAuth, Server, StartError, TlsConfig};

use crate::authority::{Authority, Signed, Wanted};
use crate::polling::eventually;
use crate::world::{Files, World, config, write};

/// Waits until this is the certificate that the server shows.
async fn is_shown(world: &World, certificate: &Signed) {
    let client = world.client();
    let begun = Instant::now();
    let is_it = async || client.connect().await.unwrap().server() == certificate.certificate;
    eventually("the new certificate is shown", is_it).await;
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

async fn failures(world: &World, file: &str) -> u64 {
    let (_, metrics) = world.client().get("/metrics").await.unwrap();
    let name = format!("leasehold_reload_failures_total{{file=\"{file}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&name));
    line.map_or(0, |number| number.parse().unwrap())
}

#[tokio::test]
async fn new_certificate_is_served_however_it_is_put_there_and_no_connection_is_lost() {
    let world = World::start().await;
    let mut kept = world.client().connect().await.unwrap();
    // In its place.
    let next = world.authority.server();
    world.files.write("server.key", &next.key_pem());
    world.files.write("server.pem", &next.pem);
    is_shown(&world, &next).await;
    // By renaming another file to it.
    let next = world.authority.server();
    for (name, text) in [("server.key", next.key_pem()), ("server.pem", next.pem.clone())] {
        world.files.write("new", &text);
        std::fs::rename(world.files.path("new"), world.files.path(name)).unwrap();
    }
    is_shown(&world, &next).await;
    assert_eq!(kept.ask("/livez", "").await.unwrap().0, 200, "it was there before");
    world.server.stop().await;
}

#[tokio::test]
async fn new_certificate_is_served_when_a_link_leads_elsewhere() {
    // As Kubernetes does it: the files are links through a link to a folder, and that one is swapped.
    let authority = Authority::new("authority");
    let first = authority.server();
    let files = Files::of(&first);
    let put = |folder: &str, signed: &Signed| {
        std::fs::create_dir(files.path(folder)).unwrap();
        write(&files.path(folder).join("server.pem"), &signed.pem);
        write(&files.path(folder).join("server.key"), &signed.key_pem());
        symlink(folder, files.path("swap")).unwrap();
        std::fs::rename(files.path("swap"), files.path("data")).unwrap();
    };
    put("first", &first);
    let tls = TlsConfig {
        cert: files.path("data").join("server.pem"),
        key: files.path("data").join("server.key"),
        ..files.tls()
    };
    let server = Server::start(config(tls)).await.unwrap();
    let next = authority.server();
    put("second", &next);
    let world = World { address: server.address(), server, files, authority };
    is_shown(&world, &next).await;
    world.server.stop().await;
}

#[tokio::test]
async fn what_does_not_fit_together_changes_nothing_and_is_counted() {
    let world = World::start().await;
    let first = world.client().connect().await.unwrap().server();
    let not_after = async || {
        let (_, metrics) = world.client().get("/metrics").await.unwrap();
        let name = "leasehold_tls_not_after_seconds ";
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.parse::<u64>().unwrap()
    };
    let ends = not_after().await;
    let next = world.authority.server();
    let half = &next.pem[..next.pem.len() / 2];
    let old = Wanted { is_expired: true, ..Wanted::for_client(&[]) };
    let old = world.authority.sign(old).pem;
    for (name, text, file) in [
        ("server.key", next.key_pem(), "key"),
        ("server.pem", half.to_owned(), "cert"),
        (
            "server.pem",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into(),
            "cert",
        ),
        ("server.pem", String::new(), "cert"),
        ("server.pem", old, "cert"),
    ] {
        let before = failures(&world, file).await;
        world.files.write(name, &text);
        let is_counted = async || failures(&world, file).await > before;
        eventually("the failure is counted", is_counted).await;
        assert_eq!(world.client().connect().await.unwrap().server(), first);
    }
    assert_eq!(not_after().await, ends);
    let soon = Wanted { expires_in: Some(Duration::from_secs(900)), ..Wanted::for_server() };
    let last = world.authority.sign(soon);
    world.files.write("server.key", &last.key_pem());
    world.files.write("server.pem", &last.pem);
    eventually("its end is told", async || not_after().await < ends).await;
    world.server.stop().await;
}

/// The last part of attack 56, and what else keeps a server from starting.
#[tokio::test]
async fn server_does_not_start_with_files_that_cannot_be_used() {
    let authority = Authority::new("authority");
    let files = Files::of(&authority.server());
    let refused = async |tls: TlsConfig| match Server::start(config(tls)).await {
        Err(error @ (StartError::Tls(_) | StartError::Config(_))) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let said = refused(TlsConfig { cert: files.path("none"), ..files.tls() }).await;
    assert!(said.starts_with("cannot read ") && said.contains("none"), "{said}");
    let key = files.path("server.key");
    let mode = |mode| std::os::unix::fs::PermissionsExt::from_mode(mode);
    for open in [0o644, 0o604, 0o660] {
        std::fs::set_permissions(&key, mode(open)).unwrap();
        let said = refused(files.tls()).await;
        assert!(said.contains("server.key can be read by others than its owner"), "{said}");
    }
    files.write("other.key", &authority.server().key_pem());
    let said = refused(TlsConfig { key: files.path("other.key"), ..files.tls() }).await;
    assert!(said.contains("other.key is not the key of the certificate in"), "{said}");
    let said = refused(TlsConfig { key: files.path("server.pem"), ..files.tls() }).await;
    assert!(said.ends_with("server.pem: there is no key in PEM in it"), "{said}");
    let asked = TlsConfig { client_auth: ClientAuth::Required, ..files.tls() };
    assert!(refused(asked).await.contains("tls.client_ca"));
    let list = TlsConfig { crl: Some(files.path("none")), ..files.tls() };
    assert!(refused(list).await.contains("tls.crl"));
}
