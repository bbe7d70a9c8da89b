//! The networks of a real host: bridges, VLANs, packet filters, DHCP and routers.
//!
//! ```text
//!   config   the interface of each physical network
//!   nets     the guests' needs per network; names of our objects
//!   links    the host's links, and the steps to the desired links (`ip`)
//!   switch   the ports of hybrid plugs in Open vSwitch (`ovs-vsctl`)
//!   rules    the packet filter: one nftables table of our own (`nft`)
//!   space    one namespace per network, held by its dnsmasq
//!   plug     the veth pair to the namespace, and its inner configuration
//!   dhcp     the configuration of the dnsmasq
//!   routers  one namespace per router: interfaces, routes, address translation, advertisements
//!   metadata the sockets of the metadata service in the namespaces
//!   run      programs: no shell, a time limit, bounded output
//! ```
//!
//! Every run compares the whole host with the whole desired state, so it repairs any loss. Our
//! objects are marked: links by alias, the table by name, a dnsmasq by the directory in its command
//! line. Nothing else is ever changed or removed, except the ports in Open vSwitch that libvirt has left of a guest.

mod config;
mod dhcp;
#[cfg(test)]
mod kernel_tests;
mod links;
mod metadata;
mod nets;
mod plug;
mod routers;
mod rules;
mod run;
mod space;
mod switch;
#[cfg(test)]
mod testing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kilonova_ids::{NetworkId, RouterId, ServerId};
use kilonova_node::{
    DesiredNetworks, GuestRequests, Network, NetworkFailures, NetworkFuture, ResumeFuture,
    UnplugFuture,
};
use kilonova_node_api::Interface;
use tokio::sync::Mutex;

pub use config::{HostNetworkConfig, Uplink, mappings};
use metadata::Listeners;
use nets::{Net, Nets};
use switch::SwitchPorts;

/// The networks of this host.
pub struct HostNetwork {
    config: HostNetworkConfig,
    last: Mutex<Last>,
    listeners: Listeners,
}

/// The result of this process's last run.
#[derive(Default)]
struct Last {
    /// True if all our objects have been removed.
    clean: bool,
    /// The rules, and the table as the kernel lists it.
    rules: Option<(String, Vec<u8>)>,
    /// The reasons why networks lack the metadata service.
    without_metadata: BTreeMap<NetworkId, String>,
    /// The address translation of the routers.
    routers: routers::Loaded,
    /// True if Open vSwitch has no port of ours.
    switch_is_clean: bool,
}

impl HostNetwork {
    /// The networks of this host with the operator's options.
    pub fn new(config: HostNetworkConfig) -> Self {
        Self { config, last: Mutex::default(), listeners: Listeners::default() }
    }

    async fn reach(&self, wanted: &DesiredNetworks) -> NetworkFailures {
        let mut last = self.last.lock().await;
        let nets = Nets::of(wanted, &self.config);
        let mut lacking = NetworkFailures::default();
        if nets.is_empty() {
            if !last.clean {
                match self.clear(&mut last).await {
                    Ok(clean) => {
                        let switch_is_clean = last.switch_is_clean;
                        let clean = clean && switch_is_clean;
                        *last = Last { clean, switch_is_clean, ..Last::default() };
                    }
                    Err(why) => {
                        tracing::info!(%why, "could not remove unused networks");
                    }
                }
            }
            return lacking;
        }
        last.clean = false;
        let rules = match nets.all.is_empty() {
            // Without networks of ours the host needs no nftables.
            true if last.rules.is_none() => Ok(()),
            true | false => rules::load(&nets, &wanted.filters, &mut last.rules).await,
        };
        if let Err(why) = rules {
            lacking.all = Some(why);
            return lacking;
        }
        if let Err(why) = self.links(&nets, &mut last.switch_is_clean, &mut lacking).await {
            lacking.all = Some(why);
            return lacking;
        }
        let without_metadata = self.answer(&nets, &mut lacking).await;
        for (network, why) in &without_metadata {
            if last.without_metadata.get(network) != Some(why) {
                tracing::warn!(%network, %why, "guests of this network cannot ask for their metadata");
            }
        }
        last.without_metadata = without_metadata;
        let folder = self.config.folder.join("routers");
        let all = &wanted.routers;
        lacking.routers = routers::reach(&folder, &nets, all, &lacking, &mut last.routers).await;
        lacking
    }

    /// Removes all our objects. Returns whether none is left.
    async fn clear(&self, last: &mut Last) -> Result<bool, String> {
        self.listeners.keep_only(&BTreeSet::new());
        space::keep_only::<NetworkId>(&self.config.folder, &BTreeSet::new())?;
        space::keep_only::<RouterId>(&self.config.folder.join("routers"), &BTreeSet::new())?;
        let lacking = &mut NetworkFailures::default();
        self.links(&Nets::default(), &mut last.switch_is_clean, lacking).await?;
        rules::clear().await?;
        Ok(!links::read().await?.values().any(links::Link::is_ours))
    }

    /// Sets up the links, and their ports in Open vSwitch.
    async fn links(
        &self,
        nets: &Nets,
        switch_is_clean: &mut bool,
        lacking: &mut NetworkFailures,
    ) -> Result<(), String> {
        let there = links::read().await?;
        let ports = ports_at_switch(nets, &there, switch_is_clean).await;
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
        for plug in &nets.hybrid {
            let network = plug.interface.network;
            if lacking.networks.contains_key(&network) {
                continue;
            }
            let joined = match &ports {
                Ok(ports) => switch::add_port(plug, ports).await,
                Err(why) => Err(why.clone()),
            };
            if let Err(why) = joined {
                lacking.networks.insert(network, why);
            }
        }
        Ok(())
    }

    /// Runs DHCP and the metadata service for the networks that need them. Returns the reasons why
    /// networks lack the metadata service; their guests run without it.
    async fn answer(
        &self,
        nets: &Nets,
        lacking: &mut NetworkFailures,
    ) -> BTreeMap<NetworkId, String> {
        let wanted: BTreeSet<NetworkId> =
            nets.all.values().filter(|net| net.has_space()).map(|net| net.id).collect();
        let asked = nets.all.values().filter(|net| net.metadata.is_some()).map(|net| net.id);
        self.listeners.keep_only(&asked.collect());
        if let Err(why) = space::keep_only(&self.config.folder, &wanted) {
            tracing::warn!(%why, "could not stop the dnsmasq of unused networks");
        }
        let mut without_metadata = BTreeMap::new();
        for net in nets.all.values().filter(|net| wanted.contains(&net.id)) {
            if lacking.networks.contains_key(&net.id) {
                continue;
            }
            match self.serve(net).await {
                Ok(None) => {}
                Ok(Some(why)) => {
                    without_metadata.insert(net.id, why);
                }
                Err(why) if net.dhcp.is_some() => {
                    lacking.networks.insert(net.id, why);
                }
                Err(why) => {
                    without_metadata.insert(net.id, why);
                }
            }
        }
        without_metadata
    }

    /// Opens the sockets of a network whose namespace an earlier agent set up for them.
    async fn listen_again(&self, net: &Net) -> Result<(), String> {
        let Some(pid) = space::holder(&self.config.folder, net.id)? else { return Ok(()) };
        match plug::plugged(pid).await? {
            Some(space) => self.listeners.open(net.id, space).await,
            None => Ok(()),
        }
    }

    /// Sets up the namespace of a network and the sockets in it. Returns the reason if it lacks the
    /// metadata service.
    async fn serve(&self, net: &Net) -> Result<Option<String>, String> {
        let pid = space::hold(&self.config.folder, net).await?;
        let plugged = plug::plug(net, pid).await?;
        if net.metadata.is_none() || plugged.lacking.is_some() {
            return Ok(plugged.lacking);
        }
        Ok(self.listeners.open(net.id, plugged.space).await.err())
    }
}

/// Reads our ports in Open vSwitch and removes those that are no longer needed. A host without hybrid plugs need not
/// have Open vSwitch, which is not queried again once it has no port of ours.
async fn ports_at_switch(
    nets: &Nets,
    there: &links::Links,
    is_clean: &mut bool,
) -> Result<SwitchPorts, String> {
    if nets.hybrid.is_empty() && *is_clean {
        return Ok(SwitchPorts::new());
    }
    let ports = match switch::read().await {
        Ok(mut ports) => {
            switch::remove_unused_ports(&nets.hybrid, &mut ports, there).await.map(|()| ports)
        }
        Err(why) if nets.hybrid.is_empty() && run::is_missing(&why) => Ok(SwitchPorts::new()),
        Err(why) => Err(why),
    };
    *is_clean = ports.as_ref().is_ok_and(SwitchPorts::is_empty) && nets.hybrid.is_empty();
    if let Err(why) = &ports
        && nets.hybrid.is_empty()
    {
        tracing::debug!(%why, "could not remove unused ports from Open vSwitch");
    }
    ports
}

impl Network for HostNetwork {
    fn make<'a>(&'a self, wanted: &'a DesiredNetworks) -> NetworkFuture<'a> {
        Box::pin(self.reach(wanted))
    }

    fn unplug<'a>(&'a self, server: ServerId, interfaces: &'a [Interface]) -> UnplugFuture<'a> {
        let native = interfaces.iter().filter_map(|one| Some((one.tap(), one.native_plug()?)));
        let taps = native.map(|(tap, bridge)| (tap, bridge.to_owned())).collect();
        Box::pin(async move { switch::unplug(server, &taps).await })
    }

    fn serve_metadata(&self, guests: Arc<dyn GuestRequests>) -> bool {
        self.listeners.serve(guests);
        self.config.metadata
    }

    fn resume<'a>(&'a self, guests: &'a DesiredNetworks) -> ResumeFuture<'a> {
        Box::pin(async move {
            let nets = Nets::of(guests, &self.config);
            for net in nets.all.values().filter(|net| net.metadata.is_some()) {
                if let Err(why) = self.listen_again(net).await {
                    tracing::warn!(network = %net.id, %why, "could not serve metadata on a network again");
                }
            }
        })
    }
}
