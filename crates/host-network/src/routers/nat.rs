//! The address translation of a router as text for nftables. Pure.
//!
//! ```text
//!   from outside to a floating IP     ─►  its fixed address
//!   from a fixed address to outside   ─►  its floating IP
//!   from any other address to outside ─►  the router's own, with SNAT
//!   between guests, by floating IP    ─►  both ends are translated, so that replies pass through here
//! ```

use std::collections::BTreeSet;
use std::net::IpAddr;

use kilonova_node_api::{Router, RouterInterface};

use super::within;
use crate::nets::base;

const TABLE: &str = "ip kilonova";

/// The complete table, which replaces the one before atomically.
pub(super) fn table(router: &Router) -> String {
    let mut text = format!("table {TABLE}\ndelete table {TABLE}\n");
    let Some(outside) = router.interfaces.iter().find(|interface| interface.external) else {
        return text;
    };
    let gate = within(outside);
    let own = four(outside).next().map(|(address, _)| address);
    let inner: BTreeSet<String> = router
        .interfaces
        .iter()
        .filter(|interface| !interface.external)
        .flat_map(four)
        .map(|(address, prefix)| format!("{}/{prefix}", base(address, prefix)))
        .collect();
    let inner: Vec<String> = inner.into_iter().collect();
    let pairs = |from_floating: bool| -> String {
        let mut pairs = router.floating.clone();
        pairs.sort_unstable();
        let pair = |pair: &kilonova_node_api::FloatingAddress| match from_floating {
            true => format!("{} : {}", pair.floating, pair.fixed),
            false => format!("{} : {}", pair.fixed, pair.floating),
        };
        pairs.iter().map(pair).collect::<Vec<_>>().join(", ")
    };
    text.push_str(&format!("table {TABLE} {{\n"));
    text.push_str("\tchain prerouting {\n");
    text.push_str("\t\ttype nat hook prerouting priority -100; policy accept;\n");
    if !router.floating.is_empty() {
        text.push_str(&format!("\t\tdnat to ip daddr map {{ {} }}\n", pairs(true)));
    }
    text.push_str("\t}\n\tchain postrouting {\n");
    text.push_str("\t\ttype nat hook postrouting priority 100; policy accept;\n");
    let back = format!("oifname != \"{gate}\" ct status dnat");
    if !router.floating.is_empty() {
        let map = pairs(false);
        text.push_str(&format!("\t\toifname \"{gate}\" snat to ip saddr map {{ {map} }}\n"));
        text.push_str(&format!("\t\t{back} snat to ip saddr map {{ {map} }}\n"));
    }
    if let Some(own) = own {
        if !router.floating.is_empty() && !inner.is_empty() {
            let inner = inner.join(", ");
            text.push_str(&format!("\t\t{back} ip saddr {{ {inner} }} snat to {own}\n"));
        }
        if router.snat {
            text.push_str(&format!("\t\toifname \"{gate}\" snat to {own}\n"));
        }
    }
    text.push_str("\t}\n}\n");
    text
}

/// The IPv4 addresses of an interface, with prefix lengths.
fn four(interface: &RouterInterface) -> impl Iterator<Item = (IpAddr, u8)> {
    let all = interface.addresses.iter().filter(|address| address.address.is_ipv4());
    all.map(|address| (address.address, address.prefix))
}
