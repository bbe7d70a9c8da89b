//! What a choice looks at: the wish, the hosts, and what is known of the servers that are there.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use kilonova_ids::ProviderId;

use super::rules::Rules;
use crate::app::fleet::{Fleet, Host};
use crate::db::server_groups::Policy;
use crate::db::servers::Spec;

/// The servers on a host, as far as filters and weighers ask.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// How many there are.
    pub servers: i64,
    /// How many are being built, moved or imaged.
    pub busy: i64,
}

/// The server group that the new servers join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFacts {
    /// How its servers are to be placed.
    pub policy: Policy,
    /// With anti-affinity: so many may share a host.
    pub max_per_host: usize,
    /// Where its servers are, and how many on each host.
    pub hosts: HashMap<String, usize>,
}

impl GroupFacts {
    /// How many of its servers a host has.
    pub fn on(&self, host: &str) -> usize {
        self.hosts.get(host).copied().unwrap_or_default()
    }

    /// Counts one more.
    pub fn add(&mut self, host: &str) {
        *self.hosts.entry(host.to_owned()).or_default() += 1;
    }

    /// Whether one more of its servers may be on a host.
    pub fn allows(&self, host: &str) -> bool {
        match self.policy {
            Policy::Affinity => self.hosts.is_empty() || self.on(host) > 0,
            Policy::AntiAffinity => self.on(host) < self.max_per_host,
            Policy::SoftAffinity | Policy::SoftAntiAffinity => true,
        }
    }
}

/// Everything that a choice depends on, apart from the resources.
#[derive(Clone)]
pub struct Scene<'a> {
    /// The hosts.
    pub fleet: &'a Fleet,
    /// What the operator decided.
    pub rules: &'a Rules,
    /// What the server is to be.
    pub spec: &'a Spec,
    /// Whose it is.
    pub project_id: &'a str,
    /// Its group.
    pub group: Option<GroupFacts>,
    /// Hosts that were tried in vain, or are being left.
    pub excluded: &'a HashSet<String>,
    /// Servers by host; empty unless the rules ask for it.
    pub loads: &'a HashMap<String, Load>,
    /// Hosts that the servers named in the hints `same_host` and `different_host` are on.
    pub same_host: Option<&'a HashSet<String>>,
    /// As above.
    pub different_host: Option<&'a HashSet<String>>,
    /// Whether filters are passed over, as upstream does for a forced host.
    pub forced: bool,
    /// Microseconds since 1970.
    pub now: i64,
}

impl Scene<'_> {
    pub(super) fn load(&self, host: &str) -> Load {
        self.loads.get(host).copied().unwrap_or_default()
    }

    pub(super) fn host(&self, root: ProviderId) -> Option<Arc<Host>> {
        self.fleet.by_root(root)
    }
}
