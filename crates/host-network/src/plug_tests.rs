//! Tests of the steps inside a namespace.

use kilonova_node_api::Filters;

use super::*;
use crate::nets::Nets;
use crate::testing::{config, interface, network, wanted};

fn inside_of(text: &str) -> Inside {
    Inside::parse(text.as_bytes()).expect("the text is valid output of ip")
}

#[test]
fn a_namespace_gets_what_it_lacks_and_loses_what_it_had() {
    let mut bare = interface(3);
    bare.addresses[0].address = "10.9.0.3".parse().expect("the address is valid");
    bare.addresses[0].prefix = 16;
    bare.addresses[0].dhcp = false;
    let nets = Nets::of(&wanted(vec![interface(2), bare], Filters::default()), &config());
    let net = &nets.all[&network(1)];
    let empty = r#"[{"ifname": "eth0", "ifindex": 7, "address": "fa:16:3e:dc:dc:dc"}] [] []"#;
    let (first, then) = lines(net, &inside_of(empty), true);
    assert_eq!(first, "address add 10.0.0.254/24 dev eth0\n");
    assert_eq!(
        then,
        "address add 169.254.169.254/32 dev eth0\n\
         address add fe80::a9fe:a9fe/64 dev eth0 nodad\n\
         route replace 10.9.0.0/16 dev eth0 scope link src 169.254.169.254 proto static\n\
         neigh replace 10.0.0.2 lladdr fa:16:3e:00:00:02 dev eth0 nud permanent\n\
         neigh replace 10.9.0.3 lladdr fa:16:3e:00:00:03 dev eth0 nud permanent\n\
         neigh replace fe80::f816:3eff:fe00:2 lladdr fa:16:3e:00:00:02 dev eth0 nud permanent\n\
         neigh replace fe80::f816:3eff:fe00:3 lladdr fa:16:3e:00:00:03 dev eth0 nud permanent\n"
    );
    let complete = r#"[{"ifname": "eth0", "ifindex": 7, "addr_info": [
        {"local": "10.0.0.254", "prefixlen": 24}, {"local": "169.254.169.254", "prefixlen": 32},
        {"local": "fe80::a9fe:a9fe", "prefixlen": 64}, {"local": "10.8.0.1", "prefixlen": 24}]}]
        [{"dst": "10.0.0.0/24", "protocol": "kernel"}, {"dst": "10.9.0.0/16", "protocol": "static"},
         {"dst": "10.7.0.0/16", "protocol": "static"}]
        [{"dst": "10.0.0.2", "lladdr": "fa:16:3e:00:00:02"}, {"dst": "10.9.0.3", "lladdr": "fa:16:3e:00:00:66"},
         {"dst": "10.0.0.9", "lladdr": "fa:16:3e:00:00:09"}]"#;
    let (first, then) = lines(net, &inside_of(complete), false);
    assert_eq!(
        first,
        "route delete 10.7.0.0/16 dev eth0 proto static\n\
         address delete 10.8.0.1/24 dev eth0\n\
         address delete fe80::a9fe:a9fe/64 dev eth0\n"
    );
    assert_eq!(
        then,
        "neigh delete 10.0.0.9 dev eth0\n\
         neigh replace 10.9.0.3 lladdr fa:16:3e:00:00:03 dev eth0 nud permanent\n"
    );
    let off = crate::config::HostNetworkConfig { metadata: false, ..config() };
    let nets = Nets::of(&wanted(vec![interface(2)], Filters::default()), &off);
    let (first, then) = lines(&nets.all[&network(1)], &inside_of(empty), true);
    assert_eq!((&*first, &*then), ("address add 10.0.0.254/24 dev eth0\n", ""));
}

#[test]
fn a_network_without_dhcp_has_a_namespace_for_the_service() {
    let mut bare = interface(2);
    (bare.dhcp_mac, bare.addresses[0].dhcp) = (None, false);
    let nets = Nets::of(&wanted(vec![bare.clone()], Filters::default()), &config());
    let net = &nets.all[&network(1)];
    assert!(net.dhcp.is_none() && net.has_space());
    assert_eq!(net.own_mac(), "02:01:11:11:11:22");
    let empty = r#"[{"ifname": "eth0", "ifindex": 7}] [] []"#;
    let (first, then) = lines(net, &inside_of(empty), true);
    assert_eq!(first, "");
    assert!(then.contains("route replace 10.0.0.0/24 dev eth0"), "{then}");
    let off = crate::config::HostNetworkConfig { metadata: false, ..config() };
    let nets = Nets::of(&wanted(vec![bare], Filters::default()), &off);
    assert!(!nets.all[&network(1)].has_space());
}
