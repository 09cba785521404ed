//! `leasehold login` and `logout`

use std::io::{IsTerminal, Read};

use leasehold_api::WhoAmI;
use leasehold_client::{Client, Method, Transport};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use serde::Serialize;

use super::Answered;
use super::auth::{ask, listed};
use crate::args::{Global, Login};
use crate::asking::Server;
use crate::credentials;
use crate::failure::{EXIT_USAGE, Failure};
use crate::output::Output;
use crate::setup::join::Join;
use crate::setup::profile::{self, Profile, Profiles};

/// No token and no join string is nearly as long.
const INPUT_BYTES_MAX: u64 = 8192;

#[derive(Debug, Serialize)]
struct LoggedIn<'a> {
    profile: &'a str,
    #[serde(flatten)]
    who: &'a WhoAmI,
}

pub(crate) async fn run(global: &Global, args: &Login) -> Answered {
    let name = global.profile.as_deref().unwrap_or(profile::DEFAULT);
    profile::check_name(name)?;
    let mut join = match &args.to {
        Some(to) => read_join(to)?,
        None => read_join(&input("join string, or URL: ")?)?,
    };
    let token = match (join.token.take(), credentials::given_token(global)?) {
        (Some(token), _) | (None, Some(token)) => token,
        (None, None) => input("token: ")?,
    };
    if token.is_empty() {
        return Err(Failure::new(EXIT_USAGE, "there is no token on stdin")
            .next("whoever runs the server makes one: leasehold token create --principal P --role client --namespace N"));
    }
    let profile = Profile {
        addr: join.url.clone(),
        authority: join.authority.map(|hash| hash.to_string()),
        cacert: global.cacert.as_deref().and_then(|path| std::path::absolute(path).ok()),
        namespace: Some(global.namespace.clone()).filter(|namespace| !namespace.is_empty()),
    };
    let reached = Global { addr: join.url.split(',').map(Into::into).collect(), ..global.clone() };
    let builder = Client::builder(&join.url).patience(global.timeout).token(&token);
    let builder = match (join.authority, credentials::authorities(global)?) {
        (Some(hash), _) => builder.authority_sha256(hash),
        (None, Some(pem)) => builder.authorities(&pem),
        (None, None) => builder,
    };
    let server = Server::connect_by(&reached, builder.transport(Transport::Http)).await?;
    let who: WhoAmI = ask(&server, Method::GET, "/v1/auth/self", None::<&()>).await?;
    let mut profiles = Profiles::read()?;
    profiles.profile.insert(name.into(), profile);
    profiles.save(name, Some(&token))?;
    let logged_in = LoggedIn { profile: name, who: &who };
    server.out.answer(&logged_in, |_| {
        let roles = listed(&who.roles);
        let unneeded = if who.credential == "none" { "; this server wants no token" } else { "" };
        format!("{} is {} ({roles}){unneeded}\n", join.url, who.principal)
    });
    Ok(0)
}

pub(crate) fn logout(out: &Output, global: &Global) -> Answered {
    let name = global.profile.as_deref().unwrap_or(profile::DEFAULT);
    profile::check_name(name)?;
    let mut profiles = Profiles::read()?;
    if profiles.profile.remove(name).is_none() {
        let said = format!("there is no profile {name}");
        return Err(Failure::new(EXIT_USAGE, said).next("you are not logged in"));
    }
    profiles.save(name, None)?;
    out.line(&format!("profile {name} and its token are gone from this machine; `leasehold token revoke` ends the token"));
    Ok(0)
}

fn read_join(text: &str) -> Result<Join, Failure> {
    text.trim().parse().map_err(|said: &str| Failure::new(EXIT_USAGE, said))
}

/// A line of stdin; on a terminal it is asked for, and not shown.
fn input(question: &str) -> Result<String, Failure> {
    let stdin = std::io::stdin();
    let mut line = String::new();
    if !stdin.is_terminal() {
        // One byte at a time: a second question finds the second line.
        for byte in stdin.lock().take(INPUT_BYTES_MAX).bytes() {
            match byte? {
                b'\n' if line.trim().is_empty() => {}
                b'\n' => break,
                byte => line.push(char::from(byte)),
            }
        }
        return Ok(line.trim().to_owned());
    }
    eprint!("{question}");
    let before = tcgetattr(&stdin).map_err(std::io::Error::from)?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &silent).map_err(std::io::Error::from)?;
    let read = stdin.read_line(&mut line);
    let _ = tcsetattr(&stdin, OptionalActions::Flush, &before);
    eprintln!();
    read?;
    Ok(line.trim().to_owned())
}
