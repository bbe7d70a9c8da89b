//! Boots on hosts that fail, at each step of a simulated host.

use serde_json::json;

use crate::kit::{Cloud, FPGA, GPU, RunningCloud, fault, hosts};

/// Steps of a boot, each with a flavor whose boot includes it.
const STEPS: &[(&str, &str)] =
    &[("create_mdev", "vgpu"), ("image", "vgpu"), ("define", "fpga"), ("start", "vgpu")];

async fn boot_on(running: &RunningCloud, cloud: &Cloud, host: &str, flavor: &str) -> String {
    let mut boot_request = running.boot_request(cloud, "one", flavor);
    boot_request["server"]["host"] = json!(host);
    let made = running.admin("2.90", "POST /servers", boot_request).await.expect(202);
    made["server"]["id"].as_str().expect("the answer has an id").to_owned()
}

#[tokio::test]
async fn a_failed_boot_is_rescheduled() {
    for (cloud, mut running) in
        Cloud::all_running(hosts(&[("a", &[GPU, FPGA]), ("b", &[GPU, FPGA])])).await
    {
        for (step, flavor) in STEPS {
            running.restart_failing(&cloud, "a", &[(step, None)]).await;
            // A boot starts on either host while both are empty, so some of the four start on the failing one.
            for n in 0..4 {
                let id = running.boot(&cloud, &format!("n{n}"), flavor).await;
                let server = running.wait_for_status(&id, "ACTIVE").await;
                assert_eq!(server["OS-EXT-SRV-ATTR:host"], "b", "{step}");
                if n < 3 {
                    running.delete(&id).await;
                    running.wait_until_gone(&id).await;
                    running.wait_for_host_cleanup(&cloud).await;
                }
            }
            cloud.assert_consistent(&running, step).await;
            cloud.teardown(&running, step).await;
        }
        let moved = "SELECT CAST(COUNT(*) AS TEXT) FROM operation_events
            WHERE host = 'a' AND result = 'Error'";
        assert_ne!(cloud.column(moved).await, ["0"], "no boot started on the failing host");
    }
}

#[tokio::test]
async fn without_another_host_the_fault_names_the_cause() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU, FPGA])])).await {
        for (step, flavor) in STEPS {
            running.restart_failing(&cloud, "a", &[(step, None)]).await;
            let id = running.boot(&cloud, "one", flavor).await;
            let server = running.wait_for_status(&id, "ERROR").await;
            let fault = fault(&server);
            assert!(fault.starts_with("No valid host was found."), "{step}: {fault}");
            assert!(fault.contains(&format!("a: {step}: ")), "{step}: {fault}");
            assert!(server["OS-EXT-SRV-ATTR:host"].is_null(), "{step}: {server}");
            assert_eq!(server["OS-EXT-STS:power_state"], 0, "{step}: {server}");
            assert_eq!(cloud.used("VCPU").await, 0, "{step}");
            cloud.assert_consistent(&running, step).await;
            cloud.teardown(&running, step).await;
        }
    }
}

#[tokio::test]
async fn a_boot_on_a_requested_host_is_not_rescheduled() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU]), ("b", &[GPU])])).await {
        running.restart_failing(&cloud, "a", &[("start", None)]).await;
        let id = boot_on(&running, &cloud, "a", "vgpu").await;
        let server = running.wait_for_status(&id, "ERROR").await;
        assert!(fault(&server).contains("a: start: "), "{server}");
        cloud.assert_consistent(&running, "named").await;
        cloud.teardown(&running, "named").await;
    }
}

#[tokio::test]
async fn at_most_three_hosts_are_tried() {
    let topology = hosts(&[("a", &[GPU]), ("b", &[GPU]), ("c", &[GPU]), ("d", &[GPU])]);
    for (cloud, mut running) in Cloud::all_running(topology).await {
        for host in ["a", "b", "c", "d"] {
            running.restart_failing(&cloud, host, &[("start", None)]).await;
        }
        let id = running.boot(&cloud, "one", "vgpu").await;
        let server = running.wait_for_status(&id, "ERROR").await;
        let words = "Exceeded maximum number of retries. Exhausted all hosts available for \
            retrying build failures for instance";
        assert!(fault(&server).starts_with(&format!("{words} {id}.")), "{server}");
        let attempts = "SELECT DISTINCT host FROM operation_events WHERE result = 'Error'";
        assert_eq!(cloud.column(attempts).await.len(), 3);
        cloud.assert_consistent(&running, "three").await;
        cloud.teardown(&running, "three").await;
    }
}

/// The host first fails to destroy the guest; its devices are not claimed until it succeeds.
#[tokio::test]
async fn a_claim_is_kept_until_the_host_has_cleaned_up() {
    for (cloud, mut running) in Cloud::all_running(hosts(&[("a", &[GPU])])).await {
        let id = running.active_server(&cloud, "one", "vgpu").await;
        running.restart_failing(&cloud, "a", &[("destroy", Some(1))]).await;
        running.delete(&id).await;
        running.wait_until_gone(&id).await;
        cloud.assert_empty(&running, "deleted").await;
        let failed = "SELECT details FROM operation_events WHERE result = 'Error'";
        let failed = cloud.column(failed).await;
        assert!(failed.len() == 1 && failed[0].contains("a: destroy: "), "{failed:?}");
    }
}
