//! The order in which secrets are checked.
//!
//! Hashes cost tens of milliseconds by design, so a client that sends many logins delays the others.
//! The queue serves alternately the address and the user that has waited longest. A
//! login therefore waits for at most twice as many others as there are addresses or users, whichever
//! is fewer.
//!
//! Logins whose secret is likely correct go first, except on every fourth turn. This affects only the order.
//! The queue is pure: it has no threads, clock or secrets.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

/// Maximum number of addresses, and of users, whose last turn is remembered.
const REMEMBERED: usize = 8192;
/// One turn in this many is reserved for logins whose secret is not likely correct.
const SHARE: u64 = 4;

/// The party on whose behalf a secret is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Party {
    /// The address of the client.
    pub address: IpAddr,
    /// The user whose secret is checked.
    pub user: String,
}

struct Waiting<T> {
    party: Party,
    likely: bool,
    work: T,
}

/// The reason for an eviction from a full queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Eviction {
    /// The party of the evicted login has too many waiting logins.
    OwnParty,
    /// All parties together have too many waiting logins.
    AllParties,
}

/// The waiting work in order of arrival, and the last turn of each party.
pub(crate) struct Queue<T> {
    most: usize,
    waiting: Vec<Waiting<T>>,
    turns: u64,
    /// The turns of logins whose secret is not likely correct, and of the others.
    turns_of: [u64; 2],
    addresses: HashMap<IpAddr, u64>,
    users: HashMap<String, u64>,
}

impl<T> Queue<T> {
    /// A queue that holds at most `most` logins.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            waiting: Vec::new(),
            turns: 0,
            turns_of: [0; 2],
            addresses: HashMap::new(),
            users: HashMap::new(),
        }
    }

    /// The number of waiting logins.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Removes work whose caller has left, so that it uses up neither a turn nor a place.
    pub(crate) fn sweep(&mut self, is_awaited: impl Fn(&T) -> bool) {
        self.waiting.retain(|one| is_awaited(&one.work));
    }

    /// Adds work. A full queue evicts the newest work of the largest party.
    pub(crate) fn push(&mut self, party: Party, likely: bool, work: T) -> Option<(T, Eviction)> {
        self.waiting.push(Waiting { party, likely, work });
        if self.waiting.len() <= self.most {
            return None;
        }
        let (at, size) = self.crowding()?;
        let reason = if size > 2 { Eviction::OwnParty } else { Eviction::AllParties };
        Some((self.waiting.remove(at).work, reason))
    }

    /// The newest work of the largest party, preferring logins whose secret is not likely correct; and
    /// the size of the party: entries with its address plus entries with its user.
    fn crowding(&self) -> Option<(usize, usize)> {
        let mut addresses: HashMap<IpAddr, usize> = HashMap::new();
        let mut users: HashMap<&str, usize> = HashMap::new();
        for one in &self.waiting {
            *addresses.entry(one.party.address).or_default() += 1;
            *users.entry(&one.party.user).or_default() += 1;
        }
        let size = |party: &Party| {
            let of_user = users.get(party.user.as_str()).copied().unwrap_or(0);
            addresses.get(&party.address).copied().unwrap_or(0) + of_user
        };
        let all = self.waiting.iter().enumerate();
        all.map(|(at, one)| (!one.likely, size(&one.party), at))
            .max()
            .map(|(_, size, at)| (at, size))
    }

    /// Removes and returns the next work.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let (likely, others) = (self.waits(true), self.waits(false));
        if !likely && !others {
            return None;
        }
        self.turns += 1;
        let likely = likely && !(others && self.turns.is_multiple_of(SHARE));
        let turn = &mut self.turns_of[usize::from(likely)];
        *turn += 1;
        let by_address = !turn.is_multiple_of(2);
        let next = self.waiting.iter().enumerate().filter(|(_, one)| one.likely == likely);
        let served = |one: &Waiting<T>| {
            let address = self.addresses.get(&one.party.address).copied().unwrap_or(0);
            let user = self.users.get(&one.party.user).copied().unwrap_or(0);
            if by_address { (address, user) } else { (user, address) }
        };
        let (at, _) = next.min_by_key(|(at, one)| (served(one), *at))?;
        let Waiting { party, work, .. } = self.waiting.remove(at);
        remember(&mut self.addresses, party.address, self.turns);
        remember(&mut self.users, party.user, self.turns);
        Some(work)
    }

    fn waits(&self, likely: bool) -> bool {
        self.waiting.iter().any(|one| one.likely == likely)
    }
}

/// Records a party's turn; forgets the older half of the turns when too many are recorded.
fn remember<K: Eq + Hash>(served: &mut HashMap<K, u64>, party: K, turn: u64) {
    served.insert(party, turn);
    if served.len() > REMEMBERED {
        let since = turn.saturating_sub(REMEMBERED as u64 / 2);
        served.retain(|_, served| *served > since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(address: u8, user: &str) -> Party {
        Party { address: IpAddr::from([192, 0, 2, address]), user: user.to_owned() }
    }

    /// The number of entries served before "one".
    fn before(queue: &mut Queue<&'static str>) -> usize {
        std::iter::from_fn(|| queue.pop())
            .position(|work| work == "one")
            .expect("\"one\" is served")
    }

    #[test]
    fn a_flood_from_one_address_delays_another_by_one() {
        let mut queue = Queue::new(512);
        for n in 0..100 {
            queue.push(party(1, &format!("user-{n}")), false, "flood");
        }
        queue.push(party(2, "user-7"), false, "one");
        assert!(before(&mut queue) <= 1);
    }

    #[test]
    fn a_flood_at_one_user_from_many_addresses_delays_another_user_by_two() {
        let mut queue = Queue::new(512);
        for n in 0..100 {
            queue.push(party(n, "victim"), false, "flood");
        }
        queue.pop();
        queue.push(party(7, "someone"), false, "one");
        assert!(before(&mut queue) <= 2);
    }

    #[test]
    fn likely_logins_go_first_without_starving_the_rest() {
        let mut queue = Queue::new(512);
        for _ in 0..100 {
            queue.push(party(1, "admin"), false, "flood");
        }
        queue.push(party(1, "admin"), true, "one");
        assert_eq!(before(&mut queue), 0);
        let mut queue = Queue::new(512);
        queue.push(party(1, "admin"), false, "one");
        for _ in 0..100 {
            queue.push(party(1, "admin"), true, "flood");
        }
        assert!(before(&mut queue) < 4);
    }

    #[test]
    fn a_full_queue_evicts_the_party_that_fills_it() {
        let mut queue = Queue::new(10);
        for _ in 0..10 {
            assert!(queue.push(party(1, "admin"), false, "flood").is_none());
        }
        assert_eq!(
            queue.push(party(2, "other"), false, "one"),
            Some(("flood", Eviction::OwnParty))
        );
        assert_eq!(
            queue.push(party(1, "admin"), true, "likely"),
            Some(("flood", Eviction::OwnParty))
        );
        assert_eq!(queue.len(), 10);
        let mut full = Queue::new(3);
        for n in 0..3 {
            full.push(party(n, &n.to_string()), false, "each");
        }
        assert_eq!(full.push(party(9, "9"), false, "new"), Some(("new", Eviction::AllParties)));
    }

    #[test]
    fn abandoned_work_uses_up_no_turn() {
        let mut queue = Queue::new(512);
        for n in 0..100 {
            queue.push(party(1, &format!("user-{n}")), false, "gone");
            queue.push(party(100 + n, "victim"), false, "flood");
        }
        queue.push(party(1, "someone"), false, "one");
        queue.sweep(|work| *work != "gone");
        assert!(before(&mut queue) <= 2);
    }

    #[test]
    fn the_record_of_turns_is_bounded() {
        let mut queue = Queue::new(4);
        for n in 0..3 * REMEMBERED {
            queue.push(party(1, &n.to_string()), false, "x");
            queue.pop();
        }
        assert!(queue.users.len() <= REMEMBERED + 1);
        assert_eq!(queue.pop(), None);
    }
}
