//! Tests of what routers need on their host.

use kilonova_node_api::{FloatingAddress, RouterAddress, SixMode};

use super::*;
use crate::testing::{network, port};

fn address(text: &str, gateway: Option<&str>) -> RouterAddress {
    let (address, prefix) = text.split_once('/').expect("the text has a prefix");
    RouterAddress {
        address: address.parse().expect("the address is valid"),
        prefix: prefix.parse().expect("the prefix is valid"),
        gateway: gateway.map(|hop| hop.parse().expect("the address is valid")),
        advertisement: None,
        dns: Vec::new(),
    }
}

/// A router of network 1 (inside) and network 9 (outside).
pub(crate) fn router() -> Router {
    let interface = |number: u8, external: bool, addresses: Vec<RouterAddress>| RouterInterface {
        port: port(number),
        mac: format!("fa:16:3e:00:00:{number:02x}"),
        network: network(if external { 9 } else { 1 }),
        physical_network: "physnet1".into(),
        vlan: external.then_some(9),
        mtu: 1450,
        external,
        addresses,
    };
    Router {
        id: "0d4fb9ea-9ee0-4d83-9c0f-fb1bb4dbe9cd".parse().expect("the value is a UUID"),
        interfaces: vec![
            interface(0xee, true, vec![address("198.51.100.5/24", Some("198.51.100.1"))]),
            interface(0xdd, false, vec![address("10.0.0.1/24", None), address("fd00::1/64", None)]),
        ],
        snat: true,
        floating: vec![
            FloatingAddress { floating: [198, 51, 100, 9].into(), fixed: [10, 0, 0, 3].into() },
            FloatingAddress { floating: [198, 51, 100, 8].into(), fixed: [10, 0, 0, 2].into() },
        ],
        routes: vec![("10.9.0.0/16".into(), "10.0.0.7".parse().expect("the address is valid"))],
    }
}

#[test]
fn addresses_are_translated() {
    assert_eq!(
        nat::table(&router()),
        "table ip kilonova\n\
         delete table ip kilonova\n\
         table ip kilonova {\n\
         \tchain prerouting {\n\
         \t\ttype nat hook prerouting priority -100; policy accept;\n\
         \t\tdnat to ip daddr map { 198.51.100.8 : 10.0.0.2, 198.51.100.9 : 10.0.0.3 }\n\
         \t}\n\
         \tchain postrouting {\n\
         \t\ttype nat hook postrouting priority 100; policy accept;\n\
         \t\toifname \"qg-eeaaaaaa-bb\" snat to ip saddr map { 10.0.0.2 : 198.51.100.8, 10.0.0.3 : 198.51.100.9 }\n\
         \t\toifname != \"qg-eeaaaaaa-bb\" ct status dnat snat to ip saddr map { 10.0.0.2 : 198.51.100.8, 10.0.0.3 : 198.51.100.9 }\n\
         \t\toifname != \"qg-eeaaaaaa-bb\" ct status dnat ip saddr { 10.0.0.0/24 } snat to 198.51.100.5\n\
         \t\toifname \"qg-eeaaaaaa-bb\" snat to 198.51.100.5\n\
         \t}\n\
         }\n"
    );
    let without = Router { snat: false, floating: Vec::new(), ..router() };
    assert!(!nat::table(&without).contains(" to "), "{}", nat::table(&without));
    let mut inner = router();
    inner.interfaces.remove(0);
    assert_eq!(nat::table(&inner), "table ip kilonova\ndelete table ip kilonova\n");
}

#[test]
fn a_namespace_gets_what_it_lacks_and_announces_it() {
    let fresh = ["qg-eeaaaaaa-bb".to_owned(), "qr-ddaaaaaa-bb".to_owned()].into();
    let empty = br#"[{"ifname": "lo", "flags": []}, {"ifname": "qg-eeaaaaaa-bb", "flags": []},
        {"ifname": "qr-ddaaaaaa-bb", "flags": []}] []"#;
    let is = Inside::parse(empty, b"").expect("the text is valid output of ip");
    assert!(!is.is_complete());
    assert_eq!(
        is.lines(&router(), &fresh, true),
        "address add 198.51.100.5/32 dev qg-eeaaaaaa-bb\n\
         address add 198.51.100.8/32 dev qg-eeaaaaaa-bb\n\
         address add 198.51.100.9/32 dev qg-eeaaaaaa-bb\n\
         link set dev qg-eeaaaaaa-bb up\n\
         address add 10.0.0.1/24 dev qr-ddaaaaaa-bb\n\
         address add fd00::1/64 dev qr-ddaaaaaa-bb nodad\n\
         address add fe80::f816:3eff:fe00:dd/64 dev qr-ddaaaaaa-bb nodad\n\
         link set dev qr-ddaaaaaa-bb up\n\
         route replace 0.0.0.0/0 via 198.51.100.1 dev qg-eeaaaaaa-bb onlink proto static\n\
         route replace 10.9.0.0/16 via 10.0.0.7 dev qr-ddaaaaaa-bb onlink proto static\n\
         route replace 198.51.100.0/24 dev qg-eeaaaaaa-bb scope link proto static\n\
         link set dev lo up\n\
         neigh replace 198.51.100.5 dev qg-eeaaaaaa-bb nud none use\n\
         neigh replace 198.51.100.8 dev qg-eeaaaaaa-bb nud none use\n\
         neigh replace 198.51.100.9 dev qg-eeaaaaaa-bb nud none use\n\
         neigh replace 10.0.0.1 dev qr-ddaaaaaa-bb nud none use\n"
    );
    let there = br#"[{"ifname": "lo", "flags": ["UP"]},
        {"ifname": "qg-eeaaaaaa-bb", "flags": ["UP"], "addr_info": [
            {"local": "198.51.100.5", "prefixlen": 32}, {"local": "198.51.100.7", "prefixlen": 32},
            {"local": "198.51.100.8", "prefixlen": 32}]},
        {"ifname": "qr-ddaaaaaa-bb", "flags": ["UP"], "addr_info": [
            {"local": "10.0.0.1", "prefixlen": 24}]}]
        [{"dst": "default", "gateway": "198.51.100.1", "dev": "qg-eeaaaaaa-bb", "protocol": "static"},
         {"dst": "198.51.100.0/24", "dev": "qg-eeaaaaaa-bb", "protocol": "static"},
         {"dst": "10.8.0.0/16", "gateway": "10.0.0.7", "dev": "qr-ddaaaaaa-bb", "protocol": "static"},
         {"dst": "10.0.0.0/24", "dev": "qr-ddaaaaaa-bb", "protocol": "kernel"}]"#;
    let is = Inside::parse(there, b"[]").expect("the text is valid output of ip");
    assert!(is.is_complete());
    assert_eq!(
        is.lines(&router(), &BTreeSet::new(), false),
        "address delete 198.51.100.7/32 dev qg-eeaaaaaa-bb\n\
         address add 198.51.100.9/32 dev qg-eeaaaaaa-bb\n\
         route delete 10.8.0.0/16 via 10.0.0.7 dev qr-ddaaaaaa-bb proto static\n\
         route replace 10.9.0.0/16 via 10.0.0.7 dev qr-ddaaaaaa-bb onlink proto static\n\
         neigh replace 198.51.100.9 dev qg-eeaaaaaa-bb nud none use\n"
    );
}

#[test]
fn subnets_are_advertised_as_they_want() {
    let of = |router: &Router, six: bool| -> Vec<String> {
        let all = advertise::arguments(Path::new("/run/x"), router, six);
        let said = |word: &String| {
            ["--enable-ra", "--dhcp-range", "--dhcp-option=", "--interface"]
                .iter()
                .any(|one| word.starts_with(one))
        };
        all.into_iter().filter(said).collect()
    };
    assert!(!advertise::is_wanted(&router(), true));
    for (mode, word) in [
        (SixMode::Slaac, "ra-only"),
        (SixMode::Stateless, "ra-stateless"),
        (SixMode::Stateful, "static"),
    ] {
        let mut router = router();
        router.interfaces[1].addresses[1].advertisement = Some(mode);
        router.interfaces[1].addresses[1].dns = vec!["fd00::53".parse().expect("it is valid")];
        assert_eq!(
            of(&router, true),
            [
                "--enable-ra".into(),
                format!("--dhcp-range=set:subnet-fd00--,fd00::,{word},64,86400s"),
                "--dhcp-option=tag:subnet-fd00--,option6:dns-server,[fd00::53]".into(),
                "--interface=qr-ddaaaaaa-bb".into(),
            ]
        );
        assert!(advertise::is_wanted(&router, true));
        assert!(!advertise::is_wanted(&router, false), "a host without IPv6");
    }
}
