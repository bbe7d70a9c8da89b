//! The networks of a real host: bridges, VLANs, what may pass, and who answers for addresses.
//!
//! ```text
//!   config   which interface of the host leads to which physical network
//!   nets     what guests want, put together by network; names of what is made for one
//!   links    what links the host has, and the steps from there to what is wanted (`ip`)
//!   rules    what may pass, as one nftables table of our own (`nft`)
//!   dhcp     one dnsmasq for each network where guests ask for their addresses
//!   run      programs: no shell, a time limit, bounded output
//! ```
//!
//! Each look compares all of the host with all that is wanted, so it does not matter what was lost or
//! when. What is ours says so: links by their alias, the table by its name, a dnsmasq by the folder in
//! its command line. Anything else is never changed, and never removed.

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
use kilonova_node::{Lacking, Making, Network, Wanted};
use tokio::sync::Mutex;

pub use config::{Config, Uplink, mappings};
use nets::Nets;

/// The networks of this host.
pub struct HostNetwork {
    config: Config,
    last: Mutex<Last>,
}

/// What this process did last.
#[derive(Default)]
struct Last {
    /// Whether all that was ours is taken back.
    clean: bool,
    /// The rules, and what the kernel made of them.
    rules: Option<(String, Vec<u8>)>,
}

impl HostNetwork {
    /// The networks of this host, with what its operator says of them.
    pub fn new(config: Config) -> Self {
        Self { config, last: Mutex::default() }
    }

    async fn reach(&self, wanted: &Wanted) -> Lacking {
        let mut last = self.last.lock().await;
        let nets = Nets::of(wanted, &self.config);
        let mut lacking = Lacking::default();
        if nets.all.is_empty() {
            if !last.clean {
                match self.clear().await {
                    Ok(clean) => *last = Last { clean, rules: None },
                    Err(why) => {
                        tracing::info!(%why, "what may be left of networks is not removed");
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

    /// Nothing is wanted: takes back all that is ours, and says whether nothing is left.
    async fn clear(&self) -> Result<bool, String> {
        dhcp::keep_only(&self.config.folder, &BTreeSet::new())?;
        self.links(&Nets::default(), &mut Lacking::default()).await?;
        rules::clear().await?;
        Ok(!links::read().await?.values().any(links::Link::is_ours))
    }

    /// Makes the links so.
    async fn links(&self, nets: &Nets, lacking: &mut Lacking) -> Result<(), String> {
        let there = links::read().await?;
        let plan = links::plan(nets, &self.config, &there);
        for step in plan.gone {
            if let Err(why) = run::run("ip", &step, b"").await {
                tracing::warn!(%why, "a link that nobody wants any more stays");
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

    /// Has somebody answer for addresses where guests ask for them.
    async fn answer(&self, nets: &Nets, lacking: &mut Lacking) {
        let wanted: BTreeSet<NetworkId> =
            nets.all.values().filter(|net| net.dhcp.is_some()).map(|net| net.id).collect();
        if let Err(why) = dhcp::keep_only(&self.config.folder, &wanted) {
            tracing::warn!(%why, "what answers for networks that nobody wants any more stays");
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
    fn make<'a>(&'a self, wanted: &'a Wanted) -> Making<'a> {
        Box::pin(self.reach(wanted))
    }
}
