//! Tests of the plan of links.

use kilonova_node_api::Filters;

use super::read::parse;
use super::*;
use crate::config::{HostNetworkConfig, Uplink};
use crate::nets::Nets;
use crate::testing::{config, interface, network, wanted};

fn links(json: &str) -> Links {
    parse(json.as_bytes()).expect("the links are listed")
}

/// The planned steps, one line each; nothing is applied.
fn planned(nets: &Nets, config: &HostNetworkConfig, there: &Links) -> (Vec<String>, Vec<String>) {
    let plan = plan(nets, config, there);
    let mut steps: Vec<String> = plan.gone.iter().map(|step| step.join(" ")).collect();
    for (_, some) in &plan.steps {
        steps.extend(some.iter().map(|step| step.join(" ")));
    }
    (steps, plan.lacking.into_values().collect())
}

fn nets(interfaces: Vec<kilonova_node_api::Interface>) -> Nets {
    Nets::of(&wanted(interfaces, Filters::default()), &config())
}

const UPLINK: &str = r#"{"ifname": "up0", "mtu": 1500, "flags": ["UP"]}"#;

#[test]
fn a_vlan_is_created_and_attached_once() {
    let vlan = kilonova_node_api::Interface { vlan: Some(100), ..interface(2) };
    let nets = nets(vec![vlan]);
    let (steps, lacking) = planned(&nets, &config(), &links(&format!("[{UPLINK}]")));
    assert_eq!(lacking, Vec::<String>::new());
    assert_eq!(
        steps,
        [
            "link add link up0 name kv01111111-22 type vlan id 100",
            "link set dev kv01111111-22 alias kilonova",
            "link set dev kv01111111-22 mtu 1450",
            "link add name brq01111111-22 type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
            "link set dev brq01111111-22 alias kilonova",
            "link set dev brq01111111-22 addrgenmode none",
            "link set dev brq01111111-22 mtu 1450",
            "link set dev kv01111111-22 master brq01111111-22",
            "link set dev kv01111111-22 up",
            "link set dev brq01111111-22 up",
        ]
    );
    let there = r#"{"ifname": "kv01111111-22", "mtu": 1450, "flags": ["UP"], "ifalias": "kilonova",
        "link": "up0", "master": "brq01111111-22",
        "linkinfo": {"info_kind": "vlan", "info_data": {"id": 100}}},
        {"ifname": "brq01111111-22", "mtu": 1450, "flags": ["UP"], "ifalias": "kilonova",
        "linkinfo": {"info_kind": "bridge", "info_data": {"forward_delay": 0}}}"#;
    let both = links(&format!("[{UPLINK}, {there}]"));
    assert_eq!(planned(&nets, &config(), &both), (vec![], vec![]), "nothing is done twice");
    let other = links(&format!("[{UPLINK}, {there}]").replace("\"id\": 100", "\"id\": 101"));
    let (steps, _) = planned(&nets, &config(), &other);
    assert_eq!(steps[0], "link delete dev kv01111111-22");
    assert!(steps[1].ends_with("id 100"), "{steps:?}");
    let tap = format!(r#"{{"ifname": "{}", "mtu": 1450}}"#, interface(2).tap());
    let stray = links(&format!("[{UPLINK}, {there}, {tap}]"));
    let (steps, _) = planned(&nets, &config(), &stray);
    assert_eq!(steps, [format!("link set dev {} master brq01111111-22", interface(2).tap())]);
}

#[test]
fn our_unused_links_are_removed_and_others_stay() {
    let there = r#"[{"ifname": "up0", "mtu": 1500, "master": "brq01111111-22"},
        {"ifname": "brq01111111-22", "ifalias": "kilonova", "linkinfo": {"info_kind": "bridge"}},
        {"ifname": "kd01111111-22", "ifalias": "kilonova", "master": "brq01111111-22",
         "linkinfo": {"info_kind": "veth"}},
        {"ifname": "virbr0", "linkinfo": {"info_kind": "bridge"}},
        {"ifname": "brq99999999-99", "linkinfo": {"info_kind": "bridge"}},
        {"ifname": "up0.7", "link": "up0", "linkinfo": {"info_kind": "vlan", "info_data": {"id": 7}}}
        ]"#;
    let none = Nets::default();
    let (steps, _) = planned(&none, &config(), &links(there));
    assert_eq!(steps, ["link delete dev brq01111111-22", "link delete dev kd01111111-22"]);
    let in_use = there.replace("virbr0\"", "virbr0\", \"master\": \"brq01111111-22\"");
    let (steps, _) = planned(&none, &config(), &links(&in_use));
    assert_eq!(steps, Vec::<String>::new(), "something is still attached");
}

#[test]
fn a_flat_network_uses_a_free_interface() {
    let flat = || nets(vec![interface(2)]);
    let (steps, _) = planned(&flat(), &config(), &links(&format!("[{UPLINK}]")));
    assert!(steps.contains(&"link set dev up0 master brq01111111-22".into()), "{steps:?}");
    let addressed = |scope: &str| {
        UPLINK.replace(
            "\"mtu\"",
            &format!(r#""addr_info": [{{"local": "192.0.2.5", "scope": "{scope}"}}], "mtu""#),
        )
    };
    for (uplink, config, why) in [
        ("{\"ifname\": \"lo\"}".to_owned(), config(), "is not on this host"),
        (UPLINK.to_owned(), HostNetworkConfig::default(), "physical_interface_mappings"),
        (UPLINK.replace("1500", "1400"), config(), "has an MTU of 1400"),
        (UPLINK.replace("\"mtu\"", "\"master\": \"br0\", \"mtu\""), config(), "attached to br0"),
        (addressed("global"), config(), "the host's address 192.0.2.5"),
    ] {
        let nets = Nets::of(&wanted(vec![interface(2)], Filters::default()), &config);
        let (steps, lacking) = planned(&nets, &config, &links(&format!("[{uplink}]")));
        assert_eq!(steps, Vec::<String>::new(), "{why}");
        assert!(lacking[0].contains(why), "{lacking:?}");
    }
    let (_, lacking) = planned(&flat(), &config(), &links(&format!("[{}]", addressed("link"))));
    assert_eq!(lacking, Vec::<String>::new(), "a link-local address may be lost");
    let foreign = format!(r#"[{UPLINK}, {{"ifname": "brq01111111-22"}}]"#);
    let (_, lacking) = planned(&flat(), &config(), &links(&foreign));
    assert!(lacking[0].contains("was not created by Kilonova"), "{lacking:?}");
}

#[test]
fn a_bridge_of_the_operator_is_connected_by_a_veth_pair() {
    let uplinks = [("physnet1".to_owned(), Uplink::Bridge("br-ex".into()))];
    let config = HostNetworkConfig { uplinks: uplinks.into(), ..HostNetworkConfig::default() };
    let nets = Nets::of(&wanted(vec![interface(2)], Filters::default()), &config);
    let bridge = r#"{"ifname": "br-ex", "mtu": 1500, "linkinfo": {"info_kind": "bridge"}}"#;
    let (steps, lacking) = planned(&nets, &config, &links(&format!("[{bridge}]")));
    assert_eq!(lacking, Vec::<String>::new());
    assert_eq!(steps[0], "link add name ku01111111-22 type veth peer name kp01111111-22");
    assert!(steps.contains(&"link set dev kp01111111-22 master br-ex".into()), "{steps:?}");
    assert!(steps.contains(&"link set dev ku01111111-22 master brq01111111-22".into()));
    let (_, lacking) = planned(&nets, &config, &links("[{\"ifname\": \"br-ex\"}]"));
    assert!(lacking[0].contains("not a bridge of this host"), "{lacking:?}");
    assert_eq!(nets.all[&network(1)].out().as_deref(), Some("ku01111111-22"));
}
