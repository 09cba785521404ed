//! Servers behind TLS, and servers that want a token: the SDK over each of its transports, and the command.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::Result;
use leasehold_client::wire::Code;
use leasehold_client::{Client, ClientBuilder, Transport};
use leasehold_e2e::gate::{Away, Gate};
use leasehold_e2e::server::{Server, binary};
use leasehold_e2e::tls::{Authority, Certificate, TlsProxy};

const TOKEN: &str = "lk_7_geheim";
/// What will not get better is not tried for as long as this.
const PATIENCE: Duration = Duration::from_secs(60);
const TRANSPORTS: [Transport; 2] = [Transport::Stream, Transport::Http];

fn builder(port: u16, transport: Transport) -> ClientBuilder {
    Client::builder(&format!("https://localhost:{port}")).transport(transport).patience(PATIENCE)
}

/// The command, with nothing of the test's own environment.
fn leasehold(port: u16, args: &[&str]) -> Result<Command> {
    let mut command = Command::new(binary()?);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LEASEHOLD_") {
            command.env_remove(name);
        }
    }
    command.args(args).env("LEASEHOLD_ADDR", format!("https://localhost:{port}"));
    Ok(command)
}

async fn ends(mut command: Command) -> Result<(i32, String, String)> {
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output()).await??;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((status.code().unwrap_or(-1), text(stdout), text(stderr)))
}

#[tokio::test]
async fn locks_are_held_through_tls_with_a_token() -> Result<()> {
    let server = Server::start().await?;
    let gate = Gate::before(server.address(), TOKEN, Away::Unauthorized).await?;
    let authority = Authority::new()?;
    let proxy = TlsProxy::before(gate.address(), &authority, Certificate::Good).await?;
    let (stream, http) = tokio::join!(
        hold_through_tls(&proxy, &authority, Transport::Stream),
        hold_through_tls(&proxy, &authority, Transport::Http),
    );
    stream.and(http)
}

async fn hold_through_tls(
    proxy: &TlsProxy,
    authority: &Authority,
    transport: Transport,
) -> Result<()> {
    let client = builder(proxy.port(), transport)
        .authorities(&authority.pem()?)
        .token(TOKEN)
        .connect()
        .await?;
    let name = |part: &str| format!("{transport:?}/{part}");
    let ttl = Duration::from_secs(4);
    let lease = client.lock(&name("a")).owner("one").ttl(ttl).acquire().await?;
    let session = client.session().ttl(ttl).open().await?;
    let under = session.lock(&name("b")).acquire().await?;
    let mut watch = client.watch(&name("c"), None).await?;
    // Not valid any more without a heartbeat.
    tokio::time::sleep(ttl * 5 / 8).await;
    assert!(lease.is_valid() && under.is_valid(), "{transport:?}");
    assert_eq!(client.api().get(&name("a")).await?.holders[0].owner_id, "one");
    client.lock(&name("c")).acquire().await?.release().await?;
    assert!(watch.next().await.is_some_and(|event| event.is_ok()));
    lease.release().await?;
    client.close().await;
    Ok(())
}

#[tokio::test]
async fn servers_that_cannot_be_trusted_are_told_from_those_that_are_not_there() -> Result<()> {
    let server = Server::start().await?;
    let (trusted, other) = (Authority::new()?, Authority::new()?);
    for (authority, certificate, said, advice) in [
        (&other, Certificate::Good, "signed by an unknown authority", "--cacert"),
        (&trusted, Certificate::ForAnotherName, "not for the name localhost", "--hosts"),
        (&trusted, Certificate::Expired, "has expired", "cert renew"),
    ] {
        let proxy = TlsProxy::before(server.address(), authority, certificate).await?;
        for transport in TRANSPORTS {
            let since = Instant::now();
            let client = builder(proxy.port(), transport).authorities(&trusted.pem()?);
            let error = client.connect().await.expect_err("it cannot be trusted");
            assert!(error.is_unreachable(), "{error}");
            assert!(error.to_string().contains(said), "{error}");
            assert!(since.elapsed() < PATIENCE / 2, "it was tried for {:?}", since.elapsed());
        }
        let file = trusted.file();
        let file = file.to_str().expect("a temporary folder has a plain name");
        for verb in [vec!["list"], vec!["run", "a", "--", "true"]] {
            let args = [&["--cacert", file], verb.as_slice()].concat();
            let (code, _, talk) = ends(leasehold(proxy.port(), &args)?).await?;
            assert_eq!(code, 69, "{talk}");
            assert!(talk.contains(said) && talk.contains(advice), "{talk}");
        }
    }
    // One that speaks no TLS at all.
    let plain = builder(server.address().port(), Transport::Stream).authorities(&trusted.pem()?);
    let error = plain.connect().await.expect_err("it speaks no TLS");
    assert!(error.is_unreachable() && error.to_string().contains("TLS"), "{error}");
    Ok(())
}

#[tokio::test]
async fn who_is_not_let_in_is_refused_and_not_unreachable() -> Result<()> {
    let server = Server::start().await?;
    let authority = Authority::new()?;
    for (away, code) in
        [(Away::Unauthorized, Code::Unauthenticated), (Away::Forbidden, Code::PermissionDenied)]
    {
        let gate = Gate::before(server.address(), TOKEN, away).await?;
        let proxy = TlsProxy::before(gate.address(), &authority, Certificate::Good).await?;
        for transport in TRANSPORTS {
            for token in [None, Some("lk_7_falsch")] {
                let since = Instant::now();
                let client = builder(proxy.port(), transport).authorities(&authority.pem()?);
                let client = token.into_iter().fold(client, ClientBuilder::token);
                let error = match client.connect().await {
                    Ok(client) => client.lock("a").acquire().await.expect_err("it is not let in"),
                    Err(error) => error,
                };
                assert_eq!(error.code(), Some(code), "{transport:?}: {error}");
                assert!(since.elapsed() < PATIENCE / 2, "it was tried for {:?}", since.elapsed());
            }
        }
        let file = authority.file();
        for verb in [vec!["list"], vec!["acquire", "a"], vec!["run", "a", "--", "true"]] {
            let mut command = leasehold(proxy.port(), &verb)?;
            command.env("LEASEHOLD_CACERT", &file).env("LEASEHOLD_TOKEN", "lk_7_falsch");
            let (code, data, talk) = ends(command).await?;
            assert_eq!(code, 77, "{verb:?}: {talk}");
            assert!(talk.contains("--token-file"), "{talk}");
            assert!(!format!("{data}{talk}").contains("falsch"), "{data}{talk}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_command_shows_its_token_to_the_server_and_to_nobody_else() -> Result<()> {
    let server = Server::start().await?;
    let gate = Gate::before(server.address(), TOKEN, Away::Unauthorized).await?;
    let authority = Authority::new()?;
    let proxy = TlsProxy::before(gate.address(), &authority, Certificate::Good).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n"))?;
    let open_to =
        |mode| std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(mode));
    open_to(0o600)?;
    let cacert = authority.file();
    let (file, cacert) = (file.to_str().unwrap_or_default(), cacert.to_str().unwrap_or_default());
    // What runs below it asks the same server, and is let in as well.
    let inner = format!("{} check a --fencing-token $LEASEHOLD_FENCING_TOKEN", binary()?.display());
    let run =
        ["--cacert", cacert, "--token-file", file, "-v", "run", "--pass-token", "a", "-c", &inner];
    let (code, data, talk) = ends(leasehold(proxy.port(), &run)?).await?;
    assert_eq!(code, 0, "{data}{talk}");
    assert!(!format!("{data}{talk}").contains("geheim"), "{data}{talk}");
    // A file that everybody can read is used, and remarked upon.
    open_to(0o644)?;
    let list = ["--cacert", cacert, "--token-file", file, "list"];
    let (code, _, talk) = ends(leasehold(proxy.port(), &list)?).await?;
    assert_eq!(code, 0, "{talk}");
    assert!(talk.contains("everybody on this machine can read the token"), "{talk}");
    for (name, holds) in [("LEASEHOLD_TOKEN_FILE", file), ("LEASEHOLD_TOKEN", TOKEN)] {
        let mut command = leasehold(proxy.port(), &["-q", "--cacert", cacert, "list"])?;
        command.env(name, holds);
        let (code, _, talk) = ends(command).await?;
        assert_eq!((code, talk.as_str()), (0, ""), "{name}");
    }
    for wrong in [vec!["--token-file", "/no/such/file"], vec!["--cacert", "/no/such/file"]] {
        let (code, _, talk) =
            ends(leasehold(proxy.port(), &[wrong.as_slice(), &["list"]].concat())?).await?;
        assert_eq!(code, 78, "{talk}");
        assert!(talk.contains("/no/such/file"), "{talk}");
    }
    Ok(())
}
