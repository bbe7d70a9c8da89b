//! Assigns guest cells to host cells: the first bipartite matching in the order of preference.

/// The host cell of each guest cell: of all assignments to host cells in `allowed`, the first in
/// lexicographic order. `possible[guest][host]` says which pairs fit; `allowed` ascends.
pub(super) fn first(possible: &[Vec<bool>], allowed: &[usize]) -> Option<Vec<usize>> {
    let hosts = possible.first().map_or(0, Vec::len);
    let mut matching = Matching {
        possible,
        allowed,
        host_of: vec![None; possible.len()],
        guest_of: vec![None; hosts],
    };
    for guest in 0..possible.len() {
        if !matching.augment(guest, 0, &mut vec![false; hosts]) {
            return None;
        }
    }
    for guest in 0..possible.len() {
        matching.improve(guest);
    }
    matching.host_of.into_iter().collect()
}

struct Matching<'a> {
    possible: &'a [Vec<bool>],
    allowed: &'a [usize],
    host_of: Vec<Option<usize>>,
    guest_of: Vec<Option<usize>>,
}

impl Matching<'_> {
    /// Finds a host cell for a guest cell; guest cells from `from` on may move to make room.
    fn augment(&mut self, guest: usize, from: usize, seen: &mut [bool]) -> bool {
        let (possible, allowed) = (self.possible, self.allowed);
        for host in allowed.iter().copied() {
            if !possible[guest][host] || seen[host] {
                continue;
            }
            seen[host] = true;
            let free = match self.guest_of[host] {
                None => true,
                Some(other) => other >= from && self.augment(other, from, seen),
            };
            if free {
                self.guest_of[host] = Some(guest);
                self.host_of[guest] = Some(host);
                return true;
            }
        }
        false
    }

    /// Moves a guest cell to the first host cell that leaves one for each later guest cell. Earlier
    /// guest cells stay.
    fn improve(&mut self, guest: usize) {
        let (possible, allowed) = (self.possible, self.allowed);
        let Some(current) = self.host_of[guest] else { return };
        for host in allowed.iter().copied().take_while(|host| *host != current) {
            let displaced = self.guest_of[host];
            if !possible[guest][host] || displaced.is_some_and(|other| other < guest) {
                continue;
            }
            (self.guest_of[host], self.guest_of[current]) = (Some(guest), None);
            self.host_of[guest] = Some(host);
            let mut seen = vec![false; self.guest_of.len()];
            seen[host] = true;
            if displaced.is_none_or(|other| self.augment(other, guest + 1, &mut seen)) {
                return;
            }
            (self.guest_of[host], self.guest_of[current]) = (displaced, Some(guest));
            self.host_of[guest] = Some(current);
        }
    }
}

/// All sets of `many` out of `hosts` host cells, in lexicographic order.
pub(super) fn sets(hosts: usize, many: usize) -> impl Iterator<Item = Vec<usize>> {
    let first = (many <= hosts).then(|| (0..many).collect::<Vec<usize>>());
    std::iter::successors(first, move |set| {
        let mut next = set.clone();
        let place = (0..many).rev().find(|place| next[*place] + many - place < hosts)?;
        next[place] += 1;
        for later in place + 1..many {
            next[later] = next[later - 1] + 1;
        }
        Some(next)
    })
}
