//! Addresses as numbers: prefixes, ranges, and the search for a free address. This file performs no
//! I/O.
//!
//! Address keys sort in the order of their addresses in any database.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kilonova_store::Error;
use serde_json::{Value, json};

/// Maximum number of addresses that one query reads.
pub(crate) const WINDOW: usize = 256;

/// A prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    base: IpAddr,
    pub prefix: u8,
}

/// An inclusive range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub first: u128,
    pub last: u128,
}

pub(crate) fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

/// The address with this number, of the same family as `like`.
pub(crate) fn address(like: IpAddr, number: u128) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

/// A string that sorts in the order of the numbers.
pub(crate) fn key(number: u128) -> String {
    format!("{number:032x}")
}

pub(crate) fn number_of(key: &str) -> Result<u128, Error> {
    u128::from_str_radix(key, 16).map_err(|_| Error::Shape(format!("address key {key}")))
}

/// Splits a prefix into its address, including the host bits, and its length.
fn split(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    // Spellings are stored as they were sent, so their length must be bounded.
    let length = Some(length).filter(|length| length.len() <= 3 && !length.starts_with('+'))?;
    let (address, length) = (address.parse::<IpAddr>().ok()?, length.parse::<u8>().ok()?);
    let bits = if address.is_ipv4() { 32 } else { 128 };
    (length <= bits).then_some((address, length))
}

/// The usual spelling of a prefix. It keeps the host bits, as netaddr's `str(IPNetwork)` does.
pub(crate) fn spelled(text: &str) -> Option<String> {
    split(text).map(|(address, length)| format!("{address}/{length}"))
}

/// The usual spelling of an address, or that of a prefix.
pub(crate) fn spelled_either(text: &str) -> Option<String> {
    spelled(text).or_else(|| Some(text.parse::<IpAddr>().ok()?.to_string()))
}

impl Cidr {
    /// Parses `10.0.0.0/24` and clears the host bits.
    pub fn parse(text: &str) -> Option<Self> {
        let (base, prefix) = split(text)?;
        let mut cidr = Self { base, prefix };
        cidr.base = address(base, number(base) & !cidr.mask());
        Some(cidr)
    }

    /// Parses a prefix without host bits.
    pub fn parse_exact(text: &str) -> Option<Self> {
        let (base, _) = split(text)?;
        Self::parse(text).filter(|cidr| cidr.base == base)
    }

    /// The mask of the host bits.
    fn mask(&self) -> u128 {
        let bits = if self.base.is_ipv4() { 32 } else { 128 };
        let free = u32::from(bits - self.prefix);
        if free == 128 { u128::MAX } else { (1 << free) - 1 }
    }

    pub fn base(&self) -> IpAddr {
        self.base
    }

    pub fn version(&self) -> i64 {
        if self.base.is_ipv4() { 4 } else { 6 }
    }

    pub fn whole(&self) -> Range {
        let first = number(self.base);
        Range { first, last: first | self.mask() }
    }

    pub fn contains(&self, ip: IpAddr) -> bool {
        ip.is_ipv4() == self.base.is_ipv4() && self.whole().contains(number(ip))
    }

    /// The addresses that ports may have: excludes the network address and IPv4's broadcast address.
    pub fn usable(&self) -> Range {
        let Range { first, last } = self.whole();
        match (self.base, last - first) {
            (_, 0 | 1) => Range { first, last },
            (IpAddr::V4(_), _) => Range { first: first + 1, last: last - 1 },
            (IpAddr::V6(_), _) => Range { first: first + 1, last },
        }
    }

    pub fn overlaps(&self, other: &Self) -> bool {
        self.base.is_ipv4() == other.base.is_ipv4() && self.whole().overlaps(other.whole())
    }
}

/// The address that a MAC address determines on an IPv6 prefix of 64 bits (EUI-64); `None` on other
/// prefixes.
pub(crate) fn eui64(prefix: &Cidr, mac: &str) -> Option<IpAddr> {
    let own = u128::from(kilonova_node_api::link_local(mac)?);
    let low = u128::from(u64::MAX);
    (prefix.prefix == 64 && prefix.base.is_ipv6())
        .then(|| address(prefix.base, number(prefix.base) | (own & low)))
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl Range {
    pub fn contains(self, number: u128) -> bool {
        (self.first..=self.last).contains(&number)
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    pub fn view(self, like: IpAddr) -> Value {
        json!({"start": address(like, self.first), "end": address(like, self.last)})
    }
}

/// The parts of pools in the order in which [`next_free`] searches them.
fn parts(pools: &[Range], cursor: u128) -> impl Iterator<Item = Range> {
    let after = pools.iter().filter(move |pool| pool.last > cursor).map(move |pool| Range {
        first: pool.first.max(cursor.saturating_add(1)),
        last: pool.last,
    });
    let before = pools
        .iter()
        .filter(move |pool| pool.first <= cursor)
        .map(move |pool| Range { first: pool.first, last: pool.last.min(cursor) });
    after.chain(before)
}

/// The range that [`next_free`] examines first, if there is one.
pub(crate) fn first_part(pools: &[Range], cursor: u128) -> Option<Range> {
    parts(pools, cursor).next()
}

/// The lowest free address after `cursor`, wrapping around. `taken` returns the first [`WINDOW`]
/// allocated addresses of a range in ascending order.
pub(crate) fn next_free<E>(
    pools: &[Range],
    cursor: u128,
    mut taken: impl FnMut(Range) -> Result<Vec<u128>, E>,
) -> Result<Option<u128>, E> {
    for part in parts(pools, cursor) {
        let mut at = part.first;
        'part: loop {
            let used = taken(Range { first: at, last: part.last })?;
            let full = used.len() >= WINDOW;
            for number in used {
                if number > at {
                    return Ok(Some(at));
                }
                if number == part.last {
                    break 'part;
                }
                at = number + 1;
            }
            if !full {
                return Ok(Some(at));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::convert::Infallible;

    use super::*;

    fn search(pools: &[(u128, u128)], cursor: u128, used: &BTreeSet<u128>) -> Option<u128> {
        let pools: Vec<_> =
            pools.iter().map(|(first, last)| Range { first: *first, last: *last }).collect();
        let taken = |range: Range| {
            Ok::<_, Infallible>(
                used.range(range.first..=range.last).take(WINDOW).copied().collect(),
            )
        };
        next_free(&pools, cursor, taken).unwrap()
    }

    #[test]
    fn the_search_wraps_around_and_ends() {
        let mut used = BTreeSet::new();
        assert_eq!(search(&[(5, 9)], 0, &used), Some(5));
        assert_eq!(search(&[(5, 9)], 7, &used), Some(8));
        assert_eq!(search(&[(5, 9)], 9, &used), Some(5));
        used.extend([8, 9, 5]);
        assert_eq!(search(&[(5, 9)], 7, &used), Some(6));
        assert_eq!(search(&[(5, 9), (20, 21)], 7, &used), Some(20));
        used.extend([6, 7]);
        assert_eq!(search(&[(5, 9)], 7, &used), None);
        assert_eq!(search(&[], 7, &used), None);
    }

    #[test]
    fn the_search_continues_after_a_full_window() {
        let used: BTreeSet<u128> = (1..=1000).collect();
        assert_eq!(search(&[(1, 2000)], 0, &used), Some(1001));
        assert_eq!(search(&[(1, 1000)], 400, &used), None);
    }

    #[test]
    fn a_mac_address_gives_an_address() {
        let prefix = Cidr::parse("fd00:0:0:7::/64").unwrap();
        let address = eui64(&prefix, "fa:16:3e:00:00:02").unwrap();
        assert_eq!(address.to_string(), "fd00::7:f816:3eff:fe00:2");
        assert_eq!(eui64(&prefix, "x"), None);
        assert_eq!(eui64(&Cidr::parse("fd00::/56").unwrap(), "fa:16:3e:00:00:02"), None);
        assert_eq!(eui64(&Cidr::parse("10.0.0.0/24").unwrap(), "fa:16:3e:00:00:02"), None);
    }

    #[test]
    fn prefixes_have_first_and_last_addresses() {
        let cidr = Cidr::parse("10.0.0.77/24").unwrap();
        assert_eq!(cidr.to_string(), "10.0.0.0/24");
        assert_eq!(spelled("10.0.0.77/24").as_deref(), Some("10.0.0.77/24"));
        assert_eq!(spelled("FD00:0::7/64").as_deref(), Some("fd00::7/64"));
        let usable = cidr.usable().view(cidr.base());
        assert_eq!(usable, json!({"start": "10.0.0.1", "end": "10.0.0.254"}));
        let ipv6 = Cidr::parse("fd00::/64").unwrap();
        assert_eq!(ipv6.usable().view(ipv6.base())["end"], "fd00::ffff:ffff:ffff:ffff");
        assert_eq!(Cidr::parse("0.0.0.0/0").unwrap().whole().last, u128::from(u32::MAX));
        assert_eq!(Cidr::parse("::/0").unwrap().whole().last, u128::MAX);
        assert_eq!(Cidr::parse_exact("10.0.0.77/24"), None);
        assert_eq!(Cidr::parse_exact("FD00:0::/64"), Some(ipv6));
        assert_eq!(spelled_either("FD00:0::7").as_deref(), Some("fd00::7"));
        assert_eq!(spelled_either("FD00:0::7/64").as_deref(), Some("fd00::7/64"));
        for wrong in ["10.0.0.0", "10.0.0.0/33", "x/8", "::/129", "::/0064", "::/+64", ""] {
            assert_eq!(Cidr::parse(wrong), None, "{wrong}");
            assert_eq!(spelled(wrong), None, "{wrong}");
        }
        assert!(!cidr.overlaps(&ipv6) && !cidr.contains("10.0.1.0".parse().unwrap()));
    }
}
