//! Servers whose devices are programmed before they start, or cleaned after they are gone.

use std::sync::Arc;

use kilonova_accelerator::State;
use kilonova_accelerator::reconcile::process_pending;
use serde_json::{Value, json};

use crate::kit::{Cloud, DISK, INTEL, ONCE, Up, fault, hosts};
use crate::servers::placing::placement;

const DIRTY: &str = "SELECT address FROM attach_handles WHERE state = 'dirty'";

/// Waits until nothing is to be done to any device.
async fn all_carried_out(cloud: &Cloud) {
    let open = "SELECT uuid FROM device_orders WHERE state = 'open'";
    crate::kit::patiently("device orders", async || cloud.column(open).await.is_empty()).await;
}

#[tokio::test]
async fn a_card_is_programmed_before_its_guest_starts() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[INTEL])])).await {
        let bitstream = "SELECT bitstream_id FROM deployables WHERE bitstream_id IS NOT NULL";
        assert_eq!(cloud.column(bitstream).await, Vec::<String>::new());
        let id = up.active(&cloud, "one", "loaded").await;
        all_carried_out(&cloud).await;
        assert_eq!(cloud.column(bitstream).await.len(), 1);
        let states = "SELECT state FROM arqs";
        assert_eq!(cloud.column(states).await, ["Bound"]);
        let loaded = "SELECT trait FROM provider_traits
            WHERE trait = 'CUSTOM_FPGA_FUNCTION_ID_INTEL_331DB30C988541EA9081F88B8F655CAA'";
        assert_eq!(cloud.column(loaded).await.len(), 1);
        cloud.sound(&up, "programmed").await;
        up.delete(&id).await;
        up.goes(&id).await;
        // It is loaded now, so the next one need not wait.
        let id = up.active(&cloud, "two", "loaded").await;
        assert_eq!(cloud.column("SELECT uuid FROM device_orders").await.len(), 1);
        up.delete(&id).await;
        up.goes(&id).await;
        cloud.sweep(&up, "programmed").await;
        up.kill().await;
    }
}

#[tokio::test]
async fn a_server_whose_bitstream_is_none_fails_with_the_reason_and_holds_nothing() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[INTEL]), ("b", &[INTEL])])).await {
        let id = up.boot(&cloud, "one", "spoilt").await;
        let server = up.becomes(&id, "ERROR").await;
        let reason = fault(&server);
        assert!(reason.contains("program: not a bitstream for this card"), "{reason}");
        let tried = "SELECT host FROM device_orders WHERE state = 'failed' ORDER BY host";
        assert_eq!(cloud.column(tried).await, ["a", "b"], "both hosts were tried");
        assert_eq!(cloud.column("SELECT uuid FROM arqs").await, Vec::<String>::new());
        cloud.sound(&up, "failed").await;
        up.active(&cloud, "two", "loaded").await;
        cloud.sweep(&up, "failed").await;
        up.kill().await;
    }
}

#[tokio::test]
async fn a_profile_whose_bitstream_cannot_be_had_is_refused() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[INTEL])])).await {
        let groups = json!([{"resources:FPGA": "1", "accel:function_id": "unheard-of"}]);
        cloud.profile("absent", &groups).await;
        up.flavor("absent", json!({})).await;
        let specs = json!({"extra_specs": {"accel:device_profile": "absent"}});
        up.admin("2.61", "POST /flavors/absent/os-extra_specs", specs).await.expect(200);
        let wish = up.wish(&cloud, "one", "absent");
        let answer = up.call(crate::kit::ANN, "2.90", "POST /servers", Some(wish)).await;
        answer.refused(400, "0 public images");
        cloud.sweep(&up, "refused").await;
        up.kill().await;
    }
}

#[tokio::test]
async fn a_disk_is_cleared_before_it_has_another_guest() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[DISK])])).await {
        for name in ["one", "two"] {
            let id = up.active(&cloud, name, "disk").await;
            up.delete(&id).await;
            up.goes(&id).await;
            all_carried_out(&cloud).await;
            assert_eq!(cloud.column(DIRTY).await, Vec::<String>::new());
        }
        let said = cloud.column("SELECT output FROM device_orders ORDER BY id").await;
        assert_eq!(
            said,
            ["simulated cleaning of 0000:01:00.0", "simulated cleaning of 0000:01:00.0"]
        );
        cloud.sweep(&up, "cleared").await;
        up.kill().await;
    }
}

#[tokio::test]
async fn a_disk_on_a_lost_host_is_cleared_when_the_host_is_back() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[DISK])])).await {
        let id = up.active(&cloud, "one", "disk").await;
        up.force_down("a", true).await;
        up.delete(&id).await;
        up.goes(&id).await;
        up.hosts_have_dropped(&cloud).await;
        all_carried_out(&cloud).await;
        assert_eq!(cloud.column(DIRTY).await, Vec::<String>::new());
        assert_eq!(cloud.column("SELECT state FROM device_orders").await, ["done"]);
        up.force_down("a", false).await;
        up.active(&cloud, "two", "disk").await;
        cloud.sweep(&up, "cleared").await;
        up.kill().await;
    }
}

async fn inventory(up: &Up, provider: &str) -> Value {
    let path = format!("/resource_providers/{provider}/inventories");
    placement(up, "GET", &path, Value::Null).await
}

#[tokio::test]
async fn an_operator_gives_a_card_that_is_used_once_back() {
    for (cloud, up) in Cloud::all_up(hosts(&[("a", &[ONCE])])).await {
        let state = State::new(cloud.store.clone(), up.compute.world.clone())
            .with_nodes(Arc::new(up.compute.clone()));
        let provider = cloud.column("SELECT provider_id FROM deployables").await.remove(0);
        for round in 0..2 {
            let id = up.active(&cloud, "one", "once").await;
            up.delete(&id).await;
            up.goes(&id).await;
            assert_eq!(cloud.column(DIRTY).await, ["0000:3d:00.0"], "{round}");
            let mut shown = inventory(&up, &provider).await;
            assert_eq!(shown["inventories"]["CUSTOM_ONCE"]["reserved"], 1, "{round}: {shown}");
            process_pending(&state).await.expect("pending work is processed");
            let id = up.boot(&cloud, "too early", "once").await;
            up.becomes(&id, "ERROR").await;
            up.delete(&id).await;
            up.goes(&id).await;

            shown["inventories"]["CUSTOM_ONCE"]["reserved"] = json!(0);
            let path = format!("/resource_providers/{provider}/inventories");
            placement(&up, "PUT", &path, shown).await;
            assert_eq!(
                process_pending(&state).await.expect("pending work is processed").cleaned,
                1,
                "{round}"
            );
            let shown = inventory(&up, &provider).await;
            assert_eq!(shown["inventories"]["CUSTOM_ONCE"]["reserved"], 0, "{round}: {shown}");
            cloud.sound(&up, "given back").await;
        }
        cloud.sweep(&up, "given back").await;
        up.kill().await;
    }
}
