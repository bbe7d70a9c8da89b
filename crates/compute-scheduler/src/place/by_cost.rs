//! The candidates of one server, on the hosts whose packing cost falls most.
//!
//! Every host is compared, by class of equal states. Recent build failures take precedence over the
//! cost, as with upstream's default weights. So do soft affinity and soft anti-affinity, which
//! upstream adds to the other weights. An empty result is not a refusal: the caller searches again
//! without an order, and only that search decides that no host fits.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kilonova_compute_db::server_groups::Policy;
use kilonova_engine::{Candidate, Query, Snapshot};
use kilonova_ids::ProviderId;
use kilonova_packing::Weights;

use super::{ALTERNATES, Choice, NAMED_HOSTS, Plan, confined, draw, whole};
use crate::constraints::Constraints;
use crate::fleet::Host;
use crate::packer::{Preference, Remainders};
use crate::reason::{NoHost, Obstacle, is_without_device, obstacle_of_host, passed_over};

/// Number of hosts in the first batch of the order; each further batch is eight times as large.
const FIRST_BATCH: usize = 64;

/// Number of candidates from the search in the order of cost. A search without an order finds the
/// other alternates.
const CANDIDATES_BY_COST: usize = ALTERNATES / 2;

/// Minimum number of hosts to look for, to tell whether the chosen host is the only suitable one.
const MIN_HOSTS: usize = 2;

/// Number of candidates kept per host, in case another request claims the first.
const CANDIDATES_PER_HOST: usize = CANDIDATES_BY_COST / MIN_HOSTS;

/// Number of candidates examined per host to find the best device.
pub(super) const EXAMINED_PER_HOST: usize = 32;

/// Maximum number of hosts examined for servers that must share a host.
const MAX_EXAMINED_FOR_ALL: usize = 256;

/// Maximum number of hosts with room for all of those servers that are compared.
const MAX_COMPARED_FOR_ALL: usize = 8;

/// A host that is used only if there are too few others, with its penalties in order of precedence:
/// build failures, members of the server group, and whether another controller claims resources
/// there.
type Deferred = ((i64, usize, bool), Preference, Arc<Host>);

/// The candidates of one host, best first.
struct Found {
    candidates: Vec<Candidate>,
    host: Arc<Host>,
    score: f64,
}

/// The search and its results.
struct Finder<'a> {
    world: &'a Snapshot,
    constraints: &'a Constraints<'a>,
    query: &'a Query,
    /// The hosts that have a candidate, if they are known.
    capable: Option<HashSet<ProviderId>>,
    tried: HashSet<ProviderId>,
    met: HashMap<ProviderId, Obstacle>,
    found: Vec<Found>,
    deferred: Vec<Deferred>,
}

/// The candidates in the order of cost, best first. `None` if the server requests a host, or if no
/// host in the order has a candidate.
pub(super) fn ranked(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
    weights: Weights,
) -> Result<Option<Choice>, NoHost> {
    if constraints.spec.wanted_host.is_some() {
        return Ok(None);
    }
    let (tried, met) = (HashSet::new(), HashMap::new());
    let (found, deferred) = (Vec::new(), Vec::new());
    let mut finder =
        Finder { world, constraints, query, capable: None, tried, met, found, deferred };
    for host in finder.group_hosts() {
        finder.examine(Preference { root: host.root, score: 0.0, remainder: None }, false)?;
    }
    let (mut skipped, mut batch) = (0, FIRST_BATCH);
    while !finder.has_enough() {
        if skipped == FIRST_BATCH {
            finder.capable = capable(world, query)?;
        }
        let order = constraints.packer.order(world, query, weights, skipped, batch);
        let Some(order) = order else { break };
        for preference in &order {
            finder.examine(*preference, true)?;
            if finder.has_enough() {
                break;
            }
        }
        if order.len() < batch {
            break;
        }
        skipped += batch;
        batch *= 8;
    }
    finder.deferred.sort_by_key(|(penalties, ..)| *penalties);
    for (_, preference, host) in std::mem::take(&mut finder.deferred) {
        if finder.has_enough() {
            break;
        }
        finder.add(preference, host)?;
    }
    Ok(finder.choice())
}

/// A plan for servers on one host. Compares the first hosts in the order that have room for all of
/// them, and chooses the one whose cost falls most. If no host has room for all, the plan places as
/// many servers as fit on one host.
pub(super) fn on_one_host(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
    count: usize,
    weights: Weights,
) -> Result<Plan, NoHost> {
    if constraints.spec.wanted_host.is_some() {
        return Ok(Plan::new());
    }
    let (mut best, mut partial) = (None::<(f64, Plan)>, Plan::new());
    let mut compared = 0;
    for root in hosts_for_all(world, constraints, query, weights) {
        let Some(host) = constraints.host(root) else { continue };
        if obstacle_of_host(constraints, &host).is_some() {
            continue;
        }
        let (mut plan, after) = on_host(world, constraints, query, root, count, weights)?;
        if plan.len() < count {
            if plan.len() > partial.len() {
                partial = plan;
            }
            continue;
        }
        let score = constraints.packer.rate(world, &after, root, query, weights);
        if best.as_ref().is_none_or(|(most, _)| score > *most) {
            let how = format!("By packing, all on one host: {} ({score:.2}).", host.name);
            plan.iter_mut().for_each(|choice| choice.how.clone_from(&how));
            best = Some((score, plan));
        }
        compared += 1;
        if compared >= MAX_COMPARED_FOR_ALL {
            break;
        }
    }
    Ok(best.map_or(partial, |(_, plan)| plan))
}

/// The hosts with a candidate, for a query with conditions on the places of devices. The order by
/// cost ignores these conditions, so most of its first hosts may fail them. One search over all trees
/// therefore replaces the examination of each host. `None` if the search gives up, and for queries
/// without such conditions.
fn capable(world: &Snapshot, query: &Query) -> Result<Option<HashSet<ProviderId>>, NoHost> {
    if query.alike.is_empty() {
        return Ok(None);
    }
    let unlimited = Query { limit: None, ..query.clone() };
    let mut search = world.search(&unlimited).map_err(|error| NoHost::new(format!("{error}.")))?;
    let mut roots = HashSet::new();
    // In the first round each tree yields one candidate.
    for candidate in search.by_ref() {
        if !roots.insert(candidate.root) {
            return Ok(Some(roots));
        }
    }
    Ok((!search.gave_up()).then_some(roots))
}

/// The hosts to try for servers that must share one: those of the group's members, or, without
/// members, the best hosts for the first server.
fn hosts_for_all(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
    weights: Weights,
) -> Vec<ProviderId> {
    let members = constraints.group.as_ref().filter(|group| !group.hosts.is_empty());
    if let Some(group) = members {
        let known = group.hosts.keys().filter_map(|name| constraints.fleet.by_name(name));
        return known.map(|host| host.root).collect();
    }
    let order = constraints.packer.order(world, query, weights, 0, MAX_EXAMINED_FOR_ALL);
    order.unwrap_or_default().into_iter().map(|preference| preference.root).collect()
}

/// Places up to `count` servers on a host, each on the devices that cost least. Returns the plan
/// and the world after it.
fn on_host(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
    root: ProviderId,
    count: usize,
    weights: Weights,
) -> Result<(Plan, Snapshot), NoHost> {
    let (mut world, mut plan) = (world.clone(), Plan::new());
    let here = confined(query, root);
    while plan.len() < count {
        let usable = search(&world, &here)?
            .filter(|one| one.root == root && !is_without_device(one))
            .take(EXAMINED_PER_HOST);
        let rated = usable.map(|candidate| {
            let mut after = world.clone();
            after.add_usage(&candidate);
            (constraints.packer.cost(&after, root, weights), candidate)
        });
        let cheapest = rated.min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((_, candidate)) = cheapest else { break };
        world.add_usage(&candidate);
        plan.push(Choice { candidates: vec![candidate], ..Choice::default() });
    }
    Ok((plan, world))
}

fn search<'a>(
    world: &'a Snapshot,
    query: &'a Query,
) -> Result<impl Iterator<Item = Candidate> + 'a, NoHost> {
    world.search(query).map_err(|error| NoHost::new(format!("{error}.")))
}

impl Finder<'_> {
    fn has_enough(&self) -> bool {
        self.found.len() >= self.constraints.rules.host_subset_size.max(MIN_HOSTS)
    }

    /// Under soft affinity, the hosts of the group, those with the most members first; otherwise
    /// none.
    fn group_hosts(&self) -> Vec<Arc<Host>> {
        let group = self.constraints.group.as_ref();
        let Some(group) = group.filter(|group| group.policy == Policy::SoftAffinity) else {
            return Vec::new();
        };
        let mut hosts: Vec<_> = group.hosts.iter().collect();
        hosts.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        hosts.into_iter().filter_map(|(name, _)| self.constraints.fleet.by_name(name)).collect()
    }

    /// Looks for a candidate on a host. A host with a penalty is deferred.
    fn examine(&mut self, preference: Preference, may_defer: bool) -> Result<(), NoHost> {
        let is_unable = |capable: &HashSet<ProviderId>| !capable.contains(&preference.root);
        if !self.tried.insert(preference.root) || self.capable.as_ref().is_some_and(is_unable) {
            return Ok(());
        }
        let Some(host) = self.constraints.host(preference.root) else { return Ok(()) };
        if let Some(obstacle) = obstacle_of_host(self.constraints, &host) {
            self.met.insert(preference.root, obstacle);
            return Ok(());
        }
        let penalties = self.penalties(&host);
        if may_defer && penalties > (0, 0, false) {
            self.deferred.push((penalties, preference, host));
            return Ok(());
        }
        self.add(preference, host)
    }

    fn penalties(&self, host: &Host) -> (i64, usize, bool) {
        let group = self.constraints.group.as_ref();
        let group = group.filter(|group| group.policy == Policy::SoftAntiAffinity);
        let weights = &self.constraints.rules.weights;
        let failures = if weights.build_failure > 0.0 { host.build_failures() } else { 0 };
        let is_foreign = self.constraints.foreign.is_some_and(|roots| roots.contains(&host.root));
        (failures, group.map_or(0, |group| group.on(&host.name)), is_foreign)
    }

    /// Adds the best candidates of a host. Candidates on a device that the order prefers come first.
    fn add(&mut self, preference: Preference, host: Arc<Host>) -> Result<(), NoHost> {
        let here = confined(self.query, preference.root);
        let remainders = Remainders::of_host(self.world, preference.root);
        let places = whole::Places::of(self.world, preference.root, &here);
        let ordered: Box<dyn Iterator<Item = Candidate>> = match places.are_none() {
            true => Box::new(search(self.world, &here)?.take(EXAMINED_PER_HOST)),
            false => Box::new(self.by_place(&places, &here)?.into_iter()),
        };
        let (mut preferred, mut others) = (Vec::new(), Vec::new());
        for candidate in ordered.filter(|one| one.root == preference.root) {
            if is_without_device(&candidate) {
                self.met.insert(preference.root, Obstacle::NoDevice);
                continue;
            }
            let found = remainders.of(&candidate);
            let is_preferred = preference
                .remainder
                .is_none_or(|wanted| found.is_some_and(|(free, _)| free == wanted));
            let room = found.map_or(0, |(_, room)| room);
            if is_preferred {
                preferred.push((room, candidate));
            } else {
                others.push(candidate);
            }
            if preferred.len() >= CANDIDATES_PER_HOST
                && preferred.iter().all(|(room, _)| *room == 0)
            {
                break;
            }
        }
        // Among cards that also serve other types, the fullest comes first.
        preferred.sort_by_key(|(room, _)| *room);
        let mut preferred: Vec<Candidate> = preferred.into_iter().map(|(_, one)| one).collect();
        preferred.append(&mut others);
        preferred.truncate(CANDIDATES_PER_HOST);
        if !preferred.is_empty() {
            self.met.remove(&preference.root);
            self.found.push(Found { candidates: preferred, host, score: preference.score });
        }
        Ok(())
    }

    /// The candidates on a host with islands or switches. Candidates that keep most islands and
    /// switches whole come first, because some servers need a whole island or switch.
    fn by_place(&self, places: &whole::Places, here: &Query) -> Result<Vec<Candidate>, NoHost> {
        let mut found: Vec<Candidate> = Vec::new();
        for query in places.queries(here) {
            for candidate in search(self.world, &query)?.take(EXAMINED_PER_HOST) {
                if !found.contains(&candidate) {
                    found.push(candidate);
                }
            }
        }
        found.sort_by_cached_key(|candidate| places.cost(candidate));
        Ok(found)
    }

    fn choice(mut self) -> Option<Choice> {
        if self.found.is_empty() {
            return None;
        }
        draw(&mut self.found, self.constraints, self.query);
        let named = self.found.iter().take(NAMED_HOSTS);
        let named: Vec<String> =
            named.map(|found| format!("{} ({:.2})", found.host.name, found.score)).collect();
        let mut how = match &*self.found {
            [only] => format!("{} was the only suitable host.", only.host.name),
            _ => format!("By packing, best first: {}.", named.join(", ")),
        };
        how.push_str(&passed_over(self.constraints, &self.met));
        let candidates = self.found.into_iter().flat_map(|found| found.candidates);
        Some(Choice {
            candidates: candidates.take(CANDIDATES_BY_COST).collect(),
            how,
            alike: Vec::new(),
        })
    }
}
