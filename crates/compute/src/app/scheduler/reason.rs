//! What keeps a server off a host that has room, and why a server has no place at all, with the
//! names of what stood in the way.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kilonova_engine::{Candidate, Query, Snapshot};
use kilonova_ids::ProviderId;

use super::filters::{Filter, prefilter};
use super::scene::Scene;
use crate::app::owners;

/// Candidates looked at for one server before the request counts as impossible.
pub(super) const LOOKED_AT: usize = 200_000;

/// What keeps a server off a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Obstacle {
    /// The tree is not one of ours.
    NotCompute,
    /// Down or disabled.
    NotUp,
    OtherHost,
    OtherZone,
    /// It failed before, or is the one that the server leaves.
    Excluded,
    /// What it would get there is no device: somebody gave the host's own provider units by hand.
    NoDevice,
    /// One of upstream's pre-filters, in words.
    Kept(&'static str),
    /// A filter.
    Filter(Filter),
}

/// The first thing that keeps the server from a candidate.
pub(super) fn obstacle(scene: &Scene<'_>, candidate: &Candidate) -> Option<Obstacle> {
    let Some(host) = scene.host(candidate.root) else { return Some(Obstacle::NotCompute) };
    let spec = scene.spec;
    if !host.takes_servers(scene.now) {
        return Some(Obstacle::NotUp);
    }
    if spec.wanted_host.as_deref().is_some_and(|wanted| wanted != &*host.name) {
        return Some(Obstacle::OtherHost);
    }
    if spec.availability_zone.as_deref().is_some_and(|zone| !host.is_in(zone)) {
        return Some(Obstacle::OtherZone);
    }
    if scene.excluded.contains(&*host.name) {
        return Some(Obstacle::Excluded);
    }
    let by_hand = |(provider, class, _): &(ProviderId, Arc<str>, i64)| {
        *provider == candidate.root && owners::only_devices_have(class)
    };
    if candidate.allocations.iter().any(by_hand) {
        return Some(Obstacle::NoDevice);
    }
    if scene.forced {
        return None;
    }
    if let Some(words) = prefilter(scene, &host) {
        return Some(Obstacle::Kept(words));
    }
    let filters = &scene.rules.filters;
    filters.iter().find(|filter| !filter.passes(scene, &host)).map(|one| Obstacle::Filter(*one))
}

/// Why there is no place.
pub(super) fn reason(world: &Snapshot, scene: &Scene<'_>, query: &Query) -> String {
    let hosts = scene.fleet.all();
    let up = hosts.iter().filter(|host| host.takes_servers(scene.now)).count();
    if hosts.is_empty() {
        return "No compute host has registered.".into();
    }
    if up == 0 {
        return format!("None of the {} compute hosts is up and enabled.", hosts.len());
    }
    if let Some(host) = &scene.spec.wanted_host
        && scene.fleet.by_name(host).is_none()
    {
        return format!("Compute host {host} could not be found.");
    }
    let mut reason = world.explain(query).to_string();
    for (obstacle, hosts) in obstacles(world, scene, query) {
        if let Some(why) = said(scene, obstacle) {
            let verb = if hosts == 1 { "is" } else { "are" };
            reason.push_str(&format!(" Of these, {hosts} {verb} {why}."));
        }
    }
    if !scene.excluded.is_empty() {
        let mut names: Vec<&str> = scene.excluded.iter().map(String::as_str).collect();
        names.sort_unstable();
        reason.push_str(&format!(" Left out: {}.", names.join(", ")));
    }
    reason
}

/// Of the hosts with room, how many each obstacle kept from being compared.
pub(super) fn passed_over(scene: &Scene<'_>, met: &HashMap<ProviderId, Obstacle>) -> String {
    let mut counts: BTreeMap<Obstacle, usize> = BTreeMap::new();
    met.values().for_each(|obstacle| *counts.entry(*obstacle).or_default() += 1);
    let mut reasons = Vec::new();
    for (obstacle, hosts) in counts {
        let why = match obstacle {
            Obstacle::Excluded => "left out, as the server is there or failed there".to_owned(),
            other => said(scene, other).unwrap_or_default(),
        };
        reasons.push(format!("{hosts} {why}"));
    }
    if reasons.is_empty() {
        return String::new();
    }
    format!(" Passed over: {}.", reasons.join("; "))
}

/// Of the hosts that have room, how many each obstacle removed. A host counts by the last obstacle
/// that one of its candidates met.
fn obstacles(world: &Snapshot, scene: &Scene<'_>, query: &Query) -> BTreeMap<Obstacle, usize> {
    let mut by_root: BTreeMap<ProviderId, Obstacle> = BTreeMap::new();
    let Ok(search) = world.search(query) else { return BTreeMap::new() };
    for candidate in search.take(LOOKED_AT) {
        if let Some(met) = obstacle(scene, &candidate) {
            let known = by_root.entry(candidate.root).or_insert(met);
            *known = met.max(*known);
        }
    }
    let mut counts = BTreeMap::new();
    for obstacle in by_root.into_values() {
        *counts.entry(obstacle).or_default() += 1;
    }
    counts
}

fn said(scene: &Scene<'_>, obstacle: Obstacle) -> Option<String> {
    let spec = scene.spec;
    Some(match obstacle {
        Obstacle::NotCompute => "no compute host here".to_owned(),
        Obstacle::NotUp => "down or disabled".to_owned(),
        Obstacle::OtherHost => {
            let host = spec.wanted_host.as_deref().unwrap_or_default();
            format!("not the host that was asked for, {host}")
        }
        Obstacle::OtherZone => {
            let zone = spec.availability_zone.as_deref().unwrap_or_default();
            format!("not in availability zone {zone}")
        }
        Obstacle::NoDevice => {
            "left with VGPU, PGPU or FPGA that somebody put on the host itself and that are no devices"
                .to_owned()
        }
        Obstacle::Kept(words) => words.to_owned(),
        Obstacle::Filter(filter) => format!("turned down by {}", filter.name()),
        Obstacle::Excluded => return None,
    })
}
