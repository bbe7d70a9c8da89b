//! Upstream's `AcceleratorServerTest`: one host, one server with an accelerator of a device profile.

use kilonova_ids::ProviderId;
use serde_json::json;

use super::inspect::{
    assert_bound, assert_no_allocations_on, assert_no_claims, placement, provider,
};
use super::{FIRST, ONE};
use crate::kit::{Cloud, fault, hosts};

#[tokio::test]
async fn create_delete_server_ok() {
    for (cloud, running) in Cloud::all_running(hosts(&[("accel_host0", &[FIRST])])).await {
        let id = running.active_server(&cloud, "accel_server1", "fpga").await;
        assert_bound(&cloud, &running, &id, ONE).await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        assert_no_claims(&running, &id).await;
        assert_no_allocations_on(&running, "accel_host0").await;
        cloud.assert_empty(&running, "deleted").await;
    }
}

/// A failed build leaves neither allocations nor ARQs, before and after the server is deleted.
#[tokio::test]
async fn create_server_with_error() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("accel_host0", &[FIRST])])).await {
        running.restart_failing(&cloud, "accel_host0", &[("start", None)]).await;
        let id = running.boot(&cloud, "accel_server1", "fpga").await;
        running.wait_for_status(&id, "ERROR").await;
        assert_no_claims(&running, &id).await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        assert_no_claims(&running, &id).await;
        cloud.assert_empty(&running, "failed").await;
    }
}

#[tokio::test]
async fn create_server_with_local_delete() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("accel_host0", &[FIRST])])).await {
        let id = running.active_server(&cloud, "accel_server1", "fpga").await;
        running.act(&id, json!({"os-stop": null})).await;
        running.wait_for_status(&id, "SHUTOFF").await;
        assert_bound(&cloud, &running, &id, ONE).await;
        running.nodes.kill("accel_host0").await;
        running.force_down("accel_host0", true).await;
        running.delete(&id).await;
        assert!(running.server(&id).await.is_null(), "the delete does not wait for the host");
        assert_no_claims(&running, &id).await;
        running.force_down("accel_host0", false).await;
        running.start_node(&cloud, "accel_host0").await;
        running.wait_for_host_cleanup(&cloud).await;
        cloud.assert_empty(&running, "the host is back").await;
    }
}

/// Upstream's tests create the devices' providers by hand. Here only a registration creates a
/// device: a boot on a provider without one fails, and the provider is unchanged.
#[tokio::test]
async fn a_provider_made_by_hand_gives_no_device() {
    for (cloud, running) in Cloud::all_running(hosts(&[("accel_host0", &[])])).await {
        let id = ProviderId::new_v4();
        let root = provider(&running, "accel_host0").await;
        let child = json!({"name": "FakeDevice0", "uuid": id, "parent_provider_uuid": root});
        placement(&running, "POST /resource_providers", Some(child)).await.expect(200);
        let inventories = json!({
            "resource_provider_generation": 0,
            "inventories": {"FPGA": {"total": 2}},
        });
        let path = format!("PUT /resource_providers/{id}/inventories");
        placement(&running, &path, Some(inventories)).await.expect(200);
        placement(&running, "PUT /traits/CUSTOM_FAKE_DEVICE", None).await;
        let traits = json!({
            "resource_provider_generation": 1,
            "traits": ["CUSTOM_FAKE_DEVICE", "OWNER_CYBORG"],
        });
        let path = format!("PUT /resource_providers/{id}/traits");
        placement(&running, &path, Some(traits)).await.expect(200);
        let server = running.boot(&cloud, "accel_server1", "fpga").await;
        let shown = running.wait_for_status(&server, "ERROR").await;
        assert!(fault(&shown).starts_with("No valid host was found."), "{shown}");
        assert_no_claims(&running, &server).await;
        assert_no_allocations_on(&running, "accel_host0").await;
        cloud.assert_consistent(&running, "set by an operator").await;
        cloud.teardown(&running, "set by an operator").await;
    }
}
