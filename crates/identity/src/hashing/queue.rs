//! Which secret is checked next.
//!
//! Hashes cost tens of milliseconds each by design, so whoever sends many logins makes the others
//! wait. The queue serves parties in turn: every other turn the address that has waited longest
//! goes first, and in between the user who has. A login therefore waits for at most twice as many
//! others as there are addresses, or as there are users, whichever is fewer.
//!
//! Logins that look right go first, except in every fourth turn. Nothing is decided by that but
//! the order. The queue is pure: it knows no thread, no clock and no secret.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

/// Parties that are remembered at most, apart from those that wait.
const REMEMBERED: usize = 8192;
/// Every so many turns belong to logins that do not look right.
const SHARE: u64 = 4;

/// On whose account the work is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Party {
    /// Where the request came from.
    pub address: IpAddr,
    /// Whose secret it is about.
    pub user: String,
}

struct Waiting<T> {
    party: Party,
    likely: bool,
    work: T,
}

/// Why work had to leave the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crowd {
    /// Its own party has too much waiting.
    Own,
    /// Everybody together.
    All,
}

/// Work in the order in which it came, and who was served when.
pub(crate) struct Queue<T> {
    most: usize,
    waiting: Vec<Waiting<T>>,
    turns: u64,
    /// Turns of each of the two kinds of login.
    turns_of: [u64; 2],
    addresses: HashMap<IpAddr, u64>,
    users: HashMap<String, u64>,
}

impl<T> Queue<T> {
    /// A queue in which at most `most` wait.
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

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Forgets work that nobody waits for any more: it must use up no turn and no room.
    pub(crate) fn sweep(&mut self, wanted: impl Fn(&T) -> bool) {
        self.waiting.retain(|one| wanted(&one.work));
    }

    /// Takes work in. In a full queue the newest of the largest party has to leave.
    pub(crate) fn push(&mut self, party: Party, likely: bool, work: T) -> Option<(T, Crowd)> {
        self.waiting.push(Waiting { party, likely, work });
        if self.waiting.len() <= self.most {
            return None;
        }
        let (at, size) = self.crowding()?;
        let crowd = if size > 2 { Crowd::Own } else { Crowd::All };
        Some((self.waiting.remove(at).work, crowd))
    }

    /// The newest of the largest party, logins that look right only if there are no others; and how
    /// often its address and its user wait, added up.
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

    /// The next work.
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

/// Notes a turn; forgets the older half when there are too many.
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

    /// How many are served before the one.
    fn before(queue: &mut Queue<&'static str>) -> usize {
        std::iter::from_fn(|| queue.pop()).position(|work| work == "one").expect("it is served")
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
    fn what_looks_right_goes_first_but_does_not_starve_the_rest() {
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
    fn a_full_queue_sends_away_those_who_fill_it() {
        let mut queue = Queue::new(10);
        for _ in 0..10 {
            assert!(queue.push(party(1, "admin"), false, "flood").is_none());
        }
        assert_eq!(queue.push(party(2, "other"), false, "one"), Some(("flood", Crowd::Own)));
        assert_eq!(queue.push(party(1, "admin"), true, "likely"), Some(("flood", Crowd::Own)));
        assert_eq!(queue.len(), 10);
        let mut full = Queue::new(3);
        for n in 0..3 {
            full.push(party(n, &n.to_string()), false, "each");
        }
        assert_eq!(full.push(party(9, "9"), false, "new"), Some(("new", Crowd::All)));
    }

    #[test]
    fn work_that_nobody_waits_for_uses_up_no_turn() {
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
    fn what_is_remembered_is_bounded() {
        let mut queue = Queue::new(4);
        for n in 0..3 * REMEMBERED {
            queue.push(party(1, &n.to_string()), false, "x");
            queue.pop();
        }
        assert!(queue.users.len() <= REMEMBERED + 1);
        assert_eq!(queue.pop(), None);
    }
}
