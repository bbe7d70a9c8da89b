//! The limits of each guest. Requests above them wait, and connections above them are closed; other
//! guests are not delayed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kilonova_ids::NetworkId;

/// Maximum number of concurrent connections of a guest.
const CONNECTIONS: usize = 8;
/// Minimum average time between two requests of a guest. A boot makes 20 to 40 requests.
const EACH: Duration = Duration::from_millis(10);
/// Maximum number of requests of a guest without delay, after a pause.
const BURST: u32 = 200;
/// From this number of guests on, the states of idle guests are dropped.
const MANY: usize = 1024;

type Guest = (NetworkId, IpAddr);

/// The use of all guests.
#[derive(Default)]
pub(super) struct Limits(Mutex<HashMap<Guest, Use>>);

struct Use {
    open: usize,
    /// The time at which the requests until now would have been made at the permitted rate.
    paid: Instant,
}

/// A connection of a guest; dropping it ends its use.
pub(super) struct Permit {
    limits: Arc<Limits>,
    guest: Guest,
}

impl Limits {
    /// A permit for a connection; `None` if the guest has too many.
    pub fn connect(self: &Arc<Self>, network: NetworkId, address: IpAddr) -> Option<Permit> {
        let (guest, now) = ((network, address), Instant::now());
        let mut guests = self.lock();
        if guests.len() >= MANY {
            guests.retain(|_, usage| usage.open > 0 || usage.paid > rested(now));
        }
        let usage = guests.entry(guest).or_insert(Use { open: 0, paid: rested(now) });
        if usage.open >= CONNECTIONS {
            return None;
        }
        usage.open += 1;
        Some(Permit { limits: Arc::clone(self), guest })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Guest, Use>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The value of `paid` that permits a whole burst.
fn rested(now: Instant) -> Instant {
    now.checked_sub(EACH * BURST).unwrap_or(now)
}

impl Permit {
    /// Waits until the guest may make its next request.
    pub async fn request(&self) {
        tokio::time::sleep_until(self.due(Instant::now()).into()).await;
    }

    /// Counts a request made now, and returns when it may proceed.
    fn due(&self, now: Instant) -> Instant {
        let mut guests = self.limits.lock();
        let Some(usage) = guests.get_mut(&self.guest) else { return now };
        usage.paid = usage.paid.max(rested(now)) + EACH;
        usage.paid.max(now)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(usage) = self.limits.lock().get_mut(&self.guest) {
            usage.open = usage.open.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::network;

    #[test]
    fn a_guest_has_its_own_limits() {
        let limits = Arc::new(Limits::default());
        let one: IpAddr = [10, 0, 0, 2].into();
        let connect = |number, address| limits.connect(network(number), address);
        let mut all: Vec<Permit> = (0..CONNECTIONS).filter_map(|_| connect(1, one)).collect();
        assert!(all.len() == CONNECTIONS && connect(1, one).is_none());
        assert!(connect(2, one).is_some(), "the same address on another network");
        assert!(connect(1, [10, 0, 0, 3].into()).is_some(), "another guest");
        all.pop();
        assert!(connect(1, one).is_some(), "a closed connection no longer counts");

        let now = Instant::now() + Duration::from_secs(60);
        assert!((0..BURST).all(|_| all[0].due(now) == now), "a boot does not wait");
        let mut due = now;
        (0..100).for_each(|_| due = all[1].due(now));
        assert_eq!(due, now + Duration::from_secs(1), "then 100 in a second");
        let later = now + Duration::from_secs(3600);
        assert!((0..BURST).all(|_| all[0].due(later) == later) && all[0].due(later) > later);
    }

    #[test]
    fn guests_that_are_gone_are_forgotten() {
        let limits = Arc::new(Limits::default());
        for number in 0..5000_u32 {
            let address = IpAddr::from(std::net::Ipv4Addr::from(number));
            drop(limits.connect(network(1), address));
        }
        assert!(limits.lock().len() <= MANY);
    }
}
