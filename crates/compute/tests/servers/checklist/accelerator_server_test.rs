//! Upstream's `AcceleratorServerTest`: one host, one server with an accelerator of a device profile.

use kilonova_ids::ProviderId;
use serde_json::json;

use super::eyes::{has, has_nothing, nothing_on, placement, provider};
use super::{FIRST, ONE};
use crate::kit::{Cloud, fault, hosts};

#[tokio::test]
async fn create_delete_server_ok() {
    for (cloud, up) in Cloud::all_up(hosts(&[("accel_host0", &[FIRST])])).await {
        let id = up.active(&cloud, "accel_server1", "fpga").await;
        has(&cloud, &up, &id, ONE).await;
        up.delete(&id).await;
        up.goes(&id).await;
        has_nothing(&up, &id).await;
        nothing_on(&up, "accel_host0").await;
        cloud.empty(&up, "deleted").await;
    }
}

/// A build that fails leaves neither allocations nor requests, before the server is deleted and
/// after.
#[tokio::test]
async fn create_server_with_error() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("accel_host0", &[FIRST])])).await {
        up.restart_failing(&cloud, "accel_host0", &[("start", None)]).await;
        let id = up.boot(&cloud, "accel_server1", "fpga").await;
        up.becomes(&id, "ERROR").await;
        has_nothing(&up, &id).await;
        up.delete(&id).await;
        up.goes(&id).await;
        has_nothing(&up, &id).await;
        cloud.empty(&up, "failed").await;
    }
}

#[tokio::test]
async fn create_server_with_local_delete() {
    for (cloud, mut up) in Cloud::all_up(hosts(&[("accel_host0", &[FIRST])])).await {
        let id = up.active(&cloud, "accel_server1", "fpga").await;
        up.act(&id, json!({"os-stop": null})).await;
        up.becomes(&id, "SHUTOFF").await;
        has(&cloud, &up, &id, ONE).await;
        up.nodes.kill("accel_host0").await;
        up.force_down("accel_host0", true).await;
        up.delete(&id).await;
        assert!(up.server(&id).await.is_null(), "it does not wait for the host");
        has_nothing(&up, &id).await;
        up.force_down("accel_host0", false).await;
        up.start_node(&cloud, "accel_host0").await;
        up.hosts_have_dropped(&cloud).await;
        cloud.empty(&up, "the host is back").await;
    }
}

/// Upstream's tests make the devices' providers by hand. Here only a host's word makes a device: a
/// server is not built without it, and the provider stays as it was.
#[tokio::test]
async fn a_provider_made_by_hand_gives_no_device() {
    for (cloud, up) in Cloud::all_up(hosts(&[("accel_host0", &[])])).await {
        let id = ProviderId::new_v4();
        let root = provider(&up, "accel_host0").await;
        let child = json!({"name": "FakeDevice0", "uuid": id, "parent_provider_uuid": root});
        placement(&up, "POST /resource_providers", Some(child)).await.expect(200);
        let inventories = json!({
            "resource_provider_generation": 0,
            "inventories": {"FPGA": {"total": 2}},
        });
        let path = format!("PUT /resource_providers/{id}/inventories");
        placement(&up, &path, Some(inventories)).await.expect(200);
        placement(&up, "PUT /traits/CUSTOM_FAKE_DEVICE", None).await;
        let traits = json!({
            "resource_provider_generation": 1,
            "traits": ["CUSTOM_FAKE_DEVICE", "OWNER_CYBORG"],
        });
        let path = format!("PUT /resource_providers/{id}/traits");
        placement(&up, &path, Some(traits)).await.expect(200);
        let server = up.boot(&cloud, "accel_server1", "fpga").await;
        let shown = up.becomes(&server, "ERROR").await;
        assert!(fault(&shown).starts_with("No valid host was found."), "{shown}");
        has_nothing(&up, &server).await;
        nothing_on(&up, "accel_host0").await;
        cloud.sound(&up, "by hand").await;
        cloud.sweep(&up, "by hand").await;
    }
}
