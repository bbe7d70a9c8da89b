//! The addresses of the controllers. Every controller serves every request, so requests go to one controller until it
//! stops answering. Each process uses its own random order: when one controller stops, its hosts spread over all the
//! others.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Error, url};

/// The base URLs of the controllers.
#[derive(Debug)]
pub(super) struct Addresses {
    /// The scheme of all of them.
    pub(super) scheme: &'static str,
    bases: Vec<String>,
    current: AtomicUsize,
}

impl Addresses {
    /// Reads a comma-separated list and shuffles it.
    pub(super) fn read(list: &str, scheme: &'static str) -> Result<Arc<Self>, Error> {
        let mut bases: Vec<String> =
            list.split(',').map(|url| url::base(url, scheme)).collect::<Result<_, _>>()?;
        let random = RandomState::new();
        bases.sort_by_cached_key(|base| random.hash_one(base));
        Ok(Arc::new(Self { scheme, bases, current: AtomicUsize::new(0) }))
    }

    /// The number and the base URL of the controller that requests go to.
    pub(super) fn current(&self) -> (usize, &str) {
        let at = self.current.load(Ordering::Relaxed);
        (at, self.bases.get(at).map_or("", String::as_str))
    }

    /// Switches to the next controller, unless another request has already done so.
    pub(super) fn leave(&self, at: usize) {
        let next = (at + 1) % self.bases.len().max(1);
        let left = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        if left.is_ok() && next != at {
            tracing::info!(from = %self.bases[at], to = %self.bases[next], "using another controller");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_controller_gets_its_turn() {
        let list = Addresses::read("http://a:1, http://b:2 ,http://c:3/", "http");
        let list = list.expect("the list is valid");
        let mut seen = Vec::new();
        for _ in 0..3 {
            let (at, base) = list.current();
            seen.push(base.to_owned());
            list.leave(at);
            list.leave(at);
        }
        seen.sort();
        assert_eq!(seen, ["http://a:1/node", "http://b:2/node", "http://c:3/node"]);
    }

    /// With the same order on all hosts, a rolling restart would move all hosts to one controller.
    #[test]
    fn the_hosts_of_a_controller_spread_over_all_others() {
        let mut next = std::collections::HashMap::new();
        for _ in 0..300 {
            let list = Addresses::read("http://a:1,http://b:2,http://c:3", "http");
            let list = list.expect("the list is valid");
            let (at, from) = list.current();
            let from = from.to_owned();
            list.leave(at);
            *next.entry((from, list.current().1.to_owned())).or_insert(0_u32) += 1;
        }
        assert_eq!(next.len(), 6, "{next:?}");
        assert!(next.values().all(|count| *count > 20), "{next:?}");
    }

    #[test]
    fn one_controller_stays() {
        let list = Addresses::read("https://a", "https").expect("the list is valid");
        list.leave(0);
        assert_eq!(list.current(), (0, "https://a/node"));
    }

    #[test]
    fn each_entry_must_be_a_url() {
        for wrong in ["", "http://a:1,", "http://a:1,b:2", "http://a:1,https://b:2"] {
            assert!(Addresses::read(wrong, "http").is_err(), "{wrong}");
        }
    }
}
