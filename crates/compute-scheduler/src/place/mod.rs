//! Plans the hosts of N servers of one request together, on a scratch copy of the provider
//! snapshot.
//!
//! Performs no I/O and takes the time as an argument. A plan is not a claim: the claim re-checks it.
//!
//! Servers are planned one by one, each on the best host by the cost of its state, or on the best of several hosts
//! by upstream's weighers. If that fails before all are planned, [`Snapshot::pack`] tries other combinations. Its
//! result is used if it places more servers.

mod by_cost;
mod whole;

pub use whole::device_groups;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kilonova_compute_db::server_groups::Policy;
use kilonova_engine::{Alike, Candidate, Query, Snapshot};
use kilonova_ids::ProviderId;

use super::constraints::{Constraints, GroupFacts};
use super::intended::Intended;
use super::reason::{MAX_EXAMINED, NoHost, Obstacle, obstacle, passed_over, reason};
use super::rules::Packing;
use super::weighers::weigh;
use crate::fleet::Host;

/// Number of candidates kept per server, in case another request claims the first.
const ALTERNATES: usize = 8;

/// Number of candidates examined for alternates on other hosts.
const EXAMINED_FOR_ALTERNATES: usize = 256;

/// Number of hosts named with their weights.
const NAMED_HOSTS: usize = 3;

/// The candidates of one server.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The candidates, best first.
    pub candidates: Vec<Candidate>,
    /// Explains to operators how the first candidate was chosen.
    pub how: String,
    /// The conditions on where the devices are. The claim checks them again.
    pub alike: Vec<Alike>,
}

/// One choice per placed server.
pub type Plan = Vec<Choice>;

/// Plans `count` servers; returns as many choices as fit.
///
/// # Errors
/// [`NoHost`] with the reason if not even one fits. Finding the reason walks over the hosts: a
/// write transaction calls [`plan`] instead.
pub fn places(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
    count: usize,
) -> Result<Plan, NoHost> {
    let plan = plan(world, constraints, query, count)?;
    if plan.is_empty() { Err(reason(world, constraints, query)) } else { Ok(plan) }
}

/// Like [`places`], but avoids the places that other requests of this controller are about to claim, if all servers
/// fit elsewhere.
///
/// # Errors
/// Like [`places`].
pub fn places_with_intentions(
    world: &Snapshot,
    intended: &Intended,
    constraints: &Constraints<'_>,
    query: &Query,
    count: usize,
) -> Result<Plan, NoHost> {
    if let Some(world) = intended.with_intentions(world) {
        let plan = plan(&world, constraints, query, count)?;
        if plan.len() >= count {
            return Ok(plan);
        }
    }
    places(world, constraints, query, count)
}

/// Like [`places`] without the reason: the result is empty if not even one server fits.
///
/// # Errors
/// [`NoHost`] for an invalid query.
pub(super) fn plan(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
    count: usize,
) -> Result<Plan, NoHost> {
    let mut plan = if count > 1 && is_affine(constraints) {
        together(world, constraints, query, count)?
    } else {
        one_by_one(world, constraints, query, count)?
    };
    if plan.len() < count && !is_affine(constraints) {
        plan = better(plan, packed(world, constraints, query, count)?);
    }
    plan.iter_mut().for_each(|choice| choice.alike.clone_from(&query.alike));
    Ok(plan)
}

fn is_affine(constraints: &Constraints<'_>) -> bool {
    constraints.group.as_ref().is_some_and(|group| group.policy == Policy::Affinity)
}

fn better(one: Plan, other: Plan) -> Plan {
    if other.len() > one.len() { other } else { one }
}

fn one_by_one(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
    count: usize,
) -> Result<Plan, NoHost> {
    let (mut world, mut constraints) = (world.clone(), constraints.clone());
    let mut plan = Plan::new();
    for _ in 0..count {
        let found = ranked(&world, &constraints, query)?;
        let Some(first) = found.candidates.first() else { break };
        if count > 1 {
            world.add_usage(first);
            join(&mut constraints, first.root);
        }
        plan.push(found);
    }
    Ok(plan)
}

/// Counts a planned server as a member of its group.
fn join(constraints: &mut Constraints<'_>, root: ProviderId) {
    let host = constraints.host(root);
    if let (Some(group), Some(host)) = (&mut constraints.group, host) {
        group.add(&host.name);
    }
}

/// Ranked candidates of one server.
fn ranked(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
) -> Result<Choice, NoHost> {
    if let Packing::Cost(weights) = constraints.rules.packing
        && let Some(choice) = by_cost::ranked(world, constraints, query, weights)?
    {
        return with_alternates(world, constraints, query, choice);
    }
    by_weight(world, constraints, query)
}

/// Adds alternates, each from a walk that starts at another tree, until there are enough or a walk finds no new one.
///
/// Packing prefers the fullest hosts. All of them may have room only on devices that were just freed, where
/// concurrent requests collide.
fn with_alternates(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
    mut choice: Choice,
) -> Result<Choice, NoHost> {
    let mut query = query.clone();
    while choice.candidates.len() < ALTERNATES {
        query.seed = query.seed.wrapping_add(1);
        let search = world.search(&query).map_err(|error| NoHost::new(format!("{error}.")))?;
        let known = choice.candidates.len();
        for candidate in search.take(EXAMINED_FOR_ALTERNATES) {
            let is_new = !choice.candidates.contains(&candidate);
            if is_new && obstacle(constraints, &candidate).is_none() {
                choice.candidates.push(candidate);
                break;
            }
        }
        if choice.candidates.len() == known {
            break;
        }
    }
    Ok(choice)
}

/// Candidates ranked by upstream's weighers among the examined hosts.
fn by_weight(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
) -> Result<Choice, NoHost> {
    let search = world.search(query).map_err(|error| NoHost::new(format!("{error}.")))?;
    let wanted = constraints.rules.hosts_weighed.max(constraints.rules.host_subset_size).max(1);
    let (mut roots, mut met) = (HashSet::new(), HashMap::new());
    let (mut found, mut hosts): (Vec<Candidate>, Vec<Arc<Host>>) = (Vec::new(), Vec::new());
    for candidate in search.take(MAX_EXAMINED) {
        if let Some(one) = obstacle(constraints, &candidate) {
            met.insert(candidate.root, one);
            continue;
        }
        if !roots.insert(candidate.root) {
            // The second round has begun: every host with resources has been examined.
            if found.len() >= ALTERNATES {
                break;
            }
        }
        let Some(host) = constraints.host(candidate.root) else { continue };
        found.push(candidate);
        hosts.push(host);
        if roots.len() >= wanted {
            break;
        }
    }
    if found.len() < 2 {
        let how = describe(constraints, &hosts, &[], &met);
        return Ok(Choice { candidates: found, how, alike: Vec::new() });
    }
    let weights = weigh(world, constraints, query, &hosts);
    let mut order: Vec<usize> = (0..found.len()).collect();
    order.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]));
    draw(&mut order, constraints, query);
    let ranking: Vec<(&str, f64)> =
        order.iter().map(|at| (&*hosts[*at].name, weights[*at])).collect();
    let how = describe(constraints, &hosts, &ranking, &met);
    let candidates =
        order.into_iter().take(ALTERNATES).filter_map(|at| found.get(at).cloned()).collect();
    Ok(Choice { candidates, how, alike: Vec::new() })
}

/// Moves one of the best `host_subset_size` candidates, selected by the seed, to the front.
fn draw<T>(order: &mut [T], constraints: &Constraints<'_>, query: &Query) {
    let subset = constraints.rules.host_subset_size.min(order.len());
    if subset > 1 {
        let chosen = usize::try_from(query.seed % subset as u64).unwrap_or(0);
        order[..=chosen].rotate_right(1);
    }
}

/// Describes the compared and the skipped hosts.
fn describe(
    constraints: &Constraints<'_>,
    hosts: &[Arc<Host>],
    ranking: &[(&str, f64)],
    met: &HashMap<ProviderId, Obstacle>,
) -> String {
    let mut seen = HashSet::new();
    let mut named: Vec<String> = Vec::new();
    for (host, weight) in ranking.iter().filter(|(host, _)| seen.insert(*host)).take(NAMED_HOSTS) {
        named.push(format!("{host} ({weight:.2})"));
    }
    let distinct = hosts.iter().map(|host| &host.name).collect::<HashSet<_>>().len();
    let mut how = match (distinct, hosts.first()) {
        (1, Some(only)) => format!("{} was the only suitable host.", only.name),
        _ => format!("Of {distinct} hosts with room, by weight: {}.", named.join(", ")),
    };
    how.push_str(&passed_over(constraints, met));
    how
}

/// A plan for as many servers as any combination can place.
fn packed(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
    count: usize,
) -> Result<Plan, NoHost> {
    let usable = |candidate: &Candidate| obstacle(constraints, candidate).is_none();
    let share = |root: ProviderId| match (&constraints.group, constraints.host(root)) {
        (Some(group), Some(host)) if group.policy == Policy::AntiAffinity => {
            group.max_per_host.saturating_sub(group.on(&host.name))
        }
        _ => count,
    };
    let places = world
        .pack(query, count, share, usable)
        .map_err(|error| NoHost::new(format!("{error}.")))?;
    let how = "Placed together with the other servers of the request.";
    let one = |place| Choice { candidates: vec![place], how: how.to_owned(), alike: Vec::new() };
    Ok(places.into_iter().map(one).collect())
}

/// Places all servers on one host: the host whose cost falls most, or the host on which most of them fit.
fn together(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
    count: usize,
) -> Result<Plan, NoHost> {
    let Packing::Cost(weights) = constraints.rules.packing else {
        return first_together(world, constraints, query, count);
    };
    let plan = by_cost::on_one_host(world, constraints, query, count, weights)?;
    if plan.len() >= count {
        return Ok(plan);
    }
    Ok(better(plan, first_together(world, constraints, query, count)?))
}

/// Places all servers on one host: the first host of a search on which all fit, or the host on which most of them fit.
fn first_together(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
    count: usize,
) -> Result<Plan, NoHost> {
    let mut best = Plan::new();
    let mut tried = HashSet::new();
    let search = world.search(query).map_err(|error| NoHost::new(format!("{error}.")))?;
    for candidate in search.take(MAX_EXAMINED) {
        if !tried.insert(candidate.root) {
            break;
        }
        if obstacle(constraints, &candidate).is_some() {
            continue;
        }
        let here = confined(query, candidate.root);
        let alone = Constraints { group: None::<GroupFacts>, ..constraints.clone() };
        let plan = packed(world, &alone, &here, count)?;
        best = better(best, plan);
        if best.len() >= count {
            break;
        }
    }
    Ok(best)
}

/// The query restricted to one tree.
pub(crate) fn confined(query: &Query, root: ProviderId) -> Query {
    let mut query = query.clone();
    let group = query.groups.iter_mut().find(|group| !group.resources.is_empty());
    if let Some(group) = group {
        group.in_tree = Some(root);
    }
    query
}

#[cfg(test)]
mod tests;
