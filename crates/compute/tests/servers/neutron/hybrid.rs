//! Ports on hosts whose Neutron agent filters with iptables: each tap has a bridge, which is connected to
//! Open vSwitch.

use kilonova_node_api::OVS_HYBRID_PLUG;
use serde_json::{Value, json};

use super::{clouds, end, operate, port_of, text};
use crate::kit::{fault, wait_until};
use crate::servers::numa::domain;
use crate::servers::owner_traits::{placement, traits};

#[tokio::test]
async fn the_binding_of_each_host_decides_how_a_tap_is_plugged() {
    for (cloud, running, neutron) in clouds(&["a", "b"]).await {
        neutron.state().add_hybrid_agent("a");
        let id = running.active_server_on(&cloud, "a", "plain").await;
        let port = text(&port_of(&neutron, &id), "id");
        let bridge = format!("<source bridge='qbr{}'/>", &port[..11]);
        let record = cloud.nodes().join("a").join("network");
        let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
        for (from, to, is_hybrid) in [("", "a", true), ("a", "b", false), ("b", "a", true)] {
            if !from.is_empty() {
                operate(&running, &id, live.clone()).await;
                let server = running.wait_for_status(&id, "ACTIVE").await;
                assert_eq!(server["OS-EXT-SRV-ATTR:host"], to);
            }
            let xml = domain(&cloud, to, &id);
            assert_eq!(xml.contains(&bridge), is_hybrid, "{to}: {xml}");
            assert_eq!(xml.contains("<virtualport type='openvswitch'>"), !is_hybrid, "{to}: {xml}");
            wait_until("the host has the links that it needs", async || {
                let wanted = std::fs::read_to_string(&record).unwrap_or_default();
                wanted.contains("ovs_hybrid") == is_hybrid
            })
            .await;
        }
        end(&cloud, &running, &neutron, &[]).await;
        wait_until("the host needs no links", async || !record.exists()).await;
    }
}

#[tokio::test]
async fn the_source_learns_how_the_destination_plugs_a_tap() {
    for (cloud, mut running, neutron) in clouds(&["a", "b"]).await {
        neutron.state().add_hybrid_agent("b");
        let id = running.active_server_on(&cloud, "a", "plain").await;
        running.nodes.kill("a").await;
        let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
        operate(&running, &id, live).await;
        wait_until("the source's document names the destination's interface", async || {
            let documents = cloud.column("SELECT body FROM documents WHERE host = 'a'").await;
            let has = |document: &String| {
                let body: Value = serde_json::from_str(document).expect("the document is JSON");
                let found = body.pointer("/departure/interfaces/0/vif/type");
                found == Some(&json!("ovs_hybrid"))
            };
            documents.iter().any(has)
        })
        .await;
        running.start_node(&cloud, "a").await;
        running.wait_for_status(&id, "ACTIVE").await;
        end(&cloud, &running, &neutron, &[]).await;
    }
}

#[tokio::test]
async fn a_host_with_an_older_agent_gets_no_such_port() {
    for (cloud, running, neutron) in clouds(&["a", "b"]).await {
        neutron.state().add_hybrid_agent("a");
        let (path, mut body) = traits(&running, "a").await;
        let all = body["traits"].as_array_mut().expect("the answer has traits");
        all.retain(|name| name != OVS_HYBRID_PLUG);
        placement(&running, "PUT", &path, body).await;
        let mut request = running.boot_request(&cloud, "one", "plain");
        request["server"]["host"] = json!("a");
        let made = running.admin("2.90", "POST /servers", request).await.expect(202);
        let server = running.wait_for_status(&text(&made["server"], "id"), "ERROR").await;
        let why = fault(&server);
        assert!(why.contains("which the agent of a does not support"), "{why}");
        let id = running.active_server_on(&cloud, "b", "plain").await;
        let live = json!({"os-migrateLive": {"host": null, "block_migration": "auto"}});
        operate(&running, &id, live).await;
        let server = running.wait_for_status(&id, "ACTIVE").await;
        assert_eq!(server["OS-EXT-SRV-ATTR:host"], "b");
        assert!(!domain(&cloud, "b", &id).contains("qbr"));
        end(&cloud, &running, &neutron, &[]).await;
    }
}
