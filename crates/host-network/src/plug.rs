//! Connects a network's namespace to its bridge: a veth pair, with addresses, routes and neighbours inside.
//!
//! Each guest that can ask for its metadata has a permanent neighbour entry, so that no frame of another
//! guest can redirect the answers. (When dnsmasq answers a guest, it replaces the entry with a plain one of the
//! same content; the next run makes it permanent again.)

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::Deserialize;

use crate::links::{Link, Veth, read, veth};
use crate::metadata::{ADDRESS, ADDRESS_SIX, Space, has_six};
use crate::nets::Net;
use crate::run::{run, words};

/// The veth end in the namespace.
pub(crate) const INSIDE: &str = "eth0";
/// The protocol of our routes, which the kernel's own routes do not have.
const STATIC: &str = "static";

/// The inside of a namespace.
struct Inside {
    link: Option<Link>,
    addresses: BTreeSet<(IpAddr, u8)>,
    /// Our routes to IPv4 subnets.
    routes: BTreeSet<String>,
    /// The permanent neighbour entries.
    neighbours: BTreeSet<(IpAddr, String)>,
}

#[derive(Deserialize)]
struct Route {
    dst: String,
    #[serde(default)]
    protocol: String,
}

#[derive(Deserialize)]
struct Neighbour {
    dst: IpAddr,
    #[serde(default)]
    lladdr: String,
}

/// The arguments of `nsenter` for running `ip` in the namespace of a process.
fn inside(pid: i32, line: &[&str]) -> Vec<String> {
    let mut all = vec![format!("--net=/proc/{pid}/ns/net"), "--".into(), "ip".into()];
    all.extend(words(line));
    all
}

impl Inside {
    async fn read(pid: i32) -> Result<Self, String> {
        let line = inside(pid, &["-json", "-details", "-batch", "-"]);
        let asked = b"address show\nroute show\nneigh show nud permanent\n";
        Self::parse(&run("nsenter", &line, asked).await?)
    }

    /// Parses three lists, one after the other.
    fn parse(text: &[u8]) -> Result<Self, String> {
        let wrong = |error: serde_json::Error| format!("unexpected output of ip: {error}");
        let mut lists = serde_json::Deserializer::from_slice(text).into_iter::<serde_json::Value>();
        let mut next = || lists.next().transpose().map(Option::unwrap_or_default).map_err(wrong);
        let links: Vec<Link> = serde_json::from_value(next()?).map_err(wrong)?;
        let routes: Vec<Route> = serde_json::from_value(next()?).map_err(wrong)?;
        let neighbours: Vec<Neighbour> = serde_json::from_value(next()?).map_err(wrong)?;
        let link = links.into_iter().find(|link| link.name == INSIDE);
        let address = |address: &crate::links::Address| {
            Some((address.local.as_ref()?.parse().ok()?, address.prefixlen?))
        };
        let addresses = link.iter().flat_map(|link| &link.addresses).filter_map(address).collect();
        let ours = routes.into_iter().filter(|route| route.protocol == STATIC);
        Ok(Self {
            link,
            addresses,
            routes: ours.map(|route| route.dst).collect(),
            neighbours: neighbours.into_iter().map(|one| (one.dst, one.lladdr)).collect(),
        })
    }
}

/// The lines for `ip` that configure the inside for the network: first those for DHCP, then those
/// for the metadata service only.
fn lines(net: &Net, is: &Inside, six: bool) -> (String, String) {
    let own = net.dhcp.as_ref().map(|dhcp| dhcp.own.clone()).unwrap_or_default();
    let mut service: BTreeSet<(IpAddr, u8)> = BTreeSet::new();
    if net.metadata.is_some() {
        service.insert((ADDRESS.into(), 32));
        service.extend(six.then_some((ADDRESS_SIX.into(), 64)));
    }
    let route = |(subnet, prefix): (IpAddr, u8)| match prefix {
        32 => subnet.to_string(),
        _ => format!("{subnet}/{prefix}"),
    };
    let routes: BTreeSet<String> = net.foreign_subnets().into_iter().map(route).collect();
    let askers = net.metadata.iter().flat_map(|metadata| &metadata.askers);
    let neighbours: BTreeSet<(IpAddr, String)> = askers
        .filter(|asker| six || asker.address.is_ipv4())
        .map(|asker| (asker.address, asker.mac.clone()))
        .collect();
    let add = |(address, prefix): &(IpAddr, u8)| {
        let nodad = if address.is_ipv6() { " nodad" } else { "" };
        format!("address add {address}/{prefix} dev {INSIDE}{nodad}\n")
    };
    let mut first = String::new();
    for gone in is.routes.difference(&routes) {
        first.push_str(&format!("route delete {gone} dev {INSIDE} proto {STATIC}\n"));
    }
    for (address, prefix) in
        is.addresses.iter().filter(|has| !own.contains(has) && !service.contains(has))
    {
        first.push_str(&format!("address delete {address}/{prefix} dev {INSIDE}\n"));
    }
    own.difference(&is.addresses).for_each(|has| first.push_str(&add(has)));
    let mut then = String::new();
    service.difference(&is.addresses).for_each(|has| then.push_str(&add(has)));
    for new in routes.difference(&is.routes) {
        then.push_str(&format!(
            "route replace {new} dev {INSIDE} scope link src {ADDRESS} proto {STATIC}\n"
        ));
    }
    for (address, _) in is.neighbours.iter().filter(|has| !neighbours.contains(has)) {
        if !neighbours.iter().any(|(same, _)| same == address) {
            then.push_str(&format!("neigh delete {address} dev {INSIDE}\n"));
        }
    }
    for (address, mac) in neighbours.difference(&is.neighbours) {
        then.push_str(&format!(
            "neigh replace {address} lladdr {mac} dev {INSIDE} nud permanent\n"
        ));
    }
    (first, then)
}

/// A connected namespace.
pub(crate) struct Plugged {
    /// The namespace.
    pub space: Space,
    /// The reason why the metadata service cannot work in it, if any.
    pub lacking: Option<String>,
}

/// The namespace of a process, if the metadata service has its address there.
pub(crate) async fn plugged(pid: i32) -> Result<Option<Space>, String> {
    let is = Inside::read(pid).await?;
    let serves = is.addresses.contains(&(ADDRESS.into(), 32));
    is.link.filter(|_| serves).map(|link| Space::of(pid, link.index)).transpose()
}

/// Connects the namespace of a process to the network's bridge.
pub(crate) async fn plug(net: &Net, pid: i32) -> Result<Plugged, String> {
    let (name, bridge) = (net.space_link(), net.bridge());
    let mac = net.own_mac();
    let mut there = Inside::read(pid).await?;
    let out = read().await?;
    let is = out.get(&name);
    if is.is_some_and(|link| !link.is_ours()) {
        return Err(format!(
            "{name} exists on this host but was not created by Kilonova; remove it"
        ));
    }
    let mut fresh = false;
    let right = |link: &Link| link.mac.as_deref() == Some(&*mac);
    if is.is_none() || !there.link.as_ref().is_some_and(right) {
        let pair = Veth { name: &name, inner: INSIDE, pid, mac: &mac, mtu: net.mtu, up: true };
        veth(&pair, is.is_some()).await?;
        there = Inside::read(pid).await?;
        fresh = true;
    }
    if fresh || is.is_none_or(|link| link.master.as_ref() != Some(&bridge) || !link.is_up()) {
        run("ip", &words(&["link", "set", "dev", &name, "master", &bridge, "up"]), b"").await?;
    }
    let (first, then) = lines(net, &there, has_six());
    let batch = inside(pid, &["-batch", "-"]);
    if !first.is_empty() {
        run("nsenter", &batch, first.as_bytes()).await?;
    }
    let lacking = match then.is_empty() {
        true => None,
        false => run("nsenter", &batch, then.as_bytes()).await.err(),
    };
    let link = there.link.map(|link| link.index).unwrap_or_default();
    Ok(Plugged { space: Space::of(pid, link)?, lacking })
}

#[cfg(test)]
#[path = "plug_tests.rs"]
mod tests;
