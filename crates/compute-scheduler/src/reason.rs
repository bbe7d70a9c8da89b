//! The reasons why a host with resources is excluded, and why a server has no valid host.
//!
//! Only administrators see the names of hosts: [`NoHost`] keeps sentences with such names apart from the others.

use std::collections::{BTreeMap, HashMap};

use kilonova_compute_db::servers::short;
use kilonova_engine::{Candidate, Query, Snapshot};
use kilonova_ids::{HostName, ProviderId};

use super::constraints::Constraints;
use super::filters::{Filter, prefilter};
use crate::fleet::Host;
use crate::owners;

/// Number of candidates examined for one server before the request counts as impossible.
pub(super) const MAX_EXAMINED: usize = 200_000;

/// The reason why there is no valid host, in sentences.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NoHost {
    /// Sentences for everyone, without names of hosts or devices.
    general: Vec<String>,
    /// Sentences for administrators.
    with_names: Vec<String>,
}

/// The text that clients look for; upstream's `NoValidHost`.
const PREFIX: &str = "No valid host was found. There are not enough hosts available.";

impl NoHost {
    /// A reason with one sentence for everyone.
    pub fn new(sentence: impl Into<String>) -> Self {
        Self { general: vec![sentence.into()], with_names: Vec::new() }
    }

    /// Adds a sentence for everyone.
    #[must_use]
    pub fn also(mut self, sentence: impl Into<String>) -> Self {
        self.general.push(sentence.into());
        self
    }

    /// Adds a sentence for administrators.
    #[must_use]
    pub fn and(mut self, sentence: impl Into<String>) -> Self {
        let sentence = sentence.into();
        if !sentence.is_empty() {
            self.with_names.push(sentence);
        }
        self
    }

    /// The sentences for everyone, without upstream's prefix.
    pub fn owner_text(&self) -> String {
        self.general.join(" ")
    }

    /// All sentences, without upstream's prefix.
    pub fn all(&self) -> String {
        self.general
            .iter()
            .chain(&self.with_names)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// A fault's message: upstream's prefix, and the sentences that fit.
    pub fn message(&self) -> String {
        short(PREFIX, self.general.iter().map(String::as_str))
    }

    /// A fault's details.
    pub fn details(&self) -> String {
        format!("{PREFIX} {}", self.all())
    }
}

/// The reason why a host is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Obstacle {
    /// The tree is not a compute host.
    NotCompute,
    /// Down or disabled.
    NotUp,
    OtherHost,
    OtherZone,
    /// An earlier attempt failed on it, or it is the server's current host.
    Excluded,
    /// The NUMA topology does not fit on it.
    Unfit,
    /// The candidate's units are not devices: they were added manually to the host's own provider.
    NoDevice,
    /// One of upstream's pre-filters, with its reason.
    Kept(&'static str),
    /// A filter.
    Filter(Filter),
}

/// The first reason that excludes a candidate.
pub(super) fn obstacle(constraints: &Constraints<'_>, candidate: &Candidate) -> Option<Obstacle> {
    let Some(host) = constraints.host(candidate.root) else { return Some(Obstacle::NotCompute) };
    unusable(constraints, &host)
        .or_else(|| is_without_device(candidate).then_some(Obstacle::NoDevice))
        .or_else(|| filtered(constraints, &host))
}

/// The first reason that excludes every candidate on a host.
pub(super) fn obstacle_of_host(constraints: &Constraints<'_>, host: &Host) -> Option<Obstacle> {
    unusable(constraints, host).or_else(|| filtered(constraints, host))
}

/// True if the units of a candidate are not devices.
pub(super) fn is_without_device(candidate: &Candidate) -> bool {
    candidate
        .allocations
        .iter()
        .any(|(provider, class, _)| *provider == candidate.root && owners::only_devices_have(class))
}

fn unusable(constraints: &Constraints<'_>, host: &Host) -> Option<Obstacle> {
    let spec = constraints.spec;
    if !host.takes_servers(constraints.now) {
        return Some(Obstacle::NotUp);
    }
    if spec.wanted_host.as_ref().is_some_and(|wanted| *wanted != host.name) {
        return Some(Obstacle::OtherHost);
    }
    if spec.availability_zone.as_deref().is_some_and(|zone| !host.is_in(zone)) {
        return Some(Obstacle::OtherZone);
    }
    if constraints.unfit.is_some_and(|unfit| unfit.contains(&host.name)) {
        return Some(Obstacle::Unfit);
    }
    constraints.excluded.contains(&host.name).then_some(Obstacle::Excluded)
}

fn filtered(constraints: &Constraints<'_>, host: &Host) -> Option<Obstacle> {
    if constraints.forced {
        return None;
    }
    if let Some(words) = prefilter(constraints, host) {
        return Some(Obstacle::Kept(words));
    }
    let filters = &constraints.rules.filters;
    filters
        .iter()
        .find(|filter| !filter.passes(constraints, host))
        .map(|one| Obstacle::Filter(*one))
}

/// The reason why there is no valid host.
pub(super) fn reason(world: &Snapshot, constraints: &Constraints<'_>, query: &Query) -> NoHost {
    let hosts = constraints.fleet.all();
    let up = hosts.iter().filter(|host| host.takes_servers(constraints.now)).count();
    match (hosts.len(), up) {
        (0, _) => return NoHost::new("No compute host has registered."),
        (1, 0) => return NoHost::new("The only compute host is not up and enabled."),
        (many, 0) => {
            return NoHost::new(format!("None of {many} compute hosts is up and enabled."));
        }
        _ => {}
    }
    if let Some(host) = &constraints.spec.wanted_host
        && constraints.fleet.by_name(host).is_none()
    {
        return NoHost::new("The requested host does not exist.")
            .and(format!("Compute host {host} could not be found."));
    }
    let explanation = world.explain(query);
    let mut reason = NoHost::default();
    reason.general.extend(explanation.headline());
    for (obstacle, hosts) in obstacles(world, constraints, query) {
        let verb = if hosts == 1 { "is" } else { "are" };
        let whose = match (hosts, explanation.left) {
            (1, 1) => "It".to_owned(),
            (all, left) if all == left => format!("All {all} of them"),
            (some, _) => format!("{some} of them"),
        };
        reason.general.push(format!("{whose} {verb} {}.", describe(constraints, obstacle)));
    }
    reason.general.extend(explanation.steps.iter().map(|step| step.text.clone()));
    reason.with_names.extend(explanation.nearest_miss());
    if !constraints.excluded.is_empty() {
        let mut names: Vec<&str> = constraints.excluded.iter().map(HostName::as_str).collect();
        names.sort_unstable();
        reason.with_names.push(format!("Excluded: {}.", names.join(", ")));
    }
    if let Some(host) = &constraints.spec.wanted_host {
        reason.with_names.push(format!("Only host {host} was requested."));
    }
    reason
}

/// For each reason, how many of the hosts with resources it excluded from the comparison.
pub(super) fn passed_over(
    constraints: &Constraints<'_>,
    met: &HashMap<ProviderId, Obstacle>,
) -> String {
    let mut counts: BTreeMap<Obstacle, usize> = BTreeMap::new();
    met.values().for_each(|obstacle| *counts.entry(*obstacle).or_default() += 1);
    let mut reasons = Vec::new();
    for (obstacle, hosts) in counts {
        reasons.push(format!("{hosts} {}", describe(constraints, obstacle)));
    }
    if reasons.is_empty() {
        return String::new();
    }
    format!(" Rejected: {}.", reasons.join("; "))
}

/// For each reason, how many of the hosts with resources it excluded. A host counts for the last
/// reason among its candidates.
fn obstacles(
    world: &Snapshot,
    constraints: &Constraints<'_>,
    query: &Query,
) -> BTreeMap<Obstacle, usize> {
    let mut by_root: BTreeMap<ProviderId, Obstacle> = BTreeMap::new();
    let Ok(search) = world.search(query) else { return BTreeMap::new() };
    for candidate in search.take(MAX_EXAMINED) {
        if let Some(met) = obstacle(constraints, &candidate) {
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

/// Describes an excluded host.
fn describe(constraints: &Constraints<'_>, obstacle: Obstacle) -> String {
    match obstacle {
        Obstacle::NotCompute => "not a compute host".to_owned(),
        Obstacle::NotUp => "down or disabled".to_owned(),
        Obstacle::OtherHost => "not the requested host".to_owned(),
        Obstacle::OtherZone => {
            let zone = constraints.spec.availability_zone.as_deref().unwrap_or_default();
            format!("not in availability zone {zone}")
        }
        Obstacle::NoDevice => {
            "without such a device: the VGPU, PGPU or FPGA inventory of the host's own provider \
             has none"
                .to_owned()
        }
        Obstacle::Kept(words) => words.to_owned(),
        Obstacle::Unfit => "rejected by NUMATopologyFilter".to_owned(),
        Obstacle::Filter(filter) => format!("rejected by {}", filter.name()),
        Obstacle::Excluded => "excluded (current host, or host of a failed attempt)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_upstreams_words_and_255_characters() {
        let mut why = NoHost::new("None of 2 hosts offers VGPUS.").and("Nearest: gpu-7.");
        assert_eq!(why.message(), format!("{PREFIX} None of 2 hosts offers VGPUS."));
        assert_eq!(
            why.details(),
            format!("{PREFIX} None of 2 hosts offers VGPUS. Nearest: gpu-7.")
        );
        why.general.push("x".repeat(300));
        why.general.push("Short.".to_owned());
        assert_eq!(why.message(), format!("{PREFIX} None of 2 hosts offers VGPUS. Short."));
    }
}
