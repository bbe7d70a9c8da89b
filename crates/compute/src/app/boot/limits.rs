//! What keeps a server off a host that has room: things that Placement does not know. And why a
//! server has no place, with the names of what stood in the way.

use std::collections::{BTreeMap, HashSet};

use kilonova_engine::{Candidate, Query, Snapshot};
use kilonova_ids::ProviderId;

use super::plan::LOOKED_AT;
use crate::app::fleet::Fleet;
use crate::db::servers::Spec;

/// What a candidate has to stay clear of.
pub(super) struct Limits<'a> {
    pub fleet: &'a Fleet,
    pub spec: &'a Spec,
    /// Hosts that were tried in vain.
    pub excluded: &'a HashSet<String>,
    pub now: i64,
}

/// What keeps a server off a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Obstacle {
    NotCompute,
    NotUp,
    OtherHost,
    OtherZone,
    Tried,
}

impl Limits<'_> {
    /// The first thing that keeps the server from a candidate.
    pub fn obstacle(&self, candidate: &Candidate) -> Option<Obstacle> {
        let Some(host) = self.fleet.by_root(candidate.root) else {
            return Some(Obstacle::NotCompute);
        };
        if !host.takes_servers(self.now) {
            Some(Obstacle::NotUp)
        } else if self.spec.wanted_host.as_deref().is_some_and(|wanted| wanted != &*host.name) {
            Some(Obstacle::OtherHost)
        } else if self.spec.availability_zone.as_deref().is_some_and(|zone| !host.is_in(zone)) {
            Some(Obstacle::OtherZone)
        } else if self.excluded.contains(&*host.name) {
            Some(Obstacle::Tried)
        } else {
            None
        }
    }

    /// Why there is no place.
    pub fn reason(&self, world: &Snapshot, query: &Query) -> String {
        let hosts = self.fleet.all();
        let up = hosts.iter().filter(|host| host.takes_servers(self.now)).count();
        if hosts.is_empty() {
            return "No compute host has registered.".into();
        }
        if up == 0 {
            return format!("None of the {} compute hosts is up and enabled.", hosts.len());
        }
        if let Some(host) = &self.spec.wanted_host
            && self.fleet.by_name(host).is_none()
        {
            return format!("Compute host {host} could not be found.");
        }
        let mut reason = world.explain(query).to_string();
        for (obstacle, hosts) in self.obstacles(world, query) {
            if let Some(said) = self.said(obstacle, hosts) {
                reason.push(' ');
                reason.push_str(&said);
            }
        }
        if !self.excluded.is_empty() {
            let mut names: Vec<&str> = self.excluded.iter().map(String::as_str).collect();
            names.sort_unstable();
            reason.push_str(&format!(" Tried and failed: {}.", names.join(", ")));
        }
        reason
    }

    /// Of the hosts that have room, how many each obstacle removed. A host counts by the last
    /// obstacle that one of its candidates met.
    fn obstacles(&self, world: &Snapshot, query: &Query) -> BTreeMap<Obstacle, usize> {
        let mut by_root: BTreeMap<ProviderId, Obstacle> = BTreeMap::new();
        let Ok(search) = world.search(query) else { return BTreeMap::new() };
        for candidate in search.take(LOOKED_AT) {
            if let Some(met) = self.obstacle(&candidate) {
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

    fn said(&self, obstacle: Obstacle, hosts: usize) -> Option<String> {
        let why = match obstacle {
            Obstacle::NotCompute => "no compute host here".to_owned(),
            Obstacle::NotUp => "down or disabled".to_owned(),
            Obstacle::OtherHost => {
                let host = self.spec.wanted_host.as_deref().unwrap_or_default();
                format!("not the host that was asked for, {host}")
            }
            Obstacle::OtherZone => {
                let zone = self.spec.availability_zone.as_deref().unwrap_or_default();
                format!("not in availability zone {zone}")
            }
            Obstacle::Tried => return None,
        };
        Some(format!("Of these, {hosts} {} {why}.", if hosts == 1 { "is" } else { "are" }))
    }
}
