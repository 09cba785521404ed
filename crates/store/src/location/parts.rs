//! The parts that addresses of servers have in common.

use std::fmt;
use std::time::Duration;

use super::{LocationError, TIMEOUT_MAX, TIMEOUT_MIN, TlsFiles};

/// Something that is not to be seen.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: String) -> Secret {
        Secret(text)
    }

    /// The file's first line.
    pub(super) fn from_file(path: &str) -> Result<Secret, LocationError> {
        let text = std::fs::read_to_string(path).map_err(|error| LocationError::File {
            name: "password_file",
            why: error.to_string(),
        })?;
        Ok(Secret(text.lines().next().unwrap_or_default().into()))
    }

    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// `//user:password@host:port,host:port/path?name=value&…`, taken apart.
#[derive(Debug)]
pub(super) struct Parts {
    scheme: &'static str,
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) hosts: Vec<(String, u16)>,
    pub(super) path: String,
    pub(super) parameters: Vec<(String, String)>,
}

impl Parts {
    pub(super) fn read(
        scheme: &'static str,
        rest: &str,
        port: u16,
    ) -> Result<Parts, LocationError> {
        let missing = |what| LocationError::Missing { scheme, what };
        let rest = rest.strip_prefix("//").ok_or(missing("host"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        let decoded = |what, text: &str| {
            decode(text).ok_or(LocationError::Wrong {
                scheme,
                what,
                why: "its percent signs do not spell UTF-8".into(),
            })
        };
        let mut parts = Parts {
            scheme,
            user: None,
            password: None,
            hosts: Vec::new(),
            path: decoded("path", path)?,
            parameters: Vec::new(),
        };
        if let Some(credentials) = credentials {
            let (user, password) = match credentials.split_once(':') {
                Some((user, password)) => (user, Some(password)),
                None => (credentials, None),
            };
            parts.user = Some(decoded("user", user)?).filter(|user| !user.is_empty());
            parts.password = match password {
                Some(password) => Some(Secret(decoded("password", password)?)),
                None => None,
            };
        }
        for host in hosts.split(',') {
            let (host, port) = parts.host(host, port)?;
            parts.hosts.push((decoded("host", host)?, port));
        }
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            parts.parameters.push((decoded("parameter", name)?, decoded("parameter", value)?));
        }
        Ok(parts)
    }

    fn host<'a>(&self, text: &'a str, port: u16) -> Result<(&'a str, u16), LocationError> {
        let (host, said) = match text.strip_prefix('[').and_then(|text| text.split_once(']')) {
            Some((host, after)) => (host, after.strip_prefix(':')),
            None => match text.split_once(':') {
                Some((host, said)) => (host, Some(said)),
                None => (text, None),
            },
        };
        if host.is_empty() {
            return Err(LocationError::Missing { scheme: self.scheme, what: "host" });
        }
        let port = match said.map(str::parse) {
            None => port,
            Some(Ok(port)) => port,
            Some(Err(_)) => return Err(self.wrong("port", "it must be a number up to 65535")),
        };
        Ok((host, port))
    }

    pub(super) fn wrong(&self, what: &'static str, why: impl Into<String>) -> LocationError {
        LocationError::Wrong { scheme: self.scheme, what, why: why.into() }
    }

    pub(super) fn unknown(&self, name: &str, known: &'static str) -> LocationError {
        LocationError::Parameter {
            scheme: self.scheme,
            name: name.chars().take(32).collect(),
            known,
        }
    }

    pub(super) fn number(&self, what: &'static str, value: &str) -> Result<u32, LocationError> {
        value.parse().map_err(|_| self.wrong(what, "it must be a number"))
    }

    pub(super) fn switch(&self, what: &'static str, value: &str) -> Result<bool, LocationError> {
        match value {
            "true" | "on" => Ok(true),
            "false" | "off" => Ok(false),
            _ => Err(self.wrong(what, "write on or off")),
        }
    }

    pub(super) fn timeout(&self, value: &str) -> Result<Duration, LocationError> {
        let timeout = Duration::from_millis(self.number("timeout_ms", value)?.into());
        if timeout < TIMEOUT_MIN || timeout > TIMEOUT_MAX {
            return Err(self.wrong("timeout_ms", "it must be between 100 and 60000"));
        }
        Ok(timeout)
    }

    pub(super) fn check_pair(&self, files: &TlsFiles) -> Result<(), LocationError> {
        if files.certificate.is_some() == files.key.is_some() {
            return Ok(());
        }
        Err(self.wrong("certificate", "a certificate and its key go together"))
    }
}

/// `None` if the bytes are no text.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}
