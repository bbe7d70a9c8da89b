//! Finds one or two live migrations that make room for a request, or that lower the cost of the hosts most.
//!
//! The search performs no I/O, takes the time as an argument, searches the world a bounded number
//! of times, and claims nothing: each move is an ordinary live migration, which claims its
//! destination itself. A guest holds its claims on the source until it has arrived. The destination
//! of a move must therefore have room while the source is still in use. The second move begins
//! after the first one has ended.
//!
//! ```text
//!   a host that fits the request once one guest has left ─► another host fits that guest            one move
//!   a host that fits it once two guests have left ────────► another host fits each of them          two moves
//!   no other host fits the one guest ─────────────────────► a first move makes room for the guest   two moves
//! ```

mod cost;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kilonova_compute_db::servers::Spec;
use kilonova_engine::{Candidate, Query, Snapshot};
use kilonova_ids::{HostName, ProviderId, ResourceClass, ServerId};

use crate::capacity::{Searches, fitting};
use crate::constraints::{Constraints, Scope};
use crate::facts::Facts;
use crate::packer::{is_device, kind_traits};
use crate::place::plan;
use crate::reason::{NoHost, is_without_device, obstacle, obstacle_of_host};

pub use cost::{Lowered, costliest, lower_cost};

/// Maximum number of moves in a plan.
pub const MAX_MOVES: usize = 2;

/// Maximum number of destinations that are compared for one guest.
const MAX_DESTINATIONS: usize = 8;

/// Maximum number of candidates that are examined for the destination of one guest, if the best
/// candidates by cost have devices of other kinds.
const EXAMINED_PER_GUEST: usize = 256;

/// Number of plans after which the search ends and returns the best one.
const ENOUGH_PLANS: usize = 16;

/// An amount of a class on a provider.
pub type Amount = (ProviderId, ResourceClass, i64);

/// A guest that can live-migrate.
#[derive(Debug, Clone)]
pub struct Guest {
    /// The server.
    pub server: ServerId,
    /// Its project.
    pub project_id: String,
    /// The root of its host's tree.
    pub source: ProviderId,
    /// All allocations of the guest on its source.
    pub allocations: Vec<Amount>,
    /// The request for its destination.
    pub query: Query,
    /// Its properties.
    pub spec: Spec,
    /// Its group, and the servers that its hints name.
    pub facts: Facts,
    /// Hosts that it cannot use; its own is one of them.
    pub excluded: HashSet<HostName>,
    /// The memory that a move copies, in MiB: the cost of the move.
    pub memory_mb: i64,
}

impl Guest {
    fn constraints<'a>(&'a self, scope: Scope<'a>, now: Timestamp) -> Constraints<'a> {
        let server = (&*self.project_id, &self.spec);
        Constraints::new(scope, server, &self.facts, &self.excluded, now)
    }

    /// True if a move of the other guest has the same effect and the same destinations.
    fn is_like(&self, other: &Self) -> bool {
        let is_free = |guest: &Self| {
            let Facts { group, same_host, different_host, .. } = &guest.facts;
            group.is_none() && same_host.is_none() && different_host.is_none()
        };
        is_free(self)
            && is_free(other)
            && self.allocations == other.allocations
            && self.project_id == other.project_id
            && self.excluded == other.excluded
            && self.spec.availability_zone == other.spec.availability_zone
            && self.spec.flavor == other.spec.flavor
            && self.spec.image_properties == other.spec.image_properties
    }

    /// True if one plan may move both guests. Two guests of one server group may not, because the
    /// facts of the group describe the state before the plan.
    fn can_move_with(&self, other: &Self) -> bool {
        let group = |guest: &Self| guest.facts.group.as_ref().map(|(id, _)| *id);
        self.server != other.server && (group(self).is_none() || group(self) != group(other))
    }
}

/// A live migration of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The guest, by its position in the list.
    pub guest: usize,
    /// Its place at the destination.
    pub to: Candidate,
}

/// Moves, in order, and their gain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebalance {
    /// The moves. Each must end before the next begins.
    pub moves: Vec<Move>,
    /// How many more servers of the request fit after them.
    pub gain: i64,
}

/// The request for which room is made.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// All conditions but the resources.
    pub constraints: &'a Constraints<'a>,
    /// Its resources.
    pub query: &'a Query,
}

impl Wanted<'_> {
    /// True if a server of the request may be on the host, regardless of the host's load.
    fn may_use(&self, root: ProviderId) -> bool {
        let host = self.constraints.host(root);
        host.is_some_and(|host| obstacle_of_host(self.constraints, &host).is_none())
    }

    /// How many servers of the request fit on a host.
    fn fitting(
        &self,
        world: &Snapshot,
        root: ProviderId,
        left: &mut Searches,
    ) -> Result<i64, Stop> {
        if !self.may_use(root) {
            return Ok(0);
        }
        let found = fitting(world, self.query, root, left).map_err(Stop::Invalid)?;
        Ok(i64::try_from(found.ok_or(Stop::Exhausted)?).unwrap_or(i64::MAX))
    }
}

/// The reason why a search ends early.
enum Stop {
    /// It has used up its searches; the plans that it has found are valid.
    Exhausted,
    Invalid(NoHost),
}

/// The input of a search.
#[derive(Clone, Copy)]
struct Board<'a> {
    scope: Scope<'a>,
    guests: &'a [Guest],
    now: Timestamp,
}

/// A copy of a world after a move.
fn after(world: &Snapshot, guests: &[Guest], one: &Move) -> Snapshot {
    let mut world = world.clone();
    world.add_usage(&one.to);
    if let Some(guest) = guests.get(one.guest) {
        world.subtract_usage(&guest.allocations);
    }
    world
}

/// At most `most` hosts on which a server of the request would fit if they had no guests. Those with the largest free
/// share of the requested resources come first. The caller needs to read the guests of these hosts only.
pub fn promising(world: &Snapshot, wanted: &Wanted<'_>, most: usize) -> Vec<ProviderId> {
    let mut asked: HashMap<&ResourceClass, i64> = HashMap::new();
    for (class, amount) in wanted.query.groups.iter().flat_map(|group| &group.resources) {
        *asked.entry(class).or_default() += amount;
    }
    let mut rated: Vec<(f64, Arc<str>, ProviderId)> = Vec::new();
    for root in world.roots() {
        let Some(tree) = world.tree(root).filter(|_| wanted.may_use(root)) else { continue };
        // By class: the free amount, and the capacity.
        let mut amounts: HashMap<&ResourceClass, [i64; 2]> = HashMap::new();
        for (class, inventory) in tree.nodes().flat_map(|node| node.inventories()) {
            let capacity = inventory.capacity().max(0);
            let [free, all] = amounts.entry(class).or_default();
            *free += capacity.saturating_sub(inventory.used).max(0);
            *all += capacity;
        }
        let mut share = 0.0;
        let has_all = asked.iter().all(|(class, wanted)| {
            let [free, all] = amounts.get(*class).copied().unwrap_or_default();
            share += (free as f64 / (*wanted).max(1) as f64).min(1.0);
            all >= *wanted
        });
        if has_all {
            let name = tree.outline().next().map(|(_, name, ..)| Arc::clone(name));
            rated.push((share, name.unwrap_or_else(|| "".into()), root));
        }
    }
    rated.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    rated.into_iter().take(most).map(|(_, _, root)| root).collect()
}

/// One or two moves after which more servers of a request fit: the plan with the fewest moves, then the largest gain,
/// then the least memory. `None` if there is no such plan, or if `left` searches did not find one.
///
/// # Errors
/// [`NoHost`] for an invalid query.
pub fn make_room(
    world: &Snapshot,
    scope: Scope<'_>,
    wanted: &Wanted<'_>,
    guests: &[Guest],
    left: &mut Searches,
) -> Result<Option<Rebalance>, NoHost> {
    let board = Board { scope, guests, now: wanted.constraints.now };
    let (mut found, none_staying) = (Vec::new(), HashSet::new());
    let ended = board.one_move(world, wanted, &none_staying, left, &mut found);
    let ended = match ended {
        Ok(()) if found.is_empty() => board.two_moves(world, wanted, left, &mut found),
        ended => ended,
    };
    if let Err(Stop::Invalid(why)) = ended {
        return Err(why);
    }
    let memory = |plan: &Rebalance| -> i64 {
        let guests = plan.moves.iter().filter_map(|one| guests.get(one.guest));
        guests.map(|guest| guest.memory_mb).sum()
    };
    let rank = |plan: &Rebalance| (plan.moves.len(), -plan.gain, memory(plan));
    Ok(found.into_iter().min_by_key(rank))
}

/// The live migrations of all guests of a host, and their gain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainPlan {
    /// The root of its tree.
    pub source: ProviderId,
    /// The moves, in order.
    pub moves: Vec<Move>,
    /// How many more servers of the request fit after the moves, including those on this host.
    pub gain: i64,
}

/// The drain of one of `hosts` that makes room for the most servers of a request. Considers only hosts whose guests can
/// all move. `None` if no drain makes room, or if `left` searches did not find one.
///
/// # Errors
/// [`NoHost`] for an invalid query.
pub fn empty_host(
    world: &Snapshot,
    scope: Scope<'_>,
    wanted: &Wanted<'_>,
    guests: &[Guest],
    hosts: &[ProviderId],
    left: &mut Searches,
) -> Result<Option<DrainPlan>, NoHost> {
    let board = Board { scope, guests, now: wanted.constraints.now };
    let mut best: Option<DrainPlan> = None;
    for source in hosts {
        match board.drain_plan(world, wanted, *source, left) {
            Ok(Some(found)) => {
                let rank = |one: &DrainPlan| (one.gain, std::cmp::Reverse(one.moves.len()));
                if best.as_ref().is_none_or(|best| rank(&found) > rank(best)) {
                    best = Some(found);
                }
            }
            Ok(None) => {}
            Err(Stop::Exhausted) => break,
            Err(Stop::Invalid(why)) => return Err(why),
        }
    }
    Ok(best)
}

/// How many more servers of a request fit after some moves. `None` if the count takes more than `left` searches.
pub fn gain(
    world: &Snapshot,
    wanted: &Wanted<'_>,
    guests: &[Guest],
    moves: &[Move],
    left: &mut Searches,
) -> Option<i64> {
    let mut touched: BTreeSet<ProviderId> = moves.iter().map(|one| one.to.root).collect();
    touched.extend(moves.iter().filter_map(|one| guests.get(one.guest)).map(|guest| guest.source));
    let then = moves.iter().fold(world.clone(), |world, one| after(&world, guests, one));
    let mut gain = 0;
    for root in touched {
        let now = wanted.fitting(world, root, left).ok()?;
        gain += wanted.fitting(&then, root, left).ok()? - now;
    }
    Some(gain)
}

impl Board<'_> {
    /// The guests, by host, those with the least memory first.
    fn by_host(&self) -> BTreeMap<ProviderId, Vec<usize>> {
        let mut hosts: BTreeMap<ProviderId, Vec<usize>> = BTreeMap::new();
        for (at, guest) in self.guests.iter().enumerate() {
            hosts.entry(guest.source).or_default().push(at);
        }
        for guests in hosts.values_mut() {
            guests.sort_by_key(|at| (self.guests[*at].memory_mb, self.guests[*at].server));
        }
        hosts
    }

    /// Plans of one move of a guest that is not in `staying`.
    fn one_move(
        &self,
        world: &Snapshot,
        wanted: &Wanted<'_>,
        staying: &HashSet<usize>,
        left: &mut Searches,
        found: &mut Vec<Rebalance>,
    ) -> Result<(), Stop> {
        for (source, guests) in self.by_host() {
            if !wanted.may_use(source) {
                continue;
            }
            let before = wanted.fitting(world, source, left)?;
            let mut tried: Vec<&Guest> = Vec::new();
            for at in guests.into_iter().filter(|at| !staying.contains(at)) {
                let guest = &self.guests[at];
                if tried.iter().any(|other| other.is_like(guest)) {
                    continue;
                }
                tried.push(guest);
                if self.fitting_without(world, wanted, source, &[at], left)? <= before {
                    continue;
                }
                for to in self.destinations(world, guest, left)? {
                    let moves = vec![Move { guest: at, to }];
                    if let Some(plan) = self.plan_if_better(world, wanted, moves, left)? {
                        found.push(plan);
                        break;
                    }
                }
                if found.len() >= ENOUGH_PLANS {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn two_moves(
        &self,
        world: &Snapshot,
        wanted: &Wanted<'_>,
        left: &mut Searches,
        found: &mut Vec<Rebalance>,
    ) -> Result<(), Stop> {
        for (source, guests) in self.by_host() {
            if !wanted.may_use(source) {
                continue;
            }
            let before = wanted.fitting(world, source, left)?;
            for (nth, first) in guests.iter().enumerate() {
                let alone = self.fitting_without(world, wanted, source, &[*first], left)? > before;
                if alone {
                    self.chain(world, wanted, *first, left, found)?;
                }
                for second in guests.iter().skip(nth + 1).filter(|_| !alone) {
                    if !self.guests[*first].can_move_with(&self.guests[*second])
                        || self.fitting_without(world, wanted, source, &[*first, *second], left)?
                            <= before
                    {
                        continue;
                    }
                    // The guest with fewer destinations may have to move first.
                    for pair in [[*first, *second], [*second, *first]] {
                        if let Some(plan) = self.pair(world, wanted, pair, left)? {
                            found.push(plan);
                            break;
                        }
                    }
                    if found.len() >= ENOUGH_PLANS {
                        return Ok(());
                    }
                }
                if found.len() >= ENOUGH_PLANS {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The first plan that moves these two guests of one host.
    fn pair(
        &self,
        world: &Snapshot,
        wanted: &Wanted<'_>,
        [first, second]: [usize; 2],
        left: &mut Searches,
    ) -> Result<Option<Rebalance>, Stop> {
        for to in self.destinations(world, &self.guests[first], left)? {
            let one = Move { guest: first, to };
            if let Some(plan) = self.with_second_move(world, wanted, &one, second, left)? {
                return Ok(Some(plan));
            }
        }
        Ok(None)
    }

    /// The plan of a move and a subsequent move of `guest` to the first destination after which more servers of the
    /// request fit.
    fn with_second_move(
        &self,
        world: &Snapshot,
        wanted: &Wanted<'_>,
        one: &Move,
        guest: usize,
        left: &mut Searches,
    ) -> Result<Option<Rebalance>, Stop> {
        let then = after(world, self.guests, one);
        for to in self.destinations(&then, &self.guests[guest], left)? {
            let moves = vec![one.clone(), Move { guest, to }];
            if let Some(plan) = self.plan_if_better(world, wanted, moves, left)? {
                return Ok(Some(plan));
            }
        }
        Ok(None)
    }

    /// Finds a plan whose first move makes room for a guest, and whose second move, of that guest, makes room for the
    /// request.
    fn chain(
        &self,
        world: &Snapshot,
        wanted: &Wanted<'_>,
        last: usize,
        left: &mut Searches,
        found: &mut Vec<Rebalance>,
    ) -> Result<(), Stop> {
        let guest = &self.guests[last];
        let constraints = guest.constraints(self.scope, self.now);
        let for_guest = Wanted { constraints: &constraints, query: &guest.query };
        let others = (0..self.guests.len()).filter(|at| !self.guests[*at].can_move_with(guest));
        let (staying, mut first) = (others.collect(), Vec::new());
        self.one_move(world, &for_guest, &staying, left, &mut first)?;
        for Rebalance { mut moves, .. } in first {
            let Some(one) = moves.pop() else { continue };
            if let Some(plan) = self.with_second_move(world, wanted, &one, last, left)? {
                found.push(plan);
                return Ok(());
            }
        }
        Ok(())
    }

    /// The moves of all guests of a host, each to its first destination, if more servers of the request fit after them.
    fn drain_plan(
        &self,
        world: &Snapshot,
        wanted: &Wanted<'_>,
        source: ProviderId,
        left: &mut Searches,
    ) -> Result<Option<DrainPlan>, Stop> {
        let (mut then, mut moves) = (world.clone(), Vec::<Move>::new());
        for (at, guest) in self.guests.iter().enumerate().filter(|(_, one)| one.source == source) {
            if !moves.iter().all(|one| self.guests[one.guest].can_move_with(guest)) {
                return Ok(None);
            }
            let place = self.destinations(&then, guest, left)?.into_iter().next();
            let Some(to) = place else { return Ok(None) };
            let one = Move { guest: at, to };
            then = after(&then, self.guests, &one);
            moves.push(one);
        }
        let gain = gain(world, wanted, self.guests, &moves, left).ok_or(Stop::Exhausted)?;
        Ok((gain > 0).then_some(DrainPlan { source, moves, gain }))
    }

    /// How many servers of the request fit on a host without some of its guests.
    fn fitting_without(
        &self,
        world: &Snapshot,
        wanted: &Wanted<'_>,
        source: ProviderId,
        guests: &[usize],
        left: &mut Searches,
    ) -> Result<i64, Stop> {
        let mut world = world.clone();
        guests.iter().for_each(|at| world.subtract_usage(&self.guests[*at].allocations));
        wanted.fitting(&world, source, left)
    }

    /// The plan of these moves, if more servers of the request fit after them.
    fn plan_if_better(
        &self,
        world: &Snapshot,
        wanted: &Wanted<'_>,
        moves: Vec<Move>,
        left: &mut Searches,
    ) -> Result<Option<Rebalance>, Stop> {
        let gain = gain(world, wanted, self.guests, &moves, left).ok_or(Stop::Exhausted)?;
        Ok((gain > 0).then_some(Rebalance { moves, gain }))
    }

    /// Places for a guest on other hosts, the best first, each with devices of the same kinds.
    fn destinations(
        &self,
        world: &Snapshot,
        guest: &Guest,
        left: &mut Searches,
    ) -> Result<Vec<Candidate>, Stop> {
        left.0 = left.0.checked_sub(MAX_DESTINATIONS as u64).ok_or(Stop::Exhausted)?;
        let constraints = guest.constraints(self.scope, self.now);
        let kinds = kinds(world, &guest.allocations);
        let mut roots = HashSet::from([guest.source]);
        let mut fits = |candidate: &Candidate| {
            self::kinds(world, &candidate.allocations) == kinds && roots.insert(candidate.root)
        };
        let planned = plan(world, &constraints, &guest.query, 1).map_err(Stop::Invalid)?;
        let best = planned.into_iter().flat_map(|choice| choice.candidates);
        let mut places: Vec<Candidate> = best.filter(|one| fits(one)).collect();
        if places.is_empty() {
            let search = world.search(&guest.query);
            let search = search.map_err(|why| Stop::Invalid(NoHost::new(format!("{why}."))))?;
            let usable = search
                .take(EXAMINED_PER_GUEST)
                .filter(|one| obstacle(&constraints, one).is_none() && !is_without_device(one));
            places.extend(usable.filter(|one| fits(one)).take(MAX_DESTINATIONS));
        }
        Ok(places)
    }
}

/// The number of units by kind of device, which is the class and the traits of the provider. Two
/// units of one device count like one unit of each of two devices. A running guest can continue
/// only on devices of the kinds that it has.
fn kinds(world: &Snapshot, amounts: &[Amount]) -> BTreeMap<(ResourceClass, Vec<Arc<str>>), i64> {
    let mut kinds: BTreeMap<_, i64> = BTreeMap::new();
    for (provider, class, amount) in amounts.iter().filter(|(_, class, _)| is_device(class)) {
        let tree = world.root_of(*provider).and_then(|root| world.tree(root));
        let node = tree.and_then(|tree| tree.nodes().find(|node| node.id() == *provider));
        let traits = node.map(|node| kind_traits(&node)).unwrap_or_default();
        let sum = kinds.entry((class.clone(), traits)).or_default();
        *sum = sum.saturating_add(*amount);
    }
    kinds
}

#[cfg(test)]
mod tests;
