//! The request for a network function names the network of the function.

use kilonova_node_api::{DeviceKind, HandleSlot};

use crate::common::arqs::{bind, request};
use crate::common::{Api, device, report, stores};

const PATH: &str = "/v2/accelerator_requests";
const SERVERS: [&str; 2] =
    ["6c1f5a0e-2a1b-4b7e-8a52-3f1f0f6f0a11", "6c1f5a0e-2a1b-4b7e-8a52-3f1f0f6f0a12"];

#[tokio::test]
async fn a_bound_network_function_names_its_network() {
    for (name, store, _guard) in stores().await {
        let function = |address: &str, class: &str| {
            let slots = vec![HandleSlot::Pci { address: address.into() }];
            device(address, DeviceKind::Nic, address, class, slots)
        };
        let mut connected = function("0000:05:02.0", "CUSTOM_NIC");
        let facts = &mut connected.deployables[0].facts;
        facts.insert("physical_network".into(), "physnet1".into());
        let plain = function("0000:05:02.1", "CUSTOM_PLAIN");
        let specs = report(&store, vec![connected, plain]).await.unwrap();
        let api = Api::admin(&store).with_service();
        let classes =
            [("CUSTOM_NIC", "physnet1".into()), ("CUSTOM_PLAIN", serde_json::Value::Null)];
        for (at, (class, network)) in classes.into_iter().enumerate() {
            let arqs = request(&api, class, "1").await;
            let bound = api.patch(PATH, bind(&arqs, specs[at].id, SERVERS[at])).await;
            assert_eq!(bound.status, 202, "{name}");
            let shown = api.get(&format!("{PATH}/{}", arqs[0])).await.body;
            assert_eq!(shown["attach_handle_type"], "PCI", "{name}");
            assert_eq!(shown["attach_handle_info"]["bus"], "05", "{name}");
            assert_eq!(shown["attach_handle_info"]["physical_network"], network, "{name}");
        }
    }
}
