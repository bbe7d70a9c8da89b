//! Tests of the rules for nftables.

use kilonova_node_api::{AllowedAddressPair, FilterGroup, FilterGroupMembers};

use super::*;
use crate::testing::{config, filters, group, interface, prefix, wanted};

fn rule(
    direction: Direction,
    protocol: Option<u8>,
    ends: (Option<u16>, Option<u16>),
) -> FilterRule {
    FilterRule { direction, six: false, protocol, first: ends.0, last: ends.1, remote: None }
}

#[test]
fn the_table_of_a_host() {
    let mut filters = filters(&[2, 3, 4, 5]);
    filters.ports[1].groups.push(group(2));
    filters.ports[1].pairs = vec![
        AllowedAddressPair { mac: None, prefix: prefix("10.0.0.128/25") },
        AllowedAddressPair { mac: Some("fa:16:3e:ff:00:01".into()), prefix: prefix("fd00::/64") },
    ];
    filters.ports[2].secure = false;
    filters.ports[3].up = false;
    let ssh = rule(Direction::Ingress, Some(6), (Some(22), Some(22)));
    let remote =
        |remote: Remote, six: bool| FilterRule { six, remote: Some(remote), ..ssh.clone() };
    filters.groups.push(FilterGroup {
        id: group(2),
        name: String::new(),
        rules: vec![
            ssh.clone(),
            remote(Remote::Prefix(prefix("192.0.2.0/24")), false),
            remote(Remote::Prefix(prefix("0.0.0.0/0")), false),
            remote(Remote::Group(group(1)), true),
            rule(Direction::Ingress, Some(17), (Some(1000), Some(2000))),
            rule(Direction::Ingress, Some(1), (Some(8), Some(0))),
            rule(Direction::Ingress, Some(1), (Some(3), None)),
            rule(Direction::Ingress, Some(1), (None, None)),
            rule(Direction::Egress, Some(132), (None, None)),
            FilterRule { six: true, ..rule(Direction::Ingress, Some(1), (None, None)) },
            FilterRule { six: true, ..rule(Direction::Ingress, Some(58), (Some(128), Some(0))) },
        ],
    });
    filters
        .members
        .push(FilterGroupMembers { group: group(2), addresses: vec![prefix("fd00::7")] });
    let unknown = interface(6);
    let interfaces = vec![interface(2), interface(3), interface(4), interface(5), unknown];
    let wanted = wanted(interfaces, filters);
    let nets = Nets::of(&wanted, &config());
    let text = table(&nets, &wanted.filters).expect("the text is UTF-8");
    let golden = include_str!("../tests/golden/rules.nft");
    if text != golden {
        println!("{text}");
    }
    assert!(text == golden, "the table above differs from tests/golden/rules.nft");
}

#[test]
fn a_port_without_settings_lets_nothing_through() {
    let wanted = wanted(vec![interface(2)], Filters::default());
    let text = table(&Nets::of(&wanted, &config()), &wanted.filters).expect("the text is UTF-8");
    let tap = interface(2).tap();
    let chain = text.split(&format!("chain ingress_{tap} {{")).nth(1).expect("the element exists");
    let chain = chain.split("\n\t}").next().expect("an end");
    assert!(!chain.contains("jump") && chain.trim_end().ends_with("drop"), "{text}");
}

#[test]
fn invalid_addresses_enter_no_rule() {
    let mut odd = interface(2);
    odd.mac = "fa:16:3e:00:00:02 accept }".into();
    let mut filters = filters(&[2]);
    let mac = Some("zz:16:3e:ff:00:01".into());
    filters.ports[0].pairs = vec![AllowedAddressPair { mac, prefix: prefix("10.0.0.128/25") }];
    let wanted = wanted(vec![odd], filters);
    let text = table(&Nets::of(&wanted, &config()), &wanted.filters).expect("the text is UTF-8");
    assert!(!text.contains("accept }") && !text.contains("zz:"), "{text}");
}

#[test]
fn networks_have_separate_conntrack_zones() {
    let mut other = interface(3);
    // The same prefix, so that the zone numbers would collide.
    other.network = "01112222-2222-4333-8444-555555555555".parse().expect("the value is a UUID");
    let wanted = wanted(vec![interface(2), other], Filters::default());
    let zones = zones(&Nets::of(&wanted, &config()));
    assert_eq!(zones.values().copied().collect::<Vec<_>>(), [0x0111, 0x0112]);
}
