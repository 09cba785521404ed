//! Networks that a credential is good from: `10.0.0.0/8`, `2001:db8::/32`, or one address.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: IpAddr,
    len: u8,
}

/// The text was not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    #[error("{0:?} is not a network such as 10.0.0.0/8")]
    NotANetwork(String),
    #[error("{0} has bits behind its /{1}")]
    HostBits(IpAddr, u8),
}

impl Network {
    /// An IPv4 address inside an IPv6 one is taken for the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                masked(u128::from(own.to_bits()), 32, self.len)
                    == masked(u128::from(other.to_bits()), 32, self.len)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                masked(own.to_bits(), 128, self.len) == masked(other.to_bits(), 128, self.len)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// Whether all of another network lies in it.
    pub fn covers(&self, other: &Network) -> bool {
        self.len <= other.len && self.contains(other.address)
    }
}

/// The first `len` of so many bits.
fn masked(bits: u128, of: u8, len: u8) -> u128 {
    bits.checked_shr(u32::from(of - len)).unwrap_or(0)
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let fault = || NetworkError::NotANetwork(text.chars().take(64).collect());
        let (address, len) = match text.split_once('/') {
            None => (text, None),
            Some((address, len)) => (address, Some(len)),
        };
        let address: IpAddr = address.parse().map_err(|_| fault())?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => bits,
            Some(len) if len.bytes().all(|byte| byte.is_ascii_digit()) => {
                len.parse().map_err(|_| fault())?
            }
            Some(_) => return Err(fault()),
        };
        if len > bits || address.to_canonical() != address {
            return Err(fault());
        }
        let whole = match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let kept = masked(whole, bits, len).checked_shl(u32::from(bits - len)).unwrap_or(0);
        if kept != whole {
            return Err(NetworkError::HostBits(address, len));
        }
        Ok(Network { address, len })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn network_holds_the_addresses_that_begin_alike() {
        let cases = [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("0.0.0.0/0", "8.8.8.8", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.8", false),
            ("2001:db8::/32", "2001:db8:1::", true),
            ("2001:db8::/32", "2001:db9::", false),
            ("::/0", "::1", true),
            ("::1", "::1", true),
        ];
        for (range, address, is_in) in cases {
            let found = network(range).contains(address.parse().unwrap());
            assert_eq!(found, is_in, "{range} {address}");
        }
        assert!(network("10.0.0.0/8").covers(&network("10.1.0.0/16")));
        assert!(!network("10.1.0.0/16").covers(&network("10.0.0.0/8")));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        let odd = ["", "10.0.0.0/", "10.0.0.0/33", "10.0.0.1/8", "::/129", "a/8", "10.0.0.0/+8"];
        for text in odd.into_iter().chain(["::ffff:10.0.0.0/104", "1.2.3/8", "10.0.0.0/8/8"]) {
            assert!(text.parse::<Network>().is_err(), "{text:?}");
        }
        assert_eq!(network("10.0.0.0/8").to_string(), "10.0.0.0/8");
    }
}
