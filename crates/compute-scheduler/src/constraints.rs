//! The input of the scheduler: the request, the hosts, and facts about existing servers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use kilonova_compute_db::server_groups::Policy;
use kilonova_compute_db::servers::Spec;
use kilonova_ids::{HostName, ProviderId};

use super::rules::Rules;
use crate::facts::Facts;
use crate::fleet::{Fleet, Host};
use crate::packer::Packer;

/// The hosts and the rules of every decision.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// The hosts.
    pub fleet: &'a Fleet,
    /// The order of hosts.
    pub packer: &'a Packer,
    /// The operator's settings.
    pub rules: &'a Rules,
}

/// The servers on a host, for filters and weighers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Number of servers.
    pub servers: i64,
    /// Number of servers being built, moved or snapshotted.
    pub busy: i64,
}

/// The server group that the new servers join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFacts {
    /// Its policy.
    pub policy: Policy,
    /// With anti-affinity: the number of members that may share a host.
    pub max_per_host: usize,
    /// Its hosts, with the number of members on each.
    pub hosts: HashMap<HostName, usize>,
}

impl GroupFacts {
    /// Number of members on a host.
    pub fn on(&self, host: &HostName) -> usize {
        self.hosts.get(host).copied().unwrap_or_default()
    }

    /// Counts one more member.
    pub fn add(&mut self, host: &HostName) {
        *self.hosts.entry(host.clone()).or_default() += 1;
    }

    /// True if one more member may be on a host.
    pub fn allows(&self, host: &HostName) -> bool {
        match self.policy {
            Policy::Affinity => self.hosts.is_empty() || self.on(host) > 0,
            Policy::AntiAffinity => self.on(host) < self.max_per_host,
            Policy::SoftAffinity | Policy::SoftAntiAffinity => true,
        }
    }
}

/// Everything that a decision depends on, except resources.
#[derive(Clone)]
pub struct Constraints<'a> {
    /// The hosts.
    pub fleet: &'a Fleet,
    /// The order of hosts.
    pub packer: &'a Packer,
    /// The operator's settings.
    pub rules: &'a Rules,
    /// The requested properties.
    pub spec: &'a Spec,
    /// The project.
    pub project_id: &'a str,
    /// The server's group.
    pub group: Option<GroupFacts>,
    /// Hosts on which an earlier attempt failed, and the server's current host.
    pub excluded: &'a HashSet<HostName>,
    /// Hosts with enough resources on which the NUMA topology does not fit.
    pub unfit: Option<&'a HashSet<HostName>>,
    /// The load of each host; empty unless the rules count servers.
    pub loads: &'a HashMap<HostName, Load>,
    /// Roots of hosts on which another controller claims resources: hosts to use only if there are too few others.
    pub foreign: Option<&'a HashSet<ProviderId>>,
    /// Hosts of the servers in the hint `same_host`.
    pub same_host: Option<&'a HashSet<HostName>>,
    /// Hosts of the servers in the hint `different_host`.
    pub different_host: Option<&'a HashSet<HostName>>,
    /// True if filters are skipped, as in Nova for a forced host.
    pub forced: bool,
    /// The time of the decision.
    pub now: Timestamp,
}

impl<'a> Constraints<'a> {
    /// The constraints of a server that is not forced to a host.
    pub fn new(
        scope: Scope<'a>,
        (project_id, spec): (&'a str, &'a Spec),
        facts: &'a Facts,
        excluded: &'a HashSet<HostName>,
        now: Timestamp,
    ) -> Self {
        Self {
            fleet: scope.fleet,
            packer: scope.packer,
            rules: scope.rules,
            spec,
            project_id,
            group: facts.group.as_ref().map(|(_, group)| group.clone()),
            excluded,
            unfit: None,
            loads: &facts.loads,
            foreign: None,
            same_host: facts.same_host.as_ref(),
            different_host: facts.different_host.as_ref(),
            forced: false,
            now,
        }
    }

    pub(super) fn load(&self, host: &HostName) -> Load {
        self.loads.get(host).copied().unwrap_or_default()
    }

    pub(super) fn host(&self, root: ProviderId) -> Option<Arc<Host>> {
        self.fleet.by_root(root)
    }
}
