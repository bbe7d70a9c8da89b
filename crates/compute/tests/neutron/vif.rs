//! Bound ports as hosts connect them.

use kilonova_compute_app::ports::neutron::{BoundPort, interface};
use kilonova_neutron::{Network, Port, Subnet};
use kilonova_node_api::{Interface, MacvtapMode, SixMode, Vif};
use serde_json::{Value, json};

const PORT: &str = "aaaaaaaa-5555-4555-8555-555555555555";
const NETWORK: &str = "66666666-6666-4666-8666-666666666666";
const SUBNET: &str = "77777777-6666-4666-8666-666666666666";

fn connected(binding: Value) -> Result<Interface, String> {
    let mut port = json!({
        "id": PORT, "network_id": NETWORK, "mac_address": "fa:16:3e:00:00:01", "device_id": null,
        "fixed_ips": [{"subnet_id": SUBNET, "ip_address": "10.99.0.5"}],
    });
    let fields = binding.as_object().expect("an object").clone();
    port.as_object_mut().expect("an object").extend(fields);
    let port: Port = serde_json::from_value(port).expect("a port");
    let network: Network = serde_json::from_value(json!({
        "id": NETWORK, "name": "net", "mtu": 1450, "provider:network_type": "vxlan",
        "provider:physical_network": null,
    }))
    .expect("a network");
    let subnet: Subnet = serde_json::from_value(json!({
        "id": SUBNET, "network_id": NETWORK, "cidr": "10.99.0.0/24", "gateway_ip": "10.99.0.1",
        "enable_dhcp": true, "dns_nameservers": ["10.99.0.53"],
        "host_routes": [{"destination": "10.1.0.0/16", "nexthop": "10.99.0.9"}],
    }))
    .expect("a subnet");
    let dhcp: Port = serde_json::from_value(json!({
        "id": SUBNET, "fixed_ips": [{"subnet_id": SUBNET, "ip_address": "10.99.0.2"}],
    }))
    .expect("a port");
    let bound = BoundPort {
        port: &port,
        network: &network,
        subnets: &[subnet],
        dhcp: &[dhcp],
        tag: Some("t"),
    };
    interface(&bound, "br-other")
}

#[test]
fn an_interface_has_what_the_guest_is_told() {
    let made = connected(json!({"binding:vif_type": "ovs", "binding:vif_details": {
        "bridge_name": "br-int", "ovs_hybrid_plug": false,
    }}));
    let expected = json!({
        "port": PORT, "mac": "fa:16:3e:00:00:01", "network": NETWORK, "network_type": "vxlan",
        "physical_network": "", "mtu": 1450, "tag": "t",
        "addresses": [{
            "address": "10.99.0.5", "prefix": 24, "gateway": "10.99.0.1", "dns": ["10.99.0.53"],
            "routes": [["10.1.0.0/16", "10.99.0.9"]], "dhcp": true, "dhcp_server": "10.99.0.2",
        }],
        "vif": {"type": "ovs", "bridge": "br-int"},
    });
    assert_eq!(serde_json::to_value(made.expect("it is connected")).expect("JSON"), expected);
}

#[test]
fn an_address_has_the_mode_of_its_subnet() {
    for (mode, expected) in [
        (json!("slaac"), Some(SixMode::Slaac)),
        (json!("dhcpv6-stateless"), Some(SixMode::Stateless)),
        (json!("dhcpv6-stateful"), Some(SixMode::Stateful)),
        (json!(null), None),
    ] {
        let port: Port = serde_json::from_value(json!({
            "id": PORT, "network_id": NETWORK, "mac_address": "fa:16:3e:00:00:01",
            "fixed_ips": [{"subnet_id": SUBNET, "ip_address": "fd00::5"}], "binding:vif_type": "ovs",
        }))
        .expect("a port");
        let network: Network =
            serde_json::from_value(json!({"id": NETWORK, "name": "net"})).expect("a network");
        let subnet: Subnet = serde_json::from_value(json!({
            "id": SUBNET, "network_id": NETWORK, "cidr": "fd00::/64", "enable_dhcp": true,
            "ipv6_address_mode": mode,
        }))
        .expect("a subnet");
        let subnets = [subnet];
        let bound =
            BoundPort { port: &port, network: &network, subnets: &subnets, dhcp: &[], tag: None };
        let made = interface(&bound, "br-int").expect("it is connected");
        assert_eq!(made.addresses[0].six, expected);
    }
}

#[test]
fn the_binding_decides_the_backend() {
    let pci = json!({"pci_slot": "0000:81:00.2"});
    let macvtap = |mode: &str| {
        json!({"binding:vif_type": "macvtap", "binding:vnic_type": "normal", "binding:vif_details": {
            "macvtap_source": "up0.7", "macvtap_mode": mode, "physical_interface": "up0",
        }})
    };
    let ovs = |bridge: &str| Some(Vif::Ovs { bridge: bridge.into() });
    let function = Some("0000:81:00.2".to_owned());
    for (binding, vif, device, vlan) in [
        (json!({"binding:vif_type": "ovs"}), ovs("br-other"), None, None),
        (
            json!({"binding:vif_type": "ovs",
                "binding:vif_details": {"bridge_name": "br-a-very-long-name"}}),
            ovs("br-a-very-long"),
            None,
            None,
        ),
        (
            json!({"binding:vif_type": "ovs",
                "binding:vif_details": {"bridge_name": "br-int", "ovs_hybrid_plug": true}}),
            Some(Vif::OvsHybrid { bridge: "br-int".into() }),
            None,
            None,
        ),
        (
            json!({"binding:vif_type": "hw_veb", "binding:vnic_type": "direct",
                "binding:vif_details": {"vlan": "100"}, "binding:profile": pci}),
            None,
            function.clone(),
            Some(100),
        ),
        (
            json!({"binding:vif_type": "hostdev_physical", "binding:vnic_type": "direct-physical",
                "binding:vif_details": {"vlan": "0"}, "binding:profile": pci}),
            None,
            function,
            None,
        ),
        (
            macvtap("bridge"),
            Some(Vif::Macvtap { source: "up0.7".into(), mode: MacvtapMode::Bridge }),
            None,
            None,
        ),
    ] {
        let made = connected(binding.clone()).expect("it is connected");
        assert_eq!((made.vif, made.device, made.vlan), (vif, device, vlan), "{binding}");
    }
    for (binding, words) in [
        (json!({"binding:vif_type": "unbound"}), "Unexpected vif_type=unbound"),
        (json!({"binding:vif_type": "bridge"}), "Unexpected vif_type=bridge"),
        (
            json!({"binding:vif_type": "ovs", "binding:vnic_type": "direct"}),
            "Unexpected vif_type=ovs with vnic_type=direct",
        ),
        (
            json!({"binding:vif_type": "hw_veb", "binding:vnic_type": "direct"}),
            "has no pci_slot in its binding:profile",
        ),
        (macvtap("odd"), "has the macvtap_mode odd"),
        (
            json!({"binding:vif_type": "macvtap", "binding:vif_details": {"macvtap_mode": "vepa"}}),
            r#"Parameters ["macvtap_source", "physical_interface"] not present in vif_details"#,
        ),
        (
            json!({"binding:vif_type": "binding_failed"}),
            "please check neutron logs for more information.",
        ),
    ] {
        let why = connected(binding).expect_err(words);
        assert!(why.contains(words), "{why}");
    }
}
