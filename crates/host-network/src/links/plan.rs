//! The steps from the existing links to the desired ones. Pure.
//!
//! A correct link stays unchanged, so a host in its desired state needs no step. An unused bridge
//! stays while something is attached to it.

use std::collections::{BTreeMap, BTreeSet};

use kilonova_ids::NetworkId;

use super::{Link, Links, OURS, hybrid};
use crate::config::{HostNetworkConfig, Uplink};
use crate::nets::{HybridPlug, Net, Nets};
use crate::run::words;

/// The steps, as arguments of `ip`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Removals.
    pub gone: Vec<Vec<String>>,
    /// Steps per network, in this order; a failed step ends the steps of its network.
    pub steps: Vec<(NetworkId, Vec<Vec<String>>)>,
    /// Networks that cannot be set up.
    pub lacking: BTreeMap<NetworkId, String>,
}

impl Plan {
    fn add(&mut self, network: NetworkId, steps: Result<Vec<Vec<String>>, String>) {
        match steps {
            Ok(steps) if steps.is_empty() => {}
            Ok(steps) => self.steps.push((network, steps)),
            Err(why) => {
                self.lacking.insert(network, why);
            }
        }
    }
}

pub(crate) fn plan(nets: &Nets, config: &HostNetworkConfig, there: &Links) -> Plan {
    let mut plan = Plan::default();
    let mut wanted = BTreeSet::new();
    for net in nets.all.values() {
        let (ours, theirs) = net.pair();
        wanted.extend([net.bridge(), net.space_link(), ours, theirs]);
        wanted.extend(net.routers.iter().cloned());
        if net.vlan.is_some() {
            wanted.insert(net.vlan_link());
        }
    }
    wanted.extend(nets.hybrid.iter().flat_map(HybridPlug::names));
    plan.gone = gone(&wanted, config, there);
    for net in nets.all.values() {
        plan.add(net.id, one(net, there));
    }
    for plug in &nets.hybrid {
        plan.add(plug.interface.network, hybrid::one(plug, there));
    }
    plan
}

/// Our links that are no longer needed.
fn gone(wanted: &BTreeSet<String>, config: &HostNetworkConfig, there: &Links) -> Vec<Vec<String>> {
    let is_uplink = |name: &str| {
        config.uplinks.values().any(|uplink| *uplink == Uplink::Interface(name.to_owned()))
    };
    let plugged = |bridge: &str| -> Vec<&Link> {
        there.values().filter(|link| link.master.as_deref() == Some(bridge)).collect()
    };
    let mut steps = Vec::new();
    let unwanted = |link: &&Link| link.is_ours() && !wanted.contains(&link.name);
    let mut kept: BTreeSet<&str> = BTreeSet::new();
    let bridges: Vec<&Link> = there.values().filter(unwanted).filter(|l| l.is("bridge")).collect();
    for bridge in &bridges {
        let members = plugged(&bridge.name);
        if members.iter().any(|member| !member.is_ours() && !is_uplink(&member.name)) {
            kept.insert(&bridge.name);
            kept.extend(members.iter().map(|member| member.name.as_str()));
            kept.extend(members.iter().filter_map(|member| member.lower.as_deref()));
        }
    }
    let mut lost: BTreeSet<&str> = BTreeSet::new();
    for link in there.values().filter(unwanted).filter(|link| !kept.contains(link.name.as_str())) {
        // A veth peer is removed with its other end.
        let with_other = link.lower.as_deref().is_some_and(|other| lost.contains(other));
        if !(with_other && link.is("veth")) {
            steps.push(words(&["link", "delete", "dev", &link.name]));
        }
        lost.insert(&link.name);
    }
    steps
}

/// The steps for one network.
fn one(net: &Net, there: &Links) -> Result<Vec<Vec<String>>, String> {
    let physical = &net.physical;
    let mut steps = Steps::new(there);
    match &net.uplink {
        None => {
            return Err(format!(
                "physical network {physical} is not mapped on this host; add its interface to \
                 [linux_bridge] physical_interface_mappings"
            ));
        }
        Some(Uplink::Interface(name)) => steps.interface(net, name)?,
        Some(Uplink::Bridge(name)) => steps.pair(net, name)?,
    }
    let lower = net.lower().unwrap_or_default();
    let bridge = net.bridge();
    if let Some(vlan) = net.vlan {
        let name = net.vlan_link();
        let id = vlan.to_string();
        let mut is = steps.ours(&name)?;
        let right =
            |link: &Link| link.lower.as_ref() == Some(&lower) && link.info.data.id == Some(vlan);
        if is.is_some_and(|link| !right(link)) {
            steps.push(&["link", "delete", "dev", &name]);
            is = None;
        }
        if is.is_none() {
            steps.push(&["link", "add", "link", &lower, "name", &name, "type", "vlan", "id", &id]);
            steps.push(&["link", "set", "dev", &name, "alias", OURS]);
        }
        steps.mtu(is, &name, net.mtu);
    }
    steps.bridge(&bridge, net.mtu)?;
    if let Some(out) = net.out() {
        steps.plug(&out, &bridge);
    }
    for tap in &net.taps {
        if there.get(tap).is_some_and(|link| link.master.is_none()) {
            steps.push(&["link", "set", "dev", tap, "master", &bridge]);
        }
    }
    steps.up(&bridge);
    Ok(steps.into_list())
}

/// A list of steps for a host with these links.
pub(super) struct Steps<'a> {
    there: &'a Links,
    list: Vec<Vec<String>>,
}

impl<'a> Steps<'a> {
    pub fn new(there: &'a Links) -> Self {
        Self { there, list: Vec::new() }
    }

    pub fn into_list(self) -> Vec<Vec<String>> {
        self.list
    }

    pub fn push(&mut self, step: &[&str]) {
        self.list.push(words(step));
    }

    /// Creates a bridge of ours, and sets its MTU.
    pub fn bridge(&mut self, name: &str, mtu: i64) -> Result<(), String> {
        let is = self.ours(name)?;
        if is.is_some_and(|link| !link.is("bridge")) {
            return Err(format!("{name} is not a bridge"));
        }
        if is.is_none() {
            let quiet = ["stp_state", "0", "forward_delay", "0", "mcast_snooping", "0"];
            self.push(&[&["link", "add", "name", name, "type", "bridge"], &quiet[..]].concat());
            self.push(&["link", "set", "dev", name, "alias", OURS]);
            // The host itself gets no address there, not even a link-local one.
            self.push(&["link", "set", "dev", name, "addrgenmode", "none"]);
        }
        self.mtu(is, name, mtu);
        Ok(())
    }

    /// Creates a veth pair of ours, unless it exists, after removing an incomplete one. The MTUs of the ends are not
    /// set yet, and the ends are down. Returns whether the pair is new.
    fn new_veth(&mut self, one: &str, other: &str) -> Result<bool, String> {
        let (has_one, has_other) = (self.ours(one)?.is_some(), self.ours(other)?.is_some());
        if has_one && has_other {
            return Ok(false);
        }
        if has_one || has_other {
            self.push(&["link", "delete", "dev", if has_one { one } else { other }]);
        }
        self.push(&["link", "add", "name", one, "type", "veth", "peer", "name", other]);
        for name in [one, other] {
            self.push(&["link", "set", "dev", name, "alias", OURS]);
            self.push(&["link", "set", "dev", name, "addrgenmode", "none"]);
        }
        Ok(true)
    }

    /// Creates a veth pair of ours with an MTU.
    pub fn veth(&mut self, one: &str, other: &str, mtu: i64) -> Result<(), String> {
        let is_new = self.new_veth(one, other)?;
        for name in [one, other] {
            let is = self.there.get(name).filter(|_| !is_new);
            self.mtu(is, name, mtu);
        }
        Ok(())
    }

    pub fn up(&mut self, name: &str) {
        if self.there.get(name).is_none_or(|link| !link.is_up()) {
            self.push(&["link", "set", "dev", name, "up"]);
        }
    }

    /// The link with that name, which must be ours if it exists.
    fn ours(&self, name: &str) -> Result<Option<&'a Link>, String> {
        match self.there.get(name) {
            Some(link) if !link.is_ours() => Err(format!(
                "{name} exists on this host but was not created by Kilonova; remove it"
            )),
            other => Ok(other),
        }
    }

    fn mtu(&mut self, is: Option<&Link>, name: &str, mtu: i64) {
        if is.is_none_or(|link| link.mtu != mtu) {
            self.push(&["link", "set", "dev", name, "mtu", &mtu.to_string()]);
        }
    }

    pub fn plug(&mut self, name: &str, bridge: &str) {
        let is = self.there.get(name);
        if is.is_none_or(|link| link.master.as_deref() != Some(bridge)) {
            self.push(&["link", "set", "dev", name, "master", bridge]);
        }
        self.up(name);
    }

    /// Checks that an interface exists and may be used.
    fn interface(&mut self, net: &Net, name: &str) -> Result<(), String> {
        let physical = &net.physical;
        let Some(link) = self.there.get(name) else {
            return Err(format!(
                "{name}, which physical_interface_mappings maps to {physical}, is not on \
                 this host"
            ));
        };
        if link.mtu < net.mtu {
            return Err(format!(
                "{name} has an MTU of {} but the network needs {}; raise the MTU of {name}, or \
                 lower the network's",
                link.mtu, net.mtu
            ));
        }
        let master = link.master.as_deref().filter(|master| *master != net.bridge());
        if let Some(master) = master {
            return Err(format!(
                "{name} is attached to {master}; use {master} in bridge_mappings instead, or detach \
                 {name}"
            ));
        }
        if net.vlan.is_none() {
            if let Some(address) = link.own_address() {
                return Err(format!(
                    "{name} has the host's address {address}, which it would lose with a flat \
                     network; give {physical} an interface of its own, or put {name} into a bridge \
                     and name that in bridge_mappings"
                ));
            }
            return Ok(());
        }
        if !link.is_up() {
            self.push(&["link", "set", "dev", name, "up"]);
        }
        Ok(())
    }

    /// The steps for a veth pair to a bridge of the operator.
    fn pair(&mut self, net: &Net, bridge: &str) -> Result<(), String> {
        let Some(link) = self.there.get(bridge).filter(|link| link.is("bridge")) else {
            return Err(format!(
                "{bridge}, which bridge_mappings maps to {}, is not a bridge of this host",
                net.physical
            ));
        };
        if link.mtu < net.mtu {
            return Err(format!(
                "{bridge} has an MTU of {} but the network needs {}",
                link.mtu, net.mtu
            ));
        }
        let (ours, theirs) = net.pair();
        if self.new_veth(&ours, &theirs)? {
            for name in [&ours, &theirs] {
                self.mtu(None, name, link.mtu);
            }
        }
        self.plug(&theirs, bridge);
        self.up(&ours);
        Ok(())
    }
}
