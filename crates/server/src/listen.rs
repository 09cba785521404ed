//! The address that a server listens on.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

/// An address and port, or a socket in the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Listen {
    /// Whether other machines can reach it.
    pub fn is_open_to_others(&self) -> bool {
        match self {
            Listen::Tcp(address) => !address.ip().is_loopback(),
            Listen::Unix(_) => false,
        }
    }

    pub fn unix(&self) -> Option<&Path> {
        match self {
            Listen::Tcp(_) => None,
            Listen::Unix(path) => Some(path),
        }
    }
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Listen {
        Listen::Tcp(address)
    }
}

impl FromStr for Listen {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Listen, &'static str> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = (!path.is_empty()).then(|| Listen::Unix(path.into()));
            return path.ok_or("expected unix:PATH, for example unix:/run/leasehold/socket");
        }
        let port = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        let address = match port {
            Some(port) => Some((Ipv4Addr::LOCALHOST, port).into()),
            None => text.parse().ok(),
        };
        let said = "expected IP:PORT, for example 127.0.0.1:8080, or unix:PATH";
        address.map(Listen::Tcp).ok_or(said)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => address.fmt(f),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Listen, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_or_path_is_written_as_it_is_read() {
        for text in ["127.0.0.1:8080", "[::1]:80", "unix:/run/leasehold/socket", "unix:here"] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        assert_eq!("localhost:1".parse::<Listen>().unwrap().to_string(), "127.0.0.1:1");
        for text in ["", "unix:", "8080", ":80", "localhost", "locks.example:80", "Unix:/a"] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }

    #[test]
    fn loopback_and_files_are_not_open_to_others() {
        let is_open = |text: &str| text.parse::<Listen>().unwrap().is_open_to_others();
        assert!(is_open("0.0.0.0:80") && is_open("10.0.0.1:80") && is_open("[::]:80"));
        assert!(!is_open("127.9.9.9:80") && !is_open("[::1]:80") && !is_open("unix:/a"));
    }
}
