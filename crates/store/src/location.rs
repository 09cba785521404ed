//! The location of a store, as one line of text: the only place that understands it.
//!
//! ```text
//! memory                                                   forgotten when the process ends
//! sqlite:/var/lib/leasehold/leasehold.db                   one file, one server
//! postgres://user:password@host:5432/database?schema=…     many servers
//! etcd://host1:2379,host2:2379,host3:2379?prefix=…         many servers
//! ```
//!
//! Such a text may hold a password. A [`Location`] never shows it again: neither `Display` nor `Debug` does, and no
//! error quotes the text it could not read.

mod parts;

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parts::Parts;
pub(crate) use parts::Secret;

/// The time that a store behind a network may take for an answer before another way is tried.
const TIMEOUT: Duration = Duration::from_secs(2);
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// The kind and place of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In this process, and forgotten when it ends.
    Memory,
    /// In this file.
    Sqlite(PathBuf),
    Postgres(PostgresLocation),
    Etcd(EtcdLocation),
}

/// A PostgreSQL database and how to get at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresLocation {
    pub hosts: Vec<(String, u16)>,
    pub user: String,
    pub(crate) password: Option<Secret>,
    pub database: String,
    /// The schema that the tables are in.
    pub schema: String,
    /// Added to the number of the group: for several installations in one schema.
    pub group: u32,
    pub tls: Tls,
    pub files: TlsFiles,
    pub timeout: Duration,
}

/// The members of an etcd cluster and how to get at them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdLocation {
    pub hosts: Vec<(String, u16)>,
    pub user: Option<String>,
    pub(crate) password: Option<Secret>,
    /// All keys begin with it.
    pub prefix: String,
    /// Added to the number of the group.
    pub group: u32,
    pub tls: Tls,
    pub files: TlsFiles,
    /// Whether the leader tells etcd to forget old revisions. Off where an operator does.
    pub compact: bool,
    pub timeout: Duration,
}

/// The protection of the connection to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    Off,
    /// Encrypted, but with whom nobody knows.
    Unverified,
    /// The certificate is signed by a known authority, whatever name it has.
    VerifyAuthority,
    /// The certificate is signed by a known authority and has the host's name.
    Verify,
}

/// Files in PEM format; without an authority those of the system count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    pub authority: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// The reason why a text is not a location. It never quotes what could be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    #[error(
        "there is no kind of store called {0:?}: write memory, sqlite:PATH, postgres://… or etcd://…"
    )]
    Scheme(String),
    #[error("the {what} in a {scheme} address is missing")]
    Missing { scheme: &'static str, what: &'static str },
    #[error("the {what} in a {scheme} address cannot be: {why}")]
    Wrong { scheme: &'static str, what: &'static str, why: String },
    #[error("a {scheme} address has no parameter {name:?}; there are: {known}")]
    Parameter { scheme: &'static str, name: String, known: &'static str },
    #[error("the file of {name} cannot be read: {why}")]
    File { name: &'static str, why: String },
}

impl Location {
    /// The file that a data directory has.
    pub fn in_directory(directory: &Path) -> Location {
        Location::Sqlite(directory.join("leasehold.db"))
    }

    pub fn parse(text: &str) -> Result<Location, LocationError> {
        let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
        match scheme {
            "memory" if text == "memory" => Ok(Location::Memory),
            "sqlite" if rest.is_empty() => {
                Err(LocationError::Missing { scheme: "sqlite", what: "path" })
            }
            "sqlite" => Ok(Location::Sqlite(rest.into())),
            "postgres" | "postgresql" => postgres(rest).map(Location::Postgres),
            "etcd" => etcd(rest).map(Location::Etcd),
            _ => Err(LocationError::Scheme(scheme.chars().take(32).collect())),
        }
    }

    /// Several servers can use it at the same time.
    pub fn is_shared(&self) -> bool {
        match self {
            Location::Memory | Location::Sqlite(_) => false,
            Location::Postgres(_) | Location::Etcd(_) => true,
        }
    }
}

const POSTGRES_PARAMETERS: &str =
    "schema, group, sslmode, sslrootcert, sslcert, sslkey, password_file, timeout_ms";

fn postgres(rest: &str) -> Result<PostgresLocation, LocationError> {
    const SCHEME: &str = "postgres";
    let mut parts = Parts::read(SCHEME, rest, 5432)?;
    let user = parts.user.take().ok_or(LocationError::Missing { scheme: SCHEME, what: "user" })?;
    let database = match std::mem::take(&mut parts.path) {
        path if path.is_empty() => user.clone(),
        path => path,
    };
    let is_near = parts.hosts.iter().all(|(host, _)| is_near(host));
    let mut location = PostgresLocation {
        hosts: parts.hosts.clone(),
        user,
        password: parts.password.take(),
        database,
        schema: "leasehold".into(),
        group: 0,
        tls: if is_near { Tls::Off } else { Tls::Verify },
        files: TlsFiles::default(),
        timeout: TIMEOUT,
    };
    for (name, value) in parts.parameters.iter() {
        match name.as_str() {
            "schema" if value.is_empty() || value.contains('\0') => {
                return Err(parts.wrong("schema", "it must be a name"));
            }
            "schema" => location.schema.clone_from(value),
            "group" => location.group = parts.number("group", value)?,
            "sslmode" => {
                location.tls = match value.as_str() {
                    "disable" => Tls::Off,
                    "require" => Tls::Unverified,
                    "verify-ca" => Tls::VerifyAuthority,
                    "verify-full" => Tls::Verify,
                    _ => {
                        let why = "write disable, require, verify-ca or verify-full";
                        return Err(parts.wrong("sslmode", why));
                    }
                }
            }
            "sslrootcert" => location.files.authority = Some(value.into()),
            "sslcert" => location.files.certificate = Some(value.into()),
            "sslkey" => location.files.key = Some(value.into()),
            "password_file" => location.password = Some(Secret::from_file(value)?),
            "timeout_ms" => location.timeout = parts.timeout(value)?,
            _ => return Err(parts.unknown(name, POSTGRES_PARAMETERS)),
        }
    }
    // An authority that is named is asked, as libpq does.
    if location.tls == Tls::Unverified && location.files.authority.is_some() {
        location.tls = Tls::VerifyAuthority;
    }
    parts.check_pair(&location.files)?;
    Ok(location)
}

const ETCD_PARAMETERS: &str =
    "prefix, group, tls, cacert, cert, key, user, password, password_file, compact, timeout_ms";

fn etcd(rest: &str) -> Result<EtcdLocation, LocationError> {
    let mut parts = Parts::read("etcd", rest, 2379)?;
    if !parts.path.is_empty() {
        return Err(parts.wrong("path", "there is none; say prefix=… instead"));
    }
    let mut location = EtcdLocation {
        hosts: parts.hosts.clone(),
        user: parts.user.take(),
        password: parts.password.take(),
        prefix: "leasehold".into(),
        group: 0,
        tls: if parts.hosts.iter().all(|(host, _)| is_near(host)) { Tls::Off } else { Tls::Verify },
        files: TlsFiles::default(),
        compact: true,
        timeout: TIMEOUT,
    };
    for (name, value) in parts.parameters.iter() {
        match name.as_str() {
            "prefix" if value.is_empty() => {
                return Err(parts.wrong("prefix", "it must not be empty"));
            }
            "prefix" => location.prefix = value.trim_end_matches('/').into(),
            "group" => location.group = parts.number("group", value)?,
            "tls" => {
                location.tls = if parts.switch("tls", value)? { Tls::Verify } else { Tls::Off }
            }
            "cacert" => location.files.authority = Some(value.into()),
            "cert" => location.files.certificate = Some(value.into()),
            "key" => location.files.key = Some(value.into()),
            "user" => location.user = Some(value.clone()),
            "password" => location.password = Some(Secret::new(value.clone())),
            "password_file" => location.password = Some(Secret::from_file(value)?),
            "compact" => location.compact = parts.switch("compact", value)?,
            "timeout_ms" => location.timeout = parts.timeout(value)?,
            _ => return Err(parts.unknown(name, ETCD_PARAMETERS)),
        }
    }
    if location.files != TlsFiles::default() {
        location.tls = Tls::Verify;
    }
    if location.user.is_some() != location.password.is_some() {
        return Err(parts.wrong("user", "user and password go together"));
    }
    parts.check_pair(&location.files)?;
    Ok(location)
}

/// On this machine: nobody is on the way.
fn is_near(host: &str) -> bool {
    host == "localhost"
        || host.starts_with('/')
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Without user, password and parameters: enough to know which one it is.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Memory => f.write_str("memory"),
            Location::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Location::Postgres(location) => location.fmt(f),
            Location::Etcd(location) => location.fmt(f),
        }
    }
}

impl fmt::Display for PostgresLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}/{}", hosts(&self.hosts), self.database)
    }
}

impl fmt::Display for EtcdLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "etcd://{}", hosts(&self.hosts))
    }
}

fn hosts(hosts: &[(String, u16)]) -> String {
    let hosts: Vec<String> = hosts.iter().map(|(host, port)| host_and_port(host, *port)).collect();
    hosts.join(",")
}

pub(crate) fn host_and_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Location::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn each_kind_is_told_by_its_scheme() {
        assert_eq!(Location::parse("memory"), Ok(Location::Memory));
        assert_eq!(Location::parse("sqlite:/x.db"), Ok(Location::Sqlite("/x.db".into())));
        assert!(matches!(Location::parse("postgres://a@b/c"), Ok(Location::Postgres(_))));
        assert!(matches!(Location::parse("etcd://a"), Ok(Location::Etcd(_))));
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_reason() {
        for (text, reason) in [
            ("redis://x", "there is no kind of store called \"redis\""),
            ("", "there is no kind of store called \"\""),
            ("memory:x", "there is no kind of store called \"memory\""),
            ("sqlite:", "the path in a sqlite address is missing"),
            ("postgres:x", "the host in a postgres address is missing"),
            ("postgres://h/d", "the user in a postgres address is missing"),
            ("postgres://u@h:x/d", "the port in a postgres address cannot be"),
            ("postgres://u@h/d?sslmode=maybe", "the sslmode in a postgres address cannot be"),
            ("postgres://u@h/d?shema=x", "a postgres address has no parameter \"shema\""),
            ("postgres://u@h/d?timeout_ms=1", "the timeout_ms in a postgres address cannot be"),
            ("etcd://h/x", "the path in a etcd address cannot be"),
            ("etcd://u@h", "the user in a etcd address cannot be"),
            ("etcd://h?cert=x", "the certificate in a etcd address cannot be"),
        ] {
            let said = refusal(text);
            assert!(said.starts_with(reason), "{text}: {said}");
        }
    }

    #[test]
    fn parts_are_read_as_they_are_documented() {
        let text =
            "postgres://us%40er:p%3Aw@db1:6432,[::1]/locks?schema=s&group=3&sslmode=verify-ca";
        let Ok(Location::Postgres(found)) = Location::parse(text) else { panic!("it is one") };
        assert_eq!(found.hosts, [("db1".to_string(), 6432), ("::1".to_string(), 5432)]);
        assert_eq!((found.user.as_str(), found.database.as_str()), ("us@er", "locks"));
        assert_eq!(found.password, Some(Secret::new("p:w".into())));
        assert_eq!((found.schema.as_str(), found.group), ("s", 3));
        assert_eq!(found.tls, Tls::VerifyAuthority);
    }

    #[test]
    fn way_to_another_machine_is_protected_unless_said_otherwise() {
        for (text, tls) in [
            ("postgres://u@127.0.0.1/d", Tls::Off),
            ("postgres://u@db.example/d", Tls::Verify),
            ("postgres://u@db.example/d?sslmode=disable", Tls::Off),
        ] {
            let Ok(Location::Postgres(found)) = Location::parse(text) else { panic!("{text}") };
            assert_eq!(found.tls, tls, "{text}");
        }
        for (text, tls) in [
            ("etcd://127.0.0.1,[::1]:2380", Tls::Off),
            ("etcd://db.example", Tls::Verify),
            ("etcd://localhost,db.example?user=u&password=p", Tls::Verify),
            ("etcd://db.example?tls=off", Tls::Off),
            ("etcd://127.0.0.1?tls=on", Tls::Verify),
        ] {
            let Ok(Location::Etcd(found)) = Location::parse(text) else { panic!("{text}") };
            assert_eq!(found.tls, tls, "{text}");
        }
    }

    #[test]
    fn authority_that_is_named_is_asked() {
        let tls = |text: &str| match Location::parse(text) {
            Ok(Location::Postgres(found)) => found.tls,
            other => panic!("{other:?}"),
        };
        assert_eq!(tls("postgres://u@h/d?sslmode=require"), Tls::Unverified);
        let with_authority = "postgres://u@h/d?sslmode=require&sslrootcert=/ca.pem";
        assert_eq!(tls(with_authority), Tls::VerifyAuthority);
    }

    #[test]
    fn password_is_never_shown() {
        for text in ["postgres://u:hush@h/d", "etcd://u:hush@h:1", "etcd://h?user=u&password=hush"]
        {
            let location = Location::parse(text).unwrap();
            let shown = format!("{location} {location:?}");
            assert!(!shown.contains("hush"), "{shown}");
        }
        for text in ["postgres://u:hush@h:port/d", "postgre://u:hush@h", "etcd://u:hush@h?x=hush2"]
        {
            assert!(!refusal(text).contains("hush@"), "{}", refusal(text));
            assert!(!refusal(text).contains("hush2"), "{}", refusal(text));
        }
    }
}
