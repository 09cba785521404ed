//! `leasehold init`

use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use leasehold_server::{Config, Listen};

use super::{Answered, auth, host};
use crate::args::{Global, Init};
use crate::failure::{EXIT_USAGE, Failure};
use crate::output::Output;
use crate::setup::join::Join;
use crate::setup::pki::{Authority, Paths, Record, Request, Subject};
use crate::setup::private::{self, PUBLIC, SECRET};
use crate::setup::profile::{self, Profile, Profiles};

const SERVER_DAYS: u32 = 90;
const HOSTS_MAX: usize = 64;

/// The files of a server that was set up.
pub(crate) struct Layout {
    directory: PathBuf,
}

impl Layout {
    pub(crate) fn of(directory: &Path) -> Layout {
        Layout { directory: std::path::absolute(directory).unwrap_or(directory.into()) }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.directory.join("leasehold.toml")
    }

    pub(crate) fn certificate(&self) -> Paths {
        Paths::of(&self.directory.join("pki/server.pem"))
    }

    fn access(&self) -> PathBuf {
        self.directory.join("access.toml")
    }
}

pub(crate) fn run(out: &Output, global: &Global, args: &Init) -> Answered {
    let name = args.name.clone().unwrap_or_else(host);
    let layout = Layout::of(&args.dir);
    let done = set_up(&layout, global, &name, &args.hosts, args.listen)?;
    if let Some(kept) = &done.kept {
        out.say(&format!("the first token, of root, is kept for you: {kept}"));
    } else {
        out.say(&format!("{} is set up already; nothing was changed", args.dir.display()));
    }
    let is_shown = std::io::stdout().is_terminal();
    let join = Join { token: done.join.token.filter(|_| is_shown), ..done.join };
    out.line(&format!("leasehold serve --config {}", layout.config().display()));
    out.line(&format!("leasehold login {join}"));
    out.line("leasehold token create --principal P --role client --namespace default");
    Ok(0)
}

/// The result of `init`.
pub(crate) struct Done {
    join: Join,
    /// The file with the first token, if it was made now.
    kept: Option<String>,
}

/// Makes what is not there yet. The configuration is written last: with it, all is there.
pub(crate) fn set_up(
    layout: &Layout,
    global: &Global,
    name: &str,
    more: &[String],
    listen: SocketAddr,
) -> Result<Done, Failure> {
    let hosts = hosts(name, more)?;
    let directory = &layout.directory;
    private::directory(directory)?;
    let authority = Authority::made(directory)?;
    let certificate = layout.certificate();
    if !private::is_there(&certificate.record) {
        let subject = Subject::Server { name: name.into(), hosts: hosts.clone() };
        authority.sign(&certificate, &Request { subject, days: SERVER_DAYS })?;
    }
    // What was set up before has a name and a port of its own.
    let record = Record::read(&certificate)?;
    let name = match &record.request.subject {
        Subject::Server { name, .. } => name,
        Subject::Principal(_) => name,
    };
    let port = match Config::read(&layout.config()).map(|config| config.listen) {
        Ok(Listen::Tcp(address)) => address.port(),
        Ok(Listen::Unix(_)) | Err(_) => listen.port(),
    };
    let mut join = Join {
        authority: Some(authority.hash),
        token: None,
        url: format!("https://{}:{port}", in_url(name)),
    };
    let mut kept = None;
    if !private::is_there(&layout.access()) {
        let token = auth::new()?;
        let lines = auth::token_lines(&token, "root", &["admin".into()]);
        kept = Some(keep(global, name, port, &authority, token.reveal())?);
        join.token = Some(token.reveal().to_owned());
        private::write(&layout.access(), &format!("{ACCESS_HEAD}{lines}"), SECRET)?;
    }
    if !private::is_there(&layout.config()) {
        private::write(&layout.config(), &configuration(layout, &hosts, listen), PUBLIC)?;
    }
    Ok(Done { join, kept })
}

const ACCESS_HEAD: &str = "# Roles and tokens beside those that the server keeps: docs/operate/security.md. It never holds a secret.\n\n";

/// Names and addresses without repetition; those of this machine are always among them.
fn hosts(name: &str, more: &[String]) -> Result<Vec<String>, Failure> {
    let mut hosts: Vec<String> = Vec::new();
    let own = ["localhost", "127.0.0.1", "::1"].map(String::from);
    for host in std::iter::once(name.to_owned()).chain(more.iter().cloned()).chain(own) {
        let host = host.trim().to_ascii_lowercase();
        let is_label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        };
        let is_name = host.len() <= 253 && host.split('.').all(is_label);
        if !is_name && host.parse::<IpAddr>().is_err() {
            let said = format!("{host:?} is neither a name nor an address");
            return Err(Failure::new(EXIT_USAGE, said)
                .next("--name and --hosts take names such as locks.example, and addresses"));
        }
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    if hosts.len() > HOSTS_MAX {
        return Err(Failure::new(EXIT_USAGE, "there are more than 64 names and addresses"));
    }
    Ok(hosts)
}

fn in_url(name: &str) -> String {
    if name.contains(':') { format!("[{name}]") } else { name.into() }
}

/// Keeps the token in a profile: the default one, or one of the server's name if that is taken by another server.
fn keep(
    global: &Global,
    name: &str,
    port: u16,
    authority: &Authority,
    token: &str,
) -> Result<String, Failure> {
    let addr = format!("https://localhost:{port}");
    let mut profiles = Profiles::read()?;
    let is_free = |name: &str| profiles.profile.get(name).is_none_or(|known| known.addr == addr);
    let chosen = match &global.profile {
        Some(chosen) => chosen.clone(),
        None if is_free(profile::DEFAULT) => profile::DEFAULT.into(),
        None => name.replace(['.', ':'], "-"),
    };
    profile::check_name(&chosen)?;
    let authority = Some(authority.hash.to_string());
    let made = Profile { addr, authority, ..Profile::default() };
    profiles.profile.insert(chosen.clone(), made);
    profiles.save(&chosen, Some(token))?;
    let file = profile::token_file(&chosen)?;
    let flag = if chosen == profile::DEFAULT {
        String::new()
    } else {
        format!(" (use --profile {chosen})")
    };
    Ok(format!("{}{flag}", file.display()))
}

fn configuration(layout: &Layout, hosts: &[String], listen: SocketAddr) -> String {
    let quoted = |path: &Path| serde_json::Value::from(path.to_string_lossy().as_ref()).to_string();
    let is_name = |host: &&String| host.parse::<IpAddr>().is_err() && *host != "localhost";
    let names: Vec<&String> = hosts.iter().filter(is_name).collect();
    let names = serde_json::Value::from_iter(names.into_iter().cloned()).to_string();
    let certificate = layout.certificate();
    format!(
        "# Written by `leasehold init`. docs/operate/configuration.md has every setting.

# Where clients reach this server, and the names that they may use for it beside addresses and localhost.
listen = \"{listen}\"
hosts = {names}

# Where locks are kept.
data = {data}

# Clients trust pki/ca.pem. The certificate is renewed by `leasehold serve` while pki/ca.key is there, or by `leasehold cert renew`.
[tls]
cert = {cert}
key = {key}
# Certificates of `leasehold cert issue` are taken in place of tokens.
client_ca = {ca}
client_auth = \"optional\"

# Servers around one store know each other by their certificates, and forward requests to each other over TLS.
[cluster]
ca = {ca}

# Every request needs a token: roles and tokens are in this file, and in the store.
[auth]
enabled = true
access_file = {access}
",
        data = quoted(&layout.directory),
        cert = quoted(&certificate.certificate),
        key = quoted(&certificate.key),
        ca = quoted(&Authority::files(&layout.directory).0),
        access = quoted(&layout.access()),
    )
}

/// Renews the server's own certificate if it is in the last third of its life and the key of the authority is there.
pub(crate) fn renew_if_due(layout: &Layout, now: std::time::SystemTime) -> Result<bool, Failure> {
    let certificate = layout.certificate();
    if !private::is_there(&certificate.record)
        || !private::is_there(&Authority::files(&layout.directory).1)
    {
        return Ok(false);
    }
    let record = Record::read(&certificate)?;
    if !record.is_due(now) {
        return Ok(false);
    }
    Authority::read(&layout.directory)?.sign(&certificate, &record.request)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_and_addresses() {
        let all = hosts("Locks.Example", &["10.0.0.5".into(), " ::2".into(), "localhost".into()])
            .unwrap();
        assert_eq!(all, ["locks.example", "10.0.0.5", "::2", "localhost", "127.0.0.1", "::1"]);
        for wrong in ["", "a b", "a..b", "*.example", "a/b", "é"] {
            assert!(hosts(wrong, &[]).is_err(), "{wrong}");
        }
    }
}
