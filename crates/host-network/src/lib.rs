//! The networks of a real host: bridges, VLANs, packet filters and DHCP.
//!
//! ```text
//!   config   the interface of each physical network
//!   nets     the guests' needs per network; names of our objects
//!   links    the host's links, and the steps to the desired links (`ip`)
//!   rules    the packet filter: one nftables table of our own (`nft`)
//!   dhcp     one dnsmasq per network with DHCP
//!   run      programs: no shell, a time limit, bounded output
//! ```
//!
//! Every run compares the whole host with the whole desired state, so it repairs whatever was lost.
//! Our objects are marked: links by alias, the table by name, a dnsmasq by the directory in its
//! command line. Nothing else is ever changed or removed.

mod config;
mod dhcp;
#[cfg(test)]
mod kernel_tests;
mod links;
mod nets;
mod rules;
mod run;
#[cfg(test)]
mod testing;

use std::collections::{BTreeMap, BTreeSet};

use kilonova_ids::NetworkId;
use kilonova_node::{DesiredNetworks, Network, NetworkFailures, NetworkFuture};
use tokio::sync::Mutex;

pub use config::{HostNetworkConfig, Uplink, mappings};
use nets::Nets;

/// The networks of this host.
pub struct HostNetwork {
    config: HostNetworkConfig,
    last: Mutex<Last>,
}

/// The result of this process's last run.
#[derive(Default)]
struct Last {
    /// True if all our objects have been removed.
    clean: bool,
    /// The rules, and the table as the kernel lists it.
    rules: Option<(String, Vec<u8>)>,
}

impl HostNetwork {
    /// The networks of this host with the operator's options.
    pub fn new(config: HostNetworkConfig) -> Self {
        Self { config, last: Mutex::default() }
    }

    async fn reach(&self, wanted: &DesiredNetworks) -> NetworkFailures {
        let mut last = self.last.lock().await;
        let nets = Nets::of(wanted, &self.config);
        let mut lacking = NetworkFailures::default();
        if nets.all.is_empty() {
            if !last.clean {
                match self.clear().await {
                    Ok(clean) => *last = Last { clean, rules: None },
                    Err(why) => {
                        tracing::info!(%why, "could not remove unused networks");
                    }
                }
            }
            return lacking;
        }
        last.clean = false;
        if let Err(why) = rules::load(&nets, &wanted.filters, &mut last.rules).await {
            lacking.all = Some(why);
            return lacking;
        }
        if let Err(why) = self.links(&nets, &mut lacking).await {
            lacking.all = Some(why);
            return lacking;
        }
        self.answer(&nets, &mut lacking).await;
        lacking
    }

    /// Removes all our objects. Returns whether none is left.
    async fn clear(&self) -> Result<bool, String> {
        dhcp::keep_only(&self.config.folder, &BTreeSet::new())?;
        self.links(&Nets::default(), &mut NetworkFailures::default()).await?;
        rules::clear().await?;
        Ok(!links::read().await?.values().any(links::Link::is_ours))
    }

    /// Sets up the links.
    async fn links(&self, nets: &Nets, lacking: &mut NetworkFailures) -> Result<(), String> {
        let there = links::read().await?;
        let plan = links::plan(nets, &self.config, &there);
        for step in plan.gone {
            if let Err(why) = run::run("ip", &step, b"").await {
                tracing::warn!(%why, "could not remove an unused link");
            }
        }
        lacking.networks.extend(plan.lacking);
        for (network, steps) in plan.steps {
            for step in steps {
                if let Err(why) = run::run("ip", &step, b"").await {
                    lacking.networks.entry(network).or_insert(why);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Runs DHCP for the networks that need it.
    async fn answer(&self, nets: &Nets, lacking: &mut NetworkFailures) {
        let wanted: BTreeSet<NetworkId> =
            nets.all.values().filter(|net| net.dhcp.is_some()).map(|net| net.id).collect();
        if let Err(why) = dhcp::keep_only(&self.config.folder, &wanted) {
            tracing::warn!(%why, "could not stop DHCP on unused networks");
        }
        let able: BTreeMap<_, _> =
            nets.all.iter().filter(|(id, _)| !lacking.networks.contains_key(id)).collect();
        for net in able.into_values() {
            if let Some(dhcp) = &net.dhcp
                && let Err(why) = dhcp::serve(&self.config.folder, net, dhcp).await
            {
                lacking.networks.insert(net.id, why);
            }
        }
    }
}

impl Network for HostNetwork {
    fn make<'a>(&'a self, wanted: &'a DesiredNetworks) -> NetworkFuture<'a> {
        Box::pin(self.reach(wanted))
    }
}
