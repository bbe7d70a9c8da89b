//! The routers of a host: a network namespace for each, held by a dnsmasq like those of networks.
//!
//! ```text
//!   kr<port> on the bridge  ──veth──  qr-<port> or qg-<port> in the namespace
//! ```
//!
//! A second dnsmasq sends the router advertisements, where subnets need them. A host that takes
//! over a router announces its addresses by gratuitous ARP. Its MAC addresses are the same on every
//! host.

mod advertise;
mod inside;
mod nat;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use kilonova_ids::RouterId;
use kilonova_node::NetworkFailures;
use kilonova_node_api::{Router, RouterInterface};

use crate::links::{self, Links, Veth, veth};
use crate::metadata::has_six;
use crate::nets::{Net, Nets, is_mac};
use crate::run::{run, words};
use crate::space::{self, ADVERTISING, Start};
use inside::Inside;

/// The kernel settings of a namespace that must be on.
const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
const FORWARD_SIX: &str = "/proc/sys/net/ipv6/conf/all/forwarding";

fn named(prefix: &str, interface: &RouterInterface) -> String {
    let id = interface.port.to_string();
    format!("{prefix}{}", id.get(..11).unwrap_or(&id))
}

/// The bridge's end of the veth pair of an interface.
pub(crate) fn outside(interface: &RouterInterface) -> String {
    named("kr", interface)
}

/// The router's end.
fn within(interface: &RouterInterface) -> String {
    named(if interface.external { "qg-" } else { "qr-" }, interface)
}

/// The address translation that each router's namespace has: process, text, and the tables as the kernel
/// listed them.
pub(crate) type Loaded = BTreeMap<RouterId, (i32, String, Vec<u8>)>;

/// Reconciles the host's routers with these. Returns the reasons why some could not be set up.
pub(crate) async fn reach(
    folder: &Path,
    nets: &Nets,
    routers: &[Router],
    lacking: &NetworkFailures,
    loaded: &mut Loaded,
) -> BTreeMap<RouterId, String> {
    let six = has_six();
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    for router in routers {
        wanted.insert(router.id.to_string());
        if advertise::is_wanted(router, six) {
            wanted.insert(advertising(router));
        }
    }
    if let Err(why) = space::keep_only(folder, &wanted) {
        tracing::warn!(%why, "could not stop the dnsmasq of unused routers");
    }
    loaded.retain(|id, _| wanted.contains(&id.to_string()));
    let mut failed = BTreeMap::new();
    for router in routers {
        let network = |interface: &RouterInterface| lacking.networks.get(&interface.network);
        let why = match router.interfaces.iter().find_map(network) {
            Some(why) => Err(why.clone()),
            None => one(folder, nets, router, loaded).await,
        };
        if let Err(why) = why {
            failed.insert(router.id, why);
        }
    }
    failed
}

/// The name of the dnsmasq that advertises a router's subnets. It is not the one that holds the namespace,
/// because a change of the subnets restarts it and must not end the router's connections.
fn advertising(router: &Router) -> String {
    format!("{}{ADVERTISING}", router.id)
}

/// Sets up one router.
async fn one(
    folder: &Path,
    nets: &Nets,
    router: &Router,
    loaded: &mut Loaded,
) -> Result<(), String> {
    if let Some(odd) = router.interfaces.iter().find(|interface| !is_mac(&interface.mac)) {
        return Err(format!("port {} has no valid MAC address", odd.port));
    }
    let six = has_six();
    let files = [("hosts", String::new()), ("options", String::new())];
    let pid =
        space::hold_as(folder, router.id, Start::New, advertise::holder_arguments, &files).await?;
    let mut is = Inside::read(pid).await?;
    let there = links::read().await?;
    let mut fresh = BTreeSet::new();
    for interface in &router.interfaces {
        let Some(net) = nets.all.get(&interface.network) else { continue };
        if connect(net, interface, pid, &is, &there).await? {
            fresh.insert(within(interface));
        }
    }
    if !fresh.is_empty() || !is.is_complete() {
        let mut on = vec!["tee", FORWARD];
        on.extend(six.then_some(FORWARD_SIX));
        in_space(pid, &on, b"1\n").await?;
        is = Inside::read(pid).await?;
    }
    // Translation is loaded first, so that no packet of a guest leaves with the guest's own address.
    translate(pid, router, loaded).await?;
    let lines = is.lines(router, &fresh, six);
    if !lines.is_empty() {
        in_space(pid, &["ip", "-batch", "-"], lines.as_bytes()).await?;
    }
    if advertise::is_wanted(router, six) {
        let arguments = |its: &Path| advertise::arguments(its, router, six);
        space::hold_as(folder, advertising(router), Start::In(pid), arguments, &files).await?;
    }
    Ok(())
}

/// Runs a program in the namespace of a process.
async fn in_space(pid: i32, line: &[&str], input: &[u8]) -> Result<Vec<u8>, String> {
    let mut all = vec![format!("--net=/proc/{pid}/ns/net"), "--".into()];
    all.extend(words(line));
    run("nsenter", &all, input).await
}

/// Connects a router with the bridge of a network. Returns whether the pair is new.
async fn connect(
    net: &Net,
    interface: &RouterInterface,
    pid: i32,
    is: &Inside,
    there: &Links,
) -> Result<bool, String> {
    let (name, inner, bridge) = (outside(interface), within(interface), net.bridge());
    let here = there.get(&name);
    if here.is_some_and(|link| !link.is_ours()) {
        return Err(format!(
            "{name} exists on this host but was not created by Kilonova; remove it"
        ));
    }
    let right = is.link(&inner).is_some_and(|link| {
        link.mac.as_ref().is_some_and(|mac| mac.eq_ignore_ascii_case(&interface.mac))
    });
    let fresh = here.is_none() || !right;
    if fresh {
        let pair =
            Veth { name: &name, inner: &inner, pid, mac: &interface.mac, mtu: net.mtu, up: false };
        veth(&pair, here.is_some()).await?;
    }
    if fresh || here.is_none_or(|link| link.master.as_ref() != Some(&bridge) || !link.is_up()) {
        run("ip", &words(&["link", "set", "dev", &name, "master", &bridge, "up"]), b"").await?;
    }
    Ok(fresh)
}

/// Loads the address translation of a router, unless the kernel has it.
async fn translate(pid: i32, router: &Router, loaded: &mut Loaded) -> Result<(), String> {
    let text = nat::table(router);
    let list = ["nft", "--stateless", "list", "ruleset"];
    if let Some((of, before, shown)) = loaded.get(&router.id)
        && *of == pid
        && *before == text
        && in_space(pid, &list, b"").await.is_ok_and(|now| now == *shown)
    {
        return Ok(());
    }
    loaded.remove(&router.id);
    in_space(pid, &["nft", "-f", "-"], text.as_bytes()).await?;
    let shown = in_space(pid, &list, b"").await?;
    loaded.insert(router.id, (pid, text, shown));
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
