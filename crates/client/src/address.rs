//! Addresses of servers, and percent-encoding of names.

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::error::Error;

/// Reads `http://host:port` or `https://host:port`, or several with commas between them.
pub(crate) fn parse_servers(text: &str) -> Result<Vec<String>, Error> {
    let servers: Vec<String> = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(parse_server)
        .collect::<Result<_, _>>()?;
    if servers.is_empty() {
        return Err(Error::Address("an address is needed, such as http://127.0.0.1:8080".into()));
    }
    Ok(servers)
}

/// True if the server is on this machine, so that no other can listen on the way.
pub(crate) fn is_loopback(server: &str) -> bool {
    let host = host(server);
    let is_name = host.eq_ignore_ascii_case("localhost");
    is_name || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

pub(crate) fn parse_server(text: &str) -> Result<String, Error> {
    let wrong = |why: &str| Err(Error::Address(format!("{text:?} is not a server: {why}")));
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let port = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return wrong("expected http:// or https://"),
    };
    let host = rest.trim_end_matches('/');
    if host.is_empty() || host.contains(['/', '?', '#', '@']) {
        return wrong("expected http://HOST:PORT or https://HOST:PORT");
    }
    match host.parse::<hyper::http::uri::Authority>() {
        Ok(authority) if authority.port().is_some() => Ok(format!("{scheme}://{authority}")),
        Ok(authority) => Ok(format!("{scheme}://{authority}:{port}")),
        Err(_) => wrong("expected http://HOST:PORT or https://HOST:PORT"),
    }
}

/// The `host:port` of a server that was parsed.
pub(crate) fn authority(server: &str) -> &str {
    server.split_once("://").map_or(server, |(_, authority)| authority)
}

/// True if TLS is spoken to it.
pub(crate) fn is_protected(server: &str) -> bool {
    server.starts_with("https://")
}

/// Its name or address; that is what its certificate must be for.
pub(crate) fn host(server: &str) -> &str {
    let authority = authority(server);
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// A name as part of a path: slashes stay, since a name is made of segments. Only the one before a last segment that
/// could be taken for a verb is encoded.
pub fn path_part(name: &str) -> String {
    const PLAIN: &[u8] = b"-._~/:@!$'()*,;=";
    match name.rsplit_once('/') {
        Some((before, last)) if VERBS.contains(&last) => {
            format!("{}%2F{}", encoded(before, PLAIN), encoded(last, PLAIN))
        }
        Some(_) | None => encoded(name, PLAIN),
    }
}

/// The last segment of the path of a POST.
const VERBS: [&str; 7] = ["acquire", "renew", "release", "test", "check", "break", "unlock"];

/// A value in a query.
pub fn query_value(value: &str) -> String {
    encoded(value, b"-._~")
}

fn encoded(text: &str, plain: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("a String takes everything");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_one_or_several() {
        let read = |text| parse_servers(text).unwrap();
        assert_eq!(read("http://127.0.0.1:8080"), ["http://127.0.0.1:8080"]);
        assert_eq!(
            read("a:1, http://b:2/,[::1]:3"),
            ["http://a:1", "http://b:2", "http://[::1]:3"]
        );
        assert_eq!(read("https://a, https://b:2"), ["https://a:443", "https://b:2"]);
        for wrong in ["", " , ", "ftp://a:1", "http://a:1/x", "http://", "http://a b:1"] {
            assert!(parse_servers(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn loopback_is_told_from_what_only_looks_like_it() {
        for here in [
            "http://127.0.0.1:1",
            "http://127.9.9.9:1",
            "http://[::1]:1",
            "http://LocalHost:1",
            "http://[::ffff:127.0.0.1]:1",
        ] {
            assert!(is_loopback(here), "{here}");
        }
        for elsewhere in [
            "http://10.0.0.1:1",
            "http://localhost.example:1",
            "http://127.0.0.1.example:1",
            "http://[::2]:1",
        ] {
            assert!(!is_loopback(elsewhere), "{elsewhere}");
        }
    }

    #[test]
    fn the_name_of_a_server_is_told_from_its_port() {
        let servers = ["https://a.example:443", "https://127.0.0.1:1", "https://[::1]:3"];
        assert_eq!(servers.map(host), ["a.example", "127.0.0.1", "::1"]);
        assert!(is_protected(servers[0]) && !is_protected("http://a:1"));
    }

    #[test]
    fn names_survive_the_way_through_a_path() {
        assert_eq!(path_part("db/migrate"), "db/migrate");
        assert_eq!(path_part("inode:42@100..200"), "inode:42@100..200");
        assert_eq!(path_part("shop/till/check"), "shop/till%2Fcheck");
        assert_eq!(path_part("a b?#%é"), "a%20b%3F%23%25%C3%A9");
        assert_eq!(query_value("a/b&c=d"), "a%2Fb%26c%3Dd");
    }
}
