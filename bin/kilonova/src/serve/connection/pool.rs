//! Limits on the connections of a listener, in total and per address. Users and hosts have separate
//! pools, so that users cannot exhaust the hosts'.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kilonova_wire::PeerAddress;

use crate::config::Proxies;

/// Minimum interval between log lines about a full pool.
const QUIET: Duration = Duration::from_secs(10);

/// The connections of a listener.
#[derive(Clone)]
pub(in crate::serve) struct Pool(Arc<Inner>);

struct Inner {
    name: &'static str,
    limit: usize,
    per_address: PerAddress,
    taken: Mutex<Taken>,
}

/// The limit per address.
pub(in crate::serve) enum PerAddress {
    /// No limit.
    Any,
    /// The operator's limit.
    Exactly(usize),
    /// A limit for all but loopback addresses and trusted proxies, which act for many clients.
    Strangers(usize, Proxies),
}

#[derive(Default)]
struct Taken {
    total: usize,
    by_address: HashMap<IpAddr, usize>,
    warned_at: Option<Instant>,
}

/// The right to one connection, until dropped.
pub(in crate::serve) struct Slot {
    pool: Pool,
    address: IpAddr,
}

/// Why a connection is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::serve) enum Full {
    /// The pool is full.
    All,
    /// The address has reached its limit.
    Address,
}

impl Pool {
    /// An empty pool.
    pub(in crate::serve) fn new(name: &'static str, limit: usize, per_address: PerAddress) -> Self {
        Self(Arc::new(Inner { name, limit, per_address, taken: Mutex::default() }))
    }

    /// Admits a connection from `address`.
    pub(in crate::serve) fn take(&self, address: IpAddr) -> Result<Slot, Full> {
        let address = fairness_key(address);
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
        if taken.warned_at.is_none_or(|at| at.elapsed() > QUIET) {
            taken.warned_at = Some(Instant::now());
            let (open, limit) = (taken.total, self.0.limit);
            match full {
                Full::All => tracing::warn!(
                    listener = self.0.name,
                    open,
                    limit,
                    "all connections are in use; refusing new ones until one ends"
                ),
                Full::Address => tracing::warn!(
                    listener = self.0.name,
                    %address,
                    open = own,
                    "an address has reached its connection limit; refusing more from it"
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

/// The address to which the limit applies: an IPv6 /64 counts as one.
pub(in crate::serve) fn fairness_key(address: IpAddr) -> IpAddr {
    let address = address.to_canonical();
    if address.is_loopback() { address } else { PeerAddress(address).fairness_key() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(pool: &Pool, address: &str) -> Result<Slot, Full> {
        pool.take(address.parse().expect("the address is valid"))
    }

    #[test]
    fn slots_are_released_and_limited_per_address() {
        let proxies = Proxies::new(vec!["192.0.2.0/24".parse().expect("the network is valid")]);
        let pool = Pool::new("test", 5, PerAddress::Strangers(2, proxies));
        let first = take(&pool, "198.51.100.1").expect("a connection is free");
        let _second = take(&pool, "::ffff:198.51.100.1").expect("a connection is free");
        assert_eq!(take(&pool, "198.51.100.1").err(), Some(Full::Address));
        drop(first);
        let _third = take(&pool, "198.51.100.1").expect("the released slot is free");
        let _more: Vec<Slot> =
            (0..3).map(|_| take(&pool, "192.0.2.7").expect("proxies have no limit")).collect();
        assert_eq!(take(&pool, "203.0.113.1").err(), Some(Full::All));
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let pool = Pool::new("test", 5, PerAddress::Strangers(1, Proxies::default()));
        let _one = take(&pool, "2001:db8:0:1::1").expect("a connection is free");
        assert_eq!(take(&pool, "2001:db8:0:1:ffff::2").err(), Some(Full::Address));
        let _other = take(&pool, "2001:db8:0:2::1").expect("a connection is free");
        let _own: Vec<Slot> = (0..2)
            .map(|_| take(&pool, "::1").expect("a loopback connection is admitted"))
            .collect();
        let pool = Pool::new("test", 5, PerAddress::Exactly(1));
        let _one = take(&pool, "127.0.0.1").expect("a connection is free");
        assert_eq!(take(&pool, "127.0.0.1").err(), Some(Full::Address));
    }
}
