//! The rules of the metadata service. They apply to every port, regardless of its security groups
//! and its port security.
//!
//! - A guest reaches the service from its own tap, MAC address and address only, and an answer leaves
//!   through the tap of the guest that asked. So an address of a network identifies one guest.
//! - Only the namespace has the service's addresses, and no frame for them leaves the host.

use std::collections::BTreeSet;
use std::fmt::{Result as Written, Write};
use std::net::IpAddr;

use super::quoted;
use crate::metadata::{ADDRESS, ADDRESS_SIX, PORT};
use crate::nets::{Asker, Metadata, Net, Nets};

const ASKERS: &str = "metadata4";
const ASKERS_SIX: &str = "metadata6";

/// The networks with the service.
fn serving(nets: &Nets) -> impl Iterator<Item = (&Net, &Metadata)> {
    nets.all.values().filter_map(|net| Some((net, net.metadata.as_ref()?)))
}

/// The sets and chains of the service.
pub(super) fn table(out: &mut String, nets: &Nets) -> Written {
    for (name, kind, six) in [(ASKERS, "ipv4_addr", false), (ASKERS_SIX, "ipv6_addr", true)] {
        let of_family = |asker: &&Asker| asker.address.is_ipv6() == six;
        let askers = serving(nets).flat_map(|(_, metadata)| &metadata.askers).filter(of_family);
        let all: Vec<String> = askers
            .map(|Asker { tap, mac, address }| format!("\"{tap}\" . {mac} . {address}"))
            .collect();
        writeln!(out, "\tset {name} {{")?;
        writeln!(out, "\t\ttype ifname . ether_addr . {kind}")?;
        if !all.is_empty() {
            writeln!(out, "\t\telements = {{ {} }}", all.join(", "))?;
        }
        writeln!(out, "\t}}")?;
    }
    owner(out, nets)?;
    askers(out, nets)
}

/// Drops frames that claim the service's addresses, before the bridge learns their source.
fn owner(out: &mut String, nets: &Nets) -> Written {
    let mut ports: BTreeSet<String> = BTreeSet::new();
    for (net, _) in serving(nets) {
        ports.extend(net.taps.iter().cloned());
        ports.extend(net.out());
        ports.extend(net.routers.iter().cloned());
    }
    writeln!(out, "\tchain metadata_owner {{")?;
    writeln!(out, "\t\ttype filter hook prerouting priority -305; policy accept;")?;
    if !ports.is_empty() {
        let from = format!("iifname {{ {} }}", quoted(ports));
        writeln!(out, "\t\t{from} arp saddr ip {ADDRESS} drop")?;
        writeln!(out, "\t\t{from} ip saddr {ADDRESS} drop")?;
        writeln!(out, "\t\t{from} ip6 saddr {ADDRESS_SIX} drop")?;
        let target = u128::from(ADDRESS_SIX);
        writeln!(out, "\t\t{from} icmpv6 type nd-neighbor-advert @th,64,128 {target:#x} drop")?;
    }
    writeln!(out, "\t}}")
}

/// Lets each guest send requests only as itself, and lets no other guest read its answer.
fn askers(out: &mut String, nets: &Nets) -> Written {
    writeln!(out, "\tchain metadata {{")?;
    writeln!(out, "\t\ttype filter hook forward priority -5; policy accept;")?;
    let spaces: BTreeSet<String> = serving(nets).map(|(net, _)| net.space_link()).collect();
    if spaces.is_empty() {
        return writeln!(out, "\t}}");
    }
    let taps: BTreeSet<String> =
        serving(nets).flat_map(|(net, _)| net.taps.iter().cloned()).collect();
    let spaces = quoted(spaces);
    let (to, from) = (format!("oifname {{ {spaces} }}"), format!("iifname {{ {spaces} }}"));
    let known: Vec<String> = serving(nets)
        .flat_map(|(net, metadata)| metadata.askers.iter().map(move |asker| (net, asker.address)))
        .filter(|(_, address)| address.is_ipv4())
        .map(|(net, address)| format!("\"{}\" . {address}", net.space_link()))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    if !known.is_empty() {
        writeln!(
            out,
            "\t\toifname . arp saddr ip {{ {} }} iifname . arp saddr ether . arp saddr ip != @{ASKERS} drop",
            known.join(", ")
        )?;
    }
    for (family, address, set) in
        [("ip", IpAddr::from(ADDRESS), ASKERS), ("ip6", IpAddr::from(ADDRESS_SIX), ASKERS_SIX)]
    {
        let asks = format!("{to} {family} daddr {address}");
        let answers = format!("{from} {family} saddr {address} meta l4proto 6");
        writeln!(out, "\t\t{asks} iifname . ether saddr . {family} saddr != @{set} drop")?;
        writeln!(out, "\t\t{asks} meta l4proto 6 th dport != {PORT} drop")?;
        writeln!(out, "\t\t{asks} meta l4proto != {{ 6, 58 }} drop")?;
        writeln!(out, "\t\t{answers} oifname . ether daddr . {family} daddr != @{set} drop")?;
    }
    let strays = format!("iifname {{ {} }} oifname != {{ {spaces} }}", quoted(taps));
    writeln!(out, "\t\t{strays} arp daddr ip {ADDRESS} drop")?;
    writeln!(out, "\t\t{strays} ip daddr {ADDRESS} drop")?;
    writeln!(out, "\t\t{strays} ip6 daddr {ADDRESS_SIX} drop")?;
    writeln!(out, "\t}}")
}

/// Accepts a guest's requests before its security groups apply.
pub(super) fn egress(out: &mut String, net: &Net) -> Written {
    pass(out, net, "oifname", "daddr", "dport")
}

/// Accepts the answers before the guest's security groups apply.
pub(super) fn ingress(out: &mut String, net: &Net) -> Written {
    pass(out, net, "iifname", "saddr", "sport")
}

fn pass(out: &mut String, net: &Net, link: &str, side: &str, port: &str) -> Written {
    if net.metadata.is_none() {
        return Ok(());
    }
    let space = net.space_link();
    let to = |family: &str, address: IpAddr| {
        format!(
            "\t\t{link} \"{space}\" {family} {side} {address} meta l4proto 6 th {port} {PORT} accept"
        )
    };
    writeln!(out, "{}", to("ip", ADDRESS.into()))?;
    writeln!(out, "{}", to("ip6", ADDRESS_SIX.into()))
}
