//! How many connections a door has, in total and for one address. Users and hosts have a pool each, so
//! that no user takes a host's place.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kilonova_wire::PeerAddress;

use crate::config::Proxies;

/// How often a full pool is logged at most.
const QUIET: Duration = Duration::from_secs(10);

/// Connections of a door.
#[derive(Clone)]
pub(in crate::serve) struct Pool(Arc<Inner>);

struct Inner {
    name: &'static str,
    limit: usize,
    per_address: PerAddress,
    taken: Mutex<Taken>,
}

/// How many connections one address may have.
pub(in crate::serve) enum PerAddress {
    /// As many as there are.
    Any,
    /// So many, an operator says so.
    Exactly(usize),
    /// So many, but for this machine's own addresses and trusted proxies, which speak for many.
    Strangers(usize, Proxies),
}

#[derive(Default)]
struct Taken {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
    said: Option<Instant>,
}

/// A connection's place; given back when it is dropped.
pub(in crate::serve) struct Slot {
    pool: Pool,
    address: IpAddr,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum Full {
    /// All are taken.
    All,
    /// This address has all that one address may have.
    Address,
}

impl Pool {
    /// An empty one.
    pub(in crate::serve) fn new(name: &'static str, limit: usize, per_address: PerAddress) -> Self {
        Self(Arc::new(Inner { name, limit, per_address, taken: Mutex::default() }))
    }

    /// A place for a connection from `address`.
    pub(in crate::serve) fn take(&self, address: IpAddr) -> Result<Slot, Full> {
        let address = party(address);
        let allowed = match &self.0.per_address {
            PerAddress::Any => usize::MAX,
            PerAddress::Exactly(number) => *number,
            PerAddress::Strangers(_, proxies)
                if address.is_loopback() || proxies.contain(address) =>
            {
                usize::MAX
            }
            PerAddress::Strangers(number, _) => *number,
        };
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.by_address.get(&address).copied().unwrap_or_default();
        let full = match (taken.total >= self.0.limit, own >= allowed) {
            (true, _) => Full::All,
            (false, true) => Full::Address,
            (false, false) => {
                taken.total += 1;
                taken.by_address.insert(address, own + 1);
                return Ok(Slot { pool: self.clone(), address });
            }
        };
        if taken.said.is_none_or(|said| said.elapsed() > QUIET) {
            taken.said = Some(Instant::now());
            let (open, limit) = (taken.total, self.0.limit);
            match full {
                Full::All => tracing::warn!(
                    door = self.0.name,
                    open,
                    limit,
                    "all connections are in use; new ones are refused until one ends"
                ),
                Full::Address => tracing::warn!(
                    door = self.0.name,
                    %address,
                    open = own,
                    "one address has all the connections that it may have; more are refused"
                ),
            }
        }
        Err(full)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.pool.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.total = taken.total.saturating_sub(1);
        if let Some(own) = taken.by_address.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

/// What counts as one address.
fn party(address: IpAddr) -> IpAddr {
    let address = address.to_canonical();
    if address.is_loopback() { address } else { PeerAddress(address).party() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(pool: &Pool, address: &str) -> Result<Slot, Full> {
        pool.take(address.parse().expect("an address"))
    }

    #[test]
    fn a_place_is_given_back_and_one_address_has_only_so_many() {
        let proxies = Proxies::new(vec!["192.0.2.0/24".parse().expect("a network")]);
        let pool = Pool::new("test", 5, PerAddress::Strangers(2, proxies));
        let first = take(&pool, "198.51.100.1").expect("free");
        let _second = take(&pool, "::ffff:198.51.100.1").expect("free");
        assert_eq!(take(&pool, "198.51.100.1").err(), Some(Full::Address));
        drop(first);
        let _third = take(&pool, "198.51.100.1").expect("free again");
        let _more: Vec<Slot> =
            (0..3).map(|_| take(&pool, "192.0.2.7").expect("a proxy speaks for many")).collect();
        assert_eq!(take(&pool, "203.0.113.1").err(), Some(Full::All));
    }

    #[test]
    fn a_customers_ipv6_network_counts_as_one_address() {
        let pool = Pool::new("test", 5, PerAddress::Strangers(1, Proxies::default()));
        let _one = take(&pool, "2001:db8:0:1::1").expect("free");
        assert_eq!(take(&pool, "2001:db8:0:1:ffff::2").err(), Some(Full::Address));
        let _other = take(&pool, "2001:db8:0:2::1").expect("free");
        let _own: Vec<Slot> = (0..2).map(|_| take(&pool, "::1").expect("loopback")).collect();
        let pool = Pool::new("test", 5, PerAddress::Exactly(1));
        let _one = take(&pool, "127.0.0.1").expect("free");
        assert_eq!(take(&pool, "127.0.0.1").err(), Some(Full::Address));
    }
}
