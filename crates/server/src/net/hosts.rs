//! The names that a server answers to.
//!
//! A page in a browser can make it ask any address under a name of the attacker's (DNS rebinding), and a browser inside a
//! company reaches what others cannot. An address is no such name, so any is good; a name must be the server's own.

use std::net::IpAddr;

use crate::config::Config;
use crate::net::tls::Tls;

/// Names of this server, in small letters, beside those in its certificate.
#[derive(Debug)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    pub(crate) fn new(config: &Config) -> Hosts {
        let advertised = config.cluster.advertise.as_deref().and_then(|url| url.split_once("://"));
        let advertised = advertised.map(|(_, rest)| name_of(rest.split('/').next().unwrap_or("")));
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let own = ["localhost", &machine].into_iter().chain(advertised);
        let own = own.chain(config.hosts.iter().map(String::as_str));
        Hosts(own.filter(|name| !name.is_empty()).map(str::to_ascii_lowercase).collect())
    }

    /// Whether a request for this host, with or without a port, is one for this server.
    pub(crate) fn is_own(&self, host: &str, tls: Option<&Tls>) -> bool {
        let name = name_of(host).to_ascii_lowercase();
        let is_address = name.parse::<IpAddr>().is_ok();
        is_address || self.0.contains(&name) || tls.is_some_and(|tls| tls.is_for(&name))
    }
}

/// The name or the address without the port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClusterConfig;

    #[test]
    fn addresses_and_own_names_are_answered_to_and_no_others() {
        let advertise = Some("http://Locks-1.test:8080".to_owned());
        let cluster = ClusterConfig { advertise, ..ClusterConfig::default() };
        let config = Config { hosts: vec!["Locks.test".into()], cluster, ..Config::default() };
        let hosts = Hosts::new(&config);
        for host in [
            "localhost",
            "LOCALHOST:8080",
            "127.0.0.1:1",
            "10.0.0.1",
            "[::1]:8080",
            "[2001:db8::1]",
            "locks.test:80",
            "locks-1.test",
        ] {
            assert!(hosts.is_own(host, None), "{host}");
        }
        for host in [
            "",
            ":80",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:80",
            "[evil.example]",
            "test",
        ] {
            assert!(!hosts.is_own(host, None), "{host}");
        }
    }
}
