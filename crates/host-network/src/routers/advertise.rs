//! The arguments of a router's two dnsmasq processes: one holds the namespace, one sends router advertisements.
//! Pure.

use std::net::IpAddr;
use std::path::Path;

use kilonova_node_api::{Router, SixMode};

use super::within;
use crate::nets::base;

/// The arguments of a dnsmasq that only holds the namespace.
pub(super) fn holder_arguments(its: &Path) -> Vec<String> {
    let file = |name: &str| its.join(name).display().to_string();
    vec![
        "--conf-file=/dev/null".to_owned(),
        format!("--pid-file={}", file("pid")),
        format!("--dhcp-hostsfile={}", file("hosts")),
        format!("--dhcp-optsfile={}", file("options")),
        format!("--dhcp-leasefile={}", file("leases")),
        "--no-hosts".into(),
        "--no-resolv".into(),
        "--port=0".into(),
        "--bind-dynamic".into(),
        "--except-interface=lo".into(),
    ]
}

/// True if a subnet of the router needs advertisements.
pub(super) fn is_wanted(router: &Router, six: bool) -> bool {
    let inner = router.interfaces.iter().filter(|interface| !interface.external);
    six && inner
        .flat_map(|interface| &interface.addresses)
        .any(|address| address.advertisement.is_some() && address.address.is_ipv6())
}

/// The arguments of the dnsmasq that advertises the router's subnets.
pub(super) fn arguments(its: &Path, router: &Router, six: bool) -> Vec<String> {
    let mut all = holder_arguments(its);
    all.push("--enable-ra".into());
    for interface in router.interfaces.iter().filter(|interface| six && !interface.external) {
        let mut here = false;
        for address in &interface.addresses {
            let (Some(mode), IpAddr::V6(_)) = (address.advertisement, address.address) else {
                continue;
            };
            let mode = match mode {
                SixMode::Slaac => "ra-only",
                SixMode::Stateless => "ra-stateless",
                // The guest's host answers its DHCPv6 requests; the router only announces that the
                // guest must send them.
                SixMode::Stateful => "static",
            };
            let (subnet, prefix) = (base(address.address, address.prefix), address.prefix);
            let tag = format!("subnet-{}", subnet.to_string().replace(':', "-"));
            all.push(format!("--dhcp-range=set:{tag},{subnet},{mode},{prefix},86400s"));
            let dns: Vec<String> = address.dns.iter().map(|dns| format!("[{dns}]")).collect();
            if !dns.is_empty() {
                let dns = dns.join(",");
                all.push(format!("--dhcp-option=tag:{tag},option6:dns-server,{dns}"));
            }
            here = true;
        }
        if here {
            all.push(format!("--interface={}", within(interface)));
        }
    }
    all
}
