//! Asking a server.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

use leasehold_api::format_duration;
use leasehold_client::{Client, ClientBuilder, Transport};

use crate::args::Global;
use crate::credentials;
use crate::failure::{EXIT_CONFIG, EXIT_UNREACHABLE, Failure};
use crate::output::Output;

/// The client counts the same time and knows why it ran out, so it is given the chance to say so.
const FOR_THE_REASON: Duration = Duration::from_millis(500);

/// After that, people are told that something is waited for.
const SILENCE_MAX: Duration = Duration::from_secs(1);

/// A server, and how to print what it says.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) client: Client,
    pub(crate) out: Output,
    /// As the user gave them.
    pub(crate) addresses: String,
    global: Global,
    timeout: Duration,
}

impl Server {
    /// Connects to the first server that can be reached. A stream is for those who hold locks; the others ask and go.
    pub(crate) async fn connect(global: &Global, transport: Transport) -> Result<Server, Failure> {
        Server::connect_by(global, builder(global)?.transport(transport)).await
    }

    /// As `connect`, with more settings than the command line has for all verbs.
    pub(crate) async fn connect_by(
        global: &Global,
        builder: ClientBuilder,
    ) -> Result<Server, Failure> {
        let limit = global.timeout + FOR_THE_REASON;
        let connected = tokio::select! {
            connected = tokio::time::timeout(limit, builder.connect()) => connected,
            () = say_that_it_takes_long(global) => unreachable!("it says so and waits"),
        };
        match connected {
            Ok(client) => Ok(Server::of(global, client?)),
            Err(_) => Err(late(&global.addr.join(","))),
        }
    }

    fn of(global: &Global, client: Client) -> Server {
        let addresses = global.addr.join(",");
        let (out, timeout) = (Output::of(global), global.timeout);
        Server { client, out, addresses, global: global.clone(), timeout }
    }

    /// The namespace that was asked for.
    pub(crate) fn namespace(&self) -> &str {
        &self.global.namespace
    }

    /// The environment in which another `leasehold` asks the same server with the same credentials.
    pub(crate) fn environment(&self) -> Vec<(&'static str, OsString)> {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or(path.into()).into();
        let file = |name, path: &Option<_>| path.as_deref().map(|path| (name, absolute(path)));
        let mut told = vec![
            ("LEASEHOLD_ADDR", self.addresses.clone().into()),
            ("LEASEHOLD_NAMESPACE", self.global.namespace.clone().into()),
        ];
        told.extend(file("LEASEHOLD_CACERT", &self.global.cacert));
        told
    }

    /// The file with our token, for whoever is to act as we do; one that is in the environment is there already.
    pub(crate) fn token_in_environment(&self) -> Option<(&'static str, OsString)> {
        let path = self.global.token_file.as_deref().or(self.global.login_token.as_deref())?;
        let path = std::path::absolute(path).unwrap_or(path.into());
        Some(("LEASEHOLD_TOKEN_FILE", path.into()))
    }

    /// The longest that a request may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// True if a token is shown to the server.
    pub(crate) fn has_token(&self) -> bool {
        credentials::token(&self.global).is_ok_and(|token| token.is_some())
    }

    /// Waits for an answer; fails if none comes before the timeout.
    pub(crate) async fn ask<T>(
        &self,
        asked: impl Future<Output = leasehold_client::Result<T>>,
    ) -> Result<T, Failure> {
        self.ask_waiting(asked, Duration::ZERO).await
    }

    /// As `ask`, for what the server may take its time with.
    pub(crate) async fn ask_waiting<T>(
        &self,
        asked: impl Future<Output = leasehold_client::Result<T>>,
        wait: Duration,
    ) -> Result<T, Failure> {
        match tokio::time::timeout(self.timeout + FOR_THE_REASON + wait, asked).await {
            Ok(answered) => answered.map_err(Failure::from),
            Err(_) => Err(late(&self.addresses)),
        }
    }
}

/// A person who looks on may know at once why there is no server.
async fn say_that_it_takes_long(global: &Global) {
    tokio::time::sleep(SILENCE_MAX).await;
    if std::io::stderr().is_terminal() || global.verbose {
        let (addresses, timeout) = (global.addr.join(","), format_duration(global.timeout));
        Output::of(global)
            .say(&format!("leasehold: {addresses} cannot be reached so far; trying for {timeout}"));
    }
    std::future::pending().await
}

pub(crate) fn builder(global: &Global) -> Result<ClientBuilder, Failure> {
    let builder = Client::builder(&global.addr.join(","))
        .namespace(&global.namespace)
        .patience(global.timeout);
    let builder = match credentials::token(global)? {
        Some(token) if credentials::allows_cleartext_token() => {
            builder.token(&token).allow_cleartext_token()
        }
        Some(token) => builder.token(&token),
        None => builder,
    };
    match (credentials::authorities(global)?, &global.authority) {
        (Some(pem), _) => Ok(builder.authorities(&pem)),
        (None, Some(hash)) => match hash.parse() {
            Ok(hash) => Ok(builder.authority_sha256(hash)),
            Err(_) => {
                let said = "the profile's authority cannot be read";
                Err(Failure::new(EXIT_CONFIG, said).next("`leasehold login` again"))
            }
        },
        (None, None) => Ok(builder),
    }
}

fn late(addresses: &str) -> Failure {
    Failure::new(EXIT_UNREACHABLE, format!("{addresses} did not answer in time"))
        .next("raise --timeout, or let `leasehold doctor` look into it")
}
