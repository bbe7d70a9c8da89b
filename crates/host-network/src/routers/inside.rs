//! The inside of a router's namespace: reading it, and the lines for `ip` that correct it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use kilonova_node_api::{Prefix, Router, RouterInterface, link_local};
use serde::Deserialize;

use super::{in_space, within};
use crate::links::Link;

/// The protocol of our routes, which the kernel's own routes do not have.
const STATIC: &str = "static";

/// A route of ours: destination, next hop unless it is on-link, and link.
type Route = (String, Option<IpAddr>, String);

/// The links and the routes of a namespace.
#[derive(Debug, Default)]
pub(super) struct Inside {
    links: BTreeMap<String, Link>,
    routes: BTreeSet<Route>,
}

#[derive(Deserialize)]
struct Listed {
    dst: String,
    #[serde(default)]
    gateway: Option<IpAddr>,
    #[serde(default)]
    dev: String,
    #[serde(default)]
    protocol: String,
}

impl Inside {
    pub async fn read(pid: i32) -> Result<Self, String> {
        let line = ["ip", "-json", "-details", "-batch", "-"];
        let four = in_space(pid, &line, b"address show\nroute show\n").await?;
        let line = ["ip", "-6", "-json", "-details", "route", "show"];
        let six = in_space(pid, &line, b"").await.unwrap_or_default();
        Self::parse(&four, &six)
    }

    /// Parses the lists of links and IPv4 routes, and that of IPv6 routes.
    pub fn parse(four: &[u8], six: &[u8]) -> Result<Self, String> {
        let wrong = |error: serde_json::Error| format!("unexpected output of ip: {error}");
        let mut lists = serde_json::Deserializer::from_slice(four)
            .into_iter::<serde_json::Value>()
            .chain(serde_json::Deserializer::from_slice(six).into_iter::<serde_json::Value>());
        let mut next = || lists.next().transpose().map(Option::unwrap_or_default).map_err(wrong);
        let links: Vec<Link> = serde_json::from_value(next()?).map_err(wrong)?;
        let mut routes = BTreeSet::new();
        for six in [false, true] {
            let list = match next()? {
                serde_json::Value::Null => continue,
                list => list,
            };
            let listed: Vec<Listed> = serde_json::from_value(list).map_err(wrong)?;
            for one in listed.into_iter().filter(|one| one.protocol == STATIC) {
                routes.insert((named(&one.dst, six), one.gateway, one.dev));
            }
        }
        let links = links.into_iter().map(|link| (link.name.clone(), link)).collect();
        Ok(Self { links, routes })
    }

    pub fn link(&self, name: &str) -> Option<&Link> {
        self.links.get(name)
    }

    /// True if an earlier set-up of the namespace was completed. `lo` comes up last.
    pub fn is_complete(&self) -> bool {
        self.link("lo").is_some_and(Link::is_up)
    }

    fn addresses(&self, name: &str) -> BTreeSet<(IpAddr, u8)> {
        let read = |address: &crate::links::Address| {
            Some((address.local.as_ref()?.parse().ok()?, address.prefixlen?))
        };
        self.link(name).iter().flat_map(|link| &link.addresses).filter_map(read).collect()
    }

    /// The lines that configure the inside for the router, and announce its new addresses. `fresh`
    /// interfaces are new.
    pub fn lines(&self, router: &Router, fresh: &BTreeSet<String>, six: bool) -> String {
        let mut text = String::new();
        let mut announce = String::new();
        for interface in &router.interfaces {
            let name = within(interface);
            let wanted = addresses(router, interface, six);
            let has = self.addresses(&name);
            for (address, prefix) in has.difference(&wanted) {
                text.push_str(&format!("address delete {address}/{prefix} dev {name}\n"));
            }
            for (address, prefix) in wanted.difference(&has) {
                let nodad = if address.is_ipv6() { " nodad" } else { "" };
                text.push_str(&format!("address add {address}/{prefix} dev {name}{nodad}\n"));
            }
            let comes_up =
                fresh.contains(&name) || self.link(&name).is_none_or(|link| !link.is_up());
            if comes_up {
                text.push_str(&format!("link set dev {name} up\n"));
            }
            // A request for one's own address is gratuitous ARP. The kernel sends three, a second apart.
            let is_new = |one: &&(IpAddr, u8)| comes_up || !has.contains(one);
            for (address, _) in wanted.iter().filter(is_new).filter(|(ip, _)| ip.is_ipv4()) {
                announce.push_str(&format!("neigh replace {address} dev {name} nud none use\n"));
            }
        }
        let wanted = routes(router, six);
        let via = |hop: &Option<IpAddr>| hop.map(|hop| format!(" via {hop}")).unwrap_or_default();
        for (to, hop, link) in self.routes.difference(&wanted) {
            let via = via(hop);
            text.push_str(&format!("route delete {to}{via} dev {link} proto {STATIC}\n"));
        }
        for (to, hop, link) in wanted.difference(&self.routes) {
            let way = if hop.is_some() { "onlink" } else { "scope link" };
            let via = via(hop);
            text.push_str(&format!("route replace {to}{via} dev {link} {way} proto {STATIC}\n"));
        }
        if !self.is_complete() {
            text.push_str("link set dev lo up\n");
        }
        text + &announce
    }
}

/// The addresses of an interface. External IPv4 addresses have the prefix length 32: the kernel's ARP request
/// for such an address then has it as the sender too, and so announces it. An IPv6 interface also has a
/// link-local address, the source of its router advertisements.
fn addresses(router: &Router, interface: &RouterInterface, six: bool) -> BTreeSet<(IpAddr, u8)> {
    let mut all: BTreeSet<(IpAddr, u8)> = interface
        .addresses
        .iter()
        .filter(|address| six || address.address.is_ipv4())
        .map(|address| match address.address {
            IpAddr::V4(_) if interface.external => (address.address, 32),
            _ => (address.address, address.prefix),
        })
        .collect();
    if all.iter().any(|(address, _)| address.is_ipv6()) {
        let own: Option<Ipv6Addr> = link_local(&interface.mac);
        all.extend(own.map(|own| (own.into(), 64)));
    }
    if interface.external {
        all.extend(router.floating.iter().map(|pair| (pair.floating.into(), 32)));
    }
    all
}

/// A destination in our notation.
fn named(to: &str, six: bool) -> String {
    match to {
        "default" if six => "::/0".to_owned(),
        "default" => "0.0.0.0/0".to_owned(),
        other => Prefix::parse(other).map_or_else(|| other.to_owned(), |to| to.to_string()),
    }
}

/// The routes of a router: the default ones through its gateway, and the additional ones.
fn routes(router: &Router, six: bool) -> BTreeSet<Route> {
    let mut all = BTreeSet::new();
    let of_family = |hop: &IpAddr| six || hop.is_ipv4();
    for interface in router.interfaces.iter().filter(|interface| interface.external) {
        let hops = interface.addresses.iter().filter_map(|address| address.gateway);
        for hop in hops.filter(of_family) {
            all.insert((named("default", hop.is_ipv6()), Some(hop), within(interface)));
        }
        let four = interface.addresses.iter().filter(|address| address.address.is_ipv4());
        for address in four.filter(|address| address.prefix < 32) {
            let to = Prefix {
                address: crate::nets::base(address.address, address.prefix),
                length: address.prefix,
            };
            all.insert((to.to_string(), None, within(interface)));
        }
    }
    for (to, hop) in router.routes.iter().filter(|(_, hop)| of_family(hop)) {
        // Only a valid prefix may enter a command.
        let Some(to) = Prefix::parse(to) else { continue };
        let reaches = |interface: &&RouterInterface| {
            interface.addresses.iter().any(|address| {
                address.address.is_ipv4() == hop.is_ipv4()
                    && crate::nets::base(address.address, address.prefix)
                        == crate::nets::base(*hop, address.prefix)
            })
        };
        if let Some(interface) = router.interfaces.iter().find(reaches) {
            all.insert((to.to_string(), Some(*hop), within(interface)));
        }
    }
    all
}
