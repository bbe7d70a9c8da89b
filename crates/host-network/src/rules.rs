//! The packet filter as one nftables table of family `bridge`, and its loading.
//!
//! ```text
//!   zone            separates connection tracking per network
//!   anti_spoofing   checks a guest's addresses, before the bridge learns the port
//!   local           restricts the networks' namespaces to this host's guests
//!   port_egress     egress rules of guests' security groups
//!   port_ingress    ingress rules of guests' security groups
//!   host            blocks guests from the host itself
//!   metadata_owner  reserves the metadata service's addresses for its namespace
//!   metadata        lets each guest ask the metadata service only as itself
//! ```
//!
//! The table is text in the form that `nft` prints, and replaces the previous one atomically: there
//! is never a moment without rules, chains of an earlier build are gone, and tracked connections
//! survive. It contains only numbers, addresses, and names that this host made.

mod metadata;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Result as Written, Write};
use std::net::IpAddr;

use kilonova_ids::NetworkId;
use kilonova_node_api::{
    Direction, FilterRule, Filters, Interface, PortFilter, Prefix, Remote, link_local,
};

use crate::nets::{Net, Nets, is_mac};
use crate::run::{run, words};

const TABLE: &str = "bridge kilonova";
/// ICMPv6 types that every guest may exchange for neighbour discovery.
const NEIGHBOURS: &str = "nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert, \
                          mld-listener-query, mld-listener-report, mld-listener-done, \
                          mld2-listener-report";

/// Loads the rules, unless the kernel has them. `last` is the loaded text and the table that the
/// kernel then listed.
pub(crate) async fn load(
    nets: &Nets,
    filters: &Filters,
    last: &mut Option<(String, Vec<u8>)>,
) -> Result<(), String> {
    let text = table(nets, filters).map_err(|error| error.to_string())?;
    if let Some((before, shown)) = last
        && *before == text
        && show().await.is_ok_and(|now| now == *shown)
    {
        return Ok(());
    }
    *last = None;
    let whole = format!("table {TABLE}\ndelete table {TABLE}\n{text}");
    run("nft", &words(&["-f", "-"]), whole.as_bytes()).await.map_err(|why| {
        if why.contains("Protocol error") {
            format!(
                "this kernel has no connection tracking on bridges; load nf_conntrack_bridge: {why}"
            )
        } else {
            why
        }
    })?;
    *last = Some((text, show().await?));
    Ok(())
}

async fn show() -> Result<Vec<u8>, String> {
    run("nft", &words(&["--stateless", "list", "table", "bridge", "kilonova"]), b"").await
}

/// Removes the table, if it exists.
pub(crate) async fn clear() -> Result<(), String> {
    let none = format!("table {TABLE}\ndelete table {TABLE}\n");
    run("nft", &words(&["-f", "-"]), none.as_bytes()).await.map(drop)
}

/// The complete table.
pub(crate) fn table(nets: &Nets, filters: &Filters) -> Result<String, std::fmt::Error> {
    let set: BTreeMap<_, &PortFilter> = filters.ports.iter().map(|one| (one.port, one)).collect();
    let closed = |interface: &&Interface| {
        set.get(&interface.port).is_none_or(|filter| filter.secure || !filter.up)
    };
    let guarded: Vec<&Interface> = nets.interfaces.iter().filter(closed).collect();
    let mut text = String::new();
    let out = &mut text;
    writeln!(out, "table {TABLE} {{")?;
    members(out, filters)?;
    for group in &filters.groups {
        for direction in [Direction::Ingress, Direction::Egress] {
            writeln!(out, "\tchain {} {{", chain(direction, group.id))?;
            let mut rules: Vec<&FilterRule> =
                group.rules.iter().filter(|rule| rule.direction == direction).collect();
            rules.sort_unstable();
            for rule in rules {
                writeln!(out, "\t\t{}accept", matching(rule))?;
            }
            writeln!(out, "\t}}")?;
        }
    }
    for interface in &guarded {
        let filter = set.get(&interface.port).copied();
        port(out, interface, filter, filters, nets.all.get(&interface.network))?;
    }
    zone(out, nets)?;
    local(out, nets)?;
    metadata::table(out, nets)?;
    let jump = |out: &mut String, name: &str, hook: &str, key: &str, to: &str| -> Written {
        writeln!(out, "\tchain {name} {{")?;
        writeln!(out, "\t\ttype filter hook {hook}; policy accept;")?;
        if !guarded.is_empty() {
            let all: Vec<String> = guarded
                .iter()
                .map(|interface| format!("\"{0}\" : jump {to}_{0}", interface.tap()))
                .collect();
            writeln!(out, "\t\t{key} vmap {{ {} }}", all.join(", "))?;
        }
        writeln!(out, "\t}}")
    };
    jump(out, "anti_spoofing", "prerouting priority -300", "iifname", "anti_spoofing")?;
    jump(out, "port_egress", "forward priority 0", "iifname", "egress")?;
    jump(out, "port_ingress", "forward priority 10", "oifname", "ingress")?;
    writeln!(out, "\tchain host {{")?;
    writeln!(out, "\t\ttype filter hook input priority 0; policy accept;")?;
    let taps: BTreeSet<String> = nets.interfaces.iter().map(Interface::tap).collect();
    if !taps.is_empty() {
        writeln!(out, "\t\tiifname {{ {} }} drop", quoted(taps))?;
    }
    writeln!(out, "\t}}")?;
    writeln!(out, "}}")?;
    Ok(text)
}

fn quoted(names: impl IntoIterator<Item = String>) -> String {
    names.into_iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

fn chain(direction: Direction, group: impl std::fmt::Display) -> String {
    let way = if direction == Direction::Ingress { "ingress" } else { "egress" };
    format!("group_{way}_{group}").replace('-', "_")
}

fn set_of(group: impl std::fmt::Display, six: bool) -> String {
    format!("members{}_{group}", if six { 6 } else { 4 }).replace('-', "_")
}

/// The address sets of groups' members.
fn members(out: &mut String, filters: &Filters) -> Written {
    for members in &filters.members {
        for six in [false, true] {
            let of_family = |prefix: &&Prefix| prefix.address.is_ipv6() == six;
            let all: BTreeSet<String> =
                members.addresses.iter().filter(of_family).map(Prefix::to_string).collect();
            writeln!(out, "\tset {} {{", set_of(members.group, six))?;
            writeln!(out, "\t\ttype {}", if six { "ipv6_addr" } else { "ipv4_addr" })?;
            writeln!(out, "\t\tflags interval")?;
            writeln!(out, "\t\tauto-merge")?;
            if !all.is_empty() {
                let all: Vec<String> = all.into_iter().collect();
                writeln!(out, "\t\telements = {{ {} }}", all.join(", "))?;
            }
            writeln!(out, "\t}}")?;
        }
    }
    Ok(())
}

/// The match of a rule, without its verdict.
fn matching(rule: &FilterRule) -> String {
    let family = if rule.six { "ip6" } else { "ip" };
    let mut text = format!("meta protocol {family} ");
    let side = if rule.direction == Direction::Ingress { "saddr" } else { "daddr" };
    match &rule.remote {
        Some(Remote::Prefix(prefix)) if prefix.length > 0 => {
            text.push_str(&format!("{family} {side} {prefix} "));
        }
        Some(Remote::Group(group)) => {
            text.push_str(&format!("{family} {side} @{} ", set_of(group, rule.six)));
        }
        _ => {}
    }
    let Some(protocol) = rule.protocol else { return text };
    // On IPv6, both protocol numbers of ICMP mean ICMPv6.
    let protocol = if rule.six && protocol == 1 { 58 } else { protocol };
    text.push_str(&format!("meta l4proto {protocol} "));
    match (protocol, rule.first, rule.last) {
        (1 | 58, Some(kind), code) => {
            let name = if protocol == 1 { "icmp" } else { "icmpv6" };
            text.push_str(&format!("{name} type {kind} "));
            if let Some(code) = code {
                text.push_str(&format!("{name} code {code} "));
            }
        }
        (1 | 58, ..) => {}
        (_, Some(first), Some(last)) if first == last => {
            text.push_str(&format!("th dport {first} "));
        }
        (_, Some(first), Some(last)) => text.push_str(&format!("th dport {first}-{last} ")),
        _ => {}
    }
    text
}

/// The chains of a guest's port.
fn port(
    out: &mut String,
    interface: &Interface,
    filter: Option<&PortFilter>,
    filters: &Filters,
    net: Option<&Net>,
) -> Written {
    let tap = interface.tap();
    let up = filter.is_none_or(|filter| filter.up);
    let answers = net.filter(|net| net.dhcp.is_some()).map(Net::space_link);
    let has_six = |net: &&Net| net.dhcp.as_ref().is_some_and(|dhcp| !dhcp.six_subnets.is_empty());
    let answers_six = net.filter(has_six).map(Net::space_link);
    writeln!(out, "\tchain anti_spoofing_{tap} {{")?;
    if up {
        anti_spoofing(out, interface, filter)?;
    }
    writeln!(out, "\t\tdrop")?;
    writeln!(out, "\t}}")?;
    let jumps = |out: &mut String, direction: Direction| -> Written {
        for group in filter.map(|filter| filter.groups.as_slice()).unwrap_or_default() {
            if filters.groups.iter().any(|known| known.id == *group) {
                writeln!(out, "\t\tjump {}", chain(direction, group))?;
            }
        }
        Ok(())
    };
    writeln!(out, "\tchain egress_{tap} {{")?;
    if up {
        writeln!(out, "\t\tether type arp accept")?;
        writeln!(out, "\t\ticmpv6 type {{ {NEIGHBOURS} }} accept")?;
        if let Some(answers) = &answers {
            writeln!(out, "\t\toifname \"{answers}\" udp sport 68 udp dport 67 accept")?;
            writeln!(out, "\t\tudp sport 68 udp dport 67 drop")?;
        }
        if let Some(answers) = &answers_six {
            writeln!(out, "\t\toifname \"{answers}\" udp sport 546 udp dport 547 accept")?;
            writeln!(out, "\t\tudp sport 546 udp dport 547 drop")?;
        }
        net.map_or(Ok(()), |net| metadata::egress(out, net))?;
        writeln!(out, "\t\tct state established,related accept")?;
        writeln!(out, "\t\tct state invalid drop")?;
        jumps(out, Direction::Egress)?;
    }
    writeln!(out, "\t\tdrop")?;
    writeln!(out, "\t}}")?;
    writeln!(out, "\tchain ingress_{tap} {{")?;
    if up {
        writeln!(out, "\t\tether type arp accept")?;
        writeln!(out, "\t\ticmpv6 type {{ nd-router-advert, {NEIGHBOURS} }} accept")?;
        if let Some(answers) = &answers {
            writeln!(out, "\t\tiifname \"{answers}\" udp sport 67 udp dport 68 accept")?;
        }
        if let Some(answers) = &answers_six {
            writeln!(out, "\t\tiifname \"{answers}\" udp sport 547 udp dport 546 accept")?;
        }
        net.map_or(Ok(()), |net| metadata::ingress(out, net))?;
        writeln!(out, "\t\tct state established,related accept")?;
        writeln!(out, "\t\tct state invalid drop")?;
        jumps(out, Direction::Ingress)?;
    }
    writeln!(out, "\t\tdrop")?;
    writeln!(out, "\t}}")
}

/// The anti-spoofing rules of a guest.
fn anti_spoofing(out: &mut String, interface: &Interface, filter: Option<&PortFilter>) -> Written {
    let mut whose: Vec<(&str, Prefix)> = interface
        .addresses
        .iter()
        .map(|address| (interface.mac.as_str(), Prefix::one(address.address)))
        .collect();
    for pair in filter.map(|filter| filter.pairs.as_slice()).unwrap_or_default() {
        whose.push((pair.mac.as_deref().unwrap_or(&interface.mac), pair.prefix));
    }
    whose.retain(|(mac, _)| is_mac(mac));
    let mut macs: BTreeSet<&str> = whose.iter().map(|(mac, _)| *mac).collect();
    if is_mac(&interface.mac) {
        macs.insert(&interface.mac);
    }
    if macs.is_empty() {
        return Ok(());
    }
    whose.extend(macs.iter().filter_map(|mac| Some((*mac, Prefix::one(link_local(mac)?.into())))));
    let all: Vec<&str> = macs.iter().copied().collect();
    writeln!(out, "\t\tether type {{ 8021q, 8021ad }} drop")?;
    writeln!(out, "\t\tether saddr != {{ {} }} drop", all.join(", "))?;
    writeln!(out, "\t\tudp sport {{ 67, 547 }} udp dport {{ 68, 546 }} drop")?;
    writeln!(out, "\t\ticmpv6 type nd-router-advert drop")?;
    for mac in &macs {
        let from = format!("ether saddr {mac}");
        writeln!(out, "\t\t{from} arp saddr ether {mac} arp saddr ip 0.0.0.0 return")?;
        writeln!(
            out,
            "\t\t{from} ip saddr 0.0.0.0 ip daddr 255.255.255.255 udp sport 68 udp dport 67 return"
        )?;
        writeln!(
            out,
            "\t\t{from} ip6 saddr :: icmpv6 type {{ nd-router-solicit, nd-neighbor-solicit, \
             mld-listener-report, mld2-listener-report }} return"
        )?;
    }
    for (mac, prefix) in &whose {
        let from = format!("ether saddr {mac}");
        match prefix.address {
            IpAddr::V4(_) => {
                writeln!(out, "\t\t{from} arp saddr ether {mac} arp saddr ip {prefix} return")?;
                writeln!(out, "\t\t{from} ip saddr {prefix} return")?;
            }
            IpAddr::V6(six) => {
                let length = u32::from(prefix.length);
                if length > 0 {
                    let target = u128::from(six) >> (128 - length);
                    writeln!(
                        out,
                        "\t\t{from} icmpv6 type nd-neighbor-advert @th,64,{length} {target:#x} return"
                    )?;
                } else {
                    writeln!(out, "\t\t{from} icmpv6 type nd-neighbor-advert return")?;
                }
            }
        }
    }
    writeln!(out, "\t\ticmpv6 type nd-neighbor-advert drop")?;
    for (mac, prefix) in whose.iter().filter(|(_, prefix)| prefix.address.is_ipv6()) {
        writeln!(out, "\t\tether saddr {mac} ip6 saddr {prefix} return")?;
    }
    Ok(())
}

/// A conntrack zone number for each network, from its id. Other networks change it only if numbers collide.
fn zones(nets: &Nets) -> BTreeMap<NetworkId, u16> {
    let mut zones = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for id in nets.all.keys() {
        let text = id.to_string();
        let begin = text.get(..4).and_then(|text| u16::from_str_radix(text, 16).ok());
        let mut zone = begin.unwrap_or(1).max(1);
        while !taken.insert(zone) {
            zone = zone.checked_add(1).unwrap_or(1);
        }
        zones.insert(*id, zone);
    }
    zones
}

fn zone(out: &mut String, nets: &Nets) -> Written {
    let zones = zones(nets);
    let mut ports: BTreeMap<String, u16> = BTreeMap::new();
    for net in nets.all.values() {
        let zone = zones.get(&net.id).copied().unwrap_or(1);
        let mut names: Vec<String> = net.taps.iter().cloned().collect();
        names.extend(net.out());
        names.extend(net.routers.iter().cloned());
        names.push(net.space_link());
        ports.extend(names.into_iter().map(|name| (name, zone)));
    }
    writeln!(out, "\tchain zone {{")?;
    writeln!(out, "\t\ttype filter hook prerouting priority -310; policy accept;")?;
    if !ports.is_empty() {
        let all: Vec<String> =
            ports.iter().map(|(name, zone)| format!("\"{name}\" : {zone}")).collect();
        writeln!(out, "\t\tct zone set iifname map {{ {} }}", all.join(", "))?;
    }
    writeln!(out, "\t}}")
}

/// Restricts the namespaces to this host's guests.
fn local(out: &mut String, nets: &Nets) -> Written {
    writeln!(out, "\tchain local {{")?;
    writeln!(out, "\t\ttype filter hook forward priority -10; policy accept;")?;
    let serving = nets.all.values().filter(|net| net.has_space());
    let names = quoted(serving.map(Net::space_link));
    if !names.is_empty() {
        writeln!(out, "\t\tiifname {{ {names} }} oifname != \"tap*\" drop")?;
        writeln!(out, "\t\toifname {{ {names} }} iifname != \"tap*\" drop")?;
    }
    writeln!(out, "\t}}")
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
