//! The reasons why the topologies of servers do not fit on hosts, as text.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use kilonova_compute_scheduler::NoHost;
use kilonova_ids::HostName;
use kilonova_topology::Misfit;

/// Hosts with room on which the guest's topology does not fit, each with the reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Misfits(BTreeMap<HostName, String>);

/// Maximum number of hosts named to an administrator.
const NAMED: usize = 8;

/// Maximum number of hosts that one write transaction tries.
const MOST: usize = 256;

impl Misfits {
    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if the write transaction has tried enough hosts: further ones would keep other writers
    /// waiting.
    pub(crate) fn are_enough(&self) -> bool {
        self.0.len() >= MOST
    }

    /// The hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &HostName> {
        self.0.keys()
    }

    pub(crate) fn add(&mut self, host: &HostName, why: String) {
        self.0.insert(host.clone(), why);
    }

    /// Removes the hosts on which other servers of the request have been placed.
    pub(crate) fn without(mut self, others: &HashSet<HostName>) -> Self {
        self.0.retain(|host, _| !others.contains(host));
        self
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Adds the misfits to the reason why there is no valid host.
    pub(crate) fn explain(&self, reason: NoHost) -> NoHost {
        if self.0.is_empty() {
            return reason;
        }
        let reasons: BTreeSet<&str> = self.0.values().map(String::as_str).collect();
        let reasons: Vec<&str> = reasons.into_iter().take(NAMED).collect();
        let (many, verb) = match self.0.len() {
            1 => ("One host".to_owned(), "has"),
            hosts => (format!("{hosts} hosts"), "have"),
        };
        let general = format!(
            "{many} with enough resources {verb} no place for the NUMA topology: {}.",
            reasons.join("; ")
        );
        let names: Vec<String> =
            self.0.iter().take(NAMED).map(|(host, why)| format!("{host} ({why})")).collect();
        reason.also(general).and(format!("The NUMA topology does not fit on {}.", names.join(", ")))
    }
}

/// The text of a misfit: a clause about the host.
pub(super) fn words(misfit: &Misfit) -> String {
    match misfit {
        Misfit::TooFewCells { guest, host } => {
            format!("it has {host} NUMA cells, and the guest {guest}")
        }
        Misfit::Cell { cell, reasons } => {
            let reasons: BTreeSet<String> =
                reasons.iter().map(|(_, why)| why.to_string()).collect();
            let reasons: Vec<String> = reasons.into_iter().collect();
            format!("no NUMA cell fits cell {cell} of the guest ({})", reasons.join(", "))
        }
        Misfit::Together => "its NUMA cells cannot fit all cells of the guest together".to_owned(),
        Misfit::Devices => "its NUMA cells with room are not near the devices".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_transaction_tries_a_limited_number_of_hosts() {
        let mut misfits = Misfits::default();
        let mut tried = 0;
        while !misfits.are_enough() && tried < 100_000 {
            misfits.add(&HostName::verbatim(format!("h{tried}")), "it has no room".to_owned());
            tried += 1;
        }
        assert_eq!(tried, MOST);
    }

    #[test]
    fn owners_see_reasons_and_administrators_names() {
        let mut misfits = Misfits::default();
        for host in ["secret-1", "secret-2"] {
            misfits.add(&HostName::verbatim(host), "it offers no NUMA cells".to_owned());
        }
        let reason = misfits.explain(NoHost::default());
        let (owner, all) = (reason.message(), reason.details());
        assert!(owner.contains("2 hosts with enough resources have no place"), "{owner}");
        assert!(!owner.contains("secret") && all.contains("secret-2 (it offers"), "{owner} {all}");
    }
}
