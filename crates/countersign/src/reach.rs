//! Which network addresses a program of ours may connect to.
//!
//! Tools fetch what a model names and the server posts where a configuration points: neither may be led to this machine
//! or its network by a name that resolves there. Whoever connects checks what a name resolved to, and connects to
//! exactly that.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Which addresses may be connected to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// Only those of the open internet: no private, loopback, link-local or otherwise special ones.
    #[default]
    Public,
    /// Those of the open internet, and these.
    PublicAnd(Arc<[IpAddr]>),
    /// All, this machine and its network included.
    Anywhere,
}

impl Reach {
    /// Whether an address may be connected to.
    pub fn allows(&self, address: IpAddr) -> bool {
        match self {
            Reach::Anywhere => true,
            Reach::PublicAnd(listed) => listed.contains(&address) || is_public(address),
            Reach::Public => is_public(address),
        }
    }

    /// Whether all addresses that a host resolved to may be connected to. One bad address among good ones is a name
    /// that somebody plays with, and so is a name without any.
    pub fn check(&self, host: &str, addresses: impl IntoIterator<Item = IpAddr>) -> Result<(), Forbidden> {
        let mut addresses = addresses.into_iter().peekable();
        match addresses.peek().is_some() && addresses.all(|address| self.allows(address)) {
            true => Ok(()),
            false => Err(Forbidden { host: host.to_owned() }),
        }
    }

    /// Whether a host may be connected to as far as its text says: an address is never looked up, so it is checked here.
    pub fn check_literal(&self, host: &str) -> Result<(), Forbidden> {
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) => self.check(host, [address]),
            Err(_) => Ok(()),
        }
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = match (a, b, c) {
        // "This network", and everything from multicast to broadcast.
        (0 | 224..=255, _, _) => true,
        // Shared by carriers; protocol assignments; 6to4 relays; benchmarks.
        (100, 64..=127, _) | (192, 0, 0) | (192, 88, 99) | (198, 18..=19, _) => true,
        _ => false,
    };
    let local = address.is_private() || address.is_loopback() || address.is_link_local() || address.is_documentation();
    !special && !local
}

/// Global unicast alone, so that mapped, translated, unique-local, link-local and multicast ones are all out; and of it
/// not what carries another address inside, since that one would have to be checked too.
fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // Teredo and other protocol assignments; documentation; 6to4.
        [0x2001, 0x0000..=0x01ff, ..] | [0x2001, 0x0db8, ..] | [0x2002, ..] | [0x3fff, 0x0000..=0x0fff, ..] => false,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// A host at an address that may not be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forbidden {
    /// The host, as it was named.
    pub host: String,
}

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is at an address that is not public, so it may not be reached", self.host)
    }
}

impl std::error::Error for Forbidden {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(addresses: &[&str], expected: bool) {
        for address in addresses {
            assert_eq!(Reach::Public.allows(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn only_public_addresses_are_in_reach() {
        check(&["1.1.1.1", "8.8.8.8", "100.63.0.1", "172.32.0.1", "198.20.0.1", "223.255.255.255"], true);
        check(&["2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888"], true);
        check(&["127.0.0.1", "127.8.8.8", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254"], false);
        check(&["0.0.0.0", "0.1.2.3", "100.64.0.1", "100.127.255.255", "192.0.0.192", "198.18.0.1"], false);
        check(&["192.0.2.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"], false);
        check(&["::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1"], false);
        check(&["::ffff:8.8.8.8", "::ffff:127.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"], false);
        check(&["2001:0:7f00:1::", "2001:db8::1", "3fff::1"], false);
    }

    /// `no_forbidden_address`: a name is as good as its worst address, and a name without one is none.
    #[test]
    fn one_bad_address_spoils_a_name() {
        let check = |addresses: &[&str]| {
            Reach::Public.check("x.example", addresses.iter().map(|address| address.parse().unwrap())).is_ok()
        };
        assert!(check(&["1.1.1.1", "2606:4700::1111"]));
        assert!(!check(&["1.1.1.1", "127.0.0.1"]));
        assert!(!check(&[]));
        let listed = Reach::PublicAnd(["127.0.0.1".parse().unwrap()].into());
        assert!(listed.check_literal("127.0.0.1").is_ok() && listed.check_literal("127.0.0.2").is_err());
        assert!(Reach::Public.check_literal("[::1]").is_err() && Reach::Public.check_literal("localhost").is_ok());
    }
}
