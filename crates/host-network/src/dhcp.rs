//! The configuration of a network's dnsmasq. Pure.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

use crate::metadata::ADDRESS;
use crate::nets::{Dhcp, Net};
use crate::plug::INSIDE;

/// Lease time in seconds.
const LEASE: u32 = 86400;

fn tag(subnet: IpAddr) -> String {
    format!("subnet-{}", subnet.to_string().replace(['.', ':'], "-"))
}

fn mask(prefix: u8) -> IpAddr {
    crate::nets::base(IpAddr::from([255, 255, 255, 255]), prefix)
}

/// The arguments of dnsmasq: only hosts listed in `hosts` get an address, and no other service
/// runs.
pub(crate) fn arguments(its: &Path, dhcp: Option<&Dhcp>) -> Vec<String> {
    let file = |name: &str| its.join(name).display().to_string();
    let mut all = vec![
        "--conf-file=/dev/null".to_owned(),
        format!("--pid-file={}", file("pid")),
        format!("--dhcp-hostsfile={}", file("hosts")),
        format!("--dhcp-optsfile={}", file("options")),
        format!("--dhcp-leasefile={}", file("leases")),
        "--no-hosts".into(),
        "--no-resolv".into(),
        "--port=0".into(),
        "--no-ping".into(),
        "--dhcp-authoritative".into(),
        "--bind-dynamic".into(),
        format!("--interface={INSIDE}"),
        "--except-interface=lo".into(),
        "--dhcp-lease-max=65536".into(),
    ];
    for (base, subnet) in dhcp.iter().flat_map(|dhcp| &dhcp.subnets) {
        let (tag, mask) = (tag(*base), mask(subnet.prefix));
        all.push(format!("--dhcp-range=set:{tag},{base},static,{mask},{LEASE}s"));
    }
    for (base, subnet) in dhcp.iter().flat_map(|dhcp| &dhcp.six_subnets) {
        let (tag, prefix) = (tag(*base), subnet.prefix);
        all.push(format!("--dhcp-range=set:{tag},{base},static,{prefix},{LEASE}s"));
    }
    all
}

/// The hosts file: each guest's MAC and IP address.
pub(crate) fn hosts(net: &Net) -> String {
    let mut text = String::new();
    let Some(dhcp) = &net.dhcp else { return text };
    let macs: BTreeSet<&String> = dhcp.hosts.keys().chain(dhcp.six_hosts.keys()).collect();
    for mac in macs {
        text.push_str(mac);
        // Writing to a string cannot fail.
        if let Some(host) = dhcp.hosts.get(mac) {
            let _ = write!(text, ",{}", host.address);
        }
        for address in dhcp.six_hosts.get(mac).into_iter().flatten() {
            let _ = write!(text, ",[{address}]");
        }
        text.push('\n');
    }
    text
}

/// The DHCP options, with a route to the metadata service.
pub(crate) fn options(net: &Net) -> String {
    let mut text = String::new();
    for (base, subnet) in net.dhcp.iter().flat_map(|dhcp| &dhcp.subnets) {
        let tag = tag(*base);
        let mut say = |option: &str, value: &str| {
            let comma = if value.is_empty() { "" } else { "," };
            let _ = writeln!(text, "tag:{tag},{option}{comma}{value}");
        };
        let gateway = subnet.gateway.map(|gateway| gateway.to_string());
        // Without a value dnsmasq omits the option instead of sending its default.
        say("option:router", gateway.as_deref().unwrap_or_default());
        let dns: Vec<String> = subnet.dns.iter().map(IpAddr::to_string).collect();
        say("option:dns-server", &dns.join(","));
        say("option:mtu", &net.mtu.to_string());
        let routes = subnet.routes.iter().filter(|(to, _)| {
            kilonova_node_api::Prefix::parse(to).is_some_and(|to| to.address.is_ipv4())
        });
        let mut routes: Vec<String> =
            routes.map(|(destination, hop)| format!("{destination},{hop}")).collect();
        if net.metadata.is_some() {
            routes.push(format!("{ADDRESS}/32,{}", subnet.server));
        }
        if !routes.is_empty() {
            // A client that reads these routes ignores the router option.
            routes.extend(gateway.map(|gateway| format!("0.0.0.0/0,{gateway}")));
            say("option:classless-static-route", &routes.join(","));
            say("249", &routes.join(","));
        }
    }
    for (base, subnet) in net.dhcp.iter().flat_map(|dhcp| &dhcp.six_subnets) {
        let dns: Vec<String> = subnet.dns.iter().map(|dns| format!("[{dns}]")).collect();
        if !dns.is_empty() {
            let _ = writeln!(text, "tag:{},option6:dns-server,{}", tag(*base), dns.join(","));
        }
    }
    text
}

#[cfg(test)]
#[path = "dhcp_tests.rs"]
mod tests;
