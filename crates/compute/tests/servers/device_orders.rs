//! Servers whose devices are programmed before they start, or cleaned after they are gone.

use std::sync::Arc;

use kilonova_accelerator::State;
use kilonova_accelerator::reconcile::process_pending;
use serde_json::{Value, json};

use crate::kit::{Cloud, DISK, INTEL, ONCE, RunningCloud, fault, hosts};
use crate::servers::host_selection::placement;

const DIRTY: &str = "SELECT address FROM attach_handles WHERE state = 'dirty'";

/// Waits until every device order is carried out.
async fn wait_for_device_orders(cloud: &Cloud) {
    let open = "SELECT uuid FROM device_orders WHERE state = 'open'";
    crate::kit::wait_until("the device orders are carried out", async || {
        cloud.column(open).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn an_fpga_is_programmed_before_its_guest_starts() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[INTEL])])).await {
        cloud.add_bitstreams().await;
        let bitstream = "SELECT bitstream_id FROM deployables WHERE bitstream_id IS NOT NULL";
        assert_eq!(cloud.column(bitstream).await, Vec::<String>::new());
        let id = running.active_server(&cloud, "one", "loaded").await;
        wait_for_device_orders(&cloud).await;
        assert_eq!(cloud.column(bitstream).await.len(), 1);
        let states = "SELECT state FROM arqs";
        assert_eq!(cloud.column(states).await, ["Bound"]);
        let loaded = "SELECT trait FROM provider_traits
            WHERE trait = 'CUSTOM_FPGA_FUNCTION_ID_INTEL_331DB30C988541EA9081F88B8F655CAA'";
        assert_eq!(cloud.column(loaded).await.len(), 1);
        cloud.assert_consistent(&running, "programmed").await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        // The bitstream is loaded, so the next boot programs nothing.
        let id = running.active_server(&cloud, "two", "loaded").await;
        assert_eq!(cloud.column("SELECT uuid FROM device_orders").await.len(), 1);
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.teardown(&running, "programmed").await;
        running.kill().await;
    }
}

#[tokio::test]
async fn an_invalid_bitstream_fails_the_boot_and_releases_its_claims() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[INTEL]), ("b", &[INTEL])])).await {
        cloud.add_bitstreams().await;
        let id = running.boot(&cloud, "one", "spoilt").await;
        let server = running.wait_for_status(&id, "ERROR").await;
        let reason = fault(&server);
        assert!(reason.contains("program: not a bitstream for this card"), "{reason}");
        let tried = "SELECT host FROM device_orders WHERE state = 'failed' ORDER BY host";
        assert_eq!(cloud.column(tried).await, ["a", "b"], "both hosts were tried");
        assert_eq!(cloud.column("SELECT uuid FROM arqs").await, Vec::<String>::new());
        cloud.assert_consistent(&running, "failed").await;
        running.active_server(&cloud, "two", "loaded").await;
        cloud.teardown(&running, "failed").await;
        running.kill().await;
    }
}

#[tokio::test]
async fn a_profile_with_an_unknown_bitstream_is_refused() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[INTEL])])).await {
        let groups = json!([{"resources:FPGA": "1", "accel:function_id": "unheard-of"}]);
        cloud.profile("absent", &groups).await;
        running.flavor("absent", json!({})).await;
        let specs = json!({"extra_specs": {"accel:device_profile": "absent"}});
        running.admin("2.61", "POST /flavors/absent/os-extra_specs", specs).await.expect(200);
        let boot_request = running.boot_request(&cloud, "one", "absent");
        let answer =
            running.call(crate::kit::ANN, "2.90", "POST /servers", Some(boot_request)).await;
        answer.refused(400, "0 public images");
        cloud.teardown(&running, "refused").await;
        running.kill().await;
    }
}

#[tokio::test]
async fn a_disk_is_cleaned_between_guests() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[DISK])])).await {
        for name in ["one", "two"] {
            let id = running.active_server(&cloud, name, "disk").await;
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
            wait_for_device_orders(&cloud).await;
            assert_eq!(cloud.column(DIRTY).await, Vec::<String>::new());
        }
        let outputs = cloud.column("SELECT output FROM device_orders ORDER BY id").await;
        assert_eq!(
            outputs,
            ["simulated cleaning of 0000:01:00.0", "simulated cleaning of 0000:01:00.0"]
        );
        cloud.teardown(&running, "cleared").await;
        running.kill().await;
    }
}

#[tokio::test]
async fn a_disk_on_a_lost_host_is_cleaned_when_the_host_returns() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[DISK])])).await {
        let id = running.active_server(&cloud, "one", "disk").await;
        running.force_down("a", true).await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        running.wait_for_host_cleanup(&cloud).await;
        wait_for_device_orders(&cloud).await;
        assert_eq!(cloud.column(DIRTY).await, Vec::<String>::new());
        assert_eq!(cloud.column("SELECT state FROM device_orders").await, ["done"]);
        running.force_down("a", false).await;
        running.active_server(&cloud, "two", "disk").await;
        cloud.teardown(&running, "cleared").await;
        running.kill().await;
    }
}

async fn inventory(running: &RunningCloud, provider: &str) -> Value {
    let path = format!("/resource_providers/{provider}/inventories");
    placement(running, "GET", &path, Value::Null).await
}

#[tokio::test]
async fn an_operator_returns_a_one_time_use_device() {
    for (cloud, running) in Cloud::all_running(hosts(&[("a", &[ONCE])])).await {
        let state = State::new(cloud.store.clone(), running.compute.world.clone())
            .with_nodes(Arc::new(running.compute.clone()));
        let provider = cloud.column("SELECT provider_id FROM deployables").await.remove(0);
        for round in 0..2 {
            let id = running.active_server(&cloud, "one", "once").await;
            running.delete(&id).await;
            running.wait_until_gone(&id).await;
            assert_eq!(cloud.column(DIRTY).await, ["0000:3d:00.0"], "{round}");
            let mut shown = inventory(&running, &provider).await;
            assert_eq!(shown["inventories"]["CUSTOM_ONCE"]["reserved"], 1, "{round}: {shown}");
            process_pending(&state).await.expect("pending work is processed");
            let id = running.boot(&cloud, "too early", "once").await;
            running.wait_for_status(&id, "ERROR").await;
            running.delete(&id).await;
            running.wait_until_gone(&id).await;

            shown["inventories"]["CUSTOM_ONCE"]["reserved"] = json!(0);
            let path = format!("/resource_providers/{provider}/inventories");
            placement(&running, "PUT", &path, shown).await;
            assert_eq!(
                process_pending(&state).await.expect("pending work is processed").cleaned,
                1,
                "{round}"
            );
            let shown = inventory(&running, &provider).await;
            assert_eq!(shown["inventories"]["CUSTOM_ONCE"]["reserved"], 0, "{round}: {shown}");
            cloud.assert_consistent(&running, "given back").await;
        }
        cloud.teardown(&running, "given back").await;
        running.kill().await;
    }
}
